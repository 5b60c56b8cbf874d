"""What is laid out late: places, links, the way back and paper are as if all had been there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from docutils import nodes

from tests.site.conftest import OpenPage, chapters

CHAPTER = "chapters/03_scaling"
HEIGHT = "document.documentElement.scrollHeight"
# How far a heading is from where the browser puts the target of a link.
DISTANCE = """id => {
  const place = document.getElementById(id);
  const margin = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;
  const wanted = place.getBoundingClientRect().top - margin
    - (parseFloat(getComputedStyle(place).scrollMarginTop) || 0);
  const left = document.documentElement.scrollHeight - innerHeight - scrollY;
  return left < 2 && wanted > 0 ? 0 : Math.abs(wanted);
}"""


def far_section(page: Any) -> str:
    """The id of a section in the last third of a page."""
    found: str = page.evaluate(
        """() => { const all = [...document.querySelectorAll(".bd-article section section[id]")];
          return all[Math.floor(all.length * 0.7)].id; }"""
    )
    return found


@pytest.mark.parametrize("name", chapters())
def test_most_of_a_chapter_waits_and_then_has_its_place(open_page: OpenPage, name: str) -> None:
    page = open_page(name, width=412, height=823, moved=False).page
    skipped = """[...document.querySelectorAll(".book-later > :first-child")].filter(
      (inside) => !inside.checkVisibility({ contentVisibilityAuto: true })).length"""
    assert page.evaluate(skipped) >= 10
    estimated = page.evaluate(HEIGHT)
    page.mouse.move(100, 100)
    page.locator("html[data-laid-out]").wait_for(state="attached")
    assert page.evaluate(skipped) == 0
    exact = page.evaluate(HEIGHT)
    assert exact != estimated
    # At an anchor the page is laid out at once, without estimates.
    other = open_page(name, width=412, height=823, moved=False).page
    other.goto(f"{page.url}#{far_section(page)}")
    other.reload()
    assert other.evaluate("document.documentElement.dataset.layout") is None
    other.evaluate("document.fonts.ready.then(() => true)")
    assert other.evaluate(HEIGHT) == exact


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 360])
def test_a_link_from_another_page_leads_to_its_place(open_page: OpenPage, width: int) -> None:
    page = open_page(CHAPTER, width=width, moved=False).page
    place = far_section(page)
    other = open_page("index", width=width, moved=False).page
    other.goto(f"{page.url}#{place}", wait_until="load")
    other.evaluate("document.fonts.ready.then(() => true)")
    other.wait_for_timeout(300)
    assert other.evaluate(DISTANCE, place) <= 2


def test_a_link_within_the_page_leads_to_its_place(open_page: OpenPage) -> None:
    page = open_page(CHAPTER, motion="reduce", moved=False).page
    place = far_section(page)
    # As a key press on the link does it, without a move of the pointer before.
    page.evaluate(
        "id => document.querySelector(`#pst-page-toc-nav a[href='#${id}']`).click()", place
    )
    page.wait_for_timeout(500)
    assert page.evaluate(DISTANCE, place) <= 2
    marked = page.locator("#pst-page-toc-nav a[aria-current='true']")
    assert marked.get_attribute("href") == f"#{place}"


@pytest.mark.slow
def test_the_way_back_leads_to_where_one_was(open_page: OpenPage) -> None:
    page = open_page(CHAPTER).page
    page.evaluate("scrollTo(0, 6000)")
    page.wait_for_timeout(200)
    words = """document.elementFromPoint(innerWidth / 2, innerHeight / 2).closest("section > *")
      .textContent.slice(0, 80)"""
    read, place = page.evaluate(words), page.evaluate("scrollY")
    page.locator(".right-next").evaluate("link => link.click()")
    page.wait_for_url("**/04_softmax.html")
    page.go_back()
    page.wait_for_timeout(500)
    assert page.evaluate("scrollY") == pytest.approx(place, abs=2)
    assert page.evaluate(words) == read


@pytest.mark.slow
def test_what_one_reads_stays_while_the_rest_is_laid_out(open_page: OpenPage) -> None:
    page = open_page(CHAPTER, width=412, height=823, moved=False).page
    # Two frames after a long way down, before the turns of the script.
    before = page.evaluate(
        """() => new Promise((done) => {
          const frames = (left) => requestAnimationFrame(() => left ? frames(left - 1) : look());
          const look = () => {
            // Between two blocks there is none.
            const block = (y) => document.elementFromPoint(200, y).closest("section > *");
            window.read = block(400) ?? block(440);
            done([window.read.getBoundingClientRect().top, document.documentElement.scrollHeight]);
          };
          addEventListener("scroll", (event) => event.stopImmediatePropagation(),
            { once: true, capture: true });
          scrollTo(0, 5200);
          frames(3);
        })"""
    )
    assert page.locator("html[data-laid-out]").count() == 0
    page.evaluate("dispatchEvent(new Event('pointermove'))")
    page.locator("html[data-laid-out]").wait_for(state="attached")
    page.wait_for_timeout(200)
    assert page.evaluate(HEIGHT) != before[1]
    assert page.evaluate("read.getBoundingClientRect().top") == pytest.approx(before[0], abs=2)


@pytest.mark.slow
def test_paper_has_every_block(open_page: OpenPage) -> None:
    page = open_page(CHAPTER, moved=False).page
    page.emulate_media(media="print")
    values = page.evaluate(
        """[...document.querySelectorAll(".book-later")].map(
          (block) => getComputedStyle(block).contentVisibility)"""
    )
    assert values and set(values) == {"visible"}


def test_the_first_screen_is_not_marked() -> None:
    layout = importlib.import_module("layout_as_needed")
    document = nodes.document(None, None)
    section = nodes.section()
    document += section
    blocks = [nodes.literal_block("", "x\n" * 30) for _ in range(5)]  # 600 pixels each
    section += blocks
    layout.mark_later(None, document, "index")
    assert [layout.MARK in block["classes"] for block in blocks] == [
        False,
        False,
        False,
        True,
        True,
    ]
