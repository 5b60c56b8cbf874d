"""What today's forms of attention do to the weights of a query: the moving figure of chapter 18."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import END, HALO, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib import masks
from attnlib.numpy_dense import attention_scores, softmax

# What nobody gets has its bar somewhat apart from those of the keys.
LEFT, TOP, TALL, WIDTH, APART = 66.0, 44.0, 170.0, 414.0, 14.0
STRENGTHS = tuple(f"{n} of 5" for n in range(1, 6))

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
    top = int(np.argmax(abs(last - plain)))  # changes most
    return f"key {top} gets {_percent(last[top])}%"


def forms_explorer(query: ArrayLike, key: ArrayLike) -> MovingDrawing:
    """Return a moving figure: the weights of the last query before and after a form changes them.

    A list picks the form of attention and a slider one of five strengths, from the mildest. Bars
    have the weights in that form, the last one what a sink takes; outlines have those of the
    formula as it was.

    Shapes:
        query (T, d), key (T, d), with T from 5 to 8.
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    n, plain = len(q), softmax(_plain(q, k, 0)[1])[-1]
    forms, column, foot = list(FORMS.values()), (WIDTH - LEFT - APART) / (len(q) + 1), TOP + TALL
    still = [axis_title(12, TOP + TALL / 2, f"weights of query {n - 1}", upright=True)]
    for level in (0.0, 0.5, 1.0):
        y = foot - TALL * level
        still += [line(LEFT, y, WIDTH, y, "grid" if level else "muted"),
                  text(LEFT - 6, y + 4.5, f"{level:.0%}", **END)]
    for below, words, look in ((18, "key", "ink"), (42, "before", "muted"), (62, "now", "weight")):
        still.append(text(LEFT - 6, foot + below, words, fill=look, **END))
    outlines = []
    for j, was in enumerate(plain[:-1]):
        x, tall = LEFT + column * j, number(round(TALL * float(was), 1))
        outline = f"M{number(x + 3)} {number(foot)}v-{tall}h{number(column - 6)}v{tall}"
        # Paper between the dashes, so that they are seen on a bar as well.
        for look, dash in (("paper", None), ("ink", "4 3")):
            outlines.append(tag("path", d=outline, fill="none", stroke=look, stroke_width=1.5,
                                stroke_dasharray=dash))
        still += [text(x + column / 2, foot + 18, str(j)),
                  text(x + column / 2, foot + 42, _percent(was), fill="muted")]
    top = int(np.argmax(plain))
    outlines.append(text(LEFT + column * (top + 1) + 2, foot - TALL * plain[top] + 11, "before",
                         fill="muted", **START, **HALO))

    def draw(form: int, setting: int) -> Frame:
        name, scores = forms[form](q, k, setting)
        last = softmax(scores)[-1]
        verdict = f"{name[0].upper()}{name[1:]}: {_verdict(last, plain)}"
        shares, bars = [_percent(weight) for weight in last], []
        for j, (weight, share) in enumerate(zip(last, shares, strict=True)):
            x, tall = LEFT + column * j + APART * (j == n), round(TALL * float(weight), 1)
            look = "weight" if j < n else "muted"
            shown = share if j < n or weight else ""
            bars += [rect(x + 3, foot - tall, column - 6, tall, look, data_part=f"bar-{j}"),
                     text(x + column / 2, foot + 62, shown, fill=look, font_weight="600",
                          data_part=f"percent-{j}")]
        nobody = axis_title(WIDTH, foot + 18, "nobody" if last[-1] else "", data_part="nobody",
                            **END)
        given = ", ".join(f"key {j} {share}" for j, share in enumerate(shares[:-1]))
        told = f"{verdict}.\nQuery {n - 1} in percent: {given}, nobody {shares[-1]}."
        body = [headline(4, 20, verdict, "verdict"), *still, *bars, nobody, *outlines]
        return Frame("".join(body), told, [(name, *shares)])

    return moving(
        draw,
        [
            Control("form", "form", tuple(FORMS), start=5, kind="choice"),
            Control("setting", "strength", STRENGTHS, start=3, pace=1),
        ],
        WIDTH,
        foot + 70,
        columns=("form", *(f"key {j}" for j in range(n)), "nobody"),
        about="the forms of attention",
    )
