"""Masks: who may attend to whom. True takes part.

Row i of a mask is the query that asks, column j the key that answers. A boolean mask removes
keys; a floating mask is added to the scaled scores, and removes where it is -∞.

Masks are NumPy arrays, or tensors on the device of the tensors given: `like`, `lengths`, `ids`,
`masks`.
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
    check_like,
    checked_count,
    dtype_name,
    first_place,
    is_tensor,
)
from attnlib._numpy_door import check_array

if TYPE_CHECKING:
    from torch import Tensor

Mask = NDArray[np.bool_]
Align = Literal["top-left", "bottom-right"]
Side = Literal["right", "left"]


def _places(n: int, like: object) -> Any:
    """Return 0 … n - 1, as a tensor on the device of `like` if that is one."""
    check_like(like)
    if not is_tensor(like):
        return np.arange(n)
    import torch  # somebody has: there is a tensor

    return torch.arange(n, device=like.device)  # type: ignore[attr-defined]


def _integers(name: str, given: Any, ranks: Sequence[int], wanted: str) -> Any:
    """Return integers as an array of any integer dtype, or as a tensor in int64 for a tensor."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} must be integers; got a MaskedArray, whose mask would be lost")
    try:
        numbers: Any = given if is_tensor(given) else np.asarray(given)
    except ValueError:
        raise ValueError(f"{name} must {wanted}; got {given!r}") from None
    if numbers.ndim not in ranks:
        raise ValueError(f"{name} must {wanted}; got shape {tuple(numbers.shape)}")
    untyped = isinstance(numbers, np.ndarray) and not numbers.size  # [] is float64 to NumPy
    if (dtype := dtype_name(numbers)).lstrip("u").rstrip("0123456789") != "int" and not untyped:
        raise TypeError(f"{name} must be integers; got dtype {dtype}")
    return numbers.long() if is_tensor(numbers) else numbers


def _lengths(given: Any, n_keys: int, ranks: Sequence[int], wanted: str) -> Any:
    """Return lengths in int64; to look at those of a tensor would mean to wait for its device."""
    lengths = _integers("lengths", given, ranks, wanted)
    if is_tensor(lengths):
        return lengths
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= n_keys:
        came = lengths.tolist()
        raise ValueError(f"lengths must lie between 0 and n_keys = {n_keys}; got {came}")
    return lengths.astype(np.int64)


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
    """Return the mask in which query i sees the keys up to its own place.

    The place of query i among the keys depends on `align`:

        top-left:      j ≤ i              the first query stands at the first key (torch's rule)
        bottom-right:  j ≤ i + S - L      the last query stands at the last key (decoding)

    Args:
        n_queries: L, the number of queries.
        n_keys: S, the number of keys; L where None.
        align: which query stands at which key, "top-left" or "bottom-right".
        like: a tensor, for a mask on its device; an array or None, for an array.

    Returns:
        The boolean mask.

    Shapes:
        (L, S)

    Raises:
        TypeError: for a count that is no integer, or a `like` that is neither array nor tensor.
        ValueError: for a count below 0, or an unknown `align`.

    Source:
        Chapter 07, Masks.

    Example:
        >>> causal(2, 3).astype(int)
        array([[1, 0, 0],
               [1, 1, 0]])
        >>> causal(2, 3, align="bottom-right").astype(int)
        array([[1, 1, 0],
               [1, 1, 1]])
    """
    n_queries = checked_count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else checked_count("n_keys", n_keys)
    queries = _places(n_queries, like)[:, None] + first_place(n_queries, n_keys, align)
    return _places(n_keys, like) <= queries


@overload
def padding(lengths: Sequence[int] | Array, n_keys: int, *, side: Side = ...) -> Mask: ...
@overload
def padding(lengths: Tensor, n_keys: int, *, side: Side = ...) -> Tensor: ...
def padding(lengths: Any, n_keys: int, *, side: Side = "right") -> Any:
    """Return the mask that removes the padding of each sequence.

    `side` says where the padding stands:

        right:  j < length         the tokens stand at the front, as in most batches for training
        left:   j ≥ S - length     the tokens stand at the end, as in batches that generate

    The axis of the heads is there so that B cannot be taken for H.

    Args:
        lengths: the number of tokens in each sequence. The numbers in a tensor are not looked at.
        n_keys: S, the number of keys, padding included.
        side: the side of the padding, "right" or "left".

    Returns:
        The boolean mask, an array or, where `lengths` is one, a tensor.

    Shapes:
        lengths (B,) → (B, 1, 1, S), for scores (B, H, L, S). Where there are no heads, take entry
        0 of the second axis.

    Raises:
        TypeError: for lengths that are no integers.
        ValueError: for lengths of a rank other than 1 or outside 0 … S, or an unknown `side`.

    Source:
        Chapter 07, Masks.

    Example:
        >>> padding([1, 3], 3)[:, 0, 0].astype(int)
        array([[1, 0, 0],
               [1, 1, 1]])
        >>> padding([1, 3], 3, side="left")[:, 0, 0].astype(int)
        array([[0, 0, 1],
               [1, 1, 1]])
    """
    n_keys = checked_count("n_keys", n_keys)
    if not isinstance(side, str) or side not in ("right", "left"):
        raise ValueError(f"side must be 'right' or 'left'; got {side!r}")
    ends = _lengths(lengths, n_keys, [1], "have one dimension, (B,)")
    if side == "left":
        return _places(n_keys, ends) >= n_keys - ends[:, None, None, None]
    return _places(n_keys, ends) < ends[:, None, None, None]


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
    last query stands at the last key, as in decoding.

    Args:
        n_queries: L, the number of queries.
        n_keys: S, the number of keys.
        left: how many keys before its own place a query sees; None sets no bound.
        right: how many keys after its own place a query sees; None sets no bound.
        align: which query stands at which key, as in `causal`.
        like: a tensor, for a mask on its device; an array or None, for an array.

    Returns:
        The boolean mask.

    Shapes:
        (L, S)

    Raises:
        TypeError: for a count that is no integer, or a `like` that is neither array nor tensor.
        ValueError: for a count below 0, or an unknown `align`.

    Source:
        Chapter 07, Masks.

    Example:
        >>> window(3, 4, left=1, right=0).astype(int)
        array([[1, 0, 0, 0],
               [1, 1, 0, 0],
               [0, 1, 1, 0]])
        >>> window(1, 4, left=1, right=0, align="bottom-right").astype(int)
        array([[0, 0, 1, 1]])
    """
    n_queries, n_keys = checked_count("n_queries", n_queries), checked_count("n_keys", n_keys)
    queries = _places(n_queries, like)[:, None] + first_place(n_queries, n_keys, align)
    keys = _places(n_keys, like)
    mask = keys >= (0 * queries if left is None else queries - checked_count("left", left))
    return mask if right is None else mask & (keys <= queries + checked_count("right", right))


@overload
def document(ids: Sequence[Any] | Array, key_ids: Sequence[Any] | Array | None = None) -> Mask: ...
@overload
def document(ids: Tensor, key_ids: Tensor | None = None) -> Tensor: ...
def document(ids: Any, key_ids: Any = None) -> Any:
    """Return the mask in which a token sees the tokens of its own document only.

    Where several documents are packed into one sequence, query i sees key j if
    ids[i] = key_ids[j]. In a language model this is combined with `causal`.

    Args:
        ids: for each query the number of its document; any integers will do.
        key_ids: the same for each key; those of the queries where None.

    Returns:
        The boolean mask, an array or, where `ids` is one, a tensor.

    Shapes:
        ids (L,), key_ids (S,) → (L, S);
        ids (B, L), key_ids (B, S) → (B, 1, L, S), for scores (B, H, L, S).

    Raises:
        TypeError: for ids that are no integers, or an array beside a tensor.
        ValueError: for ids of another rank, key_ids of another rank or batch than ids, or tensors
            on several devices.

    Source:
        Krell et al. 2021 (arXiv 2107.02027), where sequences are packed without attention
        between them.

    Example:
        >>> document([7, 7, 8]).astype(int)
        array([[1, 1, 0],
               [1, 1, 0],
               [0, 0, 1]])
        >>> combine(document([7, 7, 8]), causal(3)).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 0, 1]])
    """
    ids = _integers("ids", ids, [1, 2], "have shape (L,) or (B, L)")
    if key_ids is None:
        key_ids = ids
    elif is_tensor(key_ids) != is_tensor(ids):
        wanted = "a tensor, as ids is" if is_tensor(ids) else "no tensor, because ids is none"
        raise TypeError(f"key_ids must be {wanted}; got {type(key_ids).__qualname__}")
    else:
        axes = "(S,)" if ids.ndim == 1 else f"({ids.shape[0]}, S)"
        wanted = f"have shape {axes} beside ids {tuple(ids.shape)}"
        key_ids = _integers("key_ids", key_ids, [ids.ndim], wanted)
        if key_ids.shape[:-1] != ids.shape[:-1]:
            raise ValueError(f"key_ids must {wanted}; got shape {tuple(key_ids.shape)}")
    if is_tensor(ids) and key_ids.device != ids.device:
        here, there = ids.device, key_ids.device
        raise ValueError(f"key_ids must be on the device of ids, {here}; got {there}")
    same = ids[..., :, None] == key_ids[..., None, :]
    return same if same.ndim == 2 else same[:, None]


@overload
def prefix(
    lengths: int | Sequence[int] | Array,
    n_queries: int,
    n_keys: int | None = None,
    *,
    align: Align = ...,
) -> Mask: ...
@overload
def prefix(
    lengths: Tensor, n_queries: int, n_keys: int | None = None, *, align: Align = ...
) -> Tensor: ...
def prefix(
    lengths: Any, n_queries: int, n_keys: int | None = None, *, align: Align = "top-left"
) -> Any:
    """Return the mask of a prefix language model (prefix LM): causal, but for a prefix.

    Every query sees all keys of the prefix, and each key up to its own place:

        j < length  or  j ≤ place of query i

    Args:
        lengths: the number of keys in the prefix, one for all or one for each sequence. The
            numbers in a tensor are not looked at.
        n_queries: L, the number of queries.
        n_keys: S, the number of keys; L where None.
        align: which query stands at which key, as in `causal`.

    Returns:
        The boolean mask, an array or, where `lengths` is one, a tensor.

    Shapes:
        lengths one integer → (L, S);
        lengths (B,) → (B, 1, L, S), for scores (B, H, L, S).

    Raises:
        TypeError: for lengths or counts that are no integers.
        ValueError: for lengths of a rank above 1 or outside 0 … S, a count below 0, or an unknown
            `align`.

    Source:
        Raffel et al. 2020, T5 (arXiv 1910.10683), section 3.2.1.

    Example:
        >>> prefix(2, 3).astype(int)
        array([[1, 1, 0],
               [1, 1, 0],
               [1, 1, 1]])
    """
    n_queries = checked_count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else checked_count("n_keys", n_keys)
    ends = _lengths(lengths, n_keys, [0, 1], "be one integer or have one dimension, (B,)")
    ends = ends[:, None, None, None] if ends.ndim else ends
    return (_places(n_keys, ends) < ends) | causal(n_queries, n_keys, align=align, like=ends)


@overload
def alibi(
    n_heads: int,
    n_queries: int,
    n_keys: int | None = None,
    *,
    align: Align = ...,
    like: Array | None = None,
) -> NDArray[np.float32]: ...
@overload
def alibi(
    n_heads: int,
    n_queries: int,
    n_keys: int | None = None,
    *,
    align: Align = ...,
    like: Tensor,
) -> Tensor: ...
def alibi(
    n_heads: int,
    n_queries: int,
    n_keys: int | None = None,
    *,
    align: Align = "top-left",
    like: Any = None,
) -> Any:
    """Return the floating mask of ALiBi, attention with linear biases: the farther, the less.

    Each head takes its slope times the distance of query and key from the score:

        -slope · abs(place of query i - j),   slope of head h = 2^(-8h / H),   h = 1 … H

    The paper's mask is causal: `combine(alibi(H, L), causal(L))`. By itself the mask treats both
    sides alike, which is what the authors propose for encoders. If H is no power of two, the
    slopes are those of their code: all of the next lower power P, and then every second slope of
    2P heads, beginning with the first.

    Args:
        n_heads: H, the number of heads.
        n_queries: L, the number of queries.
        n_keys: S, the number of keys; L where None.
        align: which query stands at which key, as in `causal`.
        like: a tensor, for a mask on its device; an array or None, for an array.

    Returns:
        The mask in float32, whatever the dtype of `like`, because every form of attention takes a
        float32 mask beside inputs of any dtype.

    Shapes:
        (H, L, S), for scores (B, H, L, S).

    Raises:
        TypeError: for a count that is no integer, or a `like` that is neither array nor tensor.
        ValueError: for no heads, a count below 0, or an unknown `align`.

    Source:
        Press, Smith and Lewis 2022 (arXiv 2108.12409), section 3 and figure 3.

    Example:
        The slopes of 8 heads are 1/2, 1/4, 1/8 and so on.

        >>> alibi(8, 3)[0]
        array([[ 0. , -0.5, -1. ],
               [-0.5,  0. , -0.5],
               [-1. , -0.5,  0. ]], dtype=float32)
        >>> alibi(8, 1, 3, align="bottom-right")[1]
        array([[-0.5 , -0.25,  0.  ]], dtype=float32)
        >>> combine(alibi(8, 2), causal(2))[0]
        array([[ 0. , -inf],
               [-0.5,  0. ]], dtype=float32)
    """
    n_heads = int(checked_count("n_heads", n_heads, least=1))
    n_queries = checked_count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else checked_count("n_keys", n_keys)
    queries = _places(n_queries, like)[:, None] + first_place(n_queries, n_keys, align)
    nearness = -abs(_places(n_keys, like) - queries)  # 0 at the query's own place, never -0.0
    slopes = _slopes(n_heads)
    if not is_tensor(nearness):
        return np.array(slopes, np.float32)[:, None, None] * nearness.astype(np.float32)
    torch = sys.modules["torch"]
    per_head = torch.tensor(slopes, dtype=torch.float32, device=nearness.device)
    return per_head[:, None, None] * nearness


def _slopes(n_heads: int) -> list[float]:
    """Return a slope for each head."""
    power = 1
    while 2 * power <= n_heads:
        power *= 2
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-4 * h / power) for h in range(1, 2 * (n_heads - power), 2)]


@overload
def combine(*masks: Array) -> Array: ...
@overload
def combine(*masks: Tensor) -> Tensor: ...
def combine(*masks: Any) -> Any:
    """Return one mask that removes what any of the masks removes.

    Boolean masks are joined by *and*. With a floating mask among them the result is additive:
    the sum of the floating masks, and -∞ where any mask removes, and only there: a sum of finite
    numbers stays finite. It is float64 if one of them is, else float32.

    Args:
        masks: at least one mask, all arrays or all tensors.

    Returns:
        The mask, in new memory.

    Shapes:
        Any that broadcast.

    Raises:
        TypeError: for no mask, one that is neither boolean nor floating, or arrays among tensors.
        ValueError: for shapes that do not broadcast, or tensors on several devices.

    Source:
        Chapter 07, Masks.

    Example:
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
