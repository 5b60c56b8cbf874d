"""What a number of eight bits holds of the exponentials of a row: the figure below chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2

from attnbook.figures.drawing import WIDEST, axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import HALO, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

# Powers of 2: what the axis shows, the largest number of e4m3, and below what it rounds to 0.
FIRST, LAST, LARGEST, SMALLEST = -14.9, 13.3, log2(448), -10.0
LEFT, UNIT = 2.0, 15.7
# From above: the words of the three parts, the arrow of the offset, the row, and the number line.
WORDS, TOP, MOVED, ROW, FOOT = 46.0, 72.0, 108.0, 154.0, 208.0
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def eight_bits(
    offsets: Sequence[int] = (0, 4, 8), *, start: int = 8, slack: int = 4, lower: int = 13
) -> MovingDrawing:
    """Return a moving figure: an offset moves the exponentials of a row along what e4m3 holds.

    The circle is the exponential of the score that is subtracted, the triangle that of a score
    `lower`, and the dashed box is the room that the slack allows. All are powers of 2. Left of the
    band a number becomes 0, right of it 448. That part is lit when something stands in it.

    >>> eight_bits().alt.split(": ")[1]
    'the largest weights become 448; score m gives 2⁸, m + 4 gives 2¹², m − 13 gives 2⁻⁵.'
    """
    names = "score m", f"m + {slack}", f"m − {lower}"

    def draw(place: int) -> Frame:
        offset = offsets[place]
        powers = offset, offset + slack, offset - lower
        over, lost = powers[1] > LARGEST, powers[2] < SMALLEST
        told = ["small weights become 0"] * lost + ["the largest weights become 448"] * over
        title = f"Offset {offset}: {' and '.join(told) or 'all are held'}"
        gives = ", ".join(
            f"{name} gives {_power(power)}" for name, power in zip(names, powers, strict=True)
        )
        sizes = [f"{2.0**power:.2g}" if power < 0 else f"{2**power}" for power in powers]
        cells = sizes[0], sizes[1], "448" * over or "held", sizes[2], "0" * lost or "held"
        body = [
            headline(2, 18, title, "title"),
            _parts(lost, over),
            _offset(offset),
            tag("g", _row(names, powers, lost, over), data_part="row",
                transform=f"translate({number(_x(offset))} {number(ROW)})"),
        ]
        middles = [_x((a + b) / 2) for a, b in pairwise(offsets)]
        body += strips([_x(FIRST), *middles, _x(LAST)], TOP, FOOT + 24, "offset")
        return Frame("".join(body), f"{title}; {gives}.", [(str(offset), *cells)])

    return moving(
        draw,
        [Control("offset", "offset c", tuple(map(str, offsets)), offsets.index(start), pace=1.5)],
        WIDEST,
        FOOT + 49,
        columns=("offset", f"{names[0]} gives", f"{names[1]} gives", "becomes",
                 f"{names[2]} gives", "becomes"),
        about="what eight bits hold",
    )


def _x(power: float) -> float:
    return LEFT + UNIT * (power - FIRST)


def _power(power: float) -> str:
    return "2" + f"{power:g}".translate(RAISED) if power else "1"


def _parts(lost: bool, over: bool) -> str:
    """Return the number line, the band that e4m3 holds, and the parts beside it, lit or not."""
    body = [
        rect(_x(SMALLEST), TOP, _x(LARGEST) - _x(SMALLEST), FOOT - TOP, "plus", fill_opacity="0.1"),
        text(_x((SMALLEST + LARGEST) / 2), WORDS + 16, "eight bits (e4m3) hold these", fill="plus",
             font_weight="600"),
    ]
    for part, begin, end, becomes, lit in (("small", FIRST, SMALLEST, "0", lost),
                                           ("large", LARGEST, LAST, "448", over)):
        weight = "600" if lit else "400"
        body.append(rect(_x(begin), TOP, _x(end) - _x(begin), FOOT - TOP, "minus",
                         fill_opacity=0.25 * lit, data_part=f"{part}-lit"))
        body += [text(_x((begin + end) / 2), WORDS + 16 * row, words, fill="minus",
                      font_weight=weight, data_part=f"{part}-{row}")
                 for row, words in enumerate(("becomes", becomes))]
    body += [tag("line", x1=_x(wall), y1=TOP, x2=_x(wall), y2=FOOT, stroke="plus", stroke_width=2)
             for wall in (SMALLEST, LARGEST)]
    body += [line(_x(0), MOVED - 18, _x(0), FOOT, "muted", "2 3"),
             line(_x(FIRST), FOOT, _x(LAST), FOOT, "muted")]
    body += [line(_x(power), FOOT, _x(power), FOOT + 4, "muted") for power in range(-14, 14)]
    for power, name in ((SMALLEST, _power(SMALLEST)), (-5, _power(-5)), (0, "1"), (4, _power(4)),
                        (LARGEST, "448")):
        body.append(text(_x(power), FOOT + 20, name))
    words = "exponentials × 2ᶜ; from tick to tick they double"
    body.append(axis_title(WIDEST / 2, FOOT + 42, words))
    return "".join(body)


def _offset(offset: int) -> str:
    """Return the arrow from 1 to the exponential of m, and what multiplies all exponentials."""
    there = float(offset > 0)
    tip = tag("path", d="M0 0l-7 -4v8z", fill="ink", opacity=there, data_part="tip",
              transform=f"translate({number(_x(offset))} {number(MOVED)})")
    return (
        tag("line", x1=_x(0), y1=MOVED, x2=_x(offset) - 6 * there, y2=MOVED, stroke="ink",
            stroke_width=2, data_part="moved") + tip
        + text(_x(0), MOVED - 10, f"offset {offset}: × {_power(offset)}", font_weight="600",
               data_part="factor", **START, **HALO)
    )


def _row(names: Sequence[str], powers: Sequence[int], lost: bool, over: bool) -> str:
    """Return the marks of the row about that of m: above each its size, and below its score."""
    (_, right, low), middle = (UNIT * (power - powers[0]) for power in powers), 0.0
    body = [
        line(low, 0, right, 0, "muted"),
        rect(middle, -13, right, 26, "paper", stroke="plus", stroke_dasharray="4 3",
             stroke_width=1.5),
        text(right / 2, 4.5, "slack", fill="plus"),
        tag("path", d=f"M{number(low - 7)} 6h14l-7 -14z", fill="minus" if lost else "ink",
            stroke="paper", data_part="mark-low"),
        tag("circle", cx=middle, r=6, fill="ink", stroke="paper"),
        tag("circle", cx=right, r=6, fill="minus" if over else "plus", stroke="paper",
            data_part="mark-largest"),
    ]
    for at, name, power in zip((middle, right, low), names, powers, strict=True):
        body += [text(at, 31, name, **HALO),
                 text(at, -20, _power(power), font_weight="600", data_part=f"size-{name}", **HALO)]
    return "".join(body)
