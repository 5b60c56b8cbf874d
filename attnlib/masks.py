"""Masks: who may attend to whom. True takes part.

Row i of a mask is the query that asks, column j the key that answers. A boolean mask removes
keys; a floating mask is added to the scaled scores, and removes where it is -∞.

Masks are NumPy arrays, or tensors on the device of the tensors given: `like`, `lengths`, `masks`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from attnlib._checks import (
    FLOATING,
    Array,
    broadcast_shapes,
    check_array,
    check_like,
    checked_count,
    dtype_name,
    is_tensor,
)

if TYPE_CHECKING:
    from torch import Tensor

Mask = NDArray[np.bool_]
Align = Literal["top-left", "bottom-right"]


def _places(n: int, like: object) -> Any:
    """Give 0 … n - 1, as a tensor on the device of `like` if that is one."""
    check_like(like)
    if not is_tensor(like):
        return np.arange(n)
    import torch  # somebody has: there is a tensor

    return torch.arange(n, device=like.device)  # type: ignore[attr-defined]


def _first_place(n_queries: int, n_keys: int, align: object) -> int:
    """Return the place of the first query among the keys."""
    if not isinstance(align, str) or align not in ("top-left", "bottom-right"):
        raise ValueError(f"align must be 'top-left' or 'bottom-right'; got {align!r}")
    return n_keys - n_queries if align == "bottom-right" else 0


@overload
def causal(
    n_queries: int, n_keys: int | None = None, *, align: Align = ..., like: Array | None = None
) -> Mask: ...
@overload
def causal(
    n_queries: int, n_keys: int | None = None, *, align: Align = ..., like: Tensor
) -> Tensor: ...
def causal(
    n_queries: int, n_keys: int | None = None, *, align: Align = "top-left", like: Any = None
) -> Any:
    """Give the mask in which query i sees the keys up to its own place.

    top-left:      j ≤ i              the first query stands at the first key (torch's rule)
    bottom-right:  j ≤ i + S - L      the last query stands at the last key (decoding)

    Shapes: (L, S); S = L where `n_keys` is None.
    Raises: TypeError, ValueError for a count that is not an integer ≥ 0, an unknown `align`, or
    a `like` that is neither array nor tensor.
    Source: chapter 07, Masks.

    >>> causal(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    >>> causal(2, 3, align="bottom-right").astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    n_queries = checked_count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else checked_count("n_keys", n_keys)
    queries = _places(n_queries, like)[:, None] + _first_place(n_queries, n_keys, align)
    return _places(n_keys, like) <= queries


@overload
def padding(lengths: Sequence[int] | Array, n_keys: int) -> Mask: ...
@overload
def padding(lengths: Tensor, n_keys: int) -> Tensor: ...
def padding(lengths: Any, n_keys: int) -> Any:
    """Give the mask that removes the padding at the end of each sequence: j < length.

    Shapes: lengths (B,) → (B, 1, 1, S), for scores (B, H, L, S). Without heads take `[:, 0]`.
    The axis of the heads is there so that B cannot be taken for H.
    Raises: TypeError for lengths that are no integers; ValueError for a rank other than 1, or,
    but for tensors, whose numbers are not looked at, a length outside 0 … S.
    Source: chapter 07, Masks.

    >>> padding([1, 3], 3)[:, 0, 0].astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    n_keys = checked_count("n_keys", n_keys)
    if is_tensor(lengths):
        if lengths.ndim != 1:
            raise ValueError(f"lengths must have one dimension, (B,); got {tuple(lengths.shape)}")
        if (dtype := dtype_name(lengths)).lstrip("u").rstrip("0123456789") != "int":
            raise TypeError(f"lengths must be integers; got dtype {dtype}")
        return _places(n_keys, lengths) < lengths.long()[:, None, None, None]
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


@overload
def window(
    n_queries: int,
    n_keys: int,
    left: int | None,
    right: int | None,
    *,
    align: Align = ...,
    like: Array | None = None,
) -> Mask: ...
@overload
def window(
    n_queries: int,
    n_keys: int,
    left: int | None,
    right: int | None,
    *,
    align: Align = ...,
    like: Tensor,
) -> Tensor: ...
def window(
    n_queries: int,
    n_keys: int,
    left: int | None,
    right: int | None,
    *,
    align: Align = "top-left",
    like: Any = None,
) -> Any:
    """Return the mask in which a query sees the keys from `left` before to `right` after its own.

    The place of query i among the keys is i (top-left), or i + S - L (bottom-right), so that the
    last query stands at the last key, as in decoding. None sets no bound.

    Shapes: (L, S).
    Raises: TypeError, ValueError for a count that is not an integer ≥ 0, an unknown `align`, or
    a `like` that is neither array nor tensor.
    Source: chapter 07, Masks.

    >>> window(3, 4, left=1, right=0).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0]])
    >>> window(1, 4, left=1, right=0, align="bottom-right").astype(int)
    array([[0, 0, 1, 1]])
    """
    n_queries, n_keys = checked_count("n_queries", n_queries), checked_count("n_keys", n_keys)
    queries = _places(n_queries, like)[:, None] + _first_place(n_queries, n_keys, align)
    keys = _places(n_keys, like)
    mask = keys >= (0 * queries if left is None else queries - checked_count("left", left))
    return mask if right is None else mask & (keys <= queries + checked_count("right", right))


@overload
def combine(*masks: Array) -> Array: ...
@overload
def combine(*masks: Tensor) -> Tensor: ...
def combine(*masks: Any) -> Any:
    """Give one mask that removes what any of the masks removes.

    Boolean masks are joined by *and*. With a floating mask among them the result is additive:
    the sum of the floating masks, and -∞ where any mask removes, and only there: a sum of finite
    numbers stays finite. It is float64 if one of them is, else float32.

    Shapes: any that broadcast.
    Raises: TypeError for no mask, one that is neither boolean nor floating, or arrays among
    tensors; ValueError for shapes that do not broadcast, or tensors on several devices.
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
    on_tensors = any(map(is_tensor, masks))
    for place, mask in enumerate(masks):
        if on_tensors and not is_tensor(mask):
            came = type(mask).__qualname__
            raise TypeError(f"masks must be all arrays or all tensors; got mask {place}, {came}")
        if not on_tensors:
            check_array(f"mask {place}", mask)
        if dtype_name(mask) not in ("bool", *FLOATING):
            came = dtype_name(mask)
            raise TypeError(f"mask {place} must be boolean or floating; got dtype {came}")
    shapes = [tuple(mask.shape) for mask in masks]
    try:
        broadcast_shapes(*shapes)
    except ValueError:
        came = ", ".join(map(str, shapes))
        raise ValueError(f"masks must have shapes that broadcast; got {came}") from None
    if on_tensors and len(devices := {str(mask.device): mask for mask in masks}) > 1:
        raise ValueError(f"masks must be on one device; got {', '.join(devices)}")
    if on_tensors:
        return _combined(sys.modules["torch"], masks)
    with np.errstate(all="ignore"):
        # A subclass, np.matrix say, would bend the shapes.
        return _combined(np, [np.asarray(mask) for mask in masks])


def _combined(xp: Any, masks: Sequence[Any]) -> Any:
    """Join masks by the functions that NumPy and torch share under one name."""
    names = [dtype_name(mask) for mask in masks]
    floating = [mask for mask, name in zip(masks, names, strict=True) if name != "bool"]
    kept = reduce(
        xp.logical_and,
        [m if name == "bool" else m != -math.inf for m, name in zip(masks, names, strict=True)],
    )
    if not floating:
        return kept | False  # new memory, for one mask too
    wide = xp.float64 if "float64" in names else xp.float32
    finite = reduce(xp.logical_and, map(xp.isfinite, floating))
    total = sum(m.to(wide) if is_tensor(m) else m.astype(wide) for m in floating)
    # Two very negative numbers may add up to -∞, and would then remove what neither removes.
    limits = xp.finfo(wide)
    total = xp.where(finite, xp.clip(total, float(limits.min), float(limits.max)), total)
    return xp.where(kept, total, -math.inf)
