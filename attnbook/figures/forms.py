"""What today's forms of attention do to the weights of a query: the moving figure of chapter 18."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, headline, line, rect, tag, text
from attnbook.figures.labels import END, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib import masks
from attnlib.numpy_dense import attention_scores, softmax

# Two panels side by side: the formula as it was, and a form of today.
LEFT, BESIDE, COLUMN, TOP, TALL = 58.0, 236.0, 19.5, 66.0, 170.0
STRENGTHS = "weakest", "weak", "medium", "strong", "strongest"

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
    return f"soft cap at {cap}", _joined(cap * np.tanh(attention_scores(query, key) / cap))


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
    "larger queries": _plain,
    "QK-norm": _qk_norm,
    "soft cap": _soft_cap,
    "ALiBi": _alibi,
    "sliding window": _window,
    "sink": _sink,
}


def _percent(weight: float) -> str:
    # Noise first, so that a weight at half a percent rounds alike on every CPU.
    return f"{round(100 * round(float(weight), 9)):d}"


def _verdict(last: Array, plain: Array) -> str:
    """Return what a form has changed in the weights of the last query."""
    if last[-1] > 0:
        return f"{_percent(last[-1])}% go to nobody"
    if without := np.sum((last == 0) & (plain > 0)):
        return f"{without} of {len(plain) - 1} keys get nothing"
    if list(map(_percent, last)) == list(map(_percent, plain)):
        return "nothing changes"
    top = int(np.argmax(plain))
    return f"key {top} gets {_percent(last[top])}%, before {_percent(plain[top])}%"


def _panel(left: float, name: str, weights: Array, before: Array) -> list[str]:
    """Return the bars of one form, with its name; percents stand above what was before, too."""
    foot, end = TOP + TALL, left + COLUMN * len(weights)
    body = [text(left, TOP - 20, name, data_part=f"name-{left:g}", **START),
            axis_title(left, foot + 36, "key that answers", **START)]
    for level in (0.0, 0.5, 1.0):
        y = foot - TALL * level
        body.append(line(left, y, end, y, "grid" if level else "muted"))
    for j, (weight, was) in enumerate(zip(weights, before, strict=True)):
        x, part = left + COLUMN * j, f"{left:g}-{j}"
        tall, free = round(TALL * float(weight), 1), round(TALL * float(max(weight, was)), 1) + 5
        body += [
            rect(x + 2, foot - tall, COLUMN - 4, tall, "weight", data_part=f"bar-{part}"),
            text(x + COLUMN / 2, foot - free, _percent(weight), data_part=f"percent-{part}"),
            text(x + COLUMN / 2, foot + 17, str(j)),
        ]
    return body


def forms_explorer(query: ArrayLike, key: ArrayLike) -> MovingDrawing:
    """Return a moving figure: the weights of the last query before and after a form changes them.

    A list picks the form of attention and a slider one of five strengths, from the mildest. The
    left panel has the formula as it was, the right one the form, with dashes where the bars were,
    and what a sink takes as a last bar.

    Shapes:
        query (T, d), key (T, d), with T from 5 to 8.
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    n, plain = len(q), softmax(_plain(q, k, 0)[1])[-1]
    forms = list(FORMS.values())

    def draw(form: int, setting: int) -> Frame:
        name, scores = forms[form](q, k, setting)
        last = softmax(scores)[-1]
        verdict = f"{list(FORMS)[form]}: {_verdict(last, plain)}"
        verdict = verdict[0].upper() + verdict[1:]
        foot = TOP + TALL
        body = [headline(4, 20, verdict, "verdict"),
                axis_title(14, TOP + TALL / 2, f"weights of query {n - 1}", upright=True),
                *_panel(LEFT, "the formula as it was", plain[:-1], plain[:-1]),
                *_panel(BESIDE, name, last[:-1], plain[:-1])]
        for level in (0.0, 0.5, 1.0):
            body.append(text(LEFT - 4, foot - TALL * level + 4.5, f"{level:.0%}", **END))
        for j, was in enumerate(plain[:-1]):
            y = foot - round(TALL * float(was), 1)
            body.append(tag("path", d=f"M{BESIDE + COLUMN * j + 1:g} {y:g}h{COLUMN - 2:g}",
                            stroke="ink", stroke_width=1.5, stroke_dasharray="4 3", fill="none"))
        x, tall = BESIDE + COLUMN * n, round(TALL * float(last[-1]), 1)
        shown = _percent(last[-1]) if tall else ""
        body += [rect(x + 2, foot - tall, COLUMN - 4, tall, "muted", data_part="bar-nobody"),
                 text(x + COLUMN / 2, foot - tall - 5, shown, data_part="percent-nobody"),
                 axis_title(x + COLUMN, foot + 36, "nobody" if tall else "", data_part="nobody",
                            **END)]
        shares = [_percent(weight) for weight in last]
        given = ", ".join(f"key {j} {share}" for j, share in enumerate(shares[:-1]))
        told = f"{verdict} ({name}).\nQuery {n - 1} in percent: {given}, nobody {shares[-1]}."
        return Frame("".join(body), told, [(name, *shares)])

    return moving(
        draw,
        [
            Control("form", "form", tuple(FORMS), start=5, kind="choice"),
            Control("setting", "how strong", STRENGTHS, start=3, pace=1),
        ],
        BESIDE + COLUMN * (n + 1) + 6,
        TOP + TALL + 46,
        columns=("form", *(f"key {j}" for j in range(n)), "nobody"),
        about="the forms of attention",
    )
