"""What search engines and messengers see of a page: its address, its words and its card."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from tests.site.conftest import BASE, pages
from tests.site.test_links import read


class _Meta(HTMLParser):
    """Collects the meta tags of a page by name or property, each as often as it occurs."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = values.get("property") or values.get("name")
        if tag == "meta" and name:
            self.found.setdefault(name, []).append(str(values.get("content")))


@pytest.mark.parametrize("name", pages())
def test_a_page_has_one_address_its_words_and_a_card(book: Path, name: str) -> None:
    found = _Meta(book / f"{name}.html").found
    assert read(book / f"{name}.html").canonical == [f"{BASE}{name}.html"]
    assert found["og:url"] == [f"{BASE}{name}.html"]
    assert found["og:site_name"] == ["Attention, step by step"]
    [title] = found["og:title"]
    assert f"<title>{title}" in (book / f"{name}.html").read_text(encoding="utf-8")
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
