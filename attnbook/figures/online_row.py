"""One row, one key at a time: the first moving figure of chapter 12."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, arrow, headline, line, number, rect, tag, text
from attnbook.figures.labels import HALO, START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib.numpy_dense import softmax

# The scores stand between LEFT and RIGHT. Two piles stand on FOOT: the sums before a step and after
# it, each bar as wide as a value and no wider than WIDE. Below them are the sums in numbers.
LEFT, RIGHT, TOP, FOOT, WIDTH, HEIGHT = 30.0, 152.0, 66.0, 236.0, 424.0, 330.0
BEFORE, AFTER, WIDE, SUMS = 180.0, 338.0, 80.0, (42.0, 63.0, 84.0)

ROLES = "weight", "output", "ink"


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

    The largest score so far, m, is a line that rises, and below it hang the scores. Each key has a
    bar in a pile, as high as its exponential, exp(score − m), and as wide as its value: ℓ is the
    height of the pile, õ its area, and o = õ / ℓ its mean width. One pile is from before the step,
    and one from after it. Where the line rises, all bars shrink by one factor. In the last step all
    get the mean width, the output: area and height stay, and their quotient is this width.

    Shapes:
        scores (n,) and value (n,), one entry of each value, n at least 2; made for up to 6 keys.
    """
    s, v = np.asarray(scores, dtype=np.float64), np.asarray(value, dtype=np.float64)
    steps = _steps(s)
    tallest = max(_exponentials(s, step.read, step.before).sum() for step in steps)
    slot, unit = (RIGHT - LEFT) / s.size, (FOOT - TOP) / max(tallest, 1.0)
    low, high = float(s.min()), float(s.max())
    across = WIDE / (max(v.max(), 0.0) - min(v.min(), 0.0) or 1.0)
    inner = -min(v.min(), 0.0) * across
    exact = float(softmax(s) @ v)

    def up(score: float) -> float:
        return round(FOOT - 26 - (score - low) / (high - low or 1.0) * (FOOT - TOP - 26), 1)

    def pile(left: float, weights: Array, widths: Array, part: str, fresh: int = -1) -> list[str]:
        """Return the bars of a pile, its height at the left, and its mean width."""
        ell, zero, top = float(weights.sum()), left + inner, FOOT
        mean = float(weights @ widths) / ell if ell else 0.0
        body = [line(left - 4, FOOT, left + WIDE + 4, FOOT, "muted")]
        for j, height in enumerate((weights * unit).round(1).tolist()):
            top, wide = round(top - height, 1), round(float(widths[j]) * across, 1)
            strong = j == fresh
            body.append(rect(zero + min(wide, 0), top, abs(wide), height, "output",
                             fill_opacity="0.85" if strong else "0.3", stroke="output",
                             data_part=f"{part}-{j}"))
            body.append(text(round(zero + min(wide, 0) + 3, 1), round(top + height / 2 + 4.5, 1),
                             f"key {j}", **START, fill="paper" if strong else "ink",
                             opacity=number(height >= 13 and abs(wide) >= 38),
                             data_part=f"{part}-name-{j}"))
        body.append(tag("path", d=f"M{number(left - 6)} {number(top)}h-6V{number(FOOT)}h6",
                        fill="none", stroke="weight", stroke_width=2, opacity=number(ell > 0),
                        data_part=f"{part}-height"))
        x = round(zero + mean * across, 1)
        body.append(tag("line", x1=x, y1=top - 8, x2=x, y2=FOOT, stroke="ink", stroke_width=2,
                        opacity=number(ell > 0), data_part=f"{part}-mean"))
        for at, words, role in ((left - 9, "ℓ", "weight"), (x, "mean", "ink")):
            body.append(text(at, top - 12, words, fill=role, font_weight="600",
                             opacity=number(ell > 0), data_part=f"{part}-named-{words}"))
        shown = (f"{ell:.2f}", decimal(ell * mean), decimal(mean)) if ell else ("0", "0", " ")
        for n, (words, role) in enumerate(zip(shown, ROLES, strict=True)):
            body.append(text(left + WIDE / 2, FOOT + SUMS[n], words, fill=role, font_size=15,
                             font_weight="600", data_part=f"{part}-sum-{n}"))
        return body

    def draw(place: int) -> Frame:
        step = steps[place]
        rise, divide = step.kind == "rise", step.kind == "divide"
        weights = _exponentials(s, step.read, step.m)
        ell, o = float(weights.sum()), float(weights @ v)
        log = step.before - step.m
        factor, mean, below = float(np.exp(log)), o / ell, step.m - s[step.key]
        before = _exponentials(s, step.read - (step.kind == "add"), step.before)
        title = {
            "rise": f"The line rises: all bars × exp({decimal(log, 1)}) = {factor:.2f}",
            "add": f"Key {step.key}, {f'{below:.1f} below' if below else 'on'} the line, adds "
            f"exp({decimal(-below, 1)}) = {weights[step.key]:.2f}",
            "divide": f"Area / height = {decimal(o)} / {ell:.2f} = {decimal(mean)}, as softmax",
        }[step.kind]
        y, old = up(step.m), up(step.before)
        body = [
            headline(4, 18, title, "title"),
            text(4, 39, "A bar: height = exp(score − m), width = the key’s value", **START),
            line(LEFT, FOOT, RIGHT, FOOT, "muted"),
            tag("line", x1=LEFT, y1=old, x2=RIGHT, y2=old, stroke="muted", stroke_dasharray="5 4",
                opacity=number(rise), data_part="old"),
        ]
        for j, score in enumerate(s):
            x, here = LEFT + (j + 0.5) * slot, number(j <= step.key)
            level = up(float(score))
            at_work = "600" if j == step.key else "400"
            body += [
                rect(x - 1.5, y, 3, max(level - y, 0), "muted", fill_opacity="0.4", opacity=here,
                     data_part=f"gap-{j}"),
                rect(x - 10, level - 2, 20, 5, "key", opacity=here, data_part=f"stick-{j}"),
                text(x, level + 18, decimal(score, 1), fill="key", opacity=here,
                     font_weight=at_work, data_part=f"score-{j}", **HALO),
                text(x, FOOT + 18, str(j), font_weight=at_work, data_part=f"key-{j}"),
            ]
        body += [
            tag("line", x1=LEFT, y1=y, x2=RIGHT, y2=y, stroke="ink", stroke_width=2.5,
                data_part="line"),
            text(2, y - 7, f"largest score m = {decimal(step.m, 1)}", font_weight="600",
                 data_part="m", **START, **HALO),
        ]
        for x, words in ((14, "key"), (BEFORE + WIDE / 2, "before"), (AFTER + WIDE / 2, "now")):
            body.append(text(x, FOOT + 18, words, fill="muted"))
        still, fresh = step.kind == "add", step.key if step.kind == "add" else -1
        body += pile(BEFORE, before, v, "before")
        widths = np.full(s.size, mean) if divide else v
        body += pile(AFTER, weights, widths, "now", fresh)
        gap = (BEFORE + WIDE + AFTER - 14) / 2
        doing = f"+ {weights[step.key]:.2f}" if still else f"× {factor:.2f}" if rise else "level"
        # The arrow beside the score that lifts the line stands where it has room for words.
        side = -1 if step.key == s.size - 1 else 1
        beside = LEFT + (step.key + 0.5 + 0.68 * side) * slot
        body += [
            text(gap, FOOT - 62, doing, font_size=15, font_weight="600", data_part="doing"),
            arrow(gap - 24, FOOT - 48, gap + 24, FOOT - 48, "ink", 2),
            *(text(2, FOOT + SUMS[n], name, fill=ROLES[n], font_weight="600", **START)
              for n, name in enumerate(("ℓ: the height", "õ: the area", "õ/ℓ: the mean width"))),
            *(text(gap, FOOT + SUMS[n], "=" if divide or (rise and n == 2) else "→",
                   data_part=f"to-{n}") for n in range(3)),
            tag("path", d=f"M{number(beside)} {number(old)}V{number(y + 7)}m-4 6l4 -6l4 6",
                fill="none", stroke="ink", stroke_width=2, opacity=number(rise), data_part="lift"),
            text(beside + 8 * side, (old + y) / 2 + 8, f"+{-log:.1f}", font_weight="600",
                 opacity=number(rise), data_part="by", text_anchor="end" if side < 0 else "start",
                 **HALO),
        ]
        for j in range(s.size):
            first = next(n for n, one in enumerate(steps) if one.key == j)
            body.append(hit(LEFT + j * slot, TOP - 8, slot, FOOT - TOP + 32, f"step:{first}",
                            drag=True))
        state = f"m = {decimal(step.m)}, ℓ = {ell:.2f}, õ = {decimal(o)}"
        words = {
            "rise": f"Key {step.key}, score {decimal(s[step.key], 1)}: the line rises from "
            f"{decimal(step.before)} to {decimal(step.m)}, and ℓ and õ shrink, × {factor:.2f}.\n"
            f"{state}; õ/ℓ stays {decimal(mean)}.",
            "add": f"Key {step.key}, score {decimal(s[step.key], 1)}, is added with "
            f"{weights[step.key]:.2f}: {state}.\nõ/ℓ = {decimal(mean)} so far.",
            "divide": f"The division: o = õ/ℓ = {decimal(mean)}, plain softmax {decimal(exact)}.\n"
            f"{state}. All bars get the mean width: the area stays.",
        }[step.kind]
        row = (str(step.key), step.kind, f"{factor:.2f}", decimal(step.m), f"{ell:.2f}",
               decimal(o), decimal(mean))
        return Frame("".join(body), words, [row])

    options = [f"{step.key}: {step.kind}" for step in steps[:-1]]
    rises = [place for place, step in enumerate(steps) if step.kind == "rise"]
    # It opens where the line rises for the first time: before and now have few bars.
    start = rises[0] if rises else len(steps) - 1
    control = Control("step", "key", (*options, "divide"), start, pace=1.4)
    columns = ("key", "step", "factor", "m", "ℓ", "õ", "õ/ℓ")
    return moving(draw, [control], WIDTH, HEIGHT, columns=columns, about="one row, key by key")
