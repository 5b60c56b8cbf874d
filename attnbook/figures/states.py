"""What three memories give back for each pair that was written: the moving figure of chapter 21."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, headline, line, number, tag, text
from attnbook.figures.labels import START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT = 46.0, 430.0, 34.0, 226.0
OLDEST, NEWEST = 330.0, 412.0
ROW = 22.0
# Colour is never the only carrier: series differ in colour, dash and width.
LOOKS = (("minus", "7 4", 2), ("plus", None, 2.5), ("muted", "2 4", 2.5))


def recall_explorer(
    counts: Sequence[int],
    similarities: Mapping[str, Sequence[ArrayLike]],
    *,
    start: int,
    step: int = 8,
) -> MovingDrawing:
    """Return a moving figure: what is read back of each pair, by when it was written.

    The slider says how many pairs were written. Each series has, for each count, one similarity a
    pair, the oldest first: the cosine between the answer and the value that was asked for. A point
    is the mean of `step` pairs.
    """
    means: dict[str, list[Array]] = {}
    for name, rows in similarities.items():
        found = [np.asarray(row, dtype=np.float64) for row in rows]
        means[name] = [row.reshape(-1, step).mean(axis=1) for row in found]
    unit, pair = FOOT - TOP, (RIGHT - LEFT) / counts[-1]
    still, written = [], f"pair, in the order of writing (means of {step})"
    for level in (0, 0.5, 1):
        y = FOOT - unit * level
        still.append(line(LEFT, y, RIGHT, y, "grid" if level else "muted"))
        still.append(text(LEFT - 8, y + 4.5, str(level), text_anchor="end"))
    still.append(axis_title(14, (TOP + FOOT) / 2, "similarity", upright=True))
    for place in (counts[-1] * quarter // 4 for quarter in range(5)):
        x = LEFT + pair * place
        still.append(line(x, FOOT, x, FOOT + 4, "muted"))
        still.append(text(x, FOOT + 18, str(place)))
    still.append(axis_title((LEFT + RIGHT) / 2, FOOT + 37, written))
    below = FOOT + 64
    still += [
        axis_title(OLDEST, below, "oldest", text_anchor="end"),
        axis_title(NEWEST, below, "newest", text_anchor="end"),
    ]
    middles = (LEFT + pair * (a + b) / 2 for a, b in pairwise(counts))
    hits = strips([LEFT, *middles, RIGHT], TOP, FOOT, "pairs")

    def draw(place: int) -> Frame:
        n = counts[place]
        body = [
            headline(LEFT, 18, f"{n} pairs written", "pairs"),
        ]
        shown, said = [], []
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
            stroke: dict[str, Any] = {
                "stroke": look,
                "stroke_width": width,
                "stroke_dasharray": dash,
            }
            y = below + ROW * (index + 1)
            ends = [f"{rows[place][end]:.2f}" for end in (0, -1)]
            body += [
                tag("polyline", points=points, fill="none", stroke_linejoin="round",
                    data_part=f"line-{index}", **stroke),
                tag("circle", cx=xs[-1], cy=heights[-1], r=4, fill=look,
                    data_part=f"end-{index}"),
                tag("line", x1=4, y1=y - 4.5, x2=36, y2=y - 4.5, **stroke),
                text(46, y, name, **START),
                text(OLDEST, y, ends[0], text_anchor="end", font_weight="600",
                     data_part=f"oldest-{index}"),
                text(NEWEST, y, ends[1], text_anchor="end", font_weight="600",
                     data_part=f"newest-{index}"),
            ]
            shown += ends
            said.append(f"{name} {ends[0]} and {ends[1]}")
        told = f"{n} pairs. Similarity of the oldest and newest: {'; '.join(said)}."
        return Frame("".join([*still, *body, *hits]), told, [(str(n), *shown)])

    return moving(
        draw,
        [Control("pairs", "pairs written", tuple(map(str, counts)), list(counts).index(start),
                 pace=0.6)],
        446,
        below + ROW * len(means) + 10,
        columns=("pairs", *(f"{name}: {end}" for name in means for end in ("oldest", "newest"))),
        about="what is read back of each pair",
    )
