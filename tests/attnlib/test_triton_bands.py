"""The kernels of `triton_fused` on bands, called directly: alignment and windows."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import attnlib
from attnlib import torch_dense
from attnlib._checks import Band

pytest.importorskip("triton", reason="triton is for Linux")

from bands import DEVICE, E_V, SCALE, E, operands, run, seen, upstream
from implementations import tensor
from inputs import drawn
from parameters import slow
from torch import Tensor

from attnlib import triton_fused
from attnlib.triton_fused import _tiles
from attnlib.triton_fused._tiles import Choices, Sizes
from attnlib.triton_fused.launch import Operands
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
            band = Band(0, None if low is None else -low, high)
            pairs = seen(n_queries, n_keys, band).cpu().numpy()
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


def hold(given: Operands, band: Band) -> None:
    """Compare with the dense form under a mask that says the same.

    Keys and values that no query sees are NaN for the kernels, which must not read them.
    """
    leaves = [x.clone().requires_grad_() for x in given[:3]]
    mask = seen(given.query.shape[-2], given.key.shape[-2], band)
    if given.mask is not None and given.mask.dtype == torch.bool:
        mask = mask & given.mask
    elif given.mask is not None:
        leaves.append(given.mask.clone().requires_grad_())
        mask = torch.where(mask, leaves[3], -math.inf)
    unused = ~(mask if mask.dtype == torch.bool else mask != -math.inf).any(0)[:, None]
    key, value = (x.masked_fill(unused, math.nan) for x in given[1:3])
    found = run(given._replace(key=key, value=value), band)
    results = torch_dense.scaled_dot_product_attention_with_lse(
        *leaves[:3], mask, scale=SCALE, enable_gqa=True
    )
    truth = [*results, *torch.autograd.grad(results, leaves, upstream(*found[:2]))]
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs.view_as(ours), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "band"),
    [
        slow(33, 40, Band(0, None, 0)),  # causal
        slow(20, 53, Band(33, None, 0)),  # and at the bottom right
        (53, 20, Band(-33, 7, 0)),  # the first queries see nothing
        slow(40, 33, Band(0, 20, 3)),
        (20, 53, Band(0, None, 18)),
        (53, 20, Band(0, 18, None)),
        slow(1, 40, Band(39, 20, 0)),
        (20, 90, Band(15, 4, 6)),
        (20, 30, Band(50, 3, 3)),  # nobody sees anything
        slow(20, 30, Band(-50, 3, 0)),
        # Bounds beyond 32 bits.
        slow(3, 4, Band(0, 2**40, 0)),
        (3, 4, Band(-(2**40), 3, 2**41)),
        slow(3, 4, Band(2**40, None, 0)),
    ],
)
def test_bands_are_masks(n_queries: int, n_keys: int, band: Band) -> None:
    hold(operands(n_queries, n_keys), band)


@pytest.mark.parametrize(
    ("band", "blocks"),
    [slow(Band(3, 9, 4), Blocks(32, 16, 4, 1)), (Band(-20, 25, 0), Blocks(16, 32, 4, 1))],
)
def test_bands_cross_blocks_of_any_shape(
    monkeypatch: pytest.MonkeyPatch, band: Band, blocks: Blocks
) -> None:
    take(monkeypatch, blocks)
    hold(operands(50, 60), band)


@pytest.mark.parametrize("band", [slow(Band(10, None, 0)), Band(0, 12, 3)])
def test_grouped_heads_share_the_band(band: Band) -> None:
    hold(operands(17, 33, group=3), band)


@pytest.mark.parametrize("kind", ["boolean", "floating"])
def test_a_mask_beside_the_band(kind: str) -> None:
    """The mask removes a key in the middle, and a row."""
    kept = torch.rand(20, 40, generator=torch.Generator().manual_seed(3)) < 0.6
    kept[7] = kept[:, 20] = False
    mask = torch.where(kept, torch.linspace(-2, 2, kept.numel()).view_as(kept).double(), -math.inf)
    given = operands(20, 40)._replace(mask=(kept if kind == "boolean" else mask).to(DEVICE))
    hold(given, Band(5, 12, 6))


def test_a_block_reads_nothing_outside_its_window() -> None:
    """A NaN comes out of the blocks that see it, and of no other."""
    band, zeros = Band(0, 6, 4), torch.zeros(43, 43, dtype=torch.float64, device=DEVICE)
    given = operands(43, 43)._replace(mask=zeros)
    given.value[..., 37, :] = math.nan
    output, lse, d_query, *_, d_mask = run(given, band)
    assert lse.isfinite().all()
    for x in (output[0, 0], d_query[0, 0], d_mask):
        assert x[:32].isfinite().all() and x[37].isnan().any()
    given = operands(53, 53)
    given.query[..., 50, :] = math.nan
    for x in run(given, band)[3:]:
        assert x[..., :32, :].isfinite().all() and x[..., 50, :].isnan().all()


# The gradient of a mask ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "shape", "has_band"),
    [
        slow((2, 2), (), False),  # one number for all
        slow((2, 2), (20,), True),
        ((2, 2), (2, 17, 1), True),
        ((2, 2), (2, 1, 17, 20), True),
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
    shapes = (*batch, n_queries, E), (2, 1, n_keys, E), (2, 1, n_keys, E_V), shape
    *given, mask = (tensor(x, DEVICE) for x in drawn(*shapes))
    mask.requires_grad_()
    band = {"window": (5, 2), "causal_align": "bottom-right"} if has_band else {}
    found = []
    for form in (triton_fused, torch_dense):
        function: Any = form.scaled_dot_product_attention_with_lse
        results: tuple[Tensor, Tensor] = function(*given, mask, **band, enable_gqa=True)
        above = [tensor(x, DEVICE) for x in drawn(*(y.shape for y in results), seed=9)]
        found += torch.autograd.grad(results, mask, above)
    assert found[0].shape == shape
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
