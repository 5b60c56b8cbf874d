"""Matrices: one as a heatmap, or several in an equation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, Drawing, text
from attnbook.figures.grid import as_matrix, cells, heatmap_elements
from attnbook.figures.labels import decimal

LINE = 34.0


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
    elements = heatmap_elements(values, name, rows, columns, titles, limit, digits)
    return Drawing.from_elements(*elements)


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
        tables.append(part if isinstance(part, str) else (part[0], as_matrix(part[1])))
    matrices = [part for part in tables if not isinstance(part, str)]
    if not matrices:
        raise ValueError(f"parts must hold at least one (name, matrix) pair; got {parts!r}")
    limit = max(float(np.max(np.abs(table))) for _, table in matrices)
    longest = max(len(decimal(value, digits)) for _, table in matrices for value in table.flat)
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
                body.append(cells(table, x, y, limit, digits, cell, LINE))
                body.append(text(middle, y - 11, name, font_weight="600"))
                shape = f"{n_rows} × {n_columns}"
                body.append(text(middle, y + n_rows * LINE + 19, shape, fill="muted"))
                numbers = "; ".join(", ".join(decimal(v, digits) for v in row) for row in table)
                words.append(f"{name} ({n_rows} by {n_columns}: {numbers})")
            x += _width(part, cell)
        top, wide = top + tallest + 30, max(wide, x + 8)
    return Drawing.from_elements("".join(body), wide, top, " ".join(words))


def _width(part: tuple[str, Array] | str, cell: float) -> float:
    return 28.0 if isinstance(part, str) else part[1].shape[1] * cell
