"""What `torch_blockwise` promises beyond the contract of all forms: see test_conformance."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from claims import hold
from implementations import Implementation
from inputs import drawn
from tolerance import call_of
from torch import Tensor

from attnlib._checks import Band
from attnlib._torch_tiles import second_cache, sizes
from attnlib.torch_blockwise import (
    block_sizes,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

E, E_V = 4, 6


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


@pytest.mark.parametrize("kind", ["full", "causal", "boolean", "floating"])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(150, 77), (33, 200)])
def test_long_sequences_in_blocks_of_its_own_choice(n_queries: int, n_keys: int, kind: str) -> None:
    """On a machine with a cache of 4 KiB, so that rows have several blocks and a ragged tail."""
    arrays = drawn((2, 3, n_queries, E), (3, n_keys, E), (2, 3, n_keys, E_V))
    if kind in ("boolean", "floating"):
        [mask] = drawn((n_queries, n_keys), seed=4)
        arrays.append(mask > 1 if kind == "boolean" else np.where(mask > 1, mask, -np.inf))
    options: dict[str, Any] = {"scale": -1.0} | ({"is_causal": True} if kind == "causal" else {})
    with mock.patch.object(os, "sysconf", lambda name: 2**12):
        hold(Implementation("torch_blockwise"), call_of(*arrays, **options))


def test_the_blocks_are_those_that_are_asked_for() -> None:
    """Their results are equal but for the last bits, in which they are not."""
    tensors = [normal(200, E, dtype=torch.float32, seed=i) for i in range(3)]
    for attention in (scaled_dot_product_attention, scaled_dot_product_attention_with_lse):
        whole = attention(*tensors)[0]
        assert not torch.equal(attention(*tensors, block_size_k=3)[0], whole)
        for size in (200, np.int64(200), 2**63):
            assert torch.equal(attention(*tensors, block_size_q=size, block_size_k=size)[0], whole)


def test_nan_in_a_value_stays_in_its_tiles() -> None:
    """The policy: within a tile 0 · NaN is NaN, and beyond it nothing is read."""
    query, key, value = normal(6, E), normal(6, E), normal(6, E_V)
    value[4, 1] = math.nan
    output = scaled_dot_product_attention(query, key, value, is_causal=True, block_size_q=3)
    assert output[:3].isfinite().all()
    assert output[3:, 1].isnan().all()
    assert output[3:, 2:].isfinite().all()


def test_half_precision_is_rounded_once_in_gradients_too() -> None:
    mask = normal(5, 7, dtype=torch.float32, seed=4)

    def gradients(*inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        output = scaled_dot_product_attention(*leaves, mask, enable_gqa=True)
        above = normal(*output.shape, seed=5, dtype=torch.bfloat16).to(output.dtype)
        return torch.autograd.grad(output, leaves, above)

    half = [normal(3, 5, E), normal(1, 7, E), normal(1, 7, E_V)]
    half = [x.bfloat16() for x in half]
    for ours, wide in zip(gradients(*half), gradients(*(x.float() for x in half)), strict=True):
        assert torch.equal(ours, wide.bfloat16())


# -- memory ----------------------------------------------------------------------------------------


def test_nothing_of_the_size_of_the_scores_is_kept() -> None:
    n_tokens, kept = 301, list[Tensor]()
    tensors = [normal(2, n_tokens, n, dtype=torch.float32).requires_grad_() for n in (E, E, E_V)]
    mask = torch.zeros(n_tokens, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        scaled_dot_product_attention(*tensors, mask)
    # q, k, v, output and two a row; and the mask, as it came
    assert sum(x.numel() for x in kept) == 2 * n_tokens * (2 * E + 2 * E_V + 2) + n_tokens


def test_nothing_of_the_size_of_the_scores_is_made() -> None:
    n = 4096
    leaves = [torch.randn(1, n, 17, requires_grad=True) for _ in range(3)]
    with torch.profiler.profile(profile_memory=True) as seen:
        scaled_dot_product_attention(*leaves).sum().backward()
    made = [event.cpu_memory_usage for event in seen.events()]
    assert n * 17 * 4 <= max(made) < 4 * n * n / 4


# -- the choice of blocks: nothing else sees a worse one, which is only slower ---------------------


def made_up(monkeypatch: pytest.MonkeyPatch, cache: int | type[Exception], threads: int) -> None:
    """Make a machine whose cores have this second cache, or that refuses to say."""

    def sysconf(name: str) -> int:
        assert name == "SC_LEVEL2_CACHE_SIZE"
        if isinstance(cache, int):
            return cache
        raise cache

    monkeypatch.setattr(os, "sysconf", sysconf)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)


def test_the_second_cache_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {2**18: 2**18, 2**21: 2**21, 2**25: 2**21}
    for cache, size in (known | dict.fromkeys((0, -1, ValueError, OSError), 2**20)).items():
        made_up(monkeypatch, cache, 2)
        assert second_cache() == size
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert second_cache() == 2**20
    query, key = torch.zeros(7, E), torch.zeros(5, E)
    assert block_sizes(query, key)[:2] == block_sizes(query, key, is_causal=True)[:2] == (7, 5)


SINGLE, DOUBLE = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("cache", "n_queries", "n_keys", "is_causal", "dtype", "found"),
    [
        (2**20, 5000, 6000, False, SINGLE, (1024, 512, 2)),
        (2**20, 5000, 6000, False, DOUBLE, (512, 512, 2)),
        (5 * 2**18, 5000, 6000, False, SINGLE, (1024, 640, 2)),
        (2**20, 1024, 9000, True, SINGLE, (128, 4096, 2)),
        (2**20, 1025, 9000, True, SINGLE, (256, 2048, 2)),
        (2**20, 100, 90, True, SINGLE, (100, 90, 58)),
        (2**20, 1, 2**22, False, SINGLE, (1, 2**19, 2)),
        (2**20, 0, 0, True, SINGLE, (1, 1, 2**19)),
    ],
)
def test_tiles_fit_the_machine(
    monkeypatch: pytest.MonkeyPatch, cache: int, n_queries: int, n_keys: int, is_causal: bool,
    dtype: torch.dtype, found: tuple[int, int, int],
) -> None:
    made_up(monkeypatch, cache, 2)
    query, key = torch.empty(n_queries, 1), torch.empty(n_keys, 1)
    band = Band(right=0 if is_causal else None)
    assert sizes(query, key, band, dtype, 0, 0) == found
    made_up(monkeypatch, cache, 64)
    *lengths, together = sizes(query, key, band, dtype, 0, 0)
    assert lengths == [*found[:2]] and together >= 64  # a tile for every core


def test_a_gpu_takes_large_blocks_and_many_heads_together() -> None:
    long, short = (SimpleNamespace(is_cuda=True, shape=(2, 3, n, 64)) for n in (5000, 8))
    of: Any = sizes
    for band in (Band(), Band(right=0)):
        assert of(long, long, band, SINGLE, 0, 0) == (1024, 1024, 16)
    assert of(short, long, Band(right=0), SINGLE, 0, 64) == (8, 64, 2**24 // (8 * 64))
    assert of(long, long, Band(), SINGLE, 5000, 5000) == (5000, 5000, 1)
