"""What a reader does with a page: search, change the theme, open the contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.conftest import OpenPage
from tests.site.test_links import read

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
    for _ in range(2):  # from the system's theme to light and on to dark, or from light at once
        if page.evaluate(PAPER) != DARK or page.evaluate("document.body.dataset.theme") != "dark":
            button.click()
    assert page.evaluate(PAPER) == DARK
    page.reload()
    assert page.evaluate(PAPER) == DARK


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


@pytest.mark.quick
@pytest.mark.parametrize("name", ["Solution", "Check"])
def test_a_folded_solution_and_its_check_open(open_page: OpenPage, name: str) -> None:
    page = open_page("chapters/01_lookup").page
    fold = page.locator("details.hide", has_text=f"{name} 1").first
    assert not fold.locator("pre").first.is_visible()
    summary = fold.locator("summary")
    assert str(summary.text_content()).strip() == f"{name} 1"
    summary.focus()
    page.keyboard.press("Enter")
    fold.locator("pre").first.wait_for()


def test_less_motion_is_respected(open_page: OpenPage) -> None:
    page = open_page("index", motion="reduce").page
    durations = page.evaluate(
        "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).transitionDuration)"
    )
    assert {part for each in durations for part in each.split(", ")} == {"0s"}


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
