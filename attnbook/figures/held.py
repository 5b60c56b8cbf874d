"""The weight that the best keys hold in heads, by the spread of their scores: chapter 20."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.charts import SERIES, canvas, legend_above
from attnbook.figures.drawing import Drawing


def weight_held(
    spreads: ArrayLike, held: Mapping[int, ArrayLike], n_keys: int = 512
) -> Drawing:
    """Return a drawing of the weight that the best keys hold, by the spread of the scores.

    A mark is a head: the standard deviation σ of its scores, on a logarithmic axis, and what the
    best keys hold. For each n of `held`, these are one of n keys. The lines are normal scores: what
    the best of `n_keys` hold, in the mean of 400 draws, and dotted the limit for many keys,
    Φ(σ − Φ⁻¹(1 − 1/n)).

    Shapes:
        spreads and each of held (n_heads,).

    Raises:
        ValueError: for none or more than three n.
    """
    sigmas = np.asarray(spreads, dtype=np.float64)
    series = {n: np.asarray(weights, dtype=np.float64) for n, weights in held.items()}
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"held must have one to {len(SERIES)} n; got {list(series)}")
    normal, drawn = NormalDist(), np.random.default_rng(0).standard_normal((400, n_keys))
    drawn.sort()
    smooth = np.geomspace(sigmas.min() / 1.2, sigmas.max() * 1.2, 60)
    weights_of = [np.exp(sigma * (drawn - drawn[:, -1:])) for sigma in smooth]
    words = []
    with canvas(3.9) as (figure, [axes]):
        for (n, weights), look in zip(series.items(), SERIES, strict=False):
            of_few = [(e[:, -n_keys // n :].sum(1) / e.sum(1)).mean() for e in weights_of]
            limit = [normal.cdf(sigma - normal.inv_cdf(1 - 1 / n)) for sigma in smooth]
            axes.plot(smooth, of_few, color=look["color"], linestyle=look["linestyle"], linewidth=2)
            axes.plot(smooth, limit, color=look["color"], linestyle=":", linewidth=1.5)
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
        lines = f"normal scores of {n_keys} keys as lines, and of many keys dotted"
        told = f"{sigmas.size} heads as marks, {lines}: {'; '.join(words)}."
        return Drawing.from_matplotlib(figure, told)
