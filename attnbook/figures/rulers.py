"""The numbers that a format has, as marks on a ruler: the page below chapter 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnbook.figures.drawing import Drawing, arrow, line, text

LEFT, LONG, ROW = 16.0, 404.0, 92.0


def _short(number: float) -> str:
    return f"{number:g}" if number >= 1 else f"{number:.2g}"


def rulers(rows: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Drawing:
    """Return a drawing of rulers, each with the numbers of a format and numbers that it rounds.

    A row has a name, all numbers from 0 to the largest in rising order, and numbers to be rounded.
    Each of these has an arrow to the nearest number. Every ruler has the same length.

    >>> rulers({"whole": ([0, 1, 2, 4], [2.9])}).alt
    'Numbers as marks on a ruler. whole: 0, 1, 2, 4; 2.9 becomes 2.'
    """
    body, told = "", []
    for i, (name, (numbers, given)) in enumerate(rows.items()):
        foot, each = i * ROW + 66.0, LONG / max(*numbers, *given)
        body += text(LEFT - 6, foot - 50, name, text_anchor="start", font_weight="600")
        body += line(LEFT, foot, LEFT + LONG, foot, "muted")
        free = 0.0
        for number in numbers:
            x, words = LEFT + each * number, _short(number)
            body += line(x, foot - 7, x, foot + 7, "ink")
            if x - 3.6 * len(words) >= free:
                body += text(x, foot + 21, words)
                free = x + 3.6 * len(words) + 4
        told.append(f"{name}: {', '.join(map(_short, numbers))}")
        for one in given:
            found = min(numbers, key=lambda number: abs(number - one))
            start, end = LEFT + each * one, LEFT + each * found
            body += arrow(start, foot - 22, end, foot - 8, "output", 1.5)
            body += text(start, foot - 26, _short(one), fill="output")
            told[-1] += f"; {_short(one)} becomes {_short(found)}"
    alt = f"Numbers as marks on a ruler. {'. '.join(told)}."
    return Drawing.from_elements(body, LEFT + LONG + 24, len(rows) * ROW + 2, alt)
