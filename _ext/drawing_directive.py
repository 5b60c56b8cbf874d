"""`{drawing} name`: a drawing of `attnbook.figures`, made when the book is built.

For pages that are no notebooks. The name is a function of `attnbook.figures` that can be called
without arguments, or with the integers given as `:sizes: 3 4 2 3`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnbook import figures


class DrawingDirective(SphinxDirective):
    """Put the html of one drawing on the page."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"sizes": directives.positive_int_list}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in figures.__all__ or not name[0].islower():
            known = ", ".join(n for n in figures.__all__ if n[0].islower())
            raise self.error(f"no drawing is named {name!r}; there are {known}")
        drawing = getattr(figures, name)(*self.options.get("sizes", []))
        return [nodes.raw("", drawing._repr_html_(), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", DrawingDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
