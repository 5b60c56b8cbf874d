"""What all files here share: kinds of arrays, names of dtypes, a problem, and its scale."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Window = tuple[int | None, int | None]  # keys before and after a query's own position

HALF = ("float16", "bfloat16")
FLOATING = (*HALF, "float32", "float64")


class Problem(NamedTuple):
    """A call without keywords: float64 arrays, a mask or None, and numbers or None."""

    query: Array
    key: Array
    value: Array
    attn_mask: Array | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None


def checked_scale(scale: object, n_features: int) -> float:
    """Return the factor on the scores: `scale`, or 1/√d_k for None (1 where d_k = 0)."""
    if scale is None:
        return 1.0 / math.sqrt(n_features) if n_features else 1.0
    if isinstance(scale, bool) or not isinstance(scale, Real) or not math.isfinite(scale):
        raise ValueError(f"scale must be None or a finite real number; got {scale!r}")
    return float(scale)
