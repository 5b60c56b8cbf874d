"""`{drawing} name`: a drawing of `attnbook.figures`, made when the book is built.

For pages that are no notebooks. The name is a function of `attnbook.figures` that can be called
without arguments. The role `{thumbnail}` of a chapter's number is its small picture in a line.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole
from thumbnails import thumbnail

from attnbook import figures


class DrawingDirective(SphinxDirective):
    """Put the html of one drawing on the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if not hasattr(figures, name):
            raise self.error(f"attnbook.figures has no drawing {name!r}")
        return [nodes.raw("", getattr(figures, name)()._repr_html_(), format="html")]


class ThumbnailRole(SphinxRole):
    """Put a chapter's small picture in the line."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [nodes.raw("", thumbnail(int(self.text)), format="html")], []


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", DrawingDirective)
    app.add_role("thumbnail", ThumbnailRole())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
