"""Make mistakes, run the chapters, and see which chapter notices which: notebooks as guards.

    python -m tools.guards first    the first mistake of each chapter in tests/guards.txt
    python -m tools.guards own      all of tests/guards.txt: what each chapter must notice
    python -m tools.guards store    these, and those of attention in tests/mutants.txt, in every
                                    chapter that runs the lines; into benchmarks/results/guards.json

A chapter runs as `make test` runs it, by nbval, its outputs compared to the letter. The package is
a copy with the one change, which stands first on the kernel's path and says so when it is imported;
or the notebook is a copy in which one of its own cells is changed. A mistake is noticed when a cell
raises or puts out something else. `store` keeps what it has found in _build/guards and goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.mutants import TABLE, Mutant, TableError, read_edits, read_table
from tools.notebooks import read
from tools.processes import forked

GUARDS = Path("tests/guards.txt")
RESULTS = Path("benchmarks/results/guards.json")
KEPT = Path("_build/guards")
CHAPTER = "this chapter"
LIMIT = 600.0  # seconds for one chapter
USED = "\nimport pathlib as _p; _p.Path(__file__).with_suffix('.used').touch()\n"


class Guard(NamedTuple):
    """A mistake that a chapter teaches about, and must notice."""

    chapter: str
    mistake: str
    file: str  # of a package, or "this chapter"
    edits: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.chapter}: {self.mistake} ({self.file})"


def read_guards(text: str) -> list[Guard]:
    """Return the entries: [chapter] begins a chapter's; then mistake, file, lines - and +."""
    found: list[Guard] = []
    chapter = ""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for paragraph in "\n".join(lines).strip("\n").split("\n\n"):
        row = paragraph.strip("\n").split("\n")
        if row[0].startswith("["):
            chapter = row[0].strip("[]")
            continue
        if not chapter or len(row) < 4:
            raise TableError(f"not a mistake: {paragraph!r}")
        found.append(Guard(chapter, row[0], row[1], read_edits(row[2:])))
    return found


def changed_notebook(notebook: dict[str, Any], guard: Guard) -> dict[str, Any]:
    """Return the notebook with the mistake in one of its cells; the outputs stay."""
    for old, new in guard.edits:
        cells = [c for c in notebook["cells"] if c["cell_type"] == "code" and old in c["source"]]
        if len(cells) != 1 or cells[0]["source"].count(old) != 1:
            raise TableError(f"{guard}: does not stand in one place of one cell: {old!r}")
        cells[0]["source"] = cells[0]["source"].replace(old, new)
    return notebook


def changed_packages(folder: Path, file: Path, source: str) -> Path:
    """Put copies of attnlib and attnbook into the folder, with other source for one file."""
    for package in ("attnlib", "attnbook"):
        shutil.copytree(package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / file
    changed.write_text(source + USED, encoding="utf-8")
    return changed.with_suffix(".used")


class Cells:
    """A plugin of pytest that keeps what the first bad cell said."""

    def __init__(self) -> None:
        self.passed = 0
        self.said: tuple[int, str] | None = None
        self.broken = ""

    def pytest_collectreport(self, report: Any) -> None:
        """Keep what cannot be collected."""
        self.broken = self.broken or (report.longreprtext if report.failed else "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the first failure."""
        if report.when == "call":
            self.passed += report.passed
        if report.failed and self.said is None:
            number = re.search(r"Cell (\d+)$", report.nodeid)
            self.said = (int(number[1]) if number else -1, report.longreprtext)


def run_chapter(notebook: Path, path: str) -> Cells:
    """Run a notebook by nbval in this process, its kernel with this path in front."""
    import pytest

    os.environ["PYTHONPATH"] = path
    cells = Cells()
    options = ["-p", "nbval.plugin", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull]
    options += ["--rootdir", str(notebook.parent), "--nbval", "--nbval-current-env", "-x", "-q"]
    pytest.main([*options, str(notebook)], plugins=[cells])
    return cells


def try_guard(guard: Guard) -> dict[str, Any]:
    """Make a mistake, run the chapter, and give what came of it."""
    begin = time.monotonic()
    notebook = Path("chapters", f"{guard.chapter}.ipynb").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder, used = Path(name), None
        if guard.file == CHAPTER:
            changed = changed_notebook(read(notebook), guard)
            notebook = folder / notebook.name
            notebook.write_text(json.dumps(changed), encoding="utf-8")
            path = os.getcwd()
        else:
            file = Path(guard.file)
            mutant = Mutant(guard.mistake, file.stem, "", "", guard.edits)
            used = changed_packages(folder, file, mutant.source(file.read_text(encoding="utf-8")))
            path = str(folder)
        cells = run_chapter(notebook, path)
        reached = used is None or used.exists()
    found: dict[str, Any] = {"seconds": round(time.monotonic() - begin, 1)}
    if cells.broken or not (cells.passed or cells.said):
        return found | {"verdict": "broken", "said": cells.broken or "no cell ran"}
    if not reached:
        return found | {"verdict": "not imported"}
    if cells.said is None:
        return found | {"verdict": "not noticed"}
    number, said = cells.said
    return (
        found
        | {"verdict": "noticed", "cell": number + 1, "said": said[:4000]}
        | _speaks(guard, number, said)
    )


def _speaks(guard: Guard, number: int, said: str) -> dict[str, Any]:
    """Return the line of the chapter that noticed, and how."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    cells = read(Path("chapters", f"{guard.chapter}.ipynb"))["cells"]
    code = [c["source"] for c in cells if c["cell_type"] == "code"]
    raised = re.findall(r"^(\w*(?:Error|Exception|Warning|Interrupt))\b", plain, re.M)
    arrow = re.findall(r"^-+> *\d+ (.*)$", plain, re.M)
    lines = [line.strip() for line in code[number].split("\n")] if 0 <= number < len(code) else []
    there = [line.strip() for line in arrow if line.strip() in lines]
    if raised:
        return {"by": raised[-1], "line": there[0] if there else ""}
    return {"by": "output", "line": lines[-1] if lines else ""}


# -- which lines a chapter runs --------------------------------------------------------------------

LINES = """
import json, sys, warnings
import coverage
tracer = coverage.Coverage(data_file=None, include=["attnlib/*"], config_file=False)
tracer.set_option("run:disable_warnings", ["no-data-collected"])
tracer.start()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for source in json.load(open(sys.argv[1])):
    shell.run_cell(source)
tracer.stop()
data = tracer.get_data()
found = {file: sorted(data.lines(file)) for file in data.measured_files()}
json.dump(found, open(sys.argv[2], "w"))
"""


def lines_of(chapter: str) -> dict[str, list[int]]:
    """Return the lines of each module that a chapter's cells run, once it has been imported."""
    cells = read(Path("chapters", f"{chapter}.ipynb"))["cells"]
    sources = [c["source"] for c in cells if c["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as name:
        given, found = Path(name, "cells.json"), Path(name, "lines.json")
        given.write_text(json.dumps(sources), encoding="utf-8")
        command = [sys.executable, "-c", LINES, str(given), str(found)]
        environment = os.environ | {"PYTHONPATH": os.getcwd(), "MPLBACKEND": "agg"}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=LIMIT)
        lines = json.loads(found.read_text())
    return {_module(Path(file)): ran for file, ran in lines.items()}


def _module(file: Path) -> str:
    """Return a file of attnlib as tests/mutants.txt names it."""
    return file.relative_to(Path("attnlib").resolve()).with_suffix("").as_posix()


@functools.cache
def parts(module: str) -> list[tuple[set[int], set[int]]]:
    """Return the lines of each statement of each function, and those of which one runs with it.

    With the line of a `def` that is its body: the line itself runs when the module is imported.
    """
    text = Path("attnlib", f"{module}.py").read_text(encoding="utf-8")
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.stmt):
                    inside = {n for inner in ast.iter_child_nodes(node) for n in _lines(inner)}
                    own = set(range(node.lineno, (node.end_lineno or 0) + 1)) - inside
                    found.append((own, inside if isinstance(node, ast.FunctionDef) else own))
    return found


def _lines(node: ast.AST) -> set[int]:
    """Return the lines of a statement, or of those inside what is none."""
    if isinstance(node, ast.stmt):
        return set(range(node.lineno, (node.end_lineno or 0) + 1))
    return {line for inner in ast.iter_child_nodes(node) for line in _lines(inner)}


def called(mutant: Mutant, lines: Iterable[int]) -> bool:
    """Say whether any statement ran that the mistake changes, other than with the import."""
    text = mutant.path.read_text(encoding="utf-8")
    for old, _ in mutant.edits:
        first = text[: text.index(old)].count("\n") + 1
        rows = range(first, first + old.count("\n") + 1)
        for own, running in parts(mutant.module):
            if not own.isdisjoint(rows) and not running.isdisjoint(lines):
                return True
    return False


# -- all of them -----------------------------------------------------------------------------------


def chapters() -> list[str]:
    """Name the chapters."""
    return sorted(path.stem for path in Path("chapters").glob("*.ipynb"))


def pairs() -> list[Guard]:
    """Return for each chapter the mistakes of attention whose lines it runs.

    A mistake stands in tests/mutants.txt once for each implementation; a chapter is tried on the
    first that it runs.
    """
    mutants = [m for m in read_table(TABLE.read_text(encoding="utf-8")) if m.rung]
    found: dict[tuple[str, str], Guard] = {}
    for chapter in chapters():
        kept = KEPT / f"{chapter}.{_stamp(chapter)}.json"
        if not kept.exists():
            print(f"which lines {chapter} runs", flush=True)
            KEPT.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(lines_of(chapter)))
        lines = json.loads(kept.read_text())
        for mutant in mutants:
            if called(mutant, lines.get(mutant.module, ())):
                guard = Guard(chapter, mutant.mistake, mutant.path.as_posix(), mutant.edits)
                found.setdefault((chapter, mutant.mistake), guard)
    return list(found.values())


def _stamp(chapter: str) -> str:
    """Return a number that changes with the chapter and the packages."""
    modules = [*Path("attnlib").rglob("*.py"), *Path("attnbook").rglob("*.py")]
    files = [Path("chapters", f"{chapter}.ipynb"), *sorted(modules)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def try_all(guards: Sequence[Guard], jobs: int, *, keep: bool) -> list[tuple[Guard, Any]]:
    """Try each, say what came of it, and give it in the order given."""
    stamps = {guard.chapter: _stamp(guard.chapter) for guard in guards}
    kept = KEPT / "found.jsonl"
    known: dict[str, Any] = {}
    if keep and kept.exists():
        known = dict(json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines())

    def key(guard: Guard) -> str:
        return json.dumps([*guard, stamps[guard.chapter]])

    todo = [guard for guard in guards if key(guard) not in known]
    for n, (guard, found) in enumerate(forked(todo, try_guard, jobs, LIMIT), start=1):
        result = found or {"verdict": "broken", "said": "no answer"}
        known[key(guard)] = result
        if keep and result["verdict"] != "broken":
            KEPT.mkdir(parents=True, exist_ok=True)
            with kept.open("a", encoding="utf-8") as file:
                print(json.dumps([key(guard), result], ensure_ascii=False), file=file)
        seen = f"{result['verdict']} by cell {result['cell']}" if "cell" in result else ""
        print(f"{n:4}/{len(todo)}  {seen or result['verdict']:22}  {guard}", flush=True)
        if result["verdict"] == "broken":
            print(result["said"], flush=True)
    return [(guard, known[key(guard)]) for guard in guards]


def store(own: Sequence[tuple[Guard, Any]], named: Sequence[tuple[Guard, Any]]) -> None:
    """Store what came of all, for the page about it."""

    def entry(guard: Guard, result: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {
            name: result[name] for name in ("verdict", "cell", "by", "line") if name in result
        }
        return {"mistake": guard.mistake, "file": guard.file, **kept}

    found = {
        chapter: {
            "own": [
                entry(guard, result) | {"edits": guard.edits}
                for guard, result in own
                if guard.chapter == chapter
            ],
            "named": [entry(*pair) for pair in named if pair[0].chapter == chapter],
        }
        for chapter in chapters()
    }
    what = "which chapter notices which mistake, by nbval alone"
    text = json.dumps({"what": what, "chapters": found}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def elsewhere(own: Sequence[tuple[Guard, Any]]) -> list[Guard]:
    """Return those that another cell noticed than the one that is stored, and on the page.

    A chapter that fails whatever is changed would seem to notice everything.
    """
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))["chapters"]
    return [
        guard
        for guard, result in own
        for entry in stored[guard.chapter]["own"]
        if (entry["mistake"], entry["file"]) == (guard.mistake, guard.file)
        and entry["cell"] != result.get("cell", entry["cell"])
    ]


def prepare() -> None:
    """Import what runs a notebook, once."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.setdefault("TRITON_INTERPRET", "1")  # as the tests' own conftest.py does
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    for name in ("pytest", "nbformat", "jupyter_client.manager", "nbval.kernel", "IPython"):
        importlib.import_module(name)
    gc.freeze()


def main() -> int:
    parser = argparse.ArgumentParser(description="See which chapter notices which mistake.")
    parser.add_argument("what", choices=("first", "own", "store"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="chapters and mistakes that hold these words")
    options = parser.parse_args()
    guards = read_guards(GUARDS.read_text(encoding="utf-8"))
    guards = [guard for guard in guards if options.only in str(guard)]
    if options.what == "first":
        guards = list({guard.chapter: guard for guard in reversed(guards)}.values())[::-1]
    named = pairs() if options.what == "store" else []
    prepare()
    begin = time.monotonic()
    own = try_all(guards, options.jobs, keep=options.what == "store")
    missed = [guard for guard, result in own if result["verdict"] != "noticed"]
    if options.what == "store":
        unchanged = [
            Guard(c, "nothing is changed", "attnlib/numpy_dense.py", ()) for c in chapters()
        ]
        for guard, result in try_all(unchanged, options.jobs, keep=True):
            if result["verdict"] != "not noticed":
                print(f"fails as it is: {guard.chapter}", file=sys.stderr)
                return 1
        found = try_all(named, options.jobs, keep=True)
        if not missed:
            store(own, found)
    else:
        missed += elsewhere(own)
    for guard in missed:
        print(f"not noticed: {guard}", file=sys.stderr)
    print(f"{len(own)} mistakes, {len(missed)} missed, {time.monotonic() - begin:.0f} s")
    return 1 if missed or not own else 0


if __name__ == "__main__":
    sys.exit(main())
