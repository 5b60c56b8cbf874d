"""The definition of attention, one query at a time. Every other form is held against this one.

For query i, with the keys j that may take part:

    s_ij = scale · (q_i · k_j) + mask_ij
    a_ij = exp(s_ij) / Σ_j exp(s_ij)
    o_i  = Σ_j a_ij v_j

Explicit loops and Python floats: slow, and right. All sums are in float64, whatever the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnlib._checks import Array, numpy_call


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def _softmax(scores: Sequence[float]) -> tuple[list[float], float]:
    """Give the weights of one row, and the log of the sum of the exponentials."""
    # np.max hands a NaN on, which Python's max does only where it comes first.
    row_max = float(np.max(scores, initial=-math.inf))
    if row_max == -math.inf:  # nothing to attend to
        return [0.0 for _ in scores], -math.inf
    exponentials = [math.exp(score - row_max) for score in scores]
    row_sum = 0.0
    for exponential in exponentials:
        row_sum += exponential
    return [e / row_sum for e in exponentials], row_max + math.log(row_sum)


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """Give the attention output: for each query a weighted mean of the values.

    softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    A key takes part in a query's row if the mask there is True, or a float other than -∞, and,
    with `is_causal`, if j ≤ i. A key that does not take part is not read: NaN in it changes
    nothing. NaN in what takes part gives NaN. A row in which no key takes part gives zeros.

    Shapes: query (…, H, L, E), key (…, H, S, E), value (…, H, S, E_v) → (…, H, L, E_v). The
        leading dimensions broadcast, and there may be none. attn_mask broadcasts to (…, H, L, S).
        With `enable_gqa` key and value have H_kv heads; head h uses key head h // (H / H_kv).
    Raises: TypeError for what is no NumPy array, a dtype that is not floating, dtypes that differ,
        a mask that is neither boolean nor floating, a flag that is not a bool. ValueError for
        ranks, lengths, heads or masks that do not fit, a mask beside is_causal, a scale that is
        not finite, dropout. The message says what was expected and what came.
    Source: Vaswani et al. 2017, equation 1; chapter 05.

    The query is 0, so both keys get the weight 1/2, and the output is the mean of the values:

    >>> keys, values = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
    >>> scaled_dot_product_attention(np.array([[0.0]]), keys, values)
    array([[15.]])
    """
    output, _ = scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return output


def scaled_dot_product_attention_with_lse(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, Array]:
    """Give the attention output, and the natural log of each row's sum of exponentials.

    lse_i = log Σ_j exp(s_ij), and -∞ for a row in which no key takes part.

    Shapes: as `scaled_dot_product_attention`, and lse (…, H, L), in float64.

    >>> q, k, v = np.zeros((1, 1)), np.zeros((4, 1)), np.zeros((4, 1))
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> round(float(np.exp(lse[0])), 12)
    4.0
    """
    call = numpy_call(
        {"query": query, "key": key, "value": value},
        attn_mask, dropout_p, is_causal, scale, enable_gqa,
    )  # fmt: skip
    query, key, value = np.asarray(query), np.asarray(key), np.asarray(value)
    dtype, n_queries, n_keys, n_values = query.dtype, call.n_queries, call.n_keys, value.shape[-1]
    if call.group != 1:  # key head g serves the query heads g · group … (g + 1) · group - 1
        key, value = np.repeat(key, call.group, axis=-3), np.repeat(value, call.group, axis=-3)
    bias = np.zeros(()) if attn_mask is None else np.asarray(attn_mask)
    if bias.dtype == np.bool_:
        bias = np.where(bias, 0.0, -np.inf)
    with np.errstate(all="ignore"):  # a signalling NaN would warn here
        query, key, value = (
            np.broadcast_to(array.astype(np.float64), call.batch + array.shape[-2:])
            for array in (query, key, value)
        )
        bias = np.broadcast_to(bias.astype(np.float64), (*call.batch, n_queries, n_keys))

    output = np.zeros((*call.batch, n_queries, n_values))
    lse = np.zeros((*call.batch, n_queries))
    for head in np.ndindex(call.batch):
        q, k, v, b = (array[head].tolist() for array in (query, key, value, bias))
        for i in range(n_queries):
            part = [j for j in range(n_keys) if b[i][j] != -math.inf and (j <= i or not is_causal)]
            scores = [call.scale * _dot(q[i], k[j]) + b[i][j] for j in part]
            weights, lse[(*head, i)] = _softmax(scores)
            for c in range(n_values):
                output[(*head, i, c)] = _dot(weights, [v[j][c] for j in part])
    with np.errstate(all="ignore"):
        return output.astype(dtype), lse
