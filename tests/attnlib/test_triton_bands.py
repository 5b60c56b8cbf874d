"""The kernels of `triton_fused` on bands: alignment and windows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from claims import hold
from implementations import Implementation, devices
from inputs import drawn
from parameters import slow
from tolerance import call_of

import attnlib
from attncheck._definition import problem

pytest.importorskip("triton", reason="triton is for Linux")

from attnlib.triton_fused import _tiles
from attnlib.triton_fused._tiles import Choices, Sizes
from attnlib.triton_fused.tuning import (
    FORWARD,
    KEYS_BACKWARD,
    MASK_BACKWARD,
    QUERY_BACKWARD,
    Blocks,
)

pytestmark = pytest.mark.skipif(
    "triton_fused" not in attnlib.implementations(), reason="neither a GPU nor the interpreter"
)

KERNELS = FORWARD, QUERY_BACKWARD, KEYS_BACKWARD, MASK_BACKWARD
FORM = Implementation("triton_fused", *devices("triton_fused"))
E, E_V = 5, 3
LAST: dict[str, Any] = {"causal_align": "bottom-right"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short inputs have many tiles."""
    take(monkeypatch, Blocks(16, 16, 4, 1))


def take(monkeypatch: pytest.MonkeyPatch, blocks: Blocks) -> None:
    """Have all kernels take these blocks."""
    for kernel in KERNELS:
        monkeypatch.setattr(kernel, "chosen", lambda choices, case: blocks)


# Which tiles a program goes through ---------------------------------------------------------------


@pytest.mark.parametrize("blocks", [(2, 3), (3, 2)])
@pytest.mark.parametrize("own", ["queries", "keys"])
def test_a_block_goes_through_what_it_sees_once(
    monkeypatch: pytest.MonkeyPatch, own: str, blocks: tuple[int, int]
) -> None:
    """All bands of short sequences: no tile is read in vain or, if it is whole, compared.

    A block that sees nothing at all may read one tile.
    """
    plain = SimpleNamespace(minimum=min, maximum=max, where=lambda yes, a, b: a if yes else b)
    monkeypatch.setattr(_tiles, "tl", plain)
    function: Any = _tiles.key_span if own == "queries" else _tiles.query_span
    span = getattr(function, "fn", function)
    size, width = blocks if own == "queries" else blocks[::-1]
    for n_queries, n_keys in ((4, 8), (7, 5)):
        bounds = [None, *range(-n_queries, n_keys + 1)]
        for low, high in itertools.product(bounds, bounds):
            if low is not None and high is not None and low > high:
                continue
            far = np.arange(n_keys) - np.arange(n_queries)[:, None]
            pairs = (far >= (-99 if low is None else low)) & (far <= (99 if high is None else high))
            pairs = pairs if own == "queries" else pairs.T
            sizes = Sizes(1, n_queries, n_keys, low or 0, high or 0)
            choices = Choices(*[1] * 6, low is not None, high is not None, None, None)
            for first in range(0, len(pairs), size):
                start, whole, rest, end = span(first, sizes, choices, *blocks)
                block = pairs[first : first + size]
                compared, as_they_are = (
                    [block[:, at : at + width] for at in places]
                    for places in (
                        [*range(start, min(whole, end), width), *range(rest, end, width)],
                        range(whole, rest, width),
                    )
                )
                came = low, high, n_queries, n_keys, first
                assert sum(x.sum() for x in compared + as_they_are) == block.sum(), came
                assert all(x.any() for x in compared) or not block.any(), came
                assert not any(x.all() and x.shape == (size, width) for x in compared), came
                # A whole tile has as many keys as places.
                assert all(
                    x.all() and x.shape[own == "queries"] == blocks[1] for x in as_they_are
                ), came


# Results ------------------------------------------------------------------------------------------


def hold_band(n_queries: int, n_keys: int, *masks: Any, group: int = 1, **options: Any) -> None:
    """Hold a call in which keys and values that no query sees are NaN: they must not be read."""
    arrays = drawn((1, group, n_queries, E), (1, 1, n_keys, E), (1, 1, n_keys, E_V))
    call = call_of(*arrays, *masks, scale=0.7, enable_gqa=True, **options)
    allowed = problem(call).attn_mask
    assert allowed is not None
    seen = allowed if allowed.dtype == bool else allowed != -np.inf
    unused, given = ~seen.any(0)[:, None], dict(call.given)
    clean = {name: given[name].numbers for name in ("key", "value")}
    for name, numbers in clean.items():
        given[name] = given[name]._replace(numbers=np.where(unused, np.nan, numbers))
    hold(FORM, replace(call, given=given, meant=clean))


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "options"),
    [
        slow(33, 40, {"is_causal": True}),
        slow(20, 53, {"is_causal": True, **LAST}),
        (53, 20, {"window": (7, 0), **LAST}),  # the first queries see nothing
        slow(40, 33, {"window": (20, 3)}),
        (20, 53, {"window": (None, 18)}),
        slow(53, 20, {"window": (18, None)}),
        slow(1, 40, {"window": (20, 0), **LAST}),
        (20, 90, {"window": (4, 6), **LAST}),
        (3, 4, {"window": (2**40, 0)}),  # beyond 32 bits
        (17, 33, {"window": (12, 3), "group": 3}),
    ],
)
def test_bands_are_masks(n_queries: int, n_keys: int, options: dict[str, Any]) -> None:
    hold_band(n_queries, n_keys, **options)


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        slow({"window": (9, 4)}, Blocks(32, 16, 4, 1)),
        ({"window": (25, 0), **LAST}, Blocks(16, 32, 4, 1)),
    ],
)
def test_bands_cross_blocks_of_any_shape(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], blocks: Blocks
) -> None:
    take(monkeypatch, blocks)
    hold_band(50, 60, **options)


@pytest.mark.parametrize("kind", ["boolean", "floating"])
def test_a_mask_beside_the_band(kind: str) -> None:
    """The mask removes a key in the middle, and a row."""
    [mask] = drawn((20, 40), seed=3)
    kept = mask > -0.5
    kept[7] = kept[:, 20] = False
    hold_band(20, 40, kept if kind == "boolean" else np.where(kept, mask, -np.inf), window=(12, 6))


def test_a_block_reads_nothing_outside_its_window() -> None:
    """A NaN comes out of the blocks that see it, and of no other."""
    *arrays, above = drawn((43, E), (43, E), (43, E_V), (43, E_V))
    for place, by, end in ((2, ("query", "attn_mask"), 32), (0, ("key", "value"), 16)):
        spoilt = [x.copy() for x in arrays]
        spoilt[place][37] = np.nan
        found = FORM.gradients(*spoilt, above, np.zeros((43, 43)), by=by, window=(6, 4))
        for x in found.values():
            assert np.isfinite(x[:end]).all() and np.isnan(x[37]).any()


# The gradient of a mask ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "shape", "has_band"),
    [
        slow((2, 2), (1,), False),  # one number for all
        slow((2, 2), (20,), True),
        ((2, 2), (2, 17, 1), True),
        slow((2, 2), (2, 1, 17, 20), True),
        slow((2, 2), (2, 2, 1, 1), False),
        # In more dimensions than the kernels have.
        slow((2, 2, 2), (2, 1, 1, 17, 20), False),
        ((2, 2, 2), (1, 2, 2, 1, 5), False),
    ],
)
def test_a_mask_that_is_broadcast_has_a_gradient_of_its_own_shape(
    batch: tuple[int, ...], shape: tuple[int, ...], has_band: bool
) -> None:
    """Summed over all scores that each number of the mask is added to."""
    n_queries, n_keys = (3, 5) if shape[-1:] == (5,) else (17, 20)
    arrays = drawn((*batch, n_queries, E), (2, 1, n_keys, E), (2, 1, n_keys, E_V), shape)
    band = {"window": (5, 2), **LAST} if has_band else {}
    hold(FORM, call_of(*arrays, enable_gqa=True, **band))
