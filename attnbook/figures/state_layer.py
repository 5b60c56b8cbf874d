"""What a token does with a state: the figure of a page below chapter 21."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnbook.atlas import stored
from attnbook.figures.drawing import (
    WIDEST,
    Array,
    Drawing,
    arrow,
    axis_title,
    headline,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import END, START, decimal
from attnbook.figures.products import lowered

# A number's cell; the left edges of the state before the token, of the faded one, of what is
# written and of the new one; the tops of the boxes before, of the states, and from row to row.
WIDE, HIGH, LEFTS, BOXES, BOARD, PITCH = 37.0, 28.0, (2.0, 126.0, 252.0, 368.0), 32.0, 98.0, 34.0
# A state and a token with which each step has one decimal: a key and a query of length 1.
STATE = np.array([[2.0, 4.0], [6.0, 8.0]])
KEY, QUERY = np.array([0.6, 0.8]), np.array([0.8, 0.6])
VALUE, ALPHA, BETA = np.array([8.0, -0.6]), 0.5, 0.5
# What stands around the loop: the way to queries, keys and values, that to the rates, that from o.
BEFORE, RATES = ("xW", "convolution", "SiLU", "q, k: length 1"), "gate α, rate β"
AFTER = ("o", "÷ root mean square", "× SiLU(z)", "W_O", "y")


def _cells(left: float, top: float, entries: Array, shade: str, wide: float = WIDE) -> list[str]:
    """Return the numbers of a matrix, each in a cell."""
    body = []
    for (i, j), entry in np.ndenumerate(entries):
        x, y = left + wide * j, top + HIGH * i
        body += [rect(x, y, wide, HIGH, shade, fill_opacity="0.07", stroke=shade),
                 text(x + wide / 2, y + HIGH / 2 + 5, decimal(entry, 1), font_size=14, fill=shade,
                      font_weight="600")]
    return body


def _chain(left: float, top: float, names: Sequence[str], gap: float = 12.0) -> tuple[str, float]:
    """Return boxes with arrows between them, and where the last one ends."""
    body, x = "", left
    for place, name in enumerate(names):
        wide = 7.4 * len(name.replace("_", "")) + 12
        if place:
            body += arrow(x + 1, top + 13, x + gap - 1, top + 13, "ink")
            x += gap
        body += rect(x, top, wide, 26, "muted", fill_opacity="0.08", stroke="muted", rx=4)
        body += tag("text", lowered(name) if "_" in name else name, x=x + wide / 2, y=top + 17.5,
                    fill="ink", text_anchor="middle", font_size=13)
        x += wide
    return body, x


def _told(entries: Array) -> str:
    return "; ".join(", ".join(decimal(x, 1) for x in row) for row in np.atleast_2d(entries))


def state_layer() -> Drawing:
    """Return the drawing of what a token does in a layer of Qwen3-Next with a state.

    >>> state_layer().alt.split(". ")[4]
    '3, read: the query 0.8, 0.6 reads o = 5.0, 1.6'
    """
    found = next(model for model in stored() if model.model == "Qwen3-Next 80B").settings
    size = "{} × {}".format(*(found[f"linear_{name}_head_dim"] for name in ("key", "value")))
    faded = ALPHA * STATE
    reads = KEY @ faded
    change = BETA * (VALUE - reads)
    added = np.outer(KEY, change)
    written = faded + added
    output = QUERY @ written
    one, two, block, three = LEFTS
    middle, below, wide = BOARD + HIGH, BOARD + 2 * HIGH + 12, 2 * WIDE
    title = "The state fades, a 2 × 2 block is added, q reads"
    before, end = _chain(2, BOXES, BEFORE)
    rates, _ = _chain(end + 10, BOXES, [RATES])
    body = [headline(2, 18, title, "title"), before, rates]
    for left, name, entries, shade in (
        (one, "S", STATE, "ink"), (two, "αS", faded, "ink"),
        (block, "2 write: k × row", added, "value"), (three, "new S", written, "ink"),
    ):
        body += [text(left + wide / 2 - 16 * (left == block), BOARD - 9, name, font_weight="600"),
                 *_cells(left, BOARD, entries, shade)]
    # The key stands upright beside the block, whose columns it is multiplied into.
    body += [*_cells(block - 32, BOARD, KEY[:, None], "key", 30),
             arrow(one + wide + 4, middle, two - 4, middle, "ink", 2),
             text((one + wide + two) / 2, middle - 9, "1 fade", font_weight="600"),
             text((one + wide + two) / 2, middle + 19, f"× {ALPHA:g}"),
             text((two + wide + block - 32) / 2, middle + 6, "+", font_size=18, font_weight="600"),
             text((block + wide + three) / 2, middle + 6, "=", font_size=18, font_weight="600")]
    # Below the faded state: what its key reads of it, and the row that is written.
    for row, (words, entries, shade) in enumerate((
        ("k reads: kαS", reads, "ink"), ("the value: v", VALUE, "value"),
        ("v − kαS", VALUE - reads, "ink"),
    )):
        y = below + PITCH * row
        body += [text(two - 8, y + HIGH / 2 + 4.5, words, fill=shade, **END),
                 *_cells(two, y, entries[None], shade)]
    # The row stands below the block.
    start, last = two + wide + 4, below + 2 * PITCH + HIGH / 2
    across = block + wide / 2
    way = f"M{number(start)} {number(last)}H{number(across)}V{number(below + HIGH + 10)}"
    body += [*_cells(block, below, change[None], "value"),
             text(block - 6, below + HIGH / 2 + 4.5, "row", fill="value", font_weight="600", **END),
             tag("path", d=way, fill="none", stroke="ink", stroke_width=2),
             arrow(across, below + HIGH + 12, across, below + HIGH + 3, "ink", 2),
             text(start + 4, last - 8, f"× β = {BETA:g}", **START)]
    # Below the new state: what the query reads.
    body += [*_cells(three, below, QUERY[None], "query"),
             text(three - 6, below + HIGH / 2 + 4.5, "q", fill="query", font_weight="600", **END),
             *_cells(three, below + 2 * PITCH, output[None], "output"),
             text(three - 6, below + 2 * PITCH + HIGH / 2 + 4.5, "o", fill="output",
                  font_weight="600", **END),
             text(three + wide + 3, below + PITCH + HIGH / 2 + 5, "3 read: o = qS",
                  font_weight="600", **END)]
    foot = below + 3 * PITCH + 8
    after, _ = _chain(2, foot, AFTER)
    body += [after, axis_title(2, foot + 46, f"Here S is 2 × 2, in Qwen3-Next {size} in each head.",
                               **START)]
    alt = (f"{title}. Before the loop: {', '.join(BEFORE)}; {RATES}. "
           f"1, fade: S = {_told(STATE)} times α = {ALPHA:g} is αS = {_told(faded)}. "
           f"2, write: the key {_told(KEY)} reads {_told(reads)}, the value is {_told(VALUE)}, and "
           f"β = {BETA:g} times the difference is the row {_told(change)}: the key times this row, "
           f"{_told(added)}, is added: {_told(written)}. 3, read: the query {_told(QUERY)} reads "
           f"o = {_told(output)}. After the loop: {', '.join(AFTER)}. In Qwen3-Next S has {size} "
           f"numbers in each head.")
    return Drawing.from_elements("".join(body), WIDEST, foot + 54, alt)
