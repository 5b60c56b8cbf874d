"""Argument checks that all forms share.

The checks work on shapes and on names of dtypes, so that they serve arrays and tensors alike.
Every message says what was expected and what came.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Window = tuple[int | None, int | None]  # keys before and after a query's own position

HALF = ("float16", "bfloat16")
FLOATING = (*HALF, "float32", "float64")
MAX_LENGTH = 2**31  # longer than every sequence, and an integer that torch can hold


class Band(NamedTuple):
    """Which keys a query sees by its position p alone: those from p - left to p + right.

    The position of query i among the keys is i + first. None sets no bound.
    """

    first: int = 0
    left: int | None = None
    right: int | None = None

    def span(self, rows: slice, n_keys: int) -> tuple[int, int]:
        """Return where the keys begin and end that some of these rows may see."""
        start = 0 if self.left is None else rows.start + self.first - self.left
        stop = n_keys if self.right is None else rows.stop + self.first + self.right
        return max(0, min(start, n_keys)), max(0, min(stop, n_keys))

    def holds(self, rows: slice, columns: slice) -> bool:
        """Return whether each of these rows sees all of these keys."""
        from_left = self.left is None or rows.stop - 1 + self.first - self.left <= columns.start
        return from_left and (
            self.right is None or rows.start + self.first + self.right >= columns.stop - 1
        )

    def sees(self, queries: Any, keys: Any) -> Any:
        """Return which of these keys each query sees; arrays or tensors that broadcast."""
        positions, seen = queries + self.first, True
        if self.left is not None:
            seen = keys >= positions - self.left
        if self.right is not None:
            seen = seen & (keys <= positions + self.right)
        return seen

    def numbers(self) -> list[int]:
        """Return the band as three integers, as an operator of torch takes it: -1 for no bound."""
        return [self.first, *(-1 if bound is None else bound for bound in self[1:])]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Band:
        """Return the band of three such integers."""
        first, *bounds = numbers
        return cls(first, *(None if bound == -1 else bound for bound in bounds))


class Options(NamedTuple):
    """What a caller may ask for beside query, key and value, as it came."""

    attn_mask: Any = None
    dropout_p: Any = 0.0
    is_causal: Any = False
    scale: Any = None
    enable_gqa: Any = False
    causal_align: Any = "top-left"
    window: Any = None


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that all of these broadcast to.

    As NumPy's; in Python, so that torch.compile can trace it with symbolic sizes.
    """
    rank = max([0, *map(len, shapes)])
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    raise ValueError(f"shapes do not broadcast: {shapes}")
                result[axis] = size
    return tuple(result)


def blocks(start: int, stop: int, size: int) -> list[slice]:
    """Cut start … stop - 1 at the multiples of `size`.

    >>> blocks(0, 5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    first = start // size * size
    cuts = range(first, stop, size) if start < stop else ()
    return [slice(max(k, start), min(k + size, stop)) for k in cuts]


def is_tensor(thing: object) -> bool:
    """Return whether this is a torch.Tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def library(like: object) -> Any:
    """Return torch for a tensor, else NumPy, for functions that have one name in both."""
    return sys.modules["torch"] if is_tensor(like) else np


def on_device_of(like: Any) -> dict[str, Any]:
    """Return the keyword that makes a tensor on the device of `like`, none beside an array."""
    return {"device": like.device} if is_tensor(like) else {}


def as_dtype(array: Any, dtype: Any) -> Any:
    """Return an array or a tensor in this dtype."""
    return array.to(dtype) if is_tensor(array) else array.astype(dtype, copy=False)


def upcast(array: Any) -> Any:
    """Return half precision in float32, and everything else as it is."""
    return as_dtype(array, library(array).float32) if dtype_name(array) in HALF else array


def check_like(like: object) -> None:
    """Require an array, a tensor or None, as the example that a result is to be like."""
    if not (like is None or isinstance(like, np.ndarray) or is_tensor(like)):
        raise TypeError(f"like must be an array or a tensor; got {type(like).__qualname__}")


def dtype_name(array: Any) -> str:
    """Return the name of an array's or a tensor's dtype, "float32" for both."""
    return getattr(array.dtype, "name", None) or str(array.dtype).removeprefix("torch.")


def _listed(items: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {item}" for name, item in items.items())


def check_dtypes(dtypes: Mapping[str, str]) -> None:
    """Require one floating dtype for all; `dtypes` maps an argument to its dtype's name."""
    for name, dtype in dtypes.items():
        if dtype not in FLOATING:
            raise TypeError(f"{name} must have dtype {', '.join(FLOATING)}; got {dtype}")
    if len(set(dtypes.values())) > 1:
        raise TypeError(f"{', '.join(dtypes)} must share one dtype; got {_listed(dtypes)}")


def check_shapes(shapes: Mapping[str, Shape], *, enable_gqa: bool = False) -> tuple[Shape, int]:
    """Return the leading dimensions of the result, and the query heads per key head.

    `shapes` maps query, key and (where there is one) value to their shapes.
    """
    query, key, value = shapes["query"], shapes["key"], shapes.get("value", shapes["key"])
    rank, axes = (3, "heads, length, features") if enable_gqa else (2, "length, features")
    for name, shape in shapes.items():
        if len(shape) < rank:
            raise ValueError(
                f"{name} must have at least {rank} dimensions (…, {axes}); got {_listed(shapes)}"
            )
    if query[-1] != key[-1]:
        raise ValueError(f"query and key must have the same last dimension; got {_listed(shapes)}")
    if key[-2] != value[-2]:
        raise ValueError(
            f"key and value must have the same length (dimension -2); got {_listed(shapes)}"
        )
    group = 1
    if enable_gqa:
        n_heads, n_key_heads, n_value_heads = query[-3], key[-3], value[-3]
        if n_key_heads != n_value_heads or n_key_heads < 1 or n_heads % n_key_heads:
            raise ValueError(
                "with enable_gqa key and value must have the same number of heads, a divisor of "
                f"query's; got {n_heads} query, {n_key_heads} key and {n_value_heads} value heads: "
                f"{_listed(shapes)}"
            )
        group = n_heads // n_key_heads
    try:
        leading = broadcast_shapes(*(shape[:-rank] for shape in (query, key, value)))
        return leading + query[-rank:-2], group
    except ValueError:
        raise ValueError(
            f"the leading dimensions of {', '.join(shapes)} must be equal or broadcast "
            f"(heads in groups need enable_gqa=True); got {_listed(shapes)}"
        ) from None


def check_mask(mask: Any, query: Any, target: Shape) -> None:
    """Require a boolean or floating mask that fits the query and broadcasts to (…, L, S)."""
    shape, dtype, query_dtype = tuple(mask.shape), dtype_name(mask), dtype_name(query)
    allowed = dict.fromkeys(("bool", "float32", query_dtype))
    if dtype not in allowed:
        wanted = f"{' or '.join(allowed)} for {query_dtype} inputs"
        raise TypeError(f"attn_mask must have dtype {wanted}; got {dtype}")
    try:
        fits = broadcast_shapes(shape, target) == target
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"attn_mask must broadcast to (…, L, S) = {target}; got {shape}")


def checked_count(name: str, number: Any, least: float = 0) -> int:
    """Return an integer ≥ `least`. The symbolic size of a traced program is returned as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(number, torch.SymInt):
        return cast(int, number)
    if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {number!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}")
    return int(number)


def checked_integers(name: str, numbers: Any) -> tuple[int, ...]:
    """Return the integers ≥ 0 of a sequence, or of an array or tensor of one dimension."""
    listed = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    if not isinstance(listed, Sequence):
        raise TypeError(f"{name} must be a sequence of integers; got {numbers!r}")
    return tuple(checked_count(f"{name}[{i}]", number) for i, number in enumerate(listed))


def checked_counts(name: str, counts: Any, most: Sequence[int]) -> tuple[int, ...]:
    """Return one integer for each row of a batch, from 0 to the `most` of that row."""
    found = checked_integers(name, counts)
    if len(found) != len(most):
        wanted = f"{name} must hold one integer for each of the {len(most)} rows"
        raise ValueError(f"{wanted}; got {list(found)}")
    for i, (number, limit) in enumerate(zip(found, most, strict=True)):
        if number > limit:
            raise ValueError(f"{name}[{i}] must be at most {limit}; got {number}")
    return found


def check_axis(name: str, axis: Any, shape: Shape) -> None:
    """Require an axis that is there; as elsewhere, a single number has the axes 0 and -1."""
    rank = max(1, len(shape))
    if not -rank <= checked_count(name, axis, least=-math.inf) < rank:
        raise np.exceptions.AxisError(
            f"{name} must lie between {-rank} and {rank - 1} for shape {shape}; got {axis}"
        )


def check_flag(name: str, flag: object) -> None:
    """Require True or False."""
    if not isinstance(flag, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False; got {flag!r}")


def checked_real(name: str, number: object, wanted: str = "a real number") -> float:
    """Return a number of any real kind as a float, ∞ where it is too large for one."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} must be {wanted}; got {type(number).__name__} {number!r}")
    try:
        return float(number)
    except OverflowError:
        return math.inf


def checked_scale(scale: object, n_features: int) -> float:
    """Return the factor on the scores: `scale`, or 1/√d_k for None (1 where d_k = 0)."""
    if scale is None:
        return 1.0 / math.sqrt(n_features) if n_features else 1.0
    number = checked_real("scale", scale, "None or a real number")
    if not math.isfinite(number):
        raise ValueError(f"scale must be finite; got {scale!r}")
    return number


def out_of_range(scale: float, limits: Any) -> bool:
    """Return whether a dtype, given by its finfo, would make 0 or ∞ of a scale that is neither."""
    return bool(scale) and not limits.tiny <= abs(scale) <= limits.max


def first_position(n_queries: int, n_keys: int, align: object, name: str = "align") -> int:
    """Return the position of the first query among the keys."""
    if not isinstance(align, str) or align not in ("top-left", "bottom-right"):
        raise ValueError(f"{name} must be 'top-left' or 'bottom-right'; got {align!r}")
    return n_keys - n_queries if align == "bottom-right" else 0


def checked_band(n_queries: int, n_keys: int, options: Options) -> Band:
    """Return the keys that `is_causal` and `window` leave, counted from the alignment."""
    first = first_position(n_queries, n_keys, options.causal_align, "causal_align")
    is_causal, window = bool(options.is_causal), options.window
    if window is None:
        return Band(first, None, 0) if is_causal else Band()
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"window must be None or a pair (left, right); got {window!r}")
    left, right = (
        None if bound is None else min(checked_count(f"window's {side} bound", bound), MAX_LENGTH)
        for side, bound in zip(("left", "right"), window, strict=True)
    )
    return Band(first, left, 0 if is_causal else right)


def wide_tokens(given: Mapping[str, Any], *, heads: bool = False) -> list[Any]:
    """Return tokens X and matrices, in float32 for half precision, which is rounded at the end.

    Tokens must stand in rows, and each matrix must fit them; with `heads` also one for each head.
    """
    (_, X), *matrices = [(name, tuple(x.shape)) for name, x in given.items()]
    for name, W in matrices:
        if len(X) < 2 or not (len(W) == 2 or (heads and len(W) == 3)) or X[-1] != W[-2]:
            wanted = f"X must be (…, T, d_model) and {name} (d_model, d)"
            raise ValueError(f"{wanted}; got X {X}, {name} {W}")
    return [upcast(x) for x in given.values()]


class CheckedCall:
    """What the checks find out about a call, when types and dtypes are known.

    `batch` are the leading dimensions of the result, heads included, and `group` is the number of
    query heads that share one key head. Without a value, of scores or weights alone, its features
    are none.
    """

    def __init__(self, inputs: Mapping[str, Any], mask: Any, options: Options, drops: bool) -> None:
        """Check a call on arrays or tensors; `drops` is True where weights can be put to 0."""
        shapes = {name: tuple(x.shape) for name, x in inputs.items()}
        check_flag("is_causal", options.is_causal)
        check_flag("enable_gqa", options.enable_gqa)
        self.batch, self.group = check_shapes(shapes, enable_gqa=bool(options.enable_gqa))
        self.query, self.key = inputs["query"], inputs["key"]
        self.value = inputs.get("value", self.key[..., :0])
        self.out_dtype = self.query.dtype
        *_, self.n_queries, n_features = shapes["query"]
        self.n_keys = shapes["key"][-2]
        self.scale: Any = checked_scale(options.scale, n_features)
        if mask is not None and options.is_causal:  # it is not clear whether both are meant
            hint = "attnlib.masks.combine makes one mask of two"
            raise ValueError(f"give attn_mask or is_causal=True, got both: {hint}")
        if mask is not None:
            check_mask(mask, self.query, (*self.batch, self.n_queries, self.n_keys))
        self.band = checked_band(self.n_queries, self.n_keys, options)
        dropout_p = options.dropout_p
        if drops:
            if not 0 <= checked_real("dropout_p", dropout_p) <= 1:
                raise ValueError(f"dropout_p must lie between 0 and 1; got {dropout_p!r}")
        elif not isinstance(dropout_p, Real):
            raise TypeError(f"dropout_p must be 0.0; got {type(dropout_p).__name__} {dropout_p!r}")
        elif dropout_p != 0.0:
            wanted = "0.0, because this form is deterministic"
            raise ValueError(f"dropout_p must be {wanted}; got {dropout_p!r}")
