"""Directions: vectors that turn in the plane, and random ones in many dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import cos, hypot, radians, sin

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.charts import canvas
from attnbook.figures.drawing import (
    COLOURS,
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
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnbook.figures.vectors import Point, axes_of_plane, name_at_tip, past_tip, turning_arrow
from attnlib.numpy_dense import softmax

WIDTH = 440.0


def _around(degrees: float, length: float) -> Array:
    """Return the vector of this length and angle, with no rounding noise on the axes."""
    return np.round(length * np.array([cos(radians(degrees)), sin(radians(degrees))]), 12)


def turned_query(
    key: ArrayLike,
    value: ArrayLike,
    labels: Sequence[str],
    *,
    features: tuple[str, str],
    answer: str,
) -> MovingDrawing:
    """Return a moving figure: a query turns among named keys, and its soft lookup follows.

    The query is as long as the longest key, and can be dragged. Beside the plane stand the score
    and the weight of each key; below, `answer` names the weighted sum of the values on a line from
    the smallest value to the largest. `features` are the names of the two entries.

    Shapes:
        key (n, 2), value (n,), one label for each of the n keys.
    """
    keys, values = np.asarray(key, dtype=np.float64), np.asarray(value, dtype=np.float64)
    angles = range(0, 360, TURN)
    length = float(np.max(np.hypot(*keys.T)))
    wedges = _ring(CENTRE, 0, ROOM + 26, "angle", TURN)

    def draw(place: int) -> Frame:
        degrees = angles[place]
        query = _around(degrees, length)
        scores = keys @ query
        weights = softmax(scores)
        each = ", ".join(f"{k} {w:.2f}" for k, w in zip(labels, weights, strict=True))
        told = f"Query at {degrees}°: {answer} {weights @ values:.2f}; weights {each}."
        numbers = [*(decimal(s) for s in scores), *(f"{w:.2f}" for w in weights)]
        elements = _lookup(query, degrees, keys, values, labels, features, answer) + wedges
        return Frame(elements, told, [(f"{degrees}°", *numbers, f"{weights @ values:.2f}")])

    header = ("query at", *(f"q·k, {k}" for k in labels), *(f"weight, {k}" for k in labels), answer)
    options = tuple(f"{a}°" for a in angles)
    control = Control("angle", "query at", options, angles.index(30))
    return moving(draw, [control], WIDTH, LINE + 48, columns=header)


def _ring(centre: Point, inner: float, outer: float, control: str, step: int) -> str:
    """Return unseen pieces of a ring, over which a control is dragged to the angle of each."""
    parts = []
    for place, angle in enumerate(range(0, 360, step)):
        sides = [_around(angle + side * step / 2, 1.0) for side in (-1, 1)]
        corners = [(sides[0], inner), (sides[0], outer), (sides[1], outer), (sides[1], inner)]
        points = " ".join(
            f"{number(centre[0] + far * x)},{number(centre[1] - far * y)}"
            for (x, y), far in corners[1 - bool(inner) :]
        )
        parts.append(tag("polygon", points=points, fill="ink", fill_opacity="0", class_="attn-hit",
                         data_drag=f"{control}:{place}"))
    return "".join(parts)


# The first figure: the degrees between two angles, the centre of the plane, the columns of the
# table, the line of the answer.
TURN, CENTRE, ROOM = 15, (104.0, 136.0), 72.0
NAMES, SCORES, BARS, BAR, LINE = 228.0, 324.0, 340.0, 62.0, 286.0


def _lookup(
    query: Array,
    degrees: int,
    keys: Array,
    values: Array,
    labels: Sequence[str],
    features: tuple[str, str],
    answer: str,
) -> str:
    """Return the drawing of one query: the plane, the table of the keys, the line of the answer."""
    unit = ROOM / hypot(*query)
    scores = keys @ query
    weights = softmax(scores)
    x, y = CENTRE
    vector = f"({decimal(query[0])}, {decimal(query[1])})"
    body = [
        headline(8, 20, f"query at {degrees}°: q = {vector}", "title"),
        axes_of_plane(CENTRE, 90),
        tag("circle", cx=x, cy=y, r=ROOM, fill="none", stroke="grid"),
        axis_title(x + 94, y + 4.5, features[0], text_anchor="start"),
        axis_title(x + 6, y - 86, features[1], text_anchor="start"),
    ]
    for label, vector_of in zip(labels, keys, strict=True):
        body.append(turning_arrow(CENTRE, vector_of, unit, "key", f"key-{label}", "5 4"))
        side = 1 if vector_of[1] < 0 else -1
        at = past_tip(CENTRE, vector_of, unit, 6)
        body.append(text(at[0], at[1] + 14 * side, label, fill="key"))
    body.append(turning_arrow(CENTRE, query, unit, "query", "query"))
    # Its name stands on the arrow, where no name of a key can be.
    at = past_tip(CENTRE, query, unit, -0.45 * ROOM)
    body.append(tag("circle", cx=at[0], cy=round(at[1] - 4.5, 1), r=9, fill="paper",
                    stroke="query", stroke_width=1.5, data_part="disc"))
    body.append(text(at[0], at[1] - 0.5, "q", fill="query", font_weight="600", data_part="name"))
    top = 74.0
    body += [
        axis_title(NAMES, top - 12, "key", text_anchor="start"),
        axis_title(SCORES, top - 12, "q·k", text_anchor="end"),
        axis_title(BARS, top - 12, "weight", text_anchor="start"),
    ]
    for j, (label, score, weight) in enumerate(zip(labels, scores, weights, strict=True)):
        row = top + 40 * j
        body += [
            text(NAMES, row + 21, label, text_anchor="start", fill="key"),
            text(SCORES, row + 21, decimal(score), text_anchor="end", data_part=f"score-{j}"),
            rect(BARS, row + 6, BAR, 22, stroke="grid"),
            rect(BARS, row + 6, round(BAR * weight, 1), 22, "weight", data_part=f"bar-{j}"),
            text(BARS + BAR + 6, row + 21, f"{weight:.2f}", text_anchor="start",
                 data_part=f"weight-{j}"),
        ]
    return "".join(body) + _answer_line(float(weights @ values), values, labels, answer)


def _answer_line(estimate: float, values: Array, labels: Sequence[str], answer: str) -> str:
    """Return the line on which the answer lies between the smallest value and the largest."""
    low, wide = float(values.min()), float(np.ptp(values))

    def place(at: float) -> float:
        return round(60 + (WIDTH - 120) * (at - low) / wide, 1)

    here = place(estimate)
    marker = " ".join(f"{number(x)},{number(LINE + y)}" for x, y in
                      ((here, -2), (here - 6, -13), (here + 6, -13)))
    body = [
        line(place(low), LINE, place(low + wide), LINE, "muted"),
        tag("polygon", points=marker, fill="output", data_part="marker"),
        text(
            here,
            LINE - 20,
            f"{answer} {estimate:.2f}",
            fill="output",
            font_weight="600",
            data_part="answer",
        ),
    ]
    for label, at in zip(labels, values, strict=True):
        body.append(line(place(at), LINE - 5, place(at), LINE + 5, "value"))
        body.append(text(place(at), LINE + 21, f"{at:g}", fill="value"))
        body.append(text(place(at), LINE + 38, label, fill="key"))
    return "".join(body)


# The second figure: the degrees between two angles, the centre of its plane, its words, and the bar
# of the product.
TURN_OF_TWO, MIDDLE, SPAN, WORDS, BASE = 30, (100.0, 132.0), 84.0, 206.0, 274.0


def turned_pair(lengths: tuple[float, float] = (2.0, 1.5)) -> MovingDrawing:
    """Return a moving figure: a query and a key of fixed lengths turn, and q·k follows.

    Two sliders turn the two vectors, and so does dragging: the longer one outside, the shorter one
    inside. The figure writes the dot product out twice, entry by entry
    and by lengths and angle. It also draws the shadow of the key on the direction of the query: q·k
    is the length of this shadow, with its sign, times the length of the query.
    """
    angles = range(0, 360, TURN_OF_TWO)
    most = lengths[0] * lengths[1]

    def draw(of_q: int, of_k: int) -> Frame:
        turned = angles[of_q], angles[of_k]
        between = abs((turned[1] - turned[0] + 180) % 360 - 180)
        value, cosine = most * _around(between, 1.0)[0], decimal(_around(between, 1.0)[0])
        told = f"q at {turned[0]}°, k at {turned[1]}°: angle {between}°, q·k = {decimal(value)}."
        rings = _ring(MIDDLE, bound, SPAN + 24, outer, TURN_OF_TWO)
        rings += _ring(MIDDLE, 0, bound, inner, TURN_OF_TWO)
        row = (f"{between}°", cosine, decimal(value))
        return Frame(_pair(turned, between, lengths) + rings, told, [row])

    # The longer vector is dragged outside, the shorter one inside of a ring.
    inner, outer = ("k", "q") if lengths[1] <= lengths[0] else ("q", "k")
    bound = SPAN * (1 + min(lengths) / max(lengths)) / 2
    options = tuple(f"{angle}°" for angle in angles)
    made = moving(
        draw,
        [Control("q", "q at", options), Control("k", "k at", options, angles.index(60))],
        WIDTH,
        BASE + 40,
        columns=("angle between q and k", "cos θ", "q·k"),
    )
    head, *rows = made.table
    return replace(made, table=(head, *sorted(rows, key=lambda row: int(row[0][:-1]))))


def _pair(turned: tuple[int, int], between: int, lengths: tuple[float, float]) -> str:
    """Return the drawing of one query and one key, and of their product."""
    q, k = (_around(a, n) for a, n in zip(turned, lengths, strict=True))
    unit = SPAN / max(lengths)
    cosine = float(_around(between, 1.0)[0])
    value = lengths[0] * lengths[1] * cosine
    name = "plus" if value >= 0 else "minus"
    foot = np.array(MIDDLE) + unit * lengths[1] * cosine * np.array([q[0], -q[1]]) / lengths[0]
    x, y = (round(float(entry), 1) for entry in foot)
    end = np.round(np.array(MIDDLE) + unit * np.array([k[0], -k[1]]), 1)
    shown = [[decimal(entry) for entry in vector] for vector in (q, k)]
    sides = [v if not v.startswith("−") else f"({v})" for vector in shown for v in vector]
    body = [
        headline(8, 20, f"the angle between q and k: θ = {between}°", "title"),
        axes_of_plane(MIDDLE, SPAN + 4),
        tag("line", x1=end[0], y1=end[1], x2=x, y2=y, stroke="muted", stroke_dasharray="3 3",
            data_part="drop"),
        turning_arrow(MIDDLE, q, unit, "query", "q"),
        tag("line", x1=MIDDLE[0], y1=MIDDLE[1], x2=x, y2=y, stroke="key", stroke_width=9,
            stroke_opacity="0.4", data_part="shadow"),
        turning_arrow(MIDDLE, k, unit, "key", "k", "5 4"),
        name_at_tip(MIDDLE, q, unit, "q", "query"),
        name_at_tip(MIDDLE, k, unit, "k", "key"),
    ]
    length_q, length_k = (f"{n:g}" for n in lengths)
    lines = [
        ("entries-q", f"q = ({', '.join(shown[0])}), length {length_q}", "query"),
        ("entries-k", f"k = ({', '.join(shown[1])}), length {length_k}", "key"),
        ("", "entry by entry:", "muted"),
        ("by-entries", f"{sides[0]}·{sides[2]} + {sides[1]}·{sides[3]}", "ink"),
        ("", "by lengths and angle:", "muted"),
        ("by-angle", f"{length_q} · {length_k} · cos {between}°", "ink"),
        ("shadow-length", f"shadow of k: {decimal(lengths[1] * cosine)}", "key"),
        ("product", f"q·k = {decimal(value)}", "ink"),
    ]
    for row, (part, words, fill) in enumerate(lines):
        strong = {"font_weight": "600"} if part == "product" else {}
        body.append(text(WORDS, 56 + 23 * row, words, text_anchor="start", fill=fill,
                         data_part=part or None, **strong))
    return "".join(body) + _product_bar(value, lengths[0] * lengths[1], name)


def _product_bar(value: float, most: float, name: str) -> str:
    """Return the bar of the product, on a line from minus the most to the most."""
    centre, reach = WIDTH / 2, WIDTH / 2 - 60
    wide = round(reach * abs(value) / most, 1)
    left = round(centre - (wide if value < 0 else 0.0), 1)
    body = [
        rect(left, BASE - 14, wide, 14, name, data_part="bar"),
        line(centre - reach, BASE, centre + reach, BASE, "muted"),
        text(20, BASE + 2, "q·k", fill="muted"),
    ]
    for at in (-1, 0, 1):
        x = centre + at * reach
        body.append(line(x, BASE - 5, x, BASE + 5, "muted"))
        body.append(text(x, BASE + 21, f"{at * most:g}".replace("-", "−")))
    return "".join(body)


def cosine_histograms(samples: Mapping[int, ArrayLike]) -> Drawing:
    """Return a drawing of the cosines of random pairs for each d_k, one above the other.

    Shapes:
        samples maps d_k to cosines (n,). Each histogram is drawn to its own peak, since its width
        is what is compared.

    >>> print(cosine_histograms({2: [1.0, 0.0, -1.0]}).alt[:66])
    Histograms of cosines between random vectors, on one axis from −1
    """
    cosines = {d_k: np.asarray(sample, dtype=np.float64) for d_k, sample in samples.items()}
    with canvas(1.0 * len(cosines) + 0.7) as (figure, [axes]):
        for row, (d_k, sample) in enumerate(cosines.items()):
            base = len(cosines) - 1 - row
            counts, edges = np.histogram(sample, bins=np.linspace(-1.0, 1.0, 81))
            tall = base + 0.72 * counts / counts.max()
            axes.stairs(tall, edges, baseline=base, fill=True, color=COLOURS["plus"])
            words = f"dₖ = {d_k}: spread {_spread(sample):.2f}"
            axes.text(-1.0, base + 0.86, words, va="center", ha="left")
        axes.set_xlim(-1.0, 1.0)
        axes.set_ylim(0.0, len(cosines))
        axes.set_yticks([])
        axes.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0], ["−1", "−0.5", "0", "0.5", "1"])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("cos θ (each histogram drawn to its own peak)")
        spreads = ", ".join(f"{_spread(s):.2f} at d_k = {d}" for d, s in cosines.items())
        alt = (
            "Histograms of cosines between random vectors, on one axis from −1 to 1, one for each "
            f"d_k. Spread: {spreads}."
        )
        return Drawing.from_matplotlib(figure, alt)


def _spread(sample: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(sample**2)))
