"""What the tests cost: processor time by file, and four counts that hang on no machine.

The last lines of a run name the files that took most processor time, with all their kernels,
browsers and ranks. The counts are held by tests/budget.toml: a run of the usual tests that counts
more than a file's line allows fails, and names the line.
"""

from __future__ import annotations

import ast
import os
import tomllib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import counting
import psutil
import pytest
from counting import counts

from tools import ROOT
from tools.processes import taken

HERE = Path(__file__).resolve().parent
BUDGET = ROOT / "tests" / "budget.toml"
STARTED = "starting, and collecting the tests"
SHOWN = 10

WORDS = {
    "training": "steps of training",
    "oracle": "calls of a kernel through the oracle",
    "browser": "pages opened in a browser",
    "triton": "launches in Triton's interpreter",
}
# What a file may count without a line of its own.
FREE = {"training": 10, "oracle": 100, "browser": 0, "triton": 10}

# What a notebook's kernel is told before the first cell: no name of ours is left in the notebook.
IN_KERNEL = f"""
import sys, types
counting = sys.modules["counting"] = types.ModuleType("counting")
exec({(HERE / "counting.py").read_text(encoding="utf-8")!r}, counting.__dict__)
counting.begin()
"""


def too_much(found: dict[str, Counter[str]], table: str) -> list[str]:
    """Return a line for each count that is above the table's, and say which of its lines to raise.

    Args:
        found: For each kind of count the files, and what was counted in them.
        table: The text of tests/budget.toml.

    Example:
        >>> found = {"training": Counter({"chapters/a.ipynb": 700})}
        >>> [said] = too_much(found, '[training]\\n"chapters/a.ipynb" = 200\\n')
        >>> said
        'chapters/a.ipynb: 700 steps of training, and line 2 of tests/budget.toml allows 200'
    """
    allowed, lines = tomllib.loads(table), table.splitlines()
    said = []
    for kind, files in found.items():
        heading = lines.index(f"[{kind}]")
        for file, n in sorted(files.items()):
            limit = allowed[kind].get(file, FREE[kind])
            if n <= limit:
                continue
            own = lines[heading + 1 :]
            own = own[: next((n for n, line in enumerate(own) if line.startswith("[")), len(own))]
            places = [heading + 1 + n for n, line in enumerate(own) if f'"{file}"' in line]
            place = (
                f"line {places[0] + 1} of tests/budget.toml allows {limit:,}"
                if places
                else f"no line below [{kind}] in tests/budget.toml allows more than {limit}"
            )
            said.append(f"{file}: {n:,} {WORDS[kind]}, and {place}")
    return said


class Costs:
    """The plugin: it measures in each process, and the first process adds up."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: Counter[str] = Counter()
        self.found: dict[str, Counter[str]] = {kind: Counter() for kind in WORDS}
        self.file, self.before = STARTED, 0.0

    # -- processor time, and what this process counts ----------------------------------------------

    def turn_to(self, file: str) -> None:
        """Put what was taken since the last turn down to the file before.

        What a process took is lost when it ends and nobody waits for it, as parts of a browser do.
        """
        now = taken(os.getpid())
        self.seconds[self.file] += max(0.0, now - self.before)
        self.file, self.before = file, now

    def count(self, file: str, counted: Counter[str]) -> None:
        for kind, n in counted.items():
            self.found[kind][file] += n

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        file = item.nodeid.partition("::")[0]
        if file != self.file:
            self.turn_to(file)
        counts.clear()
        try:
            return (yield)
        finally:
            if not item.get_closest_marker("slow"):
                self.count(file, counts)

    # -- what a notebook's kernel counts -----------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        cells: list[Any] = [item for item in session.items if item.path.suffix == ".ipynb"]
        for cell in cells:
            cell.output_timeout = 300  # seconds; nbval's 5 are too few on a busy machine
        for notebook in {cell.parent for cell in cells}:
            self.watch(notebook)

    def watch(self, notebook: Any) -> None:
        """Have the kernel count, and ask it before it ends."""
        set_up, tear_down = notebook.setup, notebook.teardown
        file = notebook.nodeid

        def silently(code: str, **options: Any) -> Any:
            return notebook.kernel.kc.execute_interactive(
                code, silent=True, store_history=False, allow_stdin=False, timeout=60, **options
            )

        def setup() -> None:
            set_up()
            silently(f"exec({IN_KERNEL!r}, {{}})")

        def teardown() -> None:
            with suppress(Exception):  # the kernel may have died, and the cell that failed says so
                asked = {"found": "dict(__import__('counting').counts)"}
                reply = silently("", user_expressions=asked)["content"]["user_expressions"]["found"]
                self.count(file, Counter(ast.literal_eval(reply["data"]["text/plain"])))
            tear_down()

        notebook.setup, notebook.teardown = setup, teardown

    # -- from all processes to the first -----------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        given = getattr(node, "workeroutput", {}).get("costs")
        if given:
            self.seconds.update(given["seconds"])
            for kind, files in given["found"].items():
                self.found[kind].update(files)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            self.turn_to(STARTED)
            found = {kind: dict(files) for kind, files in self.found.items()}
            output["costs"] = {"seconds": dict(self.seconds), "found": found}
        elif self.config.getoption("numprocesses", None):
            times = psutil.Process().cpu_times()
            self.seconds[STARTED] += times.user + times.system
        else:
            self.turn_to(STARTED)
        if self.refused():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def refused(self) -> list[str]:
        """Return what is above the budget, which is that of the usual tests."""
        if hasattr(self.config, "workeroutput") or self.config.option.markexpr != "not slow":
            return []
        return too_much(self.found, BUDGET.read_text(encoding="utf-8"))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self.seconds) > 1 and not self.config.option.collectonly:
            total = sum(self.seconds.values())
            terminalreporter.section("most processor time")
            for file, seconds in self.seconds.most_common(SHOWN):
                terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
            terminalreporter.write_line(f"{total:7.1f} s  in all {len(self.seconds) - 1} files")
        if said := self.refused():
            terminalreporter.section("above the budget", red=True)
            for line in said:
                terminalreporter.write_line(line)
            terminalreporter.write_line(
                "Make it take less, or raise the line in the change that needs it, and say why."
            )


def pytest_configure(config: pytest.Config) -> None:
    counting.begin()
    config.pluginmanager.register(Costs(config), "costs of the tests")
