"""The drawings of chapters 03 and 04: how scores spread, and what three divisors do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnbook import experiments
from attnbook.figures.charts import SERIES, canvas, powers_axis
from attnbook.figures.drawing import (
    Array,
    Drawing,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import HALO, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

# How a divisor is written in a picture.
DIVISORS = {"1": "÷ 1 (no scaling)", "sqrt(d_k)": "÷ √dₖ", "d_k": "÷ dₖ"}


def score_growth(samples: Mapping[int, ArrayLike]) -> Drawing:
    """Return a drawing of how sampled scores spread, as they are and divided by √d_k.

    There is one histogram a d_k, which lies on its side and is mirrored, with lines at ±√d_k, or at
    ±1 after the division. All are equally wide, so only their heights differ, and those of the
    divided scores do not. Below each stands the standard deviation of its sample.

    Shapes:
        samples: d_k to scores of any number, 2 or more, the same for each d_k.
    """
    step, half, middle = 164.0 / len(samples), 112.0, 140.0
    largest, foot = sqrt(max(samples)), middle + half + 18
    n_scores = len(np.asarray(next(iter(samples.values()))))
    body = [
        text(4, y, name, text_anchor="start", font_weight="600")
        for name, y in (("dₖ", foot), ("std", foot + 19))
    ]
    stds = {}
    for left, words, divided in (
        (40.0, "q·k spreads like √dₖ", False), (244.0, "q·k ÷ √dₖ: all alike", True)
    ):
        body.append(text(left + 82, 18, words, font_weight="600"))
        # The widest histogram is as high as each that is divided.
        unit = half / (3.4 * (1.0 if divided else largest))
        for tick in range(-2, 3):
            level, value = round(middle - half * tick / 3.4, 1), tick * (1 if divided else largest)
            body.append(line(left, level, left + 164, level, "grid"))
            body.append(text(left - 4, level + 4.5, decimal(value, 0), text_anchor="end"))
        for column, (d_k, sample) in enumerate(samples.items()):
            x, root = left + step * (column + 0.5), 1.0 if divided else sqrt(d_k)
            scores = np.asarray(sample, dtype=np.float64) / (sqrt(d_k) if divided else 1.0)
            stds[d_k, divided] = float(np.std(scores))
            edges = np.linspace(-3.4 * root, 3.4 * root, 35)
            counts = np.histogram(scores.round(6), edges)[0]
            wide = np.round(0.42 * step * counts / counts.max(), 1)
            heights = np.round(middle - unit * edges, 1)
            right = [(x + w, y) for w, two in zip(wide, pairwise(heights), strict=True)
                     for y in two]
            outline = [*right, *((2 * x - a, b) for a, b in reversed(right))]
            points = " ".join(f"{number(a)},{number(b)}" for a, b in outline)
            body.append(tag("polygon", points=points, fill="muted", fill_opacity=0.45))
            for sign in (1, -1):
                y = round(middle - sign * unit * root, 1)
                body.append(tag("line", x1=x - 0.44 * step, y1=y, x2=x + 0.44 * step, y2=y,
                                stroke="plus", stroke_width=2))
            body.append(text(x, foot, str(d_k)))
            body.append(text(x, foot + 19, f"{stds[d_k, divided]:.1f}"))
    # The scores of small d_k leave room for what a shape and a line are.
    body += [
        tag("polygon", points="44,38 44,48 58,48 58,38", fill="muted", fill_opacity=0.45),
        text(64, 48, f"{n_scores:,} scores each", text_anchor="start", **HALO),
        tag("line", x1=44, y1=63, x2=58, y2=63, stroke="plus", stroke_width=2),
        text(64, 67, "±√dₖ", text_anchor="start", fill="plus", font_weight="600", **HALO),
    ]
    told = [
        ", ".join(f"{stds[d_k, divided]:.1f} at d_k = {d_k}" for d_k in samples)
        for divided in (False, True)
    ]
    alt = (
        "Histograms of sampled scores, each with lines at plus and minus √d_k: standard deviation "
        f"{told[0]}. Beside them the same scores divided by √d_k: {told[1]}."
    )
    return Drawing.from_elements("".join(body), 412, foot + 27, alt)


def rule_curves(
    d_ks: Sequence[int], measured: Mapping[str, Mapping[str, Sequence[float]]]
) -> Drawing:
    """Return a drawing with one panel for each thing that is measured, and one line a rule.

    `measured` maps the title of a panel to what each rule has at each d_k. Both axes are
    logarithmic, and the panels share the vertical one.
    """
    numbers = [x for by_rule in measured.values() for found in by_rule.values() for x in found]
    with canvas(3.9, len(measured)) as (figure, panels):
        words = []
        for axes, (title, by_rule) in zip(panels, measured.items(), strict=True):
            for (rule, found), look in zip(by_rule.items(), SERIES, strict=True):
                axes.plot(d_ks, found, label=DIVISORS[rule], markersize=6, **look)
                words.append(f"{title}, {rule}: from {found[0]:.3g} to {found[-1]:.3g}")
            powers_axis(axes, d_ks, len(measured))
            axes.set_xlabel("dₖ")
            axes.set_title(title)
            axes.grid(axis="y")
            axes.set_yscale("log")
            axes.set_ylim(min(numbers) / 2, max(numbers) * 2)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        alt = f"Three rules over d_k from {d_ks[0]} to {d_ks[-1]}. " + "; ".join(words) + "."
        return Drawing.from_matplotlib(figure, alt)


# The walks: their left and right edge, their middle, and half their height.
WALK_LEFT, WALK_RIGHT, MIDDLE, HALF = 46.0, 398.0, 118.0, 82.0
# The three charts below them: where the first begins, their distance and width, foot and height.
LEFT, STEP, PANEL, BASE, TALL = 26.0, 142.0, 132.0, 366.0, 76.0
# From one to the next √d_k grows by 1.
SQUARES = tuple(n * n for n in range(1, 33))
# How a divisor is written in these charts, and the name of its colour.
SIGNS = {rule: divisor.partition(" (")[0] for rule, divisor in DIVISORS.items()}
LOOKS = dict(zip(experiments.RULES, ("minus", "plus", "muted"), strict=True))


def _verdict(largest: float, n_keys: int) -> str:
    """Return in words how uneven weights are, by the largest of them."""
    if largest > 0.75:
        return f"one key takes {'all' if largest > 0.995 else 'most'}"
    return "nearly equal" if largest < 1.3 / n_keys else "uneven"


def _backdrop(walks: Array, d_ks: Sequence[int], across: float, unit: float) -> str:
    """Return what no slider moves: the axes, the region ±√d_k, and all walks to their end.

    Across, a walk has `across` pixels for each term, so the region is as wide as √d_k.
    """
    n_entries, n_keys = walks.shape
    root = sqrt(n_entries)
    places = [(step / 24) ** 2 * n_entries for step in range(25)]  # denser where √ is steep
    edges = [
        [(WALK_LEFT + across * n, MIDDLE - sign * unit * sqrt(n)) for n in places]
        for sign in (1, -1)
    ]
    upper, lower = (
        " ".join(f"{number(round(x, 1))},{number(round(y, 1))}" for x, y in edge)
        for edge in (edges[0], edges[1][::-1])
    )
    body = [
        axis_title(14, MIDDLE, "score q·k", upright=True),
        axis_title(14, BASE - TALL / 2, "weight", upright=True),
        tag("polygon", points=f"{upper} {lower}", fill="plus", fill_opacity=0.16, stroke="plus"),
    ]
    for score in (root, 0, -root):
        y = round(MIDDLE - unit * score, 1)
        body.append(text(WALK_LEFT - 6, y + 4.5, decimal(score, 0), text_anchor="end"))
    body.append(line(WALK_LEFT, MIDDLE, WALK_RIGHT, MIDDLE, "muted"))
    middle = (WALK_LEFT + WALK_RIGHT) / 2
    body.append(axis_title(middle, MIDDLE + HALF + 36, "number of terms added up, dₖ"))
    # A corner at each d_k, where heads can stand, and others at equal distances.
    seen = sorted({*d_ks, *(round(n_entries * part / 64) for part in range(1, 65))} - {0})
    xs = np.round(WALK_LEFT + across * np.array([0, *seen]), 1)
    paths = []
    for key in range(n_keys):
        scores = np.concatenate([[0.0], walks[np.array(seen) - 1, key]])
        ys = np.round(MIDDLE - unit * scores, 1)
        steps = " ".join(
            f"{number(dx)} {number(dy)}" for dx, dy in zip(np.diff(xs), np.diff(ys), strict=True)
        )
        d = f"M{number(xs[0])} {number(ys[0])}l{steps}".replace(" -", "-")
        paths.append(tag("path", d=d, stroke_width="1", data_part=f"walk-{key}"))
    look = {"fill": "none", "stroke": "key", "stroke_linejoin": "round"}
    return "".join(body) + tag("g", "".join(paths), **look)


def _panel(panel: int, title: str, look: str, weights: Array, leader: int, verdict: str) -> str:
    """Return the bar chart of the weights under one divisor, the leader's in full colour."""
    n_keys, left = len(weights), LEFT + STEP * panel
    bar, heights = PANEL / n_keys, np.round(TALL * weights, 1)
    x = left + min(max(bar * (leader + 0.5), 14), PANEL - 14)
    bars = "".join(
        tag("rect", x=bar * key + 2, width=bar - 4, height=tall, data_part=f"bar-{panel}-{key}")
        for key, tall in enumerate(heights)
    )
    most = tag("rect", x=bar * leader + 2, width=bar - 4, height=heights[leader],
               data_part=f"most-{panel}")
    names = "".join(
        tag("text", str(key), x=left + bar * (key + 0.5), y=BASE + 15) for key in range(n_keys)
    )
    return "".join([
        text(left + PANEL / 2, BASE - TALL - 26, title, font_weight="600", font_size=15, fill=look,
             data_part=f"title-{panel}"),
        line(left, BASE - TALL, left + PANEL, BASE - TALL, "grid"),
        # Bars that stand on the line grow upwards, so that only their height changes.
        tag("g", tag("g", bars, fill_opacity=0.35, stroke="weight") + most, fill="weight",
            transform=f"translate({left:g} {BASE:g}) scale(1 -1)"),
        line(left, BASE, left + PANEL, BASE, "muted"),
        tag("g", names, fill="muted", text_anchor="middle", font_size=13),
        text(x, BASE - heights[leader] - 5, f"{weights[leader]:.2f}", fill="weight",
             font_weight="600", data_part=f"largest-{panel}", **HALO),
        text(left + PANEL / 2, BASE + 34, verdict, data_part=f"verdict-{panel}",
             font_weight="600" if look == "plus" else None),
    ])


def three_divisors(d_k: int = 64) -> Drawing:
    """Return the still drawing of what three divisors make of the scores of `scaling_explorer`."""
    scores = experiments.growing_scores(range(1, SQUARES[-1] + 1), seed=396)[d_k - 1]
    leader = int(scores.argmax())
    body, told = "", []
    for panel, (rule, divisor) in enumerate(experiments.RULES.items()):
        weights = softmax(scores / divisor(d_k))
        title = SIGNS[rule] + ("" if rule == "1" else f" = {divisor(d_k):g}")
        verdict = _verdict(float(weights[leader]), len(scores))
        body += _panel(panel, title, LOOKS[rule], weights, leader, verdict)
        told.append(f"{title}: {weights[leader]:.2f}, {verdict}")
    body += rect(LEFT + STEP - 4, BASE - TALL - 46, PANEL + 8, TALL + 88, rx=6, stroke="plus",
                 stroke_width=2)
    alt = f"The largest of {len(scores)} weights at d_k = {d_k}. {'; '.join(told)}."
    shown = tag("g", body, transform=f"translate(-22 {number(TALL + 47 - BASE)})")
    return Drawing.from_elements(shown, 422, TALL + 90, alt)


def scaling_explorer(
    d_ks: Sequence[int] = SQUARES,
    *,
    start: int = 576,
    n_draws: int = 1_000,
) -> MovingDrawing:
    """Return a moving figure: the scores of one query as random walks, and three ways to divide.

    The score of each key is a sum that grows term by term; the slider says how many of the terms
    are added up, d_k, and a pointer can drag it. A region shows ±√d_k. Below stand the weights that
    the scores give when they are divided by 1, by √d_k and by d_k, the largest in full colour. The
    table has, beside these largest weights, means over n_draws other draws, from
    `experiments.scaling_rules`. Seed 396 is a fair draw: from d_k = 16 on, its largest weights
    differ from the means over draws by less than 0.08 under each divisor (root mean square).
    """
    walks = experiments.growing_scores(range(1, d_ks[-1] + 1), seed=396)
    n_keys = walks.shape[1]
    across = (WALK_RIGHT - WALK_LEFT) / d_ks[-1]
    unit = HALF / max(2 * sqrt(d_ks[-1]), 1.02 * float(np.abs(walks).max()))
    leaders = [int(walks[d_k - 1].argmax()) for d_k in d_ks]
    backdrop, signs = _backdrop(walks, d_ks, across, unit), list(SIGNS.values())
    xs = [round(WALK_LEFT + across * d_k, 1) for d_k in d_ks]
    foot = MIDDLE + HALF + 17
    # A pointer sets the d_k whose line is nearest.
    borders = [WALK_LEFT, *((a + b) / 2 for a, b in pairwise(xs)), WALK_RIGHT + 20]
    hits = tag("g", "".join(
        tag("rect", x=a, y=MIDDLE - HALF, width=b - a, height=2 * HALF, data_drag=f"d_k:{place}")
        for place, (a, b) in enumerate(pairwise(borders))
    ), fill_opacity="0")

    def draw(place: int) -> Frame:
        d_k, x = d_ks[place], xs[place]
        scores, root, leader = walks[d_k - 1], sqrt(d_k), leaders[place]
        heads = np.round(MIDDLE - unit * scores, 1)
        over: Any = {"font_weight": "600", "stroke": "paper", "stroke_width": 3,
                     "paint_order": "stroke"}
        now = "now " * (leader != leaders[max(place - 1, 0)])
        # What goes along with d_k stands to its left where there is no room to its right.
        beside: dict[str, Any] = {"x": 9, "text_anchor": "start"}
        if x > 300:
            beside = {"x": -9, "text_anchor": "end"}
        # The leader's walk is thick: the only thing that changes in what lies behind.
        thick = f'stroke-width="1" data-part="walk-{leader}"'
        body = [
            backdrop.replace(thick, thick.replace("1", "3", 1)),
            rect(x, MIDDLE - HALF, WALK_RIGHT + 4 - x, 2 * HALF, "paper", fill_opacity=0.85,
                 data_part="curtain"),
            rect(LEFT + STEP - 4, BASE - TALL - 46, PANEL + 8, TALL + 88, rx=6, stroke="plus",
                 stroke_width=2),
            *(text(WALK_LEFT + across * n, foot, f"{n:,.0f}", fill="muted",
                   opacity=float(abs(WALK_LEFT + across * n - x) > 42), data_part=f"tick-{n:g}")
              for n in (d_ks[-1] * quarter / 4 for quarter in range(5))),
            # What goes along with d_k, drawn at its own 0.
            tag("g", "".join([
                rect(-23, foot - 14, 46, 19, "ink", rx=9),
                text(0, foot, f"{d_k:,}", fill="paper", font_weight="600", data_part="d_k"),
                line(0, MIDDLE - HALF, 0, MIDDLE + HALF, "ink"),
                rect(-2.5, round(MIDDLE - unit * root, 1), 5, round(2 * unit * root, 1), "plus",
                     data_part="root"),
                tag("g", "".join(
                    tag("circle", cy=y, r="5" if key == leader else "3", data_part=f"head-{key}")
                    for key, y in enumerate(heads)
                ), fill="key"),
                text(y=heads[leader] - 7, words=f"{now}key {leader} leads", fill="key",
                     data_part="leader", **beside, **over),
                text(y=round(max(MIDDLE + unit * root, *heads) + 18, 1), fill="plus",
                     words=f"±√dₖ = ±{root:.3g}", data_part="root-name", **beside, **over),
            ]), transform=f"translate({number(x)} 0)", data_part="now"),
            text(LEFT - 5, BASE - TALL + 5, "1", text_anchor="end", fill="muted"),
            text(LEFT - 5, BASE + 4, "0", text_anchor="end", fill="muted"),
        ]
        largest = []
        for panel, (rule, divisor) in enumerate(experiments.RULES.items()):
            weights = softmax(scores / divisor(d_k))
            largest.append(float(weights[leader]))
            title = SIGNS[rule] + ("" if rule == "1" else f" = {round(divisor(d_k), 1):,g}")
            verdict = _verdict(largest[-1], n_keys)
            body.append(_panel(panel, title, LOOKS[rule], weights, leader, verdict))
        title = f"Undivided, key {leader} takes {largest[0]:.2f}; ÷ √dₖ leaves it {largest[1]:.2f}"
        body.append(headline(4, 16, title, "headline"))
        means = experiments.scaling_rules(d_k, n_draws=n_draws).values()
        told = (
            f"dₖ = {d_k}, the scores spread by about ±{root:.3g}; largest weight "
            + ", ".join(f"{a:.2f} {sign}" for a, sign in zip(largest, signs, strict=True))
            + f".\nThe scores of {n_keys} keys as walks; below them bars of their weights."
        )
        over_draws = (n for mean in means for n in (mean.score_std, mean.largest, mean.entropy))
        return Frame(
            "".join(body) + hits, told, [(str(d_k), *(f"{n:.2f}" for n in (*largest, *over_draws)))]
        )

    names = ("std of scores", "largest weight", "entropy")
    return moving(
        draw,
        [Control("d_k", "dₖ", tuple(map(str, d_ks)), list(d_ks).index(start), pace=0.3)],
        448,
        BASE + 44,
        columns=[
            "dₖ",
            *(f"{sign}: largest weight drawn" for sign in signs),
            *(f"{sign}: {name}, mean of {n_draws:,} draws" for sign, name in product(signs, names)),
        ],
        about="how scores spread",
    )
