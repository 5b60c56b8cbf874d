"""Links of the built pages: each leads somewhere. Read from the files; no browser is needed."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

from tests.site.conftest import ROOT, all_pages, notebooks

ATTRIBUTE = re.compile(r'\s(id|href|src)="([^"]*)"')
# It says where the page stands and loads nothing; test_page_meta.py holds it.
CANONICAL = re.compile(r'<link rel="canonical" href="([^"]*)"')


class Page(NamedTuple):
    """A page's ids, and what it refers to: by links, scripts, styles and pictures."""

    ids: list[str]
    links: list[str]


@cache
def read(path: Path) -> Page:
    """Return a page's ids and links."""
    html = CANONICAL.sub("", path.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {"id": [], "href": [], "src": []}
    for attribute, value in ATTRIBUTE.findall(html):
        found[attribute].append(unescape(value))
    return Page(found["id"], found["href"] + found["src"])


@pytest.mark.quick
@pytest.mark.parametrize("name", all_pages())
def test_links_within_the_book_resolve(book: Path, name: str) -> None:
    page = book / f"{name}.html"
    broken = []
    for link in read(page).links:
        if urlsplit(link).scheme:
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
def test_an_id_occurs_once_in_a_page(book: Path, name: str) -> None:
    ids = read(book / f"{name}.html").ids
    assert sorted({one for one in ids if ids.count(one) > 1}) == []


@pytest.mark.quick
@pytest.mark.parametrize("name", notebooks())
def test_a_chapter_opens_in_colab_and_can_be_downloaded(book: Path, name: str) -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    path = f"{urlsplit(config['url']).path}/blob/class/{name}.ipynb"
    links = read(book / f"{name}.html").links
    in_colab = [link for link in links if "colab.research" in link]
    assert in_colab == [f"https://colab.research.google.com/github{path}"]
    assert (book / "_sources" / f"{name}.ipynb").is_file()
    assert any(link.endswith(f"_sources/{name}.ipynb") for link in links)


@pytest.mark.quick
def test_the_addresses_of_joined_pages_lead_on(book: Path) -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    for old, new in config["sphinx"]["config"]["redirects"].items():
        page = book / f"{old}.html"
        address, anchor = urldefrag(new)
        assert old not in all_pages() and new in page.read_text(encoding="utf-8")
        assert not anchor or anchor in read(page.parent / address).ids, new
