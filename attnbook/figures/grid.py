"""A matrix as a grid of coloured cells: rows are queries, columns are keys, numbers are printed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnbook.figures.drawing import Array, axis_title, number, rect, tag, text
from attnbook.figures.labels import checked_labels, decimal

CELL = 52.0
# The strongest colour of a cell. Kept at a shade on which ink stays legible in both themes.
STRONGEST = 0.5


def as_matrix(values: ArrayLike) -> Array:
    """Return what is given as a matrix of float64.

    Raises:
        ValueError: when it has no two axes, or no entry.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(
            f"a matrix must have two axes and at least one entry; got shape {table.shape}"
        )
    return table


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


def heatmap_elements(
    values: ArrayLike,
    name: str,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    titles: tuple[str, str] = ("query i asks", "key j answers"),
    limit: float | None = None,
    digits: int = 2,
    *,
    alone: bool = True,
    forbidden: ArrayLike | None = None,
) -> tuple[str, float, float, str]:
    """Return the elements of a heatmap, its width and height, and its words.

    If it is not `alone`, what the rows are stands on the heatmap to its left. Weights have their
    own colour. A cell that is `forbidden` has a cross in place of its number.
    """
    table, (row_title, column_title) = as_matrix(values), titles
    n_rows, n_columns = table.shape
    barred = np.zeros(table.shape, bool) if forbidden is None else np.asarray(forbidden, bool)
    if barred.shape != table.shape:
        raise ValueError(f"forbidden must have shape {table.shape}; got {barred.shape}")
    row_labels = checked_labels(rows, n_rows)
    column_labels = checked_labels(columns, n_columns)
    largest = float(np.max(np.abs(table[np.isfinite(table)]), initial=0.0))
    title, wide = f"{name}: {column_title}", n_columns * CELL
    beside = max(0.0, 7.4 * len(title) - wide) / 2  # where the title is wider than the cells
    left, top = 44.0 + 8.0 * max(map(len, row_labels)) if alone else beside, 62.0
    middle_x, middle_y = left + wide / 2, top + n_rows * CELL / 2
    body = [
        cells(
            table, left, top, largest if limit is None else limit, digits, CELL, CELL,
            "weight" if name.startswith("weight") else None, barred,
        ),
        axis_title(middle_x, 20, title),
    ]  # fmt: skip
    for index, label in enumerate(column_labels):
        body.append(text(left + (index + 0.5) * CELL, top - 12, label))
    if alone:
        body.append(axis_title(16, middle_y, row_title, upright=True))
    for index, label in enumerate(row_labels if alone else []):
        y = top + (index + 0.5) * CELL + 4.5
        body.append(text(left - 10, y, label, text_anchor="end"))
    lines = [
        f"row {label}: "
        + ", ".join("×" if no else decimal(v, digits) for v, no in zip(row, masked, strict=True))
        for label, row, masked in zip(row_labels, table, barred, strict=True)
    ]
    alt = (
        f"{name}, {n_rows} by {n_columns}; rows: {row_title}, columns: {column_title} "
        f"({', '.join(column_labels)}). " + "; ".join(lines) + "."
    )
    return "".join(body), left + wide + max(beside, 16.0), top + n_rows * CELL + 14, alt
