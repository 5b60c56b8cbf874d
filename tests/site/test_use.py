"""What a reader does with a page: move a figure, search, change the theme, open the contents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import OpenPage, pages

MOVING = "figure.attn-moving"


def has_moving_figure(book: Path, name: str) -> bool:
    """Whether a built page holds a figure that moves."""
    return "attn-moving" in (book / f"{name}.html").read_text(encoding="utf-8")


def test_some_page_has_a_moving_figure(book: Path) -> None:
    assert [name for name in pages() if has_moving_figure(book, name)]


def press(page: Any, slider: Any) -> None:
    """One step to the right, or to the left where the slider stands at its end."""
    slider.focus()
    at_end = slider.evaluate("input => Number(input.value) >= Number(input.max)")
    page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")


@pytest.mark.parametrize("name", pages())
def test_moving_figures_follow_the_keyboard(book: Path, open_page: OpenPage, name: str) -> None:
    if not has_moving_figure(book, name):
        return  # most pages have none; that some page has one is asserted above
    visit = open_page(name)
    for figure in visit.page.locator(MOVING).all():
        svg = figure.locator("svg").first
        sliders = figure.locator("input[type=range]").all()
        assert sliders
        for slider in sliders:
            assert slider.evaluate("input => input.labels[0]?.innerText.trim()")
            drawn = svg.evaluate("svg => svg.innerHTML")
            spoken = slider.get_attribute("aria-valuetext")
            assert spoken
            press(visit.page, slider)
            assert svg.evaluate("svg => svg.innerHTML") != drawn
            assert slider.get_attribute("aria-valuetext") not in (None, "", spoken)
            assert len((svg.get_attribute("aria-label") or "").split()) >= 5
    assert visit.problems == []


@pytest.mark.parametrize("name", pages())
def test_moving_figures_have_a_table(book: Path, open_page: OpenPage, name: str) -> None:
    if not has_moving_figure(book, name):
        return
    for figure in open_page(name).page.locator(MOVING).all():
        figure.locator("summary").first.click()
        table = figure.locator("table").first
        assert table.is_visible()
        assert table.locator("tbody tr").count() >= 2
        assert (
            table.locator("thead th").count()
            == table.locator("tbody tr").first.locator("th, td").count()
        )


@pytest.mark.parametrize("name", pages())
def test_without_scripts_a_figure_stands_still(book: Path, open_page: OpenPage, name: str) -> None:
    if not has_moving_figure(book, name):
        return
    visit = open_page(name, scripts=False)
    for figure in visit.page.locator(MOVING).all():
        assert figure.locator("svg").first.is_visible()
        for control in figure.locator("input, button, select").all():
            assert not control.is_visible()
        figure.locator("summary").first.click()
        assert figure.locator("table").first.is_visible()


def test_without_scripts_no_button_is_dead(open_page: OpenPage) -> None:
    page = open_page("index", scripts=False).page
    for dead in (".theme-switch-button", ".search-button__button", "[data-book-action]"):
        for button in page.locator(dead).all():
            assert not button.is_visible(), dead


def test_the_theme_can_be_chosen_and_stays(open_page: OpenPage) -> None:
    page = open_page("index").page
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "light"
    for _ in range(3):
        page.locator(".theme-switch-button").first.click()
        if page.evaluate(theme) == "dark":
            break
    assert page.evaluate(theme) == "dark"
    page.reload()
    assert page.evaluate(theme) == "dark"


def test_search_works_from_this_host_alone(open_page: OpenPage) -> None:
    visit = open_page("search?q=softmax")
    visit.page.locator("#search-results ul.search li a").first.wait_for(timeout=5000)
    assert visit.foreign == []
    assert visit.problems == []


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("quadratic", "11. The wall: quadratic cost"),  # in a heading
        ("caffeinated", "1. A soft dictionary"),  # in the text
        ("softplus", None),
        ("log-sum-exp", "12. One pass: the online softmax"),
        ("tracemalloc", "12. One pass: the online softmax"),  # in code
        ("rotary", "9. Order: where is a token?"),
        ("balance", "14. One fused kernel"),  # in an output
        ("otherwise", "1. A soft dictionary"),  # in a formula
    ],
)
def test_search_finds(open_page: OpenPage, term: str, page: str | None) -> None:
    visit = open_page(f"search?q={term}")
    visit.page.wait_for_function(
        "/(found|did not match)/.test(document.querySelector('#search-results')?.innerText)"
    )
    found = visit.page.locator("#search-results ul.search > li > a").all_inner_texts()
    assert page in found if page else found == []
    assert visit.problems == [] and visit.foreign == []


def test_results_show_formulas_once_and_without_tex(open_page: OpenPage) -> None:
    page = open_page("search?q=softmax").page
    results = page.locator("#search-results p.context")
    results.nth(10).wait_for(timeout=10_000)
    words = " ".join(results.all_inner_texts())
    assert "V=XWV,A=softmax" in re.sub(r"[\s\u2061]", "", words)
    for tex in ("\\", "^", "{", "dkd"):
        assert tex not in words, tex
    assert "root of dk before" in words
    assert "Skip to main" not in words and "On this page" not in words


def test_the_index_has_no_tex(book: Path) -> None:
    index = (book / "searchindex.js").read_text(encoding="utf-8")
    terms = index[index.index("terms:") if "terms:" in index else index.index('"terms"') :]
    for command in ("operatornam", "mathrm", "mathsf", "qquad"):
        assert f'"{command}"' not in terms, command
    assert '"softmax"' in terms or "softmax:" in terms


def test_the_search_field_opens_by_keyboard(open_page: OpenPage) -> None:
    page = open_page("index").page
    page.keyboard.press("Control+k")
    field = page.locator("#pst-search-dialog input[type=search]")
    assert field.is_visible()
    field.fill("softmax")
    field.press("Enter")
    page.wait_for_url("**/search.html?q=softmax")


def test_the_contents_open_on_a_phone(open_page: OpenPage) -> None:
    page = open_page("index", width=360, height=780).page
    entry = page.locator(".bd-docs-nav a", has_text="Notation").first
    page.locator(".primary-toggle").first.click()
    entry.wait_for(state="visible")
    page.wait_for_timeout(400)  # the drawer slides in
    entry.click()
    page.wait_for_url("**/reference/notation.html")


def test_a_folded_solution_opens(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup").page
    solution = page.locator("details.hide", has_text="Solution").first
    assert not solution.locator("pre").first.is_visible()
    summary = solution.locator("summary")
    assert summary.inner_text().strip().startswith("Solution")
    summary.focus()
    page.keyboard.press("Enter")
    assert solution.locator("pre").first.is_visible()


def test_less_motion_is_respected(open_page: OpenPage) -> None:
    page = open_page("index", motion="reduce").page
    durations = page.evaluate(
        "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).transitionDuration)"
    )
    assert {part for each in durations for part in each.split(", ")} == {"0s"}
