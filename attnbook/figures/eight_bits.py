"""What a number of eight bits holds of the exponentials of a row: the figure below chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log2

from attnbook.figures.drawing import WIDEST, Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import END, HALO, START, decimal

# Powers of 2: what the axis shows, the largest number of e4m3, and below what it rounds to 0.
FIRST, LAST, LARGEST, SMALLEST = -11.2, 14.0, log2(448), -10.0
LEFT, TOP, ROW, UNIT, BAR = 92.0, 76.0, 84.0, 12.4, 18.0
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def eight_bits(settings: Sequence[tuple[float, float]], lower: float = 10.0) -> Drawing:
    """Return a drawing of where an offset and a slack, in powers of 2, put the exponentials.

    Each setting has a bar. It begins at a triangle, the exponential of a score that is so much
    `lower`, in units of e, than the score that is subtracted. A circle is that one, 2 to the
    offset, and the dashed end is what the slack allows. The band is what e4m3 can hold. What sticks
    out is dark, and below the bar stands what becomes of it.

    >>> eight_bits([(8, 4)]).alt.split(". ")[1].split("; ")[0]
    'Offset 8, slack 4: a key with the score m has 2⁸, the largest allowed 2¹², above 448'
    """

    def x(power: float) -> float:
        return LEFT + UNIT * (power - FIRST)

    bottom = TOP + ROW * len(settings)
    middle = (x(SMALLEST) + x(LARGEST)) / 2
    title = "{:g} + {:g} > {:.1f}: offset and slack do not both fit".format(
        *max(settings, key=sum), LARGEST
    )
    body = [
        text(4, 18, title, font_size=15, font_weight="600", **START),
        rect(x(SMALLEST), TOP - 4, x(LARGEST) - x(SMALLEST), bottom - TOP + 4, "plus",
             fill_opacity="0.12"),
        text(x(SMALLEST) - 6, 48, "becomes 0", **END),
        text(middle, 48, "eight bits (e4m3) hold this"),
        text(x(LARGEST) + 6, 48, "becomes 448", **START),
        text(x(SMALLEST), 66, _power(SMALLEST)),
        text(x(LARGEST), 66, "448"),
    ]
    words = []
    for row, (offset, slack) in enumerate(settings):
        y, most, low = TOP + ROW * row + 28, offset + slack, offset - lower / log(2)
        lost, over = low < SMALLEST, most > LARGEST
        verdict = (
            f"{_power(most)} becomes 448: wrong weights" if over
            else "small weights become 0" if lost else "large and small are held"
        )
        inner = max(low, SMALLEST)
        body += [
            text(4, y + 3, f"offset c = {offset:g}", **START),
            text(4, y + 21, f"slack λ = {slack:g}", **START),
            rect(x(inner), y, x(offset) - x(inner), BAR, "plus", fill_opacity="0.5"),
            rect(x(offset), y, x(min(most, LARGEST)) - x(offset), BAR, "paper", stroke="plus",
                 stroke_dasharray="4 3"),
            text(x(low) + 8, y - 7, f"score {lower:g} lower", **START, **HALO),
            tag("circle", cx=x(offset), cy=y + BAR / 2, r=6, fill="ink"),
            text(x(offset), y - 7, f"score m: {_power(offset)}"),
            text(middle, y + BAR + 19, verdict, font_weight="600",
                 fill="minus" if lost or over else "ink"),
        ]
        for start, end in ((min(low, SMALLEST), SMALLEST), (LARGEST, max(most, LARGEST))):
            body.append(rect(x(start), y, x(end) - x(start), BAR, "minus"))
        corners = (x(low) - 6, y + 15), (x(low) + 6, y + 15), (x(low), y + 3)
        points = " ".join(f"{number(across)},{number(down)}" for across, down in corners)
        body.append(tag("polygon", points=points, fill="ink", stroke="paper", stroke_width=1))
        if slack:
            named, shade = ((LARGEST, most), "paper") if over else ((offset, most), "ink")
            body.append(text(x(sum(named) / 2), y + 13.5, "slack", fill=shade))
            body.append(text(x(most) + 6, y + BAR / 2 + 5, _power(most), **START))
        words.append(
            f"Offset {offset:g}, slack {slack:g}: a key with the score m has {_power(offset)}, "
            f"the largest allowed {_power(most)}, {'above' if over else 'within'} 448; "
            f"a score lower by {lower:g} gives 2 to the power {decimal(low, 1)}, "
            + ("which becomes 0" if lost else "which is held")
        )
    body.append(line(x(FIRST), bottom, x(LAST), bottom, "muted"))
    for power in range(-8, 13, 4):
        body.append(line(x(power), bottom, x(power), bottom + 5, "muted"))
        body.append(text(x(power), bottom + 20, _power(power)))
    body.append(axis_title(x(0), bottom + 40, "exponential × 2ᶜ"))
    told = f"The range of e4m3 as a band. {'. '.join(words)}."
    return Drawing.from_elements("".join(body), WIDEST, bottom + 48, told)


def _power(power: float) -> str:
    return "2" + f"{power:g}".translate(RAISED)
