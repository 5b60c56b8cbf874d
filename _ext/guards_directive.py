"""`{guards} 04_softmax`: the mistakes that a chapter notices, from benchmarks/results/guards.json.

Each has its change, as a diff, and the cell and line that notice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from results_directive import RESULTS
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Chapters = dict[str, list[dict[str, Any]]]


def own(chapter: str, entries: list[dict[str, Any]]) -> list[nodes.Node]:
    """Give a paragraph, a diff and what speaks, for each mistake of a chapter."""
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


class GuardsDirective(SphinxDirective):
    """Put what is stored of a chapter on the page."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        file = Path(RESULTS, "guards.json")
        self.env.note_dependency(str(file))
        chapters: Chapters = json.loads(file.read_text(encoding="utf-8"))["chapters"]
        chapter = self.arguments[0]
        if chapter not in chapters:
            raise self.error(f"no chapter is named {chapter!r}; there are {', '.join(chapters)}")
        return own(chapter, chapters[chapter])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("guards", GuardsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
