"""The tolerances of `attncheck`, as assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncheck import Call, Given, _tolerance, argument_gradients, problem
from attncheck._tolerance import bound, difference, epsilon
from attnlib._checks import HALF

__all__ = [
    "HALF", "assert_close", "epsilon", "forward_size", "gradient_sizes", "lse_size",
]

Array = NDArray[Any]


KEYWORDS = ("is_causal", "scale", "enable_gqa", "causal_align", "window")


def call_of(
    query: Array, key: Array, value: Array, attn_mask: Array | None, **options: Any
) -> Call:
    """Return the call of these arrays, as the cases have it. Other options change no bound."""
    arrays = {"query": query, "key": key, "value": value}
    arrays |= {} if attn_mask is None else {"attn_mask": attn_mask}
    given = {
        name: Given(x if x.dtype == bool else x.astype(np.float64), x.dtype.name)
        for name, x in arrays.items()
    }
    known = {name: own for name, own in options.items() if name in KEYWORDS and own is not None}
    if not known.get("enable_gqa"):
        known.pop("enable_gqa", None)
    return Call(given, known)


def forward_size(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    scale: float | None = None, **options: Any,
) -> Array:
    """Return the number of ε by which each entry of attention's output can be off."""
    call = call_of(query, key, value, attn_mask, scale=scale, **options)
    return _tolerance.forward_size(problem(call))


def lse_size(
    query: Array, key: Array, attn_mask: Array | None = None, scale: float | None = None,
    **options: Any,
) -> Array:
    """Return the number of ε by which each entry of a log-sum-exp can be off."""
    return _tolerance.lse_size(problem(call_of(query, key, key, attn_mask, scale=scale, **options)))


def gradient_sizes(
    query: Array, key: Array, value: Array, upstream: Array, attn_mask: Array | None = None,
    lse_upstream: Array | None = None, scale: float | None = None, **options: Any,
) -> dict[str, Array]:
    """Return the number of ε by which each entry of each gradient can be off."""
    call = call_of(query, key, value, attn_mask, scale=scale, **options)
    above = upstream.astype(np.float64)
    d_lse = None if lse_upstream is None else lse_upstream.astype(np.float64)
    return argument_gradients(call, _tolerance.gradient_sizes(problem(call), above, d_lse))


def assert_close(
    got: Array,
    truth: Array,
    *,
    dtype: str,
    size: float | Array | None = None,
    peer: Array | None = None,
    times: int = 2,
    floor: float | Array = 0.0,
) -> None:
    """Refuse a result that is further from the truth than its dtype allows; see `bound`."""
    truth = truth.astype(np.float64)
    limit = bound(truth, dtype=dtype, size=size, peer=peer, times=times, floor=floor)
    said = difference(got, truth, limit)
    assert not said, f"{dtype}: {said}"
