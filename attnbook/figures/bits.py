"""The bits of a number in three formats: the moving figure below chapter 10."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log10

import numpy as np

from attnbook.figures.drawing import headline, line, rect, tag, text
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

WIDTH = 440.0
# Where the first format begins, its height, the left edge and the size of a bit, a gap of fields.
TOP, BLOCK, LEFT, BIT, GAP = 62.0, 84.0, 4.0, 13.0, 6.0
# The line of sizes: where it begins, the height of a format on it, its first and last power of 10.
RANGE, ROW, LOW, HIGH = TOP + 3 * BLOCK, 16.0, -46.0, 40.0
FIELDS = "muted", "plus", "minus"  # sign, exponent, fraction
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Format:
    """A floating-point format: its name, and how many bits of exponent and of fraction it has."""

    name: str
    exponent: int
    fraction: int

    def round(self, value: float) -> tuple[str, float]:
        """Return the bits of the nearest number of this format, and that number.

        A value is rounded to float32 first, as torch does on its way to bfloat16.

        >>> FORMATS[2].round(-6.5)
        ('1100011010000000', -6.5)
        """
        with np.errstate(over="ignore"):
            if self.name == "float16":
                short = np.float16(value)
                return f"{int(short.view(np.uint16)):016b}", float(short)
            number = int(np.float32(value).view(np.uint32))
        if self.name == "bfloat16":  # half a unit, and to even where two are equally near
            number = (number + 0x7FFF + (number >> 16 & 1)) >> 16 << 16
        held = float(np.uint32(number).view(np.float32))
        return f"{number:032b}"[: 1 + self.exponent + self.fraction], held


FORMATS = (Format("float32", 8, 23), Format("bfloat16", 8, 7), Format("float16", 5, 10))


def _digits(value: float, digits: int = 9) -> str:
    """Return a number with at most so many digits, and a power of ten where it is long.

    >>> _digits(6.5), _digits(-1e-8), _digits(2.5e-9)
    ('6.5', '−10⁻⁸', '2.5·10⁻⁹')
    """
    if not isfinite(value):
        return "∞" if value > 0 else "−∞"
    short = f"{value:.{digits}g}".replace("-", "−", 1) if value < 0 else f"{value:.{digits}g}"
    if "e" not in short:
        return short
    factor, power = short.split("e")
    ten = "10" + str(int(power)).translate(RAISED)
    return ten if factor == "1" else "−" + ten if factor == "−1" else f"{factor}·{ten}"


def _product(form: Format, bits: str) -> str:
    """Return what the bits of a finite number say: a factor times a power of two."""
    exponent, fraction = int(bits[1 : 1 + form.exponent], 2), int(bits[1 + form.exponent :], 2)
    bias = 2 ** (form.exponent - 1) - 1
    power = max(exponent, 1) - bias
    factor = (exponent > 0) + fraction / 2**form.fraction
    sign = "−" if bits[0] == "1" else ""
    return f"{sign}{_digits(factor)} · 2{str(power).translate(RAISED)}"


def _told(form: Format, value: float) -> tuple[str, str, str]:
    """Return the number that is held, its relative error, and the line under the bits."""
    bits, held = form.round(value)
    if not isfinite(held):
        return _digits(held), "overflow", f"too large: {_digits(held)} (overflow)"
    if held == 0 and value:
        return "0", "underflow", "too small: 0 (underflow)"
    if held == value:
        return _digits(held), "exact", f"{_product(form, bits)} = {_digits(held)}, exact"
    off = _digits(abs(held - value) / abs(value), 2)
    return _digits(held), off, f"{_product(form, bits)} = {_digits(held)}, relative error {off}"


def _elements(name: str, value: float) -> str:
    """Return the drawing of one number: for each format its bits, and what they say."""
    body = [
        headline(LEFT, 24, f"number: {name}", "number"),
        text(WIDTH - 4, 24, "a filled box is a 1", text_anchor="end", fill="muted"),
    ]
    for row, form in enumerate(FORMATS):
        y, (bits, _) = TOP + BLOCK * row, form.round(value)
        body += [
            text(LEFT, y, form.name, text_anchor="start", font_weight="600"),
            text(84, y, "sign,", text_anchor="start", fill="muted"),
            text(122, y, f"exponent ({form.exponent} bits),", text_anchor="start", fill="plus"),
            text(248, y, f"fraction ({form.fraction} bits)", text_anchor="start", fill="minus"),
        ]
        for place, bit in enumerate(bits):
            field = (place > 0) + (place > form.exponent)
            x, fill = LEFT + BIT * place + GAP * field, FIELDS[field]
            part = f"{form.name}-{place}"
            body += [
                rect(x, y + 8, BIT, 20, fill, fill_opacity="0.35", opacity=bit,
                     data_part=f"{part}-box"),
                text(x + BIT / 2, y + 22.5, bit, data_part=part),
            ]
        ends = itertools.accumulate((1, form.exponent, form.fraction), initial=0)
        for field, (first, last) in enumerate(itertools.pairwise(ends)):
            x, wide = LEFT + BIT * first + GAP * field, BIT * (last - first)
            lines = "".join(f"m{BIT:g} 0v20m0-20" for _ in range(first, last - 1))
            body.append(tag("path", d=f"M{x:g} {y + 8:g}h{wide:g}v20h-{wide:g}zv0{lines}",
                            fill="none", stroke=FIELDS[field]))
        body.append(text(LEFT, y + 46, _told(form, value)[2], text_anchor="start",
                         data_part=f"{form.name}-told"))
    return "".join(body)


def number_bits(numbers: Mapping[str, float], *, start: str) -> MovingDrawing:
    """Return a moving figure: the bits of a number as float32, bfloat16 and float16.

    The slider takes the figure through the numbers, whose names are the words that are shown. Under
    the bits of each format stands the number that they mean, and its relative error. On a line of
    sizes, on which the number can be dragged, a bar is the range of a format: what lies outside it
    becomes 0 or ∞.

    >>> print(number_bits({"6.5": 6.5, "257": 257.0}, start="257").alt[:72])
    257: float32 257, exact; bfloat16 256, error 0.0039; float16 257, exact.
    """
    names, values = tuple(numbers), tuple(numbers.values())
    header = (word for form in FORMATS for word in (form.name, f"relative error of {form.name}"))

    def draw(place: int) -> Frame:
        name, value = names[place], values[place]
        told = {form.name: _told(form, value) for form in FORMATS}
        held = "; ".join(
            f"{form} {number}, {'error ' * off[0].isdigit()}{off}"
            for form, (number, off, _) in told.items()
        )
        bits = []
        for form in FORMATS:
            word = form.round(value)[0]
            parts = word[0], word[1 : 1 + form.exponent], word[1 + form.exponent :]
            bits.append(f"{form.name} {' '.join(parts)}")
        row = (name, *(word for number, off, _ in told.values() for word in (number, off)))
        words = f"{name}: {held}.\nSign, exponent, fraction: {'; '.join(bits)}."
        return Frame(_elements(name, value) + _range(value, values), words, [row])

    return moving(
        draw,
        [Control("number", "number", names, names.index(start))],
        WIDTH,
        RANGE + 74,
        columns=("number", *header),
        about="the bits of a number",
    )


def _across(value: float) -> float:
    """Return where a size stands on the line of powers of ten; 0 stands at its left end."""
    power = log10(abs(value)) if value else -inf
    return round(88 + (WIDTH - 112) * (min(max(power, LOW), HIGH) - LOW) / (HIGH - LOW), 1)


def _range(value: float, values: Sequence[float]) -> str:
    """Return the range of each format on one line, with the number on it, which can be dragged."""
    here, foot = _across(value), RANGE + 3 * ROW
    body = [text(LEFT, RANGE - 8, "sizes that are not 0 or ∞", text_anchor="start", fill="muted")]
    for row, form in enumerate(FORMATS):
        bias, y = 2 ** (form.exponent - 1) - 1, RANGE + ROW * row
        least, most = 2.0 ** (1 - bias - form.fraction), (2 - 2.0**-form.fraction) * 2.0**bias
        inside = not value or least <= abs(value) <= most
        body += [
            text(LEFT, y + 11, form.name, text_anchor="start"),
            rect(_across(least), y + 2, round(_across(most) - _across(least), 1), 10, "plus",
                 fill_opacity="0.35", stroke="plus"),
            tag("circle", cx=here, cy=y + 7, r=5, stroke="ink", stroke_width=2,
                fill="ink" if inside else "paper", data_part=f"{form.name}-here"),
        ]
    for power in (-40, -20, 0, 20, 40):
        x = _across(10.0**power)
        body.append(line(x, foot, x, foot + 4, "muted"))
        body.append(text(x, foot + 18, "10" + str(power).translate(RAISED) if power else "1"))
    body.append(line(_across(0), foot, _across(10.0**HIGH), foot, "muted"))
    places = {_across(number): place for place, number in reversed([*enumerate(values)])}
    xs = sorted(places)
    edges = [80.0, *((a + b) / 2 for a, b in itertools.pairwise(xs)), WIDTH]
    body += [
        hit(left, RANGE, right - left, foot - RANGE + 22, f"number:{places[x]}", drag=True)
        for x, (left, right) in zip(xs, itertools.pairwise(edges), strict=True)
    ]
    return "".join(body)
