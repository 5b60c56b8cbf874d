"""404.html: what a reader sees at an address that no page has.

A host such as GitHub Pages sends this one file for every missing path, at any depth. So the page
carries its style itself, and a base element, the path of `html_baseurl`, holds for all its links.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from content_policy import digest
from lean_pages import plain_text
from sphinx import addnodes
from sphinx.application import Sphinx

TEMPLATES = Path(__file__).parent / "templates"


class Part(NamedTuple):
    """A part of the table of contents: its name, and address and title of each page."""

    name: str
    pages: list[tuple[str, str]]


def parts(app: Sphinx) -> list[Part]:
    """The table of contents, numbered as everywhere."""
    found = []
    for toctree in app.env.get_doctree(app.config.root_doc).findall(addnodes.toctree):
        pages = []
        for _, name in toctree["entries"]:
            number = app.env.toc_secnumbers.get(name, {}).get("", ())
            dotted = "".join(f"{part}. " for part in number[:1])
            title = dotted + plain_text(app.env.titles[name])
            pages.append((app.builder.get_target_uri(name), title))
        found.append(Part(toctree.get("caption") or "", pages))
    return found


def missing_page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Sphinx's hook for pages that no source file has."""
    style = (TEMPLATES / "404.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "404.js").read_text(encoding="utf-8")
    policy = [
        "default-src 'none'",
        f"style-src {digest(style)}",
        f"script-src {digest(script)}",
        "img-src 'self'",
        "base-uri 'self'",
        "form-action 'self'",
    ]
    context = {
        "site_path": urlsplit(app.config.html_baseurl).path or "/",
        "contents": parts(app),
        "style": style,
        "script": script,
        "policy": "; ".join(policy),
    }
    yield "404", context, "404.html"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-collect-pages", missing_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
