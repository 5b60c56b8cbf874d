"""A matrix as a grid of coloured cells: rows are queries, columns are keys, numbers are printed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbook.figures.drawing import Array, number, rect, tag, text
from attnbook.figures.labels import decimal

# The strongest colour of a cell. Kept at a shade on which ink stays legible in both themes.
STRONGEST = 0.5


def cell_look(value: float, limit: float, name: str | None = None) -> dict[str, str]:
    """Return how a cell is filled: in the colour of the name or of the sign, grey for ∞ and NaN."""
    if not np.isfinite(value):
        return {"fill": "grid", "fill_opacity": "0.800"}
    # Six decimals first: the noise of the last bit must not turn 0.1375 into 0.137.
    share = round(STRONGEST * min(abs(value) / limit, 1.0) if limit else 0.0, 6)
    return {"fill": name or ("plus" if value >= 0 else "minus"), "fill_opacity": f"{share:.3f}"}


def cells(
    table: Array,
    left: float,
    top: float,
    limit: float,
    digits: int,
    width: float,
    height: float,
    name: str | None = None,
    forbidden: NDArray[np.bool_] | None = None,
) -> str:
    """Return the coloured, numbered cells: in the colour of the name, or of their signs.

    A forbidden cell is grey, and has a cross in place of its number.
    """
    parts = []
    for (row, column), value in np.ndenumerate(table):
        x, y = left + column * width, top + row * height
        if forbidden is not None and forbidden[row, column]:
            parts.append(rect(x, y, width, height, "grid", fill_opacity="0.4", stroke="grid"))
            cross = f"M{number(x + width / 2 - 6)} {number(y + height / 2 - 6)}l12 12m0-12l-12 12"
            parts.append(tag("path", d=cross, stroke="muted", fill="none"))
            continue
        parts.append(rect(x, y, width, height, **cell_look(value, limit, name), stroke="grid"))
        parts.append(text(x + width / 2, y + height / 2 + 4.5, decimal(value, digits)))
    return "".join(parts)
