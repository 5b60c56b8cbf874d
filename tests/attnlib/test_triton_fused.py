"""What `triton_fused` promises beyond the cases of test_cases: blocks, gradients, tuning."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from claims import hold
from implementations import Array, Implementation, devices
from implementations import tensor as as_tensor
from inputs import drawn
from parameters import slow
from tolerance import call_of
from torch import Tensor

import attnlib

pytest.importorskip("triton", reason="triton is for Linux")

from attnlib import torch_dense, triton_fused
from attnlib.triton_fused import (
    _backward,
    _forward,
    _mask_backward,
    _tiles,
    launch,
    scaled_dot_product_attention,
    tuning,
)
from attnlib.triton_fused._tiles import Choices, Sizes
from attnlib.triton_fused.tuning import (
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
FORM = Implementation("triton_fused", DEVICE)
KERNELS = {
    "forward": FORWARD, "query_backward": QUERY_BACKWARD, "keys_backward": KEYS_BACKWARD,
    "mask_backward": MASK_BACKWARD,
}
ARCHITECTURES = [0, 75, 80, 86, 90]
WIDTHS = (16, 32, 64, 128, 256)
E, E_V = 5, 7
CASES = ["full", "causal", "boolean", "floating"]


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    [numbers] = drawn(shape, seed=seed)
    return as_tensor(numbers, DEVICE).to(dtype)


def case(
    name: str, n_queries: int, n_keys: int, dtype: str = "float64", group: int = 1,
    n_heads: int = 1, widths: tuple[int, int] = (E, E_V),
) -> tuple[list[Array], dict[str, Any]]:
    """Return inputs and options; the masks have an empty row, and a key that no row sees."""
    query, key = (n_heads * group, n_queries, widths[0]), (n_heads, n_keys, widths[0])
    arrays = drawn(query, key, (n_heads, n_keys, widths[1]), dtype=dtype)
    if name in ("boolean", "floating"):
        [mask] = drawn((n_queries, n_keys), dtype=dtype, seed=3)
        kept = mask > -0.5
        kept[n_queries // 2] = kept[:, n_keys // 3] = False
        minus = np.asarray(-np.inf, mask.dtype)
        arrays.append(kept if name == "boolean" else np.where(kept, mask, minus))
    options: dict[str, Any] = {"is_causal": True} if name == "causal" else {}
    return arrays, options | ({"enable_gqa": True} if group > 1 else {})


def tensors(*given: Any, **more: Any) -> list[Tensor]:
    """Return the inputs of a case as tensors."""
    return [as_tensor(x, DEVICE) for x in case(*given, **more)[0]]


def hold_case(*given: Any, **more: Any) -> None:
    arrays, options = case(*given, **more)
    hold(FORM, call_of(*arrays, **options))


def take(monkeypatch: pytest.MonkeyPatch, *kernels: Any, blocks: Blocks) -> None:
    """Have these kernels take these blocks, without timing."""
    for kernel in kernels or KERNELS.values():
        monkeypatch.setattr(kernel, "chosen", lambda choices, case: blocks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [("causal", "float32"), ("causal", "bfloat16"), ("floating", "float32")]
)
@pytest.mark.parametrize(
    ("kernel", "blocks"), [(kernel, b) for kernel in KERNELS for b in KERNELS[kernel].blocks]
)
def test_every_configuration_is_right_and_repeats_itself(
    monkeypatch: pytest.MonkeyPatch, kernel: str, blocks: Blocks, name: str, dtype: str
) -> None:
    """Not only the one that is the fastest here: elsewhere another may be."""
    take(monkeypatch, KERNELS[kernel], blocks=blocks)
    given = name, blocks.queries + 3, blocks.keys + 5, dtype
    hold_case(*given)
    leaves = [x.requires_grad_() for x in tensors(*given)]
    results = [scaled_dot_product_attention(*leaves, is_causal=name == "causal") for _ in range(2)]
    first, second = ([x, *torch.autograd.grad(x.sin().sum(), leaves)] for x in results)
    assert all(map(torch.equal, first, second))


B_Q, B_K = 16, 32


@pytest.mark.parametrize(
    ("name", "n_queries", "n_keys"),
    [
        slow("full", 1, 1),
        ("full", 3, 0),
        ("full", B_Q, B_K),
        ("full", B_Q + 1, B_K + 1),
        ("causal", 1, 2 * B_K + 3),
        ("causal", 2 * B_Q + 3, 1),
        slow("causal", B_Q - 1, B_K),
        slow("causal", B_Q + 1, B_K + 1),
    ],
)
def test_lengths_about_the_ends_of_blocks(
    monkeypatch: pytest.MonkeyPatch, name: str, n_queries: int, n_keys: int
) -> None:
    take(monkeypatch, blocks=Blocks(B_Q, B_K, 4, 1))
    hold_case(name, n_queries, n_keys)


@pytest.mark.parametrize(
    ("name", "n_queries", "n_keys", "more"),
    [
        # Rows of 128: the only lengths for which the kernel of the keys knows no ragged end. 16
        # features fill their block too, 5 do not.
        ("full", 128, 70, {}),
        ("causal", 128, 70, {"widths": (16, 16)}),
        ("full", 3, 4, {"widths": (1, 17), "dtype": "float32"}),
        ("full", 3, 4, {"widths": (64, 33), "dtype": "bfloat16"}),
        ("full", 3, 4, {"widths": (256, 256), "dtype": "float32"}),
        slow("full", 3, 4, {"widths": (256, 256), "dtype": "bfloat16"}),
        # Each key head gathers from its own group, and a mask learns.
        ("full", 5, 7, {"group": 2, "n_heads": 2}),
        ("floating", 17, 20, {"group": 2, "dtype": "bfloat16"}),
    ],
)
def test_widths_and_groups(name: str, n_queries: int, n_keys: int, more: dict[str, Any]) -> None:
    hold_case(name, n_queries, n_keys, **more)


@pytest.mark.parametrize("widths", [(257, 2), (2, 257)])
def test_more_than_256_features_are_refused(widths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"up to 256 features .torch_blockwise.*; got .*257"):
        scaled_dot_product_attention(*tensors("full", 3, 4, widths=widths))


# -- which kernels start ---------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Return a list that gets the name of each kernel that is started, and what it is given."""
    found: list[tuple[str, dict[str, Any]]] = []
    call = tuning.Kernel.__call__

    def noted(kernel: Any, heads: int, **given: Any) -> None:
        found.append((kernel.function.__name__, given))
        call(kernel, heads, **given)

    monkeypatch.setattr(tuning.Kernel, "__call__", noted)
    return found


def test_only_what_is_wanted_is_computed(started: list[tuple[str, Any]]) -> None:
    everything: list[Tensor] = []
    for by, expected in (
        ((0, 1, 2), ["query_backward", "keys_backward"]),
        ((0,), ["query_backward"]),
        ((1,), ["keys_backward"]),
        ((2,), ["keys_backward"]),
    ):
        leaves = [x.requires_grad_(i in by) for i, x in enumerate(tensors("full", 3, 4))]
        output = scaled_dot_product_attention(*leaves)
        found = torch.autograd.grad(output.square().sum(), [leaves[i] for i in by])
        everything = everything or list(found)
        torch.testing.assert_close(list(found), [everything[i] for i in by])
        assert [name for name, _ in started] == ["forward", *expected]
        started.clear()


@pytest.mark.parametrize("name", [slow("causal"), "floating"])
def test_many_features_have_their_gradients_one_after_the_other(
    started: list[tuple[str, Any]], name: str
) -> None:
    """dK and dV of 256 features each would not lie in registers at the same time."""
    hold_case(name, 5, 9, widths=(200, 130))
    assert sum(name.startswith("keys_backward") for name, _ in started) == 2


@pytest.mark.parametrize(("n", "members"), [(0, 6), (1, 6), (2, 3), (3, 2), (4, 1), (100, 1)])
def test_each_processor_has_two_programs_if_there_are_so_many(
    monkeypatch: pytest.MonkeyPatch, n: int, members: int
) -> None:
    """Of two key heads with six query heads each, a program takes so many query heads."""
    monkeypatch.setattr(launch, "processors", lambda device: n)
    assert launch._members(tensors("causal", 17, 20, group=6, n_heads=2), 6) == members


@pytest.mark.parametrize(("n", "members", "dtype"), [(1, 3, "float32"), slow(100, 1, "bfloat16")])
def test_a_group_is_shared_where_programs_are_few(
    monkeypatch: pytest.MonkeyPatch, started: list[tuple[str, dict[str, Any]]], n: int,
    members: int, dtype: str,
) -> None:
    """Each part of a group has its own dK and dV, which are added up afterwards."""
    monkeypatch.setattr(launch, "processors", lambda device: n)
    hold_case("causal", 5, 20, dtype, group=6)
    assert started[-1][1]["MEMBERS"] == members


# -- which blocks they take ------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_timing_is_done_anew_for_what_changes_the_code(kernel: str) -> None:
    """A key without one of these would give one case the blocks of another."""
    tuned = KERNELS[kernel].tuned
    parameters = inspect.signature(KERNELS[kernel].function.fn).parameters.values()
    compiled_in = {p.name for p in parameters if p.annotation == "tl.constexpr"}
    assert {*tuned.keys} == compiled_in - {"BLOCK_Q", "BLOCK_K"} | {"case"}
    assert set(tuned.keys) <= set(tuned.arg_names), "what is no argument is not looked at"
    assert [c.kwargs for c in tuned.configs] == [
        {"BLOCK_Q": b.queries, "BLOCK_K": b.keys} for b in KERNELS[kernel].blocks
    ]


def test_calls_are_told_apart_by_what_changes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths and heads come in powers of two, and each kind of mask has a code of its own."""
    started: list[dict[str, Any]] = []  # and nothing is computed
    monkeypatch.setattr(tuning.Kernel, "__call__", lambda *_, **given: started.append(given))

    def told(given: list[Tensor], **options: Any) -> tuple[Choices, Case]:
        scaled_dot_product_attention(*given, **options)
        return started[-1]["CHOICES"], started[-1]["case"]

    short, same, longer = (told(tensors("full", n, 2 * n))[1] for n in (5, 8, 9))
    assert (short.length_q, short.length_k) == (8, 16)
    assert short == same and (longer.length_q, longer.length_k) == (16, 32)
    three = [normal(3, 2, 3, E) for _ in range(3)]
    assert told(three)[1].heads == 8
    for dtype, size in ((torch.bool, 1), (torch.float16, 2), (torch.float32, 4)):
        mask = torch.ones(3, 3, dtype=dtype, device=DEVICE)
        assert told([x.half() for x in three], attn_mask=mask)[1].mask_bytes == size
    kinds = [told(tensors(name, 5, 9), is_causal=name == "causal")[0] for name in CASES]
    assert len({(choices.MASK, choices.HAS_HIGH) for choices in kinds}) == len(CASES)


def compiled_in(width: int, dtype: torch.dtype) -> Choices:
    """Return the choices for features that fill their blocks."""
    dtypes = launch.DTYPES[dtype], launch.DTYPES[torch.float32]
    return Choices(1, width, width, width, width, 0, False, False, *dtypes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_there_is_always_a_configuration_that_fits(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """Short lengths take it at once, long ones are timed."""
    monkeypatch.setattr(tuning, "INTERPRETED", False)
    for width, dtype, arch in itertools.product(WIDTHS, launch.DTYPES, ARCHITECTURES):
        choices, short = compiled_in(width, dtype), Case(256, 16, 1, 0, 0, 0, arch)
        found = KERNELS[kernel].fitting(choices, arch)
        assert 1 <= len(found) <= 9 and set(found) <= set(KERNELS[kernel].blocks)
        assert KERNELS[kernel].chosen(choices, short) in found
        assert KERNELS[kernel].chosen(choices, short._replace(length_k=512)) is None
        if dtype.itemsize == 2 and arch in (80, 90) and width <= 128:
            assert any(b.queries * b.keys >= 64 * 32 for b in found)
        if dtype.itemsize == 2 and arch != 75:
            # With more warps than 16 rows each, the same scores would be computed twice.
            own = [b.keys if "keys" in kernel else b.queries for b in found]
            assert all(16 * b.warps <= rows for b, rows in zip(found, own, strict=True))


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
    assert (choice in FORWARD.fitting(compiled_in(128, torch.float16), arch)) == offered


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
    wide = compiled_in(256, torch.float64)
    (config,) = FORWARD._prune([], {}, CHOICES=wide, case=Case(512, 512, 1, 0, 0, 0, 90))
    assert config.kwargs == {"BLOCK_Q": 16, "BLOCK_K": 16}
    assert (config.num_warps, config.num_stages) == (4, 1)


# -- memory ----------------------------------------------------------------------------------------


def test_offsets_go_beyond_32_bits() -> None:
    """Neighbours 2³⁰ numbers apart: stride and index have 32 bits, and the last offset has not.

    4 GiB of memory are reserved, and not touched in between.
    """
    shape, step, names = (1, 3, 3, 3), 2**30, range(5)
    memory = torch.empty(2 * step + len(names) * 81, dtype=torch.float16, device=DEVICE)

    def run(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, above: Tensor) -> list[Tensor]:
        leaves = [x.requires_grad_() for x in (query, key, value, mask)]
        output = scaled_dot_product_attention(*leaves)
        return [output, *torch.autograd.grad(output, leaves, above)]

    near = [normal(*shape, dtype=torch.float16, seed=i) for i in names]
    truth = run(*(x.clone() for x in near))
    # The query's rows lie far from each other, the key's heads, the value's heads, ...
    strides = [
        (27, 9, step, 1), (27, step, 3, 1), (27, step, 3, 1), (27, 9, 3, step), (27, 9, 3, step),
    ]
    far = [memory.as_strided(shape, strides[i], 81 * i).copy_(near[i]) for i in names]
    assert all(map(torch.equal, run(*far), truth))


@pytest.mark.parametrize("module", [_tiles, _forward, _backward, _mask_backward])
def test_what_the_interpreter_does_not_show(module: Any) -> None:
    """It has no TF32, and no room for so many batches and heads that their offset has 32 bits."""
    source = inspect.getsource(module)
    factors = re.findall(r"(\S+) \* (?:[\w.]*strides\[|n_queries)", source)
    products = re.findall(r"tl\.dot\((.*)\)", source)
    assert (len(factors), len(products)) == ((7, 1) if module is _tiles else (0, 0))
    assert all(factor.endswith(".to(tl.int64)") for factor in factors)
    assert all('input_precision="ieee"' in product for product in products)


def test_dimensions_that_do_not_lie_like_one() -> None:
    """More leading dimensions than the kernels have, in an order that no view can flatten."""
    tensors = [normal(3, 1, 2, 5, E).permute(2, 1, 0, 3, 4), normal(2, 1, 3, 9, E)]
    tensors.append(normal(3, 9, E_V))
    leaves = [x.requires_grad_() for x in tensors]
    found, truth = (
        attend(*leaves)
        for attend in (scaled_dot_product_attention, torch_dense.scaled_dot_product_attention)
    )
    torch.testing.assert_close(found, truth, rtol=1e-13, atol=1e-13)
    gradients = (torch.autograd.grad(x.square().sum(), leaves) for x in (found, truth))
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-13)


def test_a_mask_is_read_where_it_lies(started: list[tuple[str, dict[str, Any]]]) -> None:
    """One row of a mask for all heads and queries stays one row in memory."""
    mask = torch.zeros(30, dtype=torch.float64, device=DEVICE)
    scaled_dot_product_attention(*tensors("full", 3, 30), mask)
    view = started[0][1]["inputs"].mask
    assert view.strides[1:] == (0, 0, 1)
    assert view.start.data_ptr() == mask.data_ptr()


def saved(given: list[Tensor]) -> int:
    """Return how many bytes autograd keeps for the backward, beside the inputs."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        scaled_dot_product_attention(*given)
    return sum(x.nbytes for x in kept if all(x.data_ptr() != y.data_ptr() for y in given))


def test_two_numbers_a_row_are_kept() -> None:
    for dtype in ("float32", "bfloat16"):  # of half precision also what its rounding lost
        given = [x.requires_grad_() for x in tensors("full", 3, 4, dtype, n_heads=2)]
        assert saved(given) == 2 * 3 * (E_V + 2) * 4


# -- precision -------------------------------------------------------------------------------------


def test_grouped_heads_gather_their_gradients_in_float32() -> None:
    """8 equal terms of 1 + 43/128: in bfloat16 the last bits would be lost on the way."""
    group, ones = 8, torch.ones(1, 1, 1, dtype=torch.bfloat16, device=DEVICE)
    value = ones.clone().requires_grad_()
    output = scaled_dot_product_attention(ones.repeat(group, 1, 1), ones, value, enable_gqa=True)
    output.backward(torch.full_like(output, 1 + 43 / 128))
    assert value.grad is not None
    assert value.grad.item() == 10.6875


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


# -- where there is no GPU, or more than one -------------------------------------------------------


def test_without_a_gpu_and_without_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form is not listed, and says what to do."""
    monkeypatch.setattr(triton_fused, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "triton_fused" not in attnlib.implementations()
    assert "torch_blockwise" in attnlib.implementations()
    with pytest.raises(ValueError, match=r"on a GPU .cuda.; got cpu.*torch_block.*INTERPRET=1"):
        scaled_dot_product_attention(*(torch.ones(2, 2) for _ in range(3)))


def test_kernels_start_on_the_device_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.device] = []

    @contextlib.contextmanager
    def current(device: torch.device) -> Iterator[None]:
        entered.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", current)
    for kind in ("cuda:1", "cpu"):
        with launch._ready(torch.device(kind)):
            assert entered == [torch.device("cuda:1")]
