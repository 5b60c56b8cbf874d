"""Search that finds what a reader types.

Formulas are indexed by their words, without TeX. `search_terms` of the configuration are the book's
index: names by which people know a subject, and the section that explains it. Such an entry stands
first in the results of a question that has the name in it, whatever words the section itself uses.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish
from sphinx.util import logging

COMMAND = re.compile(r"\\[A-Za-z]+")
LOG = logging.getLogger(__name__)


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


def add_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Add to a page the entries of the index that lead to it."""
    for place, terms in app.config.search_terms.items():
        page, _, section = place.partition("#")
        if page != app.env.docname:
            continue
        if section and section not in doctree.ids and section not in doctree.nameids:
            LOG.warning("search_terms: %s has no section %s", page, section)
        entries = [("single", term, section, "main", None) for term in terms]
        doctree.append(addnodes.index(entries=entries))


def check_pages(app: Sphinx, env: Any) -> None:
    """Name what leads nowhere."""
    for place in app.config.search_terms:
        if place.partition("#")[0] not in env.found_docs:
            LOG.warning("search_terms: there is no page %s", place.partition("#")[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of Sphinx's English, and add the script before the page's are chosen."""
    app.add_search_language(PlainEnglish)
    app.add_config_value("search_terms", {}, "env")
    app.connect("doctree-read", add_terms)
    app.connect("env-updated", check_pages)
    app.connect("html-page-context", add_script, priority=900)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
