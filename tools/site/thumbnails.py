"""A small picture for each chapter's card on the first page: no numbers, only what one looks for.

Each is an SVG of 64 × 40 whose colours the book's stylesheet gives to the classes: the first letter
of a name of `COLOURS`, and `f` for what is filled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import cos, pi, sin

from attnbook.figures.drawing import number, tag


def _path(look: str, *pieces: str) -> str:
    return f'<path class="{look}" d="{"".join(pieces)}"/>'


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h-{number(width)}z"


def _dot(x: float, y: float, r: float) -> str:
    across = number(2 * r)
    arc = f"a{number(r)} {number(r)} 0 1 1 "
    return f"M{number(x - r)} {number(y)}{arc}{across} 0{arc}-{across} 0z"


def _cells(places: Iterable[tuple[int, int]], x: float, y: float, side: float) -> Iterator[str]:
    """Yield the squares at (row, column), with a gap of 2 between."""
    for i, j in places:
        yield _box(x + (side + 2) * j, y + (side + 2) * i, side, side)


def _grid(rows: int, columns: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(rows) for j in range(columns)]


def _arcs(y: float, start: float, ends: Iterable[float]) -> Iterator[str]:
    """Yield arcs above a line."""
    for end in ends:
        top = y - 8 - 0.5 * abs(end - start)
        yield f"M{number(start)} {number(y)}C{number(start)} {number(top)} {number(end)} "
        yield f"{number(top)} {number(end)} {number(y)}"


def _ring() -> Iterator[str]:
    for angle in range(6):
        yield _dot(32 + 14 * sin(pi * angle / 3), 20 - 14 * cos(pi * angle / 3), 4)


DIAGONALS = ([(0, 0), (1, 1), (2, 2)], [(0, 2), (1, 2), (2, 2)], [(0, 0), (1, 0), (2, 1)])
DIAGONAL_DOTS = ((0, 0), (1, 1), (2, 0), (3, 1), (3, 3), (4, 2), (4, 0))

# In the order of the chapters.
PICTURES = (
    # A query finds keys, and takes from their values.
    _path("q f", _dot(9, 20, 5))
    + _path("w t", "M15 19L34 8")
    + _path("w", "M15 20H34M15 21L34 32")
    + _path("k f", *(_box(35, y, 8, 8) for y in (4, 16, 28)))
    + _path("v f", *(_box(47, y, 12, 8) for y in (4, 16, 28))),
    # Queries on the left, keys above, a score for each pair.
    _path("q f", *_cells([(1, 0), (2, 0), (3, 0)], 12, 2, 7))
    + _path("k f", *_cells([(0, 1), (0, 2), (0, 3)], 12, 2, 7))
    + _path("i", *_cells([(i, j) for i in (1, 2, 3) for j in (1, 2, 3)], 12, 2, 7)),
    # A root.
    _path("p t", "M6 22H12L19 35L29 5H59")
    + _path("w f", _box(33, 22, 6, 12), _box(42, 13, 6, 21), _box(51, 26, 6, 8)),
    # An exponential function over bars.
    _path("w f", *(_box(x, 35 - h, 8, h) for x, h in ((8, 3), (20, 6), (32, 12), (44, 25))))
    + _path("i", "M4 31C30 30 44 24 55 3"),
    # A beam that balances.
    _path("i t", "M5 26H59")
    + _path("w f", _dot(14, 20, 5), _dot(34, 22, 3), _dot(50, 16, 9))
    + _path("o f", "M38 27L45 38H31z"),
    # One is right, one is wrong.
    _path("p t", "M6 21L14 30L28 9") + _path("m t", "M38 10L57 30M57 10L38 30"),
    # A triangle of squares.
    _path("w f", *_cells([(i, j) for i, j in _grid(4, 4) if j <= i], 13, 1, 8))
    + _path("g", *_cells([(i, j) for i, j in _grid(4, 4) if j > i], 13, 1, 8)),
    # Three heads with three patterns.
    "".join(
        _path("g", *_cells(_grid(3, 3), x, 11, 4)) + _path("w f", *_cells(places, x, 11, 4))
        for x, places in zip((2, 24, 46), DIAGONALS, strict=True)
    ),
    # Two arrows that turn.
    _path("g", _dot(32, 20, 18)) + _path("q t", "M32 20L47 11") + _path("k t d", "M32 20L27 4"),
    # Sheets, one behind the other.
    _path("i", "M22 8V3H58V25H53M16 14V9H52V31H47") + _path("w f", _box(8, 15, 38, 22)),
    # A square that grows, and a line.
    _path("i", "M6 3V36H60") + _path("p t", "M6 36L58 28") + _path("m t", "M6 36Q40 34 54 4"),
    # Blocks of one row, one after the other.
    _path("u f", *_cells([(0, 0), (0, 1)], 4, 8, 9))
    + _path("w f", *_cells([(0, 2)], 4, 8, 9))
    + _path("g", *_cells([(0, 3), (0, 4)], 4, 8, 9))
    + _path("o t", "M4 29H36M30 24L36 29L30 34"),
    # Tiles, on the way back.
    _path("g", *_cells(_grid(2, 5), 4, 3, 9))
    + _path("w f", *_cells([(1, 2)], 4, 3, 9))
    + _path("o t", "M58 33H10M16 28L10 33L16 38"),
    # A chip.
    _path("i", "M18 6H46V34H18zM12 12H18M12 20H18M12 28H18M46 12H52M46 20H52M46 28H52")
    + _path("w f", *_cells(_grid(2, 2), 23, 11, 8)),
    # A cache of keys and values, and one new query.
    _path("k f", *_cells([(0, j) for j in range(5)], 4, 4, 8))
    + _path("v f", *_cells([(1, j) for j in range(5)], 4, 4, 8))
    + _path("q f", *_cells([(2, 4)], 4, 4, 8))
    + _path("g", *_cells([(0, 5), (1, 5)], 4, 4, 8)),
    # A ring of devices.
    _path("g", _dot(32, 20, 14)) + _path("k f", *_ring()),
    # A loss that falls in a step.
    _path("i", "M6 3V36H60") + _path("o t", "M8 8C16 10 22 11 27 12C34 14 32 30 40 31L59 33"),
    # Queries that share keys.
    _path("i", "M8 12L20 26M24 12L20 26M40 12L48 26M56 12L48 26")
    + _path("q f", *(_box(x - 4, 4, 8, 8) for x in (8, 24, 40, 56)))
    + _path("k f", _box(16, 26, 8, 8), _box(44, 26, 8, 8)),
    # A line of words, and where one of them looks.
    _path("w", *_arcs(28, 48, (24, 36, 60)))
    + _path("w t", *_arcs(28, 48, (8,)))
    + _path("i t", "M3 33H13M19 33H29M32 33H40M55 33H63")
    + _path("q t", "M43 33H52"),
    # A triangle of keys, and a few of them that are chosen.
    _path("g", *_cells([(i, j) for i, j in _grid(5, 5) if j <= i], 15, 1, 6))
    + _path("k f", *(_dot(18 + 8 * j, 4 + 8 * i, 2.6) for i, j in DIAGONAL_DOTS)),
    # Pairs that go into one board.
    _path("k f", *_cells([(i, 0) for i in range(3)], 2, 5, 8))
    + _path("v f", *_cells([(i, 0) for i in range(3)], 12, 5, 8))
    + _path("u t", "M23 19H33M29 15L33 19L29 23")
    + _path("i t", _box(38, 5, 24, 28))
    + _path("w", "M42 13H56M42 19H58M42 25H53M44 16H58M43 22H55"),
)


def thumbnail(chapter: int) -> str:
    """Return the picture of a chapter, which says nothing that its title does not."""
    look = {"class_": "thumbnail", "viewBox": "-2 -2 68 44", "aria_hidden": "true"}
    return tag("svg", PICTURES[chapter - 1], **look)
