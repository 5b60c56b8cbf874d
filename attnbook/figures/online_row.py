"""One row, one key at a time: the first moving figure of chapter 12."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, headline, line, number, rect, tag, text
from attnbook.figures.labels import HALO, START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib.numpy_dense import softmax

# The scores stand between LEFT and RIGHT, and sums are piled up on FOOT: at PILE the exponentials,
# as wide as WIDE, and from VALUES on the products with the values.
LEFT, RIGHT, TOP, FOOT, WIDTH, HEIGHT = 42.0, 226.0, 66.0, 250.0, 424.0, 294.0
PILE, WIDE, VALUES, END = 246.0, 54.0, 310.0, 420.0


class Step(NamedTuple):
    """What a frame shows: the key at work, how many are in the sums, and the largest score."""

    key: int
    read: int  # keys that are in the sums
    m: float
    before: float  # the largest score of the frame before
    kind: str  # "rise", "add" or "divide"


def _steps(scores: Array) -> list[Step]:
    """Every step: a key is added, before that the line rises if it must, and a division ends it."""
    largest = [float(m) for m in accumulate(scores, max)]
    steps = [Step(0, 1, largest[0], largest[0], "add")]
    for j in range(1, len(scores)):
        if largest[j] > largest[j - 1]:
            steps.append(Step(j, j, largest[j], largest[j - 1], "rise"))
        steps.append(Step(j, j + 1, largest[j], largest[j], "add"))
    return [*steps, Step(len(scores) - 1, len(scores), largest[-1], largest[-1], "divide")]


def _exponentials(scores: Array, read: int, m: float) -> Array:
    return np.where(np.arange(len(scores)) < read, np.exp(scores - m), 0.0)


def online_row(scores: ArrayLike, value: ArrayLike) -> MovingDrawing:
    """Return a moving figure: the sums of the online softmax while the keys of one row arrive.

    The largest score so far, m, is a line that rises. From it hang the gaps down to the scores, and
    of each gap comes an exponential, exp(−gap). Beside it the exponentials are piled up, one
    bar for each key: ℓ is the height of the pile. To the right of each bar is one of the same
    height, as wide as the key's value: õ is their area, and o = õ / ℓ their mean width. Where the
    line rises, all bars shrink by one factor. In the last step all get the mean width, the output.

    Shapes:
        scores (n,) and value (n,), one entry of each value, n at least 2; made for up to 8 keys.
    """
    s, v = np.asarray(scores, dtype=np.float64), np.asarray(value, dtype=np.float64)
    steps = _steps(s)
    tallest = max(_exponentials(s, step.read, step.m).sum() for step in steps)
    slot, unit = (RIGHT - LEFT) / s.size, (FOOT - TOP) / max(tallest, 1.0)
    low, high = float(s.min()) - 0.7, float(s.max()) + 0.3
    across = (END - VALUES) / (max(v.max(), 0.0) - min(v.min(), 0.0) or 1.0)
    zero = VALUES - min(v.min(), 0.0) * across
    exact = float(softmax(s) @ v)

    def up(score: float) -> float:
        return round(FOOT - (score - low) / (high - low) * (FOOT - TOP), 1)

    def outline(heights: Array, read: int) -> str:
        """Return the outline of both piles, with as many corners however many keys are there."""
        tops = FOOT - np.cumsum(heights)
        path = f"M{PILE:g} {FOOT:g}V{number(round(tops[-1], 1))}H{PILE + WIDE:g}V{FOOT:g}Z"
        path += f"M{number(zero)} {FOOT:g}"
        for j, top in enumerate(tops.round(1)):
            path += f"H{number(round(zero + v[min(j, read - 1)] * across, 1))}V{number(top)}"
        return f"{path}H{number(zero)}Z"

    def draw(place: int) -> Frame:
        step = steps[place]
        rise, divide = step.kind == "rise", step.kind == "divide"
        weights = _exponentials(s, step.read, step.m)
        heights, ell, o = weights * unit, float(weights.sum()), float(weights @ v)
        log = step.before - step.m
        factor, mean = float(np.exp(log)), o / ell
        before = _exponentials(s, step.read, step.before) * unit
        below = step.m - s[step.key]
        sums = f"{ell:.2f}", decimal(o)
        if rise:
            sums = f"{ell / factor:.2f} → {ell:.2f}", f"{decimal(o / factor)} → {decimal(o)}"
        title = {
            "rise": f"The line rises by {-log:.1f}: sums × exp({decimal(log, 1)}) = "
            f"{factor:.2f}",
            "add": f"Key {step.key}, {f'{below:.1f} below' if below else 'on'} the line, adds "
            f"exp({decimal(-below, 1)}) = {weights[step.key]:.2f}",
            "divide": f"õ / ℓ = {decimal(mean)}, the plain softmax gives {decimal(exact)}",
        }[step.kind]
        y = up(step.m)
        body = [
            headline(4, 20, title, "title"),
            rect(LEFT + step.key * slot, TOP - 8, slot, FOOT - TOP + 52, "grid",
                 fill_opacity="0.35", rx=4, opacity=not divide, data_part="now"),
            line(LEFT, FOOT, RIGHT, FOOT, "muted"),
            text(LEFT, FOOT - 7, "weight = exp(−gap)", fill="weight", font_size=13, **START),
        ]
        for j, score in enumerate(s):
            middle, here = LEFT + (j + 0.5) * slot, j <= step.key
            x = middle if here else RIGHT + 12
            # The gap hangs from the line; its foot is the score.
            body.append(rect(x - 2, y, 4, max(up(score) - y, 0), "muted", opacity=here,
                             fill_opacity="0.5", data_part=f"gap-{j}"))
            parts = (
                rect(-9, up(score) - 2, 18, 5, "key"),
                text(0, FOOT + 36, decimal(score, 1), font_size=13, fill="key"),
            )
            body.append(tag("g", "".join(parts), transform=f"translate({number(x)} 0)",
                            opacity=here, data_part=f"stick-{j}"))
            body.append(text(middle, FOOT + 18, str(j)))
        old, middle = up(step.before), LEFT + (step.key + 0.5) * slot
        side = -1 if step.key == s.size - 1 else 1  # of the arrow that has room for words
        body += [
            *(text(4, FOOT + 18 * n, name, fill="muted", **START)
              for n, name in enumerate(("key", "score"), start=1)),
            tag("line", x1=LEFT, y1=old, x2=RIGHT, y2=old, stroke="muted", stroke_dasharray="5 4",
                opacity=rise, data_part="old"),
            tag("line", x1=LEFT, y1=y, x2=RIGHT, y2=y, stroke="ink", stroke_width=2.5,
                data_part="line"),
            text(LEFT, y - 8, f"largest so far: m = {decimal(step.m, 1)}", font_weight="600",
                 data_part="m", **START, **HALO),
            tag("path", d=f"M{number(middle)} {number(old)}V{number(y + 7)}m-4 6l4 -6l4 6",
                fill="none", stroke="ink", stroke_width=2, opacity=rise, data_part="lift"),
            text(middle + 8 * side, (old + y) / 2 + 8, f"+{-log:.1f}", font_weight="600",
                 opacity=rise, data_part="by", text_anchor="end" if side < 0 else "start", **HALO),
        ]
        body.append(tag("path", d=outline(before, step.read), fill="grid",
                        fill_opacity="0.7", opacity=rise or divide,
                        data_part="ghost"))
        top = FOOT
        for j, height in enumerate(heights.round(1)):
            top, wide = top - height, (mean if divide else v[j]) * across
            fresh = step.kind == "add" and j == step.key
            look = {"stroke": "ink" if fresh else "paper", "stroke_width": 2 if fresh else 1}
            body.append(rect(PILE, top, WIDE, height, "weight", data_part=f"pile-{j}", **look))
            body.append(rect(zero + min(wide, 0), top, abs(round(wide, 1)), height, "output",
                             data_part=f"area-{j}", **look))
            level, named = top + height / 2 + 4.5, int(height >= 14)
            body.append(text(PILE + WIDE / 2, level, f"key {j}", fill="paper",
                             opacity=named, data_part=f"name-{j}"))
            told, broad = f"{v[j]:g}".replace("-", "−"), abs(v[j]) * across
            told = f"value {told}" if broad >= 8 * len(told) + 48 else told
            body.append(text(round(zero + (3 if v[j] > 0 else -3), 1), level, told, fill="paper",
                             text_anchor="start" if v[j] > 0 else "end",
                             opacity=int(named and broad >= 8 * len(told) and not divide),
                             data_part=f"value-{j}"))
        x, tall = round(zero + mean * across, 1), FOOT - round(float(before.sum()), 1)
        peak = min(top, tall) - 8
        for middle, role, name, found in (
            (PILE + WIDE / 2 - 4, "weight", "height ℓ", sums[0]),
            ((VALUES + END) / 2, "output", "area õ", sums[1]),
        ):
            body.append(text(middle, FOOT + 18, name, fill=role, font_weight="600"))
            body.append(text(middle, FOOT + 36, found, fill=role, font_weight="600",
                             data_part=f"sum-{role}"))
        bracket = f"M{PILE - 3:g} {number(top)}h-6V{FOOT:g}h6"
        tip = number(top - 4)  # of the arrow from the old top of the pile to the new one
        down = f"M{PILE + WIDE / 2:g} {number(tall + 24)}V{tip}m-4 -6l4 6l4 -6"
        body += [
            line(PILE, FOOT, END + 4, FOOT, "muted"),
            tag("path", d=bracket, fill="none", stroke="weight", stroke_width=2,
                data_part="bracket"),
            tag("line", x1=x, y1=peak, x2=x, y2=FOOT, stroke="ink", stroke_width=2,
                data_part="mean"),
            tag("path", d=down, fill="none", stroke="ink", stroke_width=2, opacity=rise,
                data_part="shrink"),
            text(PILE + WIDE / 2, tall + 18, f"× {factor:.2f}", data_part="factor",
                 font_weight="600", opacity=rise),
            text(PILE + WIDE / 2, tall - 4, "before", fill="muted", font_size=13, opacity=rise,
                 data_part="was"),
        ]
        mean_at = min(max(x, VALUES + 58), WIDTH - 54)
        body.append(text(mean_at, peak - 6, f"mean = {decimal(mean)}", font_weight="600",
                         data_part="told"))
        for j in range(s.size):
            first = next(n for n, one in enumerate(steps) if one.key == j)
            body.append(hit(LEFT + j * slot, TOP - 8, slot, FOOT - TOP + 68, f"step:{first}",
                            drag=True))
        state = f"m = {decimal(step.m)}, ℓ = {ell:.2f}, õ = {decimal(o)}"
        words = {
            "rise": f"Key {step.key}, score {decimal(s[step.key], 1)}: the line rises from "
            f"{decimal(step.before)} to {decimal(step.m)}, and ℓ and õ shrink, × {factor:.2f}.\n"
            f"{state}; õ/ℓ stays {decimal(mean)}.",
            "add": f"Key {step.key}, score {decimal(s[step.key], 1)}, is added with "
            f"{weights[step.key]:.2f}: {state}.\nõ/ℓ = {decimal(mean)} so far.",
            "divide": f"The division: o = õ/ℓ = {decimal(mean)}, plain softmax {decimal(exact)}.\n"
            f"{state}. All bars have the mean width now.",
        }[step.kind]
        row = (str(step.key), step.kind, f"{factor:.2f}", decimal(step.m), f"{ell:.2f}",
               decimal(o), decimal(mean))
        return Frame("".join(body), words, [row])

    options = [f"{step.key}: {step.kind}" for step in steps[:-1]]
    rises = [place for place, step in enumerate(steps) if step.kind == "rise"]
    # It opens where the line rises and the most is left of the piles.
    left = [float(_exponentials(s, steps[place].read, steps[place].m).sum()) for place in rises]
    start = rises[int(np.argmax(left))] if rises else len(steps) - 1
    control = Control("step", "key", (*options, "divide"), start, pace=1.4)
    columns = ("key", "step", "factor", "m", "ℓ", "õ", "õ/ℓ")
    return moving(draw, [control], WIDTH, HEIGHT, columns=columns, about="one row, key by key")
