"""What the kernels of `triton_fused` share: their arguments, and what is done with one tile.

Triton takes a NamedTuple as one argument, and a kernel reads its fields by name. Pointers, strides
and lengths come as they do by themselves: Triton still sees which of them is 1 or a multiple of 16.
What is compiled in comes in a `Choices`, and the name of such an argument is in capital letters.

Offsets from the start of a tensor are 64-bit: B·H·T·D goes beyond 2³¹.
"""

# Triton reads these functions as its own language, in which annotations say what is compiled in.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
INFINITY = tl.constexpr(float("inf"))

# The interpreter holds bfloat16 as bare bits, which it cannot multiply; in float32 it can, exactly.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# Values of Choices.MASK.
NO_MASK = tl.constexpr(0)
BOOLEAN = tl.constexpr(1)
FLOATING = tl.constexpr(2)


class View(NamedTuple):
    """A tensor with four dimensions: batch, head, row and column."""

    start: Any  # a tensor; in a kernel the address of its first number
    strides: Any  # how many numbers lie between neighbours in each dimension


class Inputs(NamedTuple):
    """The four operands, as views; in a helper often those of one head."""

    query: Any
    key: Any
    value: Any
    mask: Any  # or None


class Sizes(NamedTuple):
    """How many there are of everything, and which keys a query sees by its position.

    Query i sees the keys from i + low to i + high, where there are such bounds (`Choices`).
    """

    n_heads: Any
    n_queries: Any
    n_keys: Any
    low: Any
    high: Any


class Choices(NamedTuple):
    """What is compiled in, beside the sizes of blocks."""

    GROUP: int  # query heads that share one key head
    E: int  # features of a query and of a key
    E_V: int  # features of a value
    BLOCK_E: int  # the width of a tile that holds them
    BLOCK_V: int
    MASK: int
    HAS_LOW: bool  # the band has a left bound
    HAS_HIGH: bool  # the band has a right bound
    DTYPE: Any  # what products take in
    WIDE: Any  # what sums are kept in


class Scales(NamedTuple):
    """The factor on scores, and the factor from differences of scores to powers of 2."""

    scale: Any
    unit: Any


def helper(function: Any) -> Any:
    """Return a function that kernels can call; Triton inlines it.

    The interpreter prepares each call of such a function, which takes longer than the call; it can
    run plain Python instead.
    """
    return function if triton.knobs.runtime.interpret else triton.jit(function)


# -- where a program works -------------------------------------------------------------------------


@helper
def owned(n_heads, length, GROUP: tl.constexpr, BLOCK: tl.constexpr, REVERSED: tl.constexpr):
    """Return which head and which block this program owns: batch, head, key head, block.

    Programs start in the order of their number. The blocks of one head are neighbours, so that
    the keys and values they share are still in the L2 cache. Under a causal mask the last block
    of queries has the most keys to read; it goes first (REVERSED), because a long program that
    starts last would leave the other processors idle. For a block of keys it is the first.
    """
    n_blocks = (length + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    block = program % n_blocks
    if REVERSED:
        block = n_blocks - 1 - block
    heads = program // n_blocks
    return heads // n_heads, heads % n_heads, heads % n_heads // GROUP, block


@helper
def head_of(view, batch, head):
    """Return the view of one head."""
    to_batch = batch.to(tl.int64) * view.strides[0]
    return View(view.start + to_batch + head.to(tl.int64) * view.strides[1], view.strides)


@helper
def heads_of(inputs, batch, head, key_head, CHOICES: tl.constexpr):
    """Return the views of one query head and of the key head that it uses."""
    # Without a mask the query stands in for it: before Triton 3.7 a helper cannot return None.
    mask = inputs.mask if CHOICES.MASK != NO_MASK else inputs.query
    return Inputs(
        head_of(inputs.query, batch, head),
        head_of(inputs.key, batch, key_head),
        head_of(inputs.value, batch, key_head),
        head_of(mask, batch, head),
    )


@helper
def first_row(batch, head, n_heads, n_queries):
    """Return where the numbers of a head begin in a tensor with one number a row."""
    return (batch * n_heads + head).to(tl.int64) * n_queries


@helper
def key_span(first, sizes, CHOICES: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return where the keys of the block of queries from `first` on begin and end.

    Returns:
        start, whole, rest, end. No query of the block sees a key before `start` or from `end` on.
        Tiles begin at `start`, one every BLOCK_K keys. In those from `whole` to `rest` each query
        sees each key.
    """
    start, whole, rest, end = 0, 0, sizes.n_keys, sizes.n_keys
    stop = tl.minimum(first + BLOCK_Q, sizes.n_queries)
    if CHOICES.HAS_LOW:
        start = tl.maximum(0, first + sizes.low)
        unseen = tl.maximum(0, stop - 1 + sizes.low - start)  # keys that the last query lacks
        whole = start + (unseen + BLOCK_K - 1) // BLOCK_K * BLOCK_K
    if CHOICES.HAS_HIGH:
        end = tl.minimum(sizes.n_keys, stop + sizes.high)
        rest = tl.minimum(sizes.n_keys, first + 1 + sizes.high)  # the first query sees no more
    # Below 0 a division rounds up where Triton compiles, and down where it interprets.
    rest = start + tl.maximum(0, rest - start) // BLOCK_K * BLOCK_K
    if CHOICES.HAS_LOW:
        rest = tl.maximum(whole, rest)
    return start, whole, rest, end


@helper
def query_span(first, sizes, CHOICES: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return where the queries of the block of keys from `first` on begin and end.

    Returns:
        start, whole, rest, end. No query before `start` or from `end` on sees a key of the block.
        Tiles begin at multiples of BLOCK_Q. In those from `whole` to `rest` each query sees each
        key; there are none in a block that is longer than the keys.
    """
    start, whole, rest, end = 0, 0, sizes.n_queries, sizes.n_queries
    stop = first + BLOCK_K
    if CHOICES.HAS_HIGH:
        start = tl.maximum(0, first - sizes.high) // BLOCK_Q * BLOCK_Q
        whole = (tl.maximum(0, stop - 1 - sizes.high) + BLOCK_Q - 1) // BLOCK_Q * BLOCK_Q
    if CHOICES.HAS_LOW:
        end = tl.minimum(sizes.n_queries, tl.minimum(stop, sizes.n_keys) - sizes.low)
        rest = tl.maximum(0, first + 1 - sizes.low)  # the first key is seen by no query from here
        rest = tl.where(rest < sizes.n_queries, rest // BLOCK_Q * BLOCK_Q, sizes.n_queries)
    whole = tl.where(stop > sizes.n_keys, end, tl.minimum(whole, end))
    if CHOICES.HAS_LOW:
        rest = tl.maximum(whole, tl.minimum(rest, end))
    return start, whole, rest, end


# -- a tile ----------------------------------------------------------------------------------------


@helper
def offsets(rows, columns, strides):
    """Return how far from the start of a head the numbers of a tile lie."""
    return rows[:, None].to(tl.int64) * strides[2] + columns[None, :].to(tl.int64) * strides[3]


@helper
def load(view, rows, inside, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """Return a tile: these rows, all WIDTH columns, padded with zeros to BLOCK columns.

    Rows that are not `inside` are not read, and zero. None says that all are, so that no row is
    compared with anything.
    """
    columns = tl.arange(0, BLOCK)
    pointers = view.start + offsets(rows, columns, view.strides)
    if inside is not None:
        tile = tl.load(pointers, inside[:, None] & (columns < WIDTH)[None, :], 0.0)
    elif WIDTH < BLOCK:
        tile = tl.load(pointers, (columns < WIDTH)[None, :], 0.0)
    else:
        tile = tl.load(pointers)
    return tile.to(DTYPE)


@helper
def store(view, tile, rows, end, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Write the rows before `end` of a tile, and the WIDTH columns that are no padding."""
    columns = tl.arange(0, BLOCK)
    inside = (rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.store(view.start + offsets(rows, columns, view.strides), tile, inside)


@helper
def narrow(tile, DTYPE: tl.constexpr):
    """Round to the nearest number of this dtype. The interpreter would cut bfloat16 off."""
    if INTERPRETED and tl.bfloat16 == DTYPE:
        tile = tile.to(tl.float32)
        bits = tile.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)  # up from half of the last bit on; half itself to even
        bits &= -0x10000
        tile = tl.where(tile == tile, bits.to(tl.float32, bitcast=True), tile)
    return tile.to(DTYPE)


@helper
def product(left, right, acc, WIDE: tl.constexpr):
    """Return acc + left · right. Triton would round float32 to TF32 if it were not told."""
    if INTERPRETED:  # pragma: no branch (where it is compiled, nothing is measured)
        left, right = left.to(WIDE), right.to(WIDE)
    return tl.dot(left, right, acc, input_precision="ieee", out_dtype=WIDE)


@helper
def scales_of(scale, CHOICES: tl.constexpr):
    """Return the factors of this call; in float64 the scale lies in memory."""
    if tl.float64 == CHOICES.WIDE:
        scale = tl.load(scale)
    if CHOICES.MASK == NO_MASK:
        return Scales(scale, scale * LOG2_E)
    else:
        return Scales(scale, tl.full([], LOG2_E, CHOICES.WIDE))


@helper
def scores_of(
    left, right, i, j, mask, scale, sizes, end, CHOICES: tl.constexpr, WHOLE: tl.constexpr
):
    """Return left · rightᵀ after the mask, -∞ where query i does not see key j.

    i and j broadcast to the tile, a column and a row or a row and a column. There is no key from
    `end` on. WHOLE says that all keys of the tile exist, and that the band holds all its scores.
    """
    scores = product(left, tl.trans(right), None, CHOICES.WIDE)
    if CHOICES.MASK != NO_MASK:
        at = i.to(tl.int64) * mask.strides[2] + j.to(tl.int64) * mask.strides[3]
        inside = (i < sizes.n_queries) & (j < end)
        scores = scores * scale
        of_mask = tl.load(mask.start + at, inside, -INFINITY if CHOICES.MASK == FLOATING else 0)
        if tl.float64 == CHOICES.WIDE:
            # Triton lays out a product's factors by the narrowest number that they are made from,
            # and has no such layout in float64. A sum over one number hides the mask from it.
            of_mask = tl.sum(of_mask[:, :, None], 2)
        if CHOICES.MASK == FLOATING:
            # The mask removes even a NaN.
            scores = tl.where(of_mask == -INFINITY, -INFINITY, scores + of_mask.to(CHOICES.WIDE))
        else:
            scores = tl.where(of_mask != 0, scores, -INFINITY)
    if not WHOLE:
        last = end - 1  # of the keys that a query sees: one comparison for the end and the bound
        if CHOICES.HAS_HIGH:
            last = tl.minimum(i + sizes.high, end - 1)
        seen = j <= last
        if CHOICES.HAS_LOW:
            seen &= j >= i + sizes.low
        scores = tl.where(seen, scores, -INFINITY)
    return scores


@helper
def zero_unseen(tile, scores, QUERIES: tl.constexpr, MASK: tl.constexpr):
    """Return keys or values with zeros for those that no query of the tile sees: 0 · NaN is NaN.

    QUERIES is the axis of the scores along which the queries lie.
    """
    if MASK == NO_MASK:
        return tile
    seen = tl.max((scores != -INFINITY).to(tl.int32), QUERIES) > 0
    return tl.where(seen[:, None], tile, 0.0).to(tile.dtype)
