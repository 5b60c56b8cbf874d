"""What limits a kernel: where its numbers live, and the roof that bytes and operations build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, inf, log, log10

from attnbook.figures.drawing import Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.moving import Control, MovingDrawing

# The frame of the roofline, and the height of a line under it.
LEFT, RIGHT, TOP, FOOT, WIDTH, ROW = 62.0, 436.0, 34.0, 234.0, 444.0, 22.0

# Size, and what a fused attention kernel keeps there. Sizes: data sheet of the H200, and NVIDIA's
# tuning guide for Hopper, which has 50 MB of L2 for the H100; an H200 tells torch of 60.
H200 = {
    "registers": ("256 KB in each of 132", "a tile of scores; m, ℓ, õ"),
    "shared memory": ("228 KB in each of 132", "blocks of Q, K and V"),
    "L2 cache": ("50 to 60 MB for all", "keys and values that were just read"),
    "HBM": ("141 GB for all, 4.8 TB/s", "Q, K, V, O, L; the dense form’s scores and weights"),
}


def memory_levels(levels: Mapping[str, tuple[str, str]]) -> Drawing:
    """Return a drawing of a GPU's memories, the fastest and smallest on top, and what each holds.

    `levels` maps a memory's name to its size and to what is kept in it, from the fastest on.

    Raises: `ValueError` without levels.

    >>> memory_levels({"cache": ("1 MB", "Q"), "memory": ("9 GB", "K and V")}).alt[40:]
    'on top: cache (1 MB) holds Q; memory (9 GB) holds K and V.'
    """
    if not levels:
        raise ValueError("levels must hold at least one level; got none")
    width, height, gap = 440.0, 58.0, 24.0
    body: list[str] = []
    for index, (name, (size, held)) in enumerate(levels.items()):
        # Each is wider than the one above it, as it is larger.
        inset = 60.0 * (len(levels) - 1 - index) / len(levels)
        y = 10.0 + index * (height + gap)
        last = index == len(levels) - 1
        shade = "orange" if last else "blue"
        box = rect(
            10 + inset, y, width - 20 - 2 * inset, height, shade, rx=6, stroke=shade,
            fill_opacity=f"{0.06 if last else 0.2 - 0.04 * index:.2f}",
            stroke_dasharray="6 4" if last else None,
        )  # fmt: skip
        body.append(box)
        left, right, middle = 22 + inset, width - 22 - inset, y + height / 2
        body.append(text(left, middle - 5, name, text_anchor="start", font_weight="600"))
        body.append(text(right, middle - 5, size, text_anchor="end", fill="muted"))
        body.append(text(left, middle + 16, held, text_anchor="start"))
        if not last:
            x, top, foot = width / 2, y + height + 4, y + height + gap - 4
            body.append(line(x, top, x, foot, "muted"))
            for end, way in ((top, 5), (foot, -5)):
                body += [line(x, end, x + side, end + way, "muted") for side in (-4, 4)]
    words = "; ".join(f"{name} ({size}) holds {held}" for name, (size, held) in levels.items())
    alt = f"Memories of a GPU, fastest and smallest on top: {words}."
    tall = 20.0 + len(levels) * (height + gap) - gap
    return Drawing.from_elements("".join(body), width, tall, alt)


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

    Raises: `ValueError` for fewer than two sizes or sizes that do not rise, no program or more than
        three, intensities of another number or not positive, or a `start` that is no given size.
    """
    if len(blocks) < 2 or any(a >= b for a, b in pairwise(blocks)):
        raise ValueError(f"blocks must be two or more, and rise; got {list(blocks)}")
    if start not in blocks:
        raise ValueError(f"start must be one of the blocks; got {start}")
    if not 1 <= len(series) <= 3:
        raise ValueError(f"there must be one to 3 programs; got {len(series)}")
    for name, found in series.items():
        if len(found) != len(blocks) or not all(0 < intensity < inf for intensity in found):
            raise ValueError(f"{name!r} must have {len(blocks)} positive numbers; got {found}")
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
    side = text(across(balance) + 6, FOOT - 8, f"balance {balance:.0f}", text_anchor="start",
                fill="muted")  # fmt: skip
    still.append(side)
    corners = [(LEFT, up(bandwidth * 4.0**first)), (across(balance), up(peak)), (RIGHT, up(peak))]
    roof = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    still.append(tag("polyline", points=roof, fill="none", stroke="ink", stroke_width=2))
    middle = (LEFT + RIGHT) / 2
    still.append(axis_title(middle, FOOT + 36, "operations per byte"))
    still.append(axis_title(14, (TOP + FOOT) / 2, "10¹² operations a second", upright=True))

    frames, told, table = [], [], []
    for frame, block in enumerate(blocks):
        body = [
            text(LEFT, 18, f"blocks of {block:,} queries", text_anchor="start", font_weight="600",
                 font_size=15, data_part="block"),
        ]  # fmt: skip
        said, row = [], [f"{block:,}"]
        for index, (name, found) in enumerate(series.items()):
            intensity, y = found[frame], FOOT + 62 + ROW * index
            rate = min(peak, intensity * bandwidth)
            limit = "memory" if intensity < balance else "products"
            place = f"translate({number(across(intensity))} {number(up(rate))})"
            body.append(tag("g", _marker(index), data_part=f"marker-{index}", transform=place))
            body.append(tag("g", _marker(index), transform=f"translate(12 {number(y - 4)})"))
            body.append(text(26, y, name, text_anchor="start"))
            shown = f"{intensity:,.0f} a byte, roof {rate / 1e12:.0f}, {limit}"
            body.append(text(RIGHT, y, shown, text_anchor="end", font_weight="600",
                             data_part=f"told-{index}"))  # fmt: skip
            said.append(
                f"{name} {intensity:,.0f} operations per byte, roof {rate / 1e12:.0f}, "
                f"limited by {limit}"
            )
            row += [f"{intensity:,.0f}", f"{rate / 1e12:.0f}"]
        frames.append("".join([*still, *body]))
        told.append(f"Blocks of {block:,} queries: {'; '.join(said)}.")
        table.append(row)
    about = (
        f"The roof rises to {peak / 1e12:.0f} · 10¹² operations a second at {balance:.0f} "
        f"operations per byte, and is flat from there."
    )
    header = [words for name in series for words in (f"{name}: per byte", f"{name}: roof, 10¹²")]
    options = tuple(f"{block:,}" for block in blocks)
    return MovingDrawing.from_frames(
        frames,
        WIDTH,
        FOOT + 52 + ROW * len(series),
        controls=(Control("block", "queries in a block", options, list(blocks).index(start)),),
        labels=[f"{words}\n{about}" for words in told],
        table=(("block", *header), *table),
        about="the roofline",
    )


def _marker(index: int) -> str:
    """Return the marker of a program around (0, 0): a square, a disc or a diamond."""
    if index == 1:
        return tag("circle", cx=0, cy=0, r=6, fill="blue")
    corners = ("-5,-5 5,-5 5,5 -5,5", "", "0,-7 7,0 0,7 -7,0")[index]
    return tag("polygon", points=corners, fill=("orange", "", "green")[index])
