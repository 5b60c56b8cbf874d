"""Attention for one token, a step at a time, in arrows and bars: a figure of chapter 05."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, degrees, hypot

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnbook.figures.vectors import Point
from attnlib.numpy_dense import attention_scores, softmax

# What each step is called, and what it does, as the line above the drawing says it.
STEPS = (
    ("query", "each key casts a shadow on the query q"),
    ("products", "shadow × length of q ({}) = product q·k"),
    ("scale", "each product ÷ √2, as dₖ = 2, is a score"),
    ("exp", "the exponential of a score is positive"),
    ("weights", "divided by their sum, they make up 1: weights"),
    ("shares", "each value times its weight is its share"),
    ("output", "laid head to tail, the shares end at the output o"),
)
# The left column has the two planes: where it begins, its width, the top of each plane, and their
# height.
LEFT, WIDE, QUERY_TOP, VALUE_TOP, TALL = 4.0, 212.0, 78.0, 258.0, 150.0
# The right column has the bars: names, where bars may begin and end, and where numbers end.
NAMES, BARS_LEFT, BARS_RIGHT, RIGHT = 230.0, 262.0, 394.0, 446.0
ROW, THICK, GAP = 19.0, 13.0, 34.0
# Where the three entries of a value point, on a plane whose y points up: a box seen from a corner.
OBLIQUE = np.array([[0.0, 1.0], [1.0, 0.0], [-0.45, -0.6]])


def _vector(entries: Array) -> str:
    """Return a vector as text, with two decimals."""
    return f"({', '.join(decimal(entry) for entry in entries.tolist())})"


def _summing(rows: Array) -> int:
    """Return the fewest decimals, from two to five, with which each row adds up as it is printed.

    >>> _summing(np.array([[0.25, 0.5]])), _summing(np.array([[0.354, 0.354]]))
    (2, 3)
    """
    for digits in range(2, 5):
        if np.allclose(rows.round(digits).sum(axis=1), rows.sum(axis=1).round(digits)):
            return digits
    return 5


def _arrow(
    start: Array, along: Array, look: str, part: str | None = None, *,
    dash: str | None = None, shown: float = 1.0, thick: float = 2.5,
) -> str:
    """Return an arrow of any length, which may be 0, from a point along a vector, in pixels."""
    length = hypot(*along)
    unit = along / length if length else np.array([1.0, 0.0])
    head = min(10.0, 0.6 * length)
    foot = start + (length - head) * unit
    across = 0.5 * head * np.array([unit[1], -unit[0]])
    corners = np.round([start + along, foot + across, foot - across], 1)
    (x1, y1), (x2, y2) = np.round([start, foot], 1)
    shaft = tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=thick, stroke_dasharray=dash,
                data_part=part and f"{part}-shaft")
    points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    tip = tag("polygon", points=points, stroke="none", data_part=part and f"{part}-tip")
    return tag("g", shaft + tip, fill=look, stroke=look, opacity=shown, data_part=part)


def _beyond(start: Array, along: Array, beyond: float) -> Point:
    """Return the point so many pixels past an arrow's tip, for a name in letters of 13."""
    length = hypot(*along)
    x, y = start + along * (1 + beyond / length if length else 0)
    return round(float(x), 1), round(float(y) + 4.5, 1)


def _fit(points: Array, top: float, tall: float) -> tuple[Array, float]:
    """Return where 0 lies, and pixels a unit, so that points and names past them fit the column."""
    corners = np.vstack([np.zeros(2), points])
    low, high = corners.min(axis=0), corners.max(axis=0)
    across, up = np.maximum(high - low, 0.1)
    unit = round(min((WIDE - 44) / across, (tall - 36) / up), 1)
    middle = unit * (low + high) / 2
    return np.round([LEFT + WIDE / 2 - middle[0], top + tall / 2 + middle[1]], 1), unit


def attention_stepper(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, tokens: Sequence[str]
) -> MovingDrawing:
    """Return a moving figure: the output of each token, from arrows to bars to arrows, in steps.

    The query crosses the keys on a plane. The projections of the keys on the query become bars,
    which are multiplied by the query's length, scaled, raised by the exponential, and put end to
    end as the weights. The values, with their three entries drawn obliquely, shrink to their shares
    and add up to the output. Each panel has the numbers of its steps, and what is not of this step
    is pale. The figure opens on the output of the last token; the table has all numbers.

    Shapes:
        query and key (T, 2), value (T, 3), T tokens; made for T up to 4.
    """
    queries, keys, values = (np.asarray(a, dtype=np.float64) for a in (query, key, value))
    n_tokens = len(tokens)
    scores = attention_scores(queries, keys)
    raw_scores, exponentials, weights = queries @ keys.T, np.exp(scores), softmax(scores)
    outputs, digits = weights @ values, _summing(exponentials)
    lengths = np.hypot(*queries.T)
    shadows_on = raw_scores / np.where(lengths, lengths, 1.0)[:, None]
    plane, plane_unit = _fit(np.vstack([queries, keys]), QUERY_TOP, TALL)
    space, space_unit = _fit(values @ OBLIQUE, VALUE_TOP, TALL)
    # From here on in pixels, whose y points down.
    down = np.array([1.0, -1.0])
    flat_keys, flat_values = plane_unit * keys * down, space_unit * values @ OBLIQUE * down
    # Bars of scores go to both sides of their 0; scores and exponentials have one unit.
    low, high = min(0.0, float(raw_scores.min())), max(0.0, float(raw_scores.max()))
    room = BARS_RIGHT - BARS_LEFT
    unit = round(room / max(high - low, float(exponentials.max()), 1.0), 1)
    zero = round(BARS_LEFT - unit * low, 1)
    tops = [QUERY_TOP + count * (ROW * n_tokens + GAP) for count in range(3)]
    sums_top = tops[2] + 76
    foot = max(VALUE_TOP + TALL, sums_top + ROW * (n_tokens + 1)) + 6

    def pale(shapes: list[str], panel: str, lit: bool) -> str:
        """Return the shapes of a panel, pale unless the step is theirs."""
        return tag("g", "".join(shapes), opacity=1 if lit else 0.5, data_part=f"panel-{panel}")

    def arrows_of_keys(t: int, step: int) -> str:
        """Return the plane of the query and the keys, with the keys' projections on the query."""
        q = plane_unit * queries[t] * down
        along = q / (hypot(*q) or 1.0)
        shadows = flat_keys @ along
        angle = number(round(degrees(atan2(along[1], along[0])), 1))
        body, bars = [], []
        for j, shadow in enumerate(shadows.tolist()):
            # A bar begins on the query, as the shadow of its key, and goes to its row.
            product = float((raw_scores if step == 1 else scores)[t, j])
            long, thick = (unit * product, THICK) if step else (shadow, 9.0)
            x, y = (zero, tops[0] + ROW * (j + 0.5)) if step else plane
            place = f"translate({number(x)} {number(y)}) rotate({0 if step else angle})"
            bars.append(rect(round(min(0.0, long), 1), -thick / 2, round(abs(long), 1), thick,
                             "plus" if raw_scores[t, j] >= 0 else "minus", fill_opacity=0.75,
                             transform=place, data_part=f"score-{j}"))
        # The line of the query reaches to all shadows.
        least, most = min(0.0, shadows.min()), max(hypot(*q), shadows.max())
        (x1, y1), (x2, y2) = np.round([plane + least * along, plane + most * along], 1)
        body.append(tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="query", opacity=0.5,
                        data_part="reach"))
        for j, (k, shadow) in enumerate(zip(flat_keys, shadows, strict=True)):
            (x1, y1), (x2, y2) = np.round([plane + k, plane + shadow * along], 1)
            body += [
                tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="muted", stroke_dasharray="2 3",
                    data_part=f"drop-{j}"),
                _arrow(plane, k, "key", dash="6 4"),
            ]
        body.append(_arrow(plane, q, "query", "query"))
        names = [text(*_beyond(plane, k, 13), token, fill="key")
                 for token, k in zip(tokens, flat_keys, strict=True)]
        names.append(text(*_beyond(plane, q, 11), "q", fill="query", font_weight="600",
                          data_part="query-name"))
        return pale(bars, "scores", step <= 2) + pale(body, "plane", step <= 1) + "".join(names)

    def bars(t: int, step: int) -> str:
        """Return the bars that come out of those of the scores, with all names and numbers."""
        axes = [
            (step >= 1, line(zero, tops[0] - 2, zero, tops[0] + ROW * n_tokens + 2, "muted")),
            (step >= 3, line(BARS_LEFT, tops[1] - 2, BARS_LEFT, tops[1] + ROW * n_tokens + 2,
                             "muted")),
            (step >= 4, rect(NAMES, tops[2], RIGHT - NAMES, 24, "none", stroke="muted")),
        ]
        body = [
            tag("g", axis, opacity=float(there), data_part=f"axis-{count}")
            for count, (there, axis) in enumerate(axes)
        ]
        of_scores: list[str] = []
        of_exp: list[str] = []
        of_weights: list[str] = []
        # A weight's number stands under its part of the bar, as far as its neighbours let it.
        halves = [4 * len(token) + 22.0 for token in tokens]
        edges = np.round(NAMES + (RIGHT - NAMES) * np.cumsum([0, *weights[t]]), 1)
        middles = (edges[1:] + edges[:-1]) / 2
        belows, free = [], NAMES
        for j, half in enumerate(halves):
            last = RIGHT - 2 * sum(halves[j + 1 :]) - half
            belows.append(round(float(min(max(middles[j], free + half), last)), 1))
            free = belows[-1] + half
        for j, token in enumerate(tokens):
            y1, y2 = (top + ROW * (j + 0.5) for top in tops[:2])
            s, raw = unit * float(scores[t, j]), unit * float(raw_scores[t, j])
            of_scores.append(rect(round(zero + min(0.0, raw), 1), y1 - THICK / 2,
                                  round(abs(raw), 1), THICK, stroke="muted", stroke_dasharray="2 2",
                                  opacity=float(step == 2), data_part=f"raw-{j}"))
            at_score = round(zero + min(0.0, s), 1), y1 - THICK / 2, round(abs(s), 1), THICK
            at_exp = (BARS_LEFT, y2 - THICK / 2, round(unit * float(exponentials[t, j]), 1), THICK)
            at_weight = (edges[j], tops[2], edges[j + 1] - edges[j], 24.0)
            x, y, wide, tall = at_exp if step >= 3 else at_score
            of_exp.append(rect(x, y, wide, tall, "weight", fill_opacity=0.5, stroke="weight",
                             opacity=float(step >= 3), data_part=f"exp-{j}"))
            x, y, wide, tall = at_weight if step >= 4 else at_exp
            of_weights.append(rect(x, y, wide, tall, "weight", stroke="paper", stroke_width=2,
                             opacity=float(step >= 4), data_part=f"weight-{j}"))
            told = decimal((shadows_on, raw_scores, scores)[min(step, 2)][t, j])
            exp = decimal(exponentials[t, j]) if step >= 3 else ""
            below = belows[j]
            lead = round(min(max(middles[j], below - halves[j]), below + halves[j]), 1)
            share = f"{token} {decimal(weights[t, j])}" if step >= 4 else ""
            body += [
                text(NAMES, y1 + 4.5, token, text_anchor="start"),
                text(NAMES, y2 + 4.5, token if step >= 3 else "", text_anchor="start",
                     data_part=f"exp-name-{j}"),
                text(RIGHT, y1 + 4.5, told, text_anchor="end", data_part=f"score-number-{j}"),
                text(RIGHT, y2 + 4.5, exp, text_anchor="end", data_part=f"exp-number-{j}"),
                tag("line", x1=round(middles[j], 1), y1=tops[2] + 25, x2=lead, y2=tops[2] + 31,
                    stroke="weight", opacity=float(step >= 4), data_part=f"lead-{j}"),
                text(below, tops[2] + 43, share,
                     fill="weight", font_weight="600", data_part=f"weight-number-{j}"),
            ]
        return (
            "".join(body)
            + pale(of_scores, "raw", step <= 2)
            + pale(of_exp, "exp", step <= 3)
            + pale(of_weights, "weights", step == 4)
        )

    def arrows_of_values(t: int, step: int) -> str:
        """Return the values, their shares, and the output, with the shares' numbers beside them."""
        body, arrows = [], []
        x, y = LEFT + 26, VALUE_TOP + 32
        for entry, towards in enumerate(OBLIQUE):
            dx, dy = np.round(14 * towards * down, 1)
            body.append(line(x, y, x + dx, y + dy, "muted"))
            named = ("entry 1", "2", "3")[entry]
            body.append(text(round(x + 1.7 * dx, 1), round(y + 1.6 * dy + 4, 1), named,
                             fill="muted", font_size=13))
        start = space
        for j, token in enumerate(tokens):
            shown, thick = (0.4, 1.0) if step >= 5 else (1.0, 2.5)
            y = sums_top + ROW * (j + 0.5) + 4.5
            told = f"{decimal(weights[t, j])} of {token}" if step >= 5 else ""
            plus = "+" if step == 6 and j else ""
            arrows.append(
                _arrow(space, flat_values[j], "value", f"value-{j}", shown=shown, thick=thick)
            )
            body += [
                text(*_beyond(space, flat_values[j], 13), token, fill="value"),
                text(NAMES + 16, y, told, text_anchor="start", fill="value",
                     data_part=f"share-number-{j}"),
                text(NAMES, y, plus, text_anchor="start", data_part=f"plus-{j}"),
            ]
        for j in range(n_tokens):
            along = flat_values[j] * (weights[t, j] if step >= 5 else 1.0)
            arrows.append(_arrow(start if step == 6 else space, along, "value", f"share-{j}",
                                 shown=float(step >= 5)))
            start = start + flat_values[j] * weights[t, j]
        end = start - space
        ended = step == 6
        arrows.append(_arrow(space, end * ended, "output", "output", shown=float(ended)))
        y_sum = sums_top + ROW * n_tokens
        body += [
            text(*_beyond(space, end, 12), "o" if ended else "", fill="output", font_weight="600",
                 data_part="output-name"),
            text(NAMES, y_sum + 17, f"= o {_vector(outputs[t])}" if ended else "",
                 text_anchor="start", fill="output", font_weight="600", data_part="output-number"),
        ]
        return pale(arrows, "values", step >= 5) + "".join(body)

    # Each panel has the numbers of its steps before its title.
    headings = (
        (LEFT, QUERY_TOP - 8, "query and keys", (0,)),
        (NAMES, tops[0] - 8, "score: ÷ √2", (1, 2)),
        (NAMES, tops[1] - 8, "exponential", (3,)),
        (NAMES, tops[2] - 8, "weight: ÷ their sum", (4,)),
        (LEFT, VALUE_TOP - 8, "values, added up", (6,)),
        (NAMES, sums_top - 8, "shares of the values", (5,)),
    )

    def draw(t: int, step: int) -> Frame:
        chip = 44.0
        told = STEPS[step][1].format(decimal(lengths[t]))
        title = f"{step + 1}. {told[0].upper()}{told[1:]}"
        body = [
            headline(LEFT, 17, title, "step"),
            text(LEFT, 41, "token", text_anchor="start", fill="muted", font_size=13),
        ]
        for j, token in enumerate(tokens):
            body.append(rect(46 + (chip + 6) * j, 28, chip, 19, rx=9, stroke="grid"))
            body.append(text(46 + (chip + 6) * j + chip / 2, 41.5, token, font_size=13))
        body.append(rect(46 + (chip + 6) * t, 28, chip, 19, "query", rx=9, fill_opacity=0.15,
                         stroke="query", stroke_width=2, data_part="asks"))
        of_scores = "shadow on q", f"q·k = shadow × {decimal(lengths[t])}"
        for place, (x, y, words, steps) in enumerate(headings):
            now = step in steps
            wide = 16.0 if len(steps) == 1 else 30.0
            shown = of_scores[step] if place == 1 and step < 2 else words
            body.append(
                rect(
                    x,
                    y - 12.5,
                    wide,
                    16,
                    "ink" if now else "paper",
                    rx=8,
                    stroke="ink" if now else "muted",
                    data_part=f"badge-{place}",
                )
            )
            body.append(text(x + wide / 2, y, "–".join(str(one + 1) for one in steps),
                             font_size=13, font_weight="600", fill="paper" if now else "muted",
                             data_part=f"badge-number-{place}"))
            body.append(axis_title(x + wide + 6, y, shown, text_anchor="start",
                                   fill="ink" if now else "muted",
                                   font_weight="600" if now else "400",
                                   data_part=f"heading-{place}"))
        body += [
            text(RIGHT, tops[0] - 8, "dashed: q·k" if step == 2 else "", text_anchor="end",
                 fill="muted", font_size=13, data_part="dashed"),
            arrows_of_values(t, step),
            bars(t, step),
            arrows_of_keys(t, step),
        ]
        # A click on a part shows its step; on a token or its key, that token asks.
        lanes = [(top - 22, ROW * n_tokens + 28) for top in (*tops[:2], sums_top)]
        body += [
            hit(LEFT, QUERY_TOP - 20, WIDE, TALL + 20, "step:0"),
            *(hit(NAMES - 4, y, RIGHT - NAMES + 6, tall, f"step:{to}")
              for (y, tall), to in zip(lanes, (2, 3, 5), strict=True)),
            hit(NAMES - 4, tops[2] - 22, RIGHT - NAMES + 6, 68, "step:4"),
            hit(LEFT, VALUE_TOP - 20, WIDE, TALL + 20, "step:6"),
            *(hit(46 + (chip + 6) * j, 24, chip, 26, f"token:{j}") for j in range(n_tokens)),
        ]
        for j, k in enumerate(flat_keys):
            x, y = _beyond(plane, k, 7)
            body.append(hit(x - 20, y - 23, 40, 36, f"token:{j}"))
        found = (shadows_on, raw_scores, scores, exponentials, weights, weights, None)[step]
        numbers = f"o is {_vector(outputs[t])}"
        if found is not None:
            each = zip(tokens, found[t], strict=True)
            numbers = ", ".join(f"{token} {decimal(shown)}" for token, shown in each)
        words = f"“{tokens[t]}”, step {step + 1} of {len(STEPS)}: {told}. {numbers}."
        rows = [
            (tokens[t], tokens[j], _vector(queries[t]), _vector(keys[j]),
             decimal(raw_scores[t, j]), decimal(scores[t, j]), decimal(exponentials[t, j], digits),
             decimal(weights[t, j], 3), _vector(values[j]),
             _vector(weights[t, j] * values[j]), _vector(outputs[t]))
            for j in range(n_tokens)
        ]
        return Frame("".join(body), words, rows)

    return moving(
        draw,
        [
            Control("token", "token", tuple(tokens), n_tokens - 1, kind="choice"),
            Control("step", "step", tuple(name for name, _ in STEPS), 6, pace=1.5),
        ],
        448,
        foot + 2,
        columns=("token", "key of", "q", "k", "q·k", "÷ √2", "exp", "weight a", "v", "a v", "o"),
        about="attention of one token",
    )
