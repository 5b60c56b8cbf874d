"""What all files here share: kinds of arrays, names of dtypes, keywords, a problem, its scale."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Window = tuple[int | None, int | None]  # keys before and after a query's own position

HALF = ("float16", "bfloat16")
FLOATING = (*HALF, "float32", "float64")

# Keywords that many calls have.
CAUSAL = {"is_causal": True}
BOTTOM_RIGHT = {"causal_align": "bottom-right"}
GROUPED = {"enable_gqa": True}


class Problem(NamedTuple):
    """A call without keywords: float64 arrays, a mask or None, and numbers or None."""

    query: Array
    key: Array
    value: Array
    attn_mask: Array | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None


def dtype_of_sums(dtype: str) -> str:
    """Return the dtype in which a kernel adds up, and gives what is no product: log-sum-exps."""
    return "float32" if dtype in HALF else dtype


def scale_of(scale: float | None, n_features: int) -> float:
    """Return the factor on the scores: `scale`, or 1/√d_k for None (1 where d_k = 0)."""
    if scale is None:
        return 1.0 / math.sqrt(n_features) if n_features else 1.0
    return float(scale)
