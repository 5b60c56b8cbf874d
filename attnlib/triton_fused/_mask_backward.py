"""The gradient of a floating mask: the mask is added to the scores, so it is dS itself.

Where a mask is broadcast, one of its numbers is added to many scores, and its gradient is their
sum. A program owns a block of the mask, as it lies in memory, and goes through all scores that the
block is added to: all batches and heads, if it serves them all, and all queries or all keys. So the
gradient takes the memory of the mask, and one order of addition gives the same bits each time. Of a
mask with few numbers there are few programs, and each of them has much to do.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from attnlib.triton_fused._backward import load_numbers, numbers_of, softmax_backward
from attnlib.triton_fused._tiles import (
    head_of,
    heads_of,
    key_span,
    load,
    offsets,
    product,
    scales_of,
    scores_of,
)


class Shared(NamedTuple):
    """Along which of its dimensions a mask is broadcast."""

    batches: bool
    heads: bool
    queries: bool
    keys: bool


@triton.jit(do_not_specialize=["case"])
def mask_backward(
    inputs, d_output, numbers, d_mask, n_batches, scale, sizes, case, CHOICES: tl.constexpr,
    SHARED: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """Compute the gradient of a block of the mask: dS, summed along what is shared."""
    scales = scales_of(scale, CHOICES)
    n_queries, n_keys = sizes.n_queries, sizes.n_keys
    # Of what is shared the program goes through all, and of the rest it owns one.
    block_columns = 1 if SHARED.keys else (n_keys + BLOCK_K - 1) // BLOCK_K
    block_rows = (n_queries + BLOCK_Q - 1) // BLOCK_Q
    own_rows, own_heads = 1 if SHARED.queries else block_rows, 1 if SHARED.heads else sizes.n_heads
    program = tl.program_id(0)
    column = program % block_columns
    row = program // block_columns % own_rows
    own_head = program // block_columns // own_rows % own_heads
    own_batch = program // block_columns // own_rows // own_heads
    last_row = block_rows if SHARED.queries else row + 1
    heads, batches = sizes.n_heads if SHARED.heads else 1, n_batches if SHARED.batches else 1

    d_m = tl.full([BLOCK_Q, BLOCK_K], 0.0, CHOICES.WIDE)
    for member in tl.range(0, batches * heads):
        batch, head = own_batch + member // heads, own_head + member % heads
        here = heads_of(inputs, batch, head, head // CHOICES.GROUP, CHOICES)
        d_out = head_of(d_output, batch, head)
        of_rows = numbers_of(numbers, batch, head, sizes)
        for block in tl.range(row, last_row):
            rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
            exists = rows < n_queries
            q = load(here.query, rows, exists, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
            d_o = load(d_out, rows, exists, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
            m, log2_ell, D = load_numbers(of_rows, rows, exists)
            start, _, _, end = key_span(block * BLOCK_Q, sizes, CHOICES, BLOCK_Q, BLOCK_K)
            if SHARED.keys:
                first = start // BLOCK_K * BLOCK_K
            else:  # one tile, or none where the band has passed it
                first = column * BLOCK_K
                end = tl.where(first + BLOCK_K > start, tl.minimum(end, first + BLOCK_K), first)
            for at in tl.range(first, end, BLOCK_K):
                keys = at + tl.arange(0, BLOCK_K)
                inside = keys < end
                k = load(here.key, keys, inside, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
                v = load(here.value, keys, inside, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
                scores = scores_of(
                    q, k, rows[:, None], keys[None, :], here.mask, scales.scale, sizes, end,
                    CHOICES, False,
                )
                weights = tl.exp2((scores - m[:, None]) * scales.unit - log2_ell[:, None])
                d_weights = product(d_o, tl.trans(v), None, CHOICES.WIDE)
                d_m += softmax_backward(weights, d_weights, D[:, None], scores, CHOICES.MASK, False)

    rows = row * BLOCK_Q + tl.arange(0, 1 if SHARED.queries else BLOCK_Q)
    columns = column * BLOCK_K + tl.arange(0, 1 if SHARED.keys else BLOCK_K)
    if SHARED.queries:
        d_m = tl.sum(d_m, 0, keep_dims=True)
    if SHARED.keys:
        d_m = tl.sum(d_m, 1, keep_dims=True)
    inside = (rows < n_queries)[:, None] & (columns < n_keys)[None, :]
    own = head_of(d_mask, own_batch, own_head)
    tl.store(own.start + offsets(rows, columns, own.strides), d_m, inside)
