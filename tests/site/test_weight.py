"""What a page weighs on its way to the reader, compressed, without its pictures."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest

from tests.site.conftest import all_pages, chapters
from tests.site.test_links import read

MOST_KIB = 350
MOST_SCRIPTS_KIB = 8


def weight(path: Path) -> int:
    """Bytes on the way: text is compressed, fonts are already."""
    content = path.read_bytes()
    return len(content if path.suffix == ".woff2" else gzip.compress(content))


def files(book: Path, name: str, tag: str) -> list[Path]:
    """The files of the site that the elements of one kind load, stylesheets among the links."""
    page = book / f"{name}.html"
    found = [urlsplit(urldefrag(link)[0]).path for kind, link in read(page).links if kind == tag]
    loaded = [link for link in found if tag != "link" or link.endswith(".css")]
    return [(page.parent / link).resolve() for link in loaded]


@pytest.mark.parametrize("name", chapters())
def test_a_chapter_is_light(book: Path, name: str) -> None:
    # Every font is counted, though no page needs all of them.
    parts = [book / f"{name}.html", *(book / "_static" / "katex" / "fonts").iterdir()]
    parts += files(book, name, "script") + files(book, name, "link")
    assert len(parts) > 10
    assert sum(map(weight, parts)) <= MOST_KIB * 1024


@pytest.mark.parametrize("name", [name for name in all_pages() if name != "search"])
def test_scripts_are_few_and_wait(book: Path, name: str) -> None:
    found = files(book, name, "script")
    assert {path.name for path in found} <= {"book.js", "moving.js"}
    assert sum(map(weight, found)) <= MOST_SCRIPTS_KIB * 1024


@pytest.mark.parametrize("name", all_pages())
def test_no_script_holds_up_the_page(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    for tag in page.split("<script")[1:]:
        head = tag.partition(">")[0]
        assert "src=" not in head or "defer" in head, head


@pytest.mark.parametrize("name", chapters())
def test_code_has_spans_only_where_a_theme_colours_them(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    style = (book / "_static" / "pages.css").read_text(encoding="utf-8")
    code = "".join(re.findall(r'<div class="highlight-ipython3.*?</pre>', page, re.S)) or "".join(
        re.findall(r'<div class="highlight-python.*?</pre>', page, re.S)
    )
    kinds = set(re.findall(r'<span class="(\w+)">', code))
    assert {"k", "o"} <= kinds and not {"n", "p", "w"} & kinds
    for kind in kinds:
        assert re.search(rf"\.highlight \.{kind}\b", style), kind
