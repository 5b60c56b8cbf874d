"""One row of scores at many temperatures: the moving figure of chapter 04."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from attnbook import experiments
from attnbook.figures.drawing import Array, axis_title, headline, line, rect, text
from attnbook.figures.labels import HALO, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

# Where the bars begin, the room for each key, the foot of the bars and the height of a weight of 1.
LEFT, FOOT, TALL = 88.0, 196.0, 144.0
WIDTH = 440.0
ROW = 22.0


def _frame(scores: Array, labels: Sequence[str], temperature: Fraction) -> Frame:
    """Return one temperature: bars of the weights, and under them the numbers."""
    divided = scores / float(temperature)
    weights, step = softmax(divided), (WIDTH - LEFT) / len(scores)
    # e to the entropy: 1 where one key takes all, n where all weights are equal.
    effective = len(scores) ** experiments.entropy_share(weights).item()
    even, keys = FOOT - TALL / len(scores), f"{round(effective, 12):.2f}"
    shown, best = [f"{weight:.2f}" for weight in weights], int(np.argmax(weights))
    body = [
        headline(4, 20, f"At τ = {temperature}, “{labels[best]}” takes {shown[best]}", "title"),
        line(LEFT, FOOT, WIDTH, FOOT, "muted"),
        line(LEFT, even, WIDTH, even, "muted", "5 4"),
        axis_title(4, FOOT - TALL / 2, "weight", text_anchor="start"),
    ]
    for row, title in enumerate(("key", "score s", "s / τ"), start=1):
        body.append(axis_title(4, FOOT + ROW * row, title, text_anchor="start"))
    for j, (label, weight) in enumerate(zip(labels, weights, strict=True)):
        middle, tall = LEFT + (j + 0.5) * step, round(TALL * weight, 1)
        bar = min(64.0, step - 16)
        body += [
            rect(middle - bar / 2, FOOT - tall, bar, tall, "weight", data_part=f"bar-{j}"),
            text(middle, FOOT - tall - 6, shown[j], data_part=f"weight-{j}", font_weight="600",
                 **HALO),
            text(middle, FOOT + ROW, label, font_weight="600"),
            text(middle, FOOT + 2 * ROW, decimal(scores[j])),
            text(middle, FOOT + 3 * ROW, decimal(divided[j]), data_part=f"score-{j}"),
        ]
    words = f"dashed line: equal weights, 1/{len(scores)}"
    body += [
        text(LEFT, FOOT + 4 * ROW + 4, words, text_anchor="start", fill="muted"),
        text(LEFT, FOOT + 5 * ROW + 4, f"effective number of keys {keys}", text_anchor="start",
             data_part="keys", font_weight="600"),
    ]
    named = ", ".join(f"{label} {weight}" for label, weight in zip(labels, shown, strict=True))
    told = f"Temperature {temperature}: weights {named}; effective number of keys {keys}."
    return Frame("".join(body), told, [(str(temperature), *shown, keys)])


def temperature_explorer(
    scores: ArrayLike, labels: Sequence[str], *, powers: Sequence[int] = range(-4, 6)
) -> MovingDrawing:
    """Return a moving figure: the weights of one row of scores, by the temperature that divides it.

    The slider takes the temperature τ through the given powers of 2, and starts at τ = 1, where the
    weights are those of the scores themselves. Below the bars stands the effective number of keys.

    Shapes:
        scores (n,) with n labels, n at least 2; made for a handful of keys.
    """
    row = np.asarray(scores, dtype=np.float64)
    temperatures = [Fraction(2) ** power for power in powers]
    options = tuple(str(temperature) for temperature in temperatures)
    start = list(powers).index(0)
    return moving(
        lambda place: _frame(row, labels, temperatures[place]),
        [Control("temperature", "temperature τ", options, start, pace=0.8)],
        WIDTH + 4,
        FOOT + 5 * ROW + 14,
        columns=("τ", *labels, "effective number of keys"),
    )
