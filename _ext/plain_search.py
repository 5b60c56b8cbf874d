"""Search that reads formulas as a reader does: no TeX in the index, no letter twice in a result."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

COMMAND = re.compile(r"\\[A-Za-z]+")


def without_commands(words: str) -> str:
    r"""A text without TeX's commands; what they are applied to stays.

    >>> without_commands(r"\operatorname{softmax}(x)")
    ' {softmax}(x)'
    """
    return COMMAND.sub(" ", words)


class PlainEnglish(SearchEnglish):
    """English, with formulas indexed by their words."""

    def split(self, input: str) -> list[str]:
        """The words to index."""
        return super().split(without_commands(input))


def add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The search page shows its results with the help of one more script."""
    if pagename == "search":
        app.add_js_file("search_text.js")


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of Sphinx's English, and add the script before the page's are chosen."""
    app.add_search_language(PlainEnglish)
    app.connect("html-page-context", add_script, priority=900)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
