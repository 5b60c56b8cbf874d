"""A drawing of a notebook is a figure of the book: with a number, a caption and a link to itself.

The cell that draws has a tag `fig-name` and begins with `# @title`, which Colab shows above the
drawing; here these words become the caption. The number is Sphinx's own (`numfig`), so that
`{numref}` leads to a figure by its name.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

TITLE = re.compile(r"#\s*@title\s+(.+)")
SHOW_CODE = "Show code"


class NumberedFigures(SphinxTransform):
    """Wrap the output of each cell with a tag `fig-…` in a figure, before labels are collected."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code":
                continue
            names = [tag for tag in cell["cell_metadata"].get("tags", []) if tag[:4] == "fig-"]
            if not names:
                continue
            [name], source, output = names, cell[0], cell[-1]
            title = TITLE.match(source.astext().lstrip())
            if title is None or output.get("nb_element") != "cell_code_output":
                page = self.env.docname
                raise ExtensionError(f"{page}: a cell {name} must begin with # @title and draw")
            figure = nodes.figure("", *output.children, names=[name], classes=["book-figure"])
            figure += nodes.caption("", title[1].strip())
            output.children = []
            output += figure
            self.document.note_explicit_target(figure)
            cell["prompt_show"] = SHOW_CODE


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(NumberedFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
