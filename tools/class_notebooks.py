"""Write the notebooks that a class works in: `make class`.

    python -m tools.class_notebooks [FOLDER]      (_build/class, if none is given)

A class notebook is a page of the course without outputs, and without solutions. Where a solution
stands, there is a place to write: the head of each function and the name of each value that the
check asks for, or the code with a mistake that the task shows. Each check says "still to write",
"not yet" or "right" (attnbook.exercises). The book's link to Colab leads to these notebooks.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnbook.exercises import fingerprint
from tools import ROOT
from tools.notebooks import QUIZ_TAG, Cell, Notebook, read, write_normalised

FOLDER = ROOT / "_build" / "class"
HERE = "your code here"
FENCE = re.compile(r"(?ms)^```python\n(.+?)^```")
ANSWER_TAG = "hide-output"  # of a cell whose output answers a prediction
GUESS = "*Your guess, before you run the next cell:*"
FOLD = "<details><summary>After you have run the cell</summary>\n\n{}\n\n</details>"


def class_notebook(notebook: Notebook) -> Notebook:
    """Return the notebook as a class gets it."""
    cells: list[Cell] = []
    task = ""
    wanted: list[str] = []
    given: dict[str, int] = {}
    is_told = False  # whether the next paragraph tells the answer to a prediction
    for cell in notebook["cells"]:
        tags = cell["metadata"].get("tags", [])
        is_told = is_told or ANSWER_TAG in tags
        if cell["cell_type"] == "markdown":
            task = cell["source"]
            cells.append({**cell, "source": folded(task) if is_told else task})
            is_told = False
        elif "solution" in tags:
            wanted, given, source = stub(cell["source"], _check_after(notebook, cell), task)
            cells.append(_code(cell, source, "exercise"))
        elif "check" in tags:
            cells.append(_code(cell, checked(cell["source"], task, wanted, given), "check"))
        elif ANSWER_TAG in tags:
            cells += predicted(cell)
        elif not {QUIZ_TAG, "remove-cell"} <= set(tags):
            cells.append(_code(cell, cell["source"], *tags))
    return {**notebook, "cells": cells}


def exercises(notebook: Notebook) -> list[tuple[str, Cell, Cell]]:
    """Return the task, the solution and the check of each exercise."""
    found, task = [], ""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            task = cell["source"]
        elif "solution" in cell["metadata"].get("tags", []):
            found.append((task, cell, _check_after(notebook, cell)))
    return found


def _check_after(notebook: Notebook, solution: Cell) -> Cell:
    after: Cell = notebook["cells"][notebook["cells"].index(solution) + 1]
    return after


def _code(cell: Cell, source: str, *tags: str) -> Cell:
    """Return a code cell without outputs."""
    metadata = {key: value for key, value in cell["metadata"].items() if key != "tags"}
    if "exercise" in tags:
        metadata = {}
    return {
        "cell_type": "code",
        "id": cell.get("id", ""),
        "metadata": {**metadata, "tags": list(tags)} if tags else metadata,
        "execution_count": None,
        "outputs": [],
        "source": source,
    }


# -- the place to write ----------------------------------------------------------------------------


def defined(source: str) -> dict[str, ast.stmt]:
    """Return each name that the code defines at its top level, with the statement."""
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        for target in getattr(statement, "targets", []):
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found[node.id] = statement
    return found


def stub(solution: str, check: Cell, task: str) -> tuple[list[str], dict[str, int], str]:
    """Return the names that the reader has to define, the code that is given, and the cell."""
    read_there = {
        node.id for node in ast.walk(ast.parse(check["source"])) if isinstance(node, ast.Name)
    }
    wanted = {name: node for name, node in defined(solution).items() if name in read_there}
    fences = [fence for fence in FENCE.findall(task) if defined(fence).keys() & wanted]
    parts, given = [f"# {HERE.capitalize()}"], {}
    for fence in fences:
        parts.append(fence.strip())
        for name, node in defined(fence).items():
            if name in wanted and isinstance(node, ast.FunctionDef):
                given[name] = fingerprint(ast.unparse(node))
    for name, node in wanted.items():
        if name in given or any(name in defined(fence) for fence in fences):
            continue
        if isinstance(node, ast.FunctionDef):
            parts.append(f"def {name}({ast.unparse(node.args)}):\n    raise NotImplementedError")
        else:
            parts.append(f"{name} = ...")
    return list(wanted), given, _spaced(parts)


def _spaced(parts: list[str]) -> str:
    """Return the parts below each other, with two empty lines around a function."""
    text = parts[0]
    for before, part in pairwise(parts):
        near = before.startswith("#") or not any(p.startswith(("def", "@")) for p in (before, part))
        text += ("\n" if near else "\n\n\n") + part
    return text


def checked(source: str, task: str, wanted: list[str], given: dict[str, int]) -> str:
    """Return the cell that checks what the reader has written."""
    [name] = re.findall(r"(?m)^### (Exercise \d+)", task)
    arguments = ", ".join(f'"{one}"' for one in (name, *wanted))
    if given:
        arguments += f", given={given}".replace("'", '"')
    body = textwrap.indent(source, "    ")
    return (
        f"# @title Check of {name[0].lower()}{name[1:]}\n"
        "from attnbook.exercises import check\n\n\n"
        f"@check({arguments})\ndef _():\n{body}"
    )


# -- predictions -----------------------------------------------------------------------------------


def folded(source: str) -> str:
    """Return the text with its first paragraph folded, as on the website: it tells an answer."""
    first, *rest = source.split("\n\n", 1)
    return source if first.startswith("#") else "\n\n".join([FOLD.format(first), *rest])


def predicted(cell: Cell) -> list[Cell]:
    """Return a place for the guess, the cell without what would tell, and what would tell.

    What a loop asserts at each turn would tell too. It cannot stand alone, so it is left out.
    """
    lines = cell["source"].splitlines()
    tree = ast.parse(_python(cell))
    told = _lines_of(node for node in tree.body if isinstance(node, ast.Assert))
    hidden = _lines_of(node for node in ast.walk(tree) if _only_asserts(node))
    kept = "\n".join(line for n, line in enumerate(lines, start=1) if n not in hidden).rstrip()
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag != ANSWER_TAG]
    guess: Cell = {"cell_type": "markdown", "id": "", "metadata": {}, "source": f"{GUESS} …"}
    cells = [guess, _code(cell, kept, *tags)]
    if told:
        source = "\n".join(line for n, line in enumerate(lines, start=1) if n in told)
        after = _code(cell, f"# @title What the cell above claims\n{source}", "hide-cell")
        after["metadata"] = {"cellView": "form", "jupyter": {"source_hidden": True}}
        after["id"] = ""
        cells.append(after)
    return cells


def _only_asserts(node: ast.AST) -> bool:
    """Whether the statement asserts something, and so do all statements in it."""
    if isinstance(node, ast.For | ast.With):
        return all(map(_only_asserts, node.body))
    return isinstance(node, ast.Assert)


def _lines_of(found: Iterable[Any]) -> set[int]:
    """Return the numbers of all lines of the statements."""
    return {n for node in found for n in range(node.lineno, node.end_lineno + 1)}


def _python(cell: Cell) -> str:
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", cell["source"])


def main(arguments: list[str]) -> int:
    """Write every page that is a notebook, at its own place below the folder."""
    folder = Path(arguments[0]) if arguments else FOLDER
    written = 0
    for path in sorted([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("reference/*.ipynb")]):
        goal = folder / path.relative_to(ROOT)
        goal.parent.mkdir(parents=True, exist_ok=True)
        written += 1
        write_normalised(goal, class_notebook(read(path)))
    print(f"{written} notebooks are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
