"""Masks: who may attend to whom. True takes part.

Row i of a mask is the query that asks, column j the key that answers. A boolean mask removes
keys; a floating mask is added to the scaled scores, and removes where it is -∞.

Masks are NumPy arrays. Where `like`, `lengths`, `ids` or `masks` are tensors, the mask is a tensor
on their device. Chapter 07 derives the masks for which no paper is named.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from attnlib._arrays import check_array
from attnlib._checks import (
    FLOATING,
    Array,
    as_dtype,
    broadcast_shapes,
    check_like,
    checked_count,
    dtype_name,
    first_position,
    is_tensor,
    library,
    on_device_of,
)

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeVar

    # Arrays give an array, tensors a tensor, and where there is neither comes an array.
    Kind = TypeVar("Kind", Array, Tensor, default=Array)

Integers = Sequence[Any] | Array
Align = Literal["top-left", "bottom-right"]
Side = Literal["right", "left"]


def causal(
    n_queries: int, n_keys: int | None = None, *, align: Align = "top-left",
    like: Kind | None = None,
) -> Kind:
    """Return the boolean mask (L, S) in which query i sees the keys up to its own position.

    The position of query i among the keys depends on `align`:

        top-left:      j ≤ i              the first query stands at the first key (torch's rule)
        bottom-right:  j ≤ i + S - L      the last query stands at the last key (decoding)

    Args:
        n_queries: L, the number of queries.
        n_keys: S, the number of keys; L where None.
        align: which query stands at which key, "top-left" or "bottom-right".
        like: a tensor, for a mask on its device; an array or None, for an array.

    Raises:
        TypeError: for a count that is no integer, or a `like` that is neither array nor tensor.
        ValueError: for a count below 0, or an unknown `align`.

    Example:
        >>> causal(2, 3).astype(int)
        array([[1, 0, 0],
               [1, 1, 0]])
        >>> causal(2, 3, align="bottom-right").astype(int)
        array([[1, 1, 0],
               [1, 1, 1]])
    """
    positions, keys = _axes(n_queries, n_keys, align, like)
    seen: Kind = keys <= positions
    return seen


def window(
    n_queries: int, n_keys: int, left: int | None, right: int | None, *, align: Align = "top-left",
    like: Kind | None = None,
) -> Kind:
    """Return the boolean mask (L, S) in which a query sees the keys around its own position.

    Args:
        n_queries, n_keys, align, like: as in `causal`; n_keys must be given.
        left: how many keys before its own position a query sees; None sets no bound.
        right: how many keys after its own position a query sees; None sets no bound.

    Example:
        >>> window(3, 4, left=1, right=0).astype(int)
        array([[1, 0, 0, 0],
               [1, 1, 0, 0],
               [0, 1, 1, 0]])
        >>> window(1, 4, left=1, right=0, align="bottom-right").astype(int)
        array([[0, 0, 1, 1]])
    """
    positions, keys = _axes(n_queries, checked_count("n_keys", n_keys), align, like)
    first = 0 * positions if left is None else positions - checked_count("left", left)
    seen: Kind = keys >= first
    return seen if right is None else seen & (keys <= positions + checked_count("right", right))


@overload
def padding(lengths: Tensor, n_keys: int, *, side: Side = "right") -> Tensor: ...
@overload
def padding(lengths: Integers, n_keys: int, *, side: Side = "right") -> Array: ...
def padding(lengths: Any, n_keys: int, *, side: Side = "right") -> Any:
    """Return the boolean mask that removes the padding tokens of each sequence.

    `side` says where the padding stands:

        right:  j < length         the tokens stand at the front, as in most batches for training
        left:   j ≥ S - length     the tokens stand at the end, as in batches that generate

    The axis of the heads is there so that B cannot be taken for H. Without heads, use mask[:, 0].

    Args:
        lengths: the number of tokens in each sequence. The numbers in a tensor are not checked.
        n_keys: S, the number of keys, padding included.
        side: the side of the padding, "right" or "left".

    Shapes:
        lengths (B,) → (B, 1, 1, S), for scores (B, H, L, S).

    Raises:
        TypeError, ValueError: for lengths that are no integers from 0 to S, or an unknown `side`.

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
    ends = _lengths(lengths, n_keys, "have one dimension, (B,)", {1})
    keys = _positions(n_keys, ends)
    return keys >= n_keys - ends if side == "left" else keys < ends


@overload
def document(ids: Tensor, key_ids: Tensor | None = None) -> Tensor: ...
@overload
def document(ids: Integers, key_ids: Integers | None = None) -> Array: ...
def document(ids: Any, key_ids: Any = None) -> Any:
    """Return the boolean mask in which a token sees the tokens of its own document only.

    Several documents are packed into one sequence. Query i sees key j if ids[i] = key_ids[j]. A
    language model combines this mask with `causal`.

    Args:
        ids: for each query the number of its document; any integers will do.
        key_ids: the same for each key; those of the queries where None.

    Shapes:
        ids (L,), key_ids (S,) → (L, S);
        ids (B, L), key_ids (B, S) → (B, 1, L, S), for scores (B, H, L, S).

    Raises:
        TypeError, ValueError: for ids that are no integers, or do not fit together.

    Source:
        Krell et al. 2021 (arXiv 2107.02027), who pack sequences without attention between them.

    Example:
        >>> document([7, 7, 8]).astype(int)
        array([[1, 1, 0],
               [1, 1, 0],
               [0, 0, 1]])
    """
    queries = _integers("ids", ids, "have shape (L,) or (B, L)", lambda s: len(s) in (1, 2))
    keys = queries
    if key_ids is not None:
        if is_tensor(key_ids) != is_tensor(ids):
            wanted = "a tensor, as ids is" if is_tensor(ids) else "no tensor, because ids is none"
            raise TypeError(f"key_ids must be {wanted}; got {type(key_ids).__qualname__}")
        batch = tuple(queries.shape[:-1])
        axes = f"({batch[0]}, S)" if batch else "(S,)"
        wanted = f"have shape {axes} beside ids {tuple(queries.shape)}"
        keys = _integers("key_ids", key_ids, wanted, lambda s: len(s) > 0 and s[:-1] == batch)
        if is_tensor(keys) and keys.device != queries.device:
            devices = f"{queries.device}; got {keys.device}"
            raise ValueError(f"key_ids must be on the device of ids, {devices}")
    same = queries[..., :, None] == keys[..., None, :]
    return same if same.ndim == 2 else same[:, None]


@overload
def prefix(
    lengths: Tensor, n_queries: int, n_keys: int | None = None, *, align: Align = "top-left"
) -> Tensor: ...
@overload
def prefix(
    lengths: int | Integers, n_queries: int, n_keys: int | None = None, *, align: Align = "top-left"
) -> Array: ...
def prefix(
    lengths: Any, n_queries: int, n_keys: int | None = None, *, align: Align = "top-left"
) -> Any:
    """Return the boolean mask of a prefix language model (prefix LM).

    Every query sees the whole prefix. After the prefix, attention is causal:

        j < length  or  j ≤ position of query i

    Args:
        lengths: the length of the prefix, one for all sequences or one for each. The numbers in a
            tensor are not checked.
        n_queries, n_keys, align: as in `causal`.

    Shapes:
        lengths one integer → (L, S);
        lengths (B,) → (B, 1, L, S), for scores (B, H, L, S).

    Source:
        Raffel et al. 2020, T5 (arXiv 1910.10683), section 3.2.1.

    Example:
        >>> prefix(2, 3).astype(int)
        array([[1, 1, 0],
               [1, 1, 0],
               [1, 1, 1]])
    """
    like: Any = lengths if is_tensor(lengths) else None
    mask = causal(n_queries, n_keys, align=align, like=like)
    n_keys = mask.shape[-1]
    ends = _lengths(lengths, n_keys, "be one integer or have one dimension, (B,)", {0, 1})
    return mask | (_positions(n_keys, ends) < ends)


def alibi(
    n_heads: int, n_queries: int, n_keys: int | None = None, *, align: Align = "top-left",
    like: Kind | None = None,
) -> Kind:
    """Return the floating mask of ALiBi, attention with linear biases: the farther, the less.

    Each head takes its slope times the distance of query and key from the score:

        -slope · abs(position of query i - j),   slope of head h = 2^(-8h / H),   h = 1 … H

    The paper's mask is causal: `combine(alibi(H, L), causal(L))`. If H is no power of two, the
    slopes are those of the authors' code: all of the next lower power P, and then every second
    slope of 2P heads, beginning with the first. The mask is float32, which every form of attention
    takes beside inputs of any dtype.

    Args:
        n_heads: H, the number of heads.
        n_queries, n_keys, align, like: as in `causal`.

    Shapes:
        (H, L, S), for scores (B, H, L, S).

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
    """
    n_heads = int(checked_count("n_heads", n_heads, least=1))
    power = 2 ** (n_heads.bit_length() - 1)  # the largest power of two up to H
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (n_heads - power), 2)]
    positions, keys = _axes(n_queries, n_keys, align, like)
    nearness = -abs(keys - positions)  # 0 at the query's own position, never -0.0
    xp = library(nearness)
    per_head = xp.asarray(slopes, dtype=xp.float32, **on_device_of(nearness))
    return cast("Kind", per_head[:, None, None] * as_dtype(nearness, xp.float32))


def combine(*masks: Kind) -> Kind:
    """Return one mask, in new memory, that removes what any of the masks removes.

    Boolean masks are joined by *and*. With a floating mask among them the result is floating: the
    sum of the floating masks, and -∞ only where some mask removes, because a sum of finite numbers
    stays finite. It is float64 if one of the masks is, else float32.

    Args:
        masks: at least one mask, all arrays or all tensors, of any shapes that broadcast.

    Raises:
        TypeError: for no mask, one that is neither boolean nor floating, or arrays among tensors.
        ValueError: for shapes that do not broadcast, or tensors on several devices.

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
    given: list[Any] = []
    on_tensors = any(map(is_tensor, masks))
    for i, mask in enumerate(masks):
        if on_tensors and not is_tensor(mask):
            came = type(mask).__qualname__
            raise TypeError(f"masks must be all arrays or all tensors; got mask {i}, {came}")
        given.append(mask if on_tensors else check_array(f"mask {i}", mask))
        if (dtype := dtype_name(mask)) not in ("bool", *FLOATING):
            raise TypeError(f"mask {i} must be boolean or floating; got dtype {dtype}")
    shapes = [tuple(mask.shape) for mask in given]
    try:
        broadcast_shapes(*shapes)
    except ValueError:
        came = ", ".join(map(str, shapes))
        raise ValueError(f"masks must have shapes that broadcast; got {came}") from None
    if on_tensors and len(devices := {str(mask.device): mask for mask in masks}) > 1:
        raise ValueError(f"masks must be on one device; got {', '.join(devices)}")
    xp = library(given[0])
    floating = [mask for mask in given if dtype_name(mask) != "bool"]
    allowed = [m if dtype_name(m) == "bool" else m != -math.inf for m in given]
    kept: Any = reduce(xp.logical_and, allowed)
    if not floating:
        return cast("Kind", kept | False)  # new memory, for one mask too
    wide = xp.float64 if "float64" in map(dtype_name, given) else xp.float32
    finite = reduce(xp.logical_and, map(xp.isfinite, floating))
    with contextlib.nullcontext() if on_tensors else np.errstate(all="ignore"):
        total = sum(as_dtype(mask, wide) for mask in floating)
    # Two very negative numbers may add up to -∞, and would then remove what neither removes.
    limits = xp.finfo(wide)
    total = xp.where(finite, xp.clip(total, float(limits.min), float(limits.max)), total)
    return cast("Kind", xp.where(kept, total, -math.inf))


def _positions(n: int, like: Any) -> Any:
    """Return 0 … n - 1, as a tensor on the device of `like` if that is one."""
    check_like(like)
    return library(like).arange(n, **on_device_of(like))


def _axes(n_queries: Any, n_keys: Any, align: object, like: object) -> tuple[Any, Any]:
    """Return the positions of queries, (L, 1), and of keys, (S,), among the keys."""
    n_queries = checked_count("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else checked_count("n_keys", n_keys)
    queries = _positions(n_queries, like)[:, None]
    return queries + first_position(n_queries, n_keys, align), _positions(n_keys, like)


def _integers(name: str, given: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
    """Return integers as an array of any integer dtype, or as a tensor in int64 for a tensor."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} must be integers; got a MaskedArray, whose mask would be lost")
    try:
        numbers: Any = given if is_tensor(given) else np.asarray(given)
    except ValueError:
        raise ValueError(f"{name} must {wanted}; got {given!r}") from None
    if not fits(shape := tuple(numbers.shape)):
        raise ValueError(f"{name} must {wanted}; got shape {shape}")
    untyped = isinstance(numbers, np.ndarray) and not numbers.size  # [] is float64 to NumPy
    if (dtype := dtype_name(numbers)).lstrip("u").rstrip("0123456789") != "int" and not untyped:
        raise TypeError(f"{name} must be integers; got dtype {dtype}")
    return numbers.long() if is_tensor(numbers) else numbers


def _lengths(given: Any, n_keys: int, wanted: str, ranks: set[int]) -> Any:
    """Return lengths in int64: one as it is, several as (B, 1, 1, 1).

    The numbers in a tensor are not read, because that would wait for its device.
    """
    lengths = _integers("lengths", given, wanted, lambda shape: len(shape) in ranks)
    if not is_tensor(lengths):
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= n_keys:
            came = lengths.tolist()
            raise ValueError(f"lengths must lie between 0 and n_keys = {n_keys}; got {came}")
        lengths = lengths.astype(np.int64)
    return lengths[:, None, None, None] if lengths.ndim else lengths
