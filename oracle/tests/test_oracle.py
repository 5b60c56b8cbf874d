"""`attncheck` finds broken kernels, names the right topics, and passes a correct one."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from implementations import DTYPES
from torch.nn import functional

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
from attncheck._calls import rounded
from attncheck._definition import combined_mask
from attncheck._layouts import LAYOUTS
from attnlib import numpy_dense, numpy_tokenwise, torch_dense
from attnlib.numpy_dense import scaled_dot_product_attention as right
from peers.verdict import questions

Array = np.ndarray[Any, Any]
PACKAGES = [str(Path(module.__file__).parents[1]) for module in (attncheck, numpy_dense)]

ASKED = set(TOPICS) - set(CLAIMED)
EVERYWHERE = ASKED - {"gradients", "mask gradients"}


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
    assert topics(report) == set()
    assert {r.case.topic for r in report.results} == EVERYWHERE
    assert "left out" not in str(report)


# -- the truth -------------------------------------------------------------------------------------


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
    assert topics == set(TOPICS) - {"errors", "sinks", "soft cap"}


# -- kernels on tensors ----------------------------------------------------------------------------


LITTLE: dict[str, Any] = {"only": ["causal"]}
FEW = {"causal", "empty", "mask gradients", "errors"}
ALL = pytest.param(ASKED, marks=pytest.mark.slow, id="all")


@pytest.mark.parametrize("asked", [pytest.param(FEW, id="few"), ALL])
def test_a_kernel_that_raises_on_every_call(asked: set[str]) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel\nfor this GPU")

    report = check(broken, only=asked)
    assert not report.passed and not any(result.passed for result in report.results)
    assert {result.case.topic for result in report.refused} == asked
    assert f"refused {len(report.results)} cases: RuntimeError: no kernel for this" in str(report)
    claimed = check(Kernel(broken, head_dims=[13], dtypes=DTYPES), only=asked)
    assert topics(claimed) == asked, "what is claimed has failed"
    report = claimed
    assert "expected a result, but RuntimeError: no kernel for this GPU was raised" in str(report)
    assert "expected gradients, but RuntimeError" in "".join(map(str, report.failed))


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


def test_who_refuses_everything_refuses_nothing_that_is_invalid() -> None:
    """An error counts beside the same call put right, and that must be accepted."""

    def refuses(*_: Any, **__: Any) -> Any:
        raise ValueError("no")

    report = check(refuses, only=["errors"])
    assert not report.passed
    assert "expected the same call put right to be accepted" in report.results[0].message


WRONG_RESULTS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "dtype": (lambda x: x.double(), "expected dtype float32, got float64"),
    "shape": (lambda x: x[..., :1, :], "expected shape (1, 2, 7, 13), got (1, 2, 1, 13)"),
    "no tensor": (lambda x: x.tolist(), "expected a torch.Tensor, got list"),
    "nothing": (lambda x: None, "expected a torch.Tensor, got NoneType"),
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
    assert not report.passed

    class Backend:
        """A backend that gives the gradients of a kernel in another dtype."""

        def __getattr__(self, name: str) -> Any:
            return getattr(backend_for("torch"), name)

        def gradients(self, *given: Any) -> Any:
            found = backend_for("torch").gradients(*given)
            return {name: gradient.double() for name, gradient in found.items()}

    [case] = cases("torch", only=["gradients"])[:1]
    result = judge(case, torch_dense.scaled_dot_product_attention, Backend())
    assert "the gradient of query: expected dtype float32, got float64" in result.message


def test_arrays_of_a_wrong_kind() -> None:
    for change, words in (
        (list, "expected a numpy.ndarray, got list"),
        (lambda x: x.astype(object), "expected dtype float32, got object"),
        (lambda x: x.astype(np.int64), "expected dtype float32, got int64"),
    ):
        report = check(lambda *a, change=change, **o: change(right(*a, **o)), "numpy", **LITTLE)
        assert not any(result.passed for result in report.results)
        assert words in report.failed[0].message


def test_a_result_that_is_not_its_own() -> None:
    def read_only(*a: Any, **o: Any) -> Any:
        result = right(*a, **o)
        result.flags.writeable = False
        return result

    def the_value_itself(query: Any, key: Any, value: Any, *a: Any, **o: Any) -> Any:
        result = right(query, key, value, *a, **o)
        return np.broadcast_to(value, result.shape) if value.shape[-2] == 1 else result

    for kernel in (read_only, the_value_itself):
        report = check(kernel, "numpy", only=["values", "layouts"])
        assert topics(report) == {"layouts"}
        assert "expected a result of its own" in str(report)

    def a_view_of_the_value(kernel: Any, query: Any, key: Any, value: Any, **options: Any) -> Any:
        result = kernel(query, key, value, **options)
        return value.expand_as(result) if key.shape[-2] == 1 else result

    assert topics(check(on_tensors(a_view_of_the_value), only=["layouts"])) == {"layouts"}


def test_a_kernel_with_a_smaller_signature() -> None:
    def small_kernel(
        query: Array, key: Array, value: Array, *, scale: float | None = None
    ) -> Array:
        return right(query, key, value, scale=scale)

    report = check(
        small_kernel, "numpy", without=["masks", "causal", "windows", "bottom-right", "groups"]
    )
    assert report.passed, str(report)
    left_out = "masks, causal, bottom-right, windows, groups (left out)"
    assert left_out in str(report)
    report = check(small_kernel, "numpy", only=["values", "masks", "causal", "numbers"])
    assert report.passed
    assert re.search(r"masks, \d+ cases of other topics \(no mask\)", str(report))
    assert not any({"masks", "causal"} & set(result.case.needs) for result in report.results)


# The page reference/conformance.ipynb asks this kernel all topics on each change.
SOME = {"causal", "numbers", "errors"}


@pytest.mark.parametrize("asked", [pytest.param(SOME, id="some"), ALL])
def test_the_faults_of_torchs_own_kernel(asked: set[str]) -> None:
    options: dict[str, Any] = {"only": asked, "without": ["bottom-right", "windows"]}
    report = check(functional.scaled_dot_product_attention, **options)
    found = {result.case.name: result.message for result in report.failed}
    assert "got nan" in found["scale=-0.7"]  # causal
    assert "got nan" in found["scale=0.0"]
    name = "nan in one number of the query comes out where it takes part"
    assert "expected nan, got 0" in found[name]
    for name in (
        "the value is shorter than the key", "the value is longer than the key", "scale=nan",
    ):
        assert "but the call returned: Tensor" in found[name]
    assert {"causal", "numbers", "gradients", "errors"} & asked <= topics(report)
    assert not {"values", "groups", "empty", "layouts", "dtypes"} & topics(report)


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
    assert lines[-1] == "and 3 cases more, in 3 groups: --all"
    assert "kind l" not in str(report) and len(report.told(None).splitlines()) == 3 + 4 * 12


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
    names = [str(case) for case in every]
    assert len(names) == len(set(names))
    assert {case.topic for case in every} | {*sum((case.needs for case in every), ())} <= set(
        TOPICS
    )
    assert {case.topic for case in every} == (ASKED if kind == "torch" else EVERYWHERE)
    ids = [case.id for case in every]
    assert len(ids) == len(set(ids))
    assert [case.topic for case in cases(kind)] == sorted(
        (case.topic for case in cases(kind)), key=list(TOPICS).index
    )


def test_dtypes() -> None:
    assert {case.dtype for case in cases("numpy", only=["masks"])} == {"float32"}
    assert {case.dtype for case in cases("numpy", only=["dtypes"])} == set(DTYPES)
    assert {case.dtype for case in cases("numpy", dtypes=["bfloat16"])} == {"bfloat16"}
    report = check(torch_dense.scaled_dot_product_attention, dtypes="bfloat16", only="gradients")
    assert report.passed, str(report)
    assert {result.case.dtype for result in report.results} == {"bfloat16"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_those_of_the_dtype(dtype: str) -> None:
    numbers = np.array([1 / 3, -2.7, 1e-3, 65000.0, np.inf, -np.inf, np.nan])
    truth = numbers.astype(DTYPES[dtype]).astype(np.float64)
    np.testing.assert_array_equal(rounded(numbers, dtype), truth)
    for kind in ("numpy", "torch"):
        backend = backend_for(kind)
        back, name = backend.take(backend.give(Given(rounded(numbers, dtype), dtype)))
        np.testing.assert_array_equal(back, truth)
        assert name == dtype


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
    ("options", "message"),
    [
        ({"kind": "jax"}, """kind must be "numpy" or "torch"; got 'jax'"""),
        ({"only": ["mask"]}, "only must name topics of values, masks, .*; got 'mask'"),
        ({"without": "window"}, "without must name topics of .*; got 'window'"),
        ({"dtypes": ["fp16"]}, "dtypes must name some of float16, .*; got 'fp16'"),
        (
            {"kind": "numpy", "device": "cuda"},
            """device must be "cpu" for NumPy arrays; got 'cuda'""",
        ),
        ({"device": "nowhere"}, "device must be one that torch has here; got 'nowhere'"),
        ({"kind": "numpy", "only": ["gradients"]}, "no case is left"),
        ({"only": ["masks"], "without": ["masks"]}, "no case is left"),
    ],
)
def test_what_is_invalid_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(right, **options)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="attention must be callable; got int"):
        check(3)  # type: ignore[arg-type]


def test_as_a_command_numpy_alone_is_needed_for_arrays(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import atexit, sys\nfrom attnlib.numpy_dense import scaled_dot_product_attention as f\n"
        "atexit.register(lambda: print({'torch', 'ml_dtypes'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-m", "attncheck", "mine:f", "--kind", "numpy"]
    done = subprocess.run(
        [*command, "--only", "values"], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(PACKAGES)},
    )
    assert (done.returncode, done.stderr) == (0, "")  # no bar where nobody looks
    assert done.stdout.endswith("set()\n") and "values" in done.stdout


# -- the command line ------------------------------------------------------------------------------

KERNELS = """
from attnlib import numpy_dense

right = numpy_dense.scaled_dot_product_attention

def blind(query, key, value, is_causal=False, scale=None):
    return right(query, key, value)

class Holder:
    right = staticmethod(right)

number = 3
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "kernels_to_check.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    return "kernels_to_check"


def told(*arguments: str) -> tuple[int, str, str]:
    """Return the exit status of the command, and what it wrote to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = int(str(stop.code))
    return status, out.getvalue(), err.getvalue()


def test_the_command_passes_and_fails(kernels: str) -> None:
    few = ("--kind", "numpy", "--only", "causal", "masks")
    status, out, err = told(f"{kernels}:Holder.right", *few)
    assert (status, err) == (0, "")
    assert out.startswith(f"attncheck of {kernels}:Holder.right, numpy on cpu, ")
    assert out.splitlines()[1].split() == ["topic", "passed", "failed", "refused"]
    assert "causal                52       0        0" in out
    status, out, err = told(f"{kernels}:blind", *few)
    assert (status, err) == (1, "")
    assert "48 cases of causal: other numbers; every one has more than one key; none" in out
    [again] = [line for line in out.splitlines() if "again: " in line and "causal[" in line]
    *_, own = again.replace("'", "").split()
    status, out, _ = told(f"{kernels}:blind", *few[:2], "--case", own)
    assert status == 1 and "all                    0       1        0" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected MODULE:FUNCTION, such as my_module:my_attention; got nothing"),
        (["kernels_to_check"], "expected MODULE:FUNCTION, .*; got 'kernels_to_check'"),
        (["no_module_of_this_name:f"], "No module named 'no_module_of_this_name'"),
        (["kernels_to_check:left"], "expected a function in kernels_to_check; it has no 'left'"),
        (["kernels_to_check:number"], "expected kernels_to_check:number to be callable; got int"),
        (["kernels_to_check:right", "--only", "mask"], "only must name topics of .*; got 'mask'"),
    ],
)
def test_the_command_says_what_is_invalid(kernels: str, arguments: list[str], words: str) -> None:
    status, out, err = told(*arguments)
    assert (status, out) == (2, "")
    assert re.search(words, " ".join(err.split())), err


def test_the_command_lists_topics_and_cases() -> None:
    status, out, _ = told("--list", "--kind", "numpy", "--without", "windows")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("values: shapes, ranks")
    assert "    values[queries-7-keys-17-float32-d13]" in lines
    assert not any(line.startswith(("windows:", "gradients:")) for line in lines)


def test_a_bar_where_somebody_looks(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    bar = Terminal()
    monkeypatch.setattr(sys, "stderr", bar)
    assert main([f"{kernels}:right", "--kind", "numpy", "--only", "causal"]) == 0
    steps = bar.getvalue().split("\r")
    assert steps[1].startswith("[" + "." * 30 + "] 0 of 52, causal")
    assert steps[27].startswith("[" + "#" * 15 + "." * 15 + "] 26 of 52, causal")
    assert steps[-2].strip() == steps[-1] == ""


def test_a_floating_mask_beside_a_window_keeps_its_numbers_where_the_window_allows() -> None:
    mask, allowed = np.array([[0.5, -np.inf, 2.0]]), np.array([[True, True, False]])
    np.testing.assert_array_equal(combined_mask(mask, allowed), [[0.5, -np.inf, -np.inf]])
