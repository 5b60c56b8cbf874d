"""Predict, commit, reveal: an answer stays folded until the reader has guessed, or asks for it.

In a notebook the tag `hide-output` stands on the cell whose output answers a **Predict**. Here such
a cell gets a place for the guess, and a name that changes with its source, so that an old guess
never meets a new question. Lines that assert something would tell the answer, so they are marked
and come with it; book.css folds the paragraph that explains it too. The script is in predict.js.
Without scripts, on paper and for the search everything is there.
"""

from __future__ import annotations

import ast
import hashlib
import re
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

# The switch stands on each page that has a prediction; the script shows it and gives it its work.
SWITCH = """<p class="book-guesses"><label><input type="checkbox"> Show all answers at once</label>
<button type="button" hidden>Delete my guesses</button></p>"""


def lines_that_assert(source: str) -> list[int]:
    """Return the numbers of the lines that belong to an assert, from 1 on.

    >>> lines_that_assert("a = 1\\nfor b in [1]:\\n    assert (a ==\\n            b)\\nprint(a)")
    [3, 4]
    """
    python = re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", source)
    found = (node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Assert))
    return sorted({n for node in found for n in range(node.lineno, (node.end_lineno or 0) + 1)})


def name_of(source: str) -> str:
    """Return the name under which the guess for the cell with this source is kept."""
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def mark_answers(app: Sphinx, doctree: nodes.document) -> None:
    """Give each cell that answers its name, and mark the lines that would tell."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code" or cell.get("hide_mode") != "output":
            continue
        [written] = [part for part in cell.children if part.get("nb_element") == "cell_code_source"]
        [code] = written.findall(nodes.literal_block)
        cell["classes"] += ["predicted", f"guess-{name_of(code.astext())}"]
        cell["prompt_show"] = "Answer"
        if telling := lines_that_assert(code.astext()):
            code["highlight_args"] = {"hl_lines": telling}


def visit_folded(self: Any, node: nodes.Element) -> None:
    """Open a folded part, named by the text that one sees, after the place for a guess."""
    if "below-input" in node["classes"]:
        self.body.append('<div class="guess"></div>\n')
    self.body.append(f'<details class="hide {" ".join(node["classes"])}">\n')
    self.body.append(f"<summary>{self.encode(node['prompt_show'])}</summary>\n")


def depart_folded(self: Any, node: nodes.Element) -> None:
    """Close a folded part."""
    self.body.append("</details>\n")


def add_switch(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put the switch and the script on a page that has a prediction."""
    if '<div class="guess">' in context.get("body", ""):
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{SWITCH}", 1)
        app.add_js_file("predict.js", defer="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks; MyST-NB's own way to fold is replaced."""
    app.add_node(HideCodeCellNode, override=True, html=(visit_folded, depart_folded))
    app.connect("doctree-read", mark_answers)
    app.connect("html-page-context", add_switch, priority=400)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
