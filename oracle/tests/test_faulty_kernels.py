"""`attncheck` notices the faults of the field, and its report leads to them.

A correct kernel of the same conventions has no failures. What other suites notice is computed too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import faulty_kernels
import numpy as np
import pytest
import torch
from faulty_kernels import FAULTS, MISTAKES, Fault
from runs import at_one, noticing
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from attncheck import Call, Case, Given, Kernel, Report, backend_for, check
from attncheck._calls import CLAIMED, TOPICS
from attncheck._claims import restored
from attncheck._layouts import heads_inside

Array = np.ndarray[Any, Any]

TWINS = {fault.build.__name__: fault.build for fault in FAULTS.values()}


def failed_topics(report: Report) -> set[str]:
    return {result.case.topic for result in report.failed}


def passes(kernel: Kernel) -> None:
    report = check(kernel)
    assert report.passed, str(report)
    assert (report.failed, report.refused) == ([], [])
    assert len(str(report).splitlines()) <= 40


# On each change one with torch's conventions, and one with others.
QUICK = ("torch_like", "flash_like")


@pytest.mark.parametrize("twin", QUICK)
def test_a_twin_passes_everything_at_one_head_dimension(twin: str) -> None:
    passes(at_one(TWINS[twin]()))


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
def test_a_twin_passes_everything(twin: str) -> None:
    passes(TWINS[twin]())


def is_led_to(name: str, kernel: Kernel, beside: str) -> None:
    """Require that a report on the topic of a fault, and on one beside it, leads to the fault."""
    fault = FAULTS[name]
    report = check(kernel, only={fault.topic, beside, *fault.needs})
    assert fault.topic in failed_topics(report), str(report)
    leads = [
        fault.word in f"{group.condition}, {group.kind}"
        for group in report.groups
        if any(result.case.topic == fault.topic for result in group.results)
    ]
    assert any(leads), str(report)
    assert len(str(report).splitlines()) <= 40
    assert not report.passed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed_and_the_report_leads_to_it(name: str) -> None:
    fault = FAULTS[name]
    kernel = fault.build(name)
    if kernel.head_dims and "head dimension" not in fault.word:
        kernel = at_one(kernel)
    # What sets failures apart is what passes, and where a whole topic fails, another one does.
    is_led_to(name, kernel, "layouts")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed_among_all_topics(name: str) -> None:
    report = check(FAULTS[name].build(name))
    assert FAULTS[name].topic in failed_topics(report), str(report)
    is_led_to(name, FAULTS[name].build(name), "values")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed_by_its_topic(name: str) -> None:
    kernel, topic = faulty_kernels.torch_like(name), MISTAKES[name]
    assert noticing(kernel, "torch", [topic]) == {topic}


def test_the_faults_are_many_and_kernels_have_conventions_of_their_own() -> None:
    own = [name for name, fault in FAULTS.items() if fault.build is not faulty_kernels.torch_like]
    assert len(own) >= len(FAULTS) / 3
    assert {*MISTAKES.values(), *(fault.topic for fault in FAULTS.values())} == set(TOPICS)


def test_what_a_kernel_does_not_claim_is_listed_and_not_asked() -> None:
    """Multiples of 16 only, (B, S, H, D), other names, is_causal at the bottom right."""
    kernel = faulty_kernels.flash_like()
    report = check(kernel, only=["masks", "causal", "bottom-right", "sinks", "errors"])
    assert report.passed, str(report)
    assert report.failed == report.refused == []
    assert report.asked > len(report.results)
    assert {"masks", "sinks"} <= set(report.not_claimed)
    assert "masks" in str(report).split("not claimed: ")[1]
    assert "no causal mask at the top left" in report.not_claimed.values()


def test_a_head_dimension_that_is_refused_is_no_failure_where_it_is_not_claimed() -> None:
    kernel = faulty_kernels.sixteens_like()
    own = Kernel(kernel.function, "BHSD", names=kernel.names)
    report = check(own, only=["causal", "groups"])
    assert report.passed, str(report)
    assert {result.case.head_dims for result in report.refused} == {(13, 11)}
    assert "ValueError: multiples of #; got" in str(report)


# What other suites notice -------------------------------------------------------------------------

Asked = tuple[Call, Array]  # a call, and the result that a suite expects
# What the functions that they are for have no keyword for, or what they do not compare.
NOT_IN_TORCH = {*CLAIMED, "windows", "bottom-right"}
NOT_IN_ONNX = {*CLAIMED, "bottom-right", "gradients", "mask gradients"} - {"soft cap"}


def given(arrays: dict[str, Array], layout: Any = None) -> dict[str, Given]:
    """Return arrays as arguments; query, key and value may lie otherwise in memory."""
    inputs = ("query", "key", "value")
    return {n: Given(x, str(x.dtype), layout if n in inputs else None) for n, x in arrays.items()}


def of_torch() -> Iterator[Asked]:
    """Yield the samples of torch's OpInfo without dropout, with the result of its MATH backend.

    OpInfo itself has no expected values for this function; with them it notices more.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = "torch.testing._internal.common_methods_invocations"
        samples = pytest.importorskip(path, exc_type=ImportError)
    torch.manual_seed(7)
    draw = samples.sample_inputs_scaled_dot_product_attention
    for sample in draw(None, "cpu", torch.float32, requires_grad=False):
        options = {name: x for name, x in sample.kwargs.items() if x is not False}
        if options.pop("dropout_p"):
            continue
        with sdpa_kernel(SDPBackend.MATH):
            expected = functional.scaled_dot_product_attention(
                sample.input, *sample.args, **options
            )
        tensors = dict(zip(("query", "key", "value"), (sample.input, *sample.args), strict=True))
        if "attn_mask" in options:
            tensors["attn_mask"] = options.pop("attn_mask")
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        yield Call(given(arrays), options), expected.numpy()


def by_onnx(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None, is_causal: bool = False,
    scale: float | None = None, softcap: float | None = None, window: Any = None, **_: Any,
) -> Array:
    """Return attention by the formula that ONNX documents for its operator Attention."""
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
    scores = (query @ key.mT) * np.float32(scale or query.shape[-1] ** -0.5)
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    ahead = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]
    left, right = (np.inf if n is None else n for n in window or (None, None))
    kept = (ahead <= (0 if is_causal else right)) & (ahead >= -left)
    if attn_mask is not None:
        mask = np.where(attn_mask, 0, -np.inf) if attn_mask.dtype == bool else attn_mask
        scores = scores + mask
    scores = np.where(kept, scores, -np.inf)
    highest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total) @ value).astype(query.dtype)


def of_onnx() -> Iterator[Asked]:
    """Yield the calls of ONNX's backend tests of Attention that need no cache and no lengths.

    Past keys and values are joined with the others, as the operator does it. Inputs of rank 3,
    (B, L, H · E), are views with the heads inside.
    """
    rng = np.random.default_rng(7)

    def drawn(*shape: int) -> Array:
        return rng.random(shape, dtype=np.float32)

    def asked(
        heads: int = 3, n_values: int = 8, n_keys: int = 6, mask: Array | None = None,
        shape: tuple[int, int, int] = (2, 4, 8), layout: Any = None, dtype: str = "float32",
        **options: Any,
    ) -> Asked:
        batch, n_queries, features = shape
        key_heads = {9: 3, 4: 2}.get(heads, heads)
        arrays = {
            "query": drawn(batch, heads, n_queries, features),
            "key": drawn(batch, key_heads, n_keys, features),
            "value": drawn(batch, key_heads, n_keys, n_values),
        }
        arrays = {name: x.astype(dtype) for name, x in arrays.items()}
        arrays |= {} if mask is None else {"attn_mask": mask}
        groups = {"enable_gqa": True} if heads != key_heads else {}
        return Call(given(arrays, layout), options | groups), by_onnx(**arrays, **options)

    for layout, cap in ((None, 2.0), (heads_inside, 3.0)):
        for more in ({}, {"heads": 9}, {"n_values": 10}):
            own: dict[str, Any] = {**more, "layout": layout}
            yield asked(**own)
            yield asked(**own, scale=1e-2)
            yield asked(**own, is_causal=True)
            yield asked(**own, mask=drawn(4, 6))
            yield asked(**own, softcap=cap)
            yield asked(**own, n_keys=18, mask=drawn(4, 18))
    yield asked(dtype="float16")
    for batch_and_heads in ((2, 1), (2, 3)):
        yield asked(mask=drawn(*batch_and_heads, 4, 6))
        yield asked(mask=drawn(*batch_and_heads, 4, 6), is_causal=True)
        yield asked(n_keys=18, mask=drawn(*batch_and_heads, 4, 18))
    for shape in ((4, 6), (2, 3, 4, 6)):  # numbers above 0, as booleans: all of them are True
        yield asked(mask=drawn(*shape).astype(bool))
    yield asked(mask=drawn(4, 6), softcap=2.0)
    removed = np.zeros((4, 6), np.float32)
    removed[:, 4:] = -np.inf
    yield asked(heads=1, shape=(1, 4, 8), mask=removed, softcap=0.5)
    first_row = np.array([[False, False], [True, True]])
    yield asked(heads=2, n_keys=2, shape=(1, 2, 8), mask=first_row)
    second_row = np.array([[True, False], [False, False]])
    yield asked(heads=2, n_keys=2, shape=(1, 2, 8), mask=second_row, is_causal=True)
    yield asked(is_causal=True, window=(2, None))
    yield asked(heads=1, n_values=1, n_keys=5, shape=(1, 5, 1), window=(1, 2))
    yield asked(is_causal=True, window=(2, None), mask=np.arange(6) < 4)


def answer(kernel: Kernel, call: Call) -> Array | None:
    """Return what a kernel gives for a call; None for one that it does not take."""
    backend, case = backend_for("torch"), Case("values", "a call of another suite", lambda _: call)
    if kernel.unclaimed(case, call):
        return None
    try:
        own = {name: backend.give(x) for name, x in kernel.arranged(call).items()}
        result = kernel.called(call, own, {})
    except (TypeError, ValueError):
        return None
    order = kernel.orders(call)["output"]
    return restored(result.numpy(), *order, call.given["query"].numbers.ndim)


def wrong_gradients(kernel: Kernel, calls: list[Call]) -> bool:
    """Return whether torch's gradcheck, as OpInfo's tests run it, notices the kernel."""
    for call in calls:
        arrays = kernel.arranged(call)
        tensors = [torch.tensor(x.numbers, dtype=torch.float64) for x in arrays.values()]
        leaves = tuple(tensor.requires_grad_() for tensor in tensors)

        def attend(*own: Any, call: Call = call, names: tuple[str, ...] = tuple(arrays)) -> Any:
            return kernel.called(call, dict(zip(names, own, strict=True)), {})

        if not torch.autograd.gradcheck(attend, leaves, fast_mode=True, raise_exception=False):
            return True
    return False


def noticed(
    fault: Fault, name: str, calls: list[Asked], lacks: set[str], gradients: bool, **bounds: float
) -> bool | None:
    """Return whether a suite notices a fault; None where it cannot call what has it."""
    kernel = fault.build(name)
    if lacks & {fault.topic, *fault.needs}:
        return None
    taken, right = [], True
    for call, expected in calls:
        got = answer(kernel, call)
        if got is not None:
            taken.append(call)
            right = right and np.allclose(got, expected, **bounds)
    if not taken:
        return None
    return not right or (gradients and wrong_gradients(kernel, taken))


SUITES: dict[str, tuple[Callable[[], Iterator[Asked]], set[str], dict[str, Any]]] = {
    "torch": (of_torch, NOT_IN_TORCH, {"atol": 5e-5, "rtol": 5e-6, "gradients": True}),
    "ONNX": (of_onnx, NOT_IN_ONNX, {"atol": 1e-7, "rtol": 1e-3, "gradients": False}),
}


def counts(suite: str) -> dict[str, bool]:
    """Return, for each fault that a suite can call, whether it notices it."""
    draw, lacks, how = SUITES[suite]
    calls = list(draw())
    found = {name: noticed(f, name, calls, lacks, **how) for name, f in FAULTS.items()}
    return {name: own for name, own in found.items() if own is not None}


@pytest.mark.parametrize("suite", SUITES)
def test_other_suites_find_nothing_wrong_with_the_twins(suite: str) -> None:
    draw, _, how = SUITES[suite]
    calls = list(draw())
    asked = 0
    for build in (faulty_kernels.torch_like, faulty_kernels.onnx_like):
        fault = Fault(build, "values", "")
        asked += sum(answer(build(), call) is not None for call, _ in calls)
        assert noticed(fault, "", calls, set(), **how) is False
    assert asked > len(calls)


def test_what_other_suites_notice() -> None:
    """What a suite cannot call is no fault of its: other head dimensions, keywords, functions."""
    found = {suite: counts(suite) for suite in SUITES}
    by_torch, by_onnx = ({name for name, own in found[s].items() if own} for s in SUITES)
    plain = {
        "is_causal stands at the other corner",
        "the scale is 1/d",
        "zeros that an absolute tolerance accepts",
    }
    assert by_torch == plain | {"gradients are zeros"}
    assert by_onnx == plain | {
        "a boolean mask is inverted",
        "a mask of the batch is read by head",
        "groups are tiled",
        "strides are ignored",
        "the soft cap comes after the mask",
    }
    assert {suite: len(own) for suite, own in found.items()} == {"torch": 16, "ONNX": 16}
