"""Two tables in one: what a text prints, and what comes out when it is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Drawing, axis_title, rect, text
from attnbook.figures.matrices import _labels, _show, _table

HEIGHT = 44.0


def _pair(x: float, y: float, width: float, printed: str, computed: str) -> str:
    """Return a framed cell of two lines: printed above in plain type, computed below in bold."""
    look = {"fill_opacity": "0.150", "stroke": "ink", "stroke_width": 2}
    frame = rect(x + 2, y + 2, width - 4, HEIGHT - 4, "orange", **look)
    above = text(x + width / 2, y + 18, printed)
    return frame + above + text(x + width / 2, y + 35, computed, font_weight="700")


def _single(x: float, y: float, width: float, number: str) -> str:
    """Return a thin-lined cell with the one number that both tables have."""
    line = rect(x, y, width, HEIGHT, stroke="grid")
    return line + text(x + width / 2, y + 26.5, number, fill="muted")


def compared(
    printed: ArrayLike,
    computed: ArrayLike,
    *,
    name: str,
    digits: int = 2,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_title: str = "query i asks",
    column_title: str = "key j answers",
) -> Drawing:
    """Return a drawing of a printed table, with the computed number wherever it is another one.

    A cell differs when printed and computed are more than half a unit of the last printed digit
    apart. Such a cell has a bold frame and both numbers, the printed one above; every other cell
    has the printed number alone. The alt text lists the cells that differ.

    Shapes: printed and computed (L, S), rows L labels, columns S labels.

    Raises: `ValueError` for two shapes, an empty matrix, or a wrong number of labels.

    >>> print(compared([[1.0, 2.0]], [[1.0, 2.5]], name="scores", digits=1).alt)
    scores, printed against computed: 1 of 2 differ; row 0, column 1: printed 2.0, computed 2.5.
    """
    theirs, ours = _table(printed), _table(computed)
    if theirs.shape != ours.shape:
        raise ValueError(
            f"printed and computed must have the same shape; got {theirs.shape} and {ours.shape}"
        )
    n_rows, n_columns = theirs.shape
    row_labels, column_labels = _labels(rows, n_rows, ""), _labels(columns, n_columns, "")
    # A hair more than half a unit: the computed number carries rounding noise of its own.
    differs = ~(np.abs(theirs - ours) <= 0.5 * 10.0**-digits + 1e-9)
    above = [[_show(value, digits) for value in row] for row in theirs]
    below = [[_show(value, digits) for value in row] for row in ours]
    width = 30.0 + 7.5 * max(len(number) for row in above + below for number in row)
    left, top = 44.0 + 8.0 * max(map(len, row_labels)), 62.0
    body: list[str] = []
    words: list[str] = []
    for (row, column), other in np.ndenumerate(differs):
        x, y = left + column * width, top + row * HEIGHT
        theirs_here, ours_here = above[row][column], below[row][column]
        if not other:
            body.append(_single(x, y, width, theirs_here))
            continue
        body.append(_pair(x, y, width, theirs_here, ours_here))
        place = f"row {row_labels[row]}, column {column_labels[column]}"
        words.append(f"{place}: printed {theirs_here}, computed {ours_here}")
    middle, bottom = top + n_rows * HEIGHT / 2, top + n_rows * HEIGHT
    summary = f"{int(differs.sum())} of {differs.size} differ"
    body.append(text(left, 20, f"{name}: {summary}", text_anchor="start", font_weight="600"))
    body.append(axis_title(left + n_columns * width / 2, 38, column_title))
    body.append(axis_title(16, middle, row_title, upright=True))
    for index, label in enumerate(column_labels):
        body.append(text(left + (index + 0.5) * width, top - 8, label))
    for index, label in enumerate(row_labels):
        body.append(text(left - 10, top + (index + 0.5) * HEIGHT + 4.5, label, text_anchor="end"))
    body.append(_pair(left, bottom + 12, 92, "printed", "computed"))
    body.append(text(left + 102, bottom + 38, "where the two differ", text_anchor="start"))
    alt = f"{name}, printed against computed: {'; '.join([summary, *words])}."
    right = max(left + n_columns * width + 16, left + 250)
    return Drawing.from_elements("".join(body), right, bottom + HEIGHT + 22, alt)
