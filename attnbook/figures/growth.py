"""The length of a sequence against bytes: the moving figure of chapter 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attnbook.figures.drawing import Array, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import END, HALO, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT, WIDTH = 46.0, 356.0, 74.0, 270.0, 416.0
FIRST = LEFT + 116  # where the curves begin, right of the names of the memories
NAMED = {512: "a page", 131_072: "a novel"}
# Colour is never the only carrier: the two curves differ in colour, dash and marker.
SQUARE, DIAMOND = "-5,-5 5,-5 5,5 -5,5", "0,-7 7,0 0,7 -7,0"
LOOKS = (("minus", "6 4", SQUARE), ("plus", None, DIAMOND))
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def in_bytes(size: float) -> str:
    """Return a number of bytes with two digits or more, in the unit that suits it.

    >>> in_bytes(999.0), in_bytes(1660e9), in_bytes(40e9)
    ('999 bytes', '1.7 TB', '40 GB')
    """
    power = 0
    while power + 1 < len(UNITS) and size / 1000.0**power >= 999.5:
        power += 1
    value = size / 1000.0**power
    return f"{value:.{0 if value >= 9.95 or power == 0 else 1}f} {UNITS[power]}"


def bytes_explorer(
    lengths: Sequence[int],
    series: Mapping[str, Sequence[int]],
    *,
    limits: Mapping[str, float],
    start: int,
    of: str,
) -> MovingDrawing:
    """Return a moving figure: two numbers of bytes, by the number of tokens; the first is larger.

    Both axes are logarithmic, so that growth like a power is a straight line. The slider takes a
    marker along each curve through the given lengths, and begins at `start`. `limits` maps words to
    the bytes of a memory, drawn as a level line, and `of` says what keeps them. Above stands for
    each curve the smallest memory that its bytes fit, and beside its end how it grows.
    """
    places = np.log2(np.asarray(lengths, dtype=np.float64))
    everything = [*limits.values(), *(size for sizes in series.values() for size in sizes)]
    low = int(np.floor(np.log10(min(everything)))) - 1  # there is room for a number below
    high = int(np.ceil(np.log10(max(everything))))
    across = FIRST + (places - places[0]) / np.ptp(places) * (RIGHT - FIRST)

    def up(sizes: Sequence[float]) -> Array:
        found = FOOT - (np.log10(sizes) - low) / (high - low) * (FOOT - TOP)
        return np.asarray(found, dtype=np.float64)

    smallest = sorted(limits.items(), key=lambda memory: memory[1])
    roof = up([smallest[-1][1]])[0]
    still = [
        rect(LEFT, TOP, RIGHT - LEFT, roof - TOP, "grid", fill_opacity="0.45"),
        text(LEFT + 4, TOP + 16, "too large", **START, fill="muted"),
        axis_title(4, TOP - 12, f"bytes kept in {of}; lines: × 1,000", **START),
        axis_title((LEFT + RIGHT) / 2, FOOT + 52, "tokens T; ticks: × 16"),
    ]
    for power in range(3 * -(-low // 3), high + 1, 3):
        y = up([10.0**power])[0]
        still.append(line(LEFT, y, RIGHT, y, "grid"))
        still.append(text(LEFT - 6, y + 4, in_bytes(10.0**power).replace(".0", ""), **END))
    for name, limit in limits.items():
        y = up([limit])[0]
        still.append(line(LEFT, y, RIGHT, y, "ink", "2 3"))
        still.append(text(LEFT + 4, y - 4, f"{name}, {in_bytes(limit)}", **START))
    for place, length in zip(across, lengths, strict=True):
        times = length / lengths[0]
        if times == 16.0 ** round(np.log2(times) / 4):
            still.append(line(place, FOOT, place, FOOT + 4, "muted"))
            still.append(text(place, FOOT + 18, f"{length:,}"))
            still.append(text(place, FOOT + 34, NAMED.get(length, ""), font_weight="600"))
    still.append(line(LEFT, FOOT, RIGHT, FOOT, "muted"))
    heights = {name: up(sizes) for name, sizes in series.items()}
    for (shade, dash, _), (name, ys) in zip(LOOKS, heights.items(), strict=True):
        points = " ".join(f"{number(x)},{number(y)}" for x, y in zip(across, ys, strict=True))
        still.append(
            tag("polyline", points=points, fill="none", stroke=shade, stroke_width=2,
                stroke_dasharray=dash)
        )
        sizes = series[name]
        power = round(np.log(sizes[-1] / sizes[-2]) / np.log(lengths[-1] / lengths[-2]))
        grows = f"like T{'²' if power == 2 else ''}"
        still.append(text(RIGHT + 8, ys[-1] + 5, grows, **START, fill=shade, font_weight="600"))

    middles = (across[1:] + across[:-1]) / 2
    hits = strips([LEFT, *middles, RIGHT], TOP, FOOT, "tokens")

    def draw(place: int) -> Frame:
        x, length = across[place], f"{lengths[place]:,}"
        body = [tag("line", x1=x, y1=TOP, x2=x, y2=FOOT, stroke="muted", data_part="here")]
        shown, said = [], []
        for index, (name, sizes) in enumerate(series.items()):
            shade, _, corners = LOOKS[index]
            size, y = in_bytes(sizes[place]), heights[name][place]
            fits = next((memory for memory, most in smallest if sizes[place] <= most), "")
            # The larger number stands above its curve, the smaller one below. Markers and numbers
            # are moved as a whole: corners stay, the place changes.
            x1, y1, anchor = (-5, 24, "start") if index else (5, -13, "end")
            told_there = text(x1, y1, size, text_anchor=anchor, font_weight="600", **HALO,
                              data_part=f"size-{index}")
            body.append(
                tag("g", tag("polygon", points=corners, fill=shade) + told_there,
                    data_part=f"marker-{index}", transform=f"translate({number(x)} {number(y)})")
            )
            verdict = f"fits {fits}" if fits else "too large"
            shown += [size, verdict]
            said.append(f"{name}: {size}, {verdict}")
            there = f"translate(11 {13 + 21 * index})"
            body.append(tag("polygon", points=corners, fill=shade, transform=there))
            body.append(text(24, 18 + 21 * index, said[index], **START, fill=shade, font_size=15,
                             font_weight="600", data_part=f"told-{index}"))
        return Frame("".join([*still, *body, *hits]), f"{length} tokens. {'; '.join(said)}.",
                     [(length, *shown)])

    columns = [words for name in series for words in (name, f"{name}: fits")]
    options = tuple(f"{n:,}" for n in lengths)
    return moving(
        draw,
        [Control("tokens", "tokens", options, list(lengths).index(start))],
        WIDTH,
        FOOT + 58,
        columns=("tokens", *columns),
        about="bytes kept",
    )
