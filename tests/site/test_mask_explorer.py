"""Chapter 07's figure, moved by mouse and by keyboard, shows the masks of `attnlib`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlib import masks
from tests.site.conftest import OpenPage, parts, shown

# In `make test` the tests of use move every figure by one step.
pytestmark = pytest.mark.slow

PAGE = "chapters/07_masks"
N_QUERIES, N_KEYS, SIZES = 5, (3, 5, 8), (0, 1, 2, 3)
KINDS = (
    "none",
    "causal, top-left",
    "causal, bottom-right",
    "window",
    "padding",
    "causal and padding",
)
COUNTED = {  # in these the size plays a part, and stands in the rule
    "window": "i − {} ≤ j ≤ i",
    "padding": "j < {}",
    "causal and padding": "j ≤ i and j < {}",
}


def expected(kind: str, n_keys: int, n: int) -> np.ndarray:
    """The mask that the figure is to show."""
    everything = np.ones((N_QUERIES, n_keys), dtype=bool)
    if kind == "none":
        return everything
    if kind == "window":
        return masks.window(N_QUERIES, n_keys, n, 0)
    align = "bottom-right" if kind == "causal, bottom-right" else "top-left"
    mask = masks.causal(N_QUERIES, n_keys, align=align) if "causal" in kind else everything
    return mask & masks.padding([n], n_keys)[0, 0] if "padding" in kind else mask


def assert_shows(figure: Any, kind: str, n_keys: int, n: int) -> None:
    """The ticks, the counts, the controls' values and the label all belong to this mask."""
    mask = expected(kind, n_keys, n)
    wide = np.zeros((N_QUERIES, max(N_KEYS)), dtype=bool)
    wide[:, :n_keys] = mask
    cells = parts(figure, "cell-", "opacity")
    assert cells == {f"cell-{i}-{j}": str(int(wide[i, j])) for i, j in np.ndindex(wide.shape)}
    keys = parts(figure, "key-", "opacity")
    assert keys == {f"key-{j}": str(int(j < n_keys)) for j in range(max(N_KEYS))}
    empty = [str(i) for i, row in enumerate(mask) if not row.any()]
    for i, row in enumerate(mask):
        assert shown(figure, f"count-{i}") == (str(row.sum()) if row.any() else "empty")
    total = f"{mask.sum()} of {mask.size} pairs take part, {mask.mean():.0%}"
    flagged = f"empty rows: {', '.join(empty) or 'none'}"
    assert (shown(figure, "total"), shown(figure, "empty")) == (total, flagged)
    title = shown(figure, "title")
    assert title.startswith(f"{kind}: ") and title.endswith(", any size") == (kind not in COUNTED)
    assert kind not in COUNTED or title == f"{kind}: {COUNTED[kind].format(n)}"
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert f"{total}; {flagged}" in label and f"; {n_keys} keys." in label
    assert figure.locator("select option:checked").text_content() == kind
    assert figure.locator("output").all_text_contents() == [str(n_keys), str(n)]


def test_keyboard_takes_the_figure_through_all_its_frames(open_page: OpenPage) -> None:
    visit = open_page(PAGE)
    figure, keyboard = visit.page.locator("figure.attn-moving"), visit.page.keyboard
    assert_shows(figure, "window", 5, 2)
    [keys, size] = figure.locator("input").all()
    figure.locator("select").focus()
    keyboard.press("Home")
    for kind in KINDS:
        keys.focus()
        keyboard.press("Home")
        for n_keys in N_KEYS:
            size.focus()
            keyboard.press("Home")
            for n in SIZES:
                assert_shows(figure, kind, n_keys, n)
                keyboard.press("ArrowRight")
            keys.focus()
            keyboard.press("ArrowRight")
        figure.locator("select").focus()
        keyboard.press("ArrowDown")
    assert_shows(figure, "causal and padding", 8, 3)
    assert visit.problems == []


def test_mouse_moves_the_figure(open_page: OpenPage) -> None:
    figure = open_page(PAGE).page.locator("figure.attn-moving")
    figure.locator("select").select_option(label="causal, bottom-right")
    assert_shows(figure, "causal, bottom-right", 5, 2)
    keys = figure.locator("input").first
    box = keys.bounding_box()
    assert box is not None
    keys.click(position={"x": 3, "y": box["height"] / 2})
    assert_shows(figure, "causal, bottom-right", 3, 2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_tick_and_a_frame_are_drawn_not_colour_alone(open_page: OpenPage, theme: str) -> None:
    figure = open_page(PAGE, theme=theme).page.locator("figure.attn-moving")
    cell = figure.locator('[data-part="cell-0-0"]')
    strokes = cell.locator("path").evaluate("path => getComputedStyle(path).stroke")
    page = figure.evaluate("figure => getComputedStyle(figure).backgroundColor")
    assert strokes != page
    assert figure.locator('[data-part="cell-0-0"] path').count() == 1


def test_without_scripts_the_first_mask_and_the_table_stand(open_page: OpenPage) -> None:
    figure = open_page(PAGE, scripts=False).page.locator("figure.attn-moving")
    figure.scroll_into_view_if_needed()
    figure.locator("svg").wait_for()
    assert figure.locator("table").count() == 1


def test_table_holds_every_mask_once(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    rows = page.locator("figure.attn-moving tbody tr").all()
    settings = [
        (kind, n_keys, n)
        for kind in KINDS
        for n_keys in N_KEYS
        for n in (SIZES if kind in COUNTED else SIZES[:1])
    ]
    assert len(rows) == len(settings)
    for (kind, n_keys, n), row in zip(settings, rows, strict=True):
        mask = expected(kind, n_keys, n)
        cells = row.locator("th, td").all_text_contents()
        assert cells[:3] == [kind, str(n_keys), str(n) if kind in COUNTED else "any"]
        assert cells[8:10] == [f"{mask.sum()} of {mask.size}", f"{mask.mean():.0%}"]
        assert len(cells) == 11
