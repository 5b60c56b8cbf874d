"""What the oracle asks of a kernel that says what it is built for, and the ways to ask it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from faulty_kernels import flash_like, torch_like

import attncheck
from attncheck import (
    Also,
    Case,
    Kernel,
    backend_for,
    cases,
    check,
    expected_failures,
    judge,
    pytest_plugin,
)
from attncheck.__main__ import main
from attncheck._calls import E
from attncheck._draws import with_mask
from attncheck._search import Drawn, case_of, smaller
from attnlib import torch_dense

PACKAGES = [str(Path(module.__file__).parents[1]) for module in (attncheck, torch_dense)]
right = torch_dense.scaled_dot_product_attention
with_lse = torch_dense.scaled_dot_product_attention_with_lse


def blind(query: Any, key: Any, value: Any, is_causal: bool = False, scale: Any = None) -> Any:
    """Take is_causal, and do not look at it."""
    return right(query, key, value, scale=scale)


def wrong_for_65_keys(query: Any, key: Any, value: Any, scale: Any = None) -> Any:
    output = right(query, key, value, scale=scale)
    return output + 1 if key.shape[-2] >= 65 else output


# -- claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Kernel(3), "attention must be callable; got int"),
        (lambda: Kernel(right, "SDHH"), "axes must be '', or BHSD or HSD in any order; got 'SDHH'"),
        (lambda: Kernel(right, mask="any"), "mask must be one of 'bool', .*; got 'any'"),
        (lambda: Kernel(right, groups="tiled"), "groups must be one of .*; got 'tiled'"),
        (lambda: Kernel(right, causal=["top"]), "causal must be one of 'top-left', .*; got 'top'"),
        (lambda: Kernel(right, dtypes=["half"]), "dtypes must be one of .*; got 'half'"),
        (lambda: Kernel(right, head_dims=[0]), r"head_dims must hold numbers above 0.*\(0, 0\)"),
        (lambda: Also(None), "function must be callable; got NoneType"),
        (lambda: Also(right, base=10), 'base must be "e" or 2; got 10'),
        (lambda: Also(right, page=0), "page must be at least 1; got 0"),
    ],
)
def test_claims_that_are_none_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_signature_says_what_is_claimed() -> None:
    kernel = Kernel.of(blind)
    assert Kernel.of(kernel) is kernel
    assert kernel.takes("is_causal") and not kernel.takes("attn_mask")
    assert kernel.alignments == ("top-left",)
    assert Kernel(right).alignments == ("top-left", "bottom-right")
    assert Kernel(torch.nn.functional.scaled_dot_product_attention).takes("enable_gqa")
    topics = {case.topic for case in cases(kernel=blind)}
    assert not topics & {"masks", "windows", "groups", *attncheck.CLAIMED}


def test_head_dimensions_and_dtypes_that_are_claimed_are_asked() -> None:
    kernel = Kernel(right, head_dims=[128, (64, 32)], dtypes=["bfloat16", "float16"])
    asked = cases(kernel=kernel, without=["values"])  # which has a large batch
    assert {case.head_dims for case in asked} == {(64, 32), (128, 128)}
    assert {case.dtype for case in asked if case.head_dims == (128, 128)} == {"float16", "bfloat16"}
    causal = [case for case in asked if case.topic == "causal" and case.head_dims == (64, 32)]
    assert {case.dtype for case in causal} == {"bfloat16"}
    shapes = {case.call.given["value"].numbers.shape[-1] for case in causal}
    assert shapes == {32}
    one = Kernel(right, head_dims=[(64, 32)], dtypes=["bfloat16"])
    assert check(one, only=["causal", "numbers", "gradients"]).passed


def in_bits(*given: Any, **options: Any) -> Any:
    output, lse = with_lse(*given, **options)
    return output, lse / np.log(2)


def in_half(*given: Any, **options: Any) -> Any:
    output, lse = with_lse(*given, **options)
    return output, lse.half()


def refuses(outputs: Any, lses: Any) -> Any:
    raise ValueError("not merged")


def test_a_log_sum_exp_of_a_wrong_kind() -> None:
    assert check(Kernel(right, lse=Also(in_bits, base=2)), only=["lse", "merge"]).passed
    report = check(Kernel(right, lse=Also(in_bits)), only=["lse", "merge"])
    assert {result.case.topic for result in report.failed} == {"lse", "merge"}
    for topic, also, merge, words in (
        ("lse", right, None, "expected (output, log-sum-exp), got Tensor"),
        ("lse", in_half, None, "the log-sum-exp: expected dtype float32, got float16"),
        ("merge", with_lse, refuses,
         "expected a merged result, but ValueError: not merged was raised"),
    ):
        report = check(Kernel(right, lse=Also(also), merge=merge), only=[topic])
        [first, *_] = [result for result in report.results if not result.passed]
        assert words in first.message


def test_what_is_not_claimed_has_a_reason() -> None:
    kernel = Kernel(
        right, mask="both", mask_with_causal="both remove", gradients=False,
        not_claimed={"numbers": "NaN comes out"},
    )
    report = check(kernel, only=["numbers", "errors", "gradients"])
    said = "a mask beside is_causal is no error", "NaN comes out", "no gradients"
    assert {*said} <= {*report.not_claimed.values()}
    report = check(flash_like(), only=["masks", "causal", "bottom-right", "sinks"])
    assert report.asked > len(report.results)
    assert "no causal mask at the top left" in report.not_claimed.values()
    assert "masks" in report.not_claimed and "sinks (no keyword for sinks)" in str(report)
    draw = with_mask(np.ones((1, 1, 5, 7), dtype=bool), "", (3, 5, E), (3, 7, E))
    case = Case("masks", "a mask with four axes", draw)
    assert Kernel(right, "HSD").unclaimed(case, case.call) == "3 axes"
    assert Kernel(right, "BHSD").unclaimed(case, case.call) == ""


# -- seeds -----------------------------------------------------------------------------------------


def test_a_seed_changes_all_numbers_and_a_case_moves_no_other() -> None:
    one, same, other = (cases(only=["values"], seed=seed)[0] for seed in (7, 7, 8))
    numbers = [case.call.given["query"].numbers for case in (one, same, other)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    assert (numbers[0] != numbers[2]).all()
    alone = replace(one, name="another name")
    assert (alone.call.given["query"].numbers != numbers[0]).all()
    report = check(blind, only=["causal"], seed="random")
    assert f"--seed {report.seed}" in str(report) or report.seed == 7


# The seed 7 is asked by test_cases.
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_a_correct_kernel_passes_with_any_seed(seed: int) -> None:
    report = check(Kernel(right, lse=Also(with_lse)), seed=seed)
    assert report.passed, str(report)


# -- the search ------------------------------------------------------------------------------------


def test_a_search_finds_what_the_table_may_miss_and_makes_it_small() -> None:
    report = check(wrong_for_65_keys, search=10)
    assert not report.passed
    smallest = min(report.failed, key=lambda r: r.case.call.given["key"].numbers.size)
    drawn = Drawn.of(smallest.case.name)
    assert (drawn.B, drawn.H, drawn.G, drawn.L, drawn.S) == (1, 1, 1, 1, 65)
    again = check(wrong_for_65_keys, case=[smallest.case.id])
    assert [str(result) for result in again.failed] == [str(smallest)]
    assert check(right, search=20).passed


def test_a_search_keeps_to_what_is_claimed() -> None:
    def wrong_if_causal(query: Any, key: Any, value: Any, is_causal: bool = False) -> Any:
        return right(query, key, value, is_causal=is_causal) + is_causal

    # At the bottom right alone: of a call at the top left the lengths have to stay equal.
    kernel, backend = Kernel(wrong_if_causal, causal=["bottom-right"]), backend_for("torch")
    case = Drawn(2, 3, 1, 17, 17, causal="topleft").case("float32", (13, 11), 7)
    found = smaller(judge(case, kernel, backend), kernel, backend)
    assert Drawn.of(found.case.name) == Drawn(1, 1, 1, 17, 17, causal="topleft")
    nothing = Kernel(right, not_claimed=dict.fromkeys(("values", "gradients"), "not asked"))
    with pytest.raises(ValueError, match="no case is left"):
        check(nothing, search=1)


def test_what_is_searched_is_told_by_its_id() -> None:
    plain = Drawn(2, 3, 2, 65, 70)
    for drawn in (
        plain,
        replace(plain, mask="bool", axes="B1LS", layout="readonly", gradient=True),
        replace(plain, mask="float", axes="1HL1", scale=0.25),
        replace(plain, causal="topleft", left=0, layout="transposed"),
        replace(plain, causal="bottomright", left=3, scale=2.0),
    ):
        assert Drawn.of(drawn.words) == drawn
        case = drawn.case("float16", (64, 32), 5)
        found = case_of(case.id, 5)
        assert found is not None and str(found.call) == str(case.call)
    assert case_of("masks[no-such-float32-d13]", 7) is None
    with pytest.raises(ValueError, match="expected a part of a searched call; got 'L6x5'"):
        Drawn.of("L6x5")


# -- the command -----------------------------------------------------------------------------------

KERNELS = """
from attncheck import Kernel
from attnlib import numpy_dense
from attnlib.torch_dense import scaled_dot_product_attention as right

def blind(query, key, value, is_causal=False, scale=None):
    return right(query, key, value, scale=scale)

class Holder:
    on_arrays = staticmethod(numpy_dense.scaled_dot_product_attention)

kernel = Kernel(right, head_dims=[64])
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_kernels", raising=False)
    return tmp_path


def told(*arguments: str) -> tuple[int, str, str]:
    """Return the exit status of the command, and what it wrote to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = int(str(stop.code))
    return status, out.getvalue(), " ".join(err.getvalue().split())


def test_the_command_passes_and_fails(folder: Path) -> None:
    few = ("--kind", "numpy", "--only", "causal", "masks")
    status, out, err = told("own_kernels:Holder.on_arrays", *few)
    assert (status, err) == (0, "")
    assert out.startswith("attncheck of own_kernels:Holder.on_arrays, numpy on cpu, ")
    assert out.splitlines()[1].split() == ["topic", "passed", "failed", "refused"]
    assert "causal                52       0        0" in out
    status, out, err = told("own_kernels:blind", "--only", "causal")
    assert (status, err) == (1, "")
    assert "48 cases of causal: other numbers; every one has more than one key; none" in out
    [again] = [line for line in out.splitlines() if "again: " in line]
    *_, own = again.replace("'", "").split()
    status, out, _ = told("own_kernels:blind", "--case", own)
    assert status == 1 and "all                    0       1        0" in out


def test_a_kernel_with_claims_is_checked_by_its_name(folder: Path) -> None:
    own = "values[queries-1-keys-1-float32-d64]"
    status, out, _ = told("own_kernels:kernel", "--case", own)
    assert status == 0 and "own_kernels:kernel, torch on cpu, 1 of " in out
    status, _, err = told("own_kernels:kernel", "--case", own.replace("d64", "d63"))
    assert status == 2 and f"there is '{own}'" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected MODULE:FUNCTION, such as my_module:my_attention; got nothing"),
        (["own_kernels"], "expected MODULE:FUNCTION, .*; got 'own_kernels'"),
        (["no_module_of_this_name:f"], "No module named 'no_module_of_this_name'"),
        (["own_kernels:left"], "expected a function in own_kernels; it has no 'left'"),
        (["own_kernels:number"], "expected own_kernels:number to be callable; got int"),
        (["own_kernels:right", "--only", "mask"], "only must name topics of .*; got 'mask'"),
    ],
)
def test_the_command_says_what_is_invalid(folder: Path, arguments: list[str], words: str) -> None:
    status, out, err = told(*arguments)
    assert (status, out) == (2, "")
    assert re.search(words, err), err


def test_the_command_lists_topics_and_cases() -> None:
    status, out, _ = told("--list", "--kind", "numpy", "--without", "windows")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("values: shapes, ranks")
    assert "    values[queries-7-keys-17-float32-d13]" in lines
    assert not any(line.startswith(("windows:", "gradients:")) for line in lines)


def test_a_bar_where_somebody_looks(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    bar = io.StringIO()
    monkeypatch.setattr(bar, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", bar)
    assert main(["own_kernels:Holder.on_arrays", "--kind", "numpy", "--only", "causal"]) == 0
    steps = bar.getvalue().split("\r")
    assert steps[1].startswith("[" + "." * 30 + "] 0 of 52, causal")
    assert steps[27].startswith("[" + "#" * 15 + "." * 15 + "] 26 of 52, causal")
    assert steps[-2].strip() == steps[-1] == ""


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


def test_failures_that_are_expected_pass_and_a_pass_among_them_is_told(folder: Path) -> None:
    file = folder / "expected.txt"
    some = ["own_kernels:blind", "--only", "values", "causal", "--expected", str(file)]
    file.write_text("# it is blind\ncausal[  # every one of them\n\n")
    status, out, _ = told(*some)
    assert status == 1 and "48 expected failures (as the file says)" in out
    assert "expected to fail, and passes: causal[queries-1-keys-1-float32-d13]" in out
    failing = [r.case.id for r in check(blind, only=["causal"]).failed]
    file.write_text("\n".join(failing))
    assert told(*some)[0] == 0
    assert expected_failures(file) == failing
    with pytest.raises(ValueError, match="expected a file of ids, one a line"):
        expected_failures(folder / "none.txt")


# -- pytest ----------------------------------------------------------------------------------------


BLIND = ("--attention", "own_kernels:blind")


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return what runs pytest with the plugin and no other, and gives its status and its words.

    It runs in this process: another one would import torch each time.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    # What pytest sets for a whole process stays as the outer one has it.
    less = ("faulthandler", "threadexception", "unraisableexception")
    options = ["-q", "-s", "--import-mode=importlib", "-pattncheck.pytest_plugin"]
    options += [f"-pno:{name}" for name in less]

    def in_this_process(*arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = pytest.main([*options, *arguments])
        return int(status), out.getvalue()

    return in_this_process


def test_the_plugin_asks_one_test_a_case(run: Callable[..., tuple[int, str]]) -> None:
    status, out = run(*BLIND, "-k", "causal and scale", "-v")
    assert status == 1
    assert "attention: own_kernels:blind, seed 7" in out
    assert "FAILED own_kernels:blind::causal[scale-2-float32-d13]" in out
    assert "is above the bound" in out and "Traceback" not in out
    _, out = run(*BLIND, "--lf")
    assert "deselected" in out.splitlines()[-1]
    assert run(*BLIND, "-m", "attention_pages")[0] == 5  # nothing was asked
    status, out = run("--attention", "own_kernels:none")
    assert status == 4
    assert "expected a function in own_kernels; it has no 'none'" in out
    block = f"kernelbench:{Path(__file__).with_name('hands') / 'block.py'}"
    status, out = run("--attention", block)
    assert (status, f"is asked itself: python -m attncheck {block}" in out) == (4, True), out


def test_an_error_of_the_oracle_itself_has_its_traceback(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise LookupError("not of the kernel")

    monkeypatch.setattr(pytest_plugin, "judge", broken)
    status, out = run(*BLIND, "-k", "causal and scale-2 and d13 and not gradients")
    assert status == 1
    assert "LookupError: not of the kernel" in out and "def broken" in out


def test_expected_failures_are_strict_in_pytest_too(
    folder: Path, run: Callable[..., tuple[int, str]]
) -> None:
    (folder / "expected.txt").write_text("scale-  # all of them\n")
    kernel = (*BLIND, "--attention-expected", "expected.txt")
    some = "causal and (scale-2 or scale-3.5) and d13 and not gradients"
    status, out = run(*kernel, "-k", some)
    assert status == 0 and "2 xfailed" in out
    status, out = run(*kernel, "-k", "scale", "-m", "attention_values")
    assert status == 1 and "XPASS(strict)" in out


def test_a_test_of_ones_own(folder: Path, run: Callable[..., tuple[int, str]]) -> None:
    (folder / "test_own.py").write_text(
        "import attncheck\nfrom own_kernels import blind, kernel\n"
        "test_kernel = attncheck.tests(kernel, only=['causal', 'groups'])\n"
        "test_blind = attncheck.tests(blind, only='causal')\n"
    )
    status, out = run("test_own.py")
    assert status == 1
    failed = {line.split()[1] for line in out.splitlines() if line.startswith("FAILED")}
    assert "test_own.py::test_blind[causal[scale-2-float32-d13]]" in failed
    assert all("test_blind" in line for line in failed)
    with pytest.raises(TypeError, match=r"options must be some of device, .*; got 'topics'"):
        attncheck.tests(right, topics=["causal"])


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", [13, 64, 128])
@pytest.mark.parametrize("fault", ["gradients are rounded to float16", "gradients are zeros"])
def test_gradients_that_are_rounded_or_zero_fail_at_every_head_dimension(
    head_dim: int, fault: str
) -> None:
    report = check(replace(torch_like(fault), head_dims=[head_dim]), only=["gradients"])
    assert len(report.failed) > 0.75 * len(report.results), str(report)


def test_the_largest_error_of_a_correct_form_is_well_below_the_bounds() -> None:
    """A bound that follows roundings has to leave room for other orders, and not too much of it."""
    from attncheck import _definition, _tolerance

    shares = []
    for case in cases(only=["values"], dtypes=["float32"]):
        call = case.call
        if call.size is None and call.truth is None:
            given = {n: torch.tensor(x.numbers, dtype=torch.float32) for n, x in call.given.items()}
            found = right(*given.values(), **call.options).numpy()
            size = _tolerance.forward_size(_definition.problem(call))
            bound = _tolerance.bound(found, dtype="float32", size=size)
            shares.append(np.max(np.abs(found - _definition.output(call)) / bound))
    assert 0.005 < max(shares) < 0.5


def test_the_readme_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(attncheck.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    program, shown = (
        text.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "text")
    )
    mine = ModuleType("mine")
    exec(program, mine.__dict__)
    monkeypatch.setitem(sys.modules, "mine", mine)
    command, _, report = shown.partition("\n")
    assert told(*command.removeprefix("$ python -m attncheck ").split()) == (1, report, "")
