"""The drawing of chapter 09: a table too large for printed numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Drawing, axis_title, number, rect, tag, text
from attnbook.figures.matrices import _table

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

    Shapes: values (any, any).

    Raises: `ValueError` for anything but a non-empty matrix with entries from -1 to 1.
    """
    table = _table(values)
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
    body.append(tag("path", d="".join(filled), fill="blue"))
    body.append(tag("path", d="".join(outlined), fill="none", stroke="orange", stroke_width=1.4))
    turns = [int(np.sum(np.diff(np.signbit(column)))) for column in table.T]
    alt = (
        f"{name}, {n_rows} by {n_columns}; rows: {rows}, columns: {columns}; entries from "
        f"{table.min():.2f} to {table.max():.2f} as squares, filled where positive. "
        f"Changes of sign down each column: {', '.join(map(str, turns))}."
    ).replace("-", "−")
    return Drawing.from_elements(
        "".join(body), left + max(width, 356.0) + 14, top + height + 44, alt
    )
