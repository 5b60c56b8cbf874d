"""Attention for one token, a step at a time: the moving figure of chapter 05."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import axis_title, line, rect, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, MovingDrawing
from attnlib.numpy_dense import attention_scores, softmax

# What each step adds, as the line under the table says it; t is the token that asks.
STEPS = (
    ("query", "the token asks with its query"),
    ("dot product", "the query against every key: r = q·k"),
    ("scale", "each score divided by √dₖ: s = r / √dₖ"),
    ("exponential", "each scaled score made positive: exp(s)"),
    ("weights", "each exponential divided by their sum: a"),
    ("shares", "each value multiplied by its weight: a v"),
    ("output", "the shares added up: the output o"),
)
# Column title, width, the step from which its numbers are there, and their name as parts: the table
# of the weights, and below it that of the output.
TABLES = (
    (
        ("token", 52.0, 0, ""),
        ("key k", 84.0, 0, ""),
        ("q·k", 58.0, 1, "raw"),
        ("÷ √dₖ", 58.0, 2, "score"),
        ("exp", 54.0, 3, "exp"),
        ("weight a", 70.0, 4, "weight"),
    ),
    (("token", 52.0, 0, ""), ("value v", 140.0, 0, ""), ("a v", 184.0, 5, "share")),
)
COLUMNS = [column for table in TABLES for column in table]
# The column that each step works in: the query against the keys, then one after the other.
WORKS_IN = (1, 2, 3, 4, 5, 8, 8)
LEFT, TOP, ROW = 8.0, 74.0, 34.0
LEFTS = [
    LEFT + sum(width for _, width, *_ in table[:i]) for table in TABLES for i in range(len(table))
]
RIGHT = LEFT + sum(width for _, width, *_ in TABLES[0])


def _vector(entries: ArrayLike, digits: int | None = None) -> str:
    """Return a vector as text: as short as it is exact, or with `digits` decimals."""
    numbers = np.asarray(entries, dtype=np.float64).tolist()
    shown = [f"{n:g}" if digits is None else decimal(n, digits) for n in numbers]
    return f"({', '.join(shown).replace('-', '−')})"


def _frame(token: str, query: str, table: Sequence[Sequence[str]], output: str, step: int) -> str:
    """Return the drawing of one step for one token: the table as far as it is computed."""
    n_tokens, here, first = len(table), WORKS_IN[step], len(TABLES[0])
    # The top of each column's table, and the foot of both.
    lower = TOP + ROW * (n_tokens + 2) + 6
    tops = [TOP if column < first else lower for column in range(len(COLUMNS))]
    feet = [top + ROW * n_tokens for top in (TOP, lower)]
    body = [
        text(LEFT, 22, f"“{token}” asks with q = {query}", text_anchor="start", font_weight="600",
             font_size=15, data_part="query"),
        rect(LEFTS[here], tops[here] - 28, COLUMNS[here][1], ROW * n_tokens + 34, "key", rx=4,
             fill_opacity=0.12, stroke="key", data_part="here"),
    ]  # fmt: skip
    for y in (TOP, lower):
        body += [line(LEFT, y + ROW * j, RIGHT, y + ROW * j, "grid") for j in range(n_tokens)]
        body.append(line(LEFT, y + ROW * n_tokens, RIGHT, y + ROW * n_tokens, "muted"))
    for c, ((title, width, since, name), x, top) in enumerate(
        zip(COLUMNS, LEFTS, tops, strict=True)
    ):
        body.append(axis_title(x + width / 2, top - 10, title))
        for j, row in enumerate(table):
            look = {"font_weight": "600"} if title == "token" else {}
            look |= {"data_part": f"{name}-{j}"} if name else {}
            shown = row[c] if step >= since else "…"
            body.append(text(x + width / 2, top + ROW * j + 22, shown, **look))
    body += [
        text(RIGHT - 35, feet[0] + 22, "Σ a = 1.000" if step >= 4 else "", data_part="sum-weights",
             fill="muted"),
        text(RIGHT, feet[1] + 22, f"o = {output if step == 6 else '…'}", text_anchor="end",
             font_weight="600", data_part="output"),
        text(LEFT, feet[1] + ROW + 18, f"{step + 1}. {STEPS[step][1]}", text_anchor="start",
             data_part="step"),
    ]  # fmt: skip
    return "".join(body)


def attention_stepper(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, tokens: Sequence[str]
) -> MovingDrawing:
    """Return a moving figure: the output of each token, from query to weighted sum, step by step.

    One slider picks the token that asks, the other the step. A number stands in the table from
    the step that computes it; the frame shows which column that is. The figure opens on the first
    step, before anything is computed; the table under it has all numbers.

    Shapes:
        query and key (T, d_k), value (T, d_v), T tokens; made for small T, d_k and d_v.

    Raises:
        ValueError: for shapes that do not fit.
    """
    queries, keys, values = (np.asarray(a, dtype=np.float64) for a in (query, key, value))
    n_tokens = len(tokens)
    if not len(queries) == len(keys) == len(values) == n_tokens or n_tokens == 0:
        raise ValueError(
            f"query, key and value must have one row for each of {n_tokens} tokens; got "
            f"{queries.shape}, {keys.shape} and {values.shape}"
        )
    scores = attention_scores(queries, keys)  # it checks the other sizes
    raw_scores, weights = scores * sqrt(keys.shape[1]), softmax(scores)
    outputs = [_vector(output, 2) for output in weights @ values]
    # For each token that asks the rows of its table, as they are when all is computed.
    tables = [
        [
            (tokens[j], _vector(keys[j]), decimal(raw_scores[t, j]), decimal(scores[t, j]),
             decimal(np.exp(scores[t, j])), decimal(weights[t, j], 3),
             tokens[j], _vector(values[j]), _vector(weights[t, j] * values[j], 2))
            for j in range(n_tokens)
        ]
        for t in range(n_tokens)
    ]  # fmt: skip
    frames, labels = [], []
    for t, step in product(range(n_tokens), range(len(STEPS))):
        frames.append(_frame(tokens[t], _vector(queries[t]), tables[t], outputs[t], step))
        told = f"Attention of “{tokens[t]}”, step {step + 1} of {len(STEPS)}: {STEPS[step][1]}."
        labels.append(f"{told} {_told(step, tables[t], outputs[t])}")
    rows = [
        (tokens[t], row[0], *row[2:6], row[8], outputs[t])
        for t in range(n_tokens)
        for row in tables[t]
    ]
    return MovingDrawing.from_frames(
        frames,
        RIGHT + LEFT,
        TOP + ROW * (2 * n_tokens + 3) + 36,
        controls=(
            Control("token", "token", tuple(tokens)),
            Control("step", "step", tuple(name for name, _ in STEPS)),
        ),
        labels=labels,
        table=(("query", "key", "q·k", "÷ √dₖ", "exp", "weight a", "a v", "output o"), *rows),
    )


def _told(step: int, table: Sequence[Sequence[str]], output: str) -> str:
    """Return the numbers that a step adds, in words."""
    if step == 0:
        return "Nothing is computed yet."
    if step == 6:
        return f"The output is {output}."
    return ", ".join(f"{row[0]} {row[WORKS_IN[step]]}" for row in table) + "."
