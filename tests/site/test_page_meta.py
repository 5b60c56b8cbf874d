"""What search engines and messengers see of a page: its address, its words and its card."""

from __future__ import annotations

import hashlib
import importlib
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

pytest.importorskip("sphinx", reason="the book's packages are not installed")

from PIL import Image
from sphinx.errors import ExtensionError

from tests.site.conftest import ROOT, all_pages, pages
from tests.site.test_links import read

BASE = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["html"]["baseurl"]


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


def address(name: str) -> str:
    """Where a page is published."""
    return BASE if name == "index" else f"{BASE}{name}.html"


@pytest.mark.parametrize("name", all_pages())
def test_a_page_has_one_address(book: Path, name: str) -> None:
    assert read(book / f"{name}.html").canonical == [address(name)]
    assert _Meta(book / f"{name}.html").found["og:url"] == [address(name)]


@pytest.mark.parametrize("name", all_pages())
def test_a_page_has_its_words_once(book: Path, name: str) -> None:
    found = _Meta(book / f"{name}.html").found
    assert found["og:description"] == found["description"]
    assert found["og:site_name"] == ["Attention, step by step"]
    assert found["og:type"] == ["website" if name == "index" else "article"]
    [title] = found["og:title"]
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    assert f"<title>{title}" in page
    # Nothing of TeX or of HTML is left in them.
    words = title + found["description"][0]
    assert not set("\\{}$<^") & set(words)


@pytest.mark.parametrize("name", pages())
def test_a_page_has_a_card(book: Path, name: str) -> None:
    found = _Meta(book / f"{name}.html").found
    [source] = found["og:image"]
    assert source.startswith(f"{BASE}_images/")
    with Image.open(book / source.removeprefix(BASE)) as card:
        assert (card.format, *card.size) == ("PNG", 1200, 630)
        assert [str(size) for size in card.size] == [
            *found["og:image:width"],
            *found["og:image:height"],
        ]
        colours = card.convert("RGB").getcolors(256)
    # Paper, and words on it.
    assert colours is not None and len(colours) > 16
    assert found["twitter:card"] == ["summary_large_image"]
    assert found["og:image:alt"] == [f"{found['og:title'][0]}. {found['description'][0]}"]


def test_cards_are_each_page_s_own_and_small(book: Path) -> None:
    cards = [path.read_bytes() for path in (book / "_images" / "cards").iterdir()]
    assert len(cards) == len(pages())
    assert len({hashlib.sha256(card).digest() for card in cards}) == len(cards)
    assert max(map(len, cards)) < 40_000


def test_a_card_is_the_same_each_time(tmp_path: Path) -> None:
    page_meta = importlib.import_module("page_meta")
    stored = []
    for name in ("one.png", "two.png"):
        page_meta.font.cache_clear()
        card = page_meta.card("3. Why √dₖ, and not dₖ", "Divided by √dₖ.", "Attention")
        card.save(tmp_path / name, optimize=True)
        stored.append((tmp_path / name).read_bytes())
    assert stored[0] == stored[1]


def test_a_card_that_cannot_show_its_words_is_an_error() -> None:
    page_meta = importlib.import_module("page_meta")
    with pytest.raises(ExtensionError, match="cannot show 語"):
        page_meta.card("語", "words", "book")
    with pytest.raises(ExtensionError, match="has no room"):
        page_meta.card("Long", "words and words " * 40, "book")


def test_the_sitemap_lists_the_pages(book: Path) -> None:
    entries = ET.parse(book / "sitemap.xml").findall(".//{*}loc")
    listed = [entry.text for entry in entries]
    assert sorted(map(str, listed)) == sorted(address(name) for name in pages())
    robots = (book / "robots.txt").read_text(encoding="utf-8").splitlines()
    assert f"Sitemap: {BASE}sitemap.xml" in robots
    assert not any(line.startswith("Disallow") for line in robots)
