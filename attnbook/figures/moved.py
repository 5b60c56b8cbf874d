"""The numbers that two programs move, by the size of the fast memory: a figure below chapter 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log2, log10

from attnbook.figures.drawing import (
    Drawing,
    arrow,
    axis_title,
    headline,
    line,
    number,
    tag,
    text,
)
from attnbook.figures.labels import END, START

LEFT, RIGHT, TOP, FOOT, WIDTH = 48.0, 306.0, 66.0, 262.0, 424.0
LOOKS = (("minus", None), ("plus", None), ("muted", "3 4"))


def numbers_moved(
    sizes: Sequence[int], moved: Mapping[str, Sequence[float]], *, crossing: int, chip: str
) -> Drawing:
    """Return a drawing of the numbers that one program moves, that another moves, and of a bound.

    Both axes are logarithmic. The first program moves the same whatever the fast memory holds. An
    arrow leads from it to the second at the last size, which is what a `chip` holds. A dotted line
    is at the size d² where the two should be the same. The drawing shows millions.

    >>> numbers_moved([16, 64], {"level": [4e6, 4e6], "falling": [4e6, 1e6], "bound": [1e6, 5e5]},
    ...               crossing=16, chip="it").alt[:46]
    'Falling moves 1/4 of level at 64, which it hol'
    """
    (level, dense), (falling, blocks), _ = moved.items()
    everything = [n / 1e6 for values in moved.values() for n in values]
    low, high = log10(min(everything)) - 0.25, log10(max(everything)) + 0.08

    def across(size: float) -> float:
        share = log2(size / sizes[0]) / log2(sizes[-1] / sizes[0])
        return LEFT + share * (RIGHT - LEFT)

    def up(count: float) -> float:
        return FOOT - (log10(count / 1e6) - low) / (high - low) * (FOOT - TOP)

    times = dense[-1] / blocks[-1]
    title = f"{falling.capitalize()}, only 1/{times:.0f} of the numbers are moved"
    body = [headline(4, 18, title, "title"),
            axis_title(4, TOP - 16, "million numbers moved", **START),
            axis_title((LEFT + RIGHT) / 2, FOOT + 58, "M: numbers that the fast memory holds"),
            line(LEFT, FOOT, RIGHT, FOOT, "muted")]
    for power in range(ceil(low), floor(high) + 1):
        y = up(10.0 ** (power + 6))
        body += [line(LEFT, y, RIGHT, y, "grid"), text(LEFT - 6, y + 4.5, f"{10**power:,}", **END)]
    for size in sizes:
        here, last = size == crossing, size == sizes[-1]
        look = {"fill": "plus" if last else "ink",
                "font_weight": "600" if here or last else "400"}
        body += [line(across(size), FOOT, across(size), FOOT + (22 if last else 4), "muted"),
                 text(WIDTH - 4, FOOT + 37, f"{chip}: {size:,}", **look, **END) if last
                 else text(across(size), FOOT + 19, f"{size:,}" + " = d²" * here, **look)]
    # Between the two lines lies what is saved.
    there = [(across(size), up(count)) for size, count in zip(sizes, blocks, strict=True)]
    area = [(across(crossing), up(dense[0])), (RIGHT, up(dense[-1])),
            *(place for place in there[::-1] if place[0] > across(crossing))]
    points = " ".join(f"{number(x)},{number(y)}" for x, y in area)
    body += [tag("polygon", points=points, fill="plus", fill_opacity="0.15"),
             line(across(crossing), up(dense[0]), across(crossing), FOOT, "ink", "2 3"),
             line(RIGHT, up(blocks[-1]), RIGHT, FOOT, "plus", "2 3")]
    for (shade, dash), counts in zip(LOOKS, moved.values(), strict=True):
        there = [(across(size), up(count)) for size, count in zip(sizes, counts, strict=True)]
        points = " ".join(f"{number(x)},{number(y)}" for x, y in there)
        body.append(tag("polyline", points=points, fill="none", stroke=shade, stroke_width=2.5,
                        stroke_dasharray=dash))
        body += [tag("circle", cx=x, cy=y, r=3.5, fill=shade) for x, y in there if dash is None]
    body += [arrow(RIGHT + 20, up(dense[-1]) + 12, RIGHT + 20, up(blocks[-1]) - 14, "plus", 2),
             text(RIGHT + 30, (up(dense[-1]) + up(blocks[-1])) / 2 + 5, f"÷ {times:.0f}",
                  fill="plus", font_size=15, font_weight="600", **START)]
    for (shade, _), (name, counts) in zip(LOOKS, moved.items(), strict=True):
        body.append(text(RIGHT + 8, up(counts[-1]) + 4.5, f"{name}: {counts[-1] / 1e6:,.0f}",
                         fill=shade, font_weight="600", **START))
    numbers = "; ".join(
        f"{name} " + ", ".join(f"{count / 1e6:,.0f}" for count in counts)
        for name, counts in moved.items()
    )
    alt = (f"{falling.capitalize()} moves 1/{times:.0f} of {level} at {sizes[-1]:,}, which {chip} "
           f"holds. Millions of numbers moved "
           f"with {', '.join(f'{size:,}' for size in sizes)} in the fast memory: {numbers}.")
    return Drawing.from_elements("".join(body), WIDTH, FOOT + 66, alt)
