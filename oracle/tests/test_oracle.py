"""`attncheck` finds broken kernels, names the right topics, and passes a correct one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from implementations import DTYPES

import attncheck
from attncheck import (
    CLAIMED,
    TOPICS,
    Case,
    Given,
    Kernel,
    _definition,
    backend_for,
    cases,
    check,
    judge,
)
from attncheck.__main__ import main
from attncheck._advice import advice
from attncheck._definition import combined_mask
from attncheck._layouts import LAYOUTS
from attnlib import numpy_tokenwise, torch_dense
from attnlib.numpy_dense import scaled_dot_product_attention as right
from peers.verdict import questions

Array = np.ndarray[Any, Any]

ASKED = set(TOPICS) - set(CLAIMED)
EVERYWHERE = ASKED - {"gradients", "mask gradients"}
LITTLE: dict[str, Any] = {"only": ["causal"]}


def topics(report: attncheck.Report) -> set[str]:
    return {result.case.topic for result in report.failed}


def on_tensors(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel on tensors that is right but for `change`."""

    def kernel(*arguments: Any, **options: Any) -> Any:
        return change(torch_dense.scaled_dot_product_attention, *arguments, **options)

    return kernel


def test_a_correct_kernel_passes_everything() -> None:
    report = check(right, "numpy")
    assert report.passed, str(report)
    assert report.failed == []
    assert {r.case.topic for r in report.results} == EVERYWHERE
    assert "left out" not in str(report)


def test_the_truth_is_the_definition_to_the_last_bit() -> None:
    """The definition in loops has no sinks and no soft cap; long loops bring nothing more."""
    topics = set()
    for case in questions():
        if case.call.refused or case.topic in ("sinks", "soft cap"):
            continue
        own = _definition.problem(case.call)
        if own.query.size * own.key.shape[-2] <= 4_000:
            truth = _definition.attention(own)
            attend = numpy_tokenwise.scaled_dot_product_attention_with_lse
            loops = attend(own.query, own.key, own.value, own.attn_mask, scale=own.scale)
            assert [x.tobytes() for x in truth] == [x.tobytes() for x in loops], str(case)
            topics.add(case.topic)
    of_a_claim = {"errors", "sinks", "soft cap", "large masks", "compiled"}
    assert topics == set(TOPICS) - of_a_claim


def test_a_floating_mask_beside_a_window_keeps_its_numbers_where_the_window_allows() -> None:
    mask, allowed = np.array([[0.5, -np.inf, 2.0]]), np.array([[True, True, False]])
    np.testing.assert_array_equal(combined_mask(mask, allowed), [[0.5, -np.inf, -np.inf]])


# -- kernels that are wrong ------------------------------------------------------------------------


def test_a_kernel_that_raises_on_every_call() -> None:
    """Of what is invalid it refuses nothing: the same call put right must be accepted."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel\nfor this GPU")

    asked = {"causal", "empty", "mask gradients", "errors"}
    report = check(broken, only=asked)
    assert not report.passed and not any(result.passed for result in report.results)
    assert {result.case.topic for result in report.refused} == asked
    assert f"refused {len(report.results)} cases: RuntimeError: no kernel for this" in str(report)
    claimed = check(Kernel(broken, head_dims=[13], dtypes=DTYPES), only=asked)
    assert topics(claimed) == asked, "what is claimed has failed"
    assert "expected a result, but RuntimeError: no kernel for this GPU was raised" in str(claimed)
    said = "".join(map(str, claimed.failed))
    assert "expected gradients, but RuntimeError" in said
    assert "expected the same call put right to be accepted" in said


@pytest.mark.parametrize("error", [KeyError("scale"), ValueError(), RuntimeError("  ")])
def test_a_refusal_has_its_kind_and_its_words(error: Exception) -> None:
    def broken(kernel: Any, *a: Any, **o: Any) -> Any:
        try:
            return kernel(*a, **o)
        except (ValueError, TypeError):
            raise error from None

    report = check(on_tensors(broken), only=["errors"])
    assert len(report.failed) == len(report.results)
    assert "with a message, but" in report.failed[0].message


WRONG_RESULTS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "dtype": (lambda x: x.double(), "expected dtype float32, got float64"),
    "shape": (lambda x: x[..., :1, :], "expected shape (1, 2, 7, 13), got (1, 2, 1, 13)"),
    "no tensor": (lambda x: x.tolist(), "expected a torch.Tensor, got list"),
    "an array": (lambda x: x.numpy(), "expected a torch.Tensor, got ndarray"),
    "device": (lambda x: x.to("meta"), "expected a result on cpu, got one on meta"),
}


@pytest.mark.parametrize("what", WRONG_RESULTS)
def test_a_result_of_a_wrong_kind(what: str) -> None:
    change, words = WRONG_RESULTS[what]
    report = check(on_tensors(lambda kernel, *a, **o: change(kernel(*a, **o))), **LITTLE)
    assert len(report.failed) >= len(report.results) - 8  # a result of one row has its shape
    assert any(words in result.message for result in report.failed), str(report)


def test_a_gradient_of_a_wrong_kind() -> None:
    report = check(on_tensors(lambda kernel, *a, **o: kernel(*a, **o).detach()), only=["gradients"])
    assert not any(result.passed for result in report.results)
    assert "does not require grad" in report.results[0].message

    class Backend:
        """A backend that gives the gradients of a kernel in another dtype."""

        def __getattr__(self, name: str) -> Any:
            return getattr(backend_for("torch"), name)

        def gradients(self, *given: Any) -> Any:
            found = backend_for("torch").gradients(*given)
            return {name: gradient.double() for name, gradient in found.items()}

    result = judge(report.results[0].case, torch_dense.scaled_dot_product_attention, Backend())
    assert "the gradient of query: expected dtype float32, got float64" in result.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (list, "expected a numpy.ndarray, got list"),
        (lambda x: x.astype(object), "expected dtype float32, got object"),
        (lambda x: x.astype(np.int64), "expected dtype float32, got int64"),
    ],
)
def test_an_array_of_a_wrong_kind(change: Callable[[Array], Any], words: str) -> None:
    report = check(lambda *a, **o: change(right(*a, **o)), "numpy", **LITTLE)
    assert not any(result.passed for result in report.results)
    assert words in report.failed[0].message


def read_only(query: Any, key: Any, value: Any, **options: Any) -> Any:
    result = right(query, key, value, **options)
    result.flags.writeable = False
    return result


def the_value_itself(query: Any, key: Any, value: Any, **options: Any) -> Any:
    """Return a view of the value where there is one key, which is then the result."""
    on_arrays = isinstance(query, np.ndarray)
    attend = right if on_arrays else torch_dense.scaled_dot_product_attention
    result = attend(query, key, value, **options)
    if value.shape[-2] != 1:
        return result
    return np.broadcast_to(value, result.shape) if on_arrays else value.expand_as(result)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(read_only, "numpy"), (the_value_itself, "numpy"), (the_value_itself, "torch")],
)
def test_a_result_that_is_not_its_own(kernel: Any, kind: str) -> None:
    report = check(kernel, kind, only=["values", "layouts"])
    assert topics(report) == {"layouts"}
    assert "expected a result of its own" in str(report)


def test_a_kernel_with_a_smaller_signature() -> None:
    def small_kernel(
        query: Array, key: Array, value: Array, *, scale: float | None = None
    ) -> Array:
        return right(query, key, value, scale=scale)

    less = ["masks", "causal", "windows", "bottom-right", "groups"]
    report = check(small_kernel, "numpy", without=less)
    assert report.passed, str(report)
    left_out = "masks, causal, bottom-right, windows, groups (left out)"
    assert left_out in str(report)
    report = check(small_kernel, "numpy", only=["values", "masks", "causal", "numbers"])
    assert report.passed
    assert re.search(r"masks, \d+ cases of other topics \(no mask\)", str(report))
    assert not any({"masks", "causal"} & set(result.case.needs) for result in report.results)


# -- the report ------------------------------------------------------------------------------------


def told_of(every: list[Case], kinds: dict[int, str]) -> attncheck.Report:
    """Return a report in which the cases at some places fail, each with its kind of failure."""
    found = [
        attncheck.Result(case, n not in kinds, "a call\nis wrong", kinds.get(n, ""))
        for n, case in enumerate(every)
    ]
    return attncheck.Report(found)


def test_a_report_says_how_many_groups_it_leaves_out() -> None:
    report = told_of(cases("numpy", only=["causal"])[:14], dict(enumerate("abcdefghijkl")))
    lines = str(report).splitlines()
    assert len(lines) <= 40
    assert lines[-1] == "and 4 cases more, in 4 groups: --all"
    assert "kind l" not in str(report) and len(report.told(None).splitlines()) == 4 + 4 * 12


def test_one_case_that_little_sets_apart_is_named() -> None:
    every = cases("numpy", only=["values"], dtypes=["float32"])
    [place] = [
        n for n, case in enumerate(every) if case.id == "values[queries-1-keys-70-float32-d13]"
    ]
    assert 'it is the case "queries: 1, keys: 70"' in str(told_of(every, {place: "other numbers"}))


# -- what is asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_cases_have_names_of_their_own_and_topics_that_are_known(kind: str) -> None:
    every = cases(kind, dtypes=list(DTYPES))
    assert len({str(case) for case in every}) == len({case.id for case in every}) == len(every)
    assert {topic for case in every for topic in (case.topic, *case.needs)} <= set(TOPICS)
    assert {case.topic for case in every} == (ASKED if kind == "torch" else EVERYWHERE)
    places = [list(TOPICS).index(case.topic) for case in every]
    assert places == sorted(places)


def test_dtypes() -> None:
    assert {case.dtype for case in cases("numpy", only=["masks"])} == {"float32"}
    assert {case.dtype for case in cases("numpy", only=["dtypes"])} == set(DTYPES)
    report = check(torch_dense.scaled_dot_product_attention, dtypes="bfloat16", only="gradients")
    assert report.passed, str(report)
    assert {result.case.dtype for result in report.results} == {"bfloat16"}


def test_strides_are_kept_on_another_device() -> None:
    numbers = np.ones((2, 3, 5, 7))
    for layout in LAYOUTS:
        given = Given(numbers, "float32", layout)
        there, here = (backend_for("torch", device).give(given) for device in ("meta", "cpu"))
        assert there.device.type == "meta"
        assert there.stride() == here.stride()
        assert there.shape == here.shape


def test_plain_attention_in_half_precision_is_alike_in_numpy_and_torch() -> None:
    for case in cases("numpy", dtypes=["bfloat16"], only=["masks", "empty", "groups", "values"]):
        call = case.call
        # Among scores of ten thousand a rounding decides which key wins.
        if not call.refused and "ten thousand" not in case.name:
            ours, theirs = (backend_for(kind).peer(call) for kind in ("numpy", "torch"))
            np.testing.assert_allclose(ours, theirs, atol=0.15, rtol=0.1)


def test_without_ml_dtypes_there_is_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    report = check(right, "numpy", only=["dtypes"])
    assert report.passed
    assert "bfloat16 (ml_dtypes is not installed)" in str(report)
    with pytest.raises(ValueError, match="bfloat16 is not, ml_dtypes is not installed"):
        check(right, "numpy", dtypes=["bfloat16"])


@pytest.mark.parametrize(
    ("attention", "options", "message"),
    [
        (3, {}, "attention must be callable; got int"),
        (right, {"kind": "jax"}, """kind must be "numpy" or "torch"; got 'jax'"""),
        (right, {"only": ["mask"]}, "only must name topics of values, masks, .*; got 'mask'"),
        (right, {"without": "window"}, "without must name topics of .*; got 'window'"),
        (right, {"dtypes": ["fp16"]}, "dtypes must name some of float16, .*; got 'fp16'"),
        (right, {"kind": "numpy", "device": "cuda"},
         """device must be "cpu" for NumPy arrays; got 'cuda'"""),
        (right, {"device": "nowhere"}, "device must be one that torch has here; got 'nowhere'"),
        (right, {"seed": "seven"}, "seed must be an integer or"),
        (right, {"kind": "numpy", "only": ["gradients"]}, "no case is left"),
        (Kernel(right, mask=None), {"only": ["masks"]}, "no case is left"),
    ],
)
def test_what_is_invalid_is_refused(attention: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check(attention, **options)


class WithRoundedOutput(torch.autograd.Function):
    """Attention in float32, whose backward pass takes D from the output that it rounded."""

    row_sums = staticmethod(lambda above, output: (above * output).sum(-1, keepdim=True))

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
        q, k, v = (x.float() for x in (query, key, value))
        weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        output = (weights @ v).to(query.dtype)
        ctx.save_for_backward(q, k, v, weights, output)
        return output

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        q, k, v, weights, output = ctx.saved_tensors
        d_output = above[0].float()
        rows = WithRoundedOutput.row_sums(d_output, output.float())
        d_scores = weights * (d_output @ v.mT - rows) * q.shape[-1] ** -0.5
        found = d_scores @ k, d_scores.mT @ q, weights.mT @ d_output
        return tuple(x.to(output.dtype) for x in found)


def test_gradients_in_half_precision_allow_for_the_rounded_output(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one or two keys plain attention has nearly no error, and this kernel some."""

    def attention(query: Any, key: Any, value: Any) -> Any:
        return WithRoundedOutput.apply(query, key, value)

    kernel = Kernel(attention, "BHSD", head_dims=[64], dtypes=["bfloat16"])
    few = [f"gradients[queries-{n}-bfloat16-d64]" for n in ("1-keys-1", "17-keys-1", "1-keys-2")]
    for seed in range(3):
        report = check(kernel, case=few, seed=seed)
        assert report.passed, str(report)
    monkeypatch.setattr(WithRoundedOutput, "row_sums", lambda above, output: 0)
    assert len(check(kernel, case=few).failed) == len(few)


# -- what was meant --------------------------------------------------------------------------------

PLAIN = "values[query-5-E-key-7-E-float32-d13]"
sdpa: Any = torch.nn.functional.scaled_dot_product_attention


def plain_on_tensors(query: Any, key: Any, value: Any) -> Any:
    return sdpa(query, key, value)


def on_arrays(query: Any, key: Any, value: Any) -> Any:
    if not isinstance(query, np.ndarray):
        raise TypeError("arrays alone")
    return right(query, key, value)


def tokens_first(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    return sdpa(query, key, value, is_causal=causal).transpose(1, 2)


def always_causal(query: Any, key: Any, value: Any) -> Any:
    return tokens_first(query, key, value, causal=True)


def of_rank_3(query: Any, key: Any, value: Any) -> Any:
    if query.ndim != 3:
        raise ValueError("3 axes alone")
    return sdpa(query, key, value)


def in_float16(query: Any, key: Any, value: Any) -> Any:
    if query.dtype != torch.float16:
        raise ValueError("float16 alone")
    return sdpa(query, key, value)


def no_scale(query: Any, key: Any, value: Any) -> Any:
    return sdpa(query, key, value, scale=1.0)


@pytest.mark.parametrize(
    ("attention", "kind", "hint"),
    [
        (on_arrays, "torch", "hint: its numbers are right for arrays (--kind numpy)"),
        (plain_on_tensors, "numpy", "hint: its numbers are right for tensors (--kind torch)"),
        (tokens_first, "torch", 'hint: its numbers are right with axes="BSHD" in a Kernel'),
        (always_causal, "torch", 'hint: its numbers are right with axes="BSHD" in a Kernel, if all '
         "is causal at the top left"),
        (of_rank_3, "torch", 'hint: its numbers are right with 3 axes (axes="HSD" in a Kernel)'),
        (in_float16, "torch", "hint: its numbers are right in float16 (--dtypes float16)"),
        (no_scale, "torch", ""),
        (plain_on_tensors, "torch", ""),
    ],
)
def test_where_plain_calls_fail_the_other_ways_are_tried(
    attention: Any, kind: str, hint: str
) -> None:
    report = check(attention, kind, case=[PLAIN])
    assert advice(attention, report, kind, "cpu") == hint


def test_without_torch_there_is_no_advice_on_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(plain_on_tensors, "numpy", case=[PLAIN])
    monkeypatch.setitem(sys.modules, "attncheck._torch_backend", None)
    assert advice(plain_on_tensors, report, "numpy", "cpu") == ""


def test_the_command_gives_the_hint_below_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{__name__}:tokens_first", "--case", PLAIN]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("hint: its numbers are right with")
