"""What the conformance tests feed: sizes, draws, shapes to broadcast, layouts in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rungs import DTYPES

Array = NDArray[Any]
Shape = tuple[int, ...]

B, H, L, S, E, E_V = 2, 3, 5, 7, 13, 11  # different primes: no two axes can be taken for each other

MASK_SHAPES: list[Shape] = [
    (S,), (1, S), (L, 1), (L, S), (H, L, S), (B, 1, 1, S), (B, H, L, S), (1, 1, 1, 1),
]  # fmt: skip
# Leading dimensions of query, key and value.
LEADING: list[tuple[Shape, Shape, Shape]] = [
    ((B, H), (H,), (H,)),
    ((H,), (B, H), (B, H)),
    ((B, 1), (1, H), (B, H)),
    ((B, H), (B, 1), (B, 1)),
    ((), (), (B, H)),
    ((H,), (1,), (B, 1)),
]
# Leading dimensions, L, S, E, E_v.
EMPTY_AXES: list[tuple[Shape, int, int, int, int]] = [
    ((B, H), L, 0, E, E_V),
    ((B, H), 0, S, E, E_V),
    ((B, 0), L, S, E, E_V),
    ((0, H), L, S, E, E_V),
    ((B, H), L, S, 0, E_V),
    ((B, H), L, S, E, 0),
    ((), 0, 0, 0, 0),
]


def drawn(*shapes: Shape, dtype: str = "float64", seed: int = 7) -> list[Array]:
    """Give normal numbers of standard deviation 1.5: results are larger than tolerances."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1.5, shape).astype(DTYPES[dtype]) for shape in shapes]


def some(shape: Shape) -> Array:
    """Give a boolean mask that removes two keys of five."""
    mask: Array = np.random.default_rng(3).random(shape) < 0.6
    return mask


def heads_inside(array: Array) -> Array:
    """(…, H, L, E), in memory (…, L, H, E): what splitting a projection into heads gives."""
    return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)


def transposed(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def strided(array: Array) -> Array:
    holder = np.full((*array.shape[:-1], 3 * array.shape[-1]), 1, dtype=array.dtype)
    holder[..., ::3] = array
    return holder[..., ::3]


def shifted(array: Array) -> Array:
    holder = np.full((2, *array.shape), 1, dtype=array.dtype)
    holder[1] = array
    return holder[1]


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def backwards(array: Array) -> Array:
    return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]


def unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:]
    view: Array = np.ndarray(array.shape, array.dtype, buffer=raw.data)
    view[...] = array
    return view


LAYOUTS = [heads_inside, transposed, strided, shifted, read_only]
ONLY_NUMPY_HAS = [backwards, unaligned]
