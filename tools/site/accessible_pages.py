"""Pages for every reader: what one hears is named, what one sees can be read at any width."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from static_math import plain_text


def visit_citation(self: Any, node: nodes.Element) -> None:
    """A work of the bibliography as one of a list; the writer's own roles are no longer ARIA's."""
    if not isinstance(node.previous_sibling(), nodes.citation):
        self.body.append('<div role="list" class="citation-list">\n')
    self.body.append(self.starttag(node, "div", classes=["citation"], role="listitem"))


def depart_citation(self: Any, node: nodes.Element) -> None:
    """The end of a work, and of the list after the last."""
    self.body.append("</div>\n")
    if not isinstance(node.next_node(descend=False, siblings=True), nodes.citation):
        self.body.append("</div>\n")


def name_of_table(table: nodes.table) -> str:
    """What a table without a caption is called: the heading it stands under, and its columns.

    >>> name_of_table(nodes.table())
    'Table'
    """
    section = table.parent
    while section is not None and not isinstance(section, nodes.section):
        section = section.parent
    heading = plain_text(section.next_node(nodes.title)) if section is not None else "Table"
    head = next(iter(table.findall(nodes.thead)), None)
    columns = [plain_text(entry) for entry in head.findall(nodes.entry)] if head is not None else []
    return f"{heading}: {', '.join(filter(None, columns))}" if any(columns) else heading


def name_tables(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Add to each table without a caption one that is heard and not seen."""
    for table in doctree.findall(nodes.table):
        if table.next_node(nodes.title) is None:
            caption = f'<caption class="book-heard">{escape(name_of_table(table))}</caption>'
            table.insert(0, nodes.raw("", caption, format="html"))


# A last column with an entry longer than this is prose.
WORDY = 25
OPENING, CLOSING = re.compile(r"[(\[“‘]+$"), re.compile(r"[,.;:!?)\]’”]+")
VERBATIM = (nodes.raw, nodes.literal, nodes.literal_block, nodes.math, nodes.math_block)


def sort_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Mark tables of four columns or more by what a phone is to do with them.

    A last column of prose moves below its row; a table of numbers scrolls with its rows unbroken.
    """
    for table in doctree.findall(nodes.table):
        rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
        if rows and len(rows[0]) >= 4:
            longest = max(len(row[-1].astext()) for row in rows[1:])
            table["classes"].append("book-prose" if longest > WORDY else "book-numbers")


def keep_together(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Keep a formula with the bracket before it and the comma after it, and a % with its number.

    A browser may break a line on either side of a formula, whatever stands there.
    """
    for text in list(doctree.findall(nodes.Text)):
        if text.parent is not None and not isinstance(text.parent, VERBATIM):
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) (?=%)", "\u00a0", text)))
    for formula in list(doctree.findall(nodes.math)):
        siblings = formula.parent
        place = siblings.index(formula)
        before, after = (
            str(siblings[near])
            if 0 <= near < len(siblings) and isinstance(siblings[near], nodes.Text)
            else ""
            for near in (place - 1, place + 1)
        )
        opened, closed = OPENING.search(before), CLOSING.match(after)
        if not opened and not closed:
            continue
        kept = nodes.inline("", classes=["book-kept"])
        if opened:
            siblings[place - 1] = nodes.Text(before[: opened.start()])
            kept += nodes.Text(opened[0])
        siblings[place] = kept
        kept += formula
        if closed:
            siblings[place + 1] = nodes.Text(after[closed.end() :])
            kept += nodes.Text(closed[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks."""
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    app.connect("doctree-read", sort_tables)
    app.connect("doctree-resolved", name_tables)
    app.connect("doctree-resolved", keep_together)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
