"""The length of a sequence against bytes: the moving figure of chapter 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attnbook.figures.drawing import Array, axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import HALO
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving, strips

LEFT, RIGHT, TOP, FOOT = 62.0, 436.0, 34.0, 234.0
WIDTH = 440.0
ROW = 22.0
# Colour is never the only carrier: curves differ in colour, dash and marker.
LOOKS = (("minus", "6 4"), ("muted", "1 4"), ("ink", "9 3 2 3"), ("plus", None))
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


def _marker(index: int, x: float, y: float, name: str, **look: str) -> str:
    """Return the marker of a curve: a square, a diamond, a triangle or a disc, in its colour."""
    if index == 3:
        return tag("circle", cx=x, cy=y, r=5, fill=name, **look)
    ways = (
        ((-5, -5), (5, -5), (5, 5), (-5, 5)),
        ((0, -6), (6, 0), (0, 6), (-6, 0)),
        ((0, -6), (6, 5), (-6, 5)),
    )[index]
    corners = " ".join(f"{number(x + a)},{number(y + b)}" for a, b in ways)
    return tag("polygon", points=corners, fill=name, **look)


def bytes_explorer(
    lengths: Sequence[int],
    series: Mapping[str, Sequence[int]],
    *,
    limits: Mapping[str, float],
    start: int,
    about: str = "bytes by length",
) -> MovingDrawing:
    """Return a moving figure: up to four numbers of bytes, by the number of tokens.

    Both axes are logarithmic, so that growth like a power is a straight line. The slider takes a
    marker along each curve through the given lengths, and begins at `start`; below stand the bytes
    there. `limits` maps words to the bytes of a memory, drawn as a level line: beside the bytes
    stands the smallest memory that they fit.
    """
    places = np.log2(np.asarray(lengths, dtype=np.float64))
    everything = [*limits.values(), *(size for sizes in series.values() for size in sizes)]
    low = int(np.floor(np.log10(min(everything))))
    high = int(np.ceil(np.log10(max(everything))))
    across = LEFT + (places - places[0]) / np.ptp(places) * (RIGHT - LEFT)

    def up(sizes: Sequence[float]) -> Array:
        return FOOT - (np.log10(np.asarray(sizes, dtype=np.float64)) - low) / (high - low) * (
            FOOT - TOP
        )

    smallest = sorted(limits.items(), key=lambda memory: memory[1])
    edge = RIGHT - 92
    still = []
    if smallest[-1][1] < 10.0**high:
        roof = up([smallest[-1][1]])[0]
        still.append(rect(LEFT, TOP, RIGHT - LEFT, roof - TOP, "grid", fill_opacity="0.45"))
        still.append(text(LEFT + 4, TOP + 14, "too large", text_anchor="start", fill="muted"))
    for power in range(3 * -(-low // 3), high + 1, 3):
        y = up([10.0**power])[0]
        still.append(line(LEFT, y, RIGHT, y, "grid"))
        title = in_bytes(10.0**power).replace(".0", "")
        still.append(text(LEFT - 6, y + 4, title, text_anchor="end"))
    for name, limit in limits.items():
        y = up([limit])[0]
        still.append(line(LEFT, y, RIGHT, y, "muted", "2 3"))
        still.append(text(LEFT + 4, y + 14, name, text_anchor="start", fill="muted", **HALO))
    for place, length in list(zip(across, lengths, strict=True))[:: max(1, len(lengths) // 4)]:
        still.append(line(place, FOOT, place, FOOT + 4, "muted"))
        still.append(text(min(place, RIGHT - 24), FOOT + 18, f"{length:,}"))
    still.append(line(LEFT, FOOT, RIGHT, FOOT, "muted"))
    still.append(axis_title((LEFT + RIGHT) / 2, FOOT + 36, "tokens T"))
    heights = {name: up(sizes) for name, sizes in series.items()}
    for (shade, dash), ys in zip(LOOKS, heights.values(), strict=False):
        points = " ".join(f"{number(x)},{number(y)}" for x, y in zip(across, ys, strict=True))
        still.append(
            tag("polyline", points=points, fill="none", stroke=shade, stroke_width=2,
                stroke_dasharray=dash)
        )

    middles = (across[1:] + across[:-1]) / 2
    hits = strips([LEFT, *middles, RIGHT], TOP, FOOT, "tokens")

    def draw(place: int) -> Frame:
        x, length = across[place], f"{lengths[place]:,} tokens"
        first, sizes = next(iter(series.items()))
        title = f"{length}, {first}: {in_bytes(sizes[place])}"
        body = [
            headline(4, 18, title, "tokens"),
            tag("line", x1=x, y1=TOP, x2=x, y2=FOOT, stroke="muted", data_part="here"),
        ]
        shown, said = [], []
        for index, (name, sizes) in enumerate(series.items()):
            shade, y, size = LOOKS[index][0], FOOT + 62 + ROW * index, in_bytes(sizes[place])
            fits = next((memory for memory, most in smallest if sizes[place] <= most), "")
            verdict = f"fits {fits}" if fits else "too large"
            # A part is moved as a whole: its corners stay, its place changes.
            body += [
                tag("g", _marker(index, 0, 0, shade), data_part=f"marker-{index}",
                    transform=f"translate({number(x)} {number(heights[name][place])})"),
                _marker(index, 12, y - 4, shade),
                text(26, y, name, text_anchor="start"),
                text(edge, y, size, text_anchor="end", font_weight="600",
                     data_part=f"bytes-{index}"),
                tag("path", d=f"M{edge + 12:g} {y - 9:g}l9 9m0-9l-9 9", stroke="minus",
                    stroke_width=2, data_part=f"cross-{index}", opacity=not fits),
                text(RIGHT, y, verdict, text_anchor="end", data_part=f"fits-{index}"),
            ]
            shown += [size, verdict]
            said.append(f"{name} {size}, {verdict}")
        told = f"{length}: {'; '.join(said)}."
        return Frame("".join([*still, *body, *hits]), told, [(f"{lengths[place]:,}", *shown)])

    columns = [words for name in series for words in (name, f"{name}: fits")]
    options = tuple(f"{n:,}" for n in lengths)
    return moving(
        draw,
        [Control("tokens", "tokens", options, list(lengths).index(start))],
        WIDTH + 4,
        FOOT + 52 + ROW * len(series),
        columns=("tokens", *columns),
        about=about,
    )
