"""What the comparison of drawings notices, and what it leaves to the eye that cannot see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import differences, without

from attnbook import figures

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" aria-label="two 2.00"><line x1="1" y1="2.5" x2="3"/>'
    '<path id="own-1" d="M 1 2 \nL3.25-4z" style="stroke: #1565b0" fill-opacity="0.138"/>'
    "<text>0.50</text></svg>"
)
NEWER = Path(__file__).parents[1] / "newer_versions.cfg"


@pytest.mark.parametrize(
    ("old", "new"), [("2.5", "2.51"), ("3.25-4z", "3.26-3.99z"), ("0.138", "0.137")]
)
def test_what_no_eye_can_see_is_no_difference(old: str, new: str) -> None:
    assert differences(SVG.replace(old, new), SVG) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('y1="2.5"', 'y1="2.7"', "line, y1: drawn 2.7, stored 2.5"),
        ("M 1 2", "M 1 5", "path, d: drawn M 1 5"),
        ("L3.25", "H3.25", "path, d: drawn"),
        ("0.138", "0.238", "path, fill-opacity: drawn 0.238, stored 0.138"),
        ("1565b0", "1565b1", "path, style: drawn stroke: #1565b1"),
        (">0.50<", ">0.51<", "text: drawn '0.51', stored '0.50'"),
        (' y1="2.5"', "", "line, y1: drawn None, stored 2.5"),
        ("<line", "<rect", "line: drawn rect of 0 elements"),
        ("<text>0.50</text>", "", "svg: drawn svg of 2 elements: line path, stored svg of 3"),
    ],
)
def test_what_can_be_seen_is_a_difference(old: str, new: str, said: str) -> None:
    [found] = differences(SVG.replace(old, new), SVG)
    assert found.startswith(said)


def chart(label: str) -> str:
    titles = {"x_title": "x", "y_title": "y", "alt": "A line that rises."}
    return figures.lines([1, 2, 4], {label: [1.0, 2.0, 3.0]}, **titles)._repr_html_()


def test_on_a_newer_matplotlib_our_words_are_compared_and_its_ticks_are_not() -> None:
    stored = chart("one")
    moved = stored.replace(">1.50<", ">1.5<").replace(' y="', ' y="1')
    assert moved != stored and without(None, moved) != without(None, stored)
    assert without(NEWER, moved) == without(NEWER, stored)
    assert "one from 1 at 1 to 3 at 4." in without(NEWER, stored)
    assert without(NEWER, chart("other")) != without(NEWER, stored)


def test_on_a_newer_matplotlib_drawings_of_our_own_are_compared_whole() -> None:
    drawing = figures.matrix_equation(("X", [[1.0, 2.0]]), "≠", ("Y", [[1.0]]))
    for drawn in (drawing._repr_html_(), drawing.plain_svg().replace("><", ">\n<")):
        assert without(NEWER, drawn) == drawn
