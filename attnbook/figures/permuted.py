"""Tokens in another order: the rows of X, of the weights and of the output slide with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, rect, tag, text
from attnbook.figures.grid import as_matrix, cell_look
from attnbook.figures.labels import checked_labels, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving

TOP, HIGH = 52.0, 38.0


def permuted(
    X: ArrayLike,
    weights: ArrayLike,
    output: ArrayLike,
    tokens: Sequence[str],
    start: Sequence[int] | None = None,
) -> MovingDrawing:
    """Return the moving drawing of tokens that take all their orders, with what belongs to them.

    A row holds a token's features, the weights that it gives, and its output. The columns of the
    weights take the new order too. The largest weight is framed, so that the eye can follow it.

    Shapes:
        X (T, d_model), weights (T, T), output (T, d_v), for two or three tokens; start: the order
        that the drawing opens with, the first unless given.

    Raises:
        ValueError: for other shapes, or an order that is none.
    """
    tables = as_matrix(X), as_matrix(weights), as_matrix(output)
    n = len(tables[1])
    names = checked_labels(tokens, n)
    if not 2 <= n <= 3 or tables[1].shape != (n, n) or {len(table) for table in tables} != {n}:
        shapes = ", ".join(str(table.shape) for table in tables)
        raise ValueError(f"there must be two or three rows, and as many weights each; got {shapes}")
    orders = list(permutations(range(n)))
    if start is not None and tuple(start) not in orders:
        raise ValueError(f"start must be an order of {n} tokens; got {start}")
    printed = [_printed(table, digits) for table, digits in zip(tables, (1, 2, 2), strict=True)]
    wide = [30.0, 40.0, 44.0]
    long = 8 * max(map(len, names))
    joined = long + 10, long + 36  # from the old place of a token to its new one
    first = end = joined[1] + long + 12
    lefts = []
    for table, width in zip(tables, wide, strict=True):
        lefts.append(end)
        end += table.shape[1] * width + 12
    looks = ("X", None), ("weights A", "weight"), ("output", "output")
    largest = divmod(int(np.argmax(tables[1].round(6))), n)
    still = text(4, 16, "old", fill="muted", text_anchor="start")
    still += text(first - 8, 16, "new", text_anchor="end")
    for left, table, width, (words, name) in zip(lefts, tables, wide, looks, strict=True):
        middle = left + table.shape[1] * width / 2
        still += text(middle, 16, words, fill=name or "ink", font_weight="600")
    for i, name in enumerate(names):
        y = TOP + (i + 0.5) * HIGH + 4.5
        still += text(4, y, name, fill="muted", text_anchor="start")

    def cell(which: int, i: int, j: int, x: float) -> str:
        limit = float(np.max(np.abs(tables[which])))
        look = cell_look(tables[which][i, j], limit, looks[which][1])
        body = rect(x, 3, wide[which], HIGH - 6, **look, stroke="grid")
        return body + text(x + wide[which] / 2, HIGH / 2 + 4.5, printed[which][i][j])

    def draw(place: int) -> Frame:
        order = orders[place]
        body = still
        at = [order.index(token) for token in range(n)]
        for i in range(n):
            y1, y2 = (TOP + (row + 0.5) * HIGH for row in (i, at[i]))
            body += tag("line", x1=joined[0], y1=y1, x2=joined[1], y2=y2, stroke="muted",
                        stroke_width=1.5, data_part=f"way-{i}")  # fmt: skip
        for i, name in enumerate(names):
            row = rect(joined[1] + 2, 0, end - joined[1] - 14, HIGH, "paper")
            row += text(first - 8, HIGH / 2 + 4.5, name, text_anchor="end", font_weight="600")
            row += "".join(cell(0, i, j, lefts[0] + j * wide[0]) for j in range(tables[0].shape[1]))
            for j in range(n):
                inner = rect(0, 3, wide[1], HIGH - 6, "paper") + cell(1, i, j, 0)
                if (i, j) == largest:
                    inner += rect(1, 4, wide[1] - 2, HIGH - 8, stroke="ink", stroke_width=2.5)
                across = f"translate({lefts[1] + at[j] * wide[1]:g} 0)"
                row += tag("g", inner, transform=across, data_part=f"weight-{i}-{j}")
            row += "".join(cell(2, i, j, lefts[2] + j * wide[2]) for j in range(tables[2].shape[1]))
            down = f"translate(0 {TOP + at[i] * HIGH:g})"
            body += tag("g", row, transform=down, data_part=f"row-{i}")
            key = text(wide[1] / 2, TOP - 7, name, font_weight="600")
            across = f"translate({lefts[1] + at[i] * wide[1]:g} 0)"
            body += tag("g", key, transform=across, data_part=f"key-{i}")
        for i, token in enumerate(order):  # a row that is clicked goes to the top
            after = token, *(other for other in order if other != token)
            body += rect(joined[1], TOP + i * HIGH, end - joined[1] - 12, HIGH, "ink",
                         fill_opacity="0", class_="attn-hit", data_part=f"hit-{i}",
                         data_pick=f"order:{orders.index(after)}")  # fmt: skip
        q, k = largest
        told = (
            f"{' '.join(names[i] for i in order)}: the weight {printed[1][q][k]}, which {names[q]} "
            f"gives to {names[k]}, is in row {at[q]}, column {at[k]}"
        )
        shown = " ".join(map(str, order))
        rows = [
            (shown, str(i), names[t], ", ".join(printed[1][t][j] for j in order),
             ", ".join(printed[2][t]))
            for i, t in enumerate(order)
        ]  # fmt: skip
        rest = "; ".join(f"{name}: weights {w}, output {o}" for _, _, name, w, o in rows)
        return Frame(body, f"{told}.\n{rest}.", rows)

    options = tuple(" ".join(map(str, order)) for order in orders)
    opened = orders.index(tuple(start)) if start is not None else 0
    control = Control("order", "order", options, opened, pace=1.5)
    columns = "order", "position", "token", "weights", "output"
    return moving(draw, [control], end - 4, TOP + n * HIGH + 6, columns=columns,
                  about="the tokens in another order")  # fmt: skip


def _printed(table: Array, digits: int) -> list[list[str]]:
    return [[decimal(v, 0 if v == round(v) and digits == 1 else digits) for v in r] for r in table]
