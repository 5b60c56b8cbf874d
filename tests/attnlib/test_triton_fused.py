"""What `triton_fused` promises beyond the contract of all rungs: see test_conformance."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from inputs import drawn
from rungs import DTYPES, array, devices
from rungs import tensor as as_tensor
from tolerance import HALF, assert_close, forward_size, gradient_sizes, lse_size
from torch import Tensor

import attnlib

pytest.importorskip("triton", reason="triton is for Linux")

import plain_torch

from attnlib import numpy_tokenwise
from attnlib._checks import Band
from attnlib.triton_fused import (
    _backward,
    _forward,
    _launch,
    _mask_backward,
    _operator,
    _tiles,
    _tuning,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)
from attnlib.triton_fused._tiles import Choices, Sizes, View
from attnlib.triton_fused._tuning import (
    FORWARD,
    KEYS_BACKWARD,
    MASK_BACKWARD,
    QUERY_BACKWARD,
    Blocks,
    Case,
)

pytestmark = pytest.mark.skipif(
    "triton_fused" not in attnlib.implementations(), reason="neither a GPU nor the interpreter"
)

[DEVICE] = devices("triton_fused")
KERNELS = {
    "forward": FORWARD, "query_backward": QUERY_BACKWARD, "keys_backward": KEYS_BACKWARD,
    "mask_backward": MASK_BACKWARD,
}  # fmt: skip
ARCHITECTURES = [0, 75, 80, 86, 90]
H, E, E_V = 2, 5, 7
CASES = ["full", "causal", "boolean", "floating"]


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    [numbers] = drawn(shape, seed=seed)
    return as_tensor(numbers, DEVICE).to(dtype)


def case(
    name: str, n_queries: int, n_keys: int, dtype: torch.dtype = torch.float64, group: int = 1
) -> tuple[list[Tensor], dict[str, Any]]:
    """Return inputs and options; the masks have an empty row, and a key that no row sees."""
    shapes = (H * group, n_queries, E), (H, n_keys, E), (H, n_keys, E_V)
    tensors = [normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    kept = torch.rand(n_queries, n_keys, generator=torch.Generator().manual_seed(3)) < 0.6
    kept[n_queries // 2] = kept[:, n_keys // 3] = False
    floating = torch.where(kept, torch.linspace(-2, 2, kept.numel()).view_as(kept), -math.inf)
    options: dict[str, Any] = {
        "full": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": kept.to(DEVICE)},
        "floating": {"attn_mask": floating.to(DEVICE, dtype)},
    }[name]
    return tensors, options | ({"enable_gqa": True} if group > 1 else {})


def with_gradients(tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """Return output, log-sum-exp and all gradients, of a floating mask too."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        options["attn_mask"] = mask.detach().clone().requires_grad_()
        leaves.append(options["attn_mask"])
    output, lse = scaled_dot_product_attention_with_lse(*leaves[:3], **options)
    above = normal(*output.shape, seed=5).to(output), normal(*lse.shape, seed=6).to(lse)
    return [output, lse, *torch.autograd.grad((output, lse), leaves, above)]


def hold(tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """Hold values and gradients against the definition and plain PyTorch in float64."""
    results = with_gradients(tensors, **options)
    found = [array(x) for x in results]
    options.pop("deterministic", None)
    mask, scale = options.pop("attn_mask", None), options.get("scale")
    output, lse = found[:2]
    given = [array(x) for x in tensors]
    mask = None if mask is None else array(mask)
    above = [array(normal(*x.shape, seed=5 + i)) for i, x in enumerate((output, lse))]
    above[0] = above[0].astype(output.dtype)

    def wide(x: Any) -> Any:
        return x if x is None or x.dtype == bool else x.astype("float64")

    truth = numpy_tokenwise.scaled_dot_product_attention_with_lse(
        *map(wide, (*given, mask)), **options
    )
    dtype = given[0].dtype.name
    peer = plain_torch.plain(*given, mask, **options) if dtype in HALF else None
    size = forward_size(*given, mask, scale)
    assert_close(output, truth[0], dtype=dtype, size=size, peer=peer)
    sums = "float32" if dtype in HALF else dtype
    assert_close(lse, truth[1], dtype=sums, size=lse_size(*given[:2], mask, scale))
    arguments = (*given, above[0], mask, above[1].astype(sums))
    true = plain_torch.gradients(*map(wide, arguments), **options)
    peers = plain_torch.gradients(*arguments, **options) if dtype in HALF else {}
    sizes = gradient_sizes(*arguments, scale)
    names = ("query", "key", "value", "attn_mask")[: len(found) - 2]
    for name, gradient in zip(names, found[2:], strict=True):
        assert_close(
            gradient, true[name], dtype=dtype, size=sizes[name], peer=peers.get(name), times=3
        )
    return results


def take(monkeypatch: pytest.MonkeyPatch, *kernels: Any, blocks: Blocks) -> None:
    """Have these kernels take these blocks, without timing."""
    for kernel in kernels or KERNELS.values():
        monkeypatch.setattr(kernel, "chosen", lambda choices, case: blocks)


def choices() -> list[Any]:
    return [
        pytest.param(kernel, blocks, id="-".join([name, *map(str, blocks)]))
        for name, kernel in KERNELS.items()
        for blocks in kernel.blocks
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "floating"])
@pytest.mark.parametrize(("kernel", "blocks"), choices())
def test_every_configuration_is_right_and_repeats_itself(
    monkeypatch: pytest.MonkeyPatch, kernel: Any, blocks: Blocks, name: str
) -> None:
    """Not only the one that is the fastest here: elsewhere another may be."""
    take(monkeypatch, kernel, blocks=blocks)
    for dtype in (torch.float32, torch.bfloat16) if name == "causal" else (torch.float32,):
        n_queries, n_keys = blocks.queries + 3, blocks.keys + 5
        tensors, options = case(name, n_queries, n_keys, dtype)
        tensors = [x[:1] for x in tensors]
        first, second = hold(tensors, **options), with_gradients(tensors, **options)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


B_Q, B_K = 16, 32
# Each with one beside it, and with one far from it.
SIZES = [
    (1, 1), (B_Q - 1, B_K - 1), (B_Q, B_K), (B_Q + 1, B_K + 1), (2 * B_Q + 3, 2 * B_K + 3),
    (1, 2 * B_K + 3), (2 * B_Q + 3, 1), (B_Q, B_K + 1), (B_Q + 1, B_K), (B_Q - 1, 2 * B_K + 3),
]  # fmt: skip


@pytest.mark.parametrize(("n_queries", "n_keys"), SIZES)
def test_lengths_about_the_ends_of_blocks(
    monkeypatch: pytest.MonkeyPatch, n_queries: int, n_keys: int
) -> None:
    take(monkeypatch, blocks=Blocks(B_Q, B_K, 4, 1))
    for name in ("full", "causal"):
        tensors, options = case(name, n_queries, n_keys)
        hold([x[:1] for x in tensors], **options)


def test_queries_that_fill_their_blocks_are_read_without_a_comparison() -> None:
    """Rows of 128: the only lengths for which the kernel of the keys knows no ragged end.

    16 features fill their block too, 5 do not.
    """
    for name, widths in (("full", (E, E_V)), ("causal", (E, E_V)), ("causal", (16, 16))):
        _, options = case(name, 128, 70)
        shapes = (1, 128, widths[0]), (1, 70, widths[0]), (1, 70, widths[1])
        hold([normal(*shape, seed=i) for i, shape in enumerate(shapes)], **options)


@pytest.mark.parametrize("width", [(1, 1), (16, 16), (17, 3), (64, 33), (256, 256), (255, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_width_up_to_256(width: tuple[int, int], dtype: str) -> None:
    shapes = (1, 3, width[0]), (1, 4, width[0]), (1, 4, width[1])
    hold([as_tensor(x, DEVICE) for x in drawn(*shapes, dtype=dtype)])


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ["causal", "floating"])
def test_many_features_have_their_gradients_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, name: str, deterministic: bool
) -> None:
    """dK and dV of 256 features each would not lie in registers at the same time."""
    _, options = case(name, 5, 9)
    shapes = (1, 5, 200), (1, 9, 200), (1, 9, 130)
    names = started(monkeypatch)
    hold([normal(*s, seed=i) for i, s in enumerate(shapes)], **options, deterministic=deterministic)
    assert names.count("keys_backward") + names.count("keys_backward+") == 2


@pytest.mark.parametrize("name", ["query", "value"])
def test_more_than_256_features_are_refused(name: str) -> None:
    widths = {"query": (257, 2), "value": (2, 257)}[name]
    shapes = (3, widths[0]), (4, widths[0]), (4, widths[1])
    with pytest.raises(ValueError, match=f"up to 256 features .torch_blockwise.*{name} .*257"):
        scaled_dot_product_attention(*(normal(*shape) for shape in shapes))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_faster_backward_is_right_too(name: str, dtype: str) -> None:
    tensors, options = case(name, 20, 35, getattr(torch, dtype), group=2)
    hold(tensors, **options, deterministic=False)


def test_deterministic_is_a_flag() -> None:
    tensors, _ = case("full", 3, 4)
    for flag in (0, 1, None, "no"):
        with pytest.raises(TypeError, match=f"deterministic must be True or False; got {flag!r}"):
            scaled_dot_product_attention(*tensors, deterministic=flag)  # type: ignore[arg-type]


def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each kernel that is started."""
    names: list[str] = []
    call = _tuning.Kernel.__call__

    def noted(kernel: Any, *arguments: Any, **options: Any) -> None:
        names.append(
            kernel.function.__name__ + "+" * ("WANTED" in options and options["WANTED"].by_query)
        )
        call(kernel, *arguments, **options)

    monkeypatch.setattr(_tuning.Kernel, "__call__", noted)
    return names


def test_what_starts_for_which_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    names = started(monkeypatch)
    for by, deterministic, expected in (
        ((0, 1, 2), True, ["query_backward", "keys_backward"]),
        ((0,), True, ["query_backward"]),
        ((1,), True, ["keys_backward"]),
        ((2,), False, ["keys_backward"]),
        ((0, 1, 2), False, ["keys_backward+"]),
    ):
        tensors, _ = case("full", 3, 4)
        for i in by:
            tensors[i].requires_grad_()
        output = scaled_dot_product_attention(*tensors, deterministic=deterministic)
        torch.autograd.grad(output.sum(), [tensors[i] for i in by])
        assert names == ["forward", *expected]
        names.clear()


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_timing_is_done_anew_for_what_changes_the_code(kernel: str) -> None:
    """A key without one of these would give one case the blocks of another."""
    tuned = KERNELS[kernel].tuned
    assert {"CHOICES", "case"} <= set(tuned.keys)
    compiled_in = {
        name
        for name, parameter in inspect.signature(KERNELS[kernel].function.fn).parameters.items()
        if parameter.annotation == "tl.constexpr"
    }
    assert compiled_in - set(tuned.keys) == {"BLOCK_Q", "BLOCK_K"}
    assert set(tuned.keys) <= set(tuned.arg_names), "what is no argument is not looked at"
    assert [c.kwargs for c in tuned.configs] == [
        {"BLOCK_Q": b.queries, "BLOCK_K": b.keys} for b in KERNELS[kernel].blocks
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Choices, Case]]:
    """Return a list that gets what the kernel of the forward chooses its blocks by."""
    given: list[tuple[Choices, Case]] = []
    blocks = Blocks(16, 16, 4, 1)
    monkeypatch.setattr(FORWARD, "chosen", lambda *what: given.append(what) or blocks)
    return given


def test_lengths_and_heads_come_in_powers_of_two(asked: list[tuple[Choices, Case]]) -> None:
    for n_queries, n_keys in ((5, 9), (8, 16), (9, 17)):
        tensors, _ = case("full", n_queries, n_keys)
        scaled_dot_product_attention(*tensors)
    for batch in (1, 2, 3):
        scaled_dot_product_attention(*(normal(batch, 2, 3, E) for _ in range(3)))
    assert [a[:2] for _, a in asked[:3]] == [(8, 16), (8, 16), (16, 32)]
    assert [a.heads for _, a in asked[3:]] == [2, 4, 8]


def test_masks_in_other_dtypes_are_timed_anew(asked: list[tuple[Choices, Case]]) -> None:
    tensors = [normal(3, E, dtype=torch.float16) for _ in range(3)]
    for dtype in (torch.bool, torch.float16, torch.float32):
        mask = torch.ones(3, 3, dtype=dtype, device=DEVICE)
        scaled_dot_product_attention(*tensors, mask)
    scaled_dot_product_attention(*tensors)
    assert [a.mask_bytes for _, a in asked] == [1, 2, 4, 0]


def test_each_kind_of_mask_has_a_code_of_its_own(asked: list[tuple[Choices, Case]]) -> None:
    for name in CASES:
        tensors, options = case(name, 5, 9)
        scaled_dot_product_attention(*tensors, **options)
    assert len({(choices.MASK, choices.HAS_HIGH) for choices, _ in asked}) == len(CASES)


def compiled_in(width: int, dtype: Any) -> Choices:
    """Return the choices for features that fill their blocks."""
    return Choices(
        1, width, width, width, width, 0, False, False, dtype, _launch.DTYPES[torch.float32]
    )


def test_short_lengths_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tuning, "INTERPRETED", False)
    for kernel in KERNELS.values():
        for dtype in _launch.DTYPES.values():
            for width in (16, 64, 256):
                choices = compiled_in(width, dtype)
                for arch in ARCHITECTURES:
                    short = Case(256, 16, 1, 0, 0, 0, arch)
                    assert kernel.chosen(choices, short) in kernel.fitting(choices, arch)
                    assert kernel.chosen(choices, short._replace(length_k=512)) is None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_there_is_always_a_configuration_that_fits(kernel: str, arch: int) -> None:
    dtypes = _launch.DTYPES.values()
    for width in (16, 32, 64, 128, 256):
        for dtype in dtypes:
            found = KERNELS[kernel].fitting(compiled_in(width, dtype), arch)
            assert found and set(found) <= set(KERNELS[kernel].blocks)
            assert len(found) <= 9
            if dtype.primitive_bitwidth == 16 and width <= 128 and arch in (80, 90):
                assert any(b.queries * b.keys >= 64 * 32 for b in found)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_warp_has_16_rows_of_its_own(kernel: str) -> None:
    """With more warps the same scores would be computed twice."""
    for width in (16, 32, 64, 128, 256):
        choices = compiled_in(width, _launch.DTYPES[torch.bfloat16])
        for arch in (0, 80, 89, 90):
            for b in KERNELS[kernel].fitting(choices, arch):
                assert 16 * b.warps <= (b.keys if "keys" in kernel else b.queries)


@pytest.mark.parametrize(
    ("arch", "choice", "offered"),
    [
        (90, Blocks(128, 128, 8, 3), True),  # 224 KiB of shared memory
        (80, Blocks(128, 128, 8, 3), False),
        (80, Blocks(128, 64, 8, 3), True),
        (86, Blocks(128, 64, 8, 3), False),
        (75, Blocks(64, 64, 4, 2), False),  # no matrix units there
        (75, Blocks(16, 16, 4, 1), True),
    ],
)
def test_each_architecture_has_its_own_choices(arch: int, choice: Blocks, offered: bool) -> None:
    found = FORWARD.fitting(compiled_in(128, _launch.DTYPES[torch.float16]), arch)
    assert (choice in found) == offered


def test_a_group_is_shared_where_programs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a group has its own dK and dV, which are added up afterwards."""
    tensors, options = case("causal", 5, 20, group=6)
    whole = with_gradients(tensors, **options)
    members: list[int] = []
    call = _tuning.Kernel.__call__

    def noted(kernel: Any, heads: int, **given: Any) -> None:
        members.extend([given["MEMBERS"]] if "MEMBERS" in given else [])
        call(kernel, heads, **given)

    monkeypatch.setattr(_tuning.Kernel, "__call__", noted)
    for n, expected in ((2, 3), (3, 2), (100, 1)):
        monkeypatch.setattr(_launch, "processors", lambda device, n=n: n)
        found = with_gradients(tensors, **options)
        for ours, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
        assert members == [expected]
        members.clear()
    monkeypatch.setattr(_launch, "processors", lambda device: 4)
    for dtype, deterministic in ((torch.float32, True), (torch.bfloat16, False)):
        hold([x.to(dtype) for x in tensors], **options, deterministic=deterministic)


@pytest.mark.parametrize(("n", "members"), [(0, 6), (1, 6), (2, 3), (3, 2), (4, 1), (100, 1)])
def test_each_processor_has_two_programs_if_there_are_so_many(
    monkeypatch: pytest.MonkeyPatch, n: int, members: int
) -> None:
    """Of two key heads with six query heads each, a program takes so many query heads."""
    monkeypatch.setattr(_launch, "processors", lambda device: n)
    level = case("causal", 17, 20, group=6)[0]
    assert _launch._members(level, 6) == members


def test_a_timed_call_leaves_no_trace_in_the_gradient() -> None:
    """Triton runs a configuration many times; what is scattered would add up."""
    d_q = torch.ones(3)
    gradients = _backward.Gradients(View(d_q, d_q.stride()), None, None)
    others, all_three = _backward.Wanted(False, True, True), _backward.Wanted(True, True, True)
    KEYS_BACKWARD.tuned.pre_hook({"gradients": gradients, "WANTED": others})
    assert d_q.sum() == 3
    KEYS_BACKWARD.tuned.pre_hook({"gradients": gradients, "WANTED": all_three}, reset_only=True)
    assert d_q.sum() == 0
    FORWARD.tuned.pre_hook({})


@pytest.mark.parametrize("which", range(4))
def test_offsets_go_beyond_32_bits(which: int) -> None:
    """Rows 2³⁰ numbers apart: stride and index have 32 bits, and the last row's offset has not.

    4 GiB of memory are reserved, and not touched in between.
    """
    n_rows, width, step = 3, 2, 2**30
    memory = torch.empty((n_rows - 1) * step + width, dtype=torch.float16, device=DEVICE)
    far = memory.as_strided((n_rows, width), (step, 1))
    names = ("query", "key", "value", "upstream")
    arrays = drawn(*[(n_rows, width)] * 4, dtype="float16")
    near = {n: as_tensor(a, DEVICE) for n, a in zip(names, arrays, strict=True)}

    def run(given: dict[str, Tensor]) -> list[Tensor]:
        leaves = [given[name].requires_grad_() for name in names[:3]]
        output = scaled_dot_product_attention(*leaves)
        return [output, *torch.autograd.grad(output, leaves, given["upstream"])]

    truth = run(dict(near))
    far.copy_(near[names[which]])
    found = run(near | {names[which]: far})
    assert all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))


@pytest.mark.parametrize("module", [_tiles, _forward, _backward, _mask_backward])
def test_no_stride_meets_a_32_bit_index(module: Any) -> None:
    """Batches and heads, too: every product with a stride has a 64-bit factor."""
    source = inspect.getsource(module)
    products = re.findall(r"(\S+) \* [\w.]*strides\[", source)
    assert len(products) == 6 * (module is _tiles)
    assert all(factor.endswith(".to(tl.int64)") for factor in products)
    rows = re.findall(r"(\S+) \* (?:sizes\.)?n_queries", source)
    assert rows == ["n_heads + head).to(tl.int64)"[10:]] * (module is _tiles)


def test_dimensions_that_do_not_lie_like_one() -> None:
    """More leading dimensions than the kernels have, in an order that no view can flatten."""
    query, key, value = normal(3, 1, 2, 2, 5, E), normal(2, 1, 3, 2, 9, E), normal(2, 9, E_V)
    hold_same(query.permute(2, 1, 0, 3, 4, 5), key, value)


def hold_same(query: Tensor, key: Tensor, value: Tensor) -> None:
    found = with_gradients([query, key, value])
    heads = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    flat = [x.expand(*heads, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (query, key, value)]
    output, lse, *gradients = with_gradients(flat)
    torch.testing.assert_close(found[0].flatten(0, -3), output, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found[1].flatten(0, -2), lse, rtol=1e-13, atol=1e-14)
    for ours, theirs, x in zip(found[2:], gradients, (query, key, value), strict=True):
        summed = theirs.view(*heads, *x.shape[-2:]).sum_to_size(x.shape)
        torch.testing.assert_close(ours, summed, rtol=1e-12, atol=1e-13)


def test_a_mask_is_read_where_it_lies() -> None:
    """One row of a mask for all heads and queries stays one row in memory."""
    query, key, value = normal(3, 20, E), normal(3, 30, E), normal(3, 30, E_V)
    mask = torch.zeros(30, dtype=torch.float64, device=DEVICE)
    given: list[Any] = []
    old = _launch._arguments
    try:
        _launch._arguments = lambda *a: given.append(a[3]) or old(*a)
        scaled_dot_product_attention(query, key, value, mask)
    finally:
        _launch._arguments = old
    assert given[0].shape == (1, 3, 20, 30)
    assert given[0].stride()[1:] == (0, 0, 1)
    assert given[0].data_ptr() == mask.data_ptr()


def test_rows_whose_first_blocks_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    take(monkeypatch, blocks=Blocks(16, 16, 4, 1))
    mask = torch.full((3, 40), -math.inf, dtype=torch.float64, device=DEVICE)
    mask[0, 39], mask[1, 0], mask[2, 20] = -5000.0, -5000.0, 7000.0
    tensors = [torch.zeros(3, 1).double(), torch.zeros(40, 1).double(), normal(40, 2)]
    tensors = [x.to(DEVICE) for x in tensors]
    output, lse = scaled_dot_product_attention_with_lse(*tensors, mask)
    assert torch.equal(output, tensors[2][[39, 0, 20]])
    assert torch.equal(lse, torch.tensor([-5000.0, -5000.0, 7000.0]).to(lse))


@pytest.mark.parametrize("step", [-300.0, -3.0, 3.0, 300.0])
def test_scores_that_climb_from_block_to_block(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    take(monkeypatch, blocks=Blocks(16, 16, 4, 1))
    keys = step * torch.arange(50.0)[:, None].double()
    hold([torch.ones(1, 4, 1).double().to(DEVICE), keys[None].to(DEVICE), normal(1, 50, 2)])


def test_grouped_heads_gather_their_gradients_in_float32() -> None:
    """64 equal terms of 1 + 1/128: in bfloat16 the last bits would be lost on the way."""
    group, ones = 64, torch.ones(1, 1, 1, dtype=torch.bfloat16, device=DEVICE)
    value = ones.clone().requires_grad_()
    output = scaled_dot_product_attention(ones.repeat(group, 1, 1), ones, value, enable_gqa=True)
    output.backward(torch.full_like(output, 1 + 2**-7))
    assert value.grad is not None
    assert value.grad.item() == 64.5


@pytest.mark.parametrize(("dtype", "low"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_what_the_output_loses_is_not_lost_to_the_gradient(dtype: torch.dtype, low: float) -> None:
    """Two values one step apart: the output between them rounds to one, and D must not."""
    value = torch.tensor([[low], [low + 2]], dtype=dtype, device=DEVICE)
    query = torch.zeros(1, 1, dtype=dtype, device=DEVICE, requires_grad=True)
    key = torch.tensor([[0.0], [1.0]], dtype=dtype, device=DEVICE)
    output = scaled_dot_product_attention(query, key, value)
    assert output.item() == low
    output.backward(torch.ones_like(output))
    assert query.grad is not None
    assert query.grad.item() == 0.5  # P (v - O) = 1/2 (low + 2 - (low + 1))


def test_float32_is_not_tf32() -> None:
    """TF32 keeps 10 bits of each factor: 1 + 2⁻¹² would become 1."""
    small = 1 + 2.0**-12
    query = torch.full((1, 1), small, device=DEVICE)
    key = torch.tensor([[small], [1.0]], device=DEVICE)
    value = torch.tensor([[small], [small]], device=DEVICE)
    output, lse = scaled_dot_product_attention_with_lse(query, key, value, scale=1.0)
    truth = math.log(math.exp(small * small) + math.exp(small))
    assert abs(lse.item() - truth) < 2e-6
    assert abs(output.item() - small) < 2e-6


@pytest.mark.parametrize("module", [_tiles, _forward, _backward, _mask_backward])
def test_every_product_says_its_precision(module: Any) -> None:
    """The interpreter knows no TF32, so that there the test before this one cannot fail."""
    products = re.findall(r"tl\.dot\((.*)\)", inspect.getsource(module))
    assert len(products) == (module is _tiles)
    assert all('input_precision="ieee"' in product for product in products)


def saved(tensors: list[Tensor]) -> int:
    """Return how many bytes autograd keeps for the backward, beside the inputs."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        scaled_dot_product_attention(*tensors)
    return sum(x.nbytes for x in kept if all(x.data_ptr() != y.data_ptr() for y in tensors))


def test_two_numbers_a_row_are_kept() -> None:
    rows = H * 20
    tensors = [x.float().requires_grad_() for x in case("full", 20, 30)[0]]
    assert saved(tensors) == rows * (E_V + 2) * 4
    half = [x.detach().bfloat16().requires_grad_() for x in tensors]
    assert saved(half) == rows * (2 * E_V * 2 + 2 * 4)  # the output, and what its rounding lost


def test_second_derivatives_name_the_form_that_has_them() -> None:
    leaves = [x.requires_grad_() for x in case("full", 3, 4)[0]]
    output = scaled_dot_product_attention(*leaves)
    with pytest.raises(RuntimeError, match=r"no second derivatives .*; torch_dense has them"):
        torch.autograd.grad(output.sum(), leaves, create_graph=True)


@pytest.mark.parametrize("name", CASES)
def test_compiled_whole(name: str) -> None:
    tensors, options = case(name, 5, 9)
    learned = [options.pop("attn_mask")] if name == "floating" else []
    leaves = [x.requires_grad_() for x in (*tensors, *learned)]

    def function(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = scaled_dot_product_attention_with_lse(*inputs, **options)
        return output, lse.masked_fill(lse == -math.inf, 0)

    torch.compiler.reset()
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = [f(*leaves) for f in (compiled, function)]
    torch.testing.assert_close(*results)
    found = [torch.autograd.grad(o.sum() + lse.sum(), leaves) for o, lse in results]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("name", "keeps"), [("causal", True), ("floating", False)])
def test_the_operators_keep_the_rules_of_torch(name: str, keeps: bool) -> None:
    """Shapes of the fake ones, nothing aliased, nothing changed."""
    tensors, options = case(name, 5, 9, torch.bfloat16, group=2)
    plain = [tensors[0][:2], *(x[:1] for x in tensors[1:])]
    band = Band(right=0 if name == "causal" else None).numbers()
    inputs = (*plain, options.get("attn_mask"), band, None, 2, [True, keeps])
    torch.library.opcheck(_operator.forward, inputs)
    output, lse, shift, log_sum, lost = _operator.forward(*inputs)
    rest = (output, shift, log_sum, lost, output, lse, [True, False, True, False], *inputs[4:])
    torch.library.opcheck(_operator.backward, (*inputs[:4], *rest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meta(dtype: torch.dtype) -> None:
    leaves = [x.to("meta", dtype).requires_grad_() for x in case("full", 5, 9)[0]]
    output, lse = scaled_dot_product_attention_with_lse(*leaves)
    assert (output.shape, lse.shape) == ((H, 5, E_V), (H, 5))
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    found = torch.autograd.grad(output.sum(), leaves)
    assert [x.shape for x in found] == [x.shape for x in leaves]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_that_of_torch(dtype: torch.dtype) -> None:
    leaves = [x.float().requires_grad_() for x in case("full", 5, 9)[0]]
    with torch.autocast(DEVICE, dtype):
        output = scaled_dot_product_attention(*leaves)
        found = torch.autograd.grad(output.sum(), leaves)
    assert output.dtype == dtype
    rounded = [x.detach().to(dtype).requires_grad_() for x in leaves]
    truth = scaled_dot_product_attention(*rounded)
    assert torch.equal(output, truth)
    expected = torch.autograd.grad(truth.sum(), rounded)
    assert all(torch.equal(a, b.float()) for a, b in zip(found, expected, strict=True))


def test_without_a_gpu_and_without_the_interpreter() -> None:
    """The rung is not listed, and says what to do."""
    script = """
import torch
torch.cuda.is_available = lambda: False
import attnlib
assert "triton_fused" not in attnlib.implementations()
assert "torch_blockwise" in attnlib.implementations()
from attnlib import triton_fused
x = torch.ones(2, 2)
for f in (triton_fused.scaled_dot_product_attention,
          triton_fused.scaled_dot_product_attention_with_lse):
    try:
        f(x, x, x)
    except ValueError as error:
        print(error)
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(attnlib.__path__[0] + "/.."), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120,
        env=environment | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    for part in ("needs tensors on a GPU (cuda); got cpu", "torch_blockwise", "TRITON_INTERPRET=1"):
        assert part in first


def test_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlib import triton_fused

    monkeypatch.setattr(triton_fused, "INTERPRETED", False)
    with pytest.raises(ValueError, match=r"needs tensors on a GPU .cuda.; got cpu"):
        scaled_dot_product_attention(*(torch.ones(2, 2) for _ in range(3)))


def test_dtypes_are_those_of_the_library() -> None:
    assert {str(d).removeprefix("torch.") for d in _launch.DTYPES} == set(DTYPES)


# -- what only a GPU asks for ----------------------------------------------------------------------


def test_long_lengths_are_timed_once_for_each_block_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton's autotuner chooses the block: the number of programs follows from it."""
    given: list[tuple[Any, dict[str, Any]]] = []

    class Tuned:
        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda **arguments: given.append((grid, arguments))

    for kernel, rows, block in (
        (FORWARD, "n_queries", "BLOCK_Q"),
        (KEYS_BACKWARD, "n_keys", "BLOCK_K"),
    ):
        monkeypatch.setattr(kernel, "chosen", lambda choices, case: None)
        monkeypatch.setattr(kernel, "tuned", Tuned())
        sizes = Sizes(2, 1, 1, 0, 0)._replace(**{rows: 129})
        arguments = {"sizes": sizes, "CHOICES": None, "case": None}
        kernel(6, **arguments)
        grid, passed = given.pop()
        assert [grid({block: size}) for size in (64, 128, 129)] == [(18,), (12,), (6,)]
        assert passed == arguments | {"enable_fp_fusion": True}


def test_only_what_fits_is_timed() -> None:
    wide = compiled_in(256, _launch.DTYPES[torch.float64])
    (config,) = FORWARD._prune([], {}, CHOICES=wide, case=Case(512, 512, 1, 0, 0, 0, 90))
    assert config.kwargs == {"BLOCK_Q": 16, "BLOCK_K": 16}
    assert (config.num_warps, config.num_stages) == (4, 1)


def test_kernels_start_on_the_device_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.device] = []

    @contextlib.contextmanager
    def current(device: torch.device) -> Iterator[None]:
        entered.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", current)
    for kind in ("cuda:1", "cpu"):
        with _launch._ready(torch.device(kind)):
            assert entered == [torch.device("cuda:1")]


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    query, key = (normal(2, 1, 5, 4, seed=n).requires_grad_() for n in (1, 2))
    value = normal(2, 1, 5, 3, seed=3)
    output = scaled_dot_product_attention(query, key, value)
    found = torch.autograd.grad(output.sum(), [query, key])
    dense, _ = plain_torch.attention(query, key, value)
    expected = torch.autograd.grad(dense.sum(), [query, key])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_without_keys_all_gradients_are_zero() -> None:
    inputs = [normal(1, n, 4).requires_grad_() for n in (3, 0, 0)]
    scaled_dot_product_attention(*inputs).sum().backward()
    for one in inputs:
        assert one.grad is not None and one.grad.shape == one.shape and not one.grad.any()
