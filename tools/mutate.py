"""Change the packages' numerics wherever mutmut would, and see whether any test notices.

    python -m tools.mutate [MODULE …] [--jobs N] [--seconds S] [--again]

mutmut's operators say what to change: numbers, comparisons, arguments, operators and so on, one
change at a time. mutmut's own runner would leave out every decorated function, which here are most
of the interesting ones, so the changes are tried by this one: pytest collects the tests once; each
change is made in a fork, in the bytecode of the functions as they stand, and the fork runs the
tests that pass through the changed lines, one of each test function first, the fastest in front.

Results are kept in _build/mutants, so that an interrupted run goes on where it stopped: a result
holds as long as its module does not change, a survivor until the tests change (or with --again).
Survivors are listed with their diffs. Those that no test can notice are in
tests/mutants_equivalent.txt, each with the reason; an entry whose change does not exist is an
error.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tools.changes import Change, Functions, changes, path_of
from tools.processes import forked

# Figures have their images, and the kernels of triton_fused their own language: see mutants.txt.
MODULES = (
    "numpy_tokenwise", "numpy_dense", "numpy_blockwise", "torch_dense", "torch_blockwise",
    "_torch_tiles", "_torch_operators", "_door", "_numpy_door", "_torch_door", "_checks",
    "_layer_checks",
    "masks", "positions", "torch_layers", "experiments", "examples",
)  # fmt: skip
TESTS = (
    "tests/test_cases.py", "tests/test_checks.py", "tests/test_conformance.py",
    "tests/test_conformance_gradients.py",
    "tests/test_examples.py", "tests/test_experiments.py", "tests/test_masks.py",
    "tests/test_mistakes.py", "tests/test_mistakes_around.py", "tests/test_names_in_errors.py",
    "tests/test_numpy_blockwise.py",
    "tests/test_numpy_dense.py", "tests/test_numpy_edges.py", "tests/test_numpy_tokenwise.py",
    "tests/test_opinfo.py", "tests/test_positions.py", "tests/test_properties.py",
    "tests/test_torch_blockwise.py", "tests/test_torch_dense.py", "tests/test_torch_layers.py",
    *(path_of(module).as_posix() for module in MODULES),
)  # fmt: skip
KEPT = Path("_build/mutants")
EQUIVALENT = Path("tests/mutants_equivalent.txt")
CHEAP, SLOW = 0.004, 5.0  # seconds; a test that takes longer than SLOW is left out


class Equivalent(NamedTuple):
    """A change that no test can notice, and why."""

    reason: str
    module: str
    where: str
    old: str
    new: str


def read_equivalent(text: str) -> list[Equivalent]:
    """Return the entries: [module]; a reason; then functions, each with lines - and + of changes.

    A reason holds for all functions below it, until the next reason or module; "module" stands for
    what is in no function.
    """
    found: list[Equivalent] = []
    module, reason = "", ""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    for paragraph in re.split(r"\n{2,}", "\n".join(lines).strip("\n")):
        rows = paragraph.split("\n")
        signs = "".join(row[:1] if row[:2] in ("- ", "+ ", "-", "+") else " " for row in rows)
        if rows[0].startswith("["):
            module, reason = rows[0].strip("[]"), ""
        elif set(signs) == {" "}:
            reason = " ".join(rows)
        elif module and reason and re.fullmatch(" (-*\\+*)+", signs):
            where = "" if rows[0] == "module" else rows[0]
            for part in re.finditer(r"-+\+*|\++", signs):
                both = [(signs[n], rows[n][2:]) for n in range(*part.span())]
                old, new = ("\n".join(r for sign, r in both if sign == s) for s in "-+")
                found.append(Equivalent(reason, module, where, old, new))
        elif paragraph:
            raise pytest.UsageError(f"{EQUIVALENT}: not an entry: {paragraph!r}")
    return found


# -- the tests -------------------------------------------------------------------------------------


class Outcome:
    """What became of the test that ran last."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Any failure counts, and so does one before or after the test itself."""
        self.failed |= report.failed


def _run(item: Any, outcome: Outcome) -> bool:
    """Run one test, and say whether it failed."""
    outcome.failed = False
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return outcome.failed


def measure(items: Sequence[Any], outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return for each test its seconds, whether it failed, and the lines it runs in each module."""
    import coverage

    paths = {str(path_of(module).resolve()): module for module in MODULES}
    tracer = coverage.Coverage(data_file=None, include=list(paths), config_file=False)
    tracer.set_option("run:disable_warnings", ["no-data-collected"])
    tracer.start()
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        tracer.switch_context(item.nodeid)
        begin = time.process_time()  # of the processor: the machine may be busy
        failed = _run(item, outcome)
        found[item.nodeid] = {"seconds": time.process_time() - begin, "failed": failed}
    tracer.stop()
    data = tracer.get_data()
    for name, test in found.items():
        data.set_query_context(name)
        test["lines"] = {module: sorted(data.lines(path) or []) for path, module in paths.items()}
    return found


class Campaign:
    """A plugin of pytest that, in place of running the tests once, tries the changes on them."""

    def __init__(self, modules: Sequence[str], jobs: int, seconds: float, *, again: bool) -> None:
        self.modules, self.jobs, self.seconds = modules, jobs, seconds
        self.again = again
        self.outcome = Outcome()
        self.status = 1

    def pytest_configure(self, config: Any) -> None:
        """Hear of each test; that it failed is enough, its report need not be a fine one."""
        config.option.tbstyle = "native"
        config.pluginmanager.register(self.outcome)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Try the changes."""
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        self.items = {item.nodeid: item for item in session.items}
        functions = Functions()
        gc.collect()
        gc.freeze()
        try:
            self.status = self._try_all(functions)
        finally:
            gc.unfreeze()
        return True

    def _measured(self) -> dict[str, dict[str, Any]]:
        """Return what the tests run; of those that did not change, from the last time."""
        kept = KEPT / "tests.jsonl"
        stamps = {file: _stamp(file) for file in {name.partition("::")[0] for name in self.items}}
        found: dict[str, dict[str, Any]] = {}
        if kept.exists():
            for line in kept.read_text(encoding="utf-8").splitlines():
                for name, test in json.loads(line).items():
                    if name in self.items and test["stamp"] == stamps[name.partition("::")[0]]:
                        found[name] = test
        items = [item for name, item in self.items.items() if name not in found]
        size = 40
        parts = [list(range(n, min(n + size, len(items)))) for n in range(0, len(items), size)]
        if items:
            print(f"measuring {len(items)} of {len(self.items)} tests", flush=True)

        def work(part: list[int]) -> dict[str, dict[str, Any]]:
            return measure([items[n] for n in part], self.outcome)

        for part, result in forked(parts, work, self.jobs, 3600):
            if result is None:
                raise pytest.UsageError(f"no answer from {items[part[0]].nodeid} and after")
            failed = [name for name, test in result.items() if test["failed"]]
            if failed:
                raise pytest.UsageError(f"fail on the code as it is: {', '.join(failed)}")
            for name, test in result.items():
                test["stamp"] = stamps[name.partition("::")[0]]
            found |= result
            with kept.open("a", encoding="utf-8") as file:
                print(json.dumps(result), file=file)
            print(f"  {len(found)}/{len(self.items)}", flush=True)
        return found

    def _try_all(self, functions: Functions) -> int:
        KEPT.mkdir(parents=True, exist_ok=True)
        tests = self._measured()
        results = Results(self.again)
        todo: list[Change] = []
        known: list[Change] = []
        equivalent = read_equivalent(EQUIVALENT.read_text(encoding="utf-8"))
        unused = {entry for entry in equivalent if entry.module in self.modules}
        skipped = set()
        there = dict(forked(self.modules, lambda module: list(changes(module)), self.jobs, 3600))
        for module in self.modules:
            for change in map(Change._make, there[module]):
                known.append(change)
                for entry in equivalent:
                    if entry[1:] == (change.module, change.where, change.old, change.new):
                        unused.discard(entry)
                        skipped.add(change.key)
                if change.key not in skipped and results.of(change) is None:
                    todo.append(change)
        for entry in unused:
            print(f"{EQUIVALENT}: there is no such change: {entry}")
        print(f"{len(known)} changes, {len(todo)} to try", flush=True)
        begin = time.monotonic()
        # What noticed one change of a function is likely to notice the next: it is asked first.
        noticed: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

        def work(change: Change) -> tuple[str, str]:
            return self._try(change, functions, tests, noticed[change.module, change.where])

        limit = 4 * self.seconds + 60
        for n, (change, result) in enumerate(forked(todo, work, self.jobs, limit), start=1):
            verdict, by = result or ("killed", "no answer in time, or the process died")
            results.add(change, verdict, by)
            if verdict == "killed" and by in self.items:
                noticed[change.module, change.where][by] += 1
            if verdict == "survived" or n % 50 == 0:
                rate = n / (time.monotonic() - begin)
                print(f"{n}/{len(todo)}  {rate:.1f}/s", flush=True)
            if verdict == "survived":
                print(f"{change}\n  survived {by}", flush=True)
        self._report(known, skipped, results)
        survivors = [c for c in known if c.key not in skipped and results.of(c) != "killed"]
        return 1 if survivors or unused else 0

    def _try(
        self,
        change: Change,
        functions: Functions,
        tests: dict[str, dict[str, Any]],
        first: Counter[str],
    ) -> tuple[str, str]:
        """Make the change in this process, and give what the tests say."""
        try:
            patched = functions.change(change)
        except SyntaxError as error:
            return "killed", f"SyntaxError: {error}"
        chosen = _chosen(change, tests, self.seconds)
        chosen.sort(key=first.__getitem__, reverse=True)
        if not patched:
            return self._try_anew(change, chosen)
        for name in chosen:
            if _run(self.items[name], self.outcome):
                return "killed", name
        return "survived", f"{len(chosen)} tests"

    def _try_anew(self, change: Change, chosen: list[str]) -> tuple[str, str]:
        """Try a change of what runs at import: forget the packages and the tests, begin again."""
        from tools.mutants import Changed, run_tests

        path = path_of(change.module)
        for name in list(sys.modules):
            file = getattr(sys.modules[name], "__file__", None) or ""
            own = file.startswith(os.getcwd()) and ".venv" not in file
            if own and not name.startswith("tools"):
                del sys.modules[name]
        sys.meta_path.insert(0, Changed(f"{path.parent}.{change.module}", path, change.source))
        # Each file that is named is collected again: one test of each function is enough.
        one_of_each = {name.partition("[")[0]: name for name in reversed(chosen)}
        reports = run_tests(list(one_of_each.values())[::-1][:200])
        if reports.broken or reports.failed:
            return "killed", next(iter([*reports.failed, *reports.broken]))
        return "survived", f"{len(reports.passed)} tests, at import"

    def _report(self, known: Sequence[Change], skipped: set[str], results: Results) -> None:
        print("\nmodule             changes  equivalent  killed  survived  share")
        counts: dict[str, Counter[str]] = {module: Counter() for module in self.modules}
        survivors = []
        for change in known:
            verdict = results.of(change) or "not tried"
            counts[change.module]["equivalent" if change.key in skipped else verdict] += 1
            if change.key not in skipped and verdict != "killed":
                survivors.append(change)
        for module in self.modules:
            _print_row(module, counts[module])
        _print_row("all", sum(counts.values(), Counter()))
        for change in survivors:
            print(f"\n{change}")


def _print_row(name: str, counts: Counter[str]) -> None:
    tried = counts["killed"] + counts["survived"]
    share = f"{counts['killed'] / tried:7.1%}" if tried else "      -"
    print(
        f"{name:18} {sum(counts.values()):7}  {counts['equivalent']:10}  {counts['killed']:6}"
        f"  {counts['survived']:8}{share}"
    )


def _chosen(change: Change, tests: dict[str, dict[str, Any]], seconds: float) -> list[str]:
    """Return the tests that run the changed lines, in the order in which to ask them.

    First come the cheap ones and those of the module's own file, then one of each function.
    Together they take no longer than `seconds` on the code as it is. Where no test runs the lines
    (they run at import), all that run anything of the module are asked.
    """
    lines = range(change.first, change.last + 1)
    fast = {name: test for name, test in tests.items() if test["seconds"] < SLOW}
    near = [
        name
        for name, test in fast.items()
        if not set(test["lines"][change.module]).isdisjoint(lines)
    ]
    near = near or [name for name, test in fast.items() if test["lines"][change.module]]
    near.sort(key=lambda name: float(tests[name]["seconds"]))
    own = f"tests/test_{change.module}."
    turns: Counter[str] = Counter()
    turn = {}
    for name in near:
        function = name.partition("[")[0]
        if tests[name]["seconds"] > CHEAP and not name.startswith(own):
            turns[function] += 1
        turn[name] = turns[function]
    near.sort(key=turn.__getitem__)
    chosen, total = [], 0.0
    for name in near:
        total += tests[name]["seconds"]
        if total > seconds:
            break
        chosen.append(name)
    return chosen


def _stamp(test: str = "") -> str:
    """Return a number that changes with the packages and with the file of this test, or of any."""
    tests = Path("tests").glob("*.py")
    own = [file for file in tests if not (test and file.name.startswith("test_"))]
    packages = [*Path("attnlib").rglob("*.py"), *Path("attnbook").glob("*.py")]
    files = sorted([*packages, *own, *([Path(test)] if test else [])])
    return _sum(file.read_bytes() for file in files)


def _sum(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:16]


class Results:
    """What is known of each change, kept line by line as it comes."""

    def __init__(self, again: bool) -> None:
        self.path, self.stamp = KEPT / "results.jsonl", _stamp()
        self.sources = {module: _sum([path_of(module).read_bytes()]) for module in MODULES}
        self.known: dict[str, str] = {}
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                module = entry["key"].partition("\n")[0]
                fresh = entry["source"] == self.sources.get(module)
                stale = entry["verdict"] == "survived" and (again or entry["stamp"] != self.stamp)
                if fresh and not stale:
                    self.known[entry["key"]] = entry["verdict"]
                else:
                    self.known.pop(entry["key"], None)

    def of(self, change: Change) -> str | None:
        """Return the verdict, if there is one."""
        return self.known.get(change.key)

    def add(self, change: Change, verdict: str, by: str) -> None:
        """Keep a verdict."""
        self.known[change.key] = verdict
        entry = {"key": change.key, "verdict": verdict, "by": by}
        entry |= {"source": self.sources[change.module], "stamp": self.stamp}
        with self.path.open("a", encoding="utf-8") as kept:
            print(json.dumps(entry, ensure_ascii=False), file=kept)


def main() -> int:
    parser = argparse.ArgumentParser(description="Change the packages; see whether a test notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=40.0, help="of tests for one change")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    options = parser.parse_args()
    unknown = set(options.modules) - set(MODULES)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(MODULES)}")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU does not survive a fork
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    campaign = Campaign(
        options.modules or MODULES, options.jobs, options.seconds,
        again=options.again,
    )  # fmt: skip
    tests = [test for test in TESTS if Path(test).exists()]
    # The interpreted kernels take a tenth of a second a call, and are no part of this.
    deselect = ["-k", "not triton"] if importlib.util.find_spec("triton") else []
    pytest.main(
        ["-p", "xdist", "-p", "no:cacheprovider", "-p", "no:terminal", *deselect, *tests],
        plugins=[campaign],
    )
    return campaign.status


if __name__ == "__main__":
    sys.exit(main())
