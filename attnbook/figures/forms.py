"""Today's forms of attention on one set of queries and keys: the moving figure of chapter 18."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, line, rect, tag, text
from attnbook.figures.labels import START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib import masks
from attnlib.numpy_dense import attention_scores, softmax

CELL, LEFT, TOP, GAP = 34.0, 46.0, 76.0, 16.0
TALL, STRONGEST = 96.0, 0.45
SETTINGS = 5

# A form takes the scaled scores and the number of a setting, and returns the scores with a last
# column, which is the score of giving to nobody.
Form = Callable[[Array, Array, int], tuple[str, Array]]


def _joined(scores: Array, nobody: float = -np.inf) -> Array:
    """Return causal scores with the score of nobody in a last column."""
    seen = np.where(masks.causal(len(scores)), scores, -np.inf)
    return np.column_stack([seen, np.full(len(scores), nobody)])


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.sqrt(np.mean(rows**2, axis=1, keepdims=True)))


def _plain(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    factor = 2**setting
    return f"queries × {factor}", _joined(attention_scores(factor * query, key))


def _qk_norm(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    factor = 2**setting
    return f"queries × {factor}, then QK-norm", _joined(
        attention_scores(_unit(factor * query), _unit(key))
    )


def _soft_cap(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    cap = (50, 8, 4, 2, 1)[setting]
    return f"soft cap, limit {cap}", _joined(cap * np.tanh(attention_scores(query, key) / cap))


def _alibi(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    slope, shown = ((0.0, "0"), (1 / 8, "1/8"), (1 / 4, "1/4"), (1 / 2, "1/2"), (1.0, "1"))[setting]
    places = np.arange(len(query))
    distance = abs(places[:, None] - places)
    return f"ALiBi, slope {shown}", _joined(attention_scores(query, key) - slope * distance)


def _window(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    n = len(query)
    size = (n, 4, 3, 2, 1)[setting]
    scores = np.where(masks.window(n, n, size - 1, 0), attention_scores(query, key), -np.inf)
    return f"window of {size} key{'s' * (size > 1)}", _joined(scores)


def _sink(query: Array, key: Array, setting: int) -> tuple[str, Array]:
    score = (-np.inf, 0.0, 1.0, 2.0, 4.0)[setting]
    shown = f"sink, s = {score:g}" if setting else "sink, s = −∞"
    return shown, _joined(attention_scores(query, key), score)


FORMS: dict[str, Form] = {
    "the formula as it was": _plain,
    "QK-norm": _qk_norm,
    "soft cap": _soft_cap,
    "ALiBi": _alibi,
    "sliding window": _window,
    "sink": _sink,
}


def _percent(weight: float) -> str:
    # Noise first, so that a weight at half a percent rounds alike on every CPU.
    return f"{round(100 * round(float(weight), 9)):d}"


def _elements(title: str, weights: Array, plain: Array) -> str:
    """Return the drawing of one form: a row of percents for each query, and bars for the last."""
    n = len(weights)
    places = [LEFT + j * CELL for j in range(n)] + [LEFT + n * CELL + GAP]
    bottom = TOP + n * CELL
    foot = bottom + TALL + 34
    body = [
        text(4, 22, title, data_part="title", font_size=15, font_weight="600", **START),
        axis_title(LEFT, TOP - 28, "key j answers", **START),
        axis_title(places[n] + CELL / 2, TOP - 28, "nobody"),
        axis_title(14, (TOP + bottom) / 2, "query i asks", upright=True),
        axis_title(14, foot - TALL / 2, f"query {n - 1}", upright=True),
        line(LEFT, foot, places[n] + CELL, foot, "muted"),
    ]
    for j, x in enumerate(places):
        if j < n:
            body.append(text(x + CELL / 2, TOP - 9, str(j)))
            body.append(text(LEFT - 8, TOP + (j + 0.5) * CELL + 5, str(j), text_anchor="end"))
        for i in range(n):
            if j > i and j < n:  # a later key, which no causal form sees
                continue
            y, weight = TOP + i * CELL, weights[i, j]
            shade = f"{round(STRONGEST * weight, 6):.2f}"
            colour, name = ("weight" if j < n else "muted"), f"{i}-{j}"
            shown = _percent(weight) if weight else "·"
            body += [
                rect(x, y, CELL, CELL, colour, fill_opacity=shade, stroke="grid",
                     data_part=f"cell-{name}"),
                text(x + CELL / 2, y + CELL / 2 + 5, shown, data_part=f"percent-{name}"),
            ]
        tall, before = (round(TALL * float(row[-1, j]), 1) for row in (weights, plain))
        body += [
            rect(x + 6, foot - tall, CELL - 12, tall, "weight" if j < n else "muted",
                 data_part=f"bar-{j}"),
            tag("path", d=f"M{x + 2:g} {foot - before:g}h{CELL - 4:g}", stroke="ink",
                stroke_width=1.5, stroke_dasharray="4 3", fill="none"),
        ]
    return "".join(body)


def forms_explorer(query: ArrayLike, key: ArrayLike) -> MovingDrawing:
    """Return a moving figure: the causal weights of one set of queries and keys, by form.

    A list picks the form of attention and a slider one of five settings of it, from the mildest.
    Each row has the weights of a query in percent, and a last column for what a sink takes. The
    bars show the last row; dashes are its weights in the formula as it was.

    Shapes:
        query (T, d), key (T, d), with T from 5 to 9.
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    n, plain = len(q), softmax(_plain(q, k, 0)[1])
    forms = list(FORMS.values())

    def draw(form: int, setting: int) -> Frame:
        title, scores = forms[form](q, k, setting)
        weights = softmax(scores)
        last = [_percent(weight) for weight in weights[-1]]
        given = ", ".join(f"key {j} {share}" for j, share in enumerate(last[:-1]))
        told = f"{title}. Query {n - 1} in percent: {given}, nobody {last[-1]}."
        return Frame(_elements(title, weights, plain), told, [(title, *last)])

    return moving(
        draw,
        [
            Control("form", "form", tuple(FORMS), start=5, kind="choice"),
            Control(
                "setting", "setting", tuple(str(s + 1) for s in range(SETTINGS)), start=3, pace=1
            ),
        ],
        LEFT + n * CELL + GAP + CELL + 12,
        TOP + n * CELL + TALL + 44,
        columns=("form", *(f"key {j}" for j in range(n)), "nobody"),
        about="the forms of attention",
    )
