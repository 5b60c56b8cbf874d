"""`attncheck` notices the faults of the field, and its report leads to them.

A correct kernel of the same conventions has no failures. What other suites notice is computed too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from faulty_kernels import FAULTS, MISTAKES, Fault, at_one, onnx_like, sixteens_like, torch_like

from attncheck import Call, Case, Given, Kernel, Report, _definition, backend_for, check
from attncheck._calls import CLAIMED, TOPICS
from attncheck._claims import restored
from attncheck._layouts import heads_inside

Array = np.ndarray[Any, Any]

TWINS = {fault.build.__name__: fault.build for fault in FAULTS.values()}


def failed_topics(report: Report) -> set[str]:
    return {result.case.topic for result in report.failed}


def test_every_topic_has_a_fault_that_it_must_notice() -> None:
    by_a_field = {"large masks", "compiled"}  # of Kernel: see test_asked
    topics = {*MISTAKES.values(), *(fault.topic for fault in FAULTS.values())}
    assert topics == set(TOPICS) - by_a_field


# On each change at one head dimension. The one in which the most is claimed is in test_adapters.
QUICK = [(name, at_one) for name in ("torch_like", "serving_like", "onnx_like")]
WHOLE = [pytest.param(name, Kernel.of, marks=pytest.mark.slow) for name in TWINS]


@pytest.mark.parametrize(("twin", "part"), [*QUICK, *WHOLE])
def test_a_twin_passes_everything(twin: str, part: Callable[[Kernel], Kernel]) -> None:
    report = check(part(TWINS[twin]()))
    assert report.passed, str(report)
    assert (report.failed, report.refused) == ([], [])
    assert len(str(report).splitlines()) <= 40


# What sets failures apart is what passes, and where a whole topic fails, another one does.
@pytest.mark.parametrize("beside", ["layouts", pytest.param("values", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed_and_the_report_leads_to_it(name: str, beside: str) -> None:
    fault = FAULTS[name]
    kernel = fault.build(name)
    if kernel.head_dims and "head dimension" not in fault.word and beside == "layouts":
        kernel = at_one(kernel)
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


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed_by_its_topic(name: str) -> None:
    report = check(torch_like(name), only=[MISTAKES[name]])
    assert failed_topics(report) == {MISTAKES[name]}


def test_a_head_dimension_that_is_refused_is_no_failure_where_it_is_not_claimed() -> None:
    kernel = sixteens_like()
    own = Kernel(kernel.function, "BHSD", names=kernel.names)
    report = check(own, only=["causal", "groups"])
    assert report.passed, str(report)
    assert {result.case.head_dims for result in report.refused} == {(13, 11)}
    assert "ValueError: multiples of #; got" in str(report)


# What other suites notice -------------------------------------------------------------------------

# What the functions that they are for have no keyword for, or what they do not compare.
NOT_IN_TORCH = {*CLAIMED, "windows", "bottom-right"}
NOT_IN_ONNX = {*CLAIMED, "bottom-right", "gradients", "mask gradients"} - {"soft cap"}


def given(arrays: dict[str, Array], layout: Any = None) -> dict[str, Given]:
    """Return arrays as arguments; query, key and value may lie otherwise in memory."""
    inputs = ("query", "key", "value")
    return {n: Given(x, str(x.dtype), layout if n in inputs else None) for n, x in arrays.items()}


def of_torch() -> Iterator[Call]:
    """Yield the samples of torch's OpInfo without dropout.

    OpInfo itself has no expected values for this function; with the definition's it notices more.
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
        tensors = dict(zip(("query", "key", "value"), (sample.input, *sample.args), strict=True))
        if "attn_mask" in options:
            tensors["attn_mask"] = options.pop("attn_mask")
        yield Call(given({name: tensor.numpy() for name, tensor in tensors.items()}), options)


def of_onnx() -> Iterator[Call]:
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
    ) -> Call:
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
        return Call(given(arrays, layout), options | groups)

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


SUITES: dict[str, tuple[Callable[[], Iterator[Call]], set[str], bool, dict[str, float]]] = {
    "torch": (of_torch, NOT_IN_TORCH, True, {"atol": 5e-5, "rtol": 5e-6}),
    "ONNX": (of_onnx, NOT_IN_ONNX, False, {"atol": 1e-7, "rtol": 1e-3}),
}


@pytest.mark.parametrize("suite", SUITES)
def test_what_other_suites_notice(suite: str) -> None:
    """What a suite cannot call is no fault of its: other head dimensions, keywords, functions."""
    draw, lacks, gradients, bounds = SUITES[suite]
    calls = [(call, _definition.output(call)) for call in draw()]

    def noticed(fault: Fault, name: str) -> bool | None:
        kernel = fault.build(name)
        if lacks & {fault.topic, *fault.needs}:
            return None
        taken, right = [], True
        for call, truth in calls:
            if (got := answer(kernel, call)) is not None:
                taken.append(call)
                right = right and np.allclose(got, truth, **bounds)
        wrong = not right or (gradients and wrong_gradients(kernel, taken))
        return wrong if taken else None

    twins = [Fault(build, "values", "") for build in (torch_like, onnx_like)]
    assert [noticed(twin, "") for twin in twins] == [False, False]
    taken = [answer(twin.build(""), call) is not None for twin in twins for call, _ in calls]
    assert sum(taken) > len(calls)
    found = {name: noticed(fault, name) for name, fault in FAULTS.items()}
    plain = {
        "is_causal stands at the other corner",
        "the scale is 1/d",
        "zeros that an absolute tolerance accepts",
    }
    more = {
        "torch": {"gradients are zeros"},
        "ONNX": {
            "a boolean mask is inverted",
            "a mask of the batch is read by head",
            "groups are tiled",
            "strides are ignored",
            "the soft cap comes after the mask",
        },
    }
    assert {name for name, own in found.items() if own} == plain | more[suite]
    assert sum(own is not None for own in found.values()) == 16
