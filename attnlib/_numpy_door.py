"""The door of the NumPy rungs: what all calls on arrays have in common, once.

A call comes in here. The door checks it, widens half precision, gives grouped heads an axis of
their own, and hands the rung a `Call`. The rung is its mathematics: it returns output and
log-sum-exp, and the door restores the caller's shape and dtype.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np

from attnlib._checks import (
    HALF,
    Array,
    Shape,
    Window,
    beyond,
    check_dtypes,
    check_no_dropout,
    checked_call,
)

EVERYTHING = slice(None)


def check_array(name: str, array: object) -> None:
    """Require a plain NumPy array."""
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        return
    kind = type(array)
    came = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(array, np.ndarray):
        hint = "its mask would be lost; pass attn_mask"
    elif kind.__module__.partition(".")[0] == "torch":
        hint = "use a torch form for tensors"
    else:
        hint = "convert it with np.asarray"
    raise TypeError(f"{name} must be a numpy.ndarray; got {came} ({hint})")


def checked_arrays(arrays: Mapping[str, object]) -> dict[str, Array]:
    """Return the arrays, which must share one floating dtype. A subclass becomes a plain array."""
    for name, array in arrays.items():
        check_array(name, array)
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    check_dtypes({name: array.dtype.name for name, array in plain.items()})
    return plain


def widened(array: Array) -> Array:
    """Return half precision in float32, and everything else as it is."""
    name = array.dtype.name
    return array.astype("float32" if name in HALF else name, copy=False)


class Call:
    """A call that has passed the door.

    query (…, L, E), key (…, S, E) and value (…, S, E_v) have the dtype to compute in. With groups
    they have one axis more, (…, H_kv, group, L, E) and (…, H_kv, 1, S, E), along which the keys
    broadcast. `batch` are the leading dimensions of the result.
    """

    def __init__(
        self, arrays: Mapping[str, object], attn_mask: object = None, is_causal: object = False,
        scale: object = None, enable_gqa: object = False, causal_align: object = "top-left",
        window: object = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        known = checked_arrays(arrays)
        mask = None
        if attn_mask is not None:
            check_array("attn_mask", attn_mask)
            mask = np.asarray(attn_mask)
        shapes = {name: array.shape for name, array in known.items()}
        self.asked = known["query"].dtype
        call = checked_call(
            shapes, self.asked.name, mask if mask is None else (mask.shape, mask.dtype.name),
            is_causal, scale, enable_gqa, causal_align, window,
        )  # fmt: skip
        self.n_queries, self.n_keys, self.band = call.n_queries, call.n_keys, call.band
        self.result: Shape = call.batch
        self.lse_dtype = self.dtype = np.dtype(dtype or widened(known["query"][..., :0]).dtype)
        if beyond(call.scale, np.finfo(self.dtype)):
            self.dtype = np.dtype(np.float64)
        self.scale = self.dtype.type(call.scale)
        self.group = call.group
        self.batch: Shape = call.batch
        if call.group != 1:
            self.batch = (*call.batch[:-1], shapes["key"][-3], call.group)
        self.exponent = 0
        self._bias: Array | None = None
        self.query = self._grouped(known["query"]).astype(self.dtype, copy=False)
        self.key = self._shared(known["key"]).astype(self.dtype, copy=False)
        self.value = self._with_headroom(known.get("value", known["key"][..., :0]))
        self.mask = None if mask is None else self._grouped(np.atleast_2d(mask))
        if self.mask is not None:  # a view: no number is copied
            leading = self.mask.shape[:-2]
            self.mask = np.broadcast_to(self.mask, (*leading, self.n_queries, self.n_keys))

    def _grouped(self, array: Array) -> Array:
        """Return (…, H, L, E) as (…, H_kv, group, L, E), where there are groups."""
        if self.group == 1 or array.ndim < 3:
            return array
        *batch, n_heads, n_rows, n_columns = array.shape
        pair = (1, 1) if n_heads == 1 else self.batch[-2:]
        return array.reshape(*batch, *pair, n_rows, n_columns)

    def _shared(self, array: Array) -> Array:
        """Return (…, H_kv, S, E) as (…, H_kv, 1, S, E), where there are groups."""
        return array if self.group == 1 else array[..., None, :, :]

    def _with_headroom(self, value: Array) -> Array:
        """Return the values, made smaller by a power of 2 where their sum could be infinite.

        A rung may add up S values before it divides by the sum of the weights. Only values within
        a factor 2 S of the largest number need this, and it changes none of their digits.
        """
        value = self._shared(value)
        start, stop = self.band.span(slice(0, self.n_queries), self.n_keys)
        seen = value[..., start:stop, :]
        self.largest = max(float(seen.max(initial=0)), -float(seen.min(initial=0)))
        if self.largest > np.finfo(self.dtype).max / (2 * max(1, self.n_keys)):
            self.exponent = (2 * self.n_keys).bit_length()
            value = np.ldexp(value.astype(self.dtype), -self.exponent)
        return value.astype(self.dtype, copy=False)

    def span(self, rows: slice) -> tuple[int, int]:
        """Return where the keys begin and end that some of these rows may see."""
        return self.band.span(rows, self.n_keys)

    def masked(self, scores: Array, rows: slice = EVERYTHING, columns: slice = EVERYTHING) -> Array:
        """Return the scores after the mask, for these queries and keys.

        The score of a key that does not take part is -∞: it is replaced, so that nothing of it is
        left, NaN included.
        """
        removed = scores.dtype.type(-np.inf)
        if self.mask is not None:
            tile = self.mask[..., rows, columns]
            if tile.dtype == np.bool_:
                scores = np.where(tile, scores, removed)
            else:
                scores = np.where(tile != -np.inf, scores + tile.astype(scores.dtype), removed)
        rows, columns = slice(*rows.indices(self.n_queries)), slice(*columns.indices(self.n_keys))
        if not self.band.holds(rows, columns):
            queries, keys = np.ogrid[rows, columns]
            scores = np.where(self.band.sees(queries, keys), scores, removed)
        return scores

    def lists(self, head: Shape) -> tuple[Any, Any, Any, Any]:
        """Return query, key, value and what the mask adds to the scores of one head, as lists."""
        if self._bias is None:
            self._bias = self.masked(np.zeros((*self.batch, self.n_queries, self.n_keys)))
        q, k, v = (
            np.broadcast_to(x, self.batch + x.shape[-2:])[head].tolist()
            for x in (self.query, self.key, self.value)
        )
        return q, k, v, self._bias[head].tolist()

    def finish(self, output: Array, lse: Array) -> tuple[Array, Array]:
        """Return a rung's results in the shape and the dtype that the caller expects."""
        if self.exponent:
            output = np.clip(np.ldexp(output, self.exponent), -self.largest, self.largest)
        output = output.reshape(*self.result, self.n_queries, output.shape[-1])
        # A value may have batch dimensions that the scores do not have.
        shape = (*self.batch, self.n_queries)
        lse = lse if lse.shape == shape else np.broadcast_to(lse, shape).copy()
        lse = lse.reshape(output.shape[:-1]).astype(self.lse_dtype, copy=False)
        return output.astype(self.asked, copy=False), lse


def weighted_sum(weights: Array, value: Array, scores: Array) -> Array:
    """Return A V, in which a value whose score is -∞ counts for nothing, even one that is NaN."""
    if np.isfinite(value).all() or not (scores == -np.inf).any():
        return np.asarray(np.matmul(weights, value))
    # 0 · NaN is NaN: the keys that hold such values are taken out of the product, and added
    # one at a time to the rows in which they take part.
    flat = value.reshape(-1, *value.shape[-2:])
    finite = np.asarray(np.isfinite(flat).all(axis=(0, 2)))
    output: Array = np.matmul(weights, np.where(finite[:, None], value, 0))
    for j in np.flatnonzero(~finite):
        one = slice(j, j + 1)
        added = weights[..., one] * value[..., one, :]
        output = output + np.where(scores[..., one] != -np.inf, added, 0)
    return output


Rung = Callable[..., tuple[Array, Array]]


class Attention(Protocol):
    """The signature of `torch.nn.functional.scaled_dot_product_attention`, on arrays."""

    with_lse: Callable[..., tuple[Array, Array]]

    def __call__(
        self,
        query: Array,
        key: Array,
        value: Array,
        attn_mask: Array | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
        causal_align: str = "top-left",
        window: Window | None = None,
        **options: Any,
    ) -> Array: ...


ARGUMENTS = """
Args:
    query, key, value: Arrays of one floating dtype. The leading dimensions broadcast.
    attn_mask: Boolean, where True takes part; or floating, added to the scaled scores, where -∞
        removes. It broadcasts to (…, H, L, S).
    dropout_p: 0.0, because this form is deterministic.
    is_causal: Whether query i sees the keys j ≤ i alone.
    scale: The factor on the scores, any finite number; 1/√E where it is None.
    enable_gqa: Whether key and value have fewer heads: head h uses key head h // (H / H_kv).
    causal_align: Where query 0 stands among the keys: at key 0 ("top-left"), or so that the last
        query stands at the last key ("bottom-right"), as in decoding.
    window: (left, right), how many keys before and after its own place a query sees; None for a
        side without a bound.

Shapes:
    query (…, H, L, E), key (…, H_kv, S, E), value (…, H_kv, S, E_v) → (…, H, L, E_v)

Raises:
    TypeError: what is no NumPy array, a dtype that is not floating, dtypes that differ, a mask
        that is neither boolean nor floating, a flag that is not a bool, a window that is no pair.
    ValueError: ranks, lengths, heads or masks that do not fit, a mask beside is_causal, a scale
        that is not finite, dropout, an alignment that is unknown, a bound below 0.
"""

WITH_LSE = """\
Return the attention output, and the natural log of each row's sum of exponentials.

lse_i = log Σ_j exp(s_ij), and -∞ for a row in which no key takes part. Arguments and errors are
those of `scaled_dot_product_attention`.

Shapes:
    lse (…, H, L), in {dtype}

Example:
    >>> q, k, v = np.zeros((1, 1)), np.zeros((4, 1)), np.zeros((4, 1))
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> round(float(np.exp(lse[0])), 12)
    4.0
"""


def attention(dtype: Any = None) -> Callable[[Rung], Attention]:
    """Return a decorator that puts the door in front of a rung.

    The rung takes a `Call`, and options of its own by keyword. `dtype` is what it computes in;
    None for the caller's dtype, float32 for half precision.
    """

    def with_door(rung: Rung) -> Attention:
        def with_lse(
            query: Array, key: Array, value: Array, attn_mask: Array | None = None,
            dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
            enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
            **options: Any,
        ) -> tuple[Array, Array]:  # fmt: skip
            check_no_dropout(dropout_p)
            arrays = {"query": query, "key": key, "value": value}
            with np.errstate(all="ignore"):
                call = Call(
                    arrays, attn_mask, is_causal, scale, enable_gqa, causal_align, window, dtype
                )
                return call.finish(*rung(call, **options))

        @functools.wraps(rung)
        def without(*arguments: Any, **options: Any) -> Array:
            return with_lse(*arguments, **options)[0]

        return _named(rung, without, with_lse, dtype)

    return with_door


def _named(rung: Rung, without: Any, with_lse: Any, dtype: Any) -> Attention:
    """Give both functions the names, the signature and the words that a reader expects."""
    own = [p for p in inspect.signature(rung).parameters.values() if p.kind is p.KEYWORD_ONLY]
    *common, _ = inspect.signature(with_lse).parameters.values()
    said, _, example = inspect.cleandoc(rung.__doc__ or "").partition("\nExample:")
    without.__doc__ = f"{said}{ARGUMENTS}\nExample:{example}\n"
    kind = "float64" if dtype else "float32 for half precision, else in query's dtype"
    with_lse.__doc__ = WITH_LSE.format(dtype=kind)
    without.__name__ = without.__qualname__ = "scaled_dot_product_attention"
    with_lse.__name__ = with_lse.__qualname__ = "scaled_dot_product_attention_with_lse"
    for function, result in ((without, "Array"), (with_lse, "tuple[Array, Array]")):
        function.__module__ = rung.__module__
        function.__signature__ = inspect.Signature([*common, *own], return_annotation=result)
    without.with_lse = with_lse
    return cast(Attention, without)
