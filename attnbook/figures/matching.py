"""How the scores of matching keys leave those of random keys: a figure below chapter 3."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import (
    WIDEST,
    Array,
    Drawing,
    arrow,
    axis_title,
    headline,
    line,
    number,
    tag,
    text,
)
from attnbook.figures.labels import END, HALO, START, decimal

LEFT, RIGHT, TOP, ROW, HIGH = 92.0, 434.0, 30.0, 92.0, 44.0
# In units of √d_k: where the axis begins, and how wide a bar of a histogram is.
FIRST, BAR = -4.0, 0.2


def matching_keys(
    random: Mapping[int, ArrayLike], matching: Mapping[int, ArrayLike]
) -> Drawing:
    """Return a drawing of sampled scores of random and of matching keys, divided by √d_k.

    There is a row a d_k, with a histogram of each kind. An arrow leads from the mean of one to the
    mean of the other. Humps that are equally wide have scores that spread like √d_k.

    Shapes:
        random, matching: d_k to scores of any number, 2 or more; both have the same d_k.

    >>> matching_keys({4: [-2, 2]}, {4: [2, 6]}).alt.split(": ")[1]
    'at dₖ = 4 random keys have the mean 0.0 and the std 1.0, matching keys 2.0 and 1.0.'
    """
    pairs = {
        d_k: [np.asarray(kind[d_k], dtype=np.float64) / sqrt(d_k) for kind in (random, matching)]
        for d_k in random
    }
    last: int = ceil(max(one.max() for pair in pairs.values() for one in pair))
    unit, foot = (RIGHT - LEFT) / (last - FIRST), TOP + ROW * len(pairs)

    def x(score: float) -> float:
        return round(LEFT + unit * (float(score) - FIRST), 1)

    def hump(scores: Array, base: float, shade: str) -> str:
        edges = np.arange(FIRST, last + 2 * BAR, BAR)
        counts = np.histogram(scores.round(6), edges)[0]
        # Equal areas, so that a wider hump is lower; 2.5 is the height of a normal density of 1.
        tall = np.round(HIGH * 2.5 * counts / (len(scores) * BAR), 1)
        corners = [(x(edge), base - up) for up, two in zip(tall, pairwise(edges), strict=True)
                   for edge in two if up]
        corners = [(corners[0][0], base), *corners, (corners[-1][0], base)]
        points = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
        return tag("polygon", points=points, fill=shade, fill_opacity=0.45, stroke=shade)

    leads = [float(two.mean() - one.mean()) for one, two in pairs.values()]
    ahead = ", ".join(decimal(lead, 0) for lead in leads)
    title = f"Matching keys move away: {ahead} × √dₖ"
    body, told = [headline(2, 18, title, "title")], []
    for place, (d_k, (one, two)) in enumerate(pairs.items()):
        base = TOP + ROW * (place + 1) - 34
        body += [line(LEFT, base, RIGHT, base, "muted"),
                 text(2, base - 9, f"dₖ = {d_k}", font_weight="600", font_size=15, **START),
                 hump(one, base, "muted"), hump(two, base, "key")]
        start, end = x(one.mean()), x(two.mean())
        body += [line(start, base - HIGH - 6, start, base + 28, "ink", "2 3"),
                 line(end, base - HIGH - 6, end, base + 28, "key", "2 3"),
                 arrow(start, base + 24, end, base + 24, "ink", 2)]
        words = f"{decimal(leads[place] * sqrt(d_k), 0)} = {decimal(leads[place], 0)} × √{d_k}"
        wide = end - start > 7 * len(words)
        body.append(text((start + end) / 2 if wide else end + 10, base + (17 if wide else 28.5),
                         words, font_weight="600", **({} if wide else START), **HALO))
        told.append(f"at dₖ = {d_k} random keys have the mean {decimal(one.mean(), 1)} and the "
                    f"std {decimal(one.std(), 1)}, matching keys {decimal(two.mean(), 1)} and "
                    f"{decimal(two.std(), 1)}")
    # The names stand in the last row, where there is room between the humps.
    middle = TOP + ROW * len(pairs) - 34 - HIGH / 2
    one, two = list(pairs.values())[-1]
    body += [text(x(one.mean() + 2), middle - 10, "random keys", fill="muted", font_weight="600",
                  **START),
             text(x(two.mean() - 2), middle + 7, "matching keys", fill="key", font_weight="600",
                  **END)]
    for tick in range(0, last + 1, 4):
        body.append(line(x(tick), foot, x(tick), foot + 5, "muted"))
        body.append(text(x(tick), foot + 20, f"{tick} √dₖ" if tick else "0"))
    body += [line(LEFT, foot, RIGHT, foot, "muted"),
             axis_title((LEFT + RIGHT) / 2, foot + 40, "score q·k")]
    alt = f"Histograms of scores in units of √dₖ: {'; '.join(told)}."
    return Drawing.from_elements("".join(body), WIDEST, foot + 48, alt)
