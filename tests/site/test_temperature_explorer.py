"""Chapter 04's figure, moved by mouse and by keyboard, shows the numbers of `attnlib`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from attnbook import examples
from attnlib.numpy_dense import attention_scores, softmax
from tests.site.conftest import OpenPage, as_number, shown

# In `make test` the tests of use move every figure by one step.
pytestmark = pytest.mark.slow

PAGE = "chapters/04_softmax"
POWERS = range(-4, 6)


def row() -> np.ndarray:
    tokens, X, W_Q, W_K, _ = examples.running()
    return attention_scores(X @ W_Q, X @ W_K)[tokens.index("the")]


def assert_shows(figure: Any, power: int) -> None:
    """The bars, their numbers, the slider's value and the label belong to τ = 2 to this power."""
    weights = softmax(row() / 2.0**power)
    for j, weight in enumerate(weights):
        height = figure.locator(f'[data-part="bar-{j}"]').get_attribute("height")
        assert abs(float(height) / 144 - weight) < 1.01 * 0.05 / 144
        assert shown(figure, f"weight-{j}") == f"{weight:.2f}"
        assert abs(as_number(shown(figure, f"score-{j}")) - row()[j] / 2.0**power) < 0.0051
    positive = weights[weights > 0]
    keys = f"{np.exp(-(positive * np.log(positive)).sum()):.2f}"
    assert shown(figure, "keys") == f"effective number of keys {keys}"
    name = str(Fraction(2) ** power)
    assert figure.locator("output").text_content() == name
    assert figure.locator("input").get_attribute("aria-valuetext") == name
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert label.startswith(f"Temperature {name}: weights the ")


def test_keyboard_takes_the_figure_through_all_its_frames(open_page: OpenPage) -> None:
    visit = open_page(PAGE)
    figure = visit.page.locator("figure.attn-moving")
    assert_shows(figure, 0)
    figure.locator("input").focus()
    visit.page.keyboard.press("Home")
    for power in POWERS:
        assert_shows(figure, power)
        visit.page.keyboard.press("ArrowRight")
    assert_shows(figure, 5)
    assert visit.problems == []


def test_mouse_moves_the_figure(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    slider = page.locator("figure.attn-moving input")
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    assert_shows(page.locator("figure.attn-moving"), 5)
    slider.click(position={"x": 3, "y": box["height"] / 2})
    assert_shows(page.locator("figure.attn-moving"), -4)


def test_table_holds_the_same_numbers(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    rows = page.locator("figure.attn-moving tbody tr").all()
    names = [str(Fraction(2) ** power) for power in POWERS]
    assert [line.locator("th").text_content() for line in rows] == names
    for power, line in zip(POWERS, rows, strict=True):
        expected = [f"{weight:.2f}" for weight in softmax(row() / 2.0**power)]
        assert line.locator("td").all_text_contents()[:3] == expected
