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

from attnlib import masks
from attnlib._checks import (
    HALF,
    Array,
    beyond,
    check_array,
    check_axis,
    check_dtypes,
    check_projection,
    numpy_call,
)


def _widened(array: Array) -> Array:
    name = array.dtype.name
    return np.asarray(array).astype("float32" if name in HALF else name, copy=False)


def _scores(query: Array, key: Array, scale: float) -> Array:
    query, key = _widened(query), _widened(key)
    if beyond(scale, np.finfo(query.dtype)):
        query, key = query.astype(np.float64), key.astype(np.float64)
    return np.asarray(np.matmul(query, np.swapaxes(key, -1, -2)) * query.dtype.type(scale))


def _softmax(scores: Array, axis: int) -> tuple[Array, Array]:
    """Give the weights, and the log of the sum of the exponentials (its axis kept)."""
    row_max = np.max(scores, axis=axis, keepdims=True, initial=-np.inf)
    # An empty row has the maximum -∞, and -∞ - (-∞) is NaN: such a row is shifted by 0.
    row_max = np.where(row_max == -np.inf, 0, row_max)
    exponentials = np.exp(scores - row_max)
    row_sum = exponentials.sum(axis=axis, keepdims=True)
    return exponentials / np.where(row_sum == 0, 1, row_sum), row_max + np.log(row_sum)


def _masked(scores: Array, attn_mask: Array | None, is_causal: bool) -> tuple[Array, Array | None]:
    """Give the scores after the mask, and which keys take part (None: all of them).

    The score of a removed key is replaced, so that nothing of it is left, NaN included.
    """
    part: Array
    if is_causal:
        part = masks.causal(*scores.shape[-2:])
        return np.where(part, scores, scores.dtype.type(-np.inf)), part
    if attn_mask is None:
        return scores, None
    attn_mask = np.asarray(attn_mask)  # a subclass, np.matrix say, would bend the shapes
    if attn_mask.dtype == np.bool_:
        part = attn_mask
    else:
        part = np.not_equal(attn_mask, -np.inf)
        scores = scores + attn_mask.astype(scores.dtype)
    return np.where(part, scores, scores.dtype.type(-np.inf)), part


def _weighted_sum(weights: Array, value: Array, part: Array | None) -> Array:
    """Give A V, in which a removed value counts for nothing, even where it is not finite."""
    if part is None or np.isfinite(value).all():
        return np.asarray(np.matmul(weights, value))
    # 0 · NaN is NaN: the keys that hold such values are taken out of the product, and added
    # one at a time to the rows in which they take part.
    part = np.broadcast_to(part, weights.shape)
    flat = value.reshape(-1, *value.shape[-2:])
    finite = np.asarray(np.isfinite(flat).all(axis=(0, 2)))
    output: Array = np.matmul(weights, np.where(finite[:, None], value, 0))
    for j in np.flatnonzero(~finite):
        one = slice(j, j + 1)
        output = output + np.where(part[..., one], weights[..., one] * value[..., one, :], 0)
    return output


def project(X: Array, W: Array) -> Array:
    """Give X W: each token (row) of X, mapped by the same matrix.

    Shapes: X (…, T, d_model), W (d_model, d) → (…, T, d).
    Raises: TypeError for what is no floating array; ValueError for shapes that do not fit.
    Source: chapter 01.

    >>> project(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [10.0, 1.0]]))
    array([[21.,  2.]])
    """
    check_array("X", X)
    check_array("W", W)
    check_dtypes({"X": X.dtype.name, "W": W.dtype.name})
    check_projection(X.shape, "W", W.shape)
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(_widened(X), _widened(W)).astype(X.dtype))


def attention_scores(query: Array, key: Array, *, scale: float | None = None) -> Array:
    """Give the scaled scores: row i holds query i against all keys.

    S = scale · Q Kᵀ, with scale = 1/√E where it is None.

    Shapes: query (…, L, E), key (…, S, E) → (…, L, S).
    Raises: TypeError, ValueError as `numpy_tokenwise.scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, section 3.2.1; chapters 02 and 03.

    >>> attention_scores(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), scale=1.0)
    array([[11., 17.]])
    """
    call = numpy_call({"query": query, "key": key}, scale=scale)
    with np.errstate(all="ignore"):
        return _scores(query, key, call.scale).astype(query.dtype)


def softmax(scores: Array, axis: int = -1) -> Array:
    """Give positive weights that add up to 1 along `axis`.

    a_j = exp(s_j - max s) / Σ_j exp(s_j - max s)

    Only -∞ along the axis: nothing takes part, and all weights are 0. NaN stays NaN.

    Shapes: any → the same.
    Raises: TypeError for what is no floating array, or an axis that is no integer;
    numpy.exceptions.AxisError (a ValueError) for an axis that is not there.
    Source: chapter 04.

    >>> softmax(np.array([7.0, 7.0]))
    array([0.5, 0.5])
    """
    check_array("scores", scores)
    check_dtypes({"scores": scores.dtype.name})
    check_axis("axis", axis, scores.shape)
    with np.errstate(all="ignore"):
        return np.asarray(_softmax(_widened(scores), axis)[0]).astype(scores.dtype, copy=False)


def attention_weights(
    query: Array,
    key: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Array:
    """Give the weights: row i says how much query i takes from each key.

    A = softmax(scale · Q Kᵀ + mask), along the keys.

    Shapes: query (…, L, E), key (…, S, E), attn_mask broadcasts to (…, L, S) → (…, L, S).
    Raises: TypeError, ValueError as `numpy_tokenwise.scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, section 3.2.1; chapter 04.

    >>> attention_weights(np.zeros((2, 1)), np.zeros((2, 1)), is_causal=True)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    call = numpy_call({"query": query, "key": key}, attn_mask, is_causal=is_causal, scale=scale)
    with np.errstate(all="ignore"):
        scores = _scores(query, key, call.scale)
        return _softmax(_masked(scores, attn_mask, is_causal)[0], axis=-1)[0].astype(query.dtype)


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

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    Shapes, masks and errors are those of `numpy_tokenwise.scaled_dot_product_attention`.
    NaN in a removed key or value changes nothing, as there.

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

    Shapes: as `scaled_dot_product_attention`, and lse (…, H, L): in float32 for half precision,
    else in query's dtype; -∞ for a row in which no key takes part.

    >>> q, k, v = np.zeros((1, 1)), np.zeros((4, 1)), np.zeros((4, 1))
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> round(float(np.exp(lse[0])), 12)
    4.0
    """
    call = numpy_call(
        {"query": query, "key": key, "value": value},
        attn_mask, dropout_p, is_causal, scale, enable_gqa,
    )  # fmt: skip
    if call.group != 1:  # (…, H_kv, S, E) → (…, H, S, E): each key head, `group` times in a row
        key, value = np.repeat(key, call.group, axis=-3), np.repeat(value, call.group, axis=-3)
    with np.errstate(all="ignore"):
        scores, part = _masked(_scores(query, key, call.scale), attn_mask, is_causal)
        weights, lse = _softmax(scores, axis=-1)
        output = _weighted_sum(weights, _widened(value), part).astype(query.dtype)
        lse = lse[..., 0].astype(_widened(query).dtype)
    # A value may have batch dimensions that the scores do not have.
    return output, np.broadcast_to(lse, output.shape[:-1]).copy()


def self_attention(
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Array:
    """Give, for each token of X, what it takes from all tokens of X.

    Q = X W_Q, K = X W_K, V = X W_V, then softmax(scale · Q Kᵀ + mask) V.

    Shapes: X (…, T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v) → (…, T, d_v).
    Raises: TypeError, ValueError as `project` and `scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, equation 1; chapters 01 and 05.

    >>> zero, one = np.array([[0.0]]), np.array([[1.0]])
    >>> self_attention(np.array([[1.0], [3.0]]), zero, zero, one)
    array([[2.],
           [2.]])
    """
    matrices = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}
    for name, array in ({"X": X} | matrices).items():
        check_array(name, array)
    check_dtypes({"X": X.dtype.name} | {name: W.dtype.name for name, W in matrices.items()})
    for name, W in matrices.items():
        check_projection(X.shape, name, W.shape)
    # Wide from the projections on, so that half precision is rounded once, at the end.
    query, key, value = (project(_widened(X), _widened(W)) for W in matrices.values())
    if attn_mask is not None:
        check_array("attn_mask", attn_mask)
        if attn_mask.dtype == X.dtype:
            attn_mask = _widened(attn_mask)
    output = scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale
    )
    with np.errstate(all="ignore"):
        return output.astype(X.dtype)
