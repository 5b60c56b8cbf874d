"""`{guards} what`: which mistakes each chapter notices, from benchmarks/results/guards.json.

`{guards} 04_softmax` gives that chapter's own, each with the change, as a diff, and the line that
speaks. `{guards} counts` and `{guards} table` give all chapters beside each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from results_directive import RESULTS, table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Chapters = dict[str, dict[str, Any]]


def own(chapter: str, entries: list[dict[str, Any]]) -> list[nodes.Node]:
    """Return a paragraph, a diff and what speaks, for each mistake of a chapter."""
    found: list[nodes.Node] = []
    for entry in entries:
        file = f"chapters/{chapter}.ipynb" if entry["file"] == "this chapter" else entry["file"]
        head = nodes.paragraph("", "", nodes.strong(text=_sentence(entry["mistake"])))
        head += [nodes.Text(" In "), nodes.literal(text=file), nodes.Text(":")]
        lines = []
        for old, new in entry["edits"]:
            lines += [f"- {line}" for line in old.split("\n")]
            lines += [f"+ {line}" for line in new.split("\n")]
        speaks = nodes.paragraph(text=f"Cell {entry['cell']} ")
        if entry["by"] == "output":
            speaks += nodes.Text("puts out something else.")
        else:
            speaks += [nodes.Text("raises "), nodes.literal(text=entry["by"])]
            if entry["line"]:
                speaks += [nodes.Text(" at "), nodes.literal(text=entry["line"])]
            speaks += nodes.Text(".")
        found += [head, nodes.literal_block("\n".join(lines), "\n".join(lines), language="diff")]
        found.append(speaks)
    return found


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def by_mistake(chapters: Chapters) -> dict[str, dict[str, bool]]:
    """Return for each mistake the chapters that run its lines, and whether they notice it."""
    found: dict[str, dict[str, bool]] = {}
    for chapter, parts in chapters.items():
        for entry in parts["named"]:
            found.setdefault(entry["mistake"], {})[chapter] = entry["verdict"] == "noticed"
    return found


def counts(chapters: Chapters) -> list[nodes.Node]:
    """Return a row for each chapter: what was tried on it, and how much it noticed."""
    rows = []
    for chapter, parts in chapters.items():
        everything = [*parts["own"], *parts["named"]]
        noticed = sum(entry["verdict"] == "noticed" for entry in everything)
        by_output = sum(entry.get("by") == "output" for entry in everything)
        raised = noticed - by_output
        rows.append([chapter, str(len(everything)), str(noticed), str(raised), str(by_output)])
    head = ["chapter", "tried", "noticed", "a cell raises", "an output differs"]
    return [table(head, rows)]


def matrix(chapters: Chapters) -> list[nodes.Node]:
    """Return a row for each mistake, a column for each chapter."""
    signs = {True: "●", False: "○", None: ""}
    rows = [
        [mistake, *(signs[row.get(chapter)] for chapter in chapters)]
        for mistake, row in by_mistake(chapters).items()
    ]
    lost = [mistake for mistake, row in by_mistake(chapters).items() if not any(row.values())]
    words = f"Of {len(rows)} mistakes {len(rows) - len(lost)} are noticed by some chapter"
    words += f". By none: {'; '.join(lost)}." if lost else "."
    head = ["mistake", *(str(int(chapter[:2])) for chapter in chapters)]
    grid = table(head, rows)
    grid["classes"].append("book-matrix")
    return [grid, nodes.paragraph(text=words)]


class GuardsDirective(SphinxDirective):
    """Put a part of what is stored on the page."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        file = Path(RESULTS, "guards.json")
        self.env.note_dependency(str(file))
        chapters: Chapters = json.loads(file.read_text(encoding="utf-8"))["chapters"]
        what = self.arguments[0]
        if what in ("counts", "table"):
            return (counts if what == "counts" else matrix)(chapters)
        if what not in chapters:
            raise self.error(f"no chapter is named {what!r}; there are {', '.join(chapters)}")
        return own(what, chapters[what]["own"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("guards", GuardsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
