"""The first page: a formula whose parts lead to the chapters, a figure at once, the ladder."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import OpenPage, chapters, pages
from tests.site.test_extensions import build
from tests.site.test_pages import contrast

# What a screen reader says of each part, in the order of the formula, and the chapter it leads to.
PARTS = [
    (r"Q, K and V: what a token asks for, offers, hands over ?, chapter 1", 1),
    (r"softmax: how scores become weights ?, chapter 4", 4),
    (r"Q K transposed: who is relevant to whom ?, chapter 2", 2),
    (r"the square root of d_k: why divide by a square root ?, chapter 3", 3),
    (r"V: what a token takes ?, chapter 5", 5),
]
WIDTHS = [1280, 992, 768, 600, 480, 360, 320]


def parts(page: Any) -> list[Any]:
    """The links of the formula, found by their names."""
    formula = page.get_by_role("group", name="The formula of attention")
    named = [formula.get_by_role("link", name=re.compile(f"^{name}$")) for name, _ in PARTS]
    assert formula.get_by_role("link").count() == len(named)
    return named


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(True, id="with scripts"),
        pytest.param(False, id="without", marks=pytest.mark.slow),
    ],
)
def test_each_part_of_the_formula_leads_to_its_chapter(
    open_page: OpenPage, address: str, scripts: bool
) -> None:
    page = open_page("index", scripts=scripts).page
    for number, (_, chapter) in enumerate(PARTS):
        parts(page)[number].click()
        page.wait_for_url(f"{address}/{chapters()[chapter - 1]}.html")
        assert page.locator("h1").inner_text().startswith(f"{chapter}. ")
        page.go_back()


def test_the_formula_is_said_in_words_and_hides_no_link(open_page: OpenPage) -> None:
    page = open_page("index").page
    said = page.get_by_role("group", name="The formula of attention").aria_snapshot()
    assert "softmax of Q K transposed, divided by the square root of d_k, times V" in said
    assert page.locator("[aria-hidden=true] :is(a, button, input, [tabindex])").count() == 0
    # Its signs are KaTeX's: five parts and four signs between them.
    assert page.locator(".formula-map [aria-hidden=true] .katex-html").count() == 9


def test_the_keyboard_goes_through_the_formula_and_shows_where_it_is(open_page: OpenPage) -> None:
    page = open_page("index").page
    links = parts(page)
    links[0].focus()
    page.keyboard.press("Shift+Tab")
    for link in links:
        letters = link.locator(".formula-seen")
        assert letters.evaluate("element => getComputedStyle(element).outlineStyle") == "none"
        page.keyboard.press("Tab")
        assert link.evaluate("element => element === document.activeElement")
        assert letters.evaluate("element => getComputedStyle(element).outline").endswith("2px")
    page.keyboard.press("Enter")
    page.wait_for_url("**/05_output.html")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_formula_fits_wherever_it_stands(open_page: OpenPage, theme: str) -> None:
    page = open_page("index", theme=theme).page
    pieces = ".formula-map :is(.formula-seen, .formula-label)"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        boxes = [piece.bounding_box() for piece in page.locator(pieces).all()]
        for number, one in enumerate(boxes):
            assert one["x"] >= 0 and one["x"] + one["width"] <= width
            for other in boxes[number + 1 :]:
                apart = max(
                    other["x"] - (one["x"] + one["width"]),
                    one["x"] - (other["x"] + other["width"]),
                    other["y"] - (one["y"] + one["height"]),
                    one["y"] - (other["y"] + other["height"]),
                )
                assert apart > -0.5, f"two pieces overlap at {width}"
        for link in page.locator(".formula-part").all():
            box = link.bounding_box()
            assert min(box["width"], box["height"]) >= 24
        # One line of letters: what stands beside the fraction is level with its bar.
        bar = page.locator(".formula-bar").bounding_box()
        for name in ("softmax", "values"):
            box = page.locator(f".formula-{name} .formula-seen").bounding_box()
            assert abs(box["y"] + box["height"] / 2 - bar["y"] - bar["height"] / 2) < 1
    colours = page.locator(".formula-words").first.evaluate(
        "element => [getComputedStyle(element).color, getComputedStyle(document.body).background]"
    )
    words, paper = (
        "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])
        for colour in colours
    )
    assert contrast(words, paper) >= 4.5


def test_the_first_figure_comes_at_once(open_page: OpenPage) -> None:
    page = open_page("index").page
    order = page.evaluate(
        """[...document.querySelectorAll('h1, .formula-map, figure, h2, table, ol.ladder')]
           .filter((part) => !part.closest('details'))
           .map((part) => part.className.split(' ').at(-1) || part.tagName)"""
    )
    assert order[:4] == ["H1", "formula-map", "H2", "attn-moving"]
    assert page.locator("figure.attn-moving input").count() == 1


def test_every_page_of_the_course_can_be_reached_from_the_first(open_page: OpenPage) -> None:
    article = open_page("index").page.locator("article")
    links = article.locator("a").evaluate_all("links => links.map(l => l.getAttribute('href'))")
    for number, name in enumerate(chapters(), start=1):
        assert f"{name}.html" in links
        named = article.locator("a", has_text=re.compile(rf"^{number}\. "))
        assert named.get_attribute("href") == f"{name}.html"
    assert {f"reference/{one}.html" for one in ("notation", "glossary", "errata", "sources")} <= {
        *links
    }
    assert set(links) - {f"{name}.html" for name in pages()} - {None} == {
        link for link in links if link.startswith(("https://", "#"))
    }


def test_rungs_lead_to_a_chapter_about_them(open_page: OpenPage, book: Path) -> None:
    ladder = open_page("index").page.locator("ol.ladder")
    rungs = ladder.locator("li").all()
    names = [rung.locator("code").inner_text() for rung in rungs]
    assert names[-1] == "numpy_tokenwise" and len(names) == len(set(names)) == 8
    for name, rung in zip(names, rungs, strict=True):
        there = find_spec(f"attnlib.{name}") is not None
        assert rung.locator("a").count() == there, name
        assert ("to come" in rung.inner_text()) != there
        if there:
            link = rung.locator("a")
            page = (book / str(link.get_attribute("href"))).read_text(encoding="utf-8")
            first = re.search(r"chapters? (\d+)", link.inner_text())
            assert first and f"/{int(first[1]):02}_" in str(link.get_attribute("href"))
            assert name in page, f"the chapter does not name {name}"


OPTIONS = "\n".join(
    f"   :{name}: index words" for name in ("inputs", "softmax", "scores", "divisor", "values")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f".. formula_map::\n{OPTIONS}".replace(":divisor: index", ":divisor: nowhere"), "a page"),
        (f".. formula_map::\n{OPTIONS}".replace("   :divisor: index words\n", ""), "missing: div"),
        (".. ladder::\n\n   numpy_dense | matrices | 77", "expected one page chapters/77_"),
        (".. ladder::\n\n   numpy_dense, matrices", "expected module | what it adds | chapters"),
    ],
)
def test_what_leads_nowhere_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    _, said = build(tmp_path, text, "landing", katex=False)
    assert message in said
