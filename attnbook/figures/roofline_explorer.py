"""The size of a block against the roofline of a machine: the moving figure of chapter 14."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log, log10

from attnbook.figures.drawing import axis_title, headline, line, number, tag, text
from attnbook.figures.labels import HALO
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT, WIDTH, ROW = 62.0, 436.0, 34.0, 234.0, 444.0, 22.0
LOOKS = "minus", "plus", "muted"


def roofline_explorer(
    blocks: Sequence[int],
    series: Mapping[str, Sequence[float]],
    *,
    peak: float,
    bandwidth: float,
    start: int,
) -> MovingDrawing:
    """Return a moving figure: the roofline of a machine, and where programs lie for each block.

    The roof is min(peak, intensity · bandwidth), in operations a second, over the operations per
    byte, both axes logarithmic. The slider takes a marker for each program along the roof, through
    the given sizes of block, and begins at `start`; below stand the numbers there. `series` maps a
    program to its intensity at each size.
    """
    balance = peak / bandwidth
    everything = [balance, *(intensity for found in series.values() for intensity in found)]
    first, last = floor(log(min(everything), 4)), ceil(log(max(everything), 4))
    low, high = log10(bandwidth * 4.0**first), log10(peak) + 0.15

    def across(intensity: float) -> float:
        return LEFT + (log(intensity, 4) - first) / (last - first) * (RIGHT - LEFT)

    def up(rate: float) -> float:
        return FOOT - (log10(rate) - low) / (high - low) * (FOOT - TOP)

    still = []
    for rate in (factor * 1e12 for factor in (1, 3, 10, 30, 100, 300, 1000, 3000)):
        if low <= log10(rate) <= high:
            still.append(line(LEFT, up(rate), RIGHT, up(rate), "grid"))
            still.append(text(LEFT - 6, up(rate) + 4, f"{rate / 1e12:.0f}", text_anchor="end"))
    for power in range(first, last + 1, 1 if last - first < 7 else 2):
        still.append(line(across(4.0**power), FOOT, across(4.0**power), FOOT + 4, "muted"))
        shown = f"{4**power:,}" if power >= 0 else f"1/{4**-power}"
        still.append(text(min(across(4.0**power), RIGHT - 16), FOOT + 18, shown))
    still.append(line(LEFT, FOOT, RIGHT, FOOT, "muted"))
    still.append(line(across(balance), up(peak), across(balance), FOOT, "muted", "2 3"))
    for words, away, anchor in (
        ("← memory limits", -6, "end"), ("products limit →", 6, "start"),
    ):
        x = across(balance) + away
        still.append(text(x, FOOT - 8, words, text_anchor=anchor, fill="muted", **HALO))
    bend = f"bend at {balance:.0f}"
    still.append(text(across(balance), up(peak) - 8, bend, fill="muted"))
    corners = [(LEFT, up(bandwidth * 4.0**first)), (across(balance), up(peak)), (RIGHT, up(peak))]
    roof = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    still.append(tag("polyline", points=roof, fill="none", stroke="ink", stroke_width=2))
    middle = (LEFT + RIGHT) / 2
    still.append(axis_title(middle, FOOT + 36, "operations per byte"))
    still.append(axis_title(14, (TOP + FOOT) / 2, "10¹² operations a second", upright=True))
    about = (
        f"The roof rises to {peak / 1e12:.0f} · 10¹² operations a second at {balance:.0f} "
        f"operations per byte, and is flat from there."
    )

    def draw(place: int) -> Frame:
        block = f"{blocks[place]:,}"
        body = [
            headline(LEFT, 18, f"blocks of {block} queries", "block"),
        ]
        said, row = [], [block]
        for index, (name, found) in enumerate(series.items()):
            intensity, y = found[place], FOOT + 62 + ROW * index
            rate = min(peak, intensity * bandwidth)
            limit = "memory" if intensity < balance else "products"
            at = f"translate({number(across(intensity))} {number(up(rate))})"
            body += [
                tag("line", x1=across(intensity), y1=up(rate), x2=across(intensity), y2=FOOT,
                    stroke=LOOKS[index], stroke_dasharray="2 3", data_part=f"drop-{index}"),
                tag("g", _marker(index), data_part=f"marker-{index}", transform=at),
                tag("g", _marker(index), transform=f"translate(12 {number(y - 4)})"),
                text(26, y, name, text_anchor="start"),
                text(RIGHT, y, f"{intensity:,.0f} a byte, roof {rate / 1e12:.0f}, {limit}",
                     text_anchor="end", font_weight="600", data_part=f"told-{index}"),
            ]
            said.append(
                f"{name} {intensity:,.0f} operations per byte, roof {rate / 1e12:.0f}, "
                f"limited by {limit}"
            )
            row += [f"{intensity:,.0f}", f"{rate / 1e12:.0f}"]
        words = f"Blocks of {block} queries: {'; '.join(said)}.\n{about}"
        return Frame("".join([*still, *body, *hits]), words, [row])

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
        FOOT + 52 + ROW * len(series),
        columns=("block", *header),
        about="the roofline",
    )


def _marker(index: int) -> str:
    """Return the marker of a program around (0, 0): a square, a disc or a diamond."""
    if index == 1:
        return tag("circle", cx=0, cy=0, r=6, fill=LOOKS[1])
    corners = ("-5,-5 5,-5 5,5 -5,5", "", "0,-7 7,0 0,7 -7,0")[index]
    return tag("polygon", points=corners, fill=LOOKS[index])
