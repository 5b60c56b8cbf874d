"""The backward kernels of `triton_fused`: chapter 13's equations, a tile at a time.

    P  = 2^(unit · (S - m) - log₂ ell)   dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - dL             dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q

A gradient is added up in float32, by one program, so that the same call gives the same bits:
`keys_backward` owns a block of keys and adds up dK and dV over all queries (of all heads that share
the key head), `query_backward` owns a block of queries and adds up dQ over all keys. Each
recomputes the scores: seven products instead of five. Of more than 256 features of a key and a
value together dK and dV come one after the other, which is one product more.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attnlib.triton_fused._tiles import (
    INFINITY,
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
    query_span,
    scales_of,
    scores_of,
    store,
    zero_unseen,
)


class Rows(NamedTuple):
    """Numbers of rows: in memory, or those of a tile."""

    m: Any  # the largest score
    log2_ell: Any  # log₂ ell
    D: Any  # rowsum(dO ∘ O) - dL


class Wanted(NamedTuple):
    """Which gradients `keys_backward` computes."""

    by_key: bool
    by_value: bool


@triton.jit
def compute_d(
    output, lost, d_output, d_lse, D, n_heads, n_queries,
    E_V: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_Q: tl.constexpr,
):
    """Compute D = rowsum(dO ∘ O) - dL, which every tile of a row needs."""
    batch, head, _, block = owned(n_heads, n_queries, 1, BLOCK_Q, False)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    inside = rows < n_queries
    WIDE: tl.constexpr = D.dtype.element_ty
    o = load(head_of(output, batch, head), rows, inside, E_V, BLOCK_V, WIDE)
    if lost is not None:
        o += load(head_of(lost, batch, head), rows, inside, E_V, BLOCK_V, WIDE)
    d_o = load(head_of(d_output, batch, head), rows, inside, E_V, BLOCK_V, WIDE)
    at = first_row(batch, head, n_heads, n_queries) + rows
    tl.store(D + at, tl.sum(o * d_o, 1) - tl.load(d_lse + at, inside, 0.0), inside)


@helper
def numbers_of(numbers, batch, head, sizes):
    """Return where the numbers of a head's rows begin."""
    at = first_row(batch, head, sizes.n_heads, sizes.n_queries)
    return Rows(numbers.m + at, numbers.log2_ell + at, numbers.D + at)


@helper
def load_numbers(numbers, rows, inside):
    """Return the numbers of these rows; of those not `inside` such that all weights are 0."""
    if inside is None:
        m, D = tl.load(numbers.m + rows), tl.load(numbers.D + rows)
        return Rows(m, tl.load(numbers.log2_ell + rows), D)
    else:
        m = tl.load(numbers.m + rows, inside, 0.0)
        D = tl.load(numbers.D + rows, inside, 0.0)
        return Rows(m, tl.load(numbers.log2_ell + rows, inside, INFINITY), D)


@helper
def softmax_backward(weights, d_weights, D, scores, MASK: tl.constexpr, WHOLE: tl.constexpr):
    """Return dS = P ∘ (dP - D), 0 for what is removed, even where dP is NaN."""
    d_scores = weights * (d_weights - D)
    if MASK != NO_MASK or not WHOLE:
        d_scores = tl.where(scores == -INFINITY, 0.0, d_scores)
    return d_scores


@helper
def gather_query(
    d_q, own, inputs, scales, sizes, start, end, CHOICES: tl.constexpr, BLOCK_K: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Return d_q after dS K of the keys from `start` to `end` was added."""
    q, d_o, numbers, rows = own
    m, log2_ell, D = numbers
    for first in tl.range(start, end, BLOCK_K):
        keys = first + tl.arange(0, BLOCK_K)
        inside = None if WHOLE else keys < end
        k = load(inputs.key, keys, inside, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
        v = load(inputs.value, keys, inside, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
        scores = scores_of(
            q, k, rows[:, None], keys[None, :], inputs.mask, scales.scale, sizes, end, CHOICES,
            WHOLE,
        )
        weights = tl.exp2((scores - m[:, None]) * scales.unit - log2_ell[:, None])
        d_weights = product(d_o, tl.trans(v), None, CHOICES.WIDE)
        d_scores = softmax_backward(weights, d_weights, D[:, None], scores, CHOICES.MASK, WHOLE)
        d_scores = narrow(d_scores, CHOICES.DTYPE)
        d_q = product(d_scores, zero_unseen(k, scores, 0, CHOICES.MASK), d_q, CHOICES.WIDE)
    return d_q


@triton.jit(do_not_specialize=["case"])
def query_backward(
    inputs, d_output, numbers, d_query, scale, sizes, case,
    CHOICES: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """Compute dQ of a block of queries. The walk over the keys is that of the forward."""
    n_queries = sizes.n_queries
    scales = scales_of(scale, CHOICES)
    batch, head, key_head, block = owned(
        sizes.n_heads, n_queries, CHOICES.GROUP, BLOCK_Q, CHOICES.HAS_HIGH
    )
    inputs = heads_of(inputs, batch, head, key_head, CHOICES)
    d_output = head_of(d_output, batch, head)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    inside = rows < n_queries
    q = load(inputs.query, rows, inside, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
    d_o = load(d_output, rows, inside, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
    own = q, d_o, load_numbers(numbers_of(numbers, batch, head, sizes), rows, inside), rows
    start, whole, rest, end = key_span(block * BLOCK_Q, sizes, CHOICES, BLOCK_Q, BLOCK_K)

    d_q = tl.full([BLOCK_Q, CHOICES.BLOCK_E], 0.0, CHOICES.WIDE)
    if CHOICES.HAS_LOW:
        d_q = gather_query(
            d_q, own, inputs, scales, sizes, start, tl.minimum(whole, end), CHOICES, BLOCK_K, False
        )
    d_q = gather_query(d_q, own, inputs, scales, sizes, whole, rest, CHOICES, BLOCK_K, True)
    d_q = gather_query(d_q, own, inputs, scales, sizes, rest, end, CHOICES, BLOCK_K, False)
    d_query = head_of(d_query, batch, head)
    d_q = narrow(d_q * scales.scale, d_query.start.dtype.element_ty)
    store(d_query, d_q, rows, n_queries, CHOICES.E, CHOICES.BLOCK_E)


@helper
def gather_keys(
    sums, own, stream, scales, sizes, start, end, CHOICES: tl.constexpr, WANTED: tl.constexpr,
    BLOCK_Q: tl.constexpr, WHOLE_Q: tl.constexpr, WHOLE: tl.constexpr,
):
    """Return d_k and d_v after dSᵀ Q and Pᵀ dO of the queries from `start` to `end` were added.

    The tile is transposed, with a row for each key: so the weights leave one product and enter the
    next without a way through shared memory.
    """
    d_k, d_v = sums
    k, v, keys = own
    inputs, d_output, numbers = stream
    for first in tl.range(start, end, BLOCK_Q):
        rows = first + tl.arange(0, BLOCK_Q)
        inside = None if WHOLE_Q else rows < sizes.n_queries
        q = load(inputs.query, rows, inside, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
        d_o = load(d_output, rows, inside, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE)
        m, log2_ell, D = load_numbers(numbers, rows, inside)
        scores = scores_of(
            k, q, rows[None, :], keys[:, None], inputs.mask, scales.scale, sizes, sizes.n_keys,
            CHOICES, WHOLE,
        )
        weights = tl.exp2((scores - m[None, :]) * scales.unit - log2_ell[None, :])
        if WANTED.by_value:
            d_v = product(narrow(weights, CHOICES.DTYPE), d_o, d_v, CHOICES.WIDE)
        d_weights = product(v, tl.trans(d_o), None, CHOICES.WIDE)
        d_scores = softmax_backward(weights, d_weights, D[None, :], scores, CHOICES.MASK, WHOLE)
        d_scores = narrow(d_scores, CHOICES.DTYPE)
        if WANTED.by_key:
            d_k = product(d_scores, q, d_k, CHOICES.WIDE)
    return d_k, d_v


@triton.jit(do_not_specialize=["case"])
def keys_backward(
    inputs, d_output, numbers, d_key, d_value, scale, sizes, case, CHOICES: tl.constexpr,
    WANTED: tl.constexpr, MEMBERS: tl.constexpr, WHOLE_Q: tl.constexpr, BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute dK and dV of a block of keys, summed over query heads that share it.

    MEMBERS: so many query heads, of the GROUP that shares a key head. Where they are fewer, there
    are sums for each share of the group. WHOLE_Q: blocks of queries have no ragged end.
    """
    n_keys = sizes.n_keys
    scales = scales_of(scale, CHOICES)
    batch, share, _, block = owned(sizes.n_heads // MEMBERS, n_keys, 1, BLOCK_K, False)
    key_head = share * MEMBERS // CHOICES.GROUP
    first = block * BLOCK_K
    keys = first + tl.arange(0, BLOCK_K)
    seen = keys < (tl.minimum(n_keys, sizes.n_queries + sizes.high) if CHOICES.HAS_HIGH else n_keys)
    if CHOICES.HAS_LOW:
        seen &= keys >= sizes.low
    key, value = head_of(inputs.key, batch, key_head), head_of(inputs.value, batch, key_head)
    k = load(key, keys, seen, CHOICES.E, CHOICES.BLOCK_E, CHOICES.DTYPE)
    own = k, load(value, keys, seen, CHOICES.E_V, CHOICES.BLOCK_V, CHOICES.DTYPE), keys
    start, whole, rest, end = query_span(first, sizes, CHOICES, BLOCK_Q, BLOCK_K)

    d_k = tl.full([BLOCK_K, CHOICES.BLOCK_E], 0.0, CHOICES.WIDE)
    sums = d_k, tl.full([BLOCK_K, CHOICES.BLOCK_V], 0.0, CHOICES.WIDE)
    for member in tl.range(0, MEMBERS):
        head = share * MEMBERS + member
        here = heads_of(inputs, batch, head, key_head, CHOICES)
        stream = here, head_of(d_output, batch, head), numbers_of(numbers, batch, head, sizes)
        sums = gather_keys(
            sums, own, stream, scales, sizes, start, whole, CHOICES, WANTED, BLOCK_Q, WHOLE_Q, False
        )
        sums = gather_keys(
            sums, own, stream, scales, sizes, whole, rest, CHOICES, WANTED, BLOCK_Q, WHOLE_Q, True
        )
        if CHOICES.HAS_LOW:
            sums = gather_keys(
                sums, own, stream, scales, sizes, rest, end, CHOICES, WANTED, BLOCK_Q, WHOLE_Q,
                False,
            )
    d_k, d_v = sums
    if WANTED.by_key:
        d_key = head_of(d_key, batch, share)
        d_k = narrow(d_k * scales.scale, d_key.start.dtype.element_ty)
        store(d_key, d_k, keys, n_keys, CHOICES.E, CHOICES.BLOCK_E)
    if WANTED.by_value:  # pragma: no branch (in the interpreter a kernel ends elsewhere)
        d_value = head_of(d_value, batch, share)
        d_v = narrow(d_v, d_value.start.dtype.element_ty)
        store(d_value, d_v, keys, n_keys, CHOICES.E_V, CHOICES.BLOCK_V)
