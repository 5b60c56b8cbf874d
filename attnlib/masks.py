"""Masks: who may attend to whom. True takes part.

Row i of a mask is the query that asks, column j the key that answers. A boolean mask removes
keys; a floating mask is added to the scaled scores, and removes where it is -∞.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnlib._checks import FLOATING, Array, check_array

Mask = NDArray[np.bool_]


def _count(name: str, number: object) -> int:
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {number!r}")
    if number < 0:
        raise ValueError(f"{name} must be at least 0; got {number}")
    return int(number)


def causal(
    n_queries: int,
    n_keys: int | None = None,
    *,
    align: Literal["top-left", "bottom-right"] = "top-left",
) -> Mask:
    """Give the mask in which query i sees the keys up to its own place.

    top-left:      j ≤ i              the first query stands at the first key (torch's rule)
    bottom-right:  j ≤ i + S - L      the last query stands at the last key (decoding)

    Shapes: (L, S); S = L where `n_keys` is None.
    Raises: TypeError, ValueError for a count that is not an integer ≥ 0, or an unknown `align`.
    Source: chapter 07, Masks.

    >>> causal(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    >>> causal(2, 3, align="bottom-right").astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    n_queries = _count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else _count("n_keys", n_keys)
    if align not in ("top-left", "bottom-right"):
        raise ValueError(f"align must be 'top-left' or 'bottom-right'; got {align!r}")
    shift = n_keys - n_queries if align == "bottom-right" else 0
    return np.tri(n_queries, n_keys, shift, dtype=np.bool_)


def padding(lengths: Sequence[int] | Array, n_keys: int) -> Mask:
    """Give the mask that removes the padding at the end of each sequence: j < length.

    Shapes: lengths (B,) → (B, 1, 1, S), for scores (B, H, L, S). Without heads take `[:, 0]`.
    The axis of the heads is there so that B cannot be taken for H.
    Raises: TypeError for lengths that are no integers; ValueError for a rank other than 1, or a
    length outside 0 … S.
    Source: chapter 07, Masks.

    >>> padding([1, 3], 3)[:, 0, 0].astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    n_keys = _count("n_keys", n_keys)
    if isinstance(lengths, np.ma.MaskedArray):
        raise TypeError("lengths must be integers; got a MaskedArray, whose mask would be lost")
    try:
        ends = np.asarray(lengths)
    except ValueError:
        raise ValueError(f"lengths must have one dimension, (B,); got {lengths!r}") from None
    if ends.ndim != 1:
        raise ValueError(f"lengths must have one dimension, (B,); got shape {ends.shape}")
    if ends.size and ends.dtype.kind not in "iu":
        raise TypeError(f"lengths must be integers; got dtype {ends.dtype}")
    if ends.size and not 0 <= ends.min() <= ends.max() <= n_keys:
        raise ValueError(f"lengths must lie between 0 and n_keys = {n_keys}; got {ends.tolist()}")
    return np.asarray(np.arange(n_keys) < ends[:, None, None, None])


def window(n_queries: int, n_keys: int, left: int | None, right: int | None) -> Mask:
    """Give the mask in which query i sees the keys i - left … i + right. None sets no bound.

    Shapes: (L, S), aligned at the top left.
    Raises: TypeError, ValueError for a count that is not an integer ≥ 0.
    Source: chapter 07, Masks.

    >>> window(3, 4, left=1, right=0).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0]])
    """
    queries = np.arange(_count("n_queries", n_queries))
    offset = np.arange(_count("n_keys", n_keys)) - queries[:, None]
    mask = np.ones(offset.shape, dtype=np.bool_)
    if left is not None:
        mask &= offset >= -_count("left", left)
    if right is not None:
        mask &= offset <= _count("right", right)
    return mask


def combine(*masks: Array) -> Array:
    """Give one mask that removes what any of the masks removes.

    Boolean masks are joined by *and*. With a floating mask among them the result is additive:
    the sum of the floating masks, and -∞ where any mask removes, and only there: a sum of finite
    numbers stays finite. It is float64 if one of them is, else float32.

    Shapes: any that broadcast.
    Raises: TypeError for no mask, or one that is neither boolean nor floating; ValueError for
    shapes that do not broadcast.
    Source: chapter 07, Masks.

    >>> combine(causal(2), np.array([True, False])).astype(int)
    array([[1, 0],
           [1, 0]])
    >>> combine(causal(2), np.array([0.0, 5.0]))
    array([[  0., -inf],
           [  0.,   5.]])
    """
    if not masks:
        raise TypeError("combine needs at least one mask; got none")
    for place, mask in enumerate(masks):
        check_array(f"mask {place}", mask)
        if mask.dtype.name not in ("bool", *FLOATING):
            raise TypeError(f"mask {place} must be boolean or floating; got dtype {mask.dtype}")
    shapes = [mask.shape for mask in masks]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        came = ", ".join(map(str, shapes))
        raise ValueError(f"masks must have shapes that broadcast; got {came}") from None

    kept = np.ones(shape, dtype=np.bool_)
    for mask in masks:
        kept &= mask if mask.dtype == np.bool_ else mask != -np.inf
    floating = [mask for mask in masks if mask.dtype != np.bool_]
    if not floating:
        return kept
    wide = np.float64 if any(mask.dtype.name == "float64" for mask in floating) else np.float32
    total = np.zeros(shape, dtype=wide)
    finite = np.ones(shape, dtype=np.bool_)
    with np.errstate(all="ignore"):
        for mask in floating:
            total += mask.astype(wide)
            finite &= np.isfinite(mask)
    # Two very negative numbers may add up to -∞, and would then remove what neither removes.
    limits = np.finfo(wide)
    total = np.where(finite, np.clip(total, limits.min, limits.max), total)
    return np.where(kept, total, wide(-np.inf))
