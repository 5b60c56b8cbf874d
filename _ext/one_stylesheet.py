"""One stylesheet for all pages, with the rules that they can use and no other.

Themes and extensions bring ten stylesheets, half a megabyte, and a page waits for all of them. When
the pages are written, this extension reads which names (tags, classes, ids, attributes) occur in
them and in their scripts, and `one_stylesheet.js` joins the stylesheets, drops each rule with a
name that occurs nowhere, and shortens the rest. States that come and go (hover, focus, print,
light, dark) are no names, so their rules stay. A stylesheet that `PARTS` does not know is a
warning, so that an update cannot add one unseen.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from static_math import HOW_TO_INSTALL, find_node

logger = logging.getLogger(__name__)

NAME = "pages.css"

# What is joined, in this order: the theme, what the notebooks need, formulas, figures, the book.
PARTS = (
    "basic.css",
    "styles/pydata-sphinx-theme.css",
    "pygments.css",
    "styles/sphinx-book-theme.css",
    "mystnb.*.css",
    "katex/katex.min.css",
    "attn/moving.css",
    "book.css",
)

# Attributes that no page has when it is written, and no script names as a stylesheet does.
LATER = {
    "data-theme": "first_paint.js and book.js set dataset.theme",
    "data-mode": "first_paint.js and book.js set dataset.mode",
    "data-layout": "first_paint.js sets dataset.layout",
    "open": "the browser sets it on details and dialogs",
}

LICENCES = (
    "/*! Joined from Sphinx and Pygments (BSD-2-Clause), PyData Sphinx Theme, Sphinx Book Theme "
    "and MyST-NB (BSD-3-Clause), Bootstrap and KaTeX (MIT), and the book's own rules. */"
)
NOT_INSTALLED = f"The tools that join the stylesheets were not found: {HOW_TO_INSTALL}"


@dataclass
class Names:
    """What a selector can refer to in the pages and their scripts.

    >>> names = Names()
    >>> names.read_page('<p class="a b" id="c" hidden style="color: var(--d)">')
    >>> names.read_script('element.classList.add("e"); document.createElement("li")')
    >>> [sorted(each) for each in (names.tags, names.classes & {"a", "b"}, names.ids & {"c"})]
    [['li', 'p'], ['a', 'b'], ['c']]
    >>> "hidden" in names.attributes, "e" in names.classes, names.variables
    (True, True, {'--d'})
    """

    tags: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def read_page(self, html: str) -> None:
        """Add the names of a finished page."""
        _PageReader(self).feed(html)
        self.variables.update(re.findall(r"--[\w-]+", html))

    def read_script(self, code: str) -> None:
        """Add the names that a script may give: every word of it, but tags only where made."""
        words = set(re.findall(r"[\w-]+", code))
        self.classes |= words
        self.ids |= words
        self.attributes |= words
        made = re.finditer(r"createElement\(\s*[\"'](\w+)|<(\w+)", code)
        self.tags.update(one[1] or one[2] for one in made)
        self.variables.update(re.findall(r"--[\w-]+", code))


class _PageReader(HTMLParser):
    """Collects the names of a page."""

    def __init__(self, names: Names) -> None:
        super().__init__(convert_charrefs=False)
        self.names = names

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, its attributes, its classes and its id."""
        self.names.tags.add(tag)
        for key, value in attrs:
            self.names.attributes.add(key)
            if value and key == "class":
                self.names.classes.update(value.split())
            elif value and key == "id":
                self.names.ids.add(value)


def parts_of(folder: Path) -> list[str]:
    """The stylesheets of a folder of static files that are joined, in order."""
    return [
        path.relative_to(folder).as_posix() for part in PARTS for path in sorted(folder.glob(part))
    ]


def joined(folder: Path, parts: list[str], names: Names, tools: Path) -> str:
    """The one stylesheet; its addresses are relative to `folder`.

    Raises `ExtensionError` when the tools are missing or cannot read a stylesheet.
    """
    known = {kind: sorted(found) for kind, found in vars(names).items()}
    done = subprocess.run(
        [find_node(), str(Path(__file__).with_suffix(".js")), str(tools)],
        input=json.dumps({"folder": str(folder), "parts": parts, "names": known}),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if "MODULE_NOT_FOUND" in done.stderr:
        raise ExtensionError(NOT_INSTALLED)
    if done.returncode:
        raise ExtensionError(f"The stylesheets could not be joined: {done.stderr.strip()}")
    return f"{LICENCES}\n{done.stdout}"


def refer_to_one(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Let a page ask for the one stylesheet only."""
    for style in context["css_files"]:
        name = str(getattr(style, "filename", style)).removeprefix("_static/")
        if not any(Path(name).match(part) for part in PARTS):
            logger.warning("one_stylesheet: stylesheet is not known: %s", name)
    context["css_files"] = [f"_static/{NAME}"]


def join(app: Sphinx, exception: Exception | None) -> None:
    """Write the stylesheet when all pages are there, and remove what it was made of."""
    # The one page for print (`one_page`) chooses its stylesheets itself.
    if exception is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    static = out / "_static"
    names = Names(attributes=set(LATER))
    for page in sorted(out.rglob("*.html")):
        names.read_page(page.read_text(encoding="utf-8"))
    for script in sorted(static.rglob("*.js")):
        # Lists of words of the language; nothing in them is a name.
        if script.name != "language_data.js":
            names.read_script(script.read_text(encoding="utf-8"))
    parts = parts_of(static)
    if not parts:
        raise ExtensionError(f"No stylesheet to join in {static}")
    text = joined(static, parts, names, Path(app.srcdir))
    (static / NAME).write_text(text, encoding="utf-8")
    for part in parts:
        (static / part).unlink()
    # What only dropped rules asked for: fonts such as that of script letters, icons.
    for kind in ("*.woff2", "*.png"):
        for path in static.rglob(kind):
            if path.relative_to(static).as_posix() not in text:
                path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks, each after those of other extensions."""
    app.connect("html-page-context", refer_to_one, priority=960)
    app.connect("build-finished", join, priority=900)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
