"""Tokens in another order: what goes with them, and what changes once positions are added."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, headline, number, rect, tag, text
from attnbook.figures.grid import cell_look
from attnbook.figures.labels import START, checked_labels, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import attention_weights

# The first row of each order, the height of a row, and where the names of tokens begin.
TOP, HIGH, NAMES = 80.0, 26.0, 24.0
WIDE = 46.0, 50.0  # the cells of weights and output
FOLLOWED = 0  # the token whose numbers are shown
GAP = 66.0  # between the two orders, for the lines that join their columns


def permuted(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    tokens: Sequence[str],
    positions: ArrayLike,
    start: Sequence[int],
) -> MovingDrawing:
    """Return the moving drawing of tokens that take all their orders, with what belongs to them.

    A row holds the weights that a token gives, and its output: above in the first order, below in
    the new one, whose columns of weights take the new order too. The first token is followed: its
    row is framed and has numbers, the others have only their colours. Where positions are added to
    X, place by place, its numbers that differ from those above are bold.

    Shapes:
        X and positions (T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v), for two or
        three tokens; start: the order that the drawing opens with.
    """
    x, z, *matrices = (
        np.asarray(given, dtype=np.float64) for given in (X, positions, W_Q, W_K, W_V)
    )
    n = len(x)
    names = checked_labels(tokens, n)
    orders = list(permutations(range(n)))

    def found(order: tuple[int, ...], added: int) -> tuple[Array, Array]:
        """Return weights and output in an order, with rows and columns of tokens as at first."""
        there = x[list(order)] + added * z
        query, key, value = (there @ W for W in matrices)
        weights = attention_weights(query, key)
        at = [order.index(token) for token in range(n)]
        return weights[np.ix_(at, at)], (weights @ value)[at]

    tables = {(added, order): found(order, added) for added in (0, 1) for order in orders}
    limits = [max(float(np.max(np.abs(t[which]))) for t in tables.values()) for which in (0, 1)]
    counts = n, matrices[2].shape[1]
    first = NAMES + 7.6 * (max(map(len, names)) + len(" + place 0")) + 4
    lefts = first, first + n * WIDE[0] + 18
    end = lefts[1] + counts[1] * WIDE[1]
    middles = [left + c * w / 2 for left, c, w in zip(lefts, counts, WIDE, strict=True)]
    below = TOP + n * HIGH + GAP
    still = text(NAMES, TOP - 8, "first order", fill="muted", **START)
    still += text(NAMES, below - 8, "new order", font_weight="600", **START)
    for middle, words in zip(middles, ("weights it gives to", "its output"), strict=True):
        still += text(middle, TOP - 30, words, fill=words.split()[int("its" in words)].rstrip("s"),
                      font_weight="600")
    for j, name in enumerate(names):
        still += text(lefts[0] + (j + 0.5) * WIDE[0], TOP - 8, name)

    def draw(added: int, place: int) -> Frame:
        order = orders[place]
        here, before = tables[added, order], tables[added, orders[0]]
        at = [order.index(token) for token in range(n)]
        shown, old = ([[[decimal(v) for v in row] for row in t] for t in two]
                      for two in (here, before))
        differ = [
            [now != then for which in (0, 1)
             for now, then in zip(shown[which][i], old[which][i], strict=True)]
            for i in range(n)
        ]
        changed, own = sum(map(sum, differ)), sum(differ[FOLLOWED])

        def cell(table: tuple[Array, Array], i: int, which: int, j: int, x: float, of: str) -> str:
            """Return a cell at x, with its number in the row of the token that is followed."""
            look = cell_look(float(table[which][i, j]), limits[which], ("weight", "output")[which])
            part = f"{'wo'[which]}-{of}-{i}-{j}"
            body = rect(x, 0, WIDE[which], HIGH, **look, stroke="grid", data_part=part)
            if i == FOLLOWED:
                told = decimal(table[which][i, j])
                other = told != decimal(before[which][i, j])
                body += text(x + WIDE[which] / 2, HIGH / 2 + 4.5, told,
                             font_weight="700" if other else "400",
                             data_part=f"{part}-number")
            return body

        def name(i: int, place: int, of: str) -> str:
            """Return the name of a row, with the place that is added to it."""
            words = f"{names[i]} + place {place}" if added else names[i]
            look = {"font_weight": "600"} if i == FOLLOWED else {"fill": "muted"}
            return text(NAMES, HIGH / 2 + 4.5, words, data_part=f"name-{of}-{i}", **look, **START)

        body = still
        for j in range(n):
            x1, x2 = (lefts[0] + (column + 0.5) * WIDE[0] for column in (j, at[j]))
            body += tag("line", x1=x1, y1=TOP + n * HIGH + 4, x2=x2, y2=below - 22, stroke="muted",
                        stroke_width=1.5, data_part=f"way-{j}")
        for i in sorted(range(n), key=lambda i: i == FOLLOWED):  # it passes before the others
            over = name(i, i, "old") + "".join(
                cell(before, i, which, j, lefts[which] + j * WIDE[which], "old")
                for which in (0, 1) for j in range(counts[which])
            )
            body += tag("g", over, transform=f"translate(0 {TOP + i * HIGH:g})")
            row = rect(NAMES - 4, 0, end - NAMES + 4, HIGH, "paper") + name(i, at[i], "new")
            for j in range(n):
                inner = rect(0, 0, WIDE[0], HIGH, "paper") + cell(here, i, 0, j, 0, "new")
                across = f"translate({number(lefts[0] + at[j] * WIDE[0])} 0)"
                row += tag("g", inner, transform=across, data_part=f"weight-{i}-{j}")
            row += "".join(
                cell(here, i, 1, j, lefts[1] + j * WIDE[1], "new") for j in range(counts[1])
            )
            down = f"translate(0 {below + at[i] * HIGH:g})"
            body += tag("g", row, transform=down, data_part=f"row-{i}")
            across = f"translate({number(lefts[0] + at[i] * WIDE[0])} 0)"
            key = text(WIDE[0] / 2, below - 8, names[i])
            body += tag("g", key, transform=across, data_part=f"key-{i}")
        # The token that is followed, in both orders, and the way between.
        y1, y2 = TOP + FOLLOWED * HIGH, below + at[FOLLOWED] * HIGH
        way = f"M{NAMES - 6:g} {y1 + HIGH / 2:g}H6V{y2 + HIGH / 2:g}H{NAMES - 7:g}m-6 -4l6 4l-6 4"
        body += tag("path", d=way, fill="none", stroke="ink", stroke_width=2, data_part="way")
        look: dict[str, Any] = {"stroke": "ink", "stroke_width": 2.5, "rx": 3}
        body += rect(NAMES - 6, y1, end - NAMES + 8, HIGH, **look)
        body += rect(NAMES - 6, y2, end - NAMES + 8, HIGH, data_part="frame", **look)
        for i, token in enumerate(order):  # a row that is clicked goes to the top
            after = token, *(other for other in order if other != token)
            body += rect(NAMES - 6, below + i * HIGH, end - NAMES + 6, HIGH, "ink",
                         fill_opacity="0", class_="attn-hit", data_part=f"hit-{i}",
                         data_pick=f"order:{orders.index(after)}")
        whose, total = f"“{names[FOLLOWED]}”", n * (n + counts[1])
        title = (
            (f"{whose} has its weights and its output",
             f"{whose} keeps its weights and its output"),
            ("Each place adds its own numbers to X",
             f"With positions, {own} of {total // n} numbers of {whose} change"),
        )[added][place > 0]
        body += headline(6, 17, title, "title")
        told = "with positions added" if added else "no positions"
        rows = [
            (options[place], told, names[t], ", ".join(shown[0][t][j] for j in order),
             ", ".join(shown[1][t]))
            for t in order
        ]
        rest = "; ".join(f"{name}: weights {w}, output {o}" for _, _, name, w, o in rows)
        said = f"{options[place]}, {told}: {changed} of {total} numbers are other than at first"
        return Frame(body, f"{said}.\n{rest}.", rows)

    options = tuple(" ".join(names[token] for token in order) for order in orders)
    controls = (
        Control("added", "positions", ("none", "added"), kind="choice"),
        Control("order", "order", options, orders.index(tuple(start)), pace=1.5),
    )
    columns = "order", "positions", "token", "weights", "output"
    return moving(draw, controls, end + 6, below + n * HIGH + 6, columns=columns,
                  about="the tokens in another order")
