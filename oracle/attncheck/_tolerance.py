"""Say how far a result may be off; nothing else decides how close is close enough.

Bounds come from the arithmetic, never from a look at the errors. With ε the distance from 1 to
the next number of the dtype:

float32, float64  error ≤ ε · size, entry by entry, where `size` follows the roundings through the
                  formula: see `forward_size`, `lse_size` and `gradient_sizes`. What has underflowed
                  comes on top.
half precision    error ≤ 2 · (error of plain attention in that dtype) + one rounding at the
                  magnitude of the result; for gradients 3 instead of 2. This is the rule of
                  FlashAttention's tests.

Roundings point in either direction, so that a sum of n of them grows with √n rather than with n:
λ√n roundings are exceeded with a probability of at most 2 exp(-λ²/2), 3e-8 for λ = 6.

Source:
    Higham and Mary 2019, A new approach to probabilistic rounding error analysis, theorem 2.4.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from attncheck._types import HALF, Array, Problem, Shape, scale_of

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
LAMBDA = 6.0
# Numbers below this have lost digits on the way, or are 0.
UNDERFLOW = {"float32": 2.0**-103, "float64": 2.0**-970}


def epsilon(dtype: str) -> float:
    """Return the distance from 1 to the next number of this dtype."""
    return EPSILON[dtype]


def masked_scores(own: Problem) -> tuple[Array, Array]:
    """Return the scores in float64, -∞ where the mask removes, and what it keeps."""
    query, key, _, attn_mask, scale, softcap, _ = own
    scores = scale_of(scale, query.shape[-1]) * (query @ key.swapaxes(-1, -2))
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    allowed: Array = np.ones((1, 1), dtype=bool)
    if attn_mask is not None and attn_mask.dtype == np.bool_:
        allowed = attn_mask
    elif attn_mask is not None:
        allowed = attn_mask != -np.inf
        scores = scores + np.where(allowed, attn_mask, 0)
    shape = np.broadcast_shapes(allowed.shape, scores.shape)
    allowed = np.broadcast_to(allowed, shape)
    return np.where(allowed, scores, -np.inf), allowed


def softmax(scores: Array) -> Array:
    """Return the softmax along a row; zeros for a row of -∞."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    total = powers.sum(axis=-1, keepdims=True)
    weights: Array = powers / np.where(total == 0, 1, total)
    return weights


def with_sinks(scores: Array, sinks: Array | None) -> tuple[Array, Array]:
    """Return the weights of the keys, and in one column that of the sink, which has no value.

    >>> with_sinks(np.zeros((1, 1, 3)), np.zeros(1))[1]
    array([[[0.25]]])
    """
    shape = (*scores.shape[:-1], 1)
    column = np.broadcast_to(-np.inf if sinks is None else sinks[:, None, None], shape)
    weights = softmax(np.concatenate([scores, column], axis=-1))
    return weights[..., :-1], weights[..., -1:]


def gathered(gradient: Array, shape: Shape, *, grouped: bool = False) -> Array:
    """Return the gradient of an array of this shape that was broadcast, or repeated for groups.

    >>> gathered(np.ones((2, 3, 4)), (3, 1))
    array([[8.],
           [8.],
           [8.]])
    """
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    if grouped and len(shape) > 2 and shape[-3] not in (1, gradient.shape[-3]):
        *batch, n_heads, n_rows, n_columns = gradient.shape
        apart = (*batch, shape[-3], n_heads // shape[-3], n_rows, n_columns)
        gradient = gradient.reshape(apart).sum(axis=-3)
    axes = tuple(n for n, length in enumerate(shape) if length == 1 != gradient.shape[n])
    total: Array = gradient.sum(axis=axes, keepdims=True)
    return total


def finite(numbers: Array) -> Array:
    """Return numbers with 0 in place of NaN and ∞, which no error can be measured beside."""
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _steps(n: int) -> float:
    """Return how many ε a sum of n products can be off, for each unit of its size."""
    return LAMBDA / 2 * math.sqrt(n + 1)  # a rounding is ε/2; one more for what follows the sum


def _summed(a: Array, b: Array) -> Array:
    """Return how many ε the entries of a @ b can be off.

    A rounding is relative to the partial sum that it rounds. Partial sums lie between 0 and the
    sum where the products have one sign, and within the root of their summed squares where signs
    are at random.
    """
    tops = [float(np.abs(x).max(initial=0.0)) or 1.0 for x in (a, b)]
    a_unit, b_unit = a / tops[0], b / tops[1]
    walk = np.sqrt(a_unit**2 @ b_unit**2) + np.abs(a_unit @ b_unit)
    return np.asarray(_steps(a.shape[-1]) * tops[0] * walk * tops[1])


class _Forward(NamedTuple):
    """The weights of a call, and by how many ε scores, weights and log-sum-exp can be off."""

    weights: Array
    weight: Array  # absolute, of an entry of `weights`
    lse: Array
    score: Array  # of a score as the product of query and key gives it
    sinks: tuple[Array, Array]  # the weights of sinks in one column, and by how much they are off


def _forward(own: Problem) -> _Forward:
    """Follow the roundings to the weights.

    A score is off as a sum of E products is, and by a rounding of the mask, of the score and of
    the shift by the largest one; a soft cap has a slope of at most 1. The exponential turns this
    into a relative error of a weight, w; the row sum is off by the mean of w, and as a sum of S
    terms of one sign is. A sink is one more key.
    """
    query, key, mask, sinks = finite(own.query), finite(own.key), own.attn_mask, own.sinks
    if mask is not None and mask.dtype != np.bool_:
        mask = np.where(mask == -np.inf, -np.inf, finite(mask))
    scores, _ = masked_scores(own._replace(query=query, key=key, attn_mask=mask))
    factor = abs(scale_of(own.scale, query.shape[-1]))
    score = factor * _summed(query, key.swapaxes(-1, -2))
    w = score + np.zeros_like(scores)
    if mask is not None and mask.dtype != np.bool_:
        w = w + np.abs(finite(mask))
    n_keys = key.shape[-2]
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, column], axis=-1)
        w = np.concatenate([w, np.zeros_like(column)], axis=-1)
    size = np.abs(finite(scores))
    largest = size.max(axis=-1, keepdims=True, initial=0.0)
    w = w + 2 * size + largest + 4
    weights = softmax(scores)
    mean = (weights * w).sum(axis=-1, keepdims=True) + 2 * _steps(n_keys)
    lse = (mean + largest)[..., 0] + math.log2(2 + n_keys)
    off = weights * (w + mean)
    sink = weights[..., n_keys:], off[..., n_keys:]
    return _Forward(weights[..., :n_keys], off[..., :n_keys], lse, score, sink)


def lse_size(own: Problem) -> Array:
    """Return the number of ε by which each entry of a log-sum-exp can be off."""
    return _forward(own).lse


def forward_size(own: Problem) -> Array:
    """Return the number of ε by which each entry of attention's output can be off."""
    found, value = _forward(own), finite(own.value)
    output = np.abs(found.weights @ value)
    return np.asarray(found.weight @ np.abs(value) + _summed(found.weights, value) + output)


def gradient_sizes(
    own: Problem, upstream: Array, lse_upstream: Array | None = None
) -> dict[str, Array]:
    """Return the number of ε by which each entry of the gradients can be off.

    The formulas are those of `_definition.gradients`, where A is P. Each product is off by what its
    factors are off, and as a sum is. D, the row sums of A ∘ dP, are those of dO ∘ O as well, and
    off by the larger one of both ways to them.
    """
    found = _forward(own)
    query, key, value, upstream = (finite(x) for x in (*own[:3], upstream))
    A, above = found.weights, np.abs(upstream)
    d_weights = upstream @ value.swapaxes(-1, -2)
    rows = (A * d_weights).sum(axis=-1, keepdims=True)
    X = d_weights - rows + (0 if lse_upstream is None else finite(lse_upstream)[..., None])
    d_scores = A * X
    off_weights = _summed(upstream, value.swapaxes(-1, -2))
    output = A @ value
    off_output = found.weight @ np.abs(value) + _summed(A, value)
    one = (found.weight * np.abs(d_weights) + A * off_weights).sum(axis=-1, keepdims=True)
    other = (above * off_output).sum(axis=-1, keepdims=True)
    ones = np.ones((value.shape[-1], 1))
    off_rows = np.maximum(one, other) + _summed(upstream * output, ones) + np.abs(rows)
    off = A * (off_weights + off_rows + 2 * np.abs(X)) + found.weight * np.abs(X)
    factor = abs(scale_of(own.scale, query.shape[-1]))
    d_inner, inner = d_scores, off
    if own.softcap is not None:
        # 1 - t² is off by what t is, and absolutely so: near 1 its digits cancel.
        x = scale_of(own.scale, query.shape[-1]) * (query @ key.swapaxes(-1, -2)) / own.softcap
        t = np.abs(np.tanh(x))
        slope = 1 - t**2
        off_t = slope * (found.score / own.softcap + 2 * np.abs(x)) + 2 * t
        d_inner = d_scores * slope
        inner = off * slope + np.abs(d_scores) * (2 * t * off_t + 2)
    back, up = d_inner.swapaxes(-1, -2), inner.swapaxes(-1, -2)
    sizes = {
        "query": factor * (inner @ np.abs(key) + _summed(d_inner, key)),
        "key": factor * (up @ np.abs(query) + _summed(back, query)),
        "value": found.weight.swapaxes(-1, -2) @ above + _summed(A.swapaxes(-1, -2), upstream),
    }
    shapes = {"query": query.shape, "key": key.shape, "value": value.shape}
    if own.attn_mask is not None and own.attn_mask.dtype != np.bool_:
        sizes["attn_mask"], shapes["attn_mask"] = off, own.attn_mask.shape
    if own.sinks is not None:
        p, off_p = found.sinks
        above_lse = 0 if lse_upstream is None else np.abs(finite(lse_upstream))[..., None]
        each = p * (off_rows + 2 * (np.abs(rows) + above_lse)) + off_p * (np.abs(rows) + above_lse)
        sizes["sinks"], shapes["sinks"] = np.moveaxis(each[..., 0], -2, -1), own.sinks.shape
    return {name: _gathered_sizes(size, shapes[name]) for name, size in sizes.items()}


def sizes_of_rounded(own: Problem, upstream: Array) -> dict[str, Array]:
    """Return how many ε of half precision the gradients can be off, by rounded outputs.

    Each row takes D = dO · O from an output that was rounded, and dS = A ∘ (dP - D) is off by what
    D is. The error of plain attention is no measure of that where there are few keys or sinks, as
    it happens to be near 0 in some.
    """
    found = _forward(own)
    query, key, value = (finite(x) for x in own[:3])
    products = (finite(upstream) * (found.weights @ value)) ** 2
    off_rows = LAMBDA / 2 * np.sqrt(products.sum(axis=-1, keepdims=True))
    factor, slope = scale_of(own.scale, query.shape[-1]), np.ones(())
    if own.softcap is not None:
        slope = 1 - np.tanh(factor * (query @ key.swapaxes(-1, -2)) / own.softcap) ** 2
    off = found.weights * off_rows
    squares = ((slope * off) ** 2).swapaxes(-1, -2)
    sizes = {
        "query": abs(factor) * np.abs((slope * off) @ key),
        "key": abs(factor) * np.sqrt(squares @ query**2),
        "value": np.zeros(value.shape),
        "attn_mask": off,
    }
    if own.sinks is not None:
        rows = np.moveaxis((found.sinks[0] * off_rows)[..., 0] ** 2, -2, -1)
        sizes["sinks"] = np.sqrt(gathered(rows, own.sinks.shape))
    return sizes


def _gathered_sizes(size: Array, shape: Shape) -> Array:
    """Return the size of a gradient that was broadcast: longer sums have more roundings."""
    whole = gathered(size, shape)
    return whole * math.sqrt(max(1.0, size.size / max(1, whole.size)))


def bound(
    truth: Array, *, dtype: str, size: float | Array | None = None, peer: Array | None = None,
    times: int = 2, floor: float | Array = 0.0,
) -> float | Array:
    """Return how far each entry of a result may be from the truth where the truth is finite.

    `truth` is float64. float32 and float64 need `size`; half precision needs `peer`, the result
    of plain attention in the same dtype, and may be `times` as wrong: 2, and 3 for a gradient.
    `floor` comes on top: what float32 may bring where the peer's own error happens to be 0.
    """
    if dtype not in HALF:
        assert size is not None, f"{dtype} needs the size of the problem"
        return epsilon(dtype) * size + UNDERFLOW[dtype]
    assert peer is not None, "half precision is measured against plain attention"
    finite = np.isfinite(truth)
    if not finite.any():
        return floor
    peer_error = float(np.abs(peer.astype(np.float64) - truth)[finite].max())
    assert np.isfinite(peer_error), "the peer is not finite: it measures nothing"
    return times * peer_error + epsilon(dtype) / 2 * float(np.abs(truth[finite]).max()) + floor


def difference(got: Array, truth: Array, bound: float | Array) -> str:
    """Return which entry is the first that is wrong, in words; "" where none is.

    NaN compares false with every bound, so it is looked at first; infinities must be equal.

    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]), bound=0.1)
    'entry (1,): expected 2, got 2.5; the error 0.5 is above the bound 0.1'
    >>> difference(np.array([np.nan]), np.array([1.0]), bound=0.1)
    'entry (0,): expected 1, got nan'
    """
    if got.shape != truth.shape:
        return f"expected shape {truth.shape}, got {got.shape}"
    got, truth = got.astype(np.float64), truth.astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = np.abs(got - truth)
    bounds = np.broadcast_to(bound, truth.shape)
    same = (got == truth) | (np.isnan(got) & np.isnan(truth))
    wrong = np.argwhere(~(same | (np.isfinite(truth) & (errors <= bounds))))
    if not len(wrong):
        return ""
    first = tuple(map(int, wrong[0]))
    words = f"entry {first}: expected {truth[first]:.6g}, got {got[first]:.6g}"
    if not (np.isfinite(got[first]) and np.isfinite(truth[first])):
        return words
    return f"{words}; the error {errors[first]:.2g} is above the bound {bounds[first]:.2g}"


def sort_of_wrong(got: Array, truth: Array) -> str:
    """Return what sort of wrong a result is.

    >>> sort_of_wrong(np.array([np.nan, 2.0]), np.array([1.0, 2.0]))
    'NaN'
    """
    if got.shape != truth.shape:
        return "another shape"
    if (np.isnan(got) & ~np.isnan(truth)).any():
        return "NaN"
    if (np.isnan(truth) & ~np.isnan(got)).any():
        return "a number in place of NaN"
    if (np.isinf(got) != np.isinf(truth)).any():
        return "infinity" if np.isinf(got).any() else "a number in place of infinity"
    if (np.isinf(truth) & (got == -truth)).any():
        return "infinity of the other sign"
    if got.size and not got.any():
        return "zeros"
    return "other numbers"
