"""Chapter 03's figure, moved by mouse and by keyboard, shows the numbers of `attnlib`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from attnbook import experiments
from attnlib.numpy_dense import softmax
from tests.site.conftest import OpenPage, shown

# In `make test` the tests of use move every figure by one step.
pytestmark = pytest.mark.slow

D_KS = [2**power for power in range(11)]
# What one pixel of rounding in the file (one decimal) may hide, as a share of a bar's full height.
HALF_A_STEP = 0.05 / 140


@cache
def rules(d_k: int) -> dict[str, experiments.RuleStatistics]:
    return experiments.scaling_rules(d_k)


def bar_weights(figure: Any, column: int) -> np.ndarray:
    bars = [figure.locator(f'[data-part="bar-{column}-{j}"]') for j in range(8)]
    return np.array([float(bar.get_attribute("height")) / 140 for bar in bars])


def assert_shows(figure: Any, d_k: int) -> None:
    """The bars, the numbers under them, the slider's value and the label all belong to d_k."""
    means = rules(d_k)
    [raw_scores] = experiments.growing_scores(D_KS, seed=5)[[D_KS.index(d_k)]]
    for column, (rule, divisor) in enumerate(experiments.RULES.items()):
        weights = softmax(raw_scores / divisor(d_k))
        assert np.allclose(bar_weights(figure, column), weights, rtol=0, atol=1.01 * HALF_A_STEP)
        assert shown(figure, f"std-{column}") == f"{means[rule].score_std:.2f}"
        assert shown(figure, f"largest-{column}") == f"{means[rule].largest:.2f}"
        assert shown(figure, f"entropy-{column}") == f"{means[rule].entropy:.2f}"
    assert figure.locator("output").text_content() == str(d_k)
    assert figure.locator("input").get_attribute("aria-valuetext") == str(d_k)
    assert f"at d_k = {d_k};" in str(figure.locator("svg").get_attribute("aria-label"))


@pytest.mark.parametrize("name", ["chapters/03_scaling", "index"])
def test_keyboard_takes_the_figure_through_all_its_frames(open_page: OpenPage, name: str) -> None:
    visit = open_page(name)
    figure = visit.page.locator("figure.attn-moving")
    assert_shows(figure, 64)
    figure.locator("input").focus()
    visit.page.keyboard.press("Home")
    for d_k in D_KS:
        assert_shows(figure, d_k)
        visit.page.keyboard.press("ArrowRight")
    assert_shows(figure, 1024)
    assert visit.problems == []


def test_mouse_moves_the_figure(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling").page
    slider = page.locator("figure.attn-moving input")
    box = slider.bounding_box()
    assert box is not None
    middle = box["height"] / 2
    slider.click(position={"x": box["width"] - 3, "y": middle})
    assert_shows(page.locator("figure.attn-moving"), 1024)
    slider.click(position={"x": 3, "y": middle})
    assert_shows(page.locator("figure.attn-moving"), 1)


def test_table_holds_the_same_numbers(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling").page
    rows = page.locator("figure.attn-moving tbody tr").all()
    assert [row.locator("th").text_content() for row in rows] == [str(d_k) for d_k in D_KS]
    for d_k, row in zip(D_KS, rows, strict=True):
        expected = [
            f"{number:.2f}"
            for mean in rules(d_k).values()
            for number in (mean.score_std, mean.largest, mean.entropy)
        ]
        assert row.locator("td").all_text_contents() == expected
