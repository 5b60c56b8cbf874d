"""The drawings of chapter 09: a large table as squares, and a query and a key that turn."""

from __future__ import annotations

from cmath import phase
from collections.abc import Sequence
from itertools import product
from math import cos, degrees, sin

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.grid import as_matrix
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, MovingDrawing
from attnbook.figures.vectors import axes_of_plane, name_at_tip, turning_arrow
from attnlib.positions import rotary

CELL = 18.0


def _square(x: float, y: float, value: float, *, outlined: bool) -> str:
    """Return the path of a square about (x, y) whose area is to its cell's as |value| is to 1."""
    side = 0.86 * CELL * abs(value) ** 0.5
    side -= min(1.4, side) if outlined else 0.0  # the outline adds its width
    corner = f"M{number(x - side / 2)} {number(y - side / 2)}"
    return f"{corner}h{number(side)}v{number(side)}h{number(-side)}z"


def squares(values: ArrayLike, *, name: str, rows: str, columns: str) -> Drawing:
    """Return a drawing of a matrix with entries between -1 and 1, each entry a square of that area.

    Positive entries are filled and blue, negative ones outlined and orange, so that the sign can
    be seen without colour. Rows and columns are counted from 0; `rows` and `columns` say of what.

    Shapes:
        values (any, any).

    Raises:
        ValueError: for anything but a non-empty matrix with entries from -1 to 1.
    """
    table = as_matrix(values)
    if not np.all(np.abs(table) <= 1.0):
        raise ValueError(f"entries must lie between -1 and 1; got up to {np.max(np.abs(table)):g}")
    n_rows, n_columns = table.shape
    left, top = 52.0, 46.0
    width, height = n_columns * CELL, n_rows * CELL
    filled: list[str] = []
    outlined: list[str] = []
    for (row, column), entry in np.ndenumerate(table):
        value = float(entry)
        if abs(value) >= 0.005:  # a smaller one could not be seen
            x, y = left + (column + 0.5) * CELL, top + (row + 0.5) * CELL
            paths = filled if value > 0 else outlined
            paths.append(_square(x, y, value, outlined=value < 0))
    body = [rect(left, top, width, height, stroke="grid")]
    for step in range(0, n_columns, 4):
        body.append(text(left + (step + 0.5) * CELL, top - 8, str(step)))
    for step in range(0, n_rows, 4):
        y = top + (step + 0.5) * CELL + 4.5
        body.append(text(left - 8, y, str(step), text_anchor="end"))
    body.append(axis_title(left + width / 2, 16, f"{name}: {columns}"))
    body.append(axis_title(14, top + height / 2, rows, upright=True))
    key_y = top + height + 24
    for place, value in enumerate((-1.0, -0.5, -0.1, 0.1, 0.5, 1.0)):
        x = left + 12 + 58 * place
        paths = filled if value > 0 else outlined
        paths.append(_square(x, key_y, value, outlined=value < 0))
        body.append(text(x + 14, key_y + 4.5, f"{value:g}".replace("-", "−"), text_anchor="start"))
    body.append(tag("path", d="".join(filled), fill="query"))
    body.append(tag("path", d="".join(outlined), fill="none", stroke="key", stroke_width=1.4))
    turns = [int(np.sum(np.diff(np.signbit(column)))) for column in table.T]
    alt = (
        f"{name}, {n_rows} by {n_columns}; rows: {rows}, columns: {columns}; entries from "
        f"{table.min():.2f} to {table.max():.2f} as squares, filled where positive. "
        f"Changes of sign down each column: {', '.join(map(str, turns))}."
    ).replace("-", "−")
    return Drawing.from_elements(
        "".join(body), left + max(width, 356.0) + 14, top + height + 44, alt
    )


# The moving figure: the strip of positions, the plane with its words, the scores by offset.
WIDTH, BOX, LEFT = 440.0, 34.0, 16.0
CENTRE, SPAN, WORDS = (104.0, 186.0), 80.0, 214.0
ZERO, TALL, STEP = 366.0, 46.0, 66.0


def rotary_offset(
    query: ArrayLike,
    key: ArrayLike,
    names: tuple[str, str],
    *,
    n_places: int = 6,
    n_offsets: int = 6,
    start: tuple[int, int] = (0, 1),
) -> MovingDrawing:
    """Return a moving figure: a query and a key turn with their positions, and their score follows.

    One slider moves the key, and the query with it; the other changes the offset, by which the
    query comes after the key. Each vector is turned by one radian a position. The bars below show
    the score for every offset, and the bar of the present one is filled.

    Args:
        query, key: the vectors before they are turned.
        names: the token that the query is of, and the token that the key is of.
        n_places: how many positions the key can have, from 0.
        n_offsets: how many offsets there are, from 1.
        start: the first position of the key, and the first offset.

    Shapes:
        query and key (2,).

    Raises:
        ValueError: for vectors of another shape or of length 0, for positions and offsets that do
            not fit on the strip, or a start that is not among them.
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    if q.shape != (2,) or k.shape != (2,) or not (q.any() and k.any()):
        raise ValueError(
            f"query and key must be two entries, not both 0; got {query!r} and {key!r}"
        )
    if n_places < 1 or n_offsets < 1 or n_places + n_offsets > 12:
        raise ValueError(
            f"n_places and n_offsets must be at least 1, and at most 12 together; got {n_places} "
            f"and {n_offsets}"
        )
    if not (0 <= start[0] < n_places and 1 <= start[1] <= n_offsets):
        raise ValueError(f"start must be a position and an offset of the figure; got {start}")
    offsets = range(1, n_offsets + 1)
    scores = [float(_turned(q, offset) @ k) for offset in offsets]
    frames, told = [], []
    for u, offset in product(range(n_places), offsets):
        t = u + offset
        vectors = _turned(q, t), _turned(k, u)
        frames.append(_rotary_frame(vectors, (t, u), scores, names, n_places + n_offsets))
        place = f"{names[1]} at {u}, {names[0]} at {t}: offset {offset}"
        told.append(f"{place}, score {decimal(float(vectors[0] @ vectors[1]))}.")
    rows = [(str(offset), decimal(score)) for offset, score in zip(offsets, scores, strict=True)]
    return MovingDrawing.from_frames(
        frames,
        WIDTH,
        ZERO + TALL + 62,
        controls=(
            Control("place", f"{names[1]} at position", tuple(map(str, range(n_places))), start[0]),
            Control("offset", "offset", tuple(map(str, offsets)), start[1] - 1),
        ),
        labels=told,
        table=(("offset", "score, at every position"), *rows),
    )


def _turned(vector: Array, position: int) -> Array:
    """Return a vector of two entries, turned for its position."""
    turned: Array = rotary(vector[None], [position])[0]
    return turned


def _rotary_frame(
    vectors: tuple[Array, Array],
    places: tuple[int, int],
    scores: Sequence[float],
    names: tuple[str, str],
    n_boxes: int,
) -> str:
    """Return the drawing of one position of the key and one of the query."""
    (q, k), (t, u) = vectors, places
    offset = t - u
    body = [
        text(8, 20, f"{names[1]} at {u}, {names[0]} at {t}: offset {offset}", text_anchor="start",
             font_weight="600", font_size=15, data_part="title"),
    ]  # fmt: skip
    for box in range(n_boxes):
        x = LEFT + BOX * box
        body.append(rect(x, 34, BOX, 24, stroke="grid"))
        body.append(text(x + BOX / 2, 74, str(box), fill="muted"))
    for place, name, fill, part in ((t, names[0], "query", "q"), (u, names[1], "key", "k")):
        x = LEFT + BOX * (place + 0.5)
        body.append(text(x, 51, name, fill=fill, font_weight="600", data_part=f"{part}-word"))
    longest = float(max(np.hypot(*q), np.hypot(*k)))
    unit = SPAN / longest
    body += [
        axes_of_plane(CENTRE, SPAN + 4),
        _arc(k, q),
        turning_arrow(CENTRE, q, unit, "query", "q"),
        turning_arrow(CENTRE, k, unit, "key", "k", "5 4"),
        name_at_tip(CENTRE, q, unit, "q", "query"),
        name_at_tip(CENTRE, k, unit, "k", "key"),
    ]
    words = [
        ("q-turn", f"q of {names[0]}, turned by {t} rad ({_whole(t)})", "query", "normal"),
        ("k-turn", f"k of {names[1]}, turned by {u} rad ({_whole(u)})", "key", "normal"),
        ("between", f"angle between them {round(_between(q, k))}°", "value", "normal"),
        ("score", f"score q·k = {decimal(float(q @ k))}", "ink", "600"),
    ]
    for row, (part, line_of, fill, weight) in enumerate(words):
        body.append(text(WORDS, 150 + 26 * row, line_of, text_anchor="start", fill=fill,
                         font_weight=weight, data_part=part))  # fmt: skip
    return "".join(body) + _score_bars(scores, offset)


def _whole(position: int) -> str:
    """Return an angle of so many radians in whole degrees, beyond a turn too."""
    return f"{degrees(position):.0f}°"


def _between(q: Array, k: Array) -> float:
    """Return the angle between two vectors in degrees, from 0 to 180."""
    return degrees(abs(phase(complex(*q) * complex(*k).conjugate())))


def _arc(k: Array, q: Array) -> str:
    """Return the arc from the key's direction to the query's, the short way round."""
    begin = phase(complex(*k))
    sweep = phase(complex(*q) * complex(*k).conjugate())
    turns = [begin + sweep * step / 24 for step in range(25)]
    points = [(CENTRE[0] + 26 * cos(a), CENTRE[1] - 26 * sin(a)) for a in turns]
    drawn = " ".join(f"{number(round(x, 1))},{number(round(y, 1))}" for x, y in points)
    return tag("polyline", points=drawn, fill="none", stroke="value", stroke_width=3,
               data_part="arc")  # fmt: skip


def _score_bars(scores: Sequence[float], offset: int) -> str:
    """Return a bar of the score for each offset; that of the present offset is filled."""
    largest = max(map(abs, scores)) or 1.0
    body = [axis_title(8, ZERO - TALL - 24, "score q·k for each offset", text_anchor="start")]
    for index, score in enumerate(scores):
        x, tall = LEFT + 10 + STEP * index, round(TALL * abs(score) / largest, 1)
        name = "query" if score >= 0 else "key"
        here = index + 1 == offset
        top = ZERO - tall if score >= 0 else ZERO
        body.append(rect(x, top, 44, tall, name if here else "none", stroke=name,
                         data_part=f"bar-{index}"))  # fmt: skip
        at = ZERO - tall - 6 if score >= 0 else ZERO + tall + 15
        body.append(text(x + 22, at, decimal(score)))
        weight = "600" if here else "400"
        body.append(text(x + 22, ZERO + TALL + 36, str(index + 1), fill="muted",
                         font_weight=weight, data_part=f"number-{index}"))  # fmt: skip
    body.append(line(LEFT, ZERO, WIDTH - LEFT, ZERO, "muted"))
    body.append(axis_title(WIDTH / 2, ZERO + TALL + 54, "offset"))
    return "".join(body)
