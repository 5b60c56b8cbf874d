"""The tolerances of `attnlib.conformance`, as assertions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlib._checks import HALF
from attnlib.conformance._tolerance import (
    bound,
    difference,
    epsilon,
    forward_size,
    gradient_sizes,
    lse_size,
)

__all__ = [
    "HALF", "assert_close", "epsilon", "forward_size", "gradient_sizes", "lse_size",
]  # fmt: skip

Array = NDArray[np.generic]


def assert_close(
    got: Array,
    truth: Array,
    *,
    dtype: str,
    size: float | None = None,
    peer: Array | None = None,
    times: int = 2,
    floor: float = 0.0,
) -> None:
    """Refuse a result that is further from the truth than its dtype allows; see `bound`."""
    truth = truth.astype(np.float64)
    limit = bound(truth, dtype=dtype, size=size, peer=peer, times=times, floor=floor)
    said = difference(got, truth, limit)
    assert not said, f"{dtype}: {said}"
