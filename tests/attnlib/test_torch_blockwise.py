"""What `torch_blockwise` promises beyond the contract of all rungs: see test_conformance."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import LAYOUTS, drawn
from rungs import DTYPES, Rung
from rungs import tensor as as_tensor
from tolerance import HALF, assert_close, forward_size, gradient_sizes, lse_size
from torch import Tensor

from attnlib import numpy_tokenwise, torch_dense
from attnlib._checks import Band
from attnlib._torch_door import computing_dtype
from attnlib._torch_operators import headroom_of
from attnlib._torch_tiles import cut, heads, sizes
from attnlib.torch_blockwise import (
    _operator,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

B, H, L, S, E, E_V = 2, 3, 5, 7, 4, 6
CASES = ["full", "causal", "boolean", "floating", "grouped"]


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


def case(name: str) -> tuple[list[Tensor], dict[str, Any]]:
    """Return inputs and options; the masks have an empty row, and a key that no row sees."""
    heads = 1 if name == "grouped" else H
    tensors = [normal(B, H, L, E), normal(B, heads, S, E), normal(B, heads, S, E_V)]
    kept = torch.from_numpy(np.random.default_rng(3).random((L, S)) < 0.6)
    kept[2] = kept[:, 3] = False
    options: dict[str, Any] = {
        "full": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": kept},
        "floating": {"attn_mask": torch.where(kept, normal(L, S), -math.inf)},
        "grouped": {"attn_mask": kept, "enable_gqa": True},
    }[name]
    return tensors, options


def attend(options: dict[str, Any]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function of the inputs whose results are finite."""

    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = scaled_dot_product_attention_with_lse(*tensors, **options)
        return output, lse.masked_fill(lse == -math.inf, 0)

    return function


def with_gradients(tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """Return output, log-sum-exp and all gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    output, lse = scaled_dot_product_attention_with_lse(*leaves, **options)
    above = normal(*output.shape, seed=5).to(output), normal(*lse.shape, seed=6).to(lse)
    return [output, lse, *torch.autograd.grad((output, lse), leaves, above)]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Rung, str, list[Any], dict[str, Any]]:
    """Return a rung with blocks of some size, and a call of it."""
    length, width = st.integers(1, 9), st.integers(1, 5)
    n_queries, n_keys, n_features, n_values = (draw(x) for x in (length, length, width, width))
    group, n_key_heads = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 3))
    n_heads = group * n_key_heads
    batch = draw(st.sampled_from([(), (1,), (2,)]))
    dtype = draw(st.sampled_from(list(DTYPES)))
    key_batch = batch if draw(st.booleans()) else (1,) * len(batch)
    layout = draw(st.sampled_from([np.asarray, *LAYOUTS]))
    shapes = (
        (*batch, n_heads, n_queries, n_features),
        (*key_batch, n_key_heads, n_keys, n_features),
        (*batch, n_key_heads, n_keys, n_values),
        (*batch, n_heads, n_queries, n_values),
    )
    arrays: list[Any] = drawn(*shapes, dtype=dtype, seed=draw(st.integers(0, 9)))
    kind = draw(st.sampled_from(["none", "causal", "boolean", "floating"]))
    mask = None
    if kind in ("boolean", "floating"):
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        axes = (*batch, n_heads, n_queries, n_keys)
        shape = tuple(n if draw(st.booleans()) else 1 for n in axes)[draw(st.integers(0, 1)) :]
        mask = rng.random(shape) < 0.6
        if kind == "floating":
            mask = np.where(mask, rng.normal(size=shape), -np.inf)
            mask = mask.astype(draw(st.sampled_from([np.float32, DTYPES[dtype]])))
    blocks = {
        name: draw(st.integers(1, 12)) for name in ("block_size_q", "block_size_k")
    }  # longer than any length, too
    options: dict[str, Any] = {
        "is_causal": kind == "causal",
        "enable_gqa": group > 1,
        "scale": draw(st.sampled_from([None, 0.0, -0.7, 2.5])),
    }
    rung = Rung("torch_blockwise", blocks=tuple(blocks.items()))
    return rung, dtype, [*map(layout, arrays), mask], options


def wide(array: Any) -> Any:
    return array if array is None or array.dtype == np.bool_ else array.astype(np.float64)


@given(problem=problems())
def test_values_and_gradients_are_those_of_the_definition(
    problem: tuple[Rung, str, list[Any], dict[str, Any]],
) -> None:
    rung, dtype, (query, key, value, upstream, mask), options = problem
    scale = options["scale"]
    output, lse = rung.with_lse(query, key, value, mask, **options)
    truth, true_lse = numpy_tokenwise.scaled_dot_product_attention_with_lse(
        *map(wide, (query, key, value, mask)), **options
    )
    half = dtype in HALF
    peer = plain_torch.plain(query, key, value, mask, **options) if half else None
    size = forward_size(query, key, value, mask, scale)
    assert_close(output, truth, dtype=dtype, size=size, peer=peer)
    sums = "float32" if half else dtype
    assert_close(lse, true_lse, dtype=sums, size=lse_size(query, key, mask, scale))

    lse_upstream = np.linspace(-1, 2, lse.size).reshape(lse.shape).astype(sums)
    given = (query, key, value, upstream, mask, lse_upstream)
    found = rung.gradients(*given, **options)
    true = plain_torch.gradients(*map(wide, given), **options)
    sizes = gradient_sizes(*given, scale)
    for name, gradient in found.items():
        # Computed in float32, and rounded once.
        exact, rounding = true[name], torch.finfo(as_tensor(gradient).dtype).eps
        largest = max(float(np.abs(exact).max(initial=0)), 2.0**-20)
        bound = sizes[name] * torch.finfo(as_tensor(lse).dtype).eps + rounding * largest
        assert np.isfinite(gradient.astype(np.float64)).all()
        assert np.abs(gradient.astype(np.float64) - exact).max(initial=0) <= bound


@settings(max_examples=30)
@given(
    n_queries=st.integers(1, 300),
    n_keys=st.integers(1030, 2200),
    heads=st.integers(1, 2),
    kind=st.sampled_from(["full", "causal", "boolean", "floating"]),
    scale=st.sampled_from([None, -1.0, 200.0]),
)
def test_long_sequences_in_blocks_of_its_own_choice(
    n_queries: int, n_keys: int, heads: int, kind: str, scale: float | None
) -> None:
    """Beyond the sizes that are chosen, so that rows have several blocks and a ragged tail."""
    shapes = (n_queries, E), (n_keys, E), (n_keys, E_V), (n_queries, E_V)
    arrays: list[Any] = drawn(*((heads, *shape) for shape in shapes))
    mask: Any = None
    if kind in ("boolean", "floating"):
        [mask] = drawn((n_queries, n_keys), seed=4)
        mask = mask > 1 if kind == "boolean" else np.where(mask > 1, mask, -np.inf)
    options = {"is_causal": kind == "causal", "scale": scale}
    rung, dense = Rung("torch_blockwise"), Rung("torch_dense")
    output, lse = rung.with_lse(*arrays[:3], mask, **options)
    true, true_lse = dense.with_lse(*arrays[:3], mask, **options)
    # In float64 the bounds are small; and both sides are computed.
    size, sizes = forward_size(*arrays[:3], mask, scale), gradient_sizes(*arrays, mask, None, scale)
    assert_close(output, true, dtype="float64", size=2 * size)
    assert_close(lse, true_lse, dtype="float64", size=2 * lse_size(*arrays[:2], mask, scale))
    found = rung.gradients(*arrays, mask, **options)
    for name, gradient in dense.gradients(*arrays, mask, **options).items():
        assert_close(found[name], gradient, dtype="float64", size=2 * sizes[name])


def test_the_blocks_are_those_that_are_asked_for() -> None:
    """Their results are equal but for the last bits, in which they are not."""
    tensors = [normal(200, E, dtype=torch.float32, seed=i) for i in range(3)]
    for attention in (scaled_dot_product_attention, scaled_dot_product_attention_with_lse):
        whole = attention(*tensors)[0]
        assert not torch.equal(attention(*tensors, block_size_k=3)[0], whole)
        assert torch.equal(attention(*tensors, block_size_q=200, block_size_k=200)[0], whole)


def test_gradients_come_in_the_dtype_of_their_tensors() -> None:
    tensors = [x.bfloat16() for x in case("full")[0]]
    options = (Band().numbers(), None, 1, [0, 0, 0])
    output, lse, *of_rows = _operator.forward(*tensors, None, *options)
    assert {x.dtype for x in (output, lse, *of_rows[:2])} == {torch.float32}
    needed = [True, True, True, False]
    found = _operator.backward(*tensors, None, output, *of_rows, output, lse, needed, *options)
    assert {x.dtype for x in found[:3]} == {torch.bfloat16}


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


@pytest.mark.parametrize("scale", [1.3, 49.0])
def test_a_mask_of_the_least_number_alone_is_no_mask(scale: float) -> None:
    """Its shift must not go through the product with the scale, which would round it."""
    query, key, value = torch.full((3, 2), 1e-3), torch.ones(6, 2), torch.arange(6.0)[:, None]
    mask = torch.full((3, 6), torch.finfo(torch.float32).min)
    output = scaled_dot_product_attention(query, key, value, mask, scale=scale, block_size_k=2)
    torch.testing.assert_close(output, torch.full((3, 1), 2.5))


@pytest.mark.parametrize("wanted", [(3,), (0, 3), (2, 3)])
def test_the_gradient_of_a_mask_does_not_depend_on_which_others_are_wanted(
    wanted: tuple[int, ...],
) -> None:
    tensors, options = case("floating")
    mask = options["attn_mask"]

    def gradients(places: tuple[int, ...]) -> dict[int, Tensor]:
        leaves = [x.clone().requires_grad_(i in places) for i, x in enumerate([*tensors, mask])]
        output, lse = attend({"block_size_q": 2, "block_size_k": 3})(*leaves)
        asked = [leaves[i] for i in places]
        total = (output * normal(B, H, L, E_V)).sum() + lse.sum()
        return dict(zip(places, torch.autograd.grad(total, asked), strict=True))

    everything = gradients((0, 1, 2, 3))
    for place, found in gradients(wanted).items():
        assert torch.equal(found, everything[place])


@pytest.mark.parametrize("name", CASES)
def test_the_blocks_change_the_rounding_alone(name: str) -> None:
    tensors, options = case(name)
    truth = with_gradients(tensors, **options)
    for rows, columns in ((1, 1), (1, 7), (2, 3), (3, 2), (5, 1), (5, 7), (64, 64), (None, 2)):
        found = with_gradients(tensors, block_size_q=rows, block_size_k=columns, **options)
        for ours, theirs in zip(found, truth, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_the_same_call_gives_the_same_bits(name: str, dtype: torch.dtype) -> None:
    tensors, options = case(name)
    tensors = [x.to(dtype).repeat(1, 1, 60, 1) for x in tensors]
    if "attn_mask" in options:
        options["attn_mask"] = options["attn_mask"].repeat(60, 60)
        if options["attn_mask"].dtype != torch.bool:
            options["attn_mask"] = options["attn_mask"].to(dtype)
    first, second = (with_gradients(tensors, **options) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_rounded_once_in_gradients_too(name: str, dtype: str) -> None:
    tensors, options = case(name)
    half = [x.to(getattr(torch, dtype)) for x in tensors]
    if name == "floating":
        options["attn_mask"] = options["attn_mask"].float()

    def gradients(inputs: list[Tensor]) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        output = scaled_dot_product_attention(*leaves, **options)
        above = normal(*output.shape, seed=5, dtype=half[0].dtype).to(output.dtype)
        return list(torch.autograd.grad(output, leaves, above))

    for ours, theirs in zip(gradients(half), gradients([x.float() for x in half]), strict=True):
        assert torch.equal(ours, theirs.to(ours.dtype))


def test_grouped_heads_gather_their_gradients_in_float32() -> None:
    """256 equal terms of 1 + 1/128 in bfloat16 would stop growing long before the end."""
    group, ones = 256, torch.ones(1, 1, 1, dtype=torch.bfloat16)
    query, key = ones.repeat(group, 1, 1), ones.clone()
    value = ones.clone().requires_grad_()
    output = scaled_dot_product_attention(query, key, value, enable_gqa=True)
    output.backward(torch.full_like(output, 1 + 2**-7))
    assert value.grad is not None
    assert value.grad.item() == 258


@pytest.mark.parametrize("blocks", [(1, 1), (2, 3), (None, None)])
def test_what_causal_tiles_skip_is_never_read(blocks: tuple[int | None, int | None]) -> None:
    query, key, value = normal(L, E), normal(S + 9, E), normal(S + 9, E_V)
    sizes = {"block_size_q": blocks[0], "block_size_k": blocks[1]}
    clean = with_gradients([query, key, value], is_causal=True, **sizes)
    key[L:] = value[L:] = math.nan
    dirty = with_gradients([query, key, value], is_causal=True, **sizes)
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty, strict=True))


def test_a_block_of_the_future_changes_nothing_in_the_past() -> None:
    tensors = [normal(8, E), normal(8, E), normal(8, E_V)]
    sizes = {"is_causal": True, "block_size_q": 2, "block_size_k": 2}
    clean = scaled_dot_product_attention(*tensors, **sizes)
    tensors[1][4:] = tensors[2][4:] = math.nan
    dirty = scaled_dot_product_attention(*tensors, **sizes)
    assert torch.equal(dirty[:4], clean[:4])
    assert dirty[4:].isnan().all()


def test_nan_in_a_value_stays_in_its_tiles() -> None:
    """The policy: within a tile 0 · NaN is NaN, and beyond it nothing is read."""
    query, key, value = normal(6, E), normal(6, E), normal(6, E_V)
    value[4, 1] = math.nan
    output = scaled_dot_product_attention(query, key, value, is_causal=True, block_size_q=3)
    assert output[:3].isfinite().all()
    assert output[3:, 1].isnan().all()
    assert output[3:, 2:].isfinite().all()


def test_rows_whose_first_blocks_are_empty() -> None:
    """Their first score may be far below 0: a power of it alone would vanish."""
    mask = torch.full((3, 6), -math.inf, dtype=torch.float64)
    mask[0, 5], mask[1, 0], mask[2, 3] = -5000.0, -5000.0, 7000.0
    tensors = [torch.zeros(3, 1).double(), torch.zeros(6, 1).double(), normal(6, 2)]
    output, lse = scaled_dot_product_attention_with_lse(*tensors, mask, block_size_k=2)
    assert torch.equal(output, tensors[2][[5, 0, 3]])
    assert torch.equal(lse, torch.tensor([-5000.0, -5000.0, 7000.0]).double())


@pytest.mark.parametrize("step", [-300.0, -30.0, -3.0, 3.0, 15.0, 25.0, 300.0])
def test_scores_that_climb_from_block_to_block(step: float) -> None:
    query, key = torch.ones(4, 1).double(), step * torch.arange(9.0)[:, None].double()
    tensors = [query, key, normal(9, 2)]
    found = with_gradients(tensors, block_size_k=2, scale=1.0)
    leaves = [x.clone().requires_grad_() for x in tensors]
    output, lse = torch_dense.scaled_dot_product_attention_with_lse(*leaves, scale=1.0)
    above = normal(*output.shape, seed=5), normal(*lse.shape, seed=6)
    truth = [output, lse, *torch.autograd.grad((output, lse), leaves, above)]
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def saved(tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """Return what autograd keeps for the backward."""
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        scaled_dot_product_attention(*tensors, **options)
    return kept


@pytest.mark.parametrize("is_causal", [False, True])
def test_nothing_of_the_size_of_the_scores_is_kept(is_causal: bool) -> None:
    n_tokens = 301
    tensors = [normal(2, n_tokens, n, dtype=torch.float32).requires_grad_() for n in (E, E, E_V)]
    kept = saved(tensors, is_causal=is_causal)
    numbers = sum(x.numel() for x in kept)
    assert numbers == 2 * n_tokens * (2 * E + 2 * E_V + 2)  # q, k, v, output and two a row
    wanted = torch.zeros(n_tokens, requires_grad=True)
    kept = saved([*tensors, wanted])
    assert sum(x.numel() for x in kept) == numbers + n_tokens  # the mask, as it came


def peak(n_tokens: int) -> int:
    """Return how many bytes one call with its backward adds to a fresh process, at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    script = f"""
import resource, torch
from attnlib.torch_blockwise import scaled_dot_product_attention as attend
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * {unit}
def run(n):
    q, k, v = (torch.randn(1, n, 64, requires_grad=True) for _ in range(3))
    attend(q, k, v).sum().backward()
run(700)
before = used()
run({n_tokens})
print(used() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_memory_grows_with_the_length() -> None:
    """The scores of 8,192 tokens alone are 256 MiB; inputs, results and gradients are 16."""
    assert peak(8192) < 64 * 2**20


def test_second_derivatives_name_the_form_that_has_them() -> None:
    leaves = [x.requires_grad_() for x in case("full")[0]]
    output = scaled_dot_product_attention(*leaves)
    with pytest.raises(RuntimeError, match=r"no second derivatives .*; torch_dense has them"):
        torch.autograd.grad(output.sum(), leaves, create_graph=True)


@pytest.mark.parametrize("name", CASES)
def test_compiled_whole(name: str) -> None:
    tensors, options = case(name)
    leaves = [x.requires_grad_() for x in tensors]
    if name == "floating":
        options["attn_mask"].requires_grad_()
        leaves.append(options["attn_mask"])
    torch.compiler.reset()
    function = attend(options)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = [f(*leaves[:3]) for f in (compiled, function)]
    torch.testing.assert_close(*results)
    found = [torch.autograd.grad(o.sum() + lse.sum(), leaves) for o, lse in results]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", CASES)
def test_the_operators_keep_the_rules_of_torch(name: str) -> None:
    """Shapes of the fake ones, nothing aliased, nothing changed."""
    tensors, options = case(name)
    group = H if name == "grouped" else 1
    band = Band(right=0 if name == "causal" else None)
    inputs = (*tensors, options.get("attn_mask"), band.numbers(), None, group, [2, 3, 0])
    torch.library.opcheck(_operator.forward, inputs)
    output, lse, *of_rows = _operator.forward(*inputs)
    needed = [True, False, True, name == "floating"]
    rest = (output, *of_rows, output, lse, needed, *inputs[4:])
    torch.library.opcheck(_operator.backward, (*inputs[:4], *rest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_meta(name: str, dtype: torch.dtype) -> None:
    tensors, options = case(name)
    there = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in options.items()}
    if name == "floating":
        there["attn_mask"] = there["attn_mask"].to(dtype)
    leaves = [x.to("meta", dtype).requires_grad_() for x in tensors]
    output, lse = scaled_dot_product_attention_with_lse(*leaves, **there)
    assert output.shape == (B, H, L, E_V)
    assert lse.shape == (B, H, L)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert output.device.type == "meta"
    found = torch.autograd.grad(output.sum(), leaves)
    assert [x.shape for x in found] == [x.shape for x in leaves]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_that_of_torch(dtype: torch.dtype) -> None:
    leaves = [x.float().requires_grad_() for x in case("full")[0]]
    with torch.autocast("cpu", dtype):
        output = scaled_dot_product_attention(*leaves)
        found = torch.autograd.grad(output.sum(), leaves)
    assert output.dtype == dtype
    rounded = [x.detach().to(dtype).requires_grad_() for x in leaves]
    truth = scaled_dot_product_attention(*rounded)
    assert torch.equal(output, truth)
    expected = torch.autograd.grad(truth.sum(), rounded)
    assert all(torch.equal(a, b.float()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["block_size_q", "block_size_k"])
@pytest.mark.parametrize("suffix", ["", "_with_lse"])
def test_blocks_hold_at_least_one_row(name: str, suffix: str) -> None:
    tensors, _ = case("full")
    function: Any = {
        "": scaled_dot_product_attention,
        "_with_lse": scaled_dot_product_attention_with_lse,
    }[suffix]
    for size in (0, -3):
        with pytest.raises(ValueError, match=f"{name} must be at least 1; got {size}"):
            function(*tensors, **{name: size})
    for bad in (1.0, "2", True):
        with pytest.raises(TypeError, match=f"{name} must be an integer; got {bad!r}"):
            function(*tensors, **{name: bad})
    np.testing.assert_array_equal(
        scaled_dot_product_attention(*tensors, **{name: np.int64(2)}),
        scaled_dot_product_attention(*tensors, **{name: 2}),
    )


def test_a_block_beyond_64_bits_holds_everything() -> None:
    query = torch.ones(3, 2, dtype=torch.float64)
    for blocks in ({"block_size_q": 10**30}, {"block_size_k": 2**63}):
        assert torch.equal(scaled_dot_product_attention(query, query, query, **blocks), query)


@pytest.mark.parametrize("together", [1, 2, 4, 9])
@pytest.mark.parametrize(
    ("batch", "query", "key"),
    [
        ((2, 5), (2, 5), (2, 5)), ((5, 2), (5, 2), (5, 2)), ((2, 5), (2, 5), (2, 1)),
        ((2, 5), (2, 5), (5,)), ((5, 2), (5, 1), (2,)), ((), (), ()), ((3,), (1,), (1,)),
    ],
)  # fmt: skip
def test_the_walk_comes_to_each_head_once(
    together: int, batch: tuple[int, ...], query: tuple[int, ...], key: tuple[int, ...]
) -> None:
    """With the queries and keys that belong to it, whether they broadcast or not."""
    q, k = (1 + torch.arange(math.prod(own)).reshape(*own, 1, 1) for own in (query, key))
    found = torch.zeros(*batch, 2, 1, dtype=q.dtype)
    for some_q, some_k, _, nothing, some in heads(batch, [q, k, q, None, found], together):
        assert nothing is None
        assert isinstance(some, Tensor) and len(some) <= together
        assert isinstance(some_q, Tensor) and isinstance(some_k, Tensor)
        some[:, :1] += some_q
        some[:, 1:] += some_k
    assert torch.equal(found, torch.cat([x.expand(*batch, 1, 1) for x in (q, k)], -2))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_a_tile_of_a_mask_that_broadcasts(rows: int, columns: int) -> None:
    mask = normal(H, rows, columns)
    for tile in (slice(0, 1), slice(1, 2)), (slice(1, 2), slice(0, 2)):
        found = cut(mask, *tile).expand(H, *(s.stop - s.start for s in tile))
        assert torch.equal(found, mask.expand(H, max(rows, 2), max(columns, 2))[:, *tile])


def test_a_causal_tile_of_any_size_hides_the_future() -> None:
    tensors = [normal(8, E), normal(8, E), normal(8, E_V)]
    truth = with_gradients(tensors, is_causal=True)
    for rows, columns in itertools.product(range(1, 9), repeat=2):
        sizes = {"block_size_q": rows, "block_size_k": columns}
        for one, other in zip(with_gradients(tensors, is_causal=True, **sizes), truth, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_sums_are_kept_in_float64_only_where_the_scale_needs_it() -> None:
    for scale, dtype in [(None, torch.float32), (0.5, torch.float32), (1e39, torch.float64)]:
        for narrow in (torch.float32, torch.bfloat16):
            assert computing_dtype(narrow, scale) == dtype
        assert computing_dtype(torch.float64, scale) == torch.float64


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "is_causal", "rows", "columns"),
    [
        (5000, 6000, False, 1024, 1024), (1023, 1022, False, 1023, 1022),
        (1024, 9000, True, 128, 8192), (1025, 9000, True, 256, 8192), (100, 200, True, 100, 200),
        (1, 1, False, 1, 1), (0, 0, True, 1, 1),
    ],
)  # fmt: skip
def test_blocks_are_those_that_were_measured(
    n_queries: int, n_keys: int, is_causal: bool, rows: int, columns: int
) -> None:
    """Nothing else sees a worse choice: the results are the same, later, and from more memory."""
    query, key = torch.empty(n_queries, 1), torch.empty(n_keys, 1)
    found = sizes(query, key, Band(right=0 if is_causal else None), 0, 0)
    together = max(torch.get_num_threads(), 2**19 // (rows * columns))
    assert found == (rows, columns, together)


def test_a_gpu_takes_large_blocks_and_many_heads_together() -> None:
    on_gpu = SimpleNamespace(is_cuda=True, shape=(2, 3, 5000, 64))
    assert sizes(on_gpu, on_gpu, Band(), 0, 0) == (1024, 1024, 16)  # type: ignore[arg-type]
    short = SimpleNamespace(is_cuda=True, shape=(2, 3, 8, 64))
    assert sizes(short, on_gpu, Band(right=0), 0, 64) == (8, 64, 2**24 // (8 * 64))  # type: ignore[arg-type]
    assert sizes(on_gpu, on_gpu, Band(), 5000, 5000) == (5000, 5000, 1)  # type: ignore[arg-type]


def test_room_is_made_for_values_near_the_largest_number_alone() -> None:
    least = torch.finfo(torch.float32).max / 4  # for two keys
    for device in ("cpu", "meta"):  # meta looks at nothing, as a GPU does
        assert headroom_of(torch.empty(2, 0, device=device), torch.float32, 1.0) is None
        assert headroom_of(torch.empty(0, 2, device=device), torch.float32, 1.0) is None
    assert headroom_of(torch.full((2, 1), least), torch.float32, math.log(2)) is None
    room = headroom_of(torch.full((2, 1), 1.1 * least), torch.float32, math.log(2))
    assert room is not None and room.item() == 2
    assert headroom_of(torch.empty(2, 1, device="meta"), torch.float32, 1.0) is not None
