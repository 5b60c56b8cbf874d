"""What a token does with a state: the figure of a page below chapter 21."""

from __future__ import annotations

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

# A number's cell; the top of the states; where the state stands before the token, faded, and
# written; how far left of it the key or query stands; and from row to row below it.
WIDE, HIGH, BOARD, LEFTS, BESIDE, PITCH = 40.0, 30.0, 62.0, (2.0, 184.0, 364.0), 34.0, 36.0
# A state and a token with which each step has one decimal: a key of length 1, and the same query.
STATE = np.array([[2.0, 4.0], [6.0, 8.0]])
KEY = QUERY = np.array([0.6, 0.8])
VALUE, ALPHA, BETA = np.array([5.0, 0.4]), 0.5, 0.5


def _cells(left: float, top: float, entries: Array, shade: str, wide: float = WIDE) -> list[str]:
    """Return the numbers of a matrix, each in a cell."""
    body = []
    for (i, j), entry in np.ndenumerate(entries):
        x, y = left + wide * j, top + HIGH * i
        body += [rect(x, y, wide, HIGH, shade, fill_opacity="0.07", stroke=shade),
                 text(x + wide / 2, y + HIGH / 2 + 5, decimal(entry, 1), font_size=14, fill=shade,
                      font_weight="600")]
    return body


def _told(entries: Array) -> str:
    return "; ".join(", ".join(decimal(x, 1) for x in row) for row in np.atleast_2d(entries))


def state_layer() -> Drawing:
    """Return the drawing of what a token does in a layer of Qwen3-Next with a state.

    >>> state_layer().alt.split(". ")[3]
    '3, read: the query 0.6, 0.8 reads o = 4.0, 2.4'
    """
    found = next(model for model in stored() if model.model == "Qwen3-Next 80B").settings
    size = "{} × {}".format(*(found[f"linear_{name}_head_dim"] for name in ("key", "value")))
    faded = ALPHA * STATE
    reads = KEY @ faded
    change = BETA * (VALUE - reads)
    written = faded + np.outer(KEY, change)
    output = QUERY @ written
    one, two, three = LEFTS
    middle, below = BOARD + HIGH, BOARD + 2 * HIGH + 14
    title = "A token lets the state fade, writes, and reads"
    body = [headline(2, 18, title, "title")]
    for left, name, entries in ((one, "S", STATE), (two, "αS", faded), (three, "new S", written)):
        body += [text(left + WIDE, BOARD - 9, name, font_weight="600"),
                 *_cells(left, BOARD, entries, "ink")]
    # Beside each row of a state stands the entry of the key or the query for it.
    for left, name, shade, entries in ((two, "k", "key", KEY), (three, "q", "query", QUERY)):
        body += [text(left - BESIDE + 15, BOARD - 9, name, fill=shade, font_weight="600"),
                 *_cells(left - BESIDE, BOARD, entries[:, None], shade, 30)]
    for start, end, step, how in ((one, two, "1 fade", f"α = {ALPHA:g}"),
                                  (two, three, "2 write", "")):
        left, right = start + 2 * WIDE, end - BESIDE
        body += [arrow(left + 5, middle, right - 4, middle, "ink", 2),
                 text((left + right) / 2, middle - 9, step, font_weight="600"),
                 text((left + right) / 2, middle + 19, how)]
    # Below the faded state: what its key reads of it, and what is written.
    for row, (words, entries, shade) in enumerate((
        ("k reads: kαS", reads, "ink"), ("the value: v", VALUE, "value"),
        ("the difference: v − kαS", VALUE - reads, "ink"), (f"× β = {BETA:g}", change, "ink"),
    )):
        y = below + PITCH * row
        body += [text(two - 10, y + HIGH / 2 + 4.5, words, fill=shade, **END),
                 *_cells(two, y, entries[None], shade)]
    # It goes along the key into the new state.
    start, bend, last = two + 2 * WIDE + 5, two + 2 * WIDE + 28, below + 3 * PITCH + HIGH / 2
    way = f"M{number(start)} {number(last)}H{number(bend)}V{number(middle)}"
    body += [tag("path", d=way, fill="none", stroke="ink", stroke_width=2),
             text(bend + 7, last, "× each entry of k,", **START),
             text(bend + 7, last + 17, "added to its row", **START)]
    # Below the new state: what the query reads.
    body += [*_cells(three, below, output[None], "output"),
             text(three + WIDE, below + HIGH + 18, "3 read", font_weight="600"),
             text(three + WIDE, below + HIGH + 36, "o = q · new S")]
    foot = below + 4 * PITCH
    after = f"After o: norm, × SiLU(z), {lowered('W_O')}"
    body += [axis_title(2, foot + 18, f"Here S is 2 × 2, in Qwen3-Next {size} in each head.",
                        **START),
             tag("text", after, x=2, y=foot + 38, fill="muted", font_size=13)]
    alt = (f"{title}. 1, fade: S = {_told(STATE)} times α = {ALPHA:g} is αS = {_told(faded)}. "
           f"2, write: the key {_told(KEY)} reads {_told(reads)}, the value is {_told(VALUE)}, and "
           f"β = {BETA:g} times the difference, {_told(change)}, times each entry of the key, is "
           f"added to its row: {_told(written)}. 3, read: the query {_told(QUERY)} reads "
           f"o = {_told(output)}. In Qwen3-Next S has {size} numbers in each head, and o goes "
           f"through a norm, times SiLU(z), and W_O.")
    return Drawing.from_elements("".join(body), WIDEST, foot + 46, alt)
