"""The kernels of `triton_fused` on bands, called directly: alignment and windows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given as drawn_from
from hypothesis import settings
from hypothesis import strategies as st

import attnlib
from attnlib import torch_dense
from attnlib._checks import Band

pytest.importorskip("triton", reason="triton is for Linux")

from bands import DEVICE, E_V, SCALE, E, operands, run, seen, upstream
from inputs import drawn
from rungs import tensor

from attnlib import triton_fused
from attnlib._torch_operators import Results
from attnlib.triton_fused._launch import Operands, attend
from attnlib.triton_fused._tuning import (
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


def hold(given: Operands, band: Band, deterministic: bool = True) -> None:
    """Compare with the dense form under a mask that says the same."""
    found = run(given, band, deterministic)
    leaves = [x.clone().requires_grad_() for x in given[:3]]
    mask = seen(given.query.shape[-2], given.key.shape[-2], band)
    if given.mask is not None and given.mask.dtype == torch.bool:
        mask = mask & given.mask
    elif given.mask is not None:
        leaves.append(given.mask.clone().requires_grad_())
        mask = torch.where(mask, leaves[3], -math.inf)
    output, lse = torch_dense.scaled_dot_product_attention_with_lse(
        *leaves[:3], mask, scale=SCALE, enable_gqa=True
    )
    above = upstream(output.detach(), lse.detach())
    scalar = (output * above.output).sum() + (
        lse.masked_fill(lse == -math.inf, 0) * above.lse
    ).sum()
    truth = [output, lse, *torch.autograd.grad(scalar, leaves)]
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs.view_as(ours), rtol=1e-11, atol=1e-12)


LENGTHS = [(40, 40), (20, 53), (53, 20), (1, 40)]
WINDOWS = [(None, 0), (7, 0), (0, 0), (20, 3), (None, 18), (18, None), (200, 200)]


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize("window", WINDOWS)
def test_bands_are_masks(window: Any, align: str) -> None:
    """Causal in both alignments, windows on either side and on both, all ratios of lengths."""
    for n_queries, n_keys in LENGTHS:
        first = n_keys - n_queries if align == "bottom-right" else 0
        hold(operands(n_queries, n_keys), Band(first, *window))


@pytest.mark.parametrize("sizes", [(32, 16), (16, 32), (64, 16), (16, 64)])
@pytest.mark.parametrize("band", [Band(3, 9, 4), Band(-20, 25, 0), Band(0, None, 5)])
def test_bands_cross_blocks_of_any_shape(
    monkeypatch: pytest.MonkeyPatch, band: Band, sizes: tuple[int, int]
) -> None:
    take(monkeypatch, Blocks(*sizes, 4, 1))
    hold(operands(70, 80), band)


@settings(max_examples=12)
@drawn_from(
    st.integers(1, 50), st.integers(1, 50), st.integers(-60, 60),
    st.none() | st.integers(0, 60), st.none() | st.integers(0, 60), st.booleans(),
)  # fmt: skip
def test_any_band(
    n_queries: int, n_keys: int, first: int, left: Any, right: Any, deterministic: bool
) -> None:
    """Also those under which nothing is seen at all."""
    hold(operands(n_queries, n_keys), Band(first, left, right), deterministic)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("band", [Band(10, None, 0), Band(0, 12, 3)])
def test_grouped_heads_share_the_band(band: Band, deterministic: bool) -> None:
    hold(operands(37, 45, group=3), band, deterministic)


def test_bounds_beyond_32_bits() -> None:
    for band in (Band(0, 2**40, 0), Band(2**40, None, 0), Band(-(2**40), 3, 2**41), Band(2**35, 5)):
        hold(operands(20, 35), band)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("kind", ["boolean", "floating"])
def test_a_mask_beside_the_band(kind: str, deterministic: bool) -> None:
    kept = torch.rand(40, 50, generator=torch.Generator().manual_seed(3)) < 0.6
    kept[7] = kept[:, 20] = False
    mask = torch.where(kept, torch.linspace(-2, 2, kept.numel()).view_as(kept).double(), -math.inf)
    given = operands(40, 50)._replace(mask=(kept if kind == "boolean" else mask).to(DEVICE))
    hold(given, Band(5, 12, 6), deterministic)
    dirty = given._replace(key=given.key.clone(), value=given.value.clone())
    dirty.key[..., 20, :] = dirty.value[..., 20, :] = math.nan  # which the mask removes
    clean, found = (
        run(given, Band(5, 12, 6), deterministic),
        run(dirty, Band(5, 12, 6), deterministic),
    )
    assert all(torch.equal(a, b) for a, b in zip(clean, found, strict=True))


@pytest.mark.parametrize(
    "band", [Band(15, 4, 6), Band(30, 0, 0), Band(-90, 4, 4), Band(20, 5, None)]
)
def test_what_no_query_sees_is_not_read(band: Band) -> None:
    """Keys before the band and after it are NaN; their gradients are zeros all the same."""
    given = operands(20, 90)
    used = seen(20, 90, band).any(0)
    assert not used.all()
    clean = run(given, band)
    for x in (given.key, given.value):
        x[..., ~used, :] = math.nan
    for deterministic in (True, False):
        found = run(given, band, deterministic)
        for ours, theirs in zip(found, clean, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)
        assert not any(x[..., ~used, :].any() for x in found[3:])


@pytest.mark.parametrize("wrong", [3, 45])
def test_a_block_of_queries_reads_no_key_outside_its_window(wrong: int) -> None:
    """Output and dQ are NaN at most in the blocks that see the key, dK and dV where they must."""
    given, band = operands(64, 64), Band(0, 6, 4)
    clean = run(given, band)
    given.value[..., wrong, :] = math.nan
    output, lse, d_query, _, _ = run(given, band)
    sees = seen(64, 64, band)[:, wrong].view(4, 16).any(1).repeat_interleave(16)
    assert torch.equal(lse, clean[1])
    for ours, theirs in ((output, clean[0]), (d_query, clean[2])):
        assert torch.equal(ours[..., ~sees, :], theirs[..., ~sees, :])
        assert ours[..., sees, :].isnan().any()


@pytest.mark.parametrize(("wrong", "clean_keys"), [(3, slice(32, 64)), (60, slice(0, 32))])
def test_a_block_of_keys_reads_no_query_outside_its_window(wrong: int, clean_keys: slice) -> None:
    """Of blocks of keys whose queries lie in other tiles, dK and dV do not meet the NaN."""
    given, band = operands(64, 64), Band(0, 6, 4)
    clean = run(given, band)
    given.query[..., wrong, :] = math.nan
    for ours, theirs in zip(run(given, band)[3:], clean[3:], strict=True):
        assert torch.equal(ours[..., clean_keys, :], theirs[..., clean_keys, :])
        assert ours[..., wrong, :].isnan().all()


@pytest.mark.parametrize(
    "band", [Band(50, 3, 3), Band(-50, 3, 0), Band(40, None, None)._replace(left=0)]
)
def test_nobody_sees_anything(band: Band) -> None:
    output, lse, *gradients = run(operands(20, 30), band)
    assert not output.any() and not any(x.any() for x in gradients)
    assert (lse == -math.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wide_band_is_no_band_to_the_bit(dtype: torch.dtype) -> None:
    given = operands(40, 50, dtype=dtype)
    lse = torch.empty(1, 1, 40, dtype=torch.float32, device=DEVICE)
    found = []
    for band in (Band(), Band(0, None, 49), Band(0, 39, None), Band(10, 49, 39)):
        output = torch.empty(1, 1, 40, E_V, dtype=dtype, device=DEVICE)
        rows = lse.clone(), lse.clone(), lse.clone()
        attend(given, Results(output, *rows, output.new_empty(0)), SCALE, band, 1)
        found.append([output, *rows])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


# How a mask may lie: one number, a row, a column, of a head, of a sample, of all; and in more
# dimensions than the kernels have.
MASKS = [(), (20,), (17, 1), (17, 20), (2, 1, 20), (2, 17, 1), (2, 1, 17, 20), (2, 2, 1, 1)]


@pytest.mark.parametrize("shape", [*MASKS, (2, 1, 1, 17, 20), (1, 2, 2, 1, 20)])
def test_a_mask_that_is_broadcast_has_a_gradient_of_its_own_shape(shape: tuple[int, ...]) -> None:
    """Summed over all scores that each number of the mask is added to."""
    more = (2,) if len(shape) == 5 else ()
    shapes = (*more, 2, 2, 17, E), (2, 1, 20, E), (2, 1, 20, E_V)
    leaves = [tensor(x, DEVICE).double().requires_grad_() for x in drawn(*shapes, shape)]
    for band in ({}, {"window": (5, 2), "causal_align": "bottom-right"}):
        found = []
        for rung in (triton_fused, torch_dense):
            function = rung.scaled_dot_product_attention_with_lse
            results = function(*leaves, **band, enable_gqa=True)
            above = [
                tensor(x, DEVICE).to(y)
                for x, y in zip(drawn(*(y.shape for y in results), seed=9), results, strict=True)
            ]
            found.append(torch.autograd.grad(results, leaves, above))
        assert found[0][3].shape == shape
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def test_the_gradient_of_a_mask_has_the_same_bits_each_time() -> None:
    shapes = (2, 20, E), (2, 35, E), (2, 35, E_V), (35,)
    leaves = [tensor(x, DEVICE).bfloat16().requires_grad_() for x in drawn(*shapes)]
    for deterministic in (True, False):
        first, second = (
            torch.autograd.grad(
                triton_fused.scaled_dot_product_attention(
                    *leaves, deterministic=deterministic
                ).sum(),
                leaves[3],
            )
            for _ in range(2)
        )
        assert torch.equal(first[0], second[0])
        assert first[0].dtype == torch.bfloat16


def test_a_tile_of_a_mask_that_the_band_has_passed_is_not_computed() -> None:
    """A key after the window is NaN, and only the gradients of blocks that see it could be, too."""
    given, band = operands(64, 64), Band(0, 6, 4)
    mask = torch.zeros(64, 64, dtype=torch.float64, device=DEVICE)
    given = given._replace(mask=mask)
    clean = run(given, band)[5]
    assert clean[seen(64, 64, band)].all()
    assert not clean[~seen(64, 64, band)].any()
    given.value[..., 45, :] = math.nan
    found = run(given, band)[5]
    assert torch.equal(found[:32], clean[:32])
    assert found[45].isnan().any()
