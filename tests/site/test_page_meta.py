"""What search engines and messengers see of a page: its address, its words and its card."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

from tests.site.conftest import BASE, pages
from tests.site.test_links import CANONICAL

ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def meta(page: str) -> dict[str, list[str]]:
    """Return the contents of a page's meta tags by name or property."""
    found: dict[str, list[str]] = defaultdict(list)
    for tag in re.findall(r"<meta [^>]*>", page):
        values = dict(ATTRIBUTE.findall(tag))
        key = values.get("property") or values.get("name") or ""
        found[key].append(unescape(values.get("content", "")))
    return found


@pytest.mark.parametrize("name", pages())
def test_a_page_has_one_address_its_words_and_a_card(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    found = meta(page)
    assert CANONICAL.findall(page) == found["og:url"] == [f"{BASE}{name}.html"]
    [title], [description] = found["og:title"], found["description"]
    of_the_book = "" if name == "index" else " - Attention, step by step"
    assert f"<title>{title}{of_the_book}</title>" in page
    # Nothing of TeX or of HTML is left in them.
    assert not set("\\{}$<") & set(title + description + found["og:description"][0])
    assert 20 <= len(description) <= 200 and not description.startswith(title)
    assert not re.match(r"\d+ minutes", description)  # what the page is about comes first
    [card] = found["og:image"]
    with Image.open(book / card.removeprefix(BASE)) as picture:
        colours = picture.convert("RGB").getcolors(1 << 20)
    assert colours is not None and len(colours) > 16  # paper, and words on it


def test_the_sitemap_lists_the_pages(book: Path) -> None:
    listed = [str(entry.text) for entry in ET.parse(book / "sitemap.xml").findall(".//{*}loc")]
    assert sorted(listed) == sorted(f"{BASE}{name}.html" for name in pages())
