"""The one place where it is said how close is close enough.

Bounds come from the arithmetic, never from a look at the errors. With ε the distance from 1 to
the next number of the dtype:

float32, float64  error ≤ ε · size, where `size` says how far roundings can add up: see
                  `forward_size`.
half precision    error ≤ 2 · (error of plain PyTorch in that dtype) + one rounding at the
                  magnitude of the result. This is the rule of FlashAttention's tests.
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


def _longest(array: Array) -> float:
    return float(np.sqrt((_finite(array) ** 2).sum(axis=-1)).max(initial=0.0))


def forward_size(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> float:
    """Give the number of ε by which attention's output can be off.

    A score is a sum of E products, and is off by at most (E + 2) ε (|scale| Σ|q||k| + |mask|),
    and Σ|q||k| ≤ ‖q‖‖k‖.
    The exponential turns this into a relative error of a weight; it comes in twice, through the
    numerator and the row sum. Summing S weights, twice, adds 2 S ε. The output is off by that,
    times the largest value.
    """
    n_features, n_keys = query.shape[-1], key.shape[-2]
    factor = abs(scale) if scale is not None else n_features**-0.5 if n_features else 1.0
    score = factor * _longest(query) * _longest(key)
    if attn_mask is not None and attn_mask.dtype != np.bool_:
        score += float(_finite(attn_mask).max(initial=0.0))
    largest_value = float(_finite(value).max(initial=0.0))
    return (2 * (n_features + 2) * (1 + score) + 2 * n_keys) * (1 + largest_value)


def assert_close(
    got: Array,
    truth: Array,
    *,
    dtype: str,
    size: float | None = None,
    peer: Array | None = None,
) -> None:
    """Refuse a result that is further from the truth than its dtype allows.

    `truth` is float64. float32 and float64 need `size`; half precision needs `peer`, the result
    of plain PyTorch in the same dtype.
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
        bound = 2 * peer_error + epsilon(dtype) / 2 * np.abs(truth).max()
    else:
        assert size is not None, f"{dtype} needs the size of the problem"
        bound = epsilon(dtype) * size
    error = np.abs(got - truth).max()
    assert error <= bound, f"{dtype}: error {error:.3g} is above the bound {bound:.3g}"
