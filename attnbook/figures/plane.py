"""Vectors with two entries in the plane: queries and keys as arrows, values with their hull."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnbook.figures.drawing import (
    Array,
    Drawing,
    axis_title,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import HALO
from attnbook.figures.vectors import turning_arrow

WIDTH, LEFT, SPAN, TALL = 440.0, 60.0, 366.0, 330.0


class Plane:
    """A piece of the plane with its axes, on which points are drawn and named where there is room.

    Shapes:
        points (n, 2): what must lie in it.
    """

    def __init__(self, points: Array, margin: float, top: float = 12.0) -> None:
        low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
        self.unit = float(min(SPAN / (high[0] - low[0]), TALL / (high[1] - low[1])))
        self.low, self.high, self.top = low, high, top
        self.wide, self.tall = (float(side) for side in self.unit * (high - low))
        self.left = LEFT + (SPAN - self.wide) / 2
        self.taken: list[tuple[float, float]] = []  # dots that no name may cover

    def at(self, point: Array) -> tuple[float, float]:
        """Return where a point is drawn."""
        x, y = self.unit * (point - self.low)
        return round(self.left + float(x), 1), round(self.top + self.tall - float(y), 1)

    def take(self, start: Array, end: Array) -> None:
        """Keep the line between two points free of names."""
        for share in np.linspace(0, 1, 40):
            self.taken.append(self.at(start + share * (end - start)))

    def axes(self) -> list[str]:
        """Return a grid with a number at each line, dark where an entry is 0, and the titles."""
        foot, right = self.top + self.tall, self.left + self.wide
        parts = []
        for axis in (0, 1):
            step = next(s for s in (0.5, 1, 2, 5, 10, 1e9) if s * self.unit >= 34)
            first, last = ceil(self.low[axis] / step), floor(self.high[axis] / step)
            for count in range(first, last + 1):
                entry = np.array([count * step, count * step])
                x, y = self.at(entry)
                shade, shown = "grid" if count else "muted", f"{count * step:g}".replace("-", "−")
                if axis == 0:
                    parts += [line(x, self.top, x, foot, shade), text(x, foot + 18, shown)]
                else:
                    parts.append(line(self.left, y, right, y, shade))
                    parts.append(text(self.left - 8, y + 4.5, shown, text_anchor="end"))
        parts.append(axis_title((self.left + right) / 2, foot + 38, "first entry"))
        middle = self.top + self.tall / 2
        return [*parts, axis_title(self.left - 48, middle, "second entry", upright=True)]

    def name(self, point: Array, words: str, colour: str) -> str:
        """Return a point's name on the side on which it covers the least."""
        (x, y), wide = self.at(point), 7.4 * len(words)
        sides = ((x + 10, y + 4.5), (x - 10 - wide, y + 4.5), (x - wide / 2, y - 11),
                 (x - wide / 2, y + 21), (x + 8, y - 9), (x - 8 - wide, y - 9), (x + 8, y + 19),
                 (x - 8 - wide, y + 19))

        def covered(side: tuple[float, float]) -> int:
            left, foot = side
            outside = left < self.left or left + wide > WIDTH - 4 or foot > self.top + self.tall
            inside = (
                left - 4 < a < left + wide + 4 and foot - 14 < b < foot + 6 for a, b in self.taken
            )
            return sum(inside) + 100 * outside

        left, foot = min(sides, key=covered)
        self.taken += [(left + share * wide, foot - 4) for share in np.linspace(0, 1, 12)]
        return text(left, foot, words, text_anchor="start", fill=colour, **HALO)

    def drawing(self, parts: Sequence[str], alt: str) -> Drawing:
        """Return the finished drawing of these parts."""
        return Drawing.from_elements("".join(parts), WIDTH, self.top + self.tall + 48, alt)


def plane(query: ArrayLike, key: ArrayLike, labels: Sequence[str]) -> Drawing:
    """Return a drawing of the queries (solid arrows) and keys (dashed arrows) of the named tokens.

    Shapes:
        query and key (n, 2), one label for each of the n tokens.
    """
    queries, keys = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    zero = np.zeros(2)
    board = Plane(np.vstack([queries, keys, zero]), margin=0.45)
    parts, words = board.axes(), []
    named = [
        (kind, label, vector, dash)
        for vectors, kind, dash in ((keys, "key", "6 4"), (queries, "query", ""))
        for vector, label in zip(vectors, labels, strict=True)
    ]
    for kind, label, vector, dash in named:
        board.take(zero, vector)
        if np.any(vector):
            part = f"{kind}-{label}"
            parts.append(turning_arrow(board.at(zero), vector, board.unit, kind, part, dash))
    for kind, label, vector, _ in named:
        parts.append(board.name(vector, f"{kind} “{label}”", kind))
        words.append(f"{kind} {label} ({number(vector[0])}, {number(vector[1])})")
    return board.drawing(
        parts, ("Arrows from the origin: " + ", ".join(words) + ".").replace("-", "−")
    )


def hull(value: ArrayLike, output: ArrayLike, labels: Sequence[str]) -> Drawing:
    """Return a drawing of values in the plane, the polygon that they span, and the outputs in it.

    Shapes:
        value and output (n, 2), one label for each of the n tokens; n is at least 3.
    """
    values, outputs = np.asarray(value, dtype=np.float64), np.asarray(output, dtype=np.float64)
    reach = float(np.ptp(values, axis=0).max())
    board = Plane(np.vstack([values, outputs]), margin=0.12 * reach, top=38.0)
    parts, words = board.axes(), []
    for one, other in _edges(values):
        board.take(values[one], values[other])
        (x1, y1), (x2, y2) = board.at(values[one]), board.at(values[other])
        parts.append(tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="value", stroke_width=2))
    for point in np.vstack([values, outputs]):
        board.take(point, point)
    for points, kind in ((values, "value"), (outputs, "output")):
        for point, label in zip(points, labels, strict=True):
            x, y = board.at(point)
            dot = tag("circle", cx=x, cy=y, r=6, fill="output")
            parts.append(rect(x - 5, y - 5, 10, 10, "value") if kind == "value" else dot)
            words.append(f"{kind} of {label} at ({point[0]:.2f}, {point[1]:.2f})")
    parts += [
        board.name(point, label, kind)
        for points, kind in ((values, "value"), (outputs, "output"))
        for point, label in zip(points, labels, strict=True)
    ]
    parts += [
        rect(LEFT, 11, 10, 10, "value"),
        text(LEFT + 16, 20.5, "value of a token", text_anchor="start", fill="value"),
        tag("circle", cx=LEFT + 150, cy=16, r=6, fill="output"),
        text(LEFT + 162, 20.5, "output of a token", text_anchor="start", fill="output"),
    ]
    alt = "Outputs inside the figure that the values span: " + ", ".join(words) + "."
    return board.drawing(parts, alt.replace("-", "−"))


def _edges(points: NDArray[np.float64]) -> list[list[int]]:
    """Return the pairs of points that are edges of the convex hull: all others lie on one side."""
    pairs = [(i, j) for i in range(len(points)) for j in range(i + 1, len(points))]
    edges = []
    for i, j in pairs:
        along, others = points[j] - points[i], np.delete(points, [i, j], axis=0) - points[i]
        sides = along[0] * others[:, 1] - along[1] * others[:, 0]
        if (sides >= 0).all() or (sides <= 0).all():
            edges.append([i, j])
    return edges
