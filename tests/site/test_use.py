"""What a reader does with a page: move a figure, search, change the theme, open the contents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import OpenPage, pages
from tests.site.test_links import read

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
            assert slider.evaluate("input => input.labels[0]?.textContent.trim()")
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
        table.wait_for()
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
        figure.scroll_into_view_if_needed()
        figure.locator("svg").first.wait_for()
        for control in figure.locator("input, button, select").all():
            assert not control.is_visible()
        figure.locator("summary").first.click()
        figure.locator("table").first.wait_for()


PAPER = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 30)"


def test_the_theme_follows_the_system_until_it_is_chosen_and_then_stays(
    open_page: OpenPage,
) -> None:
    page = open_page("index", theme="dark").page
    assert page.evaluate(PAPER) == DARK
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{PAPER} === '{LIGHT}'")
    button = page.locator(".theme-toggle:visible")
    while page.evaluate("document.body.dataset.theme") != "dark":
        button.click()
    assert page.evaluate(PAPER) == DARK
    page.reload()
    assert page.evaluate(PAPER) == DARK


def test_search_works_from_this_host_alone(open_page: OpenPage) -> None:
    visit = open_page("search?q=softmax")
    visit.page.locator("#search-results ul.search li a").first.wait_for(timeout=10_000)
    assert visit.foreign == []
    assert visit.problems == []


TERMS = [
    ("quadratic", "11. The wall: quadratic cost"),  # in a heading
    ("softplus", None),
    ("otherwise", "1. A soft dictionary"),  # in a formula
    ("caffeinated", "1. A soft dictionary"),  # in the text
    ("log-sum-exp", "12. One pass: the online softmax"),
    ("tracemalloc", "12. One pass: the online softmax"),  # in code
    ("rotary", "9. Order: where is a token?"),
    ("balance", "14. One fused kernel"),  # in an output
]


@pytest.mark.parametrize(("term", "page"), TERMS)
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
    assert "4hT(2dk+dv)" in re.sub(r"[\s\u2061]", "", words)
    for tex in ("\\", "^", "{", "dkd"):
        assert tex not in words, tex
    assert "Skip to content" not in words and "On this page" not in words


def test_the_index_has_no_tex(book: Path) -> None:
    index = (book / "searchindex.js").read_text(encoding="utf-8")
    terms = index[index.index("terms:") if "terms:" in index else index.index('"terms"') :]
    for command in ("operatornam", "mathrm", "mathsf", "qquad"):
        assert f'"{command}"' not in terms, command
    assert '"softmax"' in terms or "softmax:" in terms


def test_the_search_field_is_on_every_page(open_page: OpenPage) -> None:
    page = open_page("index").page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=softmax*")
    assert page.locator(".book-search input").input_value() == "softmax"


@pytest.mark.parametrize(
    ("opener", "drawer", "entry", "goal"),
    [
        ("#__navigation", ".sidebar-drawer", "Notation", "**/reference/notation.html"),
        ("#__toc", ".toc-drawer", "For whom", "**/index.html#for-whom"),
    ],
)
def test_what_a_phone_folds_away_opens_by_touch_and_by_keyboard(
    open_page: OpenPage, opener: str, drawer: str, entry: str, goal: str
) -> None:
    page = open_page("index", width=360, height=780).page
    link = page.locator(f"{drawer} a", has_text=entry)
    assert not link.is_visible()
    page.locator(opener).focus()
    page.keyboard.press("Space")
    link.wait_for(state="visible")
    page.keyboard.press("Space")
    link.wait_for(state="hidden")
    page.locator(f".mobile-header label[for={opener[1:]}]").click()
    link.click()
    page.wait_for_url(goal)


def test_a_folded_solution_opens(open_page: OpenPage) -> None:
    page = open_page("chapters/01_lookup").page
    solution = page.locator("details.hide", has_text="Solution").first
    assert not solution.locator("pre").first.is_visible()
    summary = solution.locator("summary")
    assert str(summary.text_content()).strip().startswith("Solution")
    summary.focus()
    page.keyboard.press("Enter")
    solution.locator("pre").first.wait_for()


def test_less_motion_is_respected(open_page: OpenPage) -> None:
    page = open_page("index", motion="reduce").page
    durations = page.evaluate(
        "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).transitionDuration)"
    )
    assert {part for each in durations for part in each.split(", ")} == {"0s"}


def test_code_is_copied_as_it_was_written(open_page: OpenPage) -> None:
    visit = open_page("chapters/01_lookup")
    page = visit.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = page.locator(".cell_input pre", has_text="drinks =").first
    code.hover()
    button = code.locator("xpath=../button")
    button.click()
    button.locator("xpath=self::*[contains(@class, 'success')]").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('drinks = ["herb tea"')
    assert copied.strip() == code.inner_text().strip()
    assert page.locator(".cell_output .copybtn").count() == 0
    assert visit.problems == []


def test_the_contents_show_where_one_is(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling", width=1440).page
    link = page.locator(".toc-tree a[href^='#']").nth(3)
    link.click()
    page.locator(".toc-tree .scroll-current", has_text=link.inner_text()).wait_for()


def test_a_link_to_an_equation_leads_to_it(book: Path, open_page: OpenPage) -> None:
    # What is far down is not laid out at first, so the place has to be found all the same.
    ids = read(book / "chapters" / "03_scaling.html").ids
    last = [one for one in ids if one.startswith("equation-")][-1]
    page = open_page(f"chapters/03_scaling?at#{last}", motion="reduce").page
    page.wait_for_function(
        """id => {
          const box = document.getElementById(id).getBoundingClientRect();
          return box.top >= 0 && box.bottom <= innerHeight;
        }""",
        arg=last,
    )


def test_code_that_scrolls_is_a_stop_for_the_tab_key(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling", width=360).page
    code = page.locator(".cell_input pre:not(details pre)")
    code.nth(1).scroll_into_view_if_needed()
    wide = page.locator(".cell_input pre[tabindex='0']").first
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")
