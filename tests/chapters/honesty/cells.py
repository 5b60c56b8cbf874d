"""A notebook's cells, their tags, and their code as Python's own parser sees it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

Cell = dict[str, Any]
Notebook = dict[str, Any]
Rule = Callable[[Notebook], list[str]]


def numbered(notebook: Notebook, kind: str) -> Iterator[tuple[str, Cell]]:
    """Return the cells of a kind, each with the name that a fault calls it by."""
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] == kind and cell["source"].strip():
            yield f"cell {number}", cell


def code_cells(notebook: Notebook) -> Iterator[tuple[str, Cell]]:
    return numbered(notebook, "code")


def markdown_cells(notebook: Notebook) -> Iterator[tuple[str, Cell]]:
    return numbered(notebook, "markdown")


def tags(cell: Cell) -> list[str]:
    found: list[str] = cell["metadata"].get("tags", [])
    return found


def parsed(cell: Cell) -> ast.Module:
    """Parse the code, with a `pass` for each line that only IPython reads (%pip, !ls)."""
    return ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", cell["source"]))


def calls(tree: ast.AST) -> Iterator[str]:
    """Return the name of each function that is called, but for calls inside a definition."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            yield called(node)
        yield from calls(node)


def called(call: ast.Call) -> str:
    """Return the last part of the name: `assert_allclose` of `np.testing.assert_allclose(…)`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def count_asserts(cell: Cell) -> int:
    return sum(isinstance(node, ast.Assert) for node in ast.walk(parsed(cell)))


def outputs(cell: Cell, kind: str) -> list[dict[str, Any]]:
    return [output for output in cell["outputs"] if output["output_type"] == kind]


def shown(cell: Cell) -> str:
    """Return all text that the cell's outputs hold, of whatever kind."""
    texts: list[str] = []
    for output in cell["outputs"]:
        texts.append(output.get("text", ""))
        texts += [str(text) for text in output.get("data", {}).values()]
        texts += output.get("traceback", [])
    return "\n".join(texts)
