"""The size of a block against the roofline of a machine: the moving figure of chapter 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log, log10

from attnbook.figures.drawing import axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import END, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT, WIDTH = 54.0, 406.0, 32.0, 234.0, 416.0


def roofline_explorer(
    blocks: Sequence[int],
    series: Mapping[str, Sequence[float]],
    *,
    peak: float,
    bandwidth: float,
    start: int,
) -> MovingDrawing:
    """Return a moving figure: the roofline of a machine, and where two programs lie for each block.

    The roof is min(peak, intensity · bandwidth), in operations a second, over the operations per
    byte, both axes logarithmic. Left of its bend a program waits for memory, which is shaded. The
    slider takes a marker for each program along the roof, through the given sizes of block, and
    begins at `start`. `series` maps a program to its intensity at each size; the title tells the
    speed of the last one.
    """
    balance = peak / bandwidth
    everything = [balance, *(intensity for found in series.values() for intensity in found)]
    first, last = floor(log(min(everything), 4)) - 1, ceil(log(max(everything), 4))
    low, high = log10(bandwidth * 4.0**first), log10(peak) + 0.5

    def across(intensity: float) -> float:
        return LEFT + (log(intensity, 4) - first) / (last - first) * (RIGHT - LEFT)

    def up(rate: float) -> float:
        return FOOT - (log10(rate) - low) / (high - low) * (FOOT - TOP)

    bend, roof = across(balance), up(peak)
    still = [rect(LEFT, TOP, round(bend - LEFT, 1), FOOT - TOP, "grid", fill_opacity="0.3")]
    for rate in (peak, *(factor * 1e12 for factor in (1, 3, 10, 30, 100, 300))):
        if low <= log10(rate) <= log10(peak):
            still.append(line(LEFT, up(rate), RIGHT, up(rate), "grid"))
            still.append(text(LEFT - 6, up(rate) + 4, f"{rate / 1e12:.0f}", **END))
    powers = [4.0**power for power in range(first, last + 1, 1 if last - first < 7 else 2)]
    for intensity in [balance, *(x for x in powers if abs(log(x / balance, 4)) > 0.5)]:
        x = across(intensity)
        shown = f"{intensity:,.0f}" if intensity >= 1 else f"1/{1 / intensity:g}"
        still.append(line(x, FOOT, x, FOOT + 4, "muted"))
        still.append(text(min(x, RIGHT - 14), FOOT + 18, shown))
    points = [(LEFT, up(bandwidth * 4.0**first)), (bend, roof), (RIGHT, roof)]
    still += [
        line(LEFT, FOOT, RIGHT, FOOT, "muted"),
        tag("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), fill="none",
            stroke="ink", stroke_width=2),
        text(LEFT + 8, TOP + 17, "waits for memory", **START, font_weight="600"),
        text(bend + 14, roof + 17, "computes at", **START, font_weight="600"),
        text(bend + 14, roof + 32, "full speed", **START, font_weight="600"),
        axis_title((LEFT + RIGHT) / 2, FOOT + 36, "operations per byte"),
        axis_title(12, (TOP + FOOT) / 2, "10¹² operations a second", upright=True),
    ]

    def draw(place: int) -> Frame:
        block = f"{blocks[place]:,}"
        body, said, row = [], [], [block]
        for index, (name, found) in enumerate(series.items()):
            intensity = found[place]
            rate = min(peak, intensity * bandwidth)
            # The first program is named below the roof, the other above it.
            marker = (
                tag("polygon", points="-5,-5 5,-5 5,5 -5,5", fill="minus")
                + text(9, 17, name, **START, fill="minus", font_weight="600") if index == 0
                else tag("circle", cx=0, cy=0, r=6, fill="plus")
                + text(4, -12, name, **END, fill="plus", font_weight="600")
            )
            at = f"translate({number(across(intensity))} {number(up(rate))})"
            body.append(tag("g", marker, data_part=f"marker-{index}", transform=at))
            told = f"reach {rate / peak:.0%} of" if intensity < balance else "compute at"
            said.append(f"{name} {intensity:,.0f} operations per byte, {rate / 1e12:.0f} · 10¹² "
                        f"operations a second")
            row += [f"{intensity:,.0f}", f"{rate / 1e12:.0f}"]
        title = f"Blocks of {block} queries {told} full speed"
        body.append(headline(4, 17, title, "title"))
        return Frame("".join([*still, *body, *hits]), f"{title}.\n{'; '.join(said)}.", [row])

    # The program that goes farthest along the roof can be dragged there.
    farthest = max(series.values(), key=lambda found: found[-1] / found[0])
    middles = [(across(a) + across(b)) / 2 for a, b in pairwise(farthest)]
    hits = strips([LEFT, *middles, RIGHT], TOP, FOOT, "block")
    header = [words for name in series for words in (f"{name}: per byte", f"{name}: roof, 10¹²")]
    options = tuple(f"{block:,}" for block in blocks)
    return moving(
        draw,
        [Control("block", "queries in a block", options, list(blocks).index(start))],
        WIDTH,
        FOOT + 44,
        columns=("block", *header),
        about="the roofline",
    )
