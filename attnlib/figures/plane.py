"""Queries and keys as arrows in the plane, for vectors with two entries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnlib.figures.charts import canvas
from attnlib.figures.drawing import COLOURS, Drawing


def plane(query: ArrayLike, key: ArrayLike, labels: Sequence[str]) -> Drawing:
    """A drawing of the queries (solid arrows) and keys (dashed arrows) of the named tokens.

    Shapes: query and key (n, 2), one label for each of the n tokens.

    Raises: `ValueError` for vectors that do not have two entries, or a wrong number of labels.
    """
    queries, keys = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    expected = (len(labels), 2)
    if queries.shape != expected or keys.shape != expected:
        raise ValueError(
            f"expected query and key of shape {expected}, came {queries.shape} and {keys.shape}"
        )
    reach = float(max(np.max(np.abs(queries)), np.max(np.abs(keys)))) + 0.8
    looks = ((queries, "query", "blue", "-"), (keys, "key", "orange", "--"))
    with canvas(8.6, 5.6) as (figure, [axes]):
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
                words.append(f"{kind} {label} ({x:g}, {y:g})")
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")
        axes.axhline(0.0, color=COLOURS["grid"], zorder=0)
        axes.axvline(0.0, color=COLOURS["grid"], zorder=0)
        axes.set_xlabel("first entry")
        axes.set_ylabel("second entry")
        alt = "Arrows from the origin: " + ", ".join(words) + "."
        return Drawing.from_matplotlib(figure, alt)
