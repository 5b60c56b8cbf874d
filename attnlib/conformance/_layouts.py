"""Ways for an array to lie in memory: each function returns an equal array that lies otherwise."""

from __future__ import annotations

import numpy as np

from attnlib._checks import Array
from attnlib.conformance._case import Layout


def heads_inside(array: Array) -> Array:
    """(…, H, L, E), in memory (…, L, H, E): what splitting a projection into heads gives."""
    return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)


def transposed(array: Array) -> Array:
    """(…, L, E), in memory (…, E, L)."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def strided(array: Array) -> Array:
    """Every third number of a longer array."""
    holder = np.full((*array.shape[:-1], 3 * array.shape[-1]), 1, dtype=array.dtype)
    holder[..., ::3] = array
    view: Array = holder[..., ::3]
    return view


def shifted(array: Array) -> Array:
    """The second half of a longer array: it does not begin where its memory begins."""
    holder = np.full((2, *array.shape), 1, dtype=array.dtype)
    holder[1] = array
    second: Array = holder[1]
    return second


def read_only(array: Array) -> Array:
    """An array that refuses to be written to."""
    array = array.copy()
    array.flags.writeable = False
    return array


def backwards(array: Array) -> Array:
    """The last two axes run backwards through memory: strides below 0, as only NumPy has them."""
    view: Array = np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    return view


def unaligned(array: Array) -> Array:
    """An array that begins at an odd byte, as only NumPy has it."""
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:]
    view: Array = np.ndarray(array.shape, array.dtype, buffer=raw.data)
    view[...] = array
    return view


def expanded(*axes: int) -> Layout:
    """Return the layout that has stride 0 along these axes, where all numbers must be equal."""

    def expanded(array: Array) -> Array:
        first = tuple(
            slice(1) if n - array.ndim in axes else slice(None) for n in range(array.ndim)
        )
        return np.broadcast_to(array[first].copy(), array.shape)

    return expanded


LAYOUTS: list[Layout] = [heads_inside, transposed, strided, shifted, read_only]
ONLY_NUMPY_HAS: list[Layout] = [backwards, unaligned]
