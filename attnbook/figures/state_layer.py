"""What a token and a block of tokens do with a state: two figures of a page below chapter 21."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnbook.atlas import stored
from attnbook.figures.drawing import (
    WIDEST,
    Array,
    Drawing,
    arrow,
    axis_title,
    headline,
    line,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import END, HALO, START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnbook.figures.products import lowered

# A number's cell. The state stands at the left and moves down: STATES are its tops before the
# token, faded, and new. At the right are the left edges of what is subtracted and what is added.
WIDE, HIGH, LEFT, MIDDLE, RIGHT, BOXES = 40.0, 26.0, 54.0, 236.0, 366.0, 30.0
STATES, VALUES, BLOCK = (76.0, 164.0, 292.0), 126.0, 230.0
STEPS = "fade", "write", "read"
PALE = "0.35", "1"  # how much is seen of the shapes that a step does not use, and of those it does
# A state and a token with which each step has one decimal: a key and a query of length 1.
STATE = np.array([[2.0, 4.0], [6.0, 8.0]])
KEY, QUERY = np.array([0.6, 0.8]), np.array([0.8, 0.6])
VALUE, ALPHA, BETA = np.array([8.0, -0.6]), 0.5, 0.5
# What stands around the loop: the way to queries, keys and values, that to the rates, that from o.
BEFORE, RATES = ("xW", "convolution", "SiLU", "q, k: length 1"), "gate α, rate β"
AFTER = ("o", "÷ root mean square", "× SiLU(z)", "W_O", "y")


def _chain(left: float, top: float, names: Sequence[str], gap: float = 12.0) -> tuple[str, float]:
    """Return boxes with arrows between them, and where the last one ends."""
    body, x = "", left
    for place, name in enumerate(names):
        wide = 7.4 * len(name.replace("_", "")) + 12
        if place:
            body += arrow(x + 1, top + 13, x + gap - 1, top + 13, "muted")
            x += gap
        body += rect(x, top, wide, 26, "muted", fill_opacity="0.08", stroke="muted", rx=4)
        body += tag("text", lowered(name) if "_" in name else name, x=x + wide / 2, y=top + 17.5,
                    fill="muted", text_anchor="middle", font_size=13)
        x += wide
    return body, x


def _told(entries: Array) -> str:
    return "; ".join(", ".join(decimal(x, 1) for x in row) for row in np.atleast_2d(entries))


def state_layer() -> MovingDrawing:
    """Return the moving figure of what a token does in a layer of Qwen3-Next with a state.

    There are three steps, and each lights what it uses. Numbers come when a step first needs them;
    those of the steps before stay, and are pale. It starts with the last step.

    >>> state_layer().alt.split(". ")[0]
    'read: the query 0.8, 0.6 times the new S is o = 5.0, 1.6'
    """
    found = next(model for model in stored() if model.model == "Qwen3-Next 80B").settings
    size = "{} × {}".format(*(found[f"linear_{name}_head_dim"] for name in ("key", "value")))
    faded = ALPHA * STATE
    reads = KEY @ faded
    change = BETA * (VALUE - reads)
    added = np.outer(KEY, change)
    written = faded + added
    output = QUERY @ written
    high, end, foot = 2 * HIGH, LEFT + 2 * WIDE, STATES[2] + 2 * HIGH + 18
    down, level = LEFT + WIDE, BLOCK + HIGH
    reading, beside = STATES[2] + HIGH / 2, STATES[1] + HIGH / 2
    before, last = _chain(2, BOXES, BEFORE)
    rates, _ = _chain(last + 10, BOXES, [RATES])
    after, _ = _chain(2, foot, AFTER)
    still = [before, rates, after,
             axis_title(2, foot + 46, f"Here S is 2 × 2, in Qwen3-Next {size} in each head.",
                        **START)]
    # A name, where its numbers stand, their colour, and the steps that use them.
    tables = (
        ("S", LEFT, STATES[0], STATE, "ink", (0,)),
        ("αS", LEFT, STATES[1], faded, "ink", (0, 1)),
        ("v", MIDDLE, VALUES, VALUE[None], "value", (1,)),
        ("− kαS", MIDDLE, STATES[1], reads[None], "ink", (1,)),
        ("=", MIDDLE, STATES[1] + 38, (VALUE - reads)[None], "ink", (1,)),
        ("", RIGHT, STATES[1] + 24, change[None], "value", (1,)),
        ("k", RIGHT - 46, BLOCK, KEY[:, None], "key", (1,)),
        ("", RIGHT, BLOCK, added, "value", (1,)),
        ("new S", LEFT, STATES[2], written, "ink", (1, 2)),
        ("q", MIDDLE, reading, QUERY[None], "query", (2,)),
        ("o", RIGHT, reading, output[None], "output", (2,)),
    )
    # Words, the line that they are on, and their step.
    words: tuple[tuple[float, float, str, int, dict[str, Any]], ...] = (
        (down + 12, (STATES[0] + high + STATES[1]) / 2 + 4.5, f"× α = {ALPHA:g}", 0, START),
        (end + 4, beside - 8, "k reads", 1, START),
        ((MIDDLE + 2 * WIDE + RIGHT) / 2, STATES[1] + 31, "× β", 1, {}),
        ((MIDDLE + 2 * WIDE + RIGHT) / 2, STATES[1] + 56, f"= {BETA:g}", 1, {}),
        (RIGHT + WIDE, STATES[1] + 17, "row", 1, {}),
        ((down + RIGHT - 66) / 2 + 20, level + 20, "+ k × row", 1, {}),
        (end + 37, reading + HIGH / 2 - 7, "q reads", 2, {}),
    )
    ways = (
        (down, STATES[0] + high + 3, down, STATES[1] - 3, 0),
        (end + 4, beside, end + 40, beside, 1),
        (MIDDLE + 2 * WIDE + 4, STATES[1] + 38, RIGHT - 4, STATES[1] + 38, 1),
        (down, STATES[1] + high + 3, down, STATES[2] - 3, 1),
        (RIGHT - 64, level, down + 5, level, 1),
        (end + 4, reading + HIGH / 2, end + 70, reading + HIGH / 2, 2),
        (MIDDLE + 2 * WIDE + 4, reading + HIGH / 2, RIGHT - 24, reading + HIGH / 2, 2),
    )
    titles = (f"1 Fade: each number of S × {ALPHA:g}", "2 Write: k × row is added",
              "3 Read: q times the new S is o")
    told = (
        f"fade: S = {_told(STATE)} times α = {ALPHA:g} is αS = {_told(faded)}.",
        f"write: the key times the row {_told(change)} is added, and S = {_told(written)}.\n"
        f"The key {_told(KEY)} reads {_told(reads)}, the value is {_told(VALUE)}, and β = {BETA:g} "
        f"times the difference {_told(VALUE - reads)} is the row. The key times the row is "
        f"{_told(added)}.",
        f"read: the query {_told(QUERY)} times the new S is o = {_told(output)}.\n"
        f"Before: S has faded, × {ALPHA:g}, to {_told(faded)}, and {_told(added)} was added: "
        f"{_told(written)}. Before the loop: {', '.join(BEFORE)}; {RATES}. After it: "
        f"{', '.join(AFTER)}. In Qwen3-Next S has {size} numbers in each head.",
    )
    rows = (
        (_told(STATE), f"α = {ALPHA:g}", f"αS = {_told(faded)}"),
        (_told(faded),
         f"k = {_told(KEY)}; kαS = {_told(reads)}; v = {_told(VALUE)}; v − kαS = "
         f"{_told(VALUE - reads)}; β = {BETA:g}; row = {_told(change)}; k × row = {_told(added)}",
         f"S = {_told(written)}"),
        (_told(written), f"q = {_told(QUERY)}", f"o = {_told(output)}"),
    )

    def draw(step: int) -> Frame:
        body = [headline(2, 18, titles[step], "title"), *still]
        for place, (x1, y1, x2, y2, its) in enumerate(ways):
            body.append(tag("g", arrow(x1, y1, x2, y2, "ink", 2), opacity=PALE[its == step],
                            data_part=f"way-{place}"))
        for place, (name, left, top, entries, shade, used) in enumerate(tables):
            n, m = entries.shape
            wide = WIDE - 6 * (m == 1)
            lit, known = step in used, step >= used[0]
            look = {"fill": shade if lit else "muted", "font_weight": "600" if lit else "400"}
            frames = [rect(left + wide * j, top + HIGH * i, wide, HIGH, shade, fill_opacity="0.1",
                           stroke=shade) for i, j in np.ndindex(n, m)]
            body += [
                tag("g", "".join(frames), opacity=PALE[lit], data_part=f"cells-{place}"),
                text(left - 6, top + HIGH * n / 2 + 4.5, name, **look, **END,
                     data_part=f"name-{place}"),
                *(text(left + wide * (j + 0.5), top + HIGH * (i + 0.5) + 4.5,
                       decimal(entry, 1) if known else "", **look,
                       data_part=f"entry-{place}-{i}-{j}")
                  for (i, j), entry in np.ndenumerate(entries)),
            ]
        for place, (x, y, one, its, anchor) in enumerate(words):
            lit = its == step
            body.append(text(x, y, one, fill="ink" if lit else "muted", **anchor, **HALO,
                             font_weight="600" if lit else "400", data_part=f"word-{place}"))
        return Frame("".join(body), told[step], [(STEPS[step], *rows[step])])

    return moving(
        draw,
        [Control("move", "what the token does", STEPS, 2, pace=1.8)],
        WIDEST,
        foot + 54,
        columns=("step", "the state", "with", "gives"),
        about="what a token does with a state",
    )


def state_blocks(n_blocks: int = 3, n_tokens: int = 4) -> Drawing:
    """Return a drawing of blocks of tokens: what is solved at once, and what waits for a state.

    The triangle in each block has a row for each token, with what it subtracts of those before it.

    >>> state_blocks().alt.split(". ")[0]
    'For all blocks at once, k, v, α and β give a triangular system, and solving it gives U₀ and W'
    """
    side, wide, edge, gap, low = 12.0, 98.0, 50.0, 26.0, 222.0
    high, middle = n_tokens * side, low + 13

    def box(x: float, y: float, words: str, shade: str = "ink", width: float = wide) -> str:
        return (rect(x, y, width, 26, shade, fill_opacity="0.1", stroke=shade, rx=4)
                + text(x + width / 2, y + 17.5, words))

    body = [
        headline(2, 18, "Solved for all blocks at once, used block after block", "title"),
        axis_title(2, 42, "all at once", **START),
        line(2, low - 32, WIDEST - 2, low - 32, "muted", "4 4"),
        axis_title(2, low - 14, "one by one", **START),
        text(12, middle + 4.5, "S₀", font_weight="600"),
        axis_title(2, low + 92, "Row i of a triangle: what token i subtracts of the tokens before",
                   **START),
    ]
    for place in range(n_blocks):
        x = edge + place * (wide + gap)
        centre, corner = x + wide / 2, (x + (wide - high) / 2, 90.0)
        body += [
            box(x, 52, "k, v, α, β", "key"), arrow(centre, 78, centre, 89, "muted"),
            *(rect(corner[0] + side * j, corner[1] + side * i, side, side,
                   "weight" if j < i else "none", fill_opacity="0.45", stroke="muted")
              for i, j in np.ndindex(n_tokens, n_tokens)),
            arrow(centre, 91 + high, centre, 153, "muted"), box(x, 154, "U₀, W"),
            arrow(centre, 180, centre, low - 1, "muted"),
            arrow(x - gap, middle, x - 1, middle, "ink", 2),
            box(x, low, "U = U₀ − W S"), box(x + 30, low + 44, "O", "output", 40),
            arrow(centre, low + 27, centre, low + 43, "muted"),
            text(x + wide + 12, middle - 8, "S", font_weight="600"),
        ]
    x = edge + n_blocks * (wide + gap)
    body.append(arrow(x - gap, middle, x - 1, middle, "ink", 2))
    alt = ("For all blocks at once, k, v, α and β give a triangular system, and solving it gives "
           "U₀ and W. Then one block after the other: U = U₀ − W S with the state S before the "
           "block, and U gives the outputs O and the next state. The first block has S₀.")
    return Drawing.from_elements("".join(body), WIDEST, low + 102, alt)
