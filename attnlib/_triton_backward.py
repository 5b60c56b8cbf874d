"""The backward kernels of `triton_fused`: chapter 13's equations, a tile at a time.

    P  = 2^(unit · (S - m) - log₂ l)     dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - dL             dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q

A gradient is added up in one place, in float32, by one program, so that the same call gives the
same bits: `keys_backward` owns a block of keys and gathers dK and dV from all queries (of all heads
that share the key head), `query_backward` owns a block of queries and gathers dQ from all keys.
Each computes the scores anew: seven products instead of five. `keys_backward` can also scatter
its part of dQ to memory by atomic additions, five products in all; their order, and so the last
bits, change from call to call.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from attnlib._triton_kernels import (
    INFINITY,
    LOG2_E,
    NO_MASK,
    _head,
    _load,
    _narrow,
    _offsets,
    _place,
    _product,
    _scores,
    _seen,
    _span,
    _store,
    helper,
)


@triton.jit
def row_sums(
    OUT, LOST, D_O, D_LSE, DELTA, o_strides, d_o_strides, n_heads, n_queries,
    E_V: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """Give D = rowsum(dO ∘ O) - dL, which every tile of a row needs."""
    batch, head, _, block = _place(1, n_heads, n_queries, BLOCK_Q, False)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    WIDE: tl.constexpr = DELTA.dtype.element_ty
    OUT, D_O = _head(OUT, o_strides, batch, head), _head(D_O, d_o_strides, batch, head)
    o = _load(OUT, rows, o_strides, n_queries, E_V, BLOCK_V, WIDE, False)
    if LOST is not None:
        LOST = _head(LOST, o_strides, batch, head)
        o += _load(LOST, rows, o_strides, n_queries, E_V, BLOCK_V, WIDE, False)
    d_o = _load(D_O, rows, d_o_strides, n_queries, E_V, BLOCK_V, WIDE, False)
    at = (batch * n_heads + head).to(tl.int64) * n_queries + rows
    d_lse = tl.load(D_LSE + at, rows < n_queries, 0.0)
    tl.store(DELTA + at, tl.sum(o * d_o, 1) - d_lse, rows < n_queries)


@helper
def _rows(SHIFT, LOG_SUM, DELTA, rows, end, WHOLE: tl.constexpr):
    """Give m, log₂ l and D of these rows; from `end` on such that all weights are 0."""
    if WHOLE:
        return tl.load(SHIFT + rows), tl.load(LOG_SUM + rows), tl.load(DELTA + rows)
    inside = rows < end
    shift, delta = tl.load(SHIFT + rows, inside, 0.0), tl.load(DELTA + rows, inside, 0.0)
    return shift, tl.load(LOG_SUM + rows, inside, INFINITY), delta


@helper
def _d_scores(p, d_p, delta, s, MASK: tl.constexpr, WHOLE: tl.constexpr):
    """Give dS = P ∘ (dP - D), 0 for what is removed, even where dP is NaN."""
    d_s = p * (d_p - delta)
    if MASK != NO_MASK or not WHOLE:
        d_s = tl.where(s == -INFINITY, 0.0, d_s)
    return d_s


@helper
def _gather_query(
    d_q, q, d_o, shift, log_sum, delta, rows, K, V, mask, k_strides, v_strides, mask_strides,
    scale, unit, start, end, n_queries, E: tl.constexpr, E_V: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, IS_CAUSAL: tl.constexpr, MASK: tl.constexpr,
    WHOLE: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add dS K of the keys from `start` to `end`."""
    for first in tl.range(start, end, BLOCK_K):
        keys = first + tl.arange(0, BLOCK_K)
        k = _load(K, keys, k_strides, end, E, BLOCK_E, DTYPE, WHOLE)
        v = _load(V, keys, v_strides, end, E_V, BLOCK_V, DTYPE, WHOLE)
        s = _scores(
            q, k, rows[:, None], keys[None, :], mask, mask_strides, scale, n_queries, end,
            IS_CAUSAL, MASK, WHOLE, WIDE,
        )  # fmt: skip
        p = tl.exp2((s - shift[:, None]) * unit - log_sum[:, None])
        d_p = _product(d_o, tl.trans(v), None, WIDE)
        d_s = _d_scores(p, d_p, delta[:, None], s, MASK, WHOLE)
        d_q = _product(_narrow(d_s, DTYPE), _seen(k, s, 0, MASK), d_q, WIDE)
    return d_q


@triton.jit
def query_backward(
    Q, K, V, mask, D_O, SHIFT, LOG_SUM, DELTA, D_Q, scale,
    q_strides, k_strides, v_strides, mask_strides, d_o_strides, d_q_strides,
    n_heads, n_queries, n_keys, length_q, length_k,
    GROUP: tl.constexpr, E: tl.constexpr, E_V: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr, IS_CAUSAL: tl.constexpr, MASK: tl.constexpr,
    DTYPE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Give dQ of a block of queries. The walk over the keys is that of the forward."""
    WIDE: tl.constexpr = tl.float64 if tl.float64 == DTYPE else tl.float32
    if tl.float64 == WIDE:
        scale = tl.load(scale)
    unit = scale * LOG2_E if MASK == NO_MASK else tl.full([], LOG2_E, WIDE)
    batch, head, key_head, block = _place(GROUP, n_heads, n_queries, BLOCK_Q, IS_CAUSAL)
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    Q, D_O = _head(Q, q_strides, batch, head), _head(D_O, d_o_strides, batch, head)
    q = _load(Q, rows, q_strides, n_queries, E, BLOCK_E, DTYPE, False)
    d_o = _load(D_O, rows, d_o_strides, n_queries, E_V, BLOCK_V, DTYPE, False)
    at = (batch * n_heads + head).to(tl.int64) * n_queries
    shift, log_sum, delta = _rows(SHIFT + at, LOG_SUM + at, DELTA + at, rows, n_queries, False)
    K, V = _head(K, k_strides, batch, key_head), _head(V, v_strides, batch, key_head)
    if MASK != NO_MASK:
        mask = _head(mask, mask_strides, batch, head)
    whole, end = _span(block * BLOCK_Q, n_queries, n_keys, BLOCK_Q, BLOCK_K, IS_CAUSAL)

    d_q = tl.full([BLOCK_Q, BLOCK_E], 0.0, WIDE)
    d_q = _gather_query(
        d_q, q, d_o, shift, log_sum, delta, rows, K, V, mask, k_strides, v_strides, mask_strides,
        scale, unit, 0, whole, n_queries, E, E_V, BLOCK_E, BLOCK_V, BLOCK_K, IS_CAUSAL, MASK, True,
        DTYPE, WIDE,
    )  # fmt: skip
    d_q = _gather_query(
        d_q, q, d_o, shift, log_sum, delta, rows, K, V, mask, k_strides, v_strides, mask_strides,
        scale, unit, whole, end, n_queries, E, E_V, BLOCK_E, BLOCK_V, BLOCK_K, IS_CAUSAL, MASK,
        False, DTYPE, WIDE,
    )  # fmt: skip
    D_Q = _head(D_Q, d_q_strides, batch, head)
    d_q = _narrow(d_q * scale, D_Q.dtype.element_ty)
    _store(D_Q, d_q, rows, d_q_strides, n_queries, E, BLOCK_E)


@helper
def _gather_keys(
    d_k, d_v, k, v, keys, Q, D_O, SHIFT, LOG_SUM, DELTA, D_Q, mask, q_strides, d_o_strides,
    d_q_strides, mask_strides, scale, unit, start, end, n_queries, n_keys, E: tl.constexpr,
    E_V: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_Q: tl.constexpr,
    IS_CAUSAL: tl.constexpr, MASK: tl.constexpr, WHOLE_Q: tl.constexpr, WHOLE: tl.constexpr,
    SCATTER: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add dSᵀ Q and Pᵀ dO of the queries from `start` to `end`.

    The tile lies on its side, a row for each key: so the weights leave one product and enter the
    next without a way through shared memory.
    """
    for first in tl.range(start, end, BLOCK_Q):
        rows = first + tl.arange(0, BLOCK_Q)
        q = _load(Q, rows, q_strides, n_queries, E, BLOCK_E, DTYPE, WHOLE_Q)
        d_o = _load(D_O, rows, d_o_strides, n_queries, E_V, BLOCK_V, DTYPE, WHOLE_Q)
        shift, log_sum, delta = _rows(SHIFT, LOG_SUM, DELTA, rows, n_queries, WHOLE_Q)
        s = _scores(
            k, q, rows[None, :], keys[:, None], mask, mask_strides, scale, n_queries, n_keys,
            IS_CAUSAL, MASK, WHOLE, WIDE,
        )  # fmt: skip
        p = tl.exp2((s - shift[None, :]) * unit - log_sum[None, :])
        d_v = _product(_narrow(p, DTYPE), d_o, d_v, WIDE)
        d_p = _product(v, tl.trans(d_o), None, WIDE)
        d_s = _narrow(_d_scores(p, d_p, delta[None, :], s, MASK, WHOLE), DTYPE)
        d_k = _product(d_s, q, d_k, WIDE)
        if SCATTER:
            d_q = _product(tl.trans(d_s), _seen(k, s, 1, MASK), None, WIDE)
            columns = tl.arange(0, BLOCK_E)
            inside = (rows < n_queries)[:, None] & (columns < E)[None, :]
            pointers = D_Q + _offsets(rows, columns, d_q_strides)
            tl.atomic_add(pointers, d_q * scale, inside, sem="relaxed")
    return d_k, d_v


@triton.jit
def keys_backward(
    Q, K, V, mask, D_O, SHIFT, LOG_SUM, DELTA, D_Q, D_K, D_V, scale,
    q_strides, k_strides, v_strides, mask_strides, d_o_strides,
    d_q_strides, d_k_strides, d_v_strides,
    n_heads, n_queries, n_keys, length_q, length_k,
    GROUP: tl.constexpr, E: tl.constexpr, E_V: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr, IS_CAUSAL: tl.constexpr, MASK: tl.constexpr,
    WHOLE_Q: tl.constexpr, SCATTER: tl.constexpr, DTYPE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Give dK and dV of a block of keys, summed over the query heads that share it.

    WHOLE_Q: blocks of queries have no ragged end. SCATTER: dQ is wanted too, in zeros.
    """
    WIDE: tl.constexpr = tl.float64 if tl.float64 == DTYPE else tl.float32
    if tl.float64 == WIDE:
        scale = tl.load(scale)
    unit = scale * LOG2_E if MASK == NO_MASK else tl.full([], LOG2_E, WIDE)
    batch, key_head, _, block = _place(1, n_heads // GROUP, n_keys, BLOCK_K, False)
    first = block * BLOCK_K
    keys = first + tl.arange(0, BLOCK_K)
    K, V = _head(K, k_strides, batch, key_head), _head(V, v_strides, batch, key_head)
    end = tl.minimum(n_keys, n_queries) if IS_CAUSAL else n_keys  # no query sees what comes after
    k = _load(K, keys, k_strides, end, E, BLOCK_E, DTYPE, False)
    v = _load(V, keys, v_strides, end, E_V, BLOCK_V, DTYPE, False)

    # Queries from `start` on see some of the keys; from `whole` on they see all of them.
    start, whole = first * 0, first * 0
    if IS_CAUSAL:
        start = first // BLOCK_Q * BLOCK_Q
        whole = (first + BLOCK_K - 1 + BLOCK_Q - 1) // BLOCK_Q * BLOCK_Q
    whole = tl.where(first + BLOCK_K > n_keys, n_queries, tl.minimum(whole, n_queries))

    d_k = tl.full([BLOCK_K, BLOCK_E], 0.0, WIDE)
    d_v = tl.full([BLOCK_K, BLOCK_V], 0.0, WIDE)
    for member in tl.range(0, GROUP):
        head = key_head * GROUP + member
        q_here, d_o_here = _head(Q, q_strides, batch, head), _head(D_O, d_o_strides, batch, head)
        d_q_here = _head(D_Q, d_q_strides, batch, head) if SCATTER else D_Q
        mask_here = _head(mask, mask_strides, batch, head) if MASK != NO_MASK else mask
        at = (batch * n_heads + head).to(tl.int64) * n_queries
        d_k, d_v = _gather_keys(
            d_k, d_v, k, v, keys, q_here, d_o_here, SHIFT + at, LOG_SUM + at, DELTA + at, d_q_here,
            mask_here, q_strides, d_o_strides, d_q_strides, mask_strides, scale, unit, start, whole,
            n_queries, n_keys, E, E_V, BLOCK_E, BLOCK_V, BLOCK_Q, IS_CAUSAL, MASK, WHOLE_Q, False,
            SCATTER, DTYPE, WIDE,
        )  # fmt: skip
        d_k, d_v = _gather_keys(
            d_k, d_v, k, v, keys, q_here, d_o_here, SHIFT + at, LOG_SUM + at, DELTA + at, d_q_here,
            mask_here, q_strides, d_o_strides, d_q_strides, mask_strides, scale, unit, whole,
            n_queries, n_queries, n_keys, E, E_V, BLOCK_E, BLOCK_V, BLOCK_Q, IS_CAUSAL, MASK,
            WHOLE_Q, True, SCATTER, DTYPE, WIDE,
        )  # fmt: skip
    D_K, D_V = _head(D_K, d_k_strides, batch, key_head), _head(D_V, d_v_strides, batch, key_head)
    d_k = _narrow(d_k * scale, D_K.dtype.element_ty)
    _store(D_K, d_k, keys, d_k_strides, n_keys, E, BLOCK_E)
    d_v = _narrow(d_v, D_V.dtype.element_ty)
    _store(D_V, d_v, keys, d_v_strides, n_keys, E_V, BLOCK_V)
