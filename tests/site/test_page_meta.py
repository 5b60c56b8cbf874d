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


@pytest.mark.parametrize("name", pages())
def test_a_page_has_one_address_its_words_and_a_card(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    found = defaultdict(list)
    for tag in re.findall(r"<meta [^>]*>", page):
        values = dict(ATTRIBUTE.findall(tag))
        name_of_value = values.get("property") or values.get("name")
        found[name_of_value].append(unescape(values.get("content", "")))
    assert CANONICAL.findall(page) == [f"{BASE}{name}.html"]
    assert found["og:url"] == [f"{BASE}{name}.html"]
    assert found["og:site_name"] == ["Attention, step by step"]
    [title] = found["og:title"]
    assert f"<title>{title}" in page
    # Nothing of TeX or of HTML is left in them.
    assert not set("\\{}$<") & set(title + found["description"][0] + found["og:description"][0])
    assert len(found["description"]) == 1 and not found["description"][0].startswith(title)
    [card] = found["og:image"]
    with Image.open(book / card.removeprefix(BASE)) as picture:
        colours = picture.convert("RGB").getcolors(1 << 20)
    assert colours is not None and len(colours) > 16  # paper, and words on it


def test_the_cards_letters_are_in_their_font() -> None:
    from matplotlib import font_manager, ft2font

    font = ft2font.FT2Font(font_manager.findfont("DejaVu Sans", fallback_to_default=False))
    assert all(font.get_char_index(ord(letter)) for letter in "√ₖ·ᵀ")


def test_the_sitemap_lists_the_pages(book: Path) -> None:
    listed = [str(entry.text) for entry in ET.parse(book / "sitemap.xml").findall(".//{*}loc")]
    assert sorted(listed) == sorted(f"{BASE}{name}.html" for name in pages())
