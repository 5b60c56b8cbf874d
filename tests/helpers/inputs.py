"""What the tests feed: the sizes of `attncheck`, and its numbers as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from implementations import DTYPES
from numpy.typing import NDArray

from attncheck._calls import HEAD_DIMS, B, H, L, S

__all__ = ["E_V", "B", "E", "H", "L", "S", "drawn", "some"]

E, E_V = HEAD_DIMS

Array = NDArray[Any]
Shape = tuple[int, ...]


def drawn(*shapes: Shape, dtype: str = "float64", seed: int = 7) -> list[Array]:
    """Return normal numbers of standard deviation 1.5: results are larger than tolerances."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1.5, shape).astype(DTYPES[dtype]) for shape in shapes]


def some(shape: Shape) -> Array:
    """Return a boolean mask that removes two keys of five, and so some whole rows."""
    mask: Array = np.random.default_rng(3).random(shape) < 0.6
    return mask
