"""The tolerances of `attncheck`, as assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncheck import Call, Given, _tolerance, problem
from attncheck._tolerance import bound, difference, epsilon
from attnlib._checks import HALF

__all__ = ["HALF", "assert_close", "call_of", "epsilon", "forward_size", "lse_size"]

Array = NDArray[Any]


def call_of(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None, **options: Any
) -> Call:
    """Return the call of these arrays, as the cases have it."""
    arrays = {"query": query, "key": key, "value": value}
    arrays |= {} if attn_mask is None else {"attn_mask": attn_mask}
    given = {
        name: Given(x if x.dtype == bool else x.astype(np.float64), x.dtype.name)
        for name, x in arrays.items()
    }
    return Call(given, options)


def forward_size(*arrays: Array, **options: Any) -> Array:
    """Return the number of ε by which each entry of attention's output can be off."""
    return _tolerance.forward_size(problem(call_of(*arrays, **options)))


def lse_size(query: Array, key: Array, **options: Any) -> Array:
    """Return the number of ε by which each entry of a log-sum-exp can be off."""
    return _tolerance.lse_size(problem(call_of(query, key, key, **options)))


def assert_close(
    got: Array, truth: Array, *, dtype: str, size: float | Array | None = None,
    peer: Array | None = None,
) -> None:
    """Refuse a result that is further from the truth than its dtype allows; see `bound`."""
    truth = truth.astype(np.float64)
    said = difference(got, truth, bound(truth, dtype=dtype, size=size, peer=peer))
    assert not said, f"{dtype}: {said}"
