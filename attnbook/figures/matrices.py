"""Matrices: one as a heatmap, or several in an equation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Drawing, axis_title, line, text
from attnbook.figures.grid import cells
from attnbook.figures.labels import checked_labels, decimal
from attnbook.figures.products import HIGH, LETTER, Matrix, Names, named, product, title

CELL = 52.0  # of a heatmap

Part = str | tuple[str, ArrayLike] | tuple[str, ArrayLike, Names, Names]


def heatmap(
    values: ArrayLike,
    *,
    name: str,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    limit: float | None = None,
    digits: int = 2,
    forbidden: ArrayLike | None = None,
) -> Drawing:
    """Return a drawing of one matrix, each entry printed and coloured by its size.

    Rows are queries, columns are keys. Numbers above and below zero have the colours of the signs,
    weights are violet, what is not finite is grey, and the deepest colour stands for `limit`: the
    largest absolute entry unless given (1 for weights). The sign is printed too, so colour carries
    nothing alone. A `forbidden` entry has a cross in place of its number. The alt text reads the
    matrix row by row.

    Shapes:
        values (L, S), rows L labels, columns S labels, forbidden (L, S) or None.

    Raises:
        ValueError: for a wrong number of labels.
    """
    table = np.asarray(values, dtype=np.float64)
    n_rows, n_columns = table.shape
    barred = np.zeros(table.shape, bool) if forbidden is None else np.asarray(forbidden, bool)
    row_labels, column_labels = checked_labels(rows, n_rows), checked_labels(columns, n_columns)
    largest = float(np.max(np.abs(table[np.isfinite(table)]), initial=0.0))
    heading, wide = f"{name}: key j answers", n_columns * CELL
    beside = max(0.0, 7.4 * len(heading) - wide) / 2  # where the title is wider than the cells
    left, top = 44.0 + 8.0 * max(map(len, row_labels)), 62.0
    body = [
        cells(
            table, left, top, largest if limit is None else limit, digits, CELL, CELL,
            "weight" if name.startswith("weight") else None, barred,
        ),
        axis_title(left + wide / 2, 20, heading),
    ]
    for index, label in enumerate(column_labels):
        body.append(text(left + (index + 0.5) * CELL, top - 12, label))
    body.append(axis_title(16, top + n_rows * CELL / 2, "query i asks", upright=True))
    for index, label in enumerate(row_labels):
        y = top + (index + 0.5) * CELL + 4.5
        body.append(text(left - 10, y, label, text_anchor="end"))
    lines = [
        f"row {label}: "
        + ", ".join("×" if no else decimal(v, digits) for v, no in zip(row, masked, strict=True))
        for label, row, masked in zip(row_labels, table, barred, strict=True)
    ]
    alt = (
        f"{name}, {n_rows} by {n_columns}; rows: query i asks, columns: key j answers "
        f"({', '.join(column_labels)}). {'; '.join(lines)}."
    )
    right, foot = left + wide + max(beside, 16.0), top + n_rows * CELL + 14
    return Drawing.from_elements("".join(body), right, foot, alt)


def matrix_equation(*parts: Part, digits: int = 1, start: tuple[int, int] = (0, 0)) -> Drawing:
    """Return a drawing of matrices with signs between them, as in X · W_Q = Q.

    A part is a sign (a string) or a matrix with its name: (name, matrix), or (name, matrix, rows,
    columns) with the names of its rows and columns; columns may be named in groups, as
    {"mark": 3, "address": 8}. Q, K, V, A and O have their colours, others those of the signs.

    A product of two matrices moves: it shows of each entry its row, its column and its sum, and
    opens on the entry (row, column) of `start`. Others stand still in one line, each matrix with
    its name above it. What would be too wide for a phone goes on in a second line, from the last
    sign on.

    >>> matrix_equation(("a", [[1.0]]), "≠", ("b", [[2.0]])).alt
    'a (1 by 1: 1.0) ≠ b (1 by 1: 2.0)'

    Raises:
        ValueError: when the result is not the product, or a name is missing.
    """
    tables = [part if isinstance(part, str) else named(*part) for part in parts]
    match tables:
        case [Matrix() as first, "·", Matrix() as second, "=", Matrix() as result]:
            return product(first, second, result, digits, start)
    matrices = [part for part in tables if not isinstance(part, str)]
    limit = max(float(np.max(np.abs(matrix.table))) for matrix in matrices)
    longest = max(len(decimal(v, digits)) for matrix in matrices for v in matrix.table.flat)
    single = [name for m in matrices for name, count in m.columns or () if count == 1]
    titles = [(8 * len(m.name + m.shape) - 16) / m.table.shape[1] for m in matrices]
    cell = max(30.0, 8 + LETTER * longest, 5 + LETTER * max(map(len, single), default=0), *titles)
    lines = [tables]
    if sum(_rooms(tables, cell)) + 20 > WIDEST:
        last = max((i for i, part in enumerate(tables) if isinstance(part, str)), default=0)
        lines = [some for some in (tables[:last], tables[last:]) if some]
    body, top, wide = "", 0.0, 0.0
    for some in lines:
        here = [part for part in some if not isinstance(part, str)]
        tallest = max((len(matrix.table) for matrix in here), default=1) * HIGH
        head = 36 if any(matrix.columns for matrix in here) else 11
        top, x = top + head + 22, 8.0
        for part, room in zip(some, _rooms(some, cell), strict=True):
            if isinstance(part, str):
                body += text(x + room / 2, top + tallest / 2 + 7, part, font_size=20)
            else:
                y = top + (tallest - len(part.table) * HIGH) / 2
                left = x + room - part.table.shape[1] * cell
                body += cells(part.table, left, y, limit, digits, cell, HIGH, part.meaning())
                body += title((left + x + room) / 2, y - head, part)
                body += _names(part, left, y, cell, of_rows=left > x + 1)
            x += room
        top, wide = top + tallest + 10, max(wide, x + 12)
    words = [part if isinstance(part, str) else part.words(digits) for part in tables]
    return Drawing.from_elements(body, wide, top, " ".join(words))


def _names(matrix: Matrix, left: float, top: float, cell: float, *, of_rows: bool) -> str:
    """Return what names the columns of a matrix, with a line under a group, and its rows."""
    body = ""
    for i, name in enumerate(matrix.rows or () if of_rows else ()):
        body += text(left - 8, top + (i + 0.5) * HIGH + 4.5, name, text_anchor="end")
    for name, count in matrix.columns or ():
        if count > 1:
            body += line(left + 2, top - 4, left + count * cell - 2, top - 4, "muted")
        body += text(left + count * cell / 2, top - 10, name, fill="muted")
        left += count * cell
    return body


def _rooms(parts: Sequence[Matrix | str], cell: float) -> list[float]:
    """Return the width of each part; names of rows stand only before the first that has them."""
    rooms, before = [], None
    for part in parts:
        if isinstance(part, str):
            rooms.append(28.0)
        else:
            names = part.rows if part.rows != before else None
            room = 8 + LETTER * max(map(len, names)) if names else 0.0
            rooms.append(room + part.table.shape[1] * cell)
            before = part.rows
    return rooms
