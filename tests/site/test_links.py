"""Links of the built pages: each leads somewhere. Read from the files; no browser is needed."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

from tests.site.conftest import ROOT, all_pages, chapters

LINKS = {"a": "href", "link": "href", "script": "src", "img": "src"}


class _Reader(HTMLParser):
    """Collects the ids of a page and what it refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.canonical: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "link" and values.get("rel") == "canonical":
            # It says where the page stands and loads nothing; test_page_meta.py holds it.
            self.canonical.append(str(values["href"]))
        elif tag in LINKS and values.get(LINKS[tag]):
            self.links.append((tag, str(values[LINKS[tag]])))


@cache
def read(path: Path) -> _Reader:
    """A page's ids and links."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


@pytest.mark.parametrize("name", all_pages())
def test_links_within_the_book_resolve(book: Path, name: str) -> None:
    page = book / f"{name}.html"
    broken = []
    for _, link in read(page).links:
        if urlsplit(link).scheme or link.startswith("//"):
            continue
        address, anchor = urldefrag(link)
        target = page.parent / unquote(urlsplit(address).path) if address else page
        found = target.is_file()
        if found and anchor and target.suffix == ".html":
            found = unquote(anchor) in read(target).ids
        if not found:
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", all_pages())
def test_links_to_other_hosts_are_links_only(book: Path, name: str) -> None:
    for tag, link in read(book / f"{name}.html").links:
        if urlsplit(link).scheme:
            assert tag == "a" and urlsplit(link).scheme in ("https", "mailto"), link


@pytest.mark.parametrize("name", all_pages())
def test_an_id_occurs_once_in_a_page(book: Path, name: str) -> None:
    ids = read(book / f"{name}.html").ids
    assert sorted({one for one in ids if ids.count(one) > 1}) == []


@cache
def repository() -> dict[str, Any]:
    """The repository's address as the book's configuration has it."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return config["repository"]


@pytest.mark.parametrize("name", chapters())
def test_a_chapter_opens_in_colab(book: Path, name: str) -> None:
    account, project = urlsplit(repository()["url"]).path.strip("/").split("/")
    expected = (
        f"https://colab.research.google.com/github/{account}/{project}"
        f"/blob/{repository()['branch']}/{name}.ipynb"
    )
    links = [link for _, link in read(book / f"{name}.html").links]
    assert [link for link in links if "colab.research" in link] == [expected]


@pytest.mark.parametrize("name", chapters())
def test_a_chapter_can_be_downloaded(book: Path, name: str) -> None:
    stored = book / "_sources" / f"{name}.ipynb"
    assert stored.is_file()
    links = [link for _, link in read(book / f"{name}.html").links]
    assert any(link.endswith(f"_sources/{name}.ipynb") for link in links)
