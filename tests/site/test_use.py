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


TERMS = [
    ("quadratic", "11. The wall: quadratic cost"),  # in a heading
    ("softplus", None),
    ("otherwise", "1. A soft dictionary"),  # in a formula
]
MORE_TERMS = [
    ("caffeinated", "1. A soft dictionary"),  # in the text
    ("log-sum-exp", "12. One pass: the online softmax"),
    ("tracemalloc", "12. One pass: the online softmax"),  # in code
    ("rotary", "9. Order: where is a token?"),
    ("balance", "14. One fused kernel"),  # in an output
]


@pytest.mark.parametrize(
    ("term", "page"), TERMS + [pytest.param(*more, marks=pytest.mark.slow) for more in MORE_TERMS]
)
def test_search_finds(open_page: OpenPage, term: str, page: str | None) -> None:
    visit = open_page(f"search?q={term}")
    said = re.compile("found|did not match")
    visit.page.locator("#search-results").filter(has_text=said).wait_for(timeout=10_000)
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


def test_the_theme_follows_the_system_until_it_is_chosen(open_page: OpenPage) -> None:
    page = open_page("index", theme="dark").page
    dark, light = (page.locator(f"html[data-theme={theme}]") for theme in ("dark", "light"))
    dark.wait_for(timeout=2000)
    page.emulate_media(color_scheme="light")
    light.wait_for(timeout=2000)
    page.locator(".theme-switch-button").first.click()
    dark.wait_for(timeout=2000)
    page.emulate_media(color_scheme="dark")
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(200)
    assert dark.count() == 1


def test_code_is_copied_as_it_was_written(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = page.locator(".cell_input pre", has_text="drinks =").first
    button = code.locator("xpath=../button")
    assert button.get_attribute("aria-label") == "Copy this code"
    code.hover()
    button.click()
    page.locator("[role=status]", has_text="Copied").wait_for(state="attached")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('drinks = ["herb tea"') and copied == code.inner_text().strip("\n")
    assert page.locator(".cell_output .copybtn").count() == 0


@pytest.mark.slow
def test_code_is_copied_where_there_is_no_clipboard(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup").page
    page.evaluate(
        """() => {
          Object.defineProperty(navigator, "clipboard", { value: undefined });
          document.addEventListener("copy", () => { window.copied = String(getSelection())
            || document.activeElement.value; });
        }"""
    )
    code = page.locator(".cell_input pre", has_text="drinks =").first
    code.hover()
    code.locator("xpath=../button").click()
    page.locator("[role=status]", has_text="Copied").wait_for(state="attached")
    assert page.evaluate("window.copied").startswith("drinks =")


def test_the_search_field_closes_by_a_click_outside_and_by_escape(open_page: OpenPage) -> None:
    page = open_page("index").page
    dialog = page.locator("#pst-search-dialog")
    page.locator(".search-button__button").first.click()
    assert dialog.is_visible()
    page.mouse.click(5, 5)
    assert not dialog.is_visible()
    page.keyboard.press("Control+k")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


@pytest.mark.slow
def test_the_contents_of_a_page_open_on_a_phone_and_close(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup", width=360, height=780).page
    button = page.locator(".secondary-toggle")
    entry = page.locator("#pst-page-toc-nav a").nth(1)
    button.click()
    entry.wait_for(state="visible")
    page.wait_for_timeout(400)  # the drawer slides in
    page.keyboard.press("Escape")
    entry.wait_for(state="hidden")
    assert button.evaluate("button => button === document.activeElement")
    button.click()
    page.wait_for_timeout(400)
    entry.click()
    entry.wait_for(state="hidden")
    assert page.evaluate("location.hash") == entry.get_attribute("href")


@pytest.mark.slow
def test_the_contents_of_the_book_fold_away_on_a_desktop(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup").page
    contents = page.locator("#pst-primary-sidebar")
    assert contents.is_visible()
    page.locator(".primary-toggle").click()
    contents.wait_for(state="hidden")
    page.locator(".primary-toggle").click()
    contents.wait_for(state="visible")


@pytest.mark.slow
def test_the_contents_show_where_one_is(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling").page
    entries = page.locator("#pst-page-toc-nav a")
    third = str(entries.nth(2).get_attribute("href"))
    page.evaluate("id => document.querySelector(id).scrollIntoView()", third)
    page.locator(f"#pst-page-toc-nav a[href='{third}'][aria-current='true']").wait_for()
    assert page.locator("#pst-page-toc-nav a[aria-current]").count() == 1
    page.locator("body.scrolled").wait_for()
    # A long way down the list, the chapter is in view in the contents of the book.
    page = open_page("chapters/14_fused_kernel", height=500).page
    active = page.locator(".bd-docs-nav .active").last.bounding_box()
    assert active is not None and 0 < active["y"] < 500


@pytest.mark.slow
def test_words_that_were_searched_for_are_marked_until_escape(open_page: OpenPage) -> None:
    page = open_page("search?q=softmax").page
    result = page.locator("#search-results ul.search li a", has_text="From scores to weights")
    result.first.click()
    page.wait_for_url("**/04_softmax.html*")
    marked = "CSS.highlights.get('searched')?.size ?? 0"
    assert page.evaluate(marked) > 10
    page.keyboard.press("Escape")
    assert page.evaluate(marked) == 0
    page.reload()
    assert page.evaluate(marked) == 0
