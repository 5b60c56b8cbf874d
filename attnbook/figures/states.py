"""What three memories give back for each pair that was written: the moving figure of chapter 21."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, headline, line, number, tag, text
from attnbook.figures.labels import END, HALO, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT, WIDTH = 34.0, 298.0, 84.0, 264.0, 444.0
APART = 17.0  # from one label to the next
COLUMNS = "oldest", "newest", "numbers kept"
# Colour is never the only carrier: series differ in colour, dash and width.
LOOKS = (("minus", "7 4", 2), ("plus", None, 2.5), ("muted", "2 4", 2.5))


def _verdict(name: str, means: Array) -> str:
    """Return what a memory does to the pairs."""
    oldest, newest = means[0], means[-1]
    falls = newest - oldest > 0.15
    ways = {
        "forgets the oldest": falls and oldest < 0.3, "blurs the oldest": falls,
        "keeps all": oldest > 0.95, "nearly keeps all": oldest > 0.85, "blurs all": True,
    }
    return f"{name} {next(way for way, is_so in ways.items() if is_so)}"


def _price(times: float) -> str:
    """Return how many numbers are kept, against those of a state."""
    few = {0.5: "half the", 1.0: "as many"}
    return f" with {few.get(times, f'{times:g}× the')} numbers"


def _apart(heights: Sequence[float]) -> list[float]:
    """Return the heights, from above, moved as little as keeps them from overlapping."""
    slack = np.asarray(heights) - APART * np.arange(len(heights))
    near = [max(min(slack[a:b].mean() for b in range(i + 1, len(slack) + 1)) for a in range(i + 1))
            for i in range(len(slack))]
    return [round(float(y) + APART * i, 1) for i, y in enumerate(near)]


def recall_explorer(
    counts: Sequence[int],
    similarities: Mapping[str, Sequence[ArrayLike]],
    *,
    d_k: int,
    step: int = 8,
) -> MovingDrawing:
    """Return a moving figure: what is read back of each pair, by when it was written.

    The slider says how many pairs were written, and begins at the most. Each series has, for each
    count, one similarity a pair, the oldest first: the cosine between the answer and the value that
    was asked for. A point is the mean of `step` pairs. With the pairs grows what the series
    "softmax" keeps of them, a key and a value of `d_k` entries each; the others have a state.
    """
    means: dict[str, list[Array]] = {}
    for name, rows in similarities.items():
        found = [np.asarray(row, dtype=np.float64) for row in rows]
        means[name] = [row.reshape(-1, step).mean(axis=1) for row in found]
    unit, pair = FOOT - TOP, (RIGHT - LEFT) / counts[-1]
    still = []
    for level in (0, 0.5, 1):
        y = FOOT - unit * level
        still.append(line(LEFT, y, RIGHT, y, "grid" if level else "muted"))
        still.append(text(LEFT - 8, y + 4.5, str(level), text_anchor="end"))
    still.append(axis_title(4, TOP - 20, "read back: cosine with the value written (1: the same)",
                            **START))
    for place in (counts[-1] * quarter // 4 for quarter in range(5)):
        x = LEFT + pair * place
        still.append(line(x, FOOT, x, FOOT + 4, "muted"))
        still.append(text(x, FOOT + 18, str(place)))
    still.append(axis_title(WIDTH - 4, FOOT + 56, "name: numbers kept", **END))
    still += [text(LEFT, FOOT + 37, "← oldest", **START), text(RIGHT, FOOT + 37, "newest →", **END)]
    for row, words in enumerate(("which pair is asked for", f"a point: the mean of {step} pairs")):
        still.append(axis_title(LEFT, FOOT + 56 + 18 * row, words, **START))
    middles = (LEFT + pair * (a + b) / 2 for a, b in pairwise(counts))
    hits = strips([LEFT, *middles, RIGHT], TOP, FOOT, "pairs")

    def draw(place: int) -> Frame:
        n, body, shown, verdicts = counts[place], [], [], []
        # At the end of a line stand its name and what it keeps, as near as they do not overlap.
        ends = {name: round(FOOT - unit * rows[place][-1], 1) for name, rows in means.items()}
        order = sorted(ends, key=ends.__getitem__)
        beside = dict(zip(order, _apart([ends[name] for name in order]), strict=True))
        for index, (name, rows) in enumerate(means.items()):
            look, dash, width = LOOKS[index]
            heights = np.round(FOOT - unit * rows[place], 1)
            xs = np.round(LEFT + pair * (step * np.arange(len(heights)) + step / 2), 1)
            # Every frame has as many points: those that are not written yet wait at the newest.
            wait = counts[-1] // step - len(xs)
            points = " ".join(
                f"{number(x)},{number(y)}"
                for x, y in zip(
                    np.pad(xs, (0, wait), "edge"), np.pad(heights, (0, wait), "edge"), strict=True
                )
            )
            kept = 2 * d_k * n if name == "softmax" else d_k**2
            body += [
                tag("polyline", points=points, fill="none", stroke_linejoin="round", stroke=look,
                    stroke_width=width, stroke_dasharray=dash, data_part=f"line-{index}"),
                tag("circle", cx=xs[-1], cy=heights[-1], r=4, fill=look,
                    data_part=f"end-{index}"),
                tag("line", x1=xs[-1] + 4, y1=heights[-1], x2=xs[-1] + 15, y2=beside[name],
                    stroke=look, data_part=f"to-{index}"),
                text(xs[-1] + 18, beside[name] + 4.5, f"{name}: {kept:,}", fill=look,
                     font_weight="600", data_part=f"name-{index}", **HALO, **START),
            ]
            shown += [*(f"{rows[place][end]:.2f}" for end in (0, -1)), f"{kept:,}"]
            price = _price(kept / d_k**2) if name == "softmax" else ""
            verdicts.append(_verdict(name, rows[place]) + price)
        words = ", ".join(verdicts)
        first = ", ".join(verdicts[:2])
        titles = words[: len(first) + 1].capitalize(), words[len(first) + 2 :]
        body += [headline(4, 18 + 20 * row, titles[row], f"title-{row}") for row in (0, 1)]
        told = f"{n} pairs: {words}."
        return Frame("".join([*still, *body, *hits]), told, [(str(n), *shown)])

    return moving(
        draw,
        [Control("pairs", "pairs written", tuple(map(str, counts)), len(counts) - 1, pace=0.6)],
        WIDTH,
        FOOT + 83,
        columns=("pairs", *(f"{name}: {end}" for name in means for end in COLUMNS)),
        about="what is read back of each pair",
    )
