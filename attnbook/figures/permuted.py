"""Tokens in another order: what goes with them, and what changes once positions are added."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, rect, tag, text
from attnbook.figures.grid import as_matrix, cell_look
from attnbook.figures.labels import checked_labels, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import attention_weights

TOP, HIGH = 78.0, 38.0
MARKS = "●■▲"  # each token's own, beside all that belongs to it
WIDE = 17.0, 38.0, 46.0  # the cells of X, weights and output


def permuted(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    tokens: Sequence[str],
    positions: ArrayLike,
    start: Sequence[int] | None = None,
) -> MovingDrawing:
    """Return the moving drawing of tokens that take all their orders, with what belongs to them.

    A row holds a token's features, the weights that it gives, and its output. The columns of the
    weights take the new order too. Where positions are added to X, place by place, the numbers that
    differ from those of the first order stand above these, which are crossed out.

    Shapes:
        X and positions (T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v), for two or
        three tokens; start: the order that the drawing opens with, the first unless given.

    Raises:
        ValueError: for other shapes, or an order that is none.
    """
    x, z, *matrices = (as_matrix(given) for given in (X, positions, W_Q, W_K, W_V))
    n = len(x)
    names = checked_labels(tokens, n)
    if not 2 <= n <= 3 or x.shape != z.shape or any(len(W) != len(x.T) for W in matrices):
        shapes = ", ".join(str(table.shape) for table in (x, z, *matrices))
        raise ValueError(f"X and positions must be (2 or 3, d_model), and W fit; got {shapes}")
    orders = list(permutations(range(n)))
    if start is not None and tuple(start) not in orders:
        raise ValueError(f"start must be an order of {n} tokens; got {start}")

    def found(order: tuple[int, ...], added: int) -> tuple[Array, Array, Array]:
        """Return X, weights and output in an order, with rows and columns of tokens as at first."""
        there = x[list(order)] + added * z
        query, key, value = (there @ W for W in matrices)
        weights = attention_weights(query, key)
        at = [order.index(token) for token in range(n)]
        return there[at], weights[np.ix_(at, at)], (weights @ value)[at]

    tables = {(added, order): found(order, added) for added in (0, 1) for order in orders}
    limits = [max(float(np.max(np.abs(t[which]))) for t in tables.values()) for which in range(3)]
    counts = len(x.T), n, matrices[2].shape[1]
    long = 7.6 * max(map(len, names))
    joined = long + 8, long + 24  # from the old place of a token to its new one
    first = end = joined[1] + long + 23
    lefts = []
    for count, width in zip(counts, WIDE, strict=True):
        lefts.append(end)
        end += count * width + 15
    middles = [left + c * w / 2 for left, c, w in zip(lefts, counts, WIDE, strict=True)]
    still = text(4, TOP - 36, "old", fill="muted", text_anchor="start")
    still += text(first - 22, TOP - 36, "new", text_anchor="end")
    for middle, words in zip(middles[1:], ("weights A", "output"), strict=True):
        still += text(middle, TOP - 36, words, fill=words.split()[0].rstrip("s"), font_weight="600")
    for i, name in enumerate(names):
        y = TOP + (i + 0.5) * HIGH + 4.5
        still += text(4, y, name, fill="muted", text_anchor="start")

    def draw(added: int, place: int) -> Frame:
        order = orders[place]
        here, before = tables[added, order], tables[added, orders[0]]
        at = [order.index(token) for token in range(n)]
        changed = 0

        def cell(which: int, i: int, j: int, left: float) -> str:
            nonlocal changed
            now, old = (decimal(t[which][i, j]) for t in (here, before))
            other = which > 0 and now != old
            changed += other
            name = f"{'xwo'[which]}-{i}-{j}"
            look = cell_look(
                float(here[which][i, j]), limits[which], (None, "weight", "output")[which]
            )
            middle = left + WIDE[which] / 2
            box = rect(left, 3, WIDE[which], HIGH - 6, **look, stroke="grid", data_part=name)
            if which == 0:  # the features only tell the tokens apart
                return box
            return (
                box
                + text(middle, HIGH / 2 + (-1.5 if other else 4.5), now,
                       font_weight="600" if other else "400", data_part=f"{name}-now")
                + text(middle, HIGH / 2 + 12.5, old if other else "", font_size=13,
                       text_decoration="line-through", data_part=f"{name}-old")
            )  # fmt: skip

        body = still
        for i in range(n):
            y1, y2 = (TOP + (row + 0.5) * HIGH for row in (i, at[i]))
            body += tag("line", x1=joined[0], y1=y1, x2=joined[1], y2=y2, stroke="muted",
                        stroke_width=1.5, data_part=f"way-{i}")  # fmt: skip
        for i, name in enumerate(names):
            row = rect(joined[1] + 2, 0, end - joined[1] - 20, HIGH, "paper")
            row += text(first - 22, HIGH / 2 + 4.5, name, text_anchor="end", font_weight="600")
            for left in lefts:
                row += text(left - 9, HIGH / 2 + 4.5, MARKS[i], font_size=13)
            row += "".join(cell(0, i, j, lefts[0] + j * WIDE[0]) for j in range(counts[0]))
            for j in range(n):
                inner = rect(0, 3, WIDE[1], HIGH - 6, "paper") + cell(1, i, j, 0)
                across = f"translate({lefts[1] + at[j] * WIDE[1]:g} 0)"
                row += tag("g", inner, transform=across, data_part=f"weight-{i}-{j}")
            row += "".join(cell(2, i, j, lefts[2] + j * WIDE[2]) for j in range(counts[2]))
            down = f"translate(0 {TOP + at[i] * HIGH:g})"
            body += tag("g", row, transform=down, data_part=f"row-{i}")
            key = text(WIDE[1] / 2, TOP - 7, name, font_weight="600")
            across = f"translate({lefts[1] + at[i] * WIDE[1]:g} 0)"
            body += tag("g", key, transform=across, data_part=f"key-{i}")
        for i, token in enumerate(order):  # a row that is clicked goes to the top
            after = token, *(other for other in order if other != token)
            body += rect(joined[1], TOP + i * HIGH, end - joined[1] - 18, HIGH, "ink",
                         fill_opacity="0", class_="attn-hit", data_part=f"hit-{i}",
                         data_pick=f"order:{orders.index(after)}")  # fmt: skip
        total = n * (n + counts[2])
        title = (
            ("Each token has its weights and its output",
             "A new order: the same weights and outputs"),
            ("Each place adds its own numbers to X",
             f"With positions, {changed} of {total} numbers change"),
        )[added][place > 0]  # fmt: skip
        body += text(4, 17, title, text_anchor="start", font_size=15, font_weight="600",
                     data_part="title")  # fmt: skip
        body += text(middles[0], TOP - 36, "X + positions" if added else "X", font_weight="600",
                     data_part="features")  # fmt: skip
        told = "with positions added" if added else "no positions"
        rows = [
            (options[place], told, names[t], ", ".join(decimal(here[1][t, j]) for j in order),
             ", ".join(map(decimal, here[2][t])))
            for t in order
        ]  # fmt: skip
        rest = "; ".join(f"{name}: weights {w}, output {o}" for _, _, name, w, o in rows)
        said = f"{options[place]}, {told}: {changed} of {total} numbers are other than at first"
        return Frame(body, f"{said}.\n{rest}.", rows)

    options = tuple(" ".join(names[token] for token in order) for order in orders)
    opened = orders.index(tuple(start)) if start is not None else 0
    controls = (
        Control("added", "positions", ("none", "added"), kind="choice"),
        Control("order", "order", options, opened, pace=1.5),
    )
    columns = "order", "positions", "token", "weights", "output"
    return moving(draw, controls, end - 13, TOP + n * HIGH + 6, columns=columns,
                  about="the tokens in another order")  # fmt: skip
