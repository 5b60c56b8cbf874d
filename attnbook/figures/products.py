"""A product of two matrices, entry by entry: a row meets a column, and their pairs add up.

The first matrix stands below on the left, the second above on the right. Where a row of the one
and a column of the other cross, stands their entry of the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, headline, line, rect, tag, text
from attnbook.figures.grid import cell_look, cells
from attnbook.figures.labels import START, checked_labels, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

# What a matrix is called says what it means; the others have the colours of the signs.
MEANINGS = {"Q": "query", "K": "key", "Kᵀ": "key", "V": "value", "A": "weight", "O": "output"}

HIGH, LETTER = 28.0, 7.3


Names = Sequence[str] | Mapping[str, int] | None


class Matrix(NamedTuple):
    """A matrix with its name, and the names of its rows and columns where it has any.

    A column's name has the number of columns that it is for.
    """

    name: str
    table: Array
    rows: Sequence[str] | None
    columns: Sequence[tuple[str, int]] | None

    @property
    def shape(self) -> str:
        return "{} × {}".format(*self.table.shape)

    def meaning(self) -> str | None:
        """Return the colour of what the matrix means, None where it is that of the signs."""
        return MEANINGS.get(self.name)

    def words(self, digits: int) -> str:
        """Return the matrix as it is read aloud, row by row."""
        numbers = "; ".join(", ".join(decimal(v, digits) for v in row) for row in self.table)
        return f"{self.name} ({' by '.join(map(str, self.table.shape))}: {numbers})"


def named(name: str, values: ArrayLike, rows: Names = None, columns: Names = None) -> Matrix:
    """Return a matrix with its names; columns may be named in groups, as {"mark": 3}."""
    table = np.asarray(values, dtype=np.float64)
    of_rows = None if rows is None else checked_labels(tuple(rows), len(table))
    if columns is None:
        return Matrix(name, table, of_rows, None)
    groups = columns if isinstance(columns, Mapping) else dict.fromkeys(columns, 1)
    spread = [group for group, count in groups.items() for _ in range(count)]
    checked_labels(spread, table.shape[1])
    return Matrix(name, table, of_rows, tuple(groups.items()))


def lowered(words: str, **look: str) -> str:
    """Return words in bold, where one letter after each "_" stands lower."""
    first, *rest = words.split("_")
    body = tag("tspan", first, font_weight="600", **look)
    for piece in rest:
        body += tag("tspan", piece[0], font_weight="600", font_size=11, dy=2.5, **look)
        body += tag("tspan", piece[1:] or "\u200b", font_weight="600", dy=-2.5, **look)
    return body


def title(x: float, y: float, matrix: Matrix) -> str:
    """Return the name of a matrix and its shape."""
    body = lowered(matrix.name, fill=matrix.meaning() or "ink")
    body += tag("tspan", f"\u2002{matrix.shape}", fill="muted")
    return tag("text", body, x=x, y=y, fill="ink", text_anchor="middle", font_size=13)


def product(
    first: Matrix, second: Matrix, result: Matrix, digits: int, start: Sequence[int]
) -> MovingDrawing:
    """Return the moving drawing of `first` times `second`, one entry of the result after another.

    Each entry takes two frames: its row and its column are framed, then their pairs have
    met and add up. It opens on the entry (row, column) of `start`; the entries after it are still
    empty. Rows are named by the first matrix or the result, columns by the second or the result,
    what is between by either factor.

    Raises:
        ValueError: when the result is not the product.
    """
    a, b, c = first.table, second.table, result.table
    if a.shape[1] != len(b) or c.shape != (len(a), b.shape[1]) or not np.allclose(a @ b, c):
        raise ValueError(
            f"{result.name} must be the product of {first.name}, {first.shape}, and "
            f"{second.name}, {second.shape}; got {result.shape}"
        )
    (n, inner), m = a.shape, b.shape[1]
    rows = checked_labels(first.rows or result.rows, n)
    between = checked_labels(_each(first.columns) or second.rows, inner)
    columns = checked_labels(_each(second.columns or result.columns), m)

    shown_a, shown_b, shown_c = ([[decimal(v, digits) for v in r] for r in t] for t in (a, b, c))
    factors = [[f"({v})" if v[0] == "−" else v for v in row] for row in shown_b]
    long_a, long_b, long_c = (
        max(len(v) for row in t for v in row) * LETTER for t in (shown_a, factors, shown_c)
    )
    left = 14 + LETTER * max(map(len, rows))
    beside = LETTER * max(map(len, between)) + 14  # what names the rows of the second
    wide = max(42.0, 8 + LETTER * max(map(len, [*between, *columns])), 10 + max(long_a, long_c))
    gap = max(beside + max(long_b + 20 - wide / 2, 8), 26 + long_c)
    wide = max(wide, min(60.0, (WIDEST - 8 - left - gap) // (inner + m)))
    right = left + inner * wide + gap
    top, low = 74.0, 74 + inner * HIGH + 34
    foot = low + n * HIGH
    # A pair meets above its column of the first matrix and beside its row of the second.
    meet = [(left + (k + 0.5) * wide, top + (k + 0.5) * HIGH + 4.5) for k in range(inner)]

    body = ways = ""
    for matrix, x, y in ((first, left, low), (second, right, top), (result, right, low)):
        above = y - 29 if matrix is second else foot + 20
        limit = float(np.max(np.abs(matrix.table)))
        if matrix is not result:
            body += cells(matrix.table, x, y, limit, digits, wide, HIGH, matrix.meaning())
        body += title(x + matrix.table.shape[1] * wide / 2, above, matrix)
    for k, name in enumerate(between):
        x, y = meet[k]
        body += text(x, low - 9, name, fill="muted")
        body += text(right - 8, y, name, fill="muted", text_anchor="end")
        ways += line(x, y + 8, x, low - 24, "muted", "2 2")
        if right - beside - x > long_b + 24:
            ways += line(x + long_b + 14, y - 4.5, right - beside, y - 4.5, "muted", "2 2")
    for j, name in enumerate(columns):
        body += text(right + (j + 0.5) * wide, top - 9, name)
    for i, name in enumerate(rows):
        body += text(left - 8, low + (i + 0.5) * HIGH + 4.5, name, text_anchor="end")
    hits = "".join(
        hit(right + j * wide, low + i * HIGH, wide, HIGH, f"entry:{2 * (i * m + j) + 1}")
        for i, j in np.ndindex(n, m)
    )
    sums = [
        " + ".join(f"{shown_a[i][k]}·{factors[k][j]}" for k in range(inner))
        for i, j in np.ndindex(n, m)
    ]
    read = " ".join([first.words(digits), "·", second.words(digits), "=", result.words(digits)])

    def number(
        part: str, words: str, of: Matrix, opacity: int, x: float, y: float, anchor: str,
        zero: bool = False,
    ) -> str:
        look = ("muted", "400") if zero else (of.meaning() or "ink", "600")
        return text(x, y, words, fill=look[0], font_weight=look[1], opacity=opacity,
                    text_anchor=anchor, data_part=part)

    def pairs(entry: int, added: int) -> str:
        """Return the factors of an entry, and unseen those of the entry before.

        A pair whose product is 0 is pale.
        """
        parts = ""
        for odd in (0, 1):
            now = entry % 2 == odd
            i, j = divmod(entry if now else max(entry - 1, 0), m)
            seen = int(now and added)
            for k, (x, y) in enumerate(meet):
                from_a, from_b = (x - 6, y), (x + 6, y)
                if now and not added:  # still in their cells
                    from_a = x - 6, low + (i + 0.5) * HIGH + 4.5
                    from_b = right + (j + 0.5) * wide - long_b / 2, y
                none = bool(a[i, k] * b[k, j] == 0)
                parts += number(f"a{odd}-{k}", shown_a[i][k], first, seen, *from_a, "end", none)
                parts += number(f"b{odd}-{k}", factors[k][j], second, seen, *from_b, "start", none)
        return parts

    def draw(place: int) -> Frame:
        entry, added = divmod(place, 2)
        i, j = divmod(entry, m)
        x, y = right + j * wide, low + i * HIGH
        # The row and the column lead to where they cross, behind the other entries.
        edge, under = left + inner * wide, top + inner * HIGH
        shown = rect(edge, y, x - edge, HIGH, "grid", fill_opacity=0.3, data_part="across")
        shown += rect(x, under, wide, y - under, "grid", fill_opacity=0.3, data_part="down")
        shown += rect(right, low, m * wide, n * HIGH, "paper") + body
        shown += tag("g", ways, opacity=added, data_part="ways")
        limit = float(np.max(np.abs(c)))
        for at, (p, q) in enumerate(np.ndindex(n, m)):
            there = int(at < entry + added)
            left_of, above = right + q * wide, low + p * HIGH
            shown += rect(left_of, above, wide, HIGH, stroke="grid")
            look = cell_look(float(c[p, q]), limit, result.meaning())
            inside = rect(left_of, above, wide, HIGH, **look)
            inside += text(left_of + wide / 2, above + HIGH / 2 + 4.5, shown_c[p][q])
            shown += tag("g", inside, opacity=there, data_part=f"entry-{at}")
        frames = ("row", left, y, inner * wide, HIGH), ("column", x, top, wide, inner * HIGH)
        for part, *box in (*frames, ("cell", x, y, wide, HIGH)):
            shown += rect(*box, stroke="ink", stroke_width=2.5, rx=2, data_part=part)
        for k, (at, level) in enumerate(meet):
            sign = "+" if k else ""
            shown += text(at, level, "·", opacity=added, data_part=f"times-{k}")
            before = at - 12 - 8 * len(shown_a[i][k])
            shown += text(before, level, sign, opacity=added, text_anchor="end", stroke="paper",
                          stroke_width=8, paint_order="stroke", data_part=f"plus-{k}")
        shown += pairs(entry, added)
        # The sum stands in the lane that leads to its cell.
        middle = y + HIGH / 2 + 4.5
        at_sum = (edge + right) / 2, middle
        shown += number("sum", f"= {shown_c[i][j]}", result, added, *at_sum, anchor="middle")
        act = f"Row {rows[i]} meets column {columns[j]}"
        if added:
            act = f"Row {rows[i]} × column {columns[j]}, added up: {shown_c[i][j]}"
        shown += headline(8, 17, act, "act")
        whose = _whose(first, second, result, rows[i], columns[j])
        shown += text(8, 38, whose, fill=result.meaning() or "muted", data_part="whose", **START)
        told = f"Row {rows[i]} of {first.name} meets column {columns[j]} of {second.name}"
        if added:
            told = f"{rows[i]}, {columns[j]}: {sums[entry]} = {shown_c[i][j]}"
        row = rows[i], columns[j], sums[entry], shown_c[i][j]
        return Frame(shown + hits, f"{told}.\n{read}", [row])

    options = tuple(f"{place // 2 + 1} of {n * m}" for place in range(2 * n * m))
    first_place = 2 * (start[0] * m + start[1]) + 1
    control = Control("entry", "entry", options, first_place, pace=1.3)
    heads = f"row of {first.name}", f"column of {second.name}", "sum of products", result.name
    return moving(draw, [control], right + m * wide + 8, foot + 28, columns=heads,
                  about=f"{first.name} · {second.name} = {result.name}")


def _whose(first: Matrix, second: Matrix, result: Matrix, row: str, column: str) -> str:
    """Return what an entry of the result means, as far as the names of the matrices say it."""
    if (first.name, second.name) == ("Q", "Kᵀ"):
        return f"query of {row} · key of {column}"
    kind = result.meaning()
    if kind in ("query", "key", "value", "output"):
        return f"{kind} of {row}, " + (f"entry {column}" if column.isdigit() else f"{column} entry")
    return ""


def _each(columns: Sequence[tuple[str, int]] | None) -> list[str] | None:
    return [name for name, count in columns for _ in range(count)] if columns else None
