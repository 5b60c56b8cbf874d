"""Predict, commit, reveal: what a guess opens, what stays when its reader is back, what prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.conftest import OpenPage, notebooks

NAME = "chapters/03_scaling"
FIRST = ".predicted >> nth=0"
EXPLAINED = "A hundred times as many questions make the lead only ten times as large"


def answer(page: Any, nth: int = 0) -> Any:
    return page.locator(".predicted").nth(nth).locator("details")


def commit(page: Any, guess: str, nth: int = 0) -> None:
    """Write a guess and press Enter."""
    place = page.locator(".predicted").nth(nth)
    place.scroll_into_view_if_needed()
    field = place.get_by_label("Your guess")
    field.fill(guess)
    field.press("Enter")


def hidden(page: Any, what: str = ".predicted .hll") -> int:
    """Return how many of these are not laid out at all; what is only far away counts as shown."""
    count: int = page.locator(what).evaluate_all(
        "all => all.filter(one => !one.checkVisibility({contentVisibilityAuto: false})).length"
    )
    return count


@pytest.mark.quick
def test_a_guess_opens_the_answer_and_stays_when_the_page_is_left(open_page: OpenPage) -> None:
    visit = open_page(NAME, guessing=True)
    page = visit.page
    told = page.get_by_text(EXPLAINED)
    assert not told.is_visible() and hidden(page) > 0
    for empty in ("", "  "):
        commit(page, empty)
        assert answer(page).get_attribute("open") is None
    field = page.locator(FIRST).get_by_label("Your guess")
    described = page.locator(f"#{field.get_attribute('aria-describedby')}").inner_text()
    assert "Predict" in described
    commit(page, "by 10 <b>at most</b>")
    assert told.is_visible() and answer(page).locator(".cell_output").is_visible()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.reload()
    page.locator(FIRST).scroll_into_view_if_needed()
    page.get_by_text("Your guess: by 10 <b>at most</b>").wait_for()
    assert told.is_visible()
    assert answer(page, 1).get_attribute("open") is None
    assert visit.problems == [] and visit.foreign == []


def test_who_asks_sees_the_answer_and_the_field_goes(open_page: OpenPage) -> None:
    page = open_page(NAME, guessing=True).page
    field = page.locator(FIRST).get_by_label("Your guess")
    page.locator(FIRST).scroll_into_view_if_needed()
    field.wait_for()
    answer(page).locator("summary").focus()
    page.keyboard.press("Enter")
    page.get_by_text(EXPLAINED).wait_for()
    assert not field.is_visible()
    page.reload()  # to look is no guess
    assert answer(page).get_attribute("open") is None


TOLD = """all => all.map(cell => {
  let next = cell.nextElementSibling;
  while (next?.matches('.tag_hide-cell, [class*="tag_fig-"]')) {
    if (next.querySelector('.attn-moving')) return null;
    if (!next.matches('.tag_hide-cell') && next.checkVisibility()) return next.className;
    next = next.nextElementSibling;
  }
  const list = next?.matches('p') && next.nextElementSibling?.matches('ul, ol')
    ? next.nextElementSibling : next;
  const open = [next, list].find(one => one?.matches('p, ul, ol') && one.checkVisibility());
  return open ? open.textContent : null;
}).filter(text => text)"""


@pytest.mark.parametrize(
    "name", ["01_lookup", "04_what_learning_sees", "09_rotary_in_practice", "10_number_formats",
             "12_rounding", "17_scale", "20_choosing_keys", "21_a_state", "21_hybrids"]
)
def test_what_explains_an_answer_waits_with_it(open_page: OpenPage, name: str) -> None:
    """Checks and a figure may stand between the answer and the paragraph, and a list behind it."""
    page = open_page(f"chapters/{name}", guessing=True).page
    assert page.locator(".predicted").count() > 0
    assert page.locator(".predicted").evaluate_all(TOLD) == []


def test_one_switch_shows_all_answers_of_the_site_and_is_remembered(open_page: OpenPage) -> None:
    page = open_page(NAME, guessing=True).page
    page.get_by_label("Show all answers at once").check()
    assert page.locator(".predicted details:not([open])").count() == 0
    assert hidden(page) == 0
    page.goto(page.url.replace("03_scaling", "07_masks"))
    assert page.locator(".predicted details:not([open])").count() == 0
    page.get_by_label("Show all answers at once").uncheck()
    page.reload()
    assert page.locator(".predicted details[open]").count() == 0


def test_guesses_can_be_deleted_all_at_once(open_page: OpenPage) -> None:
    page = open_page(NAME, guessing=True).page
    button = page.get_by_role("button", name="Delete my guesses")
    assert not button.is_visible()
    commit(page, "ten")
    page.goto(page.url.replace("03_scaling", "01_lookup"))
    assert page.locator(".predicted details[open]").count() == 0  # a guess is of its page alone
    button.click()
    assert not button.is_visible()
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes('guess'))") == []
    page.goto(page.url.replace("01_lookup", "03_scaling"))
    assert answer(page).get_attribute("open") is None


def test_a_link_to_a_figure_that_waits_opens_it(open_page: OpenPage) -> None:
    page = open_page("chapters/02_scores", guessing=True).page
    figure = page.locator("#fig-cosines")
    assert not figure.is_visible()
    page.locator("a.reference[href='#fig-cosines']").first.click()
    figure.wait_for()
    page.goto(page.url.replace("02_scores", "03_scaling").partition("#")[0])
    page.goto(page.url.replace("03_scaling", "02_scores") + "#fig-cosines")
    figure.wait_for()


def test_nothing_is_lost_where_a_browser_keeps_nothing(open_page: OpenPage) -> None:
    visit = open_page(NAME, guessing=True)
    page = visit.page
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('refused'); }})"
    )
    page.reload()
    visit.problems.clear()  # the theme's own script asks for it too
    commit(page, "ten")
    page.get_by_text(EXPLAINED).wait_for()
    page.get_by_text("Your guess: ten").wait_for()
    assert visit.problems == []


@pytest.mark.quick
@pytest.mark.parametrize("name", notebooks())
def test_without_scripts_and_on_paper_everything_is_there(open_page: OpenPage, name: str) -> None:
    bare = open_page(name, scripts=False, guessing=True).page
    printed = open_page(name, guessing=True).page
    printed.emulate_media(media="print")
    for page in (bare, printed):
        assert hidden(page, ".predicted .cell_output, .predicted + p") == 0
        assert hidden(page) == 0
        assert page.locator(".guess:visible, .book-guesses:visible").count() == 0
