"""Rules on what was run and what was stored: above all those that nbval does not keep."""

from __future__ import annotations

import ast
import re
import statistics

from honesty.cells import (
    Cell,
    Notebook,
    Rule,
    called,
    calls,
    code_cells,
    numbered,
    outputs,
    parsed,
    shown,
    tags,
)
from tools.notebooks import (
    MODELS_SETUP_CELL,
    ORACLE_SETUP_CELL,
    QUIZ_TAG,
    SETUP_CELL,
    SETUP_TAG,
    TRITON_SETUP_CELL,
)

UNCHECKED_TAGS = re.compile(r"nbval-(ignore-output|skip)|skip-.*|pytest-validate-ignore-output")
NBVAL_COMMENT = re.compile(r"(?m)^\s*#+\s*(NBVAL_\w+|PYTEST_VALIDATE_\w+)")
MOST_UNCHECKED = 2
LONGEST_CELL = 15
CHECKS_TAG, LONGEST_CHECKS = "checks", 40  # what no reader would type
HIGHEST_MEDIAN = 4


def every_cell_ran(notebook: Notebook) -> list[str]:
    """nbval compares nothing in a cell that was never run."""
    return [
        f"{name}: never run" for name, cell in code_cells(notebook) if not cell["execution_count"]
    ]


def closing_expression_shows(notebook: Notebook) -> list[str]:
    """A cell that ends in a value has an output, or its output was cleared."""
    return [
        f"{name}: ends in an expression and shows nothing"
        for name, cell in code_cells(notebook)
        if _closes_with_value(cell) and not cell["outputs"]
    ]


def _closes_with_value(cell: Cell) -> bool:
    body = parsed(cell).body
    if not body or not isinstance(body[-1], ast.Expr):
        return False
    value = body[-1].value
    return not (isinstance(value, ast.Call) and called(value).startswith("assert_"))


def print_prints(notebook: Notebook) -> list[str]:
    return [
        f"{name}: calls print and stores no stream"
        for name, cell in code_cells(notebook)
        if "print" in calls(parsed(cell)) and not outputs(cell, "stream")
    ]


def errors_are_announced(notebook: Notebook) -> list[str]:
    """`raises-exception` stands on exactly those cells that raise; nbval asks for less."""
    faults = []
    for name, cell in code_cells(notebook):
        announced, raised = "raises-exception" in tags(cell), bool(outputs(cell, "error"))
        if announced and not raised:
            faults.append(f"{name}: tagged raises-exception, and no error is stored")
        if raised and not announced:
            faults.append(f"{name}: a stored error without the tag raises-exception")
        if "nbval-raises-exception" in tags(cell):
            faults.append(f"{name}: the tag is raises-exception, which nbclient knows too")
    return faults


def few_unchecked_outputs(notebook: Notebook) -> list[str]:
    """At most two cells whose output nothing compares: a timing, a device, or trained numbers."""
    faults, unchecked = [], 0
    for name, cell in code_cells(notebook):
        if found := NBVAL_COMMENT.search(cell["source"]):
            faults.append(f"{name}: the comment {found[1]}; a tag says it where this test looks")
        if any(UNCHECKED_TAGS.fullmatch(tag) for tag in tags(cell)):
            unchecked += 1
            if not {"timing", "device", "training"} & set(tags(cell)):
                faults.append(f"{name}: output unchecked, but no timing, device or training")
    if unchecked > MOST_UNCHECKED:
        faults.append(f"{unchecked} cells with unchecked output, at most {MOST_UNCHECKED} may be")
    return faults


def nothing_on_stderr(notebook: Notebook) -> list[str]:
    return [
        f"{name}: a stored warning or other text on stderr"
        for name, cell in code_cells(notebook)
        if any(output["name"] == "stderr" for output in outputs(cell, "stream"))
    ]


INSTALL_COMMAND = re.compile(r"(?m)^\s*[%!]\s*(pip|conda|mamba|apt|npm)|\bpip install\b")


def no_install(notebook: Notebook) -> list[str]:
    """Only the set-up cell installs, and nothing that it said is stored."""
    faults = []
    for name, cell in code_cells(notebook):
        set_up = SETUP_TAG in tags(cell)
        if not set_up and INSTALL_COMMAND.search(cell["source"]):
            faults.append(f"{name}: installs something")
        if set_up and cell["outputs"]:
            faults.append(f"{name}: stored output of an installation")
    return faults


# A reader may install from another index of packages, or behind a proxy, so no notebook names one.
# The dots stand in brackets so that a search of the whole repository for such a host finds none.
REGISTRY_HOST = re.compile(
    r"(pypi|pythonhosted|npmjs|anaconda|debian)[.](org|com)|conda[.]io|pytorch[.]org/whl"
    r"|jsdelivr[.]net|unpkg[.]com"
)
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./:-])/(?:home|root|work|workspace|tmp|Users|usr|opt|var|mnt|content)(?:/|\b(?!/))"
    r"|\b[A-Z]:\\(?:Users|Windows|Program|\w+\\)"
)


def no_place_of_the_machine(notebook: Notebook) -> list[str]:
    """Neither a path of the machine it ran on nor a host of a package registry."""
    faults = []
    for kind in ("code", "markdown", "raw"):
        for name, cell in numbered(notebook, kind):
            text = cell["source"] + ("\n" + shown(cell) if kind == "code" else "")
            found = ABSOLUTE_PATH.search(text) or REGISTRY_HOST.search(text)
            faults += [f"{name}: names {found[0]}"] if found else []
    return faults


def short_cells(notebook: Notebook) -> list[str]:
    """At most 15 lines of code in a cell beside its imports.

    A title is no line. A page may compute all answers to its questions in one cell, which no reader
    sees. So no cell is cut in two to fit; `make counts` counts every line.
    """
    sizes = {
        name: n_lines(without_imports(cell))
        for name, cell in code_cells(notebook)
        if not {QUIZ_TAG, CHECKS_TAG} & set(tags(cell))
    }
    return [f"{name}: {size} lines" for name, size in sizes.items() if size > LONGEST_CELL]


def checks_stand_behind_everything(notebook: Notebook) -> list[str]:
    """Checks that no reader would type are one last cell, short, and not on the website."""
    *before, last = code_cells(notebook)
    faults = [f"{name}: checks before the last cell" for name, cell in before
              if CHECKS_TAG in tags(cell)]
    name, cell = last
    if CHECKS_TAG not in tags(cell):
        return faults
    if "remove-cell" not in tags(cell):
        faults.append(f"{name}: checks that the website shows")
    if (size := n_lines(cell["source"].splitlines())) > LONGEST_CHECKS:
        faults.append(f"{name}: {size} lines of checks")
    return faults


def most_cells_are_short(notebook: Notebook) -> list[str]:
    """The median cell of a chapter has at most 4 lines."""
    cells = [cell for _, cell in code_cells(notebook) if QUIZ_TAG not in tags(cell)]
    median = statistics.median(n_lines(cell["source"].splitlines()) for cell in cells)
    return [f"the median code cell has {median:g} lines"] if median > HIGHEST_MEDIAN else []


def n_lines(lines: list[str]) -> int:
    return sum(bool(line.strip()) and not line.startswith("# @title") for line in lines)


def without_imports(cell: Cell) -> list[str]:
    """Return the lines of a cell that do not belong to an import."""
    imports = [n for n in parsed(cell).body if isinstance(n, ast.Import | ast.ImportFrom)]
    left_out = {n for node in imports for n in range(node.lineno, (node.end_lineno or 0) + 1)}
    return [line for n, line in enumerate(cell["source"].splitlines(), 1) if n not in left_out]


SPECIAL_SETUP = {
    "triton": TRITON_SETUP_CELL,
    "transformers": MODELS_SETUP_CELL,
    "attncheck": ORACLE_SETUP_CELL,
    "attnbook.lab": ORACLE_SETUP_CELL,
}
SPECIAL_IMPORT = re.compile(rf"(?m)^\s*(?:import|from) ({'|'.join(SPECIAL_SETUP)})\b")


def set_up_first(notebook: Notebook) -> list[str]:
    """The first code cell is the set-up cell, to the letter, and no other is tagged so.

    A page that imports Triton, transformers, or what asks the oracle has the one that installs it
    too, and no other page has.
    """
    cells = list(code_cells(notebook))
    if not cells:
        return ["no code cell"]
    name, first = cells[0]
    faults = []
    imports = (SPECIAL_IMPORT.search(cell["source"]) for _, cell in cells)
    expected = next((SPECIAL_SETUP[found[1]] for found in imports if found), SETUP_CELL)
    if first["source"] != expected or SETUP_TAG not in tags(first):
        faults.append(f"{name}: not the set-up cell of tools/notebooks.py with tag {SETUP_TAG}")
    faults += [f"{name}: a second set-up cell" for name, c in cells[1:] if SETUP_TAG in tags(c)]
    return faults


RULES: tuple[Rule, ...] = (
    every_cell_ran,
    closing_expression_shows,
    print_prints,
    errors_are_announced,
    few_unchecked_outputs,
    nothing_on_stderr,
    no_install,
    no_place_of_the_machine,
    short_cells,
    checks_stand_behind_everything,
    set_up_first,
)
# A page below a chapter may have few cells.
CHAPTER_RULES: tuple[Rule, ...] = (most_cells_are_short,)
