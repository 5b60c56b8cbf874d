"""Chapter 12's figure, moved by mouse and by keyboard, shows the states of the keys read so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.site.conftest import OpenPage, as_number, parts, shown

# In `make test` the tests of use move every figure by one step.
pytestmark = pytest.mark.slow

PAGE = "chapters/12_online_softmax"
KINDS = ("all keys", "causal")
BLOCKS = ([0, 1], [2, 3], [4])
TILES = [(rows, keys) for rows in BLOCKS for keys in BLOCKS]
COLUMNS = ("m", "ℓ", "õ", "o")


def numbers() -> tuple[np.ndarray, np.ndarray]:
    """The scores and values that the chapter draws."""
    draw = np.random.default_rng(5)
    return draw.integers(-4, 5, (5, 5)) / 2, draw.integers(-2, 4, 5)


def assert_shows(figure: Any, kind: str, step: int) -> None:
    """The rows, the scores held, the marks, the controls' values and the label fit this step."""
    scores, value = numbers()
    part = np.tri(5, dtype=bool) if kind == "causal" else np.ones((5, 5), dtype=bool)
    read = np.zeros((5, 5), dtype=bool)
    for rows, keys in TILES[:step]:
        read[np.ix_(rows, keys)] = True
    read &= part
    for i in range(5):
        seen, left = scores[i, read[i]], (part[i] & ~read[i]).any()
        row_max = seen.max(initial=-np.inf)
        e = np.exp(seen - row_max)
        words = [shown(figure, f"{name}-{i}") for name in COLUMNS]
        found = [as_number(word) for word in words[:3]]
        assert np.allclose(found, [row_max, e.sum(), e @ value[read[i]]], rtol=0, atol=0.0051)
        assert (words[3] == "…") == bool(left)
        if not left:
            assert abs(as_number(words[3]) - e @ value[read[i]] / e.sum()) < 0.0051
    held = {name: words for name, words in parts(figure, "score-").items() if words}
    rows, keys = TILES[step - 1] if step else ([], [])
    if not part[np.ix_(rows, keys)].any():
        rows = []
    assert {
        f"score-{i}-{j}": scores[i, j] if part[i, j] else -np.inf for i in rows for j in keys
    } == {name: as_number(words) for name, words in held.items()}
    for number, (a, b) in enumerate(np.ndindex(3, 3), start=1):
        skipped = not part[np.ix_(BLOCKS[a], BLOCKS[b])].any()
        for name, there in (("done", number < step and not skipped),
                            ("skip", number <= step and skipped)):  # fmt: skip
            mark = figure.locator(f'[data-part="{name}-{a}-{b}"]')
            assert mark.get_attribute("opacity") == str(int(there))
    assert figure.locator("select option:checked").text_content() == kind
    assert figure.locator("output").text_content() == (str(step) if step else "start")
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert label.startswith(f"{kind}, tile {step} of 9" if step else f"{kind}: before the first")
    assert label.startswith(shown(figure, "title"))


def test_keyboard_takes_the_walk_through_all_its_steps(open_page: OpenPage) -> None:
    visit = open_page(PAGE)
    figure, keyboard = visit.page.locator("figure.attn-moving"), visit.page.keyboard
    assert_shows(figure, "all keys", 9)  # complete where no script runs
    for kind in KINDS:
        figure.locator("input").focus()
        keyboard.press("Home")
        for step in range(10):
            assert_shows(figure, kind, step)
            keyboard.press("ArrowRight")
        figure.locator("select").focus()
        keyboard.press("ArrowDown")
    assert_shows(figure, "causal", 9)
    assert visit.problems == []


def test_mouse_moves_the_walk(open_page: OpenPage) -> None:
    figure = open_page(PAGE).page.locator("figure.attn-moving")
    figure.locator("select").select_option(label="causal")
    assert_shows(figure, "causal", 9)
    slider = figure.locator("input")
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": 3, "y": box["height"] / 2})
    assert_shows(figure, "causal", 0)


def test_without_scripts_the_last_step_and_the_table_stand(open_page: OpenPage) -> None:
    figure = open_page(PAGE, scripts=False).page.locator("figure.attn-moving")
    figure.scroll_into_view_if_needed()
    figure.locator("svg").wait_for()
    assert figure.locator("table").count() == 1


def test_table_holds_every_row_of_every_tile(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    rows = page.locator("figure.attn-moving tbody tr").all()
    expected = [
        (kind, number, i)
        for kind in KINDS
        for number, (queries, _) in enumerate(TILES, start=1)
        for i in queries
    ]
    assert len(rows) == len(expected)
    for row, (kind, number, i) in zip(rows, expected, strict=True):
        cells = row.locator("th, td").all_text_contents()
        assert cells[:3] == [kind, str(number), str(i)] and len(cells) == 8
