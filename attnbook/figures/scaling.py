"""The drawings of chapters 03 and 04: how scores spread, and what three divisors do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from attnbook import experiments
from attnbook.figures.charts import SERIES, canvas, powers_axis
from attnbook.figures.drawing import COLOURS, Array, Drawing, line, rect, text
from attnbook.figures.moving import Control, MovingDrawing
from attnlib.numpy_dense import softmax

# How a divisor is written in a picture.
DIVISORS = {"1": "÷ 1 (no scaling)", "sqrt(d_k)": "÷ √dₖ", "d_k": "÷ dₖ"}


def score_growth(d_ks: Sequence[int], observed_std: ArrayLike) -> Drawing:
    """Return a drawing of observed standard deviations (points) on the predicted line √d_k."""
    observed = np.asarray(observed_std, dtype=np.float64)
    with canvas(3.9) as (figure, [axes]):
        predicted = np.sqrt(np.asarray(d_ks))
        axes.plot(d_ks, predicted, color=COLOURS["muted"], linestyle="--", label="predicted, √dₖ")
        axes.plot(d_ks, observed, linestyle="", marker="o", color=COLOURS["query"], label="observed")
        powers_axis(axes, d_ks)
        axes.set_yscale("log", base=2)
        axes.set_yticks(list(predicted), [f"{value:.0f}" for value in predicted])
        axes.minorticks_off()
        axes.grid()
        axes.set_xlabel("dₖ, four times as large at each step")
        axes.set_ylabel("std of q·k, twice as large")
        axes.legend()
        pairs = ", ".join(f"{s:.1f} at {d}" for d, s in zip(d_ks, observed, strict=True))
        alt = (
            "Standard deviation of the scores against d_k, both axes logarithmic: the observed "
            f"points ({pairs}) lie on the straight line of the square root."
        )
        return Drawing.from_matplotlib(figure, alt)


def rule_curves(
    d_ks: Sequence[int],
    results: Mapping[int, Mapping[str, experiments.RuleStatistics]],
    fields: Mapping[str, str],
    *,
    log_y: bool = False,
) -> Drawing:
    """Return a drawing with one panel a field of `RuleStatistics` and one line a rule, over d_k.

    `fields` maps a field's name to its title on the panel; panels share the vertical axis.
    """
    with canvas(3.9, len(fields)) as (figure, panels):
        words = []
        bounds = [
            getattr(r, f) for rules in results.values() for r in rules.values() for f in fields
        ]
        for axes, (field, title) in zip(panels, fields.items(), strict=True):
            for rule, look in zip(experiments.RULES, SERIES, strict=True):
                values = [getattr(results[d_k][rule], field) for d_k in d_ks]
                axes.plot(d_ks, values, label=DIVISORS[rule], markersize=6, **look)
                words.append(f"{title}, {rule}: from {values[0]:.3g} to {values[-1]:.3g}")
            powers_axis(axes, d_ks, len(fields))
            axes.set_xlabel("dₖ")
            axes.set_title(title)
            axes.grid(axis="y")
            if log_y:
                axes.set_yscale("log")
                axes.set_ylim(min(bounds) / 2, max(bounds) * 2)
            else:
                axes.set_ylim(0.0, 1.04)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        alt = f"Three rules over d_k from {d_ks[0]} to {d_ks[-1]}. " + "; ".join(words) + "."
        return Drawing.from_matplotlib(figure, alt)


# The three charts of the explorer: where the first begins, their distance and width, their height.
# The words to their left hold for all three.
LEFT, STEP, PANEL, BASE, TALL = 112.0, 108.0, 98.0, 186.0, 140.0


def _frame(
    raw_scores: Array, d_k: int, means: Mapping[str, experiments.RuleStatistics], n_draws: int
) -> str:
    """Return the drawing of one d_k: the weights of one query, and means over draws, by rule."""
    n_keys = len(raw_scores)
    bar, even = (PANEL - 8.0) / n_keys, BASE - TALL / n_keys
    words = {
        64.0: ("weights of", "one query over", f"{n_keys} keys (dashed", f"line: 1/{n_keys})"),
        BASE + 26: ("means over", f"{n_draws:,} draws:", "std of scores", "largest weight",
                    f"entropy / log {n_keys}"),
    }  # fmt: skip
    body = [
        text(4, y + 19 * row, told, text_anchor="start", fill="muted")
        for y, lines in words.items()
        for row, told in enumerate(lines)
    ]
    for column, (rule, divisor) in enumerate(experiments.RULES.items()):
        left, mean = LEFT + column * STEP, means[rule]
        title = DIVISORS[rule].partition(" (")[0]
        body.append(text(left + PANEL / 2, 26, title, font_weight="600", font_size=15))
        body.append(line(left, BASE, left + PANEL, BASE, "muted"))
        for index, weight in enumerate(softmax(raw_scores / divisor(d_k))):
            tall = round(TALL * weight, 1)
            x, y = left + 4 + index * bar, round(BASE - TALL * weight, 1)
            body.append(rect(x, y, bar - 3, tall, "query", data_part=f"bar-{column}-{index}"))
        body.append(line(left, even, left + PANEL, even, "key", "5 4"))
        numbers = {
            "std": mean.score_std,
            "largest": mean.largest,
            "entropy": mean.entropy,
        }
        for row, (name, number) in enumerate(numbers.items(), start=2):
            x, y = left + PANEL / 2, BASE + 26 + 19 * row
            body.append(text(x, y, f"{number:.2f}", data_part=f"{name}-{column}"))
    return "".join(body)


def _told(d_k: int, n_keys: int, means: Mapping[str, experiments.RuleStatistics]) -> str:
    """Return the label of a frame."""
    largest = ", ".join(f"{mean.largest:.2f} divided by {rule}" for rule, mean in means.items())
    each = (
        f"Divided by {rule}: standard deviation of the scores {mean.score_std:.2f}, "
        f"entropy {mean.entropy:.2f} of the most."
        for rule, mean in means.items()
    )
    charts = f"Three bar charts of {n_keys} weights at d_k = {d_k}"
    return f"{charts}; mean largest weight {largest}.\n{' '.join(each)}"


def scaling_explorer(
    d_ks: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    *,
    start: int = 64,
    n_keys: int = 8,
    n_draws: int = 4_000,
    seed: int = 5,
) -> MovingDrawing:
    """Return a moving figure: the weights of one query over its keys under three divisors, by d_k.

    The bars belong to one query and its keys, which grow entry by entry as the slider moves; the
    numbers under them are means over n_draws draws, from `experiments.scaling_rules`. (Seed 5 is a
    query whose largest weight stays near that mean; a single draw may lie far from it.)

    Raises:
        ValueError: when `start` is not among d_ks.
    """
    if start not in d_ks:
        raise ValueError(f"start must be one of {tuple(d_ks)}; got {start}")
    raw_scores = experiments.growing_scores(d_ks, n_keys=n_keys, seed=seed)
    averages = [experiments.scaling_rules(d_k, n_keys=n_keys, n_draws=n_draws) for d_k in d_ks]
    frames, labels, rows = [], [], []
    for scores, d_k, means in zip(raw_scores, d_ks, averages, strict=True):
        frames.append(_frame(scores, d_k, means, n_draws))
        labels.append(_told(d_k, n_keys, means))
        numbers = ((mean.score_std, mean.largest, mean.entropy) for mean in means.values())
        rows.append([str(d_k), *(f"{number:.2f}" for three in numbers for number in three)])
    columns = product(DIVISORS.values(), ("std", "largest", "entropy"))
    return MovingDrawing.from_frames(
        frames,
        LEFT + 3 * STEP,
        BASE + 115,
        controls=(Control("d_k", "dₖ", tuple(map(str, d_ks)), list(d_ks).index(start)),),
        labels=labels,
        table=[["dₖ", *(f"{divisor}: {name}" for divisor, name in columns)], *rows],
    )
