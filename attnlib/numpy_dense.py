"""The matrix form of attention, and each of its steps as a function.

Each step beside the function that takes it (chapters 01 to 05; Vaswani et al. 2017, section 3.2.1):

    Q, K, V = X W_Q, X W_K, X W_V       project
    S       = scale · Q Kᵀ              attention_scores
    A       = softmax(S + mask)         attention_weights
    O       = A V                       scaled_dot_product_attention

Half precision (float16, bfloat16) is computed in float32 and rounded once, at the end. A score
beyond the dtype's range is infinite: -∞ removes its key, +∞ gives NaN. Every step raises TypeError
for anything but floating arrays, and ValueError for shapes that do not fit.
"""

from __future__ import annotations

import numpy as np

from attnlib._arrays import Call, checked_arrays, weighted_sum
from attnlib._checks import Array, Options, Window, check_axis, upcast, wide_tokens
from attnlib._docstrings import ARRAYS, document


def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> Array:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√d_k where it is None.

    NaN in what takes part gives NaN. In a key or a value that does not take part it changes
    nothing. A row in which no key takes part gives zeros.

    Source:
        Vaswani et al. 2017, equation 1; chapter 05.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window,
    )[0]


def scaled_dot_product_attention_with_lse(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> tuple[Array, Array]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    with np.errstate(all="ignore"):
        call = Call((query, key, value), options)
        scores = call.masked(call.query @ call.key.swapaxes(-1, -2) * call.scale)
        weights, lse = _softmax(scores)
        output = weighted_sum(weights, call.value, scores)  # A V
        return call.finish(output, lse[..., 0])


document(scaled_dot_product_attention, scaled_dot_product_attention_with_lse, ARRAYS)


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

    Example:
        >>> project(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [10.0, 1.0]]))
        array([[21.,  2.]])
    """
    tokens, W = wide_tokens(checked_arrays({"X": X, "W": W}))
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(tokens, W).astype(X.dtype))


def attention_scores(query: Array, key: Array, *, scale: float | None = None) -> Array:
    """Return the scores S = scale · Q Kᵀ: row i holds query i against all keys.

    Shapes:
        query (…, L, d_k), key (…, S, d_k) → (…, L, S)

    Example:
        >>> keys = np.array([[3.0, 4.0], [5.0, 6.0]])
        >>> attention_scores(np.array([[1.0, 2.0]]), keys, scale=1.0)
        array([[11., 17.]])
    """
    with np.errstate(all="ignore"):
        call = Call((query, key), Options(scale=scale))
        scores = call.query @ call.key.swapaxes(-1, -2) * call.scale
        return np.asarray(scores).astype(call.out_dtype)


def softmax(scores: Array, axis: int = -1) -> Array:
    """Return weights that add up to 1: a_j = exp(s_j - max s) / Σ_j exp(s_j - max s).

    Only -∞ along the axis: nothing takes part, and all weights are 0. NaN stays NaN.

    Example:
        >>> softmax(np.array([7.0, 7.0]))
        array([0.5, 0.5])
    """
    (plain,) = checked_arrays({"scores": scores}).values()
    check_axis("axis", axis, plain.shape)
    with np.errstate(all="ignore"):
        return np.asarray(_softmax(upcast(plain), axis)[0]).astype(plain.dtype, copy=False)


def attention_weights(
    query: Array, key: Array, attn_mask: Array | None = None, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False, causal_align: str = "top-left",
    window: Window | None = None,
) -> Array:
    """Return the weights A = softmax(S + mask): row i says how much query i takes from each key.

    Shapes:
        query (…, H, L, d_k), key (…, H_kv, S, d_k) → (…, H, L, S), to which attn_mask broadcasts

    Example:
        >>> attention_weights(np.zeros((2, 1)), np.zeros((2, 1)), is_causal=True)
        array([[1. , 0. ],
               [0.5, 0.5]])
    """
    options = Options(attn_mask, 0.0, is_causal, scale, enable_gqa, causal_align, window)
    with np.errstate(all="ignore"):
        call = Call((query, key), options)
        weights = _softmax(call.masked(call.query @ call.key.swapaxes(-1, -2) * call.scale))[0]
        return weights.reshape(*call.out_batch, *weights.shape[-2:]).astype(call.out_dtype)


def self_attention(
    X: Array, W_Q: Array, W_K: Array, W_V: Array, attn_mask: Array | None = None,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Window | None = None,
) -> Array:
    """Return, for each token of X, what it takes from all: softmax(Q Kᵀ / √d_k) V, Q = X W_Q ….

    Shapes:
        X (…, T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v) → (…, T, d_v); with heads
        X (…, 1, T, d_model), W_Q (H, d_model, d_k), W_K and W_V (H_kv, …) → (…, H, T, d_v)

    Example:
        >>> self_attention(np.array([[1.0], [3.0]]), *np.array([[[0.0]], [[0.0]], [[1.0]]]))
        array([[2.],
               [2.]])
    """
    given = checked_arrays({"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V})
    tokens, *matrices = wide_tokens(given, heads=True)
    with np.errstate(all="ignore"):
        query, key, value = (np.matmul(tokens, W) for W in matrices)
        if isinstance(attn_mask, np.ndarray) and attn_mask.dtype == X.dtype:
            attn_mask = upcast(attn_mask)
        return scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa, causal_align=causal_align, window=window,
        ).astype(X.dtype)
