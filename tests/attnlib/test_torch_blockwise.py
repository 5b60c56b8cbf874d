"""What `torch_blockwise` promises beyond the contract of all forms: see test_conformance."""

from __future__ import annotations

import itertools
import math
import os
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import peak
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from implementations import Implementation
from inputs import drawn
from parameters import ALL_RULES, RULES, slow
from tolerance import assert_close, forward_size, gradient_sizes, lse_size
from torch import Tensor

from attnlib import torch_dense
from attnlib._checks import Band
from attnlib._tensors import computing_dtype
from attnlib._torch_tiles import heads, second_cache, sizes
from attnlib.torch_blockwise import (
    _headroom,
    _operator,
    block_sizes,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

B, H, L, S, E, E_V = 2, 3, 5, 7, 4, 6


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


def case(name: str) -> tuple[list[Tensor], dict[str, Any]]:
    """Return inputs and options; the masks have an empty row, and a key that no row sees."""
    heads = 1 if name == "grouped" else H
    tensors = [normal(B, H, L, E), normal(B, heads, S, E), normal(B, heads, S, E_V)]
    kept = torch.from_numpy(np.random.default_rng(3).random((L, S)) < 0.6)
    kept[2] = kept[:, 3] = False
    options: dict[str, Any] = {
        "causal": {"is_causal": True},
        "floating": {"attn_mask": torch.where(kept, normal(L, S), -math.inf)},
        "grouped": {"attn_mask": kept, "enable_gqa": True},
    }[name]
    return tensors, options


def with_gradients(
    tensors: list[Tensor], attend: Any = scaled_dot_product_attention_with_lse, **options: Any
) -> list[Tensor]:
    """Return output, log-sum-exp and all gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    output, lse = attend(*leaves, **options)
    above = normal(*output.shape, seed=5).to(output), normal(*lse.shape, seed=6).to(lse)
    return [output, lse, *torch.autograd.grad((output, lse), leaves, above)]


@settings(max_examples=30)
@given(
    n_queries=st.integers(1, 150),
    n_keys=st.integers(30, 200),
    heads=st.integers(1, 2),
    kind=st.sampled_from(["full", "causal", "boolean", "floating"]),
    scale=st.sampled_from([None, -1.0, 200.0]),
)
def test_long_sequences_in_blocks_of_its_own_choice(
    n_queries: int, n_keys: int, heads: int, kind: str, scale: float | None
) -> None:
    """On a machine with a cache of 4 KiB, so that rows have several blocks and a ragged tail."""
    shapes = (n_queries, E), (n_keys, E), (n_keys, E_V), (n_queries, E_V)
    arrays: list[Any] = drawn(*((heads, *shape) for shape in shapes))
    mask: Any = None
    if kind in ("boolean", "floating"):
        [mask] = drawn((n_queries, n_keys), seed=4)
        mask = mask > 1 if kind == "boolean" else np.where(mask > 1, mask, -np.inf)
    options = {"is_causal": kind == "causal", "scale": scale}
    form, dense = Implementation("torch_blockwise"), Implementation("torch_dense")
    with mock.patch.object(os, "sysconf", lambda name: 2**12):
        output, lse = form.with_lse(*arrays[:3], mask, **options)
        found = form.gradients(*arrays, mask, **options)
    true, true_lse = dense.with_lse(*arrays[:3], mask, **options)
    # In float64 the bounds are small; and both sides are computed.
    size, sizes = (
        forward_size(*arrays[:3], mask, **options),
        gradient_sizes(*arrays, mask, **options),
    )
    assert_close(output, true, dtype="float64", size=2 * size)
    assert_close(lse, true_lse, dtype="float64", size=2 * lse_size(*arrays[:2], mask, **options))
    for name, gradient in dense.gradients(*arrays, mask, **options).items():
        assert_close(found[name], gradient, dtype="float64", size=2 * sizes[name])


def test_the_blocks_are_those_that_are_asked_for() -> None:
    """Their results are equal but for the last bits, in which they are not."""
    tensors = [normal(200, E, dtype=torch.float32, seed=i) for i in range(3)]
    for attention in (scaled_dot_product_attention, scaled_dot_product_attention_with_lse):
        whole = attention(*tensors)[0]
        assert not torch.equal(attention(*tensors, block_size_k=3)[0], whole)
        assert torch.equal(attention(*tensors, block_size_q=200, block_size_k=200)[0], whole)


def test_a_block_size_may_be_any_integer() -> None:
    query = torch.ones(3, 2, dtype=torch.float64)
    for size in (10**30, 2**63, np.int64(2)):
        for name in ("block_size_q", "block_size_k"):
            output = scaled_dot_product_attention(query, query, query, **{name: size})
            assert torch.equal(output, query)


def test_a_causal_tile_of_any_size_hides_the_future() -> None:
    tensors = [normal(8, E), normal(8, E), normal(8, E_V)]
    truth = with_gradients(tensors, is_causal=True)
    for rows, columns in itertools.product((1, 2, 3, 5, 8), repeat=2):
        sizes = {"block_size_q": rows, "block_size_k": columns}
        for one, other in zip(with_gradients(tensors, is_causal=True, **sizes), truth, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [-600.0, 600.0])
@pytest.mark.parametrize("step", [40.0, 100.0])
def test_scores_that_climb_from_far_away(start: float, step: float) -> None:
    """A shift that is large, and yet inside the product, moves by what the scores have climbed."""
    query, key = torch.ones(1, 1), start + step * torch.tensor([0.0, 0, 1, 1, 2, 2])[:, None]
    output, lse = scaled_dot_product_attention_with_lse(
        query, key, torch.eye(6), block_size_k=2, scale=1.0
    )
    torch.testing.assert_close(output, torch.tensor([[0.0, 0, 0, 0, 0.5, 0.5]]))
    torch.testing.assert_close(lse, torch.tensor([start + 2 * step + math.log(2)]))


@pytest.mark.parametrize("step", [-300.0, -3.0, 15.0, 25.0, 300.0])
def test_scores_that_climb_from_block_to_block(step: float) -> None:
    query, key = torch.ones(4, 1).double(), step * torch.arange(9.0)[:, None].double()
    tensors, dense = [query, key, normal(9, 2)], torch_dense.scaled_dot_product_attention_with_lse
    found = with_gradients(tensors, block_size_k=2, scale=1.0)
    for ours, theirs in zip(found, with_gradients(tensors, dense, scale=1.0), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scale", [1.3, 49.0])
def test_a_mask_of_the_least_number_alone_is_no_mask(scale: float) -> None:
    """Its shift must not go through the product with the scale, which would round it."""
    query, key, value = torch.full((3, 2), 1e-3), torch.ones(6, 2), torch.arange(6.0)[:, None]
    mask = torch.full((3, 6), torch.finfo(torch.float32).min)
    output = scaled_dot_product_attention(query, key, value, mask, scale=scale, block_size_k=2)
    torch.testing.assert_close(output, torch.full((3, 1), 2.5))


def test_rows_whose_first_blocks_are_empty() -> None:
    """Their first score may be far below 0: a power of it alone would vanish."""
    mask = torch.full((3, 6), -math.inf, dtype=torch.float64)
    mask[0, 5], mask[1, 0], mask[2, 3] = -5000.0, -5000.0, 7000.0
    tensors = [torch.zeros(3, 1).double(), torch.zeros(6, 1).double(), normal(6, 2)]
    output, lse = scaled_dot_product_attention_with_lse(*tensors, mask, block_size_k=2)
    assert torch.equal(output, tensors[2][[5, 0, 3]])
    assert torch.equal(lse, torch.tensor([-5000.0, -5000.0, 7000.0]).double())


def test_nan_in_a_value_stays_in_its_tiles() -> None:
    """The policy: within a tile 0 · NaN is NaN, and beyond it nothing is read."""
    query, key, value = normal(6, E), normal(6, E), normal(6, E_V)
    value[4, 1] = math.nan
    output = scaled_dot_product_attention(query, key, value, is_causal=True, block_size_q=3)
    assert output[:3].isfinite().all()
    assert output[3:, 1].isnan().all()
    assert output[3:, 2:].isfinite().all()


def test_room_is_made_for_values_near_the_largest_number_alone() -> None:
    most = torch.finfo(torch.float32).max
    for device in ("cpu", "meta"):  # meta looks at nothing, as a GPU does
        assert _headroom(torch.empty(2, 0, device=device), torch.float32) is None
        assert _headroom(torch.empty(0, 2, device=device), torch.float32) is None
    assert _headroom(torch.full((2, 1), most / 4), torch.float32) is None  # for two keys
    room = _headroom(torch.full((2, 1), 1.1 * most / 4), torch.float32)
    assert room is not None and room.factor == 1 / 8 and room.bound == 1.1 * most / 4
    assert _headroom(torch.empty(2, 1, device="meta"), torch.float32) is not None


@pytest.mark.parametrize("n_keys", range(1, 40, 3))
def test_values_of_the_largest_number_have_a_mean(n_keys: int) -> None:
    most = torch.finfo(torch.float64).max
    query, key = normal(3, E), normal(n_keys, E)
    value = torch.full((n_keys, 1), -most, dtype=torch.float64)
    output = scaled_dot_product_attention(query, key, value, block_size_k=5)
    assert (output / most + 1).abs().max() < 1e-14


def test_the_sizes_that_are_chosen_can_be_asked_for() -> None:
    query, key = torch.zeros(7, E), torch.zeros(5, E)
    assert block_sizes(query, key)[:2] == block_sizes(query, key, is_causal=True)[:2] == (7, 5)
    with pytest.raises(TypeError, match="is_causal must be True or False; got 1"):
        block_sizes(query, key, is_causal=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"key must be a torch\.Tensor; got list"):
        block_sizes(query, [1.0])  # type: ignore[arg-type]


def test_nan_in_a_value_takes_no_room_from_the_others() -> None:
    most = torch.finfo(torch.float32).max
    value = torch.full((2, 8, 2), 0.9 * most)
    value[0, 0, 0] = math.nan
    kept = torch.arange(8) > 0
    output = scaled_dot_product_attention(torch.zeros(2, 3, 1), torch.zeros(2, 8, 1), value, kept)
    torch.testing.assert_close(output / most, torch.full((2, 3, 2), 0.9))


# -- precision, and the same bits ------------------------------------------------------------------


def test_sums_are_kept_in_float64_only_where_the_scale_needs_it() -> None:
    for scale, dtype in [(None, torch.float32), (0.5, torch.float32), (1e39, torch.float64)]:
        for narrow in (torch.float32, torch.bfloat16):
            assert computing_dtype(narrow, scale) == dtype
        assert computing_dtype(torch.float64, scale) == torch.float64


def test_gradients_come_in_the_dtype_of_their_tensors() -> None:
    tensors = [x.bfloat16() for x in case("causal")[0]]
    options = (Band().numbers(), None, 1, [0, 0, 0])
    output, lse, *of_rows = _operator.forward(*tensors, None, *options)
    assert {x.dtype for x in (output, lse, *of_rows[:2])} == {torch.float32}
    needed = [True, True, True, False]
    found = _operator.backward(*tensors, None, output, *of_rows, output, lse, needed, *options)
    assert {x.dtype for x in found[:3]} == {torch.bfloat16}


@pytest.mark.parametrize("name", ["causal", "floating", "grouped"])
def test_half_precision_is_rounded_once_in_gradients_too(name: str) -> None:
    tensors, options = case(name)
    half = [x.bfloat16() for x in tensors]
    if name == "floating":
        options["attn_mask"] = options["attn_mask"].float()

    def gradients(inputs: list[Tensor]) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        output = scaled_dot_product_attention(*leaves, **options)
        above = normal(*output.shape, seed=5, dtype=half[0].dtype).to(output.dtype)
        return list(torch.autograd.grad(output, leaves, above))

    for ours, theirs in zip(gradients(half), gradients([x.float() for x in half]), strict=True):
        assert torch.equal(ours, theirs.to(ours.dtype))


@pytest.mark.parametrize("name", ["causal", "floating", "grouped"])
def test_the_same_call_gives_the_same_bits(name: str) -> None:
    tensors, options = case(name)
    tensors = [x.float().repeat(1, 1, 60, 1) for x in tensors]
    if "attn_mask" in options:
        mask = options["attn_mask"].repeat(60, 60)
        options["attn_mask"] = mask if name == "grouped" else mask.float()
    first, second = (with_gradients(tensors, **options) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# -- memory ----------------------------------------------------------------------------------------


def saved(tensors: list[Tensor], **options: Any) -> int:
    """Return how many numbers autograd keeps for the backward."""
    kept: list[int] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        scaled_dot_product_attention(*tensors, **options)
    return sum(kept)


def test_nothing_of_the_size_of_the_scores_is_kept() -> None:
    n_tokens = 301
    tensors = [normal(2, n_tokens, n, dtype=torch.float32).requires_grad_() for n in (E, E, E_V)]
    numbers = 2 * n_tokens * (2 * E + 2 * E_V + 2)  # q, k, v, output and two a row
    assert saved(tensors) == saved(tensors, is_causal=True) == numbers
    mask = torch.zeros(n_tokens, requires_grad=True)
    assert saved(tensors, attn_mask=mask) == numbers + n_tokens  # the mask, as it came


def attend_and_differentiate(n_tokens: int) -> None:
    tensors = [torch.randn(1, n_tokens, 17, requires_grad=True) for _ in range(3)]
    scaled_dot_product_attention(*tensors).sum().backward()


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_memory_grows_with_the_length() -> None:
    """The scores of 4,096 tokens alone are 64 MiB; inputs, results and gradients are 2.

    What is as large as that comes from the system, and not from what the process has left.
    """
    assert peak.added(attend_and_differentiate, 700, 4096) < 32 * 2**20


# -- the operator, and its walk over heads ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rules"),
    [("floating", RULES), slow("floating", ALL_RULES), slow("grouped", ALL_RULES)],
)
def test_the_operators_keep_the_rules_of_torch(name: str, rules: tuple[str, ...]) -> None:
    """Shapes of the fake ones, nothing aliased, nothing changed."""
    tensors, options = case(name)
    group = H if name == "grouped" else 1
    inputs = (*tensors, options["attn_mask"], Band().numbers(), None, group, [2, 3, 0])
    torch.library.opcheck(_operator.forward, inputs, test_utils=rules)
    output, lse, *of_rows = _operator.forward(*inputs)
    needed = [True, False, True, name == "floating"]
    rest = (output, *of_rows, output, lse, needed, *inputs[4:])
    torch.library.opcheck(_operator.backward, (*inputs[:4], *rest), test_utils=rules)


@pytest.mark.parametrize("together", [1, 2, 9])
@pytest.mark.parametrize(
    ("batch", "query", "key"),
    [
        ((2, 5), (2, 5), (2, 5)), ((5, 2), (5, 2), (5, 2)), ((2, 5), (2, 5), (2, 1)),
        ((5, 2), (5, 1), (2,)), ((), (), ()), ((3,), (1,), (1,)),
    ],
)
def test_the_walk_comes_to_each_head_once(
    together: int, batch: tuple[int, ...], query: tuple[int, ...], key: tuple[int, ...]
) -> None:
    """With the queries and keys that belong to it, whether they broadcast or not."""
    q, k = (1 + torch.arange(math.prod(own)).reshape(*own, 1, 1) for own in (query, key))
    found = torch.zeros(*batch, 2, 1, dtype=q.dtype)
    for some_q, some_k, _, nothing, some in heads([q, k, q, None, found], together):
        assert nothing is None
        assert isinstance(some, Tensor) and len(some) <= together
        assert isinstance(some_q, Tensor) and isinstance(some_k, Tensor)
        some[:, :1] += some_q
        some[:, 1:] += some_k
    assert torch.equal(found, torch.cat([x.expand(*batch, 1, 1) for x in (q, k)], -2))


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


SINGLE, DOUBLE = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("cache", "n_queries", "n_keys", "is_causal", "dtype", "found"),
    [
        (2**20, 5000, 6000, False, SINGLE, (1024, 512, 2)),
        (2**20, 5000, 6000, False, DOUBLE, (512, 512, 2)),
        (5 * 2**18, 5000, 6000, False, SINGLE, (1024, 640, 2)),
        (2**20, 1024, 9000, True, SINGLE, (128, 4096, 2)),
        (2**20, 1025, 9000, True, SINGLE, (256, 2048, 2)),
        (2**20, 512, 512, True, SINGLE, (128, 512, 8)),
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
    on_gpu = SimpleNamespace(is_cuda=True, shape=(2, 3, 5000, 64))

    def found(query: Any, band: Band, *lengths: int) -> tuple[int, int, int]:
        return sizes(query, on_gpu, band, SINGLE, *lengths)  # type: ignore[arg-type]

    assert found(on_gpu, Band(), 0, 0) == found(on_gpu, Band(right=0), 0, 0) == (1024, 1024, 16)
    short = SimpleNamespace(is_cuda=True, shape=(2, 3, 8, 64))
    assert found(short, Band(right=0), 0, 64) == (8, 64, 2**24 // (8 * 64))
    assert found(on_gpu, Band(), 5000, 5000) == (5000, 5000, 1)
