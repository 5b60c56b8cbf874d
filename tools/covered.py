"""Measure which lines and branches of the packages the unit tests run, and which the notebooks run.

    python -m tools.covered [PYTEST ARGUMENT …]   both, and a table
    python -m tools.covered --notebooks           run the notebooks, whatever they print

The unit tests must run every line and every branch of the numerics, which is all of attnlib and
attnbook but the drawings. What cannot run where the tests run is named in the source:
`# pragma: no cover` with the reason beside it. Doctests and notebooks do not count for this;
notebooks have their own column.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.notebooks import executed, read
from tools.set_repository import ROOT

FOLDER = ROOT / "_build" / "coverage"
UNIT_TESTS = ["pytest", "tests", "--ignore=tests/site", "--ignore=tests/chapters", "-q"]
NOTEBOOKS = ["tools.covered", "--notebooks"]
PACKAGES = ("attnlib", "attnbook")
DRAWINGS = "attnbook/figures"


class Count(NamedTuple):
    """How many lines and branches of a file there are, how many were run, and which were not."""

    lines: int
    lines_run: int
    branches: int
    branches_run: int
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: dict[str, Any]) -> Count:
        """Return the count of one file of a report."""
        total = report["summary"]
        lines = [str(line) for line in report["missing_lines"]]
        branches = [f"{start} → {end}" for start, end in report["missing_branches"]]
        return cls(
            total["num_statements"],
            total["covered_lines"],
            total["num_branches"],
            total["covered_branches"],
            (*lines, *branches),
        )

    def __add__(self, other: object) -> Count:
        assert isinstance(other, Count)
        lines, lines_run, branches, branches_run = (
            a + b for a, b in zip(self[:4], other[:4], strict=True)
        )
        return Count(lines, lines_run, branches, branches_run)

    def __str__(self) -> str:
        return f"{percent(self.lines_run, self.lines)}  {percent(self.branches_run, self.branches)}"


def percent(part: int, whole: int) -> str:
    """Return a share in whole percent, rounded down: 100 % is said of all alone."""
    return f"{100 * part // whole if whole else 100:3d} %"


def module_of(file: str) -> str:
    """Return the name of a module, as `attnlib/masks`, and one name for all drawings."""
    parts = Path(file).with_suffix("").parts
    start = next(n for n, part in enumerate(parts) if part in PACKAGES)
    return "/".join(parts[start : start + 2])


def counts(report: dict[str, Any]) -> dict[str, Count]:
    """Return the count of each module of a report, its drawings added up."""
    found: dict[str, Count] = {}
    for file, one in sorted(report["files"].items()):
        name, count = module_of(file), Count.of(one)
        found[name] = found[name] + count if name in found else count
    return found


def table(by_tests: dict[str, Count], by_notebooks: dict[str, Count]) -> str:
    """Return one row for each module, the drawings last."""
    names = sorted(by_tests, key=lambda name: (name == DRAWINGS, name))
    rows = [f"{'':24}  {'unit tests':^14}  {'notebooks':^14}"]
    rows.append(f"{'module':24}  lines branches  lines branches")
    rows += [f"{name:24}  {by_tests[name]}    {by_notebooks[name]}" for name in names]
    for label, wanted in (("all but figures", names[:-1]), ("all", names)):
        sums = [sum((by[n] for n in wanted), Count(0, 0, 0, 0)) for by in (by_tests, by_notebooks)]
        rows.append(f"{label:24}  {sums[0]}    {sums[1]}")
    return "\n".join(rows)


def holes(by_tests: dict[str, Count]) -> list[str]:
    """Say what of the numerics the unit tests do not run."""
    return [
        f"{name}.py: {', '.join(count.missing)}"
        for name, count in by_tests.items()
        if name != DRAWINGS and count.missing
    ]


def run_notebooks() -> None:
    """Run every chapter. Unlike nbval this lets a kernel end, which is when it stores its data."""
    for path in sorted([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("reference/*.ipynb")]):
        executed(read(path), path.parent)


def measured(name: str, module: list[str]) -> dict[str, Any]:
    """Run a module, with its workers and kernels, and give coverage's report."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "data")}
    report = folder / "report.json"
    for command in (
        ["run", "-m", *module],
        ["combine", "--quiet"],
        ["json", "--quiet", "-o", str(report)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment, check=False
        )
        if done.returncode:
            raise SystemExit(f"coverage {command[0]} failed for the {name}")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def main(arguments: list[str]) -> int:
    """Measure, print the table, and give 1 where the unit tests leave out some of the numerics."""
    if arguments == ["--notebooks"]:
        run_notebooks()
        return 0
    by_tests = counts(measured("tests", [*UNIT_TESTS, *arguments]))
    by_notebooks = counts(measured("notebooks", NOTEBOOKS))
    print(table(by_tests, by_notebooks))
    missing = holes(by_tests)
    for hole in missing:
        print(f"No unit test runs {hole}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
