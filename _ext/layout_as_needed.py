"""Blocks below the first screens are marked, so that a page shows before all of it is laid out.

A chapter has some ten thousand elements, most of them in formulas and drawings, and laying them out
takes a phone a second. `book.css` leaves a marked block out of the layout until the reader comes
near (content-visibility), and `book.js` takes care of the rest. Blocks that may be on the first
screen are not marked: they would move what stands below them when they get their true height.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

MARK = "book-later"
BLOCKS = (
    nodes.paragraph,
    nodes.container,
    nodes.math_block,
    nodes.bullet_list,
    nodes.enumerated_list,
    nodes.definition_list,
    nodes.block_quote,
    nodes.literal_block,
    addnodes.desc,
)
# The tallest first screen that is thought of, in pixels.
SCREEN = 1600
DRAWING = re.compile(r'<svg [^>]*viewBox="0 0 [\d.]+ ([\d.]+)"')


def least_height(node: nodes.Node) -> float:
    """A height in pixels that a block has at least, in the widest column.

    >>> least_height(nodes.literal_block("", "a\\nb"))
    40
    >>> least_height(nodes.raw("", '<svg class="a" viewBox="0 0 300 120.5">', format="html"))
    120.5
    """
    if isinstance(node, nodes.literal_block):
        return 20 * len(node.astext().splitlines())
    if isinstance(node, nodes.math_block):
        return 40
    if isinstance(node, nodes.raw):
        return sum(map(float, DRAWING.findall(node.astext())))
    if isinstance(node, nodes.container):
        # What is folded, or shown in another format, takes no room.
        if node.get("hide_mode") or node.get("nb_element") == "mime_bundle":
            return max((least_height(child) for child in node.children[:1]), default=0)
        return sum(map(least_height, node.children))
    return 28 * (1 + len(node.astext()) // 100)


def mark_later(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Mark the blocks of a page from the end of the first screen on."""
    above = 0.0
    for section in doctree.findall(nodes.section):
        for block in section.children:
            if isinstance(block, nodes.section):
                continue
            if above > SCREEN and isinstance(block, BLOCKS):
                block["classes"].append(MARK)
            above += least_height(block)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hook."""
    app.connect("doctree-resolved", mark_later)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
