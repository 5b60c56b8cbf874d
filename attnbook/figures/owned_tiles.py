"""The tiles that two programs of a backward kernel go through: the page below chapter 14."""

from __future__ import annotations

from attnbook.figures.drawing import Drawing, arrow, axis_title, line, rect, text
from attnbook.figures.labels import START

LEFT, TOP, UNIT = 58.0, 46.0, 2.0  # so many pixels a token


def owned_tiles(n_tokens: int, sizes: tuple[int, int], row: int, start: int) -> Drawing:
    """Return a drawing of causal tiles: a column that owns keys, and a row that owns queries.

    The column goes down to dK and dV, the row goes right to dQ, and a tile in both is marked.

    Args:
        n_tokens: T, of queries and of keys.
        sizes: so many queries and so many keys are a block.
        row: the first query of the program that owns queries.
        start: the first key of the program that owns keys.
    """
    b_q, b_k = sizes
    first, side = start // b_q * b_q, UNIT * n_tokens
    seen = [j for j in range(0, n_tokens, b_k) if j < row + b_q]
    parts = [
        axis_title(LEFT, 16, f"blocks of {b_k} keys begin at", **START),
        axis_title(14, TOP + side / 2, f"blocks of {b_q} queries begin at", upright=True),
    ]
    for i in range(0, n_tokens, b_q):
        y = TOP + UNIT * i
        parts.append(text(LEFT - 8, y + 13, str(i), text_anchor="end"))
        for j in range(0, n_tokens, b_k):
            visible = j < i + b_q
            parts.append(
                rect(LEFT + UNIT * j, y, UNIT * b_k, UNIT * b_q, "grid" if visible else "none",
                     fill_opacity=0.5 if visible else None, stroke="grid")
            )
    parts += [text(LEFT + UNIT * (j + b_k / 2), TOP - 8, str(j)) for j in range(0, n_tokens, b_k)]
    parts.append(line(LEFT, TOP, LEFT + side, TOP + side, "muted", "2 4"))
    x, end = LEFT + UNIT * start, LEFT + UNIT * (seen[-1] + b_k)
    y, foot = TOP + UNIT * row, TOP + UNIT * n_tokens
    top, wide, tall = TOP + UNIT * first, UNIT * b_k, UNIT * b_q
    look = {"fill_opacity": 0.2, "stroke_width": 2.5}
    parts += [
        rect(x, top, wide, foot - top, "key", stroke="key", stroke_dasharray="5 3", **look),
        rect(LEFT, y, end - LEFT, tall, "query", stroke="query", **look),
        text(x + wide / 2, top + 16, "first"),
        text(x + wide / 2, y + tall / 2 + 4.5, "both"),
        arrow(x + wide / 2, foot + 3, x + wide / 2, foot + 26, "key", 2),
        text(x + wide / 2, foot + 42, "dK, dV", font_weight="600", fill="key"),
        arrow(end + 3, y + tall / 2, LEFT + side + 22, y + tall / 2, "query", 2),
        text(LEFT + side + 28, y + tall / 2 + 4.5, "dQ", font_weight="600", fill="query", **START),
    ]
    n_rows = (n_tokens - first + b_q - 1) // b_q
    alt = (
        f"{n_tokens} queries down and keys across, under a causal mask. The program that owns the "
        f"keys from {start} on goes down {n_rows} tiles, the first with the queries from {first} "
        f"on, to dK and dV. The program that owns the queries from {row} on goes right through "
        f"{len(seen)} tiles to dQ. The tile where they cross is computed by both."
    )
    return Drawing.from_elements("".join(parts), LEFT + side + 52, foot + 50, alt)
