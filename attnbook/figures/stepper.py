"""Attention for one token, a step at a time: the moving figure of chapter 05."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, Drawing, tag, text
from attnbook.figures.matrices import _show
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
# Column title, width, the step from which its numbers are there, and their name as parts.
COLUMNS = (
    ("token", 48.0, 0, ""),
    ("key k", 82.0, 0, ""),
    ("q·k", 54.0, 1, "raw"),
    ("÷ √dₖ", 54.0, 2, "score"),
    ("exp", 48.0, 3, "exp"),
    ("weight a", 64.0, 4, "weight"),
    ("value v", 88.0, 0, ""),
    ("a v", 134.0, 5, "share"),
)
LEFT, TOP, ROW = 8.0, 74.0, 34.0


def _vector(entries: ArrayLike, digits: int | None = None) -> str:
    """A vector as text: as short as it is exact, or with `digits` decimals."""
    numbers = np.asarray(entries, dtype=np.float64).tolist()
    shown = [f"{n:g}" if digits is None else _show(n, digits) for n in numbers]
    return f"({', '.join(shown).replace('-', '−')})"


def attention_stepper(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, tokens: Sequence[str]
) -> MovingDrawing:
    """A moving figure: the output of each token, from query to weighted sum, step by step.

    One slider picks the token that asks, the other the step. A number stands in the table from
    the step that computes it; the frame shows which column that is.

    Shapes: query and key (T, d_k), value (T, d_v), T tokens; made for small T, d_k and d_v.

    Raises: `ValueError` for shapes that do not fit.
    """
    queries, keys, values = (np.asarray(a, dtype=np.float64) for a in (query, key, value))
    n_tokens = len(tokens)
    if not len(queries) == len(keys) == len(values) == n_tokens or n_tokens == 0:
        raise ValueError(
            f"expected one query, key and value for each of {n_tokens} tokens, came "
            f"{queries.shape}, {keys.shape} and {values.shape}"
        )
    scores = attention_scores(queries, keys)  # it checks the other sizes
    raw_scores, weights = scores * sqrt(keys.shape[1]), softmax(scores)
    edges = LEFT + np.cumsum([0.0, *(width for _, width, *_ in COLUMNS)])
    centres = (edges[:-1] + edges[1:]) / 2
    width, bottom = float(edges[-1]) + LEFT, TOP + ROW * (n_tokens + 1)

    first = len(STEPS) - 1  # so that the picture is complete where no script runs
    frames = [(t, step) for t in range(n_tokens) for step in range(len(STEPS))]
    parts: dict[str, dict[str, list[str]]] = {
        "query": {
            "text": [f"“{tokens[t]}” asks with q = {_vector(queries[t])}" for t, _ in frames]
        },
        "step": {"text": [f"{step + 1}. {STEPS[step][1]}" for _, step in frames]},
        "sum-weights": {"text": ["Σ a = 1.000" if step >= 4 else "" for _, step in frames]},
        "output": {
            "text": [
                f"o = {_vector(weights[t] @ values, 2)}" if step == 6 else "o = …"
                for t, step in frames
            ]
        },
    }
    # Which column the step works in: the query against the keys, then one column after the other.
    works_in = (1, 2, 3, 4, 5, 7, 7)
    parts["here"] = {
        "x": [f"{edges[works_in[step]]:.1f}" for _, step in frames],
        "width": [f"{COLUMNS[works_in[step]][1]:.1f}" for _, step in frames],
    }
    body = [
        text(LEFT, 22, parts["query"]["text"][first], text_anchor="start", font_weight="600",
             font_size=15, data_part="query"),
        tag("rect", data_part="here", x=parts["here"]["x"][first], y=TOP - 28,
            width=parts["here"]["width"][first], height=ROW * n_tokens + 34, rx=4,
            fill="orange", fill_opacity=0.12, stroke="orange"),
    ]  # fmt: skip
    body += [
        text(x, TOP - 10, name, fill="muted")
        for x, (name, *_) in zip(centres, COLUMNS, strict=True)
    ]
    for j, token in enumerate(tokens):
        y = TOP + ROW * j
        body.append(
            tag("line", x1=LEFT, y1=y, x2=width - LEFT, y2=y, stroke="grid")
            + text(centres[0], y + 22, token, font_weight="600")
            + text(centres[1], y + 22, _vector(keys[j]))
            + text(centres[6], y + 22, _vector(values[j]))
        )
        numbers = {
            "raw": [_show(raw_scores[t, j]) for t in range(n_tokens)],
            "score": [_show(scores[t, j]) for t in range(n_tokens)],
            "exp": [_show(np.exp(scores[t, j])) for t in range(n_tokens)],
            "weight": [_show(weights[t, j], 3) for t in range(n_tokens)],
            "share": [_vector(weights[t, j] * values[j], 2) for t in range(n_tokens)],
        }
        for x, (_, _, since, name) in zip(centres, COLUMNS, strict=True):
            if name:
                part, shown = f"{name}-{j}", numbers[name]
                parts[part] = {"text": [shown[t] if step >= since else "…" for t, step in frames]}
                body.append(text(x, y + 22, parts[part]["text"][first], data_part=part))
    body += [
        tag("line", x1=LEFT, y1=bottom - ROW, x2=width - LEFT, y2=bottom - ROW,
            stroke="muted"),
        text(centres[5], bottom - ROW + 22, parts["sum-weights"]["text"][first],
             data_part="sum-weights", fill="muted"),
        text(width - LEFT, bottom - ROW + 22, parts["output"]["text"][first], text_anchor="end",
             font_weight="600", data_part="output"),
        text(LEFT, bottom + 18, parts["step"]["text"][first], text_anchor="start",
             data_part="step"),
    ]  # fmt: skip
    labels = tuple(
        f"Attention of “{tokens[t]}”, step {step + 1} of {len(STEPS)}: {STEPS[step][1]}. "
        + _told(step, tokens, raw_scores[t], scores[t], weights[t], values)
        for t, step in frames
    )
    picture = Drawing.from_elements("".join(body), width, bottom + 30, labels[first])
    header = ("query", "key", "q·k", "÷ √dₖ", "exp", "weight a", "a v", "output o")
    rows = [
        (tokens[t], tokens[j], _show(raw_scores[t, j]), _show(scores[t, j]),
         _show(np.exp(scores[t, j])), _show(weights[t, j], 3),
         _vector(weights[t, j] * values[j], 2), _vector(weights[t] @ values, 2))
        for t in range(n_tokens)
        for j in range(n_tokens)
    ]  # fmt: skip
    return MovingDrawing(
        svg=picture.svg,
        alt=picture.alt,
        controls=(
            Control("token", "token", tuple(tokens)),
            Control("step", "step", tuple(name for name, _ in STEPS), first),
        ),
        parts=parts,
        labels=labels,
        table=(header, *rows),
    )


def _told(
    step: int,
    tokens: Sequence[str],
    raw_scores: Array,
    scores: Array,
    weights: Array,
    values: Array,
) -> str:
    """The numbers that a step adds, in words."""
    if step == 0:
        return "Nothing is computed yet."
    if step == 6:
        return f"The output is {_vector(weights @ values, 2)}."
    new = {
        1: [_show(r) for r in raw_scores],
        2: [_show(s) for s in scores],
        3: [_show(np.exp(s)) for s in scores],
        4: [_show(a, 3) for a in weights],
        5: [_vector(a * v, 2) for a, v in zip(weights, values, strict=True)],
    }[step]
    return ", ".join(f"{token} {shown}" for token, shown in zip(tokens, new, strict=True)) + "."
