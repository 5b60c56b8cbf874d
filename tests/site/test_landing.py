"""The first page: a figure at once, a formula whose parts lead to chapters, cards."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tests.site.conftest import OpenPage, chapters

# The words under each part, in the order of the formula, and the chapter it leads to.
PARTS = {
    "what a token asks for, offers, hands over": 1,
    "how scores become weights": 4,
    "who is relevant to whom": 2,
    "why divide by a square root": 3,
    "what a token takes": 5,
}


@pytest.mark.quick
def test_each_part_of_the_formula_leads_to_its_chapter(open_page: OpenPage, address: str) -> None:
    page = open_page("index").page
    links = page.locator(".formula-map a")
    assert links.count() == len(PARTS)
    for words, chapter in PARTS.items():
        link = links.filter(has_text=f"{words}, chapter {chapter}")
        link.click(trial=True)  # it waits until a click would reach the link
        assert link.get_attribute("href") == f"{chapters()[chapter - 1]}.html"
    link.click()
    page.wait_for_url(f"{address}/{chapters()[chapter - 1]}.html")
    assert page.locator("h1").inner_text().startswith(f"{chapter}. ")


@pytest.mark.quick
def test_a_phone_shows_the_line_its_words_and_where_to_start_at_once(open_page: OpenPage) -> None:
    page = open_page("index", width=360, height=780).page
    for one in (
        page.locator(".book-start"),
        page.get_by_label("Type a sentence, click a word:"),
        page.locator(".sentence-words"),
    ):
        box = one.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360
        assert box["y"] + box["height"] <= 780
    start = page.locator(".book-start a")
    assert start.get_attribute("href") == f"{chapters()[0]}.html"


def test_a_card_has_the_title_of_its_chapter_and_a_picture(book: Path, open_page: OpenPage) -> None:
    cards = open_page("index").page.locator(".chapter-cards a")
    for card, name in zip(cards.all(), chapters(), strict=True):
        page = (book / f"{name}.html").read_text(encoding="utf-8")
        [title] = re.findall(r"<title>(.*?) - Attention", page)
        assert str(card.text_content()).strip().startswith(f"{unescape(title).split(' · ')[0]} ")
        assert card.get_attribute("href") == f"{name}.html"
        assert card.locator("svg[aria-hidden=true] path").count()
