"""Matrices as tables of coloured cells: rows are queries, columns are keys, numbers are printed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, Drawing, axis_title, rect, text

CELL = 52.0
LINE = 34.0
# The strongest colour of a cell. Kept at a shade on which ink stays legible in both themes.
STRONGEST = 0.55


def _table(values: ArrayLike) -> Array:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(
            f"a matrix must have two axes and at least one entry; got shape {table.shape}"
        )
    return table


def _labels(given: Sequence[str] | None, count: int, prefix: str) -> list[str]:
    labels = list(given) if given is not None else [f"{prefix}{index}" for index in range(count)]
    if len(labels) != count:
        raise ValueError(f"there must be {count} labels; got {len(labels)}: {labels}")
    return labels


def _show(value: float, digits: int = 2) -> str:
    shown = f"{value:.{digits}f}".replace("-", "−").replace("inf", "∞")
    return shown.lstrip("−") if float(f"{value:.{digits}f}") == 0 else shown


def _cells(
    table: Array, left: float, top: float, limit: float, digits: int, width: float, height: float
) -> str:
    """Return the coloured, numbered cells; blue above zero, orange below, grey for ∞ and NaN."""
    parts = []
    for (row, column), value in np.ndenumerate(table):
        x, y = left + column * width, top + row * height
        finite = bool(np.isfinite(value))
        share = min(abs(value) / limit, 1.0) if finite and limit else 0.0
        parts.append(
            rect(
                x,
                y,
                width,
                height,
                ("blue" if value >= 0 else "orange") if finite else "grid",
                # Six decimals first: the noise of the last bit must not turn 0.1375 into 0.137.
                fill_opacity=f"{round(STRONGEST * share, 6) if finite else 0.8:.3f}",
                stroke="grid",
            )
        )
        parts.append(text(x + width / 2, y + height / 2 + 4.5, _show(value, digits)))
    return "".join(parts)


def heatmap(
    values: ArrayLike,
    *,
    name: str,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_title: str = "query i asks",
    column_title: str = "key j answers",
    limit: float | None = None,
    digits: int = 2,
) -> Drawing:
    """Return a drawing of one matrix, each entry printed and coloured by its size.

    Blue is positive, orange negative, grey not finite, and the deepest colour stands for `limit`:
    the largest absolute entry unless given (1 for weights). The sign is printed too, so colour
    carries nothing alone. The alt text reads the matrix row by row.

    Shapes:
        values (L, S), rows L labels, columns S labels.

    Raises:
        ValueError: for anything but a non-empty matrix, or a wrong number of labels.
    """
    titles = (row_title, column_title)
    return Drawing.from_elements(*_heatmap(values, name, rows, columns, titles, limit, digits))


def _heatmap(
    values: ArrayLike,
    name: str,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    titles: tuple[str, str] = ("query i asks", "key j answers"),
    limit: float | None = None,
    digits: int = 2,
    *,
    alone: bool = True,
) -> tuple[str, float, float, str]:
    """Return the elements of a heatmap, its width and height, and its words.

    If it is not `alone`, what the rows are stands on the heatmap to its left.
    """
    table, (row_title, column_title) = _table(values), titles
    n_rows, n_columns = table.shape
    row_labels = _labels(rows, n_rows, "")
    column_labels = _labels(columns, n_columns, "")
    largest = float(np.max(np.abs(table[np.isfinite(table)]), initial=0.0))
    title, wide = f"{name}: {column_title}", n_columns * CELL
    beside = max(0.0, 7.4 * len(title) - wide) / 2  # where the title is wider than the cells
    left, top = 44.0 + 8.0 * max(map(len, row_labels)) if alone else beside, 62.0
    middle_x, middle_y = left + wide / 2, top + n_rows * CELL / 2
    body = [
        _cells(table, left, top, largest if limit is None else limit, digits, CELL, CELL),
        axis_title(middle_x, 20, title),
    ]
    for index, label in enumerate(column_labels):
        body.append(text(left + (index + 0.5) * CELL, top - 12, label))
    if alone:
        body.append(axis_title(16, middle_y, row_title, upright=True))
    for index, label in enumerate(row_labels if alone else []):
        y = top + (index + 0.5) * CELL + 4.5
        body.append(text(left - 10, y, label, text_anchor="end"))
    lines = [
        f"row {label}: {', '.join(_show(value, digits) for value in row)}"
        for label, row in zip(row_labels, table, strict=True)
    ]
    alt = (
        f"{name}, {n_rows} by {n_columns}; rows: {row_title}, columns: {column_title} "
        f"({', '.join(column_labels)}). " + "; ".join(lines) + "."
    )
    return "".join(body), left + wide + max(beside, 16.0), top + n_rows * CELL + 14, alt


def matrix_equation(*parts: str | tuple[str, ArrayLike], digits: int = 1) -> Drawing:
    """Return a drawing of matrices in one line with signs between them, as in X W_Q = Q.

    A part is a sign (a string) or a pair (name, matrix). Each matrix has its name above and its
    shape below it, so that the inner dimensions can be seen to agree. What would be too wide for a
    phone goes on in a second line, from the last sign on.

    >>> matrix_equation(("a", [[1.0]]), "=", ("b", [[1.0]])).alt
    'a (1 by 1: 1.0) = b (1 by 1: 1.0)'

    Raises:
        ValueError: when a part is neither, or a matrix is empty.
    """
    tables: list[tuple[str, Array] | str] = []
    for part in parts:
        tables.append(part if isinstance(part, str) else (part[0], _table(part[1])))
    matrices = [part for part in tables if not isinstance(part, str)]
    if not matrices:
        raise ValueError(f"parts must hold at least one (name, matrix) pair; got {parts!r}")
    limit = max(float(np.max(np.abs(table))) for _, table in matrices)
    longest = max(len(_show(value, digits)) for _, table in matrices for value in table.flat)
    cell = max(LINE, 8 + 7.6 * longest)
    lines = [tables]
    if sum(_width(part, cell) for part in tables) + 16 > WIDEST:
        last = max((i for i, part in enumerate(tables) if isinstance(part, str)), default=0)
        lines = [line for line in (tables[:last], tables[last:]) if line]
    body: list[str] = []
    words: list[str] = []
    top = wide = 0.0
    for line in lines:
        tallest = max(1 if isinstance(part, str) else len(part[1]) for part in line) * LINE
        top, x = top + 34, 8.0
        for part in line:
            middle = x + _width(part, cell) / 2
            if isinstance(part, str):
                body.append(text(middle, top + tallest / 2 + 7, part, font_size=20))
                words.append(part)
            else:
                name, table = part
                n_rows, n_columns = table.shape
                y = top + (tallest - n_rows * LINE) / 2
                body.append(_cells(table, x, y, limit, digits, cell, LINE))
                body.append(text(middle, y - 11, name, font_weight="600"))
                shape = f"{n_rows} × {n_columns}"
                body.append(text(middle, y + n_rows * LINE + 19, shape, fill="muted"))
                numbers = "; ".join(", ".join(_show(v, digits) for v in row) for row in table)
                words.append(f"{name} ({n_rows} by {n_columns}: {numbers})")
            x += _width(part, cell)
        top, wide = top + tallest + 30, max(wide, x + 8)
    return Drawing.from_elements("".join(body), wide, top, " ".join(words))


def _width(part: tuple[str, Array] | str, cell: float) -> float:
    return 28.0 if isinstance(part, str) else part[1].shape[1] * cell
