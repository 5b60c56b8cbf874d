"""`attncheck.judged`: a kernel in a process of its own. Each cheat has its verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cheats
import jsonschema
import numpy as np
import pytest

import attncheck
from attncheck import Also, Kernel, cases, judged
from attncheck.__main__ import main
from attncheck._claims import compiled
from attncheck._classes import CLASSES
from attncheck._judged import Function
from attncheck._process import NoResult, Process
from attncheck._record import record
from attnlib import numpy_dense

SCHEMA = json.loads((Path(attncheck.__file__).parent / "schema.json").read_text("utf-8"))
FOLDER = Path(cheats.__file__).parent
THREE = [f"causal[queries-{n}-keys-{n}-float32-d13]" for n in (1, 2, 7)]
CAUSAL: dict[str, Any] = {"kind": "numpy", "only": ["causal"]}
CASES = 47  # of the topic causal, for a function without a scale


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not measure coverage in a process that is ended, whose file would be broken off."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


def told(report: attncheck.Report) -> dict[str, Any]:
    """Return the record of a judge's report, which the schema must allow."""
    found = record(report, judged=True)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def share(report: attncheck.Report) -> float:
    return float(told(report)["score"]["score"])


# -- who is right passes ---------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return the folder of a module `contestant` with two kernels."""
    lines = [
        "import numpy as np",
        "from attncheck import Also, Kernel",
        "from attnlib.numpy_dense import (",
        "    scaled_dot_product_attention as right, scaled_dot_product_attention_with_lse as both)",
        "def merge(outputs, lses):",
        "    whole = np.logaddexp(*lses)",
        "    shifts = [lse - np.where(np.isinf(whole), 0, whole) for lse in lses]",
        "    return sum(np.exp(n)[..., None] * own for n, own in zip(shifts, outputs)), whole",
        "in_c = min",
        "values = {'window': lambda window: NotImplemented if window == (0, 0) else window}",
        "def marked(*inputs, mark, **options): return both(*inputs, **options)",
        "lse = Also(marked, always={'mark': True})",
        "kernel = Kernel(right, values=values, lse=lse, merge=merge)",
        "def plain(query, key, value): return right(query, key, value)",
        "def with_lse(query, key, value): return both(query, key, value)",
    ]
    (tmp_path / "contestant.py").write_text("\n".join(lines))
    return tmp_path


def test_a_right_kernel_passes_with_the_full_score(module: Path) -> None:
    only = ["dtypes", "layouts", "lse", "merge", "errors"]
    report = judged("contestant:kernel", "numpy", folder=module, search=10, only=only)
    assert report.passed, str(report)
    assert "contestant" not in sys.modules
    both = numpy_dense.scaled_dot_product_attention_with_lse
    kernel = Kernel(numpy_dense.scaled_dot_product_attention, lse=Also(both), merge=both)
    ids = [own.case.id for own in report.results]
    assert ids[:-10] == [own.id for own in cases("numpy", kernel=kernel, only=only)]
    assert all(own.startswith("search[") for own in ids[-10:])
    assert str(report).splitlines()[0].endswith(f"seed {report.seed}")
    assert share(report) == 1.0 and len(ids) <= report.asked


def test_numbers_that_lie_far_apart_are_not_copied_with_what_is_between() -> None:
    with Process("cheats:honest", "numpy", "cpu", (10, 60)) as process:
        holder = np.zeros((1 << 27) + 1, np.uint8)
        holder[:: 1 << 27] = 3, 5
        sent = process.memory.place(holder[:: 1 << 27])
        assert sent.sparse and sent.view.tolist() == [3, 5] and process.memory.changed() is None
        sent.view[1] = 6
        assert process.memory.changed() == (sent, True)


def test_a_function_is_compiled_in_its_process() -> None:
    class Remote:
        def call(self, *given: Any) -> Any:
            return given

    function: Any = Function(Remote(), ("function", "f"), [])  # type: ignore[arg-type]
    here = compiled(function, "eager")(1, scale=2)
    assert here == (("function", "f"), (1,), {"scale": 2}, "eager")


def test_values_that_a_kernel_does_not_have_are_asked_in_its_process(module: Path) -> None:
    own = "windows[window-{}-top-left-queries-5-keys-7-float32-d13]"
    there, gone = own.format("2-1"), own.format("0-0")
    assert judged("contestant:kernel", "numpy", folder=module, case=there).passed
    with pytest.raises(ValueError, match="must be the id of a case that is claimed"):
        judged("contestant:kernel", "numpy", folder=module, case=gone)


def test_a_judge_may_say_what_is_claimed(module: Path) -> None:
    """Its functions are stand-ins, and those of the kernel's module have the same names."""

    def plain(query: Any, key: Any, value: Any) -> Any: ...

    def with_lse(query: Any, key: Any, value: Any) -> Any: ...

    few: dict[str, Any] = {"folder": module, "case": ["lse[a-batch-of-heads-float32-d13]"]}
    for also in (with_lse, min):  # a function in C has torch's arguments
        claims = Kernel(plain, axes="BHSD", lse=Also(also, axes="BHS"))
        report = judged("contestant:plain", "numpy", claims=claims, **few)
        assert report.passed == (also is with_lse)
    assert "expected a result, but AttributeError: " in report.failed[0].message
    lse_of = Kernel(with_lse, lse=Also(with_lse))
    assert judged("contestant:with_lse", "numpy", claims=lse_of, **few).passed
    report = judged("contestant:in_c", "numpy", folder=module, case=VALUE)
    assert "but ValueError: operands could not be" in report.results[0].message
    claims = Kernel(plain, names={"scale": "key"}, values={"scale": lambda _: {1}})
    report = judged("contestant:plain", "numpy", claims=claims, folder=module, case=SCALED)
    assert "an argument must be an array, numbers or words; got {1}" in report.results[0].message


def test_inputs_may_be_large(module: Path) -> None:
    large = "values[a-batch-of-65-537-float32-d13]"
    assert judged("contestant:plain", "numpy", folder=module, case=large).passed


def test_who_claims_little_is_asked_little_unless_the_judge_claims() -> None:
    with pytest.raises(ValueError, match="no case is left"):
        judged("cheats:modest", **CAUSAL)
    report = judged("cheats:modest", "numpy", only=["causal", "values"], case=[VALUE])
    assert "a matter of [2J taste" in str(record(report))
    assert "\x1b" not in str(record(report))
    report = judged("cheats:modest", claims=Kernel(cheats.honest), **CAUSAL)
    assert len(report.failed) == CASES and share(report) == 0.0


VALUE, SCALED = "values[queries-7-keys-17-float32-d13]", "values[scale-0.0-float32-d13]"
TENSORS = """
from dataclasses import replace
from faulty_kernels import flash_like, sixteens_like, torch_like
flash = replace(flash_like(), head_dims=[64], dtypes=["bfloat16"])
sixteens = replace(sixteens_like(), head_dims=[64])
like_torch = replace(torch_like(), head_dims=[64])
summed = replace(torch_like("gradients of a group are not summed"), head_dims=[64])
"""


@pytest.mark.parametrize(
    ("name", "topics", "failing"),
    [
        ("flash", ["lse", "documents"], ""),
        pytest.param("flash", ["pages", "bottom-right"], "", marks=pytest.mark.slow),
        pytest.param("sixteens", ["lse", "merge", "dtypes"], "", marks=pytest.mark.slow),
        pytest.param("like_torch", [], "", marks=pytest.mark.slow),
        pytest.param("summed", ["gradients"], "fewer key heads", marks=pytest.mark.slow),
    ],
)
def test_tensors(tmp_path: Path, name: str, topics: list[str], failing: str) -> None:
    (tmp_path / "on_tensors.py").write_text(TENSORS)
    report = judged(f"on_tensors:{name}", folder=tmp_path, only=topics)
    assert report.passed == (not failing), str(report)
    assert failing in str(report)
    classes = told(report)["score"]["classes"]
    if "pages" not in topics:
        assert (classes["wrong gradients"]["score"] == 1.0) == (not failing)


# -- who is not right does not ---------------------------------------------------------------------

VERDICTS = {
    "replay": "asked again, with seed",
    "right_at_first": "asked again, with seed",
    "right_once": "asked again, with seed",
    "thief": "the error",
    "patcher": "the error",
    "prints": "the error",
    "lies": "the error",
    "gives_two": "expected a numpy.ndarray, got tuple",
    "pretends": "expected a numpy.ndarray, got Pretender",
    "changes_inputs": "expected inputs that are left as they are, but value was modified",
    "writes_beside": "expected writes to the result alone, but key was written beside",
    "raises": "Result: [2J [H",
    "exits": "expected a result, but SystemExit: 0 was raised",
}
ENDS = {
    "hangs": "no result came in time",
    "leaves": "its process ended with status 0",
    "segfaults": "its process ended by SIGSEGV",
    "forks": "the call came back twice, because it forked its process",
    "leaves_a_child": "its process ended with status 1",
    "closes": "its process wrote no result into the pipe",
    "writes_everywhere": "its process wrote no result into the pipe",
    "forges": "its process wrote no result into the pipe",
}


@pytest.mark.parametrize("cheat", VERDICTS)
def test_what_becomes_of_a_cheat(cheat: str, capfd: pytest.CaptureFixture[str]) -> None:
    asked = () if cheat == "right_at_first" else THREE
    report = judged(f"cheats:{cheat}", case=asked, **CAUSAL)
    assert [own.passed for own in report.results] == [False] * (len(asked) or CASES)
    assert all(VERDICTS[cheat] in own.message for own in report.results), str(report)
    assert "\x1b" not in str(report) + str(record(report))
    assert capfd.readouterr() == ("", "")
    assert share(report) == 0.0
    unsafe = told(report)["score"]["classes"]["unsafe"]["asked"]
    assert unsafe == (3 if cheat in ("changes_inputs", "writes_beside") else 0)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("cheat", ENDS)
def test_an_end_of_the_process_is_the_end_of_one_case(
    cheat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHEATS", str(tmp_path))
    asked = THREE[: 1 + (cheat in ("leaves", "forges"))]
    report = judged(f"cheats:{cheat}", case=asked, limits=(1, 60), **CAUSAL)
    assert [own.passed for own in report.results] == [False] * len(asked)
    assert all(ENDS[cheat] in own.message for own in report.results), str(report)
    assert share(report) == 0.0
    unsafe = told(report)["score"]["classes"]["unsafe"]["asked"]
    assert unsafe == (0 if cheat == "hangs" else len(asked))
    left = tmp_path / "left"
    if left.exists():  # what was left behind has been ended, too
        end = time.monotonic() + 5
        while alive(int(left.read_text())):
            assert time.monotonic() < end


def alive(pid: int) -> bool:
    """Return whether a process runs, and is not only waiting to be looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_the_kernel_ends_itself_is_no_fault() -> None:
    assert judged("cheats:forks_and_waits", case=THREE[:1], **CAUSAL).passed


def test_memory_of_results_is_looked_at_in_the_process() -> None:
    for cheat, kind in (("reuses", "the next call changed it"), ("gives_the_value", "of its own")):
        report = judged(f"cheats:{cheat}", "numpy", only=["layouts"])
        assert not report.passed and all(kind in own.message for own in report.failed)
        assert told(report)["score"]["classes"]["unsafe"]["score"] < 1.0
    # Who says that inputs are changed is not asked for them.
    claims = Kernel(cheats.changes_inputs, not_claimed={"layouts": "in place"})
    report = judged("cheats:changes_inputs", claims=claims, case=THREE[:1], **CAUSAL)
    assert "the error" in report.failed[0].message


def test_halves_without_a_log_sum_exp_for_each_row_cannot_be_merged() -> None:
    report = judged("cheats:short", "numpy", case="merge[7-keys-cut-at-3-float32-d13]")
    wrong = "the log-sum-exp: expected shape (2, 3, 5), got (7, 5)"
    assert wrong in report.failed[0].message


@pytest.mark.usefixtures("unmeasured")
def test_all_calls_together_have_a_limit() -> None:
    begin = time.monotonic()
    report = judged("cheats:hangs", limits=(1, 2), **CAUSAL)
    assert time.monotonic() - begin < 15
    assert len(report.failed) == CASES
    assert "no result came in the 2 s of all calls" in report.failed[-1].message


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("path", "lines", "words"),
    [
        ("away:f", "", "ModuleNotFoundError: No module named 'away'"),
        ("broken:f", "1 / 0", "broken gave ZeroDivisionError"),
        ("broken:f", "import os; os._exit(7)", "its process ended with status 7"),
        ("broken:f", "import sys; sys.exit(0)", "SystemExit: 0 was raised at its import"),
    ],
)
def test_a_kernel_that_does_not_load_has_failed(
    path: str, lines: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(lines)
    report = judged(path, folder=tmp_path, **CAUSAL)
    assert len(report.failed) == len(report.results) > CASES and share(report) == 0.0
    assert all(words in own.message for own in report.failed), str(report)


@pytest.mark.usefixtures("unmeasured")
def test_a_process_that_ends_between_two_calls() -> None:
    with Process("cheats:honest", "numpy", "cpu", (10, 60)) as process:
        process.load()
        assert process.process is not None
        os.kill(process.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NoResult, match="its process ended by SIGKILL"):
            process.ask({"do": "again"})


# -- the command -----------------------------------------------------------------------------------


def command(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the judge as a command, in a folder that is not the kernel's."""
    own = [sys.executable, "-m", "attncheck", *arguments, "--kind", "numpy", "--only", "causal"]
    path = os.pathsep.join(str(Path(x.__file__).parents[1]) for x in (attncheck, numpy_dense))
    return subprocess.run(
        [*own, "--judge", "--folder", str(FOLDER)], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, **more,
    )


def test_what_a_kernel_prints_is_in_no_report(tmp_path: Path) -> None:
    file, log = tmp_path / "result.json", tmp_path / "log.txt"
    done = command("cheats:honest", "--json", str(file), "--log", str(log), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2].split() == ["causal", str(CASES), "0", "0"]
    assert log.read_text().count("all 47 0 0") == 3 * CASES
    found = json.loads(file.read_text("utf-8"))
    jsonschema.validate(found, SCHEMA)
    assert found["judged"] and found["passed"] and found["score"]["score"] == 1.0


@pytest.mark.usefixtures("unmeasured")
def test_a_judge_that_is_killed_leaves_nothing_that_looks_like_a_pass(tmp_path: Path) -> None:
    """A process of one's own cannot prevent it: a sandbox around both can."""
    file = tmp_path / "result.json"
    file.write_text('{"passed": true}')
    done = command("cheats:kills_the_judge", "--json", str(file), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cheats:honest", "--seed", "7"], "expected no --seed beside --judge"),
        (["cheats:honest", "--list"], "expected no --list beside --judge"),
        (["cheats"], "expected MODULE:FUNCTION, such as my_module:my_attention; got 'cheats'"),
        (["cheats:honest", "--limits", "0", "1"], "limits must be above 0"),
        (["cheats:honest", "--claims", "cheats:nothing"], "it has no 'nothing'"),
    ],
)
def test_what_the_command_refuses(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--judge", "--kind", "numpy"])
    assert words in " ".join(capsys.readouterr().err.split())


# -- the record ------------------------------------------------------------------------------------


def test_the_record_of_a_check_is_the_same_each_time(tmp_path: Path) -> None:
    file, words = tmp_path / "result.json", []
    some = ["--kind", "numpy", "--only", "causal", "dtypes"]
    for _ in range(2):
        assert main(["cheats:patient", *some, "--json", str(file)]) == 1
        words.append(file.read_text("utf-8"))
    assert words[0] == words[1]
    found = json.loads(words[0])
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["cases"]["items"]["properties"]["class"]["enum"] == list(CLASSES)
    jsonschema.validate(found, SCHEMA)
    assert not found["judged"] and found["seed"] == 7
    own = {name: 0 for name in found["score"]["classes"]}
    for case in found["cases"]:
        own[case["class"]] += 1
        group = case["group"]
        assert (group is None) == (case["passed"] or case["refused"])
        assert case["passed"] == (not case["message"])
    assert own == {name: x["asked"] for name, x in found["score"]["classes"].items()}
    assert sum(own.values()) == found["score"]["asked"] == len(found["cases"]) <= found["there"]
    assert sum(group["cases"] for group in found["groups"]) == sum(
        case["group"] is not None for case in found["cases"]
    )
    shares = {name: x["score"] for name, x in found["score"]["classes"].items()}
    assert shares["wrong masks"] < 1.0 and shares["wrong gradients"] is None
    assert any(case["refused"] for case in found["cases"])
