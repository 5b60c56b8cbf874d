"""What a number of eight bits holds of the exponentials of a row: the figure below chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log2

from attnbook.figures.drawing import (
    WIDEST,
    Drawing,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import END, START, decimal

# Powers of 2: what the axis shows, the largest number of e4m3, and below what it rounds to 0.
FIRST, LAST, LARGEST, SMALLEST = -11.4, 13.2, log2(448), -10.0
LEFT, TOP, ROW, UNIT, BAR = 2.0, 92.0, 92.0, 18.0, 28.0
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def eight_bits(settings: Sequence[tuple[float, float]], lower: float = 10.0) -> Drawing:
    """Return a drawing of where an offset and a slack, in powers of 2, put the exponentials.

    Each setting has a bar. From 1 to the circle, the exponential of the score that is subtracted,
    it is as long as the offset, and from there a dashed box is as long as the slack. To the left,
    it ends at a triangle, the exponential of a score that is so much `lower`, in units of e. The
    band is what e4m3 can hold. What sticks out is dark, and above the bar stands what becomes of
    it.

    >>> eight_bits([(8, 4)]).alt.split(". ")[1].split("; ")[0]
    'Offset 8, slack 4: a key with the score m has 2⁸, the largest allowed 2¹², above 448'
    """

    def x(power: float) -> float:
        return LEFT + UNIT * (power - FIRST)

    foot, room = TOP + ROW * len(settings), f"{LARGEST:.1f}"
    body = [
        headline(2, 18, f"Offset + slack must fit into {room} powers of 2", "title"),
        rect(x(SMALLEST), 66, x(LARGEST) - x(SMALLEST), foot - 66, "plus", fill_opacity="0.1"),
        text(x(SMALLEST), 58, "eight bits (e4m3) hold this", fill="plus", **START),
        # The room has its width above the band, with a bar at both ends.
        tag("path", d=f"M{number(x(0))} 34v18M{number(x(LARGEST))} 34v18", stroke="plus",
            stroke_width=2),
        line(x(0), 43, x(LARGEST), 43, "plus"),
        rect((x(0) + x(LARGEST)) / 2 - 18, 33, 36, 20, "paper"),
        text((x(0) + x(LARGEST)) / 2, 48, room, fill="plus", font_size=15, font_weight="600"),
        tag("line", x1=x(LARGEST), y1=66, x2=x(LARGEST), y2=foot, stroke="plus", stroke_width=2),
    ]
    words = []
    for row, (offset, slack) in enumerate(settings):
        y, most, low = TOP + ROW * row, offset + slack, offset - lower / log(2)
        lost, over = low < SMALLEST, most > LARGEST
        verdict = (
            f"the largest, {_power(most)}, become 448" if over
            else "the smallest become 0" if lost else "all are held"
        )
        sign = ">" if over else "<"
        top = y + 8
        body += [
            text(x(SMALLEST) + 4, y - 2, f"{offset:g} + {slack:g} {sign} {room}: {verdict}",
                 font_weight="600", fill="minus" if lost or over else "ink", **START),
            rect(x(low), top, x(0) - x(low), BAR, "plus", fill_opacity="0.25"),
            rect(x(0), top, x(offset) - x(0), BAR, "plus"),
            text((x(0) + x(offset)) / 2, top + 19, f"offset {offset:g}", fill="paper",
                 font_weight="600"),
        ]
        if lost:
            body.append(rect(x(low), top, x(SMALLEST) - x(low), BAR, "minus"))
        if slack:
            body.append(rect(x(offset), top, x(most) - x(offset), BAR, "paper", stroke="plus",
                             stroke_dasharray="4 3", stroke_width=1.5))
            if over:
                start = max(offset, LARGEST)
                body.append(rect(x(start), top, x(most) - x(start), BAR, "minus"))
            body.append(text(x(max(offset, LARGEST) if over else offset) / 2 + x(most) / 2,
                             top + 19, f"slack {slack:g}", fill="paper" if over else "ink",
                             font_weight="600"))
        corners = (x(low) - 7, top + BAR + 1), (x(low) + 7, top + BAR + 1), (x(low), top + BAR - 12)
        points = " ".join(f"{number(across)},{number(down)}" for across, down in corners)
        body += [
            tag("polygon", points=points, fill="ink", stroke="paper", stroke_width=1),
            tag("circle", cx=x(offset), cy=top + BAR, r=6, fill="ink", stroke="paper"),
            text(max(x(low) - 7, 2), top + BAR + 20, f"score {lower:g} lower", **START),
            text(x(offset) + 7, top + BAR + 20, f"score m: {_power(offset)}", **END),
        ]
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
