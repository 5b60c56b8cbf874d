"""Make each usual mistake in the code, and see that the test named for it notices.

    python -m tools.mutants [--jobs N] [--only WORDS]

The mistakes are those of tests/mutants.txt, which says how they are written down. A mistake is
noticed when its test fails and the report holds the mistake's words. No file is changed: each
mistake has a process of its own, forked from one that has imported everything but attnlib, and an
import hook that hands out the changed source. A change that cannot be imported, or whose test
cannot be collected, is broken, and counts as not noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import io
import linecache
import os
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tools.processes import forked

TABLE = Path("tests/mutants.txt")
LIMIT = 120.0  # seconds for one mistake
# What the tests import, and what torch imports when it is first used.
COMMON = (
    "numpy",
    "ml_dtypes",
    "hypothesis",
    "pytest",
    "torch",
    "torch._dynamo",
    "triton.language",
)


class TableError(Exception):
    """The table does not fit the source."""


class Mutant(NamedTuple):
    """One mistake: what it is, where it is made, and who must notice."""

    mistake: str
    module: str
    rung: str  # empty where the mistake is not one of attention itself
    test: str
    edits: tuple[tuple[str, str], ...]  # source text, what takes its place

    def __str__(self) -> str:
        return f"{self.module}: {self.mistake}"

    @property
    def path(self) -> Path:
        """The file of the module, from the root of the repository."""
        return Path("attnlib", f"{self.module}.py")

    @property
    def imported_as(self) -> str:
        """The module's name; that of a folder's __init__ is the folder's."""
        return ".".join(["attnlib", *self.module.removesuffix("/__init__").split("/")])

    def source(self, text: str) -> str:
        """Return the text of the module with the mistake in it."""
        for old, new in self.edits:
            if text.count(old) != 1:
                raise TableError(f"{self}: stands {text.count(old)} times, not once: {old!r}")
            text = text.replace(old, new)
        return text


def read_table(text: str) -> list[Mutant]:
    """Return the mistakes of a table; tests/mutants.txt begins with how it is written."""
    found: list[Mutant] = []
    module = rung = ""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for paragraph in "\n".join(lines).strip("\n").split("\n\n"):
        row = paragraph.strip("\n").split("\n")
        if row[0].startswith("["):
            module, _, rung = (part.strip() for part in row[0].strip("[]").partition(":"))
            continue
        if not module or len(row) < 4:
            raise TableError(f"not a mistake: {paragraph!r}")
        mistake, test, *changes = row
        found.append(Mutant(mistake, module, rung, _node(test, rung), read_edits(changes)))
    return found


def _node(test: str, rung: str) -> str:
    file = "tests/test_mistakes.py" if rung else "tests/test_mistakes_around.py"
    name, _, case = test.partition("[")
    cases = "-".join(part for part in (case.rstrip("]"), rung) if part)
    return f"{file}::{name}" + (f"[{cases}]" if cases else "")


def read_edits(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the changes of an entry: lines - that go, lines + that come in their place."""
    edits: list[tuple[list[str], list[str]]] = []
    for line in lines:
        sign, text = line[:2], line[2:]
        if sign not in ("- ", "+ ") or (sign == "+ " and not edits):
            raise TableError(f"expected '- ' or '+ ', got {line!r}")
        if sign == "- " and (not edits or edits[-1][1]):
            edits.append(([], []))
        edits[-1][sign == "+ "].append(text)
    if any(not new for _, new in edits):
        raise TableError(f"nothing takes the place of {edits[-1][0]!r}")
    return tuple(("\n".join(old), "\n".join(new)) for old, new in edits)


# -- one mistake, in a process of its own ----------------------------------------------------------


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):  # type: ignore[misc]
    """Hand out changed source for one module; nothing is read from or written to a cache."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.text = name, str(path.resolve()), source
        self.used = False
        # Triton reads the source of its kernels, and a traceback quotes it. Without a time, the
        # entry is not held against the file.
        linecache.cache[self.path] = (len(source), None, source.splitlines(True), self.path)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the changed module for its name."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_filename(self, fullname: str) -> str:
        """Return the path of the file as it is."""
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        """Return the changed source, whatever the path."""
        self.used = True
        return self.text.encode()


class Reports:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: dict[str, str] = {}
        self.broken: list[str] = []

    def pytest_collectreport(self, report: Any) -> None:
        """Keep what cannot be collected."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the outcome of a test, and what it said; trouble around it breaks the run."""
        if report.when == "call" and report.failed:
            self.failed[report.nodeid] = report.longreprtext
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)
        elif report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext}")


def run_tests(tests: Sequence[str]) -> Reports:
    """Run these tests in this process, and only these."""
    import pytest

    reports = Reports()
    options = ["-q", "-p", "no:cacheprovider", "-p", "xdist", "--tb=short"]
    # For the sake of speed: no search for doctests where there are none, no collection of garbage.
    options += ["--assert=plain", "-p", "no:unraisableexception"]
    if not any(test.startswith(("attnlib", "attnbook")) for test in tests):
        options += ["-o", "addopts="]
    code = pytest.main([*options, *tests], plugins=[reports])
    if code == pytest.ExitCode.USAGE_ERROR:
        reports.broken.append(f"no such test, or one of these: {', '.join(tests)}")
    elif code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not reports.broken:
        reports.broken.append(f"pytest ended with {code}")
    return reports


def check(mutant: Mutant) -> tuple[str, str]:
    """Return the verdict on one mistake, made in this process, and what was seen."""
    path, name = mutant.path, mutant.imported_as
    assert name not in sys.modules, "attnlib was imported before it was changed"
    hook = Changed(name, path, mutant.source(path.read_text(encoding="utf-8")))
    sys.meta_path.insert(0, hook)
    try:
        importlib.import_module(name)
    except Exception as error:
        return "broken", f"cannot be imported: {error!r}"
    assert hook.used
    reports = run_tests([mutant.test])
    if reports.broken:
        return "broken", reports.broken[0]
    if list(reports.failed) != [mutant.test]:
        return "not noticed", f"{mutant.test} passed" if reports.passed else "no such test"
    said = reports.failed[mutant.test]
    return ("noticed", "") if mutant.mistake in said else ("not named", said)


def check_unchanged(tests: Sequence[str]) -> tuple[str, str]:
    """Return whether all tests pass on the code as it is."""
    reports = run_tests(tests)
    bad = [*reports.broken, *(f"{test}: {said}" for test, said in reports.failed.items())]
    bad += [f"{test}: did not run" for test in tests if test not in reports.passed and not bad]
    return ("broken", "\n".join(bad)) if bad else ("passed", "")


def prepare() -> None:
    """Import what every test needs, once, and attnlib not at all."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # A GPU does not survive a fork. The kernels run in Triton's interpreter, as in CI.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"
    for name in COMMON:
        if installed(name):
            importlib.import_module(name)
    torch = importlib.import_module("torch")
    torch.empty(1, device="meta").normal_()
    with contextlib.redirect_stdout(io.StringIO()):
        run_tests(["tests/mistakes.py"])  # no tests: what pytest imports when it first runs
    gc.freeze()  # else each process would go through all of this again


def installed(name: str) -> bool:
    """Say whether there is such a package; for Triton there is not on every system."""
    return importlib.util.find_spec(name.partition(".")[0]) is not None


def report(mutants: Sequence[Mutant], jobs: int) -> int:
    """Make each mistake, say what became of it, and give the exit status."""
    begin = time.monotonic()
    tests = sorted({mutant.test for mutant in mutants})
    ((_, unchanged),) = forked([tests], check_unchanged, jobs=1, limit=LIMIT * 5)
    if unchanged is None or unchanged[0] != "passed":
        said = "no answer" if unchanged is None else unchanged[1]
        print(f"The tests do not pass on the code as it is:\n{said}", file=sys.stderr)
        return 1
    missed = 0
    for n, (mutant, result) in enumerate(forked(mutants, check, jobs, LIMIT), start=1):
        verdict, said = result or ("broken", f"no answer within {LIMIT:.0f} s")
        print(f"{n:4}/{len(mutants)}  {verdict:11}  {mutant}", flush=True)
        if verdict != "noticed":
            missed += 1
            print(f"           {mutant.test}\n{said.strip()}", flush=True)
    seconds = time.monotonic() - begin
    print(f"{len(mutants)} mistakes, {missed} missed, {seconds:.0f} s")
    return 1 if missed or not mutants else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make each usual mistake; see that a test notices."
    )
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="mistakes and modules that hold these words")
    options = parser.parse_args()
    try:
        table = read_table(options.table.read_text(encoding="utf-8"))
        for mutant in table:
            mutant.source(mutant.path.read_text(encoding="utf-8"))
    except TableError as error:
        print(error, file=sys.stderr)
        return 1
    if not installed("triton"):
        table = [mutant for mutant in table if "triton" not in mutant.test]
    mutants = [mutant for mutant in table if options.only in str(mutant)]
    prepare()
    try:
        return report(mutants, options.jobs)
    finally:
        gc.unfreeze()  # or Triton's bindings call what is left at the end a leak


if __name__ == "__main__":
    sys.exit(main())
