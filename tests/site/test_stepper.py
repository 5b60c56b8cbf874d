"""Chapter 05's figure, moved by mouse and by keyboard, shows the numbers of `attnlib`."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnbook import examples
from attnlib.numpy_dense import softmax
from tests.site.conftest import OpenPage, as_number, shown

PAGE = "chapters/05_output"
STEPS = ["query", "dot product", "scale", "exponential", "weights", "shares", "output"]


def assert_shows(figure: Any, t: int, step: int) -> None:
    """The table, the sliders' values and the label belong to token t and this step."""
    tokens, X, W_Q, W_K, W_V = examples.running()
    raw_scores = X[t] @ W_Q @ (X @ W_K).T
    weights, values = softmax(raw_scores / np.sqrt(2)), X @ W_V
    exponentials = np.exp(raw_scores / np.sqrt(2))
    columns = {"raw": raw_scores, "score": raw_scores / np.sqrt(2), "exp": exponentials,
               "weight": weights}  # fmt: skip
    for since, (name, numbers) in enumerate(columns.items(), start=1):
        for j in range(3):
            words = shown(figure, f"{name}-{j}")
            assert words == "…" if step < since else abs(as_number(words) - numbers[j]) < 0.0051
    for j in range(3):
        share = shown(figure, f"share-{j}")
        assert share == "…" if step < 5 else share.startswith("(")
    output = shown(figure, "output")
    if step == 6:
        entries = [as_number(words) for words in output.removeprefix("o = ").strip("()").split(",")]
        assert np.allclose(entries, weights @ values, rtol=0, atol=0.0051)
    else:
        assert output == "o = …"
    assert figure.locator("output").all_text_contents() == [tokens[t], STEPS[step]]
    label = str(figure.locator("svg").get_attribute("aria-label"))
    assert label.startswith(f"Attention of “{tokens[t]}”, step {step + 1} of 7")


def test_keyboard_takes_the_figure_through_all_its_frames(open_page: OpenPage) -> None:
    visit = open_page(PAGE)
    figure = visit.page.locator("figure.attn-moving").first
    assert_shows(figure, 0, 0)  # before anything is computed
    token, step = figure.locator("input").all()
    token.focus()
    for t in range(3):
        step.focus()
        visit.page.keyboard.press("Home")
        for number in range(7):
            assert_shows(figure, t, number)
            visit.page.keyboard.press("ArrowRight")
        token.focus()
        visit.page.keyboard.press("ArrowRight")
    assert visit.problems == []


def test_mouse_moves_the_figure(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    figure = page.locator("figure.attn-moving").first
    token, step = figure.locator("input").all()
    for slider in (token, step):
        box = slider.bounding_box()
        assert box is not None
        slider.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    assert_shows(figure, 2, 6)


def test_table_holds_every_pair_of_tokens(open_page: OpenPage) -> None:
    page = open_page(PAGE).page
    rows = page.locator("figure.attn-moving:has(input[name=token]) tbody tr").all()
    tokens, X, W_Q, W_K, _ = examples.running()
    weights = softmax(X @ W_Q @ (X @ W_K).T / np.sqrt(2))
    for row, (i, j) in zip(rows, np.ndindex(3, 3), strict=True):
        cells = row.locator("td").all_text_contents()
        assert row.locator("th").text_content() == tokens[i] and cells[0] == tokens[j]
        assert cells[4] == f"{weights[i, j]:.3f}"
