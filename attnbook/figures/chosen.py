"""The keys that a model chooses, over the weights of attention and in groups: chapter 20."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Drawing, arrow, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving

CELL, LEFT, TOP = 12.0, 42.0, 46.0
# From which weight on a cell is so dark; below the first it is empty.
SHADES = 0.02, 0.1, 0.3, 0.6


def chosen_keys(
    weights: ArrayLike,
    chosen: Sequence[Sequence[Sequence[int]]],
    steps: Sequence[int],
    right: Sequence[float],
    others: dict[str, float],
    *,
    first: int,
) -> MovingDrawing:
    """Return a moving figure: weights as squares, and the keys chosen at each step as dots.

    The dots of a query go to the keys that it chooses at the next step. Bars compare the share of
    right guesses with other choices of keys.

    Args:
        weights: A, of causal attention, (T, T).
        chosen: for each step and each query the keys that it sees.
        steps: the steps of training, one a frame.
        right: the share of right guesses at each step.
        others: the same for other choices, by their names.
        first: the first query that counts for the weight that the chosen keys hold.
    """
    A = np.asarray(weights, dtype=np.float64)
    n_tokens = len(A)
    side, n_keys = n_tokens * CELL, max(map(len, chosen[0]))
    bars_x, bars_wide = LEFT + 14.5 * CELL, side - 14.5 * CELL

    def at(place: float) -> float:
        return (place + 0.5) * CELL

    squares = []
    for low, high in zip(SHADES, (*SHADES[1:], np.inf), strict=True):
        places = zip(*np.nonzero((low <= A) & (high > A)), strict=True)
        path = "".join(f"M{number(LEFT + j * CELL)} {number(TOP + i * CELL)}h12v12h-12z"
                       for i, j in places)
        shade = 0.15 + 0.6 * SHADES.index(low) / 3
        squares.append(tag("path", d=path or "M0 0", fill="weight", fill_opacity=number(shade)))
    edge = "".join(f"h{number(CELL)}v{number(CELL)}" for _ in range(n_tokens))
    ground = [
        axis_title(LEFT, 18, "key j answers", **START),
        axis_title(15, TOP + side / 2, "query i asks", upright=True),
        tag("path", d=f"M{number(LEFT)} {number(TOP)}{edge}H{number(LEFT)}z", fill="none",
            stroke="grid"),
        *squares,
    ]
    for place in range(0, n_tokens, 8):
        ground += [
            axis_title(LEFT + at(place), TOP - 8, str(place)),
            axis_title(LEFT - 6, TOP + at(place) + 4.5, str(place), text_anchor="end"),
        ]
    foot = TOP + side + 20
    ground += [
        rect(LEFT, foot - 11, 12, 12, "weight", fill_opacity=0.5),
        text(LEFT + 18, foot, "weight when all keys are read", **START),
        tag("circle", cx=LEFT + 232, cy=foot - 5, r=3.4, fill="key"),
        text(LEFT + 242, foot, "a key that is chosen", **START),
        axis_title(bars_x + 4, TOP + 12, "right guesses", **START),
    ]
    kept = [
        float(np.mean([A[i, keys].sum() for i, keys in enumerate(queries) if i >= first]))
        for queries in chosen
    ]

    def draw(place: int) -> Frame:
        body = list(ground)
        shares = {f"{n_keys} chosen keys": right[place], **others}
        for row, (name, share) in enumerate(shares.items()):
            y, colour = TOP + 34 + 38 * row, "muted" if row else "key"
            long = bars_wide - 44
            body += [
                text(bars_x + 4, y, name, **START, fill=colour),
                rect(bars_x, y + 6, max(long * share, 1), 11, colour, data_part=f"bar-{row}"),
                text(bars_x + max(long * share, 1) + 6, y + 16, f"{share:.2f}", **START,
                     data_part=f"share-{row}"),
            ]
        y = TOP + 34 + 38 * len(shares)
        body.append(line(bars_x, TOP + 18, bars_x, y - 16, "muted"))
        for query, keys in enumerate(chosen[place]):
            for n, key in enumerate(sorted(keys)):
                body.append(
                    tag("circle", cx=LEFT + at(key), cy=TOP + at(query), r=3.4, fill="key",
                        stroke="paper", stroke_width=0.8, data_part=f"d{query}-{n}")
                )
        told = ", ".join(f"{name} {share:.2f}" for name, share in others.items())
        words = (
            f"step {steps[place]}: {right[place]:.2f} of the guesses are right with {n_keys} "
            f"chosen keys a query; they hold {kept[place]:.2f} of the weight.\n"
            f"With {told}. Squares are weights of {n_tokens} by {n_tokens}, dots the chosen keys."
        )
        cells = (str(steps[place]), f"{right[place]:.2f}", f"{kept[place]:.2f}")
        return Frame("".join(body), words, (cells,))

    slider = Control("step", "steps of training", tuple(map(str, steps)), len(steps) - 1, pace=1.5)
    return moving(
        draw,
        (slider,),
        LEFT + side + 4,
        foot + 10,
        columns=("step", "share right", "weight of the chosen keys"),
        about="the chosen keys",
    )


def chosen_entries(n_tokens: int, size: int, window: int, chosen: Sequence[int]) -> Drawing:
    """Return a drawing of the last token's way through a layer of DeepSeek-V4 (CSA).

    It reads its window and the chosen entries. An entry is made of the tokens of its group, and, by
    paler lines, of the group before. Each step below has the name of what does it on the page.

    Args:
        n_tokens: T.
        size: so many tokens are a group, which has one entry.
        window: so many of the last tokens are read one by one.
        chosen: the entries that are read.
    """
    wide, left, top = 12.0, 8.0, 124.0
    right, n_entries = left + n_tokens * wide, n_tokens // size
    steps = {
        f"an indexer scores {n_entries} shorter entries, takes {len(chosen)}": "visible",
        f"softmax over {len(chosen)} + {window} keys, and a sink": "attention",
        "the output is turned back by the query's place": "turn",
        "the output map: two matrices": "o_a_proj, o_b_proj",
    }
    parts = [text(left, 18, f"{n_tokens} tokens; the last one asks. Dark: what it reads", **START)]
    for place in range(n_tokens):
        look = {"fill_opacity": 0.75 if place >= n_tokens - window else 0.12}
        parts.append(rect(left + place * wide + 1, 30, wide - 2, 22, "key", **look))
    parts.append(rect(right - wide, 29, wide, 24, "none", stroke="query", stroke_width=2.5))
    for entry in range(n_entries):
        x, middle = left + entry * size * wide, left + (entry + 0.5) * size * wide
        for part in range(-size if entry else 0, size):
            stroke = "muted" if part >= 0 else "grid"
            parts.append(line(x + (part + 0.5) * wide, 53, middle, 84, stroke))
        look = {"fill_opacity": 0.75 if entry in chosen else 0.12}
        parts += [rect(middle - 17, 84, 34, 24, "value", **look),
                  line(middle, 108, middle, top, "muted")]
        if entry in chosen:
            parts.append(arrow(middle, top + 26, middle, top + 44, "muted"))
    for step, (words, function) in enumerate(steps.items()):
        y = top + 44 * step
        if step > 1:
            parts.append(arrow((left + right) / 2, y - 18, (left + right) / 2, y, "muted"))
        parts += [
            rect(left, y, right - left, 26, "paper", stroke="ink", rx=4),
            text(left + 8, y + 18, words, **START),
            text(right - 8, y + 18, function, text_anchor="end", fill="muted"),
        ]
    beside = right + 12
    parts += [line(right + 2, 41, beside, 41, "muted"), line(beside, 41, beside, top + 57, "muted"),
              arrow(beside, top + 57, right, top + 57, "muted")]
    y = top + 44 * len(steps) + 6
    parts += [
        text(left, y, f"Pale lines: an entry takes from the {size} before, too", **START),
        text(right - 8, y, "entries", text_anchor="end", fill="muted"),
    ]
    names = ", ".join(map(str, chosen[:-1])) + f" and {chosen[-1]}"
    told = "; ".join(f"{words} ({function})" for words, function in steps.items())
    alt = (
        f"Query {n_tokens - 1} of {n_tokens} tokens reads the last {window} tokens one by one, and "
        f"entries {names} of {n_entries}. Each is made of the {size} tokens of its group, and of "
        f"the {size} before. Then, from top to bottom: {told}."
    )
    return Drawing.from_elements("".join(parts), beside + 8, y + 12, alt)
