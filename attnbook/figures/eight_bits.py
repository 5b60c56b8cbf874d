"""What a number of eight bits holds of the exponentials of a row: the figure below chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log2

from attnbook.figures.drawing import WIDEST, Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import decimal

# Powers of 2: what the axis shows, the largest number of e4m3, and below what it rounds to 0.
FIRST, LAST, LARGEST, SMALLEST = -13, 13, log2(448), -10.0
LEFT, TOP, ROW, UNIT = 84.0, 46.0, 66.0, 13.8
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def eight_bits(settings: Sequence[tuple[float, float]], lower: float = 10.0) -> Drawing:
    """Return a drawing of where an offset and a slack, in powers of 2, put the exponentials.

    A row is a setting. A circle is the exponential of the score that is subtracted, 2 to the
    offset; a dashed line leads from it as far as the slack allows. A triangle is the exponential
    of a score that is so much `lower`, in units of e. The band is what e4m3 can hold, and each row
    says what becomes of it.

    >>> eight_bits([(8, 4)]).alt.split(". ")[1].split("; ")[0]
    'Offset 8, slack 4: a key with the score m has 2⁸, the largest allowed 2¹², above 448'
    """

    def x(power: float) -> float:
        return LEFT + UNIT * (power - FIRST)

    bottom = TOP + ROW * len(settings)
    band = x(LARGEST) - x(SMALLEST)
    body = [
        rect(x(SMALLEST), TOP - 6, band, bottom - TOP + 6, "plus", fill_opacity="0.12"),
        text(x(SMALLEST) - 14, 18, "too small", text_anchor="end"),
        text(x(SMALLEST) + band / 2, 18, "eight bits (e4m3) hold this"),
        text(x(LARGEST) + 4, 18, "too large", text_anchor="start"),
        text(x(LARGEST), 36, "448", text_anchor="middle"),
        text(x(SMALLEST), 36, "2⁻¹⁰", text_anchor="middle"),
    ]
    words = []
    for row, (offset, slack) in enumerate(settings):
        y, most, low = TOP + ROW * row + 28, offset + slack, offset - lower / log(2)
        body += [
            text(4, y - 7, f"offset {offset:g}", text_anchor="start"),
            text(4, y + 10, f"slack {slack:g}", text_anchor="start"),
            line(x(FIRST), y, x(offset), y, "muted"),
        ]
        lost = low < SMALLEST
        verdict = f"{_power(most)} becomes 448" if most > LARGEST else "fits"
        verdict += ", small weights become 0" if lost else ", and so do small weights"
        if most > LARGEST and not lost:
            verdict = f"{_power(most)} becomes 448: wrong weights"
        body.append(text(x(SMALLEST) + band / 2, y + 24, verdict, font_weight="600"))
        body.append(text(x(low), y - 10, f"{lower:g} lower"))
        corners = (x(low) - 5, y + 5), (x(low) + 5, y + 5), (x(low), y - 5)
        points = " ".join(f"{number(across)},{number(down)}" for across, down in corners)
        fill = "paper" if lost else "ink"
        body.append(tag("polygon", points=points, fill=fill, stroke="ink", stroke_width=1.5))
        if slack:
            name = "plus" if most <= LARGEST else "minus"
            body.append(line(x(offset), y, x(most), y, name, "5 3"))
            body.append(line(x(most), y - 6, x(most), y + 6, name))
        body.append(tag("circle", cx=x(offset), cy=y, r=5.5, fill="plus"))
        body.append(text(x(offset), y - 10, _power(offset)))
        if slack:
            body.append(text(x(most), y - 10, _power(most)))
        words.append(
            f"Offset {offset:g}, slack {slack:g}: a key with the score m has {_power(offset)}, "
            f"the largest allowed {_power(most)}, {'above' if most > LARGEST else 'within'} 448; "
            f"a score lower by {lower:g} gives 2 to the power {decimal(low, 1)}, "
            + ("which becomes 0" if lost else "which is held")
        )
    body.append(line(x(FIRST), bottom, x(LAST), bottom, "muted"))
    for power in range(-12, 13, 4):
        body.append(line(x(power), bottom, x(power), bottom + 5, "muted"))
        body.append(text(x(power), bottom + 20, _power(power)))
    body.append(axis_title(x(0), bottom + 40, "exponential × 2ᶜ"))
    told = f"The range of e4m3 as a band. {'. '.join(words)}."
    return Drawing.from_elements("".join(body), WIDEST, bottom + 48, told)


def _power(power: float) -> str:
    return "2" + f"{power:g}".translate(RAISED)
