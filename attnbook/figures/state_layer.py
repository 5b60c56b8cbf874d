"""What a token does with a state: the figure of a page below chapter 21."""

from __future__ import annotations

import numpy as np

from attnbook.atlas import stored
from attnbook.figures.drawing import Array, Drawing, arrow, axis_title, rect, tag, text
from attnbook.figures.labels import END, START
from attnbook.figures.products import lowered

WIDTH, CELL, BOARD = 416.0, 13.0, 176.0
# Where the state stands before the token, faded, written and read.
LEFTS = 6.0, 101.0, 220.0, 345.0
# A state, and a token: a key that points mostly at the third row, a value, a gate and a rate.
STATE = np.array([[7, 5, 8, 6, 7], [6, 8, 5, 7, 8], [8, 7, 6, 8, 5], [5, 6, 7, 8, 7],
                  [8, 6, 7, 5, 6]]) / 10
KEY = np.array([[0.05, 0.2, 0.95, 0.2, 0.1]])
VALUE, ALPHA, BETA = np.array([[1.0, 0.1, 1.0, 0.1, 1.0]]), 0.6, 1.0


def _cells(left: float, top: float, entries: Array, shade: str) -> list[str]:
    """Return the entries of a matrix as squares, fuller where they are larger."""
    return [
        rect(left + CELL * j, top + CELL * i, CELL, CELL, shade,
             fill_opacity=f"{min(abs(entry), 1.0):.2f}", stroke="grid")
        for (i, j), entry in np.ndenumerate(entries)
    ]


def state_layer() -> Drawing:
    """Return the drawing of what a token does in a layer of Qwen3-Next with a state.

    >>> state_layer().alt[:76]
    'A token lets the state fade, writes, and reads. The state S has 128 × 128 nu'
    """
    found = next(model for model in stored() if model.model == "Qwen3-Next 80B").settings
    size = "{} × {}".format(*(found[f"linear_{name}_head_dim"] for name in ("key", "value")))
    mixed = f"mixed with the last {found['linear_conv_kernel_dim']} tokens"
    faded = ALPHA * STATE
    written = faded + BETA * KEY.T @ (VALUE - KEY @ faded)
    one, two, three, four = LEFTS
    side, foot, above = 5 * CELL, BOARD + 5 * CELL, BOARD - 8
    middle, k, q = BOARD + side / 2, three - 18, four - 18  # the middle of both columns
    title = "A token lets the state fade, writes, and reads"
    body = [text(0, 16, title, font_size=14, font_weight="600", **START),
            rect(1, 30, WIDTH - 2, 24, "paper", stroke="muted", rx=4),
            text(WIDTH / 2, 47, "x: the row of a token")]
    # What the token makes, and where it goes.
    for x, name, shade, y, label in (
        (two + side / 2, "α", "ink", above, -10), (k - 24, "β", "ink", middle - 5, -10),
        (k, "k", "key", above, 12), (three + side / 2, "v", "value", above - 20, 12),
        (q, "q", "query", above, 12),
    ):
        body += [arrow(x, 54, x, y, "muted"),
                 text(x + label, 133, name, fill=shade, font_weight="600")]
    body += [rect(k - 15, 72, WIDTH - k + 14, 42, "paper", stroke="ink", rx=4),
             text((k - 15 + WIDTH) / 2, 89, f"{mixed},"),
             text((k - 15 + WIDTH) / 2, 106, "SiLU; k and q to length 1")]
    for left, entries, move, how in (
        (one, STATE, "before", "S"), (two, faded, "1 fade", "αS"),
        (three, written, "2 write", "+ βkᵀ(v − kαS)"), (four, written, "3 read", "o = qS"),
    ):
        body += [*_cells(left, BOARD, entries, "ink"),
                 text(left + side / 2, foot + 42, move, font_weight="600"),
                 text(left + side / 2, foot + 60, how)]
    for left, end in ((one, two), (two, k - CELL / 2), (three, q - CELL / 2)):
        body.append(arrow(left + side + 4, middle, end - 4, middle, "muted"))
    body += [*_cells(k - CELL / 2, BOARD, KEY.T, "key"), *_cells(three, above - 12, VALUE, "value"),
             *_cells(q - CELL / 2, BOARD, KEY.T, "query"),
             *_cells(four, foot + 7, KEY @ written, "output")]
    end, after = four + side / 2, "norm, × SiLU(z), then W_O"
    body += [arrow(end, foot + 66, end, foot + 84, "muted"),
             rect(k - 15, foot + 84, WIDTH - k + 14, 26, "paper", stroke="ink", rx=4),
             tag("text", lowered(after), x=(k - 15 + WIDTH) / 2, y=foot + 102, fill="ink",
                 font_size=13, text_anchor="middle"),
             arrow(end, foot + 110, end, foot + 128, "muted"),
             text(WIDTH, foot + 143, "a new row for the token", **END),
             axis_title(0, foot + 94, f"S: {size} numbers", **START),
             axis_title(0, foot + 111, "in each head", **START),
             axis_title(0, foot + 143, "z: from x as well", **START)]
    alt = (f"{title}. The state S has {size} numbers in each head. 1, fade: αS. 2, write: "
           f"+ βkᵀ(v − kαS). 3, read: o = qS. Before, k, v and q are {mixed}, SiLU, and k and q "
           f"have length 1; after, o goes through a norm, times SiLU(z), and W_O. Gate α, rate β "
           f"and z come from the token.")
    return Drawing.from_elements("".join(body), WIDTH, foot + 152, alt)
