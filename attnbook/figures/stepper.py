"""Attention for one token, from its query to its output: the figure of chapter 6."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, headline, line, number, rect, tag, text
from attnbook.figures.labels import END, START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib.numpy_dense import attention_scores, softmax

STEPS = "query", "scores", "exp", "weights", "output"
# One column of panels: its sides, where bars may begin and end, and where each panel begins.
LEFT, RIGHT, BARS, ENDS = 4.0, 412.0, 40.0, 362.0
ROW, THICK, HEAD, SUMMED = 18.0, 13.0, 20.0, 30.0
PLANE_TOP, TALL, WIDE = 30.0, 132.0, 178.0


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


def _arrow(start: Array, along: Array, look: str, part: str, dash: str | None = None) -> str:
    """Return an arrow from a point along a vector, which may be 0, in pixels."""
    length = hypot(*along)
    unit = along / length if length else np.array([1.0, 0.0])
    foot = along - min(10.0, 0.6 * length) * unit
    across = 0.4 * min(10.0, 0.6 * length) * np.array([unit[1], -unit[0]])
    points = np.array([0 * along, foot, along, foot + across, foot - across])
    (x1, y1), (x2, y2), *corners = np.round(start + points, 1)
    shaft = tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=look, stroke_width=2.5,
                stroke_dasharray=dash, data_part=f"{part}-shaft")
    tip = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    return shaft + tag("polygon", points=tip, fill=look, data_part=f"{part}-tip")


def attention_stepper(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, tokens: Sequence[str], *, start: int
) -> MovingDrawing:
    """Return a moving figure: the output of a token in five panels, one below the other.

    The keys cast their shadows on the query, on a plane. Bars show the scores, their exponentials
    and the weights, and, for each entry of the output, the values times their weights: to the right
    those above 0, to the left those below, and under them their sum. The steps show the panels one
    after another. It opens on the token `start`, with its output; the table has all numbers.

    Shapes:
        query and key (T, 2), value (T, d_v), T tokens; made for T and d_v up to 4.
    """
    queries, keys, values = (np.asarray(a, dtype=np.float64) for a in (query, key, value))
    n_tokens, room = len(tokens), ENDS - BARS
    scores = attention_scores(queries, keys)
    raw_scores, exponentials, weights = queries @ keys.T, np.exp(scores), softmax(scores)
    outputs, digits = weights @ values, _summing(exponentials)
    shares = weights[:, :, None] * values
    lengths = np.hypot(*queries.T)
    shadows = raw_scores / np.where(lengths, lengths, 1.0)[:, None]
    # The plane in pixels, whose y points down.
    corners = np.vstack([np.zeros(2), queries, keys])
    low, high = corners.min(axis=0), corners.max(axis=0)
    unit = float(min((np.array([WIDE - 44, TALL - 36]) / (high - low)).round(1)))
    down = unit * np.array([1.0, -1.0])
    origin = np.array([LEFT + WIDE / 2, PLANE_TOP + HEAD + TALL / 2]) - down * (low + high) / 2
    origin = origin.round(1)
    tops = np.cumsum([PLANE_TOP, HEAD + TALL + 10, *[HEAD + ROW * n_tokens + 12] * 3])
    foot = tops[4] + HEAD + SUMMED * values.shape[1] + 4

    def panel(step: int, place: int, words: str, body: str) -> str:
        """Return the panel of a step, with its number and its title, from that step on."""
        y = tops[place]
        title = (
            tag("circle", cx=LEFT + 8, cy=y + 7, r=8.5, fill="ink")
            + text(LEFT + 8, y + 12, str(place + 1), fill="paper", font_weight="600")
            + text(LEFT + 24, y + 12, words, **START, font_weight="600", data_part=f"head-{place}")
        )
        return tag("g", title + body, opacity=int(step >= place), data_part=f"panel-{place}")

    def bars(place: int, table: Array, t: int, unit: float, zero: float, look: str) -> str:
        """Return a row of each key: its name, its bar and its number."""
        body, top = "", tops[place] + HEAD
        for j, token in enumerate(tokens):
            y, long = top + ROW * j, unit * float(table[t, j])
            body += text(LEFT, y + 13, token, **START)
            body += rect(round(zero + min(0.0, long), 1), y + 2, round(abs(long), 1), THICK, look,
                         fill_opacity=0.75, data_part=f"bar-{place}-{j}")
            body += text(RIGHT, y + 13, decimal(table[t, j]), **END, font_weight="600",
                         data_part=f"number-{place}-{j}")
        return body + line(zero, top, zero, top + ROW * n_tokens, "muted")

    def plane(t: int) -> str:
        """Return the query with the shadows of the keys, and beside it the products."""
        q = queries[t] * down
        along = q / (hypot(*q) or 1.0)
        body = text(RIGHT, tops[0] + HEAD + 12, "shadow × length of q = q·k", **END, fill="muted")
        for j, token in enumerate(tokens):
            k = keys[j] * down
            shadow = origin + (k @ along) * along
            (x1, y1), (x2, y2), (x3, y3) = np.round([origin, origin + k, shadow], 1)
            body += tag("line", x1=x1, y1=y1, x2=x3, y2=y3, stroke="key", stroke_width=9,
                        stroke_opacity=0.35, data_part=f"shadow-{j}")
            body += tag("line", x1=x2, y1=y2, x2=x3, y2=y3, stroke="muted", stroke_dasharray="2 3",
                        data_part=f"drop-{j}")
            body += _arrow(origin, k, "key", f"key-{j}", "6 4")
            body += name_of(k, token, "key", f"name-{j}")
            told = f"{decimal(shadows[t, j])} × {decimal(lengths[t])} = {decimal(raw_scores[t, j])}"
            y = tops[0] + HEAD + 38 + 24 * j
            body += text(WIDE + 46, y, token, **START, fill="key")
            body += text(RIGHT, y, told, **END, data_part=f"product-{j}")
        return body + _arrow(origin, q, "query", "q") + name_of(q, "q", "query", "name-q")

    def name_of(along: Array, words: str, look: str, part: str) -> str:
        """Return the name of an arrow, past its tip."""
        x, y = np.round(origin + along * (1 + 13 / (hypot(*along) or 1.0)), 1)
        return text(x, y + 4.5, words, fill=look, font_weight="600", data_part=part)

    # Scores go to both sides of their 0; scores and exponentials have one unit, shares another.
    least = min(0.0, float(scores.min()))
    score_unit = room / max(float(scores.max()) - least, float(exponentials.max()))
    below, above = (np.maximum(sign * shares, 0).sum(axis=1).max() for sign in (-1, 1))
    share_unit = room / float(below + above)
    share_zero = round(BARS + share_unit * float(below), 1)

    def output(t: int) -> str:
        """Return a row of each entry of the output: its shares, and below their sum."""
        body, top = "", tops[4] + HEAD
        for i, entry in enumerate(outputs[t]):
            y = top + SUMMED * i
            body += text(LEFT, y + 13, f"o{'₁₂₃₄'[i]}", **START, fill="output", font_weight="600")
            ends = [share_zero, share_zero]  # to the left and to the right
            for j, share in enumerate(shares[t, :, i]):
                side, wide = int(share > 0), share_unit * abs(float(share))
                x = ends[side] - (0 if side else wide)
                ends[side] = x + wide * side
                named = token if wide > 8 * len(token := tokens[j]) else ""
                body += rect(round(x, 1), y, round(wide, 1), ROW - 1, "value", fill_opacity=0.3,
                             stroke="value", data_part=f"share-{i}-{j}")
                body += text(round(x + wide / 2, 1), y + 13, named, data_part=f"of-{i}-{j}")
            long = share_unit * float(entry)
            body += rect(round(share_zero + min(0.0, long), 1), y + ROW + 1, round(abs(long), 1), 6,
                         "output", data_part=f"sum-{i}")
            body += text(RIGHT, y + 13, decimal(entry), **END, fill="output", font_weight="600",
                         data_part=f"number-4-{i}")
        return body + line(share_zero, top - 2, share_zero, foot - 4, "muted")

    def draw(t: int, step: int) -> Frame:
        mine, best = f"“{tokens[t]}”", int(weights[t].argmax())
        mixed = " + ".join(f"{decimal(weights[t, j])} {token}" for j, token in enumerate(tokens))
        titles = (
            f"The query of {mine} meets every key",
            f"“{tokens[best]}” suits the query of {mine} best",
            "The exponential makes every score positive",
            f"{mine} takes most from “{tokens[best]}”, {decimal(weights[t, best])}",
            f"Output of {mine}: {mixed}",
        )
        body = [
            headline(LEFT, 15, titles[step], "title"),
            panel(step, 0, f"query of {mine}, and the keys", plane(t)),
            panel(step, 1, "score: q·k ÷ √2", bars(
                1, scores, t, score_unit, round(BARS - score_unit * least, 1), "key")),
            panel(step, 2, "exponential of the score", bars(
                2, exponentials, t, score_unit, BARS, "weight")),
            panel(step, 3, "weight: ÷ their sum; all together 1", bars(
                3, weights, t, room, BARS, "weight")),
            panel(step, 4, "output: each value times its weight, added up", output(t)),
        ]
        # A click on a panel shows the way as far as there; on a key, that token asks.
        body += [
            hit(LEFT, y, RIGHT - LEFT, end - y, f"step:{place}")
            for place, (y, end) in enumerate(zip(tops, [*tops[1:], foot], strict=True))
        ]
        for j, k in enumerate(keys * down):
            x, y = origin + k
            body.append(hit(round(x - 20, 1), round(y - 20, 1), 40, 40, f"token:{j}"))
        found = (shadows, scores, exponentials, weights)
        told = f"o is {_vector(outputs[t])}"
        if step < len(found):
            each = zip(tokens, found[step][t], strict=True)
            told = ", ".join(f"{token} {decimal(shown)}" for token, shown in each)
        words = f"{titles[step]}.\nStep {step + 1} of {len(STEPS)}, {STEPS[step]}: {told}."
        rows = [
            (tokens[t], tokens[j], _vector(queries[t]), _vector(keys[j]),
             decimal(raw_scores[t, j]), decimal(scores[t, j]), decimal(exponentials[t, j], digits),
             decimal(weights[t, j], 3), _vector(values[j]), _vector(shares[t, j]),
             _vector(outputs[t]))
            for j in range(n_tokens)
        ]
        return Frame("".join(body), words, rows)

    return moving(
        draw,
        [
            Control("token", "token", tuple(tokens), start, kind="choice"),
            Control("step", "step", STEPS, len(STEPS) - 1, pace=1.5),
        ],
        RIGHT + LEFT,
        foot,
        columns=("token", "key of", "q", "k", "q·k", "÷ √2", "exp", "weight a", "v", "a v", "o"),
        about="attention of one token",
    )
