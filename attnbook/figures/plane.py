"""Vectors with two entries in the plane: queries and keys as arrows, values with their hull."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnbook.figures.charts import canvas
from attnbook.figures.drawing import COLOURS, Drawing, number


def plane(query: ArrayLike, key: ArrayLike, labels: Sequence[str]) -> Drawing:
    """Return a drawing of the queries (solid arrows) and keys (dashed arrows) of the named tokens.

    Shapes:
        query and key (n, 2), one label for each of the n tokens.

    Raises:
        ValueError: for vectors that do not have two entries, or a wrong number of labels.
    """
    queries, keys = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    expected = (len(labels), 2)
    if queries.shape != expected or keys.shape != expected:
        raise ValueError(
            f"query and key must have shape {expected}; got {queries.shape} and {keys.shape}"
        )
    reach = float(max(np.max(np.abs(queries)), np.max(np.abs(keys)))) + 0.8
    looks = ((queries, "query", "query", "-"), (keys, "key", "key", "--"))
    with canvas(4.9) as (figure, [axes]):
        words = []
        for vectors, kind, name, dash in looks:
            for (x, y), label in zip(vectors, labels, strict=True):
                axes.annotate(
                    "",
                    (x, y),
                    (0.0, 0.0),
                    arrowprops={
                        "arrowstyle": "-|>",
                        "color": COLOURS[name],
                        "linestyle": dash,
                        "linewidth": 1.8,
                        "shrinkA": 0,
                        "shrinkB": 0,
                    },
                )
                # The name stands a little past the tip, on the far side from the origin.
                length = max(float(np.hypot(x, y)), 1e-9)
                tip = (x + 0.18 * x / length, y + 0.18 * y / length)
                side = "center" if abs(x) < 0.3 * length else "left" if x > 0 else "right"
                axes.text(*tip, f"{kind} “{label}”", ha=side, va="center", color=COLOURS[name])
                words.append(f"{kind} {label} ({number(x)}, {number(y)})")
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")
        axes.axhline(0.0, color=COLOURS["grid"], zorder=0)
        axes.axvline(0.0, color=COLOURS["grid"], zorder=0)
        axes.set_xlabel("first entry")
        axes.set_ylabel("second entry")
        alt = ("Arrows from the origin: " + ", ".join(words) + ".").replace("-", "−")
        return Drawing.from_matplotlib(figure, alt)


def hull(value: ArrayLike, output: ArrayLike, labels: Sequence[str]) -> Drawing:
    """Return a drawing of values in the plane, the polygon that they span, and the outputs in it.

    Shapes:
        value and output (n, 2), one label for each of the n tokens; n is at least 3.

    Raises:
        ValueError: for vectors that do not have two entries, or a wrong number of labels.
    """
    values, outputs = np.asarray(value, dtype=np.float64), np.asarray(output, dtype=np.float64)
    expected = (len(labels), 2)
    if values.shape != expected or outputs.shape != expected or len(labels) < 3:
        raise ValueError(
            f"value and output must have shape {expected}, with at least 3 of each; got "
            f"{values.shape} and {outputs.shape}"
        )
    with canvas(4.4) as (figure, [axes]):
        for simplex in _edges(values):
            axes.plot(*values[simplex].T, color=COLOURS["muted"], linewidth=1.2, zorder=1)
        for points, kind, name, marker in (
            (values, "v", "key", "s"),
            (outputs, "o", "query", "o"),
        ):
            axes.plot(*points.T, marker, color=COLOURS[name], markersize=8, zorder=2)
            for point, label in zip(points, labels, strict=True):
                # Names of values stand outside what they span, those of outputs below the point.
                right, above = point >= values.mean(axis=0) if kind == "v" else (True, False)
                axes.annotate(
                    f"{kind} of “{label}”",
                    (float(point[0]), float(point[1])),
                    (9 if right else -9, 7 if above else -15),
                    textcoords="offset points",
                    ha="left" if right else "right",
                    color=COLOURS[name],
                    bbox={"facecolor": COLOURS["paper"], "edgecolor": "none", "pad": 0.8},
                )
        axes.margins(0.2)
        axes.set_xlabel("first entry")
        axes.set_ylabel("second entry")
        axes.grid(visible=True)
        words = [
            f"{kind} of {label} at ({x:.2f}, {y:.2f})".replace("-", "−")
            for points, kind in ((values, "value"), (outputs, "output"))
            for (x, y), label in zip(points, labels, strict=True)
        ]
        alt = "Outputs inside the figure that the values span: " + ", ".join(words) + "."
        return Drawing.from_matplotlib(figure, alt)


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
