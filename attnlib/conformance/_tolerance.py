"""Say how far a result may be off; nothing else decides how close is close enough.

Bounds come from the arithmetic, never from a look at the errors. With ε the distance from 1 to
the next number of the dtype:

float32, float64  error ≤ ε · size, where `size` says how far roundings can add up: see
                  `forward_size` and `gradient_sizes`.
half precision    error ≤ 2 · (error of plain attention in that dtype) + one rounding at the
                  magnitude of the result; for gradients 3 instead of 2. This is the rule of
                  FlashAttention's tests.
"""

from __future__ import annotations

import math

import numpy as np

from attnlib._checks import HALF, Array

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def epsilon(dtype: str) -> float:
    """Return the distance from 1 to the next number of this dtype."""
    return EPSILON[dtype]


def _finite(array: Array) -> Array:
    numbers = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _largest(array: Array | None) -> float:
    return 0.0 if array is None else float(_finite(array).max(initial=0.0))


def _longest(array: Array) -> float:
    return float(np.sqrt((_finite(array) ** 2).sum(axis=-1)).max(initial=0.0))


def _factor(query: Array, scale: float | None) -> float:
    n_features = query.shape[-1]
    default = 1 / math.sqrt(n_features) if n_features else 1.0
    return default if scale is None else abs(float(scale))  # any kind of number


def lse_size(
    query: Array, key: Array, attn_mask: Array | None = None, scale: float | None = None
) -> float:
    """Return the number of ε by which a log-sum-exp, or a weight relative to itself, can be off.

    A score is a sum of E products, and is off by at most (E + 2) ε (|scale| Σ|q||k| + |mask|),
    and Σ|q||k| ≤ ‖q‖‖k‖.
    The exponential turns this into a relative error of a weight; it comes in twice, through the
    numerator and the row sum. Summing S weights, twice, adds 2 S ε.
    """
    score = _factor(query, scale) * _longest(query) * _longest(key)
    if attn_mask is not None and attn_mask.dtype != np.bool_:
        score += _largest(attn_mask)
    return 2 * float(query.shape[-1] + 2) * (1 + score) + 2 * float(key.shape[-2])


def forward_size(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> float:
    """Return the number of ε by which attention's output can be off.

    It is a mean of the values, so it is off by the error of a weight times the largest value.
    """
    return lse_size(query, key, attn_mask, scale) * (1 + _largest(value))


def gradient_sizes(
    query: Array,
    key: Array,
    value: Array,
    upstream: Array,
    attn_mask: Array | None = None,
    lse_upstream: Array | None = None,
    scale: float | None = None,
) -> dict[str, float]:
    """Return the number of ε by which the gradient by each floating input can be off.

    With dO and dL the gradients of output and log-sum-exp:

        dP = dO Vᵀ    dS = A ∘ (dP - rowsum(A ∘ dP) + dL)
        dQ = scale · dS K    dK = scale · dSᵀ Q    dM = dS    dV = Aᵀ dO

    |dP| ≤ ‖dO‖‖V‖, so in a row Σ|dS| ≤ 2 ‖dO‖‖V‖ + |dL|. The factors of dS are off by the error
    w of a weight, three times, by 2 d_v products and by S sums. What gathers n terms, see
    `gathered_rows`, is off by n times as much, and by n more for adding them up.
    """
    w = lse_size(query, key, attn_mask, scale)
    row = 2 * _longest(upstream) * _longest(value) + _largest(lse_upstream)
    sums = 3 * w + 2 * value.shape[-1] + key.shape[-2]
    n = gathered_rows(query, key, value, upstream, attn_mask)
    scores = {name: n[name] * (1 + row) * (sums + n[name]) for name in n}
    factor = _factor(query, scale)
    return {
        "query": scores["query"] * (1 + factor * _largest(key)),
        "key": scores["key"] * (1 + factor * _largest(query)),
        "value": n["value"] * (1 + _largest(upstream)) * (w + n["value"]),
        "attn_mask": scores["attn_mask"],
    }


def gathered_rows(
    query: Array, key: Array, value: Array, upstream: Array, attn_mask: Array | None = None
) -> dict[str, int]:
    """Return how many rows of the result depend on an entry of each argument.

    An entry of the query reaches one row, an entry of key and value all L of their head, and more
    where they are broadcast or shared by a group. A mask of one column has S terms in each.
    """
    n_rows, n_keys = math.prod(upstream.shape[:-1]), key.shape[-2]
    mask = (1, 1) if attn_mask is None else (1, 1, *attn_mask.shape)  # which may have no axis
    own = {
        "query": math.prod(query.shape[:-1]),
        "key": math.prod(key.shape[:-2]),
        "value": math.prod(value.shape[:-2]),
        "attn_mask": math.prod(mask[:-1]),
    }
    terms = {name: max(1, n_rows // max(1, rows)) for name, rows in own.items()}
    return terms | {"attn_mask": terms["attn_mask"] * (1 if mask[-1] == n_keys else n_keys)}


def row_sum_sizes(
    query: Array,
    key: Array,
    value: Array,
    upstream: Array,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> dict[str, float]:
    """Return the number of ε of float32 that D may bring where plain attention brings nothing.

    A kernel may take the row sums of A ∘ dP as D = rowsum(dO ∘ O). Both are sums of d_v products
    of float32, so that dP - D is off by 2 d_v ε ‖dO‖‖V‖ even where it is 0, as in a row with one
    key. There plain attention in half precision happens to be exact.
    """
    row = 2 * value.shape[-1] * _longest(upstream) * _longest(value)
    factor, n = _factor(query, scale), gathered_rows(query, key, value, upstream, attn_mask)
    return {
        "query": factor * n["query"] * row * _largest(key),
        "key": factor * n["key"] * row * _largest(query),
        "value": 0.0,
        "attn_mask": n["attn_mask"] * row,
    }


def bound(
    truth: Array,
    *,
    dtype: str,
    size: float | None = None,
    peer: Array | None = None,
    times: int = 2,
    floor: float = 0.0,
) -> float:
    """Return how far a result may be from the truth where the truth is finite.

    `truth` is float64. float32 and float64 need `size`; half precision needs `peer`, the result
    of plain attention in the same dtype, and may be `times` as wrong: 2, and 3 for a gradient.
    `floor` comes on top: what float32 may bring where the peer's own error happens to be 0.
    """
    if dtype not in HALF:
        assert size is not None, f"{dtype} needs the size of the problem"
        return epsilon(dtype) * size
    assert peer is not None, "half precision is measured against plain attention"
    finite = np.isfinite(truth)
    if not finite.any():
        return floor
    peer_error = float(np.abs(peer.astype(np.float64) - truth)[finite].max())
    assert np.isfinite(peer_error), "the peer is not finite: it measures nothing"
    return times * peer_error + epsilon(dtype) / 2 * float(np.abs(truth[finite]).max()) + floor


def difference(got: Array, truth: Array, bound: float) -> str:
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
    same = (got == truth) | (np.isnan(got) & np.isnan(truth))
    wrong = np.argwhere(~(same | (np.isfinite(truth) & (errors <= bound))))
    if not len(wrong):
        return ""
    first = tuple(map(int, wrong[0]))
    words = f"entry {first}: expected {truth[first]:.6g}, got {got[first]:.6g}"
    if not (np.isfinite(got[first]) and np.isfinite(truth[first])):
        return words
    return f"{words}; the error {errors[first]:.2g} is above the bound {bound:.2g}"
