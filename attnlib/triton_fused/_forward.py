"""The forward kernel of `triton_fused`: chapter 12's loop.

A program owns a block of queries, which stays on the chip from beginning to end; keys and values
stream past it, tile after tile. No score is ever written to memory.

Letters are those of the module `triton_fused`. In 2^(unit · (s - m)) the difference comes first.
For scores near m it is exact, so that even scores of 10¹² are ordered as they should be;
2^(unit · s - unit · m) is one fused instruction shorter, and overflows there by the rounding of
unit · m.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attnlib.triton_fused._tiles import (
    INFINITY,
    LN_2,
    NO_MASK,
    first_row,
    head_of,
    heads_of,
    helper,
    key_span,
    load,
    narrow,
    owned,
    product,
    scales_of,
    scores_of,
    store,
    zero_unseen,
)


class Outputs(NamedTuple):
    """What the kernel writes: two views, and three tensors with one number a row."""

    output: Any
    lost: Any  # what the output lost when it was rounded; None where nobody needs it
    lse: Any
    m: Any  # a row's largest score
    log2_ell: Any  # log₂ ell


@helper
def fold(
    state, q, rows, inputs, scales, headroom, sizes, start, end, CHOICES: tl.constexpr,
    BLOCK_K: tl.constexpr, WHOLE: tl.constexpr,
):
    """Return m, ell and o after the keys from `start` to `end`: the loop of chapter 12."""
    m, ell, o = state
    for first in tl.range(start, end, BLOCK_K):
        keys = first + tl.arange(0, BLOCK_K)
        inside = None if WHOLE else keys < end
        k = load(inputs.key, keys, inside, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
        scores = scores_of(
            q, k, rows[:, None], keys[None, :], inputs.mask, scales.scale, sizes, end, CHOICES,
            WHOLE,
        )
        m_new = tl.maximum(m, tl.max(scores, 1))
        shift = tl.where(m_new == -INFINITY, 0.0, m_new)  # -∞ - (-∞) is NaN
        rescale = tl.exp2((m - shift) * scales.unit)
        weights = tl.exp2((scores - shift[:, None]) * scales.unit - headroom)
        ell = ell * rescale + tl.sum(weights, 1)
        v = load(inputs.value, keys, inside, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
        v = zero_unseen(v, scores, 0, CHOICES.MASK)
        o = product(narrow(weights, CHOICES.DTYPE), v, o * rescale[:, None], CHOICES.WIDE)
        m = m_new
    return m, ell, o


@triton.jit(do_not_specialize=["case"])
def forward(
    inputs, results, headroom, scale, sizes, case,
    CHOICES: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """Attend: a block of queries, all keys that they may see.

    What is lost when the output is rounded is stored too, if there is memory for it: the backward
    takes the difference dP - D, in which it would count. `headroom` makes all weights smaller by a
    power of 2, which cancels in o / ell. `case` is for the tuner alone.
    """
    WIDE: tl.constexpr = CHOICES.WIDE
    n_queries = sizes.n_queries
    scales = scales_of(scale, CHOICES)
    batch, head, key_head, block = owned(
        sizes.n_heads, n_queries, CHOICES.GROUP, BLOCK_Q, CHOICES.HAS_HIGH
    )
    inputs = heads_of(inputs, batch, head, key_head, CHOICES)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q = load(inputs.query, rows, rows < n_queries, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
    start, whole, rest, end = key_span(block * BLOCK_Q, sizes, CHOICES, BLOCK_Q, BLOCK_K)

    room = 0.0 if headroom is None else tl.load(headroom)
    m, ell = tl.full([BLOCK_Q], -INFINITY, WIDE), tl.full([BLOCK_Q], 0.0, WIDE)
    state = m, ell, tl.full([BLOCK_Q, CHOICES.BLOCK_V], 0.0, WIDE)
    # Only in whole tiles is nothing compared with an end or with the band.
    if CHOICES.HAS_LOW:
        state = fold(
            state, q, rows, inputs, scales, room, sizes, start, tl.minimum(whole, end), CHOICES,
            BLOCK_K, False,
        )
    state = fold(state, q, rows, inputs, scales, room, sizes, whole, rest, CHOICES, BLOCK_K, True)
    state = fold(state, q, rows, inputs, scales, room, sizes, rest, end, CHOICES, BLOCK_K, False)

    m, ell, o = state
    empty = ell == 0
    o = tl.where(empty[:, None], 0.0, o / ell[:, None])
    output = head_of(results.output, batch, head)
    rounded = narrow(o, output.start.dtype.element_ty)
    store(output, rounded, rows, n_queries, CHOICES.E_V, CHOICES.BLOCK_V)
    if results.lost is not None:
        lost = head_of(results.lost, batch, head)
        rounding = narrow(o - rounded.to(WIDE), lost.start.dtype.element_ty)
        store(lost, rounding, rows, n_queries, CHOICES.E_V, CHOICES.BLOCK_V)
    # The two terms of the log-sum-exp, for the backward: their sum forgets ell where m is large.
    # Those of an empty row are such that all its weights come out as 0.
    log2_ell = tl.log2(ell) + room
    at = first_row(batch, head, sizes.n_heads, n_queries) + rows
    inside = rows < n_queries
    tl.store(results.m + at, tl.where(empty, 0.0, m), inside)
    tl.store(results.log2_ell + at, tl.where(empty, INFINITY, log2_ell), inside)
    natural = (m * scales.scale if CHOICES.MASK == NO_MASK else m) + log2_ell * LN_2
    tl.store(results.lse + at, tl.where(empty, -INFINITY, natural), inside)
