"""The diagram of the whole: attention with its shapes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, arrow, headline, rect, tag, text
from attnbook.figures.grid import cell_look
from attnbook.figures.labels import checked_labels, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnbook.figures.products import lowered
from attnlib.numpy_dense import softmax


class Stage(NamedTuple):
    """A matrix on the way: its step, its colour, its place, where it comes from, its words."""

    step: int
    name: str | None
    x: float
    y: float
    source: str
    words: str
    chapter: int
    by_row: bool = True  # whether row t belongs to what token t asks


# Cells, and the room for three columns of them with what leads to the next.
WIDE, HIGH, LEFT, NEXT = 39.0, 17.0, 35.0, 138.0
ROWS = 46.0, 142.0, 260.0, 368.0
JOINED = {"X": "", "Q": "X", "K": "X", "V": "X", "R": "QK", "O": "AV"}
STEPS = "X", "Q, K, V", "scores", "÷ √dₖ", "softmax", "output", "whole"
# What a step does to all rows, and to the row of one token.
TOLD = (
    ("X has a row of features for each token", "{} has a row of features"),
    ("Each token gives a query, a key and a value", "{} gives a query; all give keys and values"),
    ("Each query meets each key: raw scores", "The query of {} meets each key: raw scores"),
    ("Every score is divided by √dₖ", "The scores of {} are divided by √dₖ"),
    ("Softmax: each row of weights adds up to 1", "Softmax: the weights of {} add up to 1"),
    ("Each row of weights mixes the values", "The weights of {} mix all values: its output"),
    ("From X to the output of every token", "From the row of {} to its output"),
)


def attention_steps(
    X: ArrayLike, W_Q: ArrayLike, W_K: ArrayLike, W_V: ArrayLike, tokens: Sequence[str],
    start: int = 0,
) -> MovingDrawing:
    """Return the moving drawing of the way from X to the output, with the numbers of all matrices.

    The steps come one after another: a matrix gets its colours, and its part of the formula is lit.
    Until then its numbers are grey. A token can be chosen: its row is framed in every matrix where
    rows are what tokens ask for, and only this row has its numbers; of K and V, all is framed. It
    opens on the token `start`, with its output.

    Shapes:
        X (3, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v), three tokens; d_model up to
        4, d_k and d_v up to 3.
    """
    x, *projections = (np.asarray(given, dtype=np.float64) for given in (X, W_Q, W_K, W_V))
    n, widths = len(x), [len(x.T), *(W.shape[1] for W in projections)]
    names = checked_labels(tokens, n)
    q, k, v = (x @ W for W in projections)
    root = widths[1] ** 0.5
    weights = softmax(q @ k.T / root)
    tables = {"X": x, "Q": q, "K": k, "V": v, "R": q @ k.T, "S": q @ k.T / root, "A": weights,
              "O": weights @ v}
    places = [LEFT + column * NEXT + 1.5 * WIDE for column in range(3)]  # middles
    stages = {
        "X": Stage(0, None, places[1], ROWS[0], "X", "X", 1),
        "Q": Stage(1, "query", places[0], ROWS[1], "X", "Q = XW_Q", 1),
        "K": Stage(1, "key", places[1], ROWS[1], "X", "K = XW_K", 1, by_row=False),
        "V": Stage(1, "value", places[2], ROWS[1], "X", "V = XW_V", 1, by_row=False),
        "R": Stage(2, None, places[0], ROWS[2], "Q", "R = QKᵀ", 2),
        "S": Stage(3, None, places[1], ROWS[2], "R", "R ÷ √dₖ", 3),
        "A": Stage(4, "weight", places[2], ROWS[2], "S", "A = softmax", 4),
        "O": Stage(5, "output", places[2], ROWS[3], "A", "O = AV", 5),
    }
    spans = {
        name: (stage.x - tables[name].shape[1] * WIDE / 2, tables[name].shape[1] * WIDE)
        for name, stage in stages.items()
    }
    still = "".join(
        _map(stage, *spans[name], tables[name], names) for name, stage in stages.items()
    )
    still += "".join(_ways(target, stages, n * HIGH, "muted", 1.0) for target in stages)
    # Each part of the formula with its colour and the steps that it is lit in.
    whole = (("O", "output", (5,)), (" = ", "ink", ()), ("softmax", "weight", (4,)),
             ("(", "ink", ()), ("Q", "query", (1, 2)), ("Kᵀ", "key", (1, 2)),
             (" ÷ √dₖ", "ink", (3,)), (") ", "ink", ()), ("V", "value", (1, 5)))
    hits = "".join(_hits(stage, *spans[name], n) for name, stage in stages.items())
    grids = {name: _cells(tables[name], spans[name][0], stage) for name, stage in stages.items()}

    def draw(step: int, chosen: int) -> Frame:
        last = step == len(STEPS) - 1
        parts = "".join(
            tag("tspan", words, fill=name,
                fill_opacity=1 if last or step in steps else 0.55, data_part=f"formula-{place}")
            for place, (words, name, steps) in enumerate(whole)
        )
        body = still + tag("text", parts, x=8, y=ROWS[3] + 1.5 * HIGH + 6, fill="ink", font_size=17,
                           font_weight="600")
        title = TOLD[step][chosen > 0].format(f"“{names[chosen - 1]}”")
        body += headline(6, 17, title, "title")
        for target, stage in stages.items():
            now = int(step == stage.step)
            ways = _ways(target, stages, n * HIGH, "ink", 2.5)
            body += tag("g", ways or rect(0, 0, 0, 0), opacity=now, data_part=f"way-{target}")
            # What is not computed yet has no colour, and grey numbers.
            there, (coloured, numbers) = step >= stage.step, grids[target]
            body += tag("g", coloured, opacity=int(there), data_part=f"grid-{target}")
            for i, row_of_numbers in enumerate(numbers):  # of a token, those that it needs
                needed = chosen in (0, i + 1) or not stage.by_row
                body += tag("g", row_of_numbers, fill="ink" if there else "muted",
                            text_anchor="middle", font_size=13, opacity=int(needed),
                            data_part=f"numbers-{target}-{i}")
            left, wide = spans[target]
            body += rect(left, stage.y, wide, n * HIGH, stroke="ink", stroke_width=2.5, opacity=now,
                         data_part=f"now-{target}")
            row, high = (max(chosen - 1, 0), HIGH) if stage.by_row else (0, n * HIGH)
            body += rect(left - 3, stage.y + row * HIGH - 2, wide + 6, high + 4, rx=3, stroke="ink",
                         stroke_width=1.5, stroke_dasharray=None if stage.by_row else "4 3",
                         opacity=int(chosen > 0 and there), data_part=f"row-{target}")
        told = f"{STEPS[step]}: {title}"
        rest = ", ".join("{} {} by {}".format(m, *table.shape) for m, table in tables.items())
        rest = f"\n{rest}." if STEPS[step] == "whole" else ""
        rows = [
            (stage.words, f"chapter {stage.chapter}", token,
             ", ".join(decimal(v).rstrip("0").rstrip(".") for v in row))
            for name, stage in stages.items()
            for token, row in zip(names, tables[name], strict=True)
        ]
        return Frame(body + hits, f"{told}.{rest}", rows)

    controls = (
        Control("step", "step", STEPS, 5, pace=1.6),
        Control("row", "row", ("all", *names), start + 1),
    )
    columns, high = ("matrix", "chapter", "token", "row"), ROWS[3] + n * HIGH + 20
    return moving(draw, controls, WIDEST, high, columns=columns, about="the way to the output")


def _map(stage: Stage, left: float, wide: float, table: Array, names: Sequence[str]) -> str:
    """Return what stands at a stage all the time: its empty frame and its words."""
    high = len(table) * HIGH
    body = rect(left, stage.y, wide, high, stroke="grid")
    fill = stage.name or "ink"
    above = 22 if stage.source in "QRS" else 10
    shape, title = "{} × {}".format(*table.shape), lowered(stage.words, fill=fill)
    if stage.chapter == 1:
        title += tag("tspan", f"\u2002{shape}", fill="muted", font_size=13)
    else:  # where the names of two matrices nearly touch, the shape stands below
        body += text(stage.x, stage.y + high + 14, f"{shape}, chapter {stage.chapter}",
                     fill="muted", font_size=13)
    body += tag("text", title, x=stage.x, y=stage.y - above, fill="ink", text_anchor="middle",
                font_size=13)
    for j, name in enumerate(names if stage.source in "QRS" else ()):  # a column for each key
        at = left + (j + 0.5) * WIDE
        body += text(at, stage.y - 5, name, font_size=13, fill="muted")
    for i, name in enumerate(names if stage.source in "XQA" else ()):
        at = stage.y + (i + 0.5) * HIGH + 4.5
        body += text(left - 8, at, name, text_anchor="end", font_size=13, fill="muted")
    return body


def _ways(target: str, stages: Mapping[str, Stage], high: float, name: str, width: float) -> str:
    """Return the arrows that lead to a matrix."""
    to = stages[target]
    side, middle = 1.5 * WIDE + 3, to.y + high / 2
    if target in "SA":
        return arrow(stages[to.source].x + side, middle, to.x - side, middle, name, width)
    body = ""
    if target == "R":  # queries and keys meet, and one arrow leads on
        feet = [stages[source].x for source in "KQ"]
        foot = stages["Q"].y + high + 5
        path = f"M{feet[0]:g} {foot:g}V{foot + 9:g}H{feet[1]:g}M{feet[1]:g} {foot:g}V{foot + 10:g}"
        body = tag("path", d=path, fill="none", stroke=name, stroke_width=width)
        return body + arrow(to.x, foot + 9, to.x, to.y - 36, name, width)
    for source in JOINED[target]:
        start = stages[source]
        if source == "V":
            # The values pass the weights and come in beside them, at the title of the output.
            x, y, foot = start.x + side, start.y + high / 2, to.y - 26
            path = f"M{x:g} {y:g}H{x + 13:g}V{foot:g}"
            body += tag("path", d=path, fill="none", stroke=name, stroke_width=width)
            body += arrow(x + 13, foot, x - 6, to.y - 4, name, width)
        else:
            x1 = start.x + (to.x - start.x) * 0.2
            x2 = to.x - (to.x - start.x) * 0.2
            foot = start.y + high + (19 if start.chapter > 1 else 5)
            body += arrow(x1, foot, x2, to.y - 24, name, width)
    return body


def _cells(table: Array, left: float, stage: Stage) -> tuple[str, list[str]]:
    """Return a matrix's cells, and the numbers of each row without what these share."""
    limit, boxes = float(np.max(np.abs(table))), ""
    numbers = [""] * len(table)
    shared = stage.name or "plus"
    digits = next(d for d in (0, 1, 2) if d == 2 or np.array_equal(table, table.round(d)))
    for (i, j), value in np.ndenumerate(table):
        x, y = left + j * WIDE, stage.y + i * HIGH
        look = cell_look(value, limit, stage.name)
        if look["fill"] == shared:
            del look["fill"]
        boxes += tag("rect", x=x, y=y, width=WIDE, height=HIGH, **look)
        numbers[i] += tag("text", decimal(value, digits), x=x + WIDE / 2, y=y + HIGH / 2 + 4.5)
    high, wide = len(table) * HIGH, table.shape[1] * WIDE
    ground = rect(left, stage.y, wide, high, "paper")
    return ground + tag("g", boxes, fill=shared, stroke="grid"), numbers


def _hits(stage: Stage, left: float, wide: float, n: int) -> str:
    body = hit(left, stage.y - 34, wide, 34, f"step:{stage.step}")
    for i in range(n if stage.by_row else 0):
        body += hit(left, stage.y + i * HIGH, wide, HIGH, f"row:{i + 1}")
    return body
