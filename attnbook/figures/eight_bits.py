"""What a number of eight bits holds of the exponentials of a row: the figure below chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log2

from attnbook.figures.drawing import (
    WIDEST,
    Drawing,
    arrow,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import END, HALO, START, decimal

# Powers of 2: what the axis shows, the largest number of e4m3, and below what it rounds to 0.
FIRST, LAST, LARGEST, SMALLEST = -15.2, 12.7, log2(448), -10.0
LEFT, TOP, ROW, UNIT = 4.0, 66.0, 104.0, 15.6
# How far below the top of a row its words, the arrow of the offset and the exponentials stand.
WORDS, MOVED, DOTS = 18.0, 38.0, 64.0
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def eight_bits(settings: Sequence[tuple[float, float]], lower: float = 10.0) -> Drawing:
    """Return a drawing of where an offset and a slack, in powers of 2, put the exponentials.

    Each setting has a row. An arrow from 1 to the circle, the exponential of the score that is
    subtracted, is as long as the offset, and from there a dashed box is as long as the slack. A
    triangle is the exponential of a score that is so much `lower`, in units of e. The band is what
    e4m3 can hold, and above each row stands what becomes of the exponentials outside it.

    >>> eight_bits([(8, 4)]).alt.split(". ")[1].split("; ")[0]
    'Offset 8, slack 4: a key with the score m has 2⁸, the largest allowed 2¹², above 448'
    """

    def x(power: float) -> float:
        return LEFT + UNIT * (power - FIRST)

    foot = TOP + ROW * len(settings)
    body = [
        headline(2, 18, "The offset saves small weights, but 448 is the wall", "title"),
        rect(x(SMALLEST), 54, x(LARGEST) - x(SMALLEST), foot - 54, "plus", fill_opacity="0.1"),
        text((x(SMALLEST) + x(LARGEST)) / 2, 46, "eight bits (e4m3) hold this band", fill="plus",
             font_weight="600"),
        *(text(at, 46, words, fill="minus", font_weight="600", **side)
          for at, words, side in ((x(SMALLEST) - 6, "too small", END),
                                  (x(LARGEST) - 6, "too large", START))),
        *(tag("line", x1=x(power), y1=54, x2=x(power), y2=foot, stroke=shade, stroke_width=2,
              stroke_dasharray=dash)
          for power, shade, dash in ((SMALLEST, "plus", None), (LARGEST, "plus", None))),
        line(x(0), 54, x(0), foot, "muted", "2 3"),
    ]
    words = []
    for row, (offset, slack) in enumerate(settings):
        top, most, low = TOP + ROW * row, offset + slack, offset - lower / log(2)
        y, lost, over = top + DOTS, low < SMALLEST, most > LARGEST
        verdict = ["the smallest becomes 0"] * lost + ["the largest becomes 448"] * over
        body += [
            text(x(SMALLEST) + 6, top + WORDS - 6,
                 f"offset {offset:g}: {' and '.join(verdict) or 'all are held'}",
                 font_weight="600", fill="minus" if lost or over else "ink", **START, **HALO),
            line(x(FIRST), y, x(LAST), y, "muted"),
        ]
        if offset:
            body += [arrow(x(0), top + MOVED, x(offset) - 1, top + MOVED, "ink", 2),
                     text((x(0) + x(offset)) / 2, top + MOVED - 6, f"× {_power(offset)}",
                          font_weight="600", **HALO)]
        if slack:
            body += [rect(x(offset), y - 13, x(most) - x(offset), 26, stroke="plus",
                          stroke_dasharray="4 3", stroke_width=1.5),
                     tag("circle", cx=x(most), cy=y, r=6, fill="minus" if over else "plus",
                         stroke="paper"),
                     text((x(offset) + x(most)) / 2, y + 29, f"slack {slack:g}", fill="plus")]
        corners = (x(low) - 7, y + 6), (x(low) + 7, y + 6), (x(low), y - 8)
        points = " ".join(f"{number(across)},{number(down)}" for across, down in corners)
        body += [
            tag("polygon", points=points, fill="minus" if lost else "ink", stroke="paper"),
            tag("circle", cx=x(offset), cy=y, r=6, fill="ink", stroke="paper"),
        ]
        if not row:
            body += [text(x(offset) - 12, y - 12, "score m", **END, **HALO),
                     text(x(most) + 11, y - 12, f"m + {slack:g}", fill="plus", **START, **HALO),
                     text(max(x(low) - 8, 2), y + 24,
                          f"m − {decimal(lower / log(2), 1)}", **START)]
        words.append(
            f"Offset {offset:g}, slack {slack:g}: a key with the score m has {_power(offset)}, "
            f"the largest allowed {_power(most)}, {'above' if over else 'within'} 448; "
            f"a score lower by {lower:g} gives 2 to the power {decimal(low, 1)}, "
            + ("which becomes 0" if lost else "which is held")
        )
    body.append(line(x(FIRST), foot, x(LAST), foot, "muted"))
    for power, name in ((SMALLEST, _power(SMALLEST)), (-5, _power(-5)), (0, "1"), (4, _power(4)),
                        (LARGEST, "448"), (12, _power(12))):
        body.append(line(x(power), foot, x(power), foot + 5, "muted"))
        body.append(text(x(power), foot + 20, name))
    body.append(axis_title((x(FIRST) + x(LAST)) / 2, foot + 41, "exponentials × 2ᶜ, c the offset"))
    told = f"The range of e4m3 as a band. {'. '.join(words)}."
    return Drawing.from_elements("".join(body), WIDEST, foot + 49, told)


def _power(power: float) -> str:
    return "2" + f"{power:g}".translate(RAISED)
