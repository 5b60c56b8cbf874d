"""The matrix form of attention, and each of its steps as a function.

Each step beside the function that takes it:

    Q, K, V = X W_Q, X W_K, X W_V       project
    S       = scale · Q Kᵀ              attention_scores
    A       = softmax(S + mask)         attention_weights
    O       = A V                       scaled_dot_product_attention

Half precision (float16, bfloat16) is computed in float32, and rounded once, at the end. A score
beyond the range of the computing dtype is infinite there: -∞ removes its key, +∞ gives NaN.
"""

from __future__ import annotations

import numpy as np

from attnlib._checks import Array, Window, check_axis, check_projection
from attnlib._numpy_door import Call, attention, checked_arrays, weighted_sum, widened


@attention()
def scaled_dot_product_attention(call: Call) -> tuple[Array, Array]:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    NaN in what takes part gives NaN. In a key or a value that does not take part it changes
    nothing. A row in which no key takes part gives zeros.

    Source:
        Vaswani et al. 2017, equation 1; chapter 05.

    Example:
        >>> keys, values = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
        >>> scaled_dot_product_attention(np.array([[0.0]]), keys, values)
        array([[15.]])
    """
    scores = call.masked(call.query @ call.key.swapaxes(-1, -2) * call.scale)
    weights, lse = _softmax(scores)
    return weighted_sum(weights, call.value, scores), lse[..., 0]


scaled_dot_product_attention_with_lse = scaled_dot_product_attention.with_lse


def _softmax(scores: Array, axis: int = -1) -> tuple[Array, Array]:
    """Return the weights, and the log of the sum of the exponentials (its axis kept)."""
    row_max = np.max(scores, axis=axis, keepdims=True, initial=-np.inf)
    # An empty row has the maximum -∞, and -∞ - (-∞) is NaN: such a row is shifted by 0.
    row_max = np.where(row_max == -np.inf, 0, row_max)
    exponentials = np.exp(scores - row_max)
    row_sum = exponentials.sum(axis=axis, keepdims=True)
    return exponentials / np.where(row_sum == 0, 1, row_sum), row_max + np.log(row_sum)


def project(X: Array, W: Array) -> Array:
    """Return X W: each token (row) of X, mapped by the same matrix.

    Shapes:
        X (…, T, d_model), W (d_model, d) → (…, T, d)

    Raises:
        TypeError: what is no floating array.
        ValueError: shapes that do not fit.

    Source:
        Chapter 01.

    Example:
        >>> project(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [10.0, 1.0]]))
        array([[21.,  2.]])
    """
    X, W = checked_arrays({"X": X, "W": W}).values()
    check_projection(X.shape, "W", W.shape)
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(widened(X), widened(W)).astype(X.dtype))


def attention_scores(query: Array, key: Array, *, scale: float | None = None) -> Array:
    """Return the scaled scores: row i holds query i against all keys.

    S = scale · Q Kᵀ, with scale = 1/√E where it is None.

    Shapes:
        query (…, L, E), key (…, S, E) → (…, L, S)

    Raises:
        TypeError, ValueError: as `scaled_dot_product_attention`.

    Source:
        Vaswani et al. 2017, section 3.2.1; chapters 02 and 03.

    Example:
        >>> keys = np.array([[3.0, 4.0], [5.0, 6.0]])
        >>> attention_scores(np.array([[1.0, 2.0]]), keys, scale=1.0)
        array([[11., 17.]])
    """
    with np.errstate(all="ignore"):
        call = Call({"query": query, "key": key}, scale=scale)
        scores: Array = call.query @ call.key.swapaxes(-1, -2) * call.scale
        return scores.astype(call.asked)


def softmax(scores: Array, axis: int = -1) -> Array:
    """Return positive weights that add up to 1 along `axis`.

    a_j = exp(s_j - max s) / Σ_j exp(s_j - max s)

    Only -∞ along the axis: nothing takes part, and all weights are 0. NaN stays NaN.

    Shapes:
        any → the same

    Raises:
        TypeError: what is no floating array, or an axis that is no integer.
        ValueError: an axis that is not there (it is a numpy.exceptions.AxisError).

    Source:
        Chapter 04.

    Example:
        >>> softmax(np.array([7.0, 7.0]))
        array([0.5, 0.5])
    """
    (plain,) = checked_arrays({"scores": scores}).values()
    check_axis("axis", axis, plain.shape)
    with np.errstate(all="ignore"):
        return np.asarray(_softmax(widened(plain), axis)[0]).astype(plain.dtype, copy=False)


def attention_weights(
    query: Array,
    key: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Array:
    """Return the weights: row i says how much query i takes from each key.

    A = softmax(scale · Q Kᵀ + mask), along the keys.

    Shapes:
        query (…, H, L, E), key (…, H_kv, S, E), attn_mask broadcasts to (…, H, L, S)
        → (…, H, L, S)

    Raises:
        TypeError, ValueError: as `scaled_dot_product_attention`.

    Source:
        Vaswani et al. 2017, section 3.2.1; chapter 04.

    Example:
        >>> attention_weights(np.zeros((2, 1)), np.zeros((2, 1)), is_causal=True)
        array([[1. , 0. ],
               [0.5, 0.5]])
    """
    with np.errstate(all="ignore"):
        arrays = {"query": query, "key": key}
        call = Call(arrays, attn_mask, is_causal, scale, enable_gqa, causal_align, window)
        weights, _ = _softmax(call.masked(call.query @ call.key.swapaxes(-1, -2) * call.scale))
        return weights.reshape(*call.result, *weights.shape[-2:]).astype(call.asked)


def self_attention(
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Array:
    """Return, for each token of X, what it takes from all tokens of X.

    Q = X W_Q, K = X W_K, V = X W_V, then softmax(scale · Q Kᵀ + mask) V.

    Shapes:
        X (…, T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v) → (…, T, d_v); with
        heads X (…, 1, T, d_model), W_Q (H, d_model, d_k), W_K and W_V (H_kv, d_model, d)
        → (…, H, T, d_v), where H_kv = H, or fewer with enable_gqa

    Raises:
        TypeError, ValueError: as `project` and `scaled_dot_product_attention`.

    Source:
        Vaswani et al. 2017, equation 1; chapters 01 and 05.

    Example:
        >>> zero, one = np.array([[0.0]]), np.array([[1.0]])
        >>> self_attention(np.array([[1.0], [3.0]]), zero, zero, one)
        array([[2.],
               [2.]])
    """
    X, *matrices = checked_arrays({"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}).values()
    for name, W in zip(("W_Q", "W_K", "W_V"), matrices, strict=True):
        check_projection(X.shape, name, W.shape, heads=True)
    with np.errstate(all="ignore"):
        # Wide from the projections on, so that half precision is rounded once, at the end.
        query, key, value = (np.matmul(widened(X), widened(W)) for W in matrices)
        if isinstance(attn_mask, np.ndarray) and attn_mask.dtype == X.dtype:
            attn_mask = widened(attn_mask)
        return scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa, causal_align=causal_align, window=window,
        ).astype(X.dtype)  # fmt: skip
