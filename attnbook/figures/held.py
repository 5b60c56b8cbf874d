"""The weight that the best keys hold in heads, by the spread of their scores: chapter 20."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.charts import SERIES, canvas, legend_above
from attnbook.figures.drawing import Drawing


def weight_held(spreads: ArrayLike, held: Mapping[int, ArrayLike]) -> Drawing:
    """Return a drawing of the weight that the best keys hold, by the spread of the scores.

    A mark is a head: the standard deviation σ of its scores, on a logarithmic axis, and what the
    best keys hold. For each n of `held`, these are one of n keys. A line is Φ(σ − Φ⁻¹(1 − 1/n)),
    which holds for many scores that are normal.

    Shapes:
        spreads and each of held (n_heads,).

    Raises:
        ValueError: for none or more than three n.
    """
    sigmas = np.asarray(spreads, dtype=np.float64)
    series = {n: np.asarray(weights, dtype=np.float64) for n, weights in held.items()}
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"held must have one to {len(SERIES)} n; got {list(series)}")
    normal = NormalDist()
    smooth = np.geomspace(sigmas.min() / 1.2, sigmas.max() * 1.2, 60)
    words = []
    with canvas(3.9) as (figure, [axes]):
        for (n, weights), look in zip(series.items(), SERIES, strict=False):
            line = [normal.cdf(sigma - normal.inv_cdf(1 - 1 / n)) for sigma in smooth]
            axes.plot(smooth, line, color=look["color"], linestyle=look["linestyle"], linewidth=2)
            axes.plot(
                sigmas, weights, label=f"the best 1/{n} of the keys", markersize=4.5, alpha=0.8,
                **look | {"linestyle": ""},
            )
            words.append(
                f"the best 1/{n} hold from {weights[sigmas.argmin()]:.2f} at σ = {sigmas.min():.2f}"
                f" to {weights[sigmas.argmax()]:.2f} at σ = {sigmas.max():.2f}"
            )
        axes.set_xscale("log", base=2)
        powers = range(int(np.floor(np.log2(smooth[0]))), int(np.ceil(np.log2(smooth[-1]))) + 1)
        shown = [2.0**n for n in powers if smooth[0] <= 2.0**n <= smooth[-1]]
        axes.set_xticks(shown, [f"{sigma:g}" for sigma in shown])
        axes.minorticks_off()
        axes.set_ylim(0, 1.04)
        axes.set_xlabel("standard deviation σ of the scores")
        axes.set_ylabel("weight")
        axes.grid(axis="y")
        legend_above(figure, axes)
        told = f"{sigmas.size} heads as marks, and the formula as lines: {'; '.join(words)}."
        return Drawing.from_matplotlib(figure, told)
