"""The forward kernel of `triton_fused`, and what the backward kernels share with it.

It is chapter 12's loop. A program owns a block of queries, which stays on the chip from beginning
to end; keys and values stream past it, tile after tile. No score is ever written to memory.

Letters are those of the chapters: m is the largest score so far, ell the row sum, acc the output
before its division by ell. Scores are kept as the product gives them, and the weights are
2^(unit · (s - m)), with unit = scale · log₂e. The difference comes first. For scores near m it is
exact, so that even scores of 10¹² are ordered as they should be; 2^(unit · s - unit · m) is one
fused instruction shorter, and overflows there by the rounding of unit · m. Under a mask, which may
be added to them, scores are scaled first, and unit is log₂e.

Offsets from the start of a tensor are 64-bit: B·H·T·D goes beyond 2³¹.
"""

# Triton reads these functions as its own language, in which annotations say what is compiled in.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
INFINITY = tl.constexpr(float("inf"))

# The interpreter holds bfloat16 as bare bits, which it cannot multiply; in float32 it can, exactly.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def helper(function: Any) -> Any:
    """Make a function that kernels call; it becomes part of them.

    The interpreter prepares each call of such a function, which takes longer than the call; it can
    run plain Python instead.
    """
    return function if triton.knobs.runtime.interpret else triton.jit(function)


# Values of the argument MASK.
NO_MASK = tl.constexpr(0)
BOOLEAN = tl.constexpr(1)
FLOATING = tl.constexpr(2)


@helper
def _place(group: tl.constexpr, n_heads, length, BLOCK: tl.constexpr, REVERSED: tl.constexpr):
    """Give which head and which block this program owns: batch, head, key head, block.

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
    place = program // n_blocks
    return place // n_heads, place % n_heads, place % n_heads // group, block


@helper
def _head(pointer, strides, batch, head):
    """Give where a head begins."""
    return pointer + batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]


@helper
def _offsets(rows, columns, strides):
    return rows[:, None].to(tl.int64) * strides[2] + columns[None, :].to(tl.int64) * strides[3]


@helper
def _load(
    pointer, rows, strides, end, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Give a tile: these rows, all WIDTH columns, padded with zeros to BLOCK columns.

    From `end` on rows are not read, and zero. WHOLE: there are none, so that nothing is compared.
    """
    columns = tl.arange(0, BLOCK)
    pointers = pointer + _offsets(rows, columns, strides)
    if not WHOLE:
        tile = tl.load(pointers, (rows < end)[:, None] & (columns < WIDTH)[None, :], 0.0)
    elif WIDTH < BLOCK:
        tile = tl.load(pointers, (columns < WIDTH)[None, :], 0.0)
    else:
        tile = tl.load(pointers)
    return tile.to(DTYPE)


@helper
def _store(pointer, tile, rows, strides, end, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = (rows < end)[:, None] & (columns < WIDTH)[None, :]
    tl.store(pointer + _offsets(rows, columns, strides), tile, inside)


@helper
def _narrow(tile, DTYPE: tl.constexpr):
    """Round to the nearest number of this dtype. The interpreter would cut bfloat16 off."""
    if INTERPRETED and tl.bfloat16 == DTYPE:
        tile = tile.to(tl.float32)
        bits = tile.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)  # up from half of the last bit on; half itself to even
        bits &= -0x10000
        tile = tl.where(tile == tile, bits.to(tl.float32, bitcast=True), tile)
    return tile.to(DTYPE)


@helper
def _product(left, right, acc, WIDE: tl.constexpr):
    """Give acc + left · right. Triton would round float32 to TF32 if it were not told."""
    if INTERPRETED:  # pragma: no branch (where it is compiled, nothing is measured)
        left, right = left.to(WIDE), right.to(WIDE)
    return tl.dot(left, right, acc, input_precision="ieee", out_dtype=WIDE)


@helper
def _scores(
    left, right, i, j, mask, mask_strides, scale, n_queries, n_keys, IS_CAUSAL: tl.constexpr,
    MASK: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Give left · rightᵀ after the mask, -∞ where query i does not see key j.

    i and j broadcast to the tile, a column and a row or a row and a column. WHOLE says that all
    its keys exist, and that with IS_CAUSAL none lies in the future.
    """
    s = _product(left, tl.trans(right), None, WIDE)
    if MASK != NO_MASK:
        offsets = i.to(tl.int64) * mask_strides[2] + j.to(tl.int64) * mask_strides[3]
        inside = (i < n_queries) & (j < n_keys)
        s = s * scale
        if MASK == FLOATING:
            here = tl.load(mask + offsets, inside, -INFINITY)
            s = tl.where(here == -INFINITY, -INFINITY, s + here.to(WIDE))  # even of a NaN
        else:
            s = tl.where(tl.load(mask + offsets, inside, 0) != 0, s, -INFINITY)
    if not WHOLE:
        s = tl.where(j < n_keys, s, -INFINITY)
        if IS_CAUSAL:
            s = tl.where(j <= i, s, -INFINITY)
    return s


@helper
def _seen(tile, s, QUERIES: tl.constexpr, MASK: tl.constexpr):
    """Put zeros for keys or values that no query of the tile sees: 0 · NaN is NaN.

    QUERIES is the axis of s along which the queries lie.
    """
    if MASK == NO_MASK:
        return tile
    seen = tl.max((s != -INFINITY).to(tl.int32), QUERIES) > 0
    return tl.where(seen[:, None], tile, 0.0).to(tile.dtype)


@helper
def _span(first, n_queries, n_keys, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
          IS_CAUSAL: tl.constexpr):  # fmt: skip
    """Give where the whole tiles of a block of queries end, and where its keys end."""
    end, whole = n_keys, n_keys
    if IS_CAUSAL:
        end = tl.minimum(n_keys, tl.minimum(first + BLOCK_Q, n_queries))
        whole = tl.minimum(n_keys, first + 1)  # the first query sees key `first`, and none after
    return whole // BLOCK_K * BLOCK_K, end


@helper
def _fold(
    m, ell, acc, q, rows, K, V, mask, k_strides, v_strides, mask_strides, scale, unit, start, end,
    n_queries, headroom, E: tl.constexpr, E_V: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASK: tl.constexpr,
    WHOLE: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Take the keys from `start` to `end` into the state: the loop of chapter 12."""
    for first in tl.range(start, end, BLOCK_K):
        keys = first + tl.arange(0, BLOCK_K)
        k = _load(K, keys, k_strides, end, E, BLOCK_E, DTYPE, WHOLE)
        s = _scores(
            q, k, rows[:, None], keys[None, :], mask, mask_strides, scale, n_queries, end,
            IS_CAUSAL, MASK, WHOLE, WIDE,
        )  # fmt: skip
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(m_new == -INFINITY, 0.0, m_new)  # -∞ - (-∞) is NaN
        rescale = tl.exp2((m - shift) * unit)
        p = tl.exp2((s - shift[:, None]) * unit - headroom)
        ell = ell * rescale + tl.sum(p, 1)
        v = _seen(_load(V, keys, v_strides, end, E_V, BLOCK_V, DTYPE, WHOLE), s, 0, MASK)
        acc = _product(_narrow(p, DTYPE), v, acc * rescale[:, None], WIDE)
        m = m_new
    return m, ell, acc


@triton.jit
def forward(
    Q, K, V, mask, OUT, LOST, LSE, SHIFT, LOG_SUM, HEADROOM, scale,
    q_strides, k_strides, v_strides, mask_strides, o_strides,
    n_heads, n_queries, n_keys, length_q, length_k,
    GROUP: tl.constexpr, E: tl.constexpr, E_V: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr, IS_CAUSAL: tl.constexpr, MASK: tl.constexpr,
    KEEPS: tl.constexpr, DTYPE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Attend: a block of queries, all keys that they may see.

    KEEPS: what is lost when the output is rounded is stored too. The backward takes the difference
    dP - D, in which it would count. HEADROOM makes all weights smaller by a power of 2, which
    cancels in acc / ell.
    """
    WIDE: tl.constexpr = tl.float64 if tl.float64 == DTYPE else tl.float32
    if tl.float64 == WIDE:
        scale = tl.load(scale)  # a number among the arguments would come as float32
    unit = scale * LOG2_E if MASK == NO_MASK else tl.full([], LOG2_E, WIDE)
    batch, head, key_head, block = _place(GROUP, n_heads, n_queries, BLOCK_Q, IS_CAUSAL)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = _load(
        _head(Q, q_strides, batch, head), rows, q_strides, n_queries, E, BLOCK_E, DTYPE, False
    )
    K, V = _head(K, k_strides, batch, key_head), _head(V, v_strides, batch, key_head)
    if MASK != NO_MASK:
        mask = _head(mask, mask_strides, batch, head)
    whole, end = _span(block * BLOCK_Q, n_queries, n_keys, BLOCK_Q, BLOCK_K, IS_CAUSAL)

    headroom = 0.0 if HEADROOM is None else tl.load(HEADROOM)
    m = tl.full([BLOCK_Q], -INFINITY, WIDE)
    ell = tl.full([BLOCK_Q], 0.0, WIDE)
    acc = tl.full([BLOCK_Q, BLOCK_V], 0.0, WIDE)
    # Whole tiles, in which nothing is compared with an end or the diagonal; then the others.
    m, ell, acc = _fold(
        m, ell, acc, q, rows, K, V, mask, k_strides, v_strides, mask_strides, scale, unit, 0, whole,
        n_queries, headroom, E, E_V, BLOCK_E, BLOCK_V, BLOCK_K, IS_CAUSAL, MASK, True, DTYPE, WIDE,
    )  # fmt: skip
    m, ell, acc = _fold(
        m, ell, acc, q, rows, K, V, mask, k_strides, v_strides, mask_strides, scale, unit, whole,
        end, n_queries, headroom, E, E_V, BLOCK_E, BLOCK_V, BLOCK_K, IS_CAUSAL, MASK, False, DTYPE,
        WIDE,
    )  # fmt: skip

    empty = ell == 0
    o = tl.where(empty[:, None], 0.0, acc / ell[:, None])
    rounded = _narrow(o, OUT.dtype.element_ty)
    _store(_head(OUT, o_strides, batch, head), rounded, rows, o_strides, n_queries, E_V, BLOCK_V)
    if KEEPS:
        lost = _narrow(o - rounded.to(WIDE), LOST.dtype.element_ty)
        _store(_head(LOST, o_strides, batch, head), lost, rows, o_strides, n_queries, E_V, BLOCK_V)
    # The two parts of the log-sum-exp, for the backward: their sum forgets ell where m is large.
    # Those of an empty row are such that all its weights come out as 0.
    log_sum = tl.log2(ell) + headroom
    at = (batch * n_heads + head).to(tl.int64) * n_queries + rows
    inside = rows < n_queries
    tl.store(SHIFT + at, tl.where(empty, 0.0, m), inside)
    tl.store(LOG_SUM + at, tl.where(empty, INFINITY, log_sum), inside)
    natural = (m * scale if MASK == NO_MASK else m) + log_sum * LN_2
    tl.store(LSE + at, tl.where(empty, -INFINITY, natural), inside)
