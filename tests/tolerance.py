"""The one place where it is said how close is close enough.

Bounds come from the arithmetic, never from a look at the errors. With ε the distance from 1 to
the next number of the dtype:

float32, float64  error ≤ ε · size, where `size` says how far roundings can add up: see
                  `forward_size` and `gradient_sizes`.
half precision    error ≤ 2 · (error of plain PyTorch in that dtype) + one rounding at the
                  magnitude of the result; for gradients 3 instead of 2. This is the rule of
                  FlashAttention's tests.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

HALF = ("float16", "bfloat16")


def epsilon(dtype: str) -> float:
    """Give the distance from 1 to the next number of this dtype."""
    return float(ml_dtypes.finfo(dtype).eps)


def _finite(array: Array) -> Array:
    numbers = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _largest(array: Array | None) -> float:
    return 0.0 if array is None else float(_finite(array).max(initial=0.0))


def _longest(array: Array) -> float:
    return float(np.sqrt((_finite(array) ** 2).sum(axis=-1)).max(initial=0.0))


def _factor(query: Array, scale: float | None) -> float:
    n_features = query.shape[-1]
    return abs(float(scale)) if scale is not None else n_features**-0.5 if n_features else 1.0


def lse_size(
    query: Array, key: Array, attn_mask: Array | None = None, scale: float | None = None
) -> float:
    """Give the number of ε by which a log-sum-exp, or a weight relative to itself, can be off.

    A score is a sum of E products, and is off by at most (E + 2) ε (|scale| Σ|q||k| + |mask|),
    and Σ|q||k| ≤ ‖q‖‖k‖.
    The exponential turns this into a relative error of a weight; it comes in twice, through the
    numerator and the row sum. Summing S weights, twice, adds 2 S ε.
    """
    score = _factor(query, scale) * _longest(query) * _longest(key)
    if attn_mask is not None and attn_mask.dtype != np.bool_:
        score += _largest(attn_mask)
    return 2 * (query.shape[-1] + 2) * (1 + score) + 2 * key.shape[-2]


def forward_size(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> float:
    """Give the number of ε by which attention's output can be off.

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
    """Give the number of ε by which the gradient by each floating input can be off.

    With dO and dL the gradients of output and log-sum-exp:

        dP = dO Vᵀ    dS = A ∘ (dP - rowsum(A ∘ dP) + dL)
        dQ = scale · dS K    dK = scale · dSᵀ Q    dM = dS    dV = Aᵀ dO

    |dP| ≤ ‖dO‖‖V‖, so in a row Σ|dS| ≤ 2 ‖dO‖‖V‖ + |dL|. The factors of dS are off by the error
    w of a weight, three times, by 2 E_v products and by S sums. A row of query, key, value or mask
    gathers what at most all n rows of the result have for it, and adding n terms is off by n.
    """
    w = lse_size(query, key, attn_mask, scale)
    n = int(np.prod(upstream.shape[:-1]))
    row = 2 * _longest(upstream) * _longest(value) + _largest(lse_upstream)
    scores = n * (1 + row) * (3 * w + 2 * value.shape[-1] + key.shape[-2] + n)
    factor = _factor(query, scale)
    return {
        "query": scores * (1 + factor * _largest(key)),
        "key": scores * (1 + factor * _largest(query)),
        "value": n * (1 + _largest(upstream)) * (w + n),
        "attn_mask": scores,
    }


def difference_size(size: float, step: float) -> float:
    """Give the number of ε of float64 by which (f(x + h) - f(x - h)) / 2h can be off.

    f is off by `size`, so the quotient by size / h. What it leaves out is h²/6 of a third
    derivative, a sum of products of the factors that `size` bounds.
    """
    return size / step + size * step**2 / epsilon("float64")


def assert_close(
    got: Array,
    truth: Array,
    *,
    dtype: str,
    size: float | None = None,
    peer: Array | None = None,
    times: int = 2,
    floor: float = 0.0,
) -> None:
    """Refuse a result that is further from the truth than its dtype allows.

    `truth` is float64. float32 and float64 need `size`; half precision needs `peer`, the result
    of plain PyTorch in the same dtype, and may be `times` as wrong: 2, and 3 for a gradient.
    `floor` comes on top: what float32 may bring where PyTorch's own error happens to be 0.
    """
    assert got.shape == truth.shape, f"expected shape {truth.shape}, got {got.shape}"
    got, truth = got.astype(np.float64), truth.astype(np.float64)
    finite = np.isfinite(truth)
    # NaN compares false with every bound, so it is looked at first; infinities must be equal.
    np.testing.assert_array_equal(np.isnan(got), np.isnan(truth), "NaN in other places")
    np.testing.assert_array_equal(got[~finite], truth[~finite], "not finite in other places")
    if not finite.any():
        return
    got, truth = got[finite], truth[finite]
    if dtype in HALF:
        assert peer is not None, "half precision is measured against plain PyTorch"
        peer_error = np.abs(peer.astype(np.float64)[finite] - truth).max()
        assert np.isfinite(peer_error), "the peer is not finite: it measures nothing"
        bound = times * peer_error + epsilon(dtype) / 2 * np.abs(truth).max() + floor
    else:
        assert size is not None, f"{dtype} needs the size of the problem"
        bound = epsilon(dtype) * size
    error = np.abs(got - truth).max()
    assert error <= bound, f"{dtype}: error {error:.3g} is above the bound {bound:.3g}"
