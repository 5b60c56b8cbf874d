"""The figures of chapters 01 and 02, moved by keyboard, show the numbers of `attnlib`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlib.numpy_dense import softmax
from tests.site.conftest import OpenPage, as_number, shown

# In `make test` the tests of use move every figure by one step.
pytestmark = pytest.mark.slow

KEYS = np.array([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])
PRICES = np.array([2.0, 4.0, 3.0])


def turned(degrees: int, length: float) -> np.ndarray:
    return length * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def assert_shows_query(figure: Any, degrees: int) -> None:
    """Scores, weights, price, slider and label belong to a query at this angle."""
    scores = KEYS @ turned(degrees, np.sqrt(2))
    weights = softmax(scores)
    for j in range(3):
        assert abs(as_number(shown(figure, f"score-{j}")) - scores[j]) < 0.0051
        assert shown(figure, f"weight-{j}") == f"{weights[j]:.2f}"
    assert shown(figure, "answer") == f"price {weights @ PRICES:.2f}"
    assert figure.locator("output").text_content() == f"{degrees}°"
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert label.startswith(f"Query at {degrees}°: price {weights @ PRICES:.2f};")


def assert_shows_pair(figure: Any, of_q: int, of_k: int) -> None:
    """The product, the sliders and the label belong to these two angles."""
    product = turned(of_q, 2.0) @ turned(of_k, 1.5)
    assert abs(as_number(shown(figure, "product").removeprefix("q·k = ")) - product) < 0.0051
    assert figure.locator("output").all_text_contents() == [f"{of_q}°", f"{of_k}°"]
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert label.startswith(f"q at {of_q}°, k at {of_k}°: angle ")


def test_keyboard_turns_the_query_all_the_way_round(open_page: OpenPage) -> None:
    visit = open_page("chapters/01_lookup")
    figure = visit.page.locator("figure.attn-moving")
    assert_shows_query(figure, 0)
    figure.locator("input").focus()
    for degrees in range(0, 360, 15):
        assert_shows_query(figure, degrees)
        visit.page.keyboard.press("ArrowRight")
    assert visit.problems == []


def test_keyboard_turns_both_vectors(open_page: OpenPage) -> None:
    visit = open_page("chapters/02_scores")
    figure = visit.page.locator("figure.attn-moving")
    assert_shows_pair(figure, 0, 60)
    of_q, of_k = figure.locator("input").all()
    of_k.press("Home")
    for angle in range(0, 360, 30):
        assert_shows_pair(figure, angle, angle)
        of_q.press("ArrowRight")
        of_k.press("ArrowRight")
    assert visit.problems == []
