"""The memories of a GPU and the pipes between them: the first moving figure of chapter 14."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attnbook.figures.drawing import headline, line, number, rect, tag, text
from attnbook.figures.labels import END, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving


class Level(NamedTuple):
    """A memory of a GPU: its bytes, how they are said, what it holds, and its pipe.

    The pipe leads up to the next memory, with so many bytes a second; None: no published number.
    """

    size: float
    told: str
    held: str
    bandwidth: float | None = None


# Sizes, and the bandwidth of HBM: data sheet of the H200, and NVIDIA's tuning guide for Hopper,
# which has 50 MB of L2 for the H100; an H200 tells torch of 60. Shared memory has 32 banks of
# 4 bytes a clock (CUDA C++ Programming Guide), here at 1.83 GHz. None is published for L2.
H200 = {
    "registers": Level(132 * 256 * 2**10, "132 × 256 KiB", "a tile of scores; m, ℓ, õ"),
    "shared memory": Level(
        132 * 228 * 2**10, "132 × 228 KiB", "blocks of Q, K and V", 132 * 32 * 4 * 1.83e9
    ),
    "L2 cache": Level(60e6, "50 to 60 MB", "keys and values just read"),
    "HBM": Level(141e9, "141 GB", "whole matrices", 4.8e12),
}
# Operations a second in products of 16-bit matrices: 4,096 a clock in each multiprocessor.
H200_PEAK = 132 * 4096 * 1.83e9

# The memories are centred on AXIS, and named from LABELS on.
AXIS, LABELS, EDGE, WIDTH = 116.0, 208.0, 440.0, 448.0
GAP, PIPE, WIDEST, TALL = 13.0, 69.0, 110.0, 124.0
# Times are bars from BARS on, the longest as long as LONGEST.
BARS, LONGEST, PITCH = 112.0, 205.0, 19.0
# A matrix of all scores fills a box of this size.
BOX = 166.0, 56.0
# A tile of 128 × 128 float32 scores in each of 132 multiprocessors.
TILES = 132 * 128**2 * 4
WAYS = ("three kernels", "one kernel")
SMALL = {"Q": "query", "K": "key", "V": "value", "O": "output"}
LOOK = {"scores": "ink", "weights": "weight", "output": "output"}


class Move(NamedTuple):
    """A step of a way of attention: what is done, where numbers are, and what crosses the pipe."""

    told: str
    at: dict[str, str] = {}  # noqa: RUF012 (Q, K, V, O: "pipe" or "chip", else in large memory)
    work: str = ""  # what the registers hold: scores, weights, or the sums of the output
    n_small: int = 0  # so many matrices of T × d cross here
    crossing: str = ""  # a third of the scores or weights crosses here
    out: bool = False


def _moves(way: str) -> list[Move]:
    """Every step of a way; both ways have as many."""
    start = Move("Q, K and V lie in the large memory")
    if way == "one kernel":
        chip = dict.fromkeys("QKV", "chip")
        tiles = [
            Move(f"Tile {n}: {told}", chip, work)
            for n in (1, 2, 3)
            for work, told in (
                ("scores", "its scores stay in registers"),
                ("weights", "exponentials, m and ℓ, in registers"),
                ("output", "a part of õ; the tile is forgotten"),
            )
        ]
        return [
            start, Move("Q, K and V go in", dict.fromkeys("QKV", "pipe"), n_small=3),
            Move("Q, K and V are on the chip", chip), *tiles,
            Move("And so on, to the last tile", chip, "output"),
            Move("The sums give the output: o = õ / ℓ", chip, "output"),
            Move("Only the output O goes out", {"O": "pipe"}, n_small=1), Move(""),
        ]
    parts = [f"part {n} of 3" for n in (1, 2, 3)]
    softmax = [
        Move(f"Kernel 2 {does} all {name}, {part}", {}, name, 0, name, does == "writes")
        for part in parts
        for name, does in (("scores", "fetches"), ("weights", "writes"))
    ]
    first, third = dict.fromkeys("QK", "chip"), {"V": "chip"}
    return [
        start, Move("Kernel 1 fetches Q and K", dict.fromkeys("QK", "pipe"), n_small=2),
        *(Move(f"Kernel 1 writes all scores, {part}", first, "scores", 0, "scores", True)
          for part in parts),
        *softmax,
        *(Move(f"Kernel 3 fetches {'V and ' * (n == 0)}all weights, {part}", third, "output",
               int(n == 0), "weights") for n, part in enumerate(parts)),
        Move("Kernel 3 writes the output O", {"O": "pipe"}, n_small=1), Move(""),
    ]


def _bytes(size: float) -> str:
    return f"{size / 1e6:,.{0 if size >= 2e7 else 1}f} MB"


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:,.{0 if seconds >= 5e-6 else 1}f} µs"


def memory_levels(
    levels: Mapping[str, Level], n_tokens: int = 8192, width: int = 128
) -> MovingDrawing:
    """Return a moving figure: the memories of a GPU, and what two ways of attention send between.

    Areas are bytes, and a pipe is as wide as its bandwidth. `levels` are from the fastest memory
    on. The last lies beside the chip, and most of it beyond the drawing. Three kernels leave scores
    and weights there, and fetch them again; one kernel only fetches Q, K and V, and leaves O. All
    is for one head of `n_tokens` tokens and `width` features, with two bytes a number. Below, the
    least time for the bytes that cross the last pipe stands beside that for the two products of
    matrices, 4 · `n_tokens`² · `width` operations at the peak of an H200: the longer time decides.
    """
    bandwidths = [level.bandwidth or 0.0 for level in levels.values()]
    *chip, (large, memory) = levels.items()
    full, small, speed = 2.0 * n_tokens**2, 2.0 * n_tokens * width, bandwidths[-1]
    unit = BOX[0] * BOX[1] / full  # square units for a byte
    pipes = [WIDEST * one / max(bandwidths) for one in bandwidths]

    still, boxes, y = [], [], 42.0
    for index, (name, level) in enumerate(chip):
        wide = WIDEST if bandwidths[index] or index == 0 else 1.5 * WIDEST
        tall = level.size * unit / wide
        boxes.append((AXIS - wide / 2, y, wide, tall))
        title = f"{name}, {level.told}"
        still += [
            rect(*boxes[-1], "paper", stroke="ink", stroke_width=1.5),
            text(LABELS, y + tall / 2 - 3, title, **START),
            text(LABELS, y + tall / 2 + 13, level.held, fill="muted", **START),
        ]
        y += tall + GAP
    floor = y - GAP + 8  # the lower edge of the chip
    top, mouth = y - GAP, y - GAP + PIPE  # of the pipe to the large memory
    sides = [(box[1] - GAP, box[1], pipe) for box, pipe in zip(boxes[1:], pipes[1:], strict=False)]
    for begin, end, pipe in [*sides, (top, mouth, pipes[-1])]:
        half, dash = (pipe or 16) / 2, None if pipe else "2 3"
        if pipe:
            still.append(
                rect(AXIS - half, begin, 2 * half, end - begin, "grid", fill_opacity="0.5")
            )
        still += [line(AXIS + s * half, begin, AXIS + s * half, end, "ink", dash) for s in (-1, 1)]
    foot, shelf = mouth + TALL, mouth + 46
    still += [
        rect(4, 30, EDGE, floor - 30, stroke="muted", rx=6),
        text(12, 48, "chip", fill="muted", **START),
        text(AXIS + 16, floor + 17, f"{speed / 1e12:.1f} TB/s", **START),
        text(EDGE, floor + 17, "equal areas: equal bytes", fill="muted", font_size=13, **END),
        text(EDGE, floor + 33, "wider pipe: faster", fill="muted", font_size=13, **END),
        tag("path", d=f"M8 {number(foot)}V{number(mouth)}H{EDGE:g}V{number(foot)}", fill="none",
            stroke="ink", stroke_width=1.5),
        line(8, foot, EDGE, foot, "muted", "2 5"),
        text(LABELS, mouth + 19, f"{large}, {memory.told}", **START),
        text(LABELS, mouth + 35, "far larger than drawn", fill="muted", **START),
    ]
    side = (small * unit) ** 0.5
    homes = {name: (AXIS + (n - 1.5) * 24, mouth + 6.0) for n, name in enumerate(SMALL)}
    still += [text(x, mouth + 34, name, fill=SMALL[name]) for name, (x, _) in homes.items()]
    shelves = {"scores": 44.0, "weights": 64.0 + BOX[0]}
    for x in shelves.values():
        still.append(rect(x, shelf, *BOX, stroke="muted", stroke_dasharray="3 3"))

    ways = {way: _moves(way) for way in WAYS}
    sent = {
        way: [sum(one.n_small * small + bool(one.crossing) * full / 3 for one in moves[: n + 1])
              for n in range(len(moves))]
        for way, moves in ways.items()
    }
    computing = 4.0 * n_tokens**2 * width / H200_PEAK
    times = [(sent[way][-1] / speed, computing) for way in WAYS]
    longest = max(map(max, times))
    ratio = f"{sent[WAYS[0]][-1] / sent[WAYS[1]][-1]:.0f} times less traffic"
    given = f"{n_tokens:,} tokens, {width} wide, 16 bits, H200: the longer bar decides"
    # The last frame of each way says which time decides.
    for moves, (transfer, _) in zip(ways.values(), times, strict=True):
        later, sooner = sorted((transfer, computing), reverse=True)
        decides = "memory decides" if transfer >= computing else "computing decides"
        moves[-1] = Move(f"Done: {decides}, {_time(later)} against {_time(sooner)}")

    def draw(which: int, place: int) -> Frame:
        way = WAYS[which]
        moves, total = ways[way][: place + 1], sent[way][place]
        move = moves[-1]
        body = [*still, headline(4, 20, move.told, "told")]
        # What lies in the large memory: faint is what was written, full what was not yet read.
        for name, x in shelves.items():
            below = f"{name}, {_bytes(full)}" if which == 0 else f"no {name} here"
            body.append(text(x + BOX[0] / 2, shelf + BOX[1] + (15 if which == 0 else -23), below,
                             fill=LOOK[name], data_part=f"below-{name}"))
            into, back = (sum(m.crossing == name and m.out == out for m in moves) for out in (1, 0))
            for part, thirds in (("kept", into), ("unread", into - back)):
                tall = BOX[1] * thirds / 3
                body.append(rect(x, shelf + BOX[1] - tall, BOX[0], tall, LOOK[name],
                                 fill_opacity="0.25" if part == "kept" else "0.6",
                                 data_part=f"{part}-{name}"))
        # The stream in the pipe: its dashes run down or up.
        run = sum((-1 if m.out else 1) * 75 for m in moves if m.crossing)
        body.append(tag("line", x1=AXIS, y1=top, x2=AXIS, y2=mouth, stroke_width=pipes[-1] - 3,
                        stroke=LOOK[move.crossing or "scores"], stroke_dasharray="11 4",
                        stroke_dashoffset=run, opacity=bool(move.crossing),
                        data_part="stream"))
        x, y = AXIS - 28, (floor + mouth) / 2
        tip = 16 if move.out or "O" in move.at else -16
        body.append(tag("path", d=f"M{x:g} {number(y - tip)}V{number(y + tip)}m-6 {-tip / 2:g}l6 "
                        f"{tip / 2:g}l6 {-tip / 2:g}", fill="none", stroke="ink", stroke_width=2.5,
                        opacity=bool(move.crossing or move.n_small), data_part="way"))
        here = move.n_small * small + bool(move.crossing) * full / 3
        told = f"{_bytes(here)}: {_time(here / speed)}" if here else "nothing crosses"
        body.append(text(AXIS + 16, floor + 36, told, data_part="here", font_weight="600", **START))
        _, high, _, tall = boxes[0]
        tile = TILES * unit / (tall - 3)
        shade = LOOK[move.work or "scores"]
        body.append(rect(AXIS - tile / 2, high + 1.5, tile, tall - 3, shade, data_part="work",
                         fill_opacity="0.6", opacity=bool(move.work)))
        # The small matrices: what goes in is a copy, which is forgotten where it has been used.
        for n, (name, shade) in enumerate(SMALL.items()):
            now, were = move.at.get(name), [m.at[name] for m in moves if name in m.at]
            spots = {
                "home": homes[name],
                "pipe": (AXIS, top + 8 + (n % 3) * (side + 8)),
                "chip": (homes[name][0], boxes[-2 if len(boxes) > 1 else -1][1] + 4),
            }
            spot = spots[were[-1] if were else "home"]
            if name == "O" and not now:
                spot = spots["home"] if were else (AXIS, high + 4)
            x, y = spots["home"]
            kept = (0.35 if now else 1) if name != "O" else bool(were and not now)
            body.append(rect(x - side / 2, y, side, side, shade, fill_opacity=kept,
                             data_part=f"home-{name}"))
            body.append(rect(spot[0] - side / 2, spot[1], side, side, shade, opacity=bool(now),
                             data_part=f"small-{name}"))
        body.append(text(8, foot + 17, given, fill="muted", font_size=13, **START))
        for n, name in enumerate(WAYS):
            y, mine = foot + 26 + 2 * PITCH * n + 5 * n, name == way
            # The dashed frame is the whole time; the bar has come so far, the other way's is pale.
            passed = sent[name][place] / sent[name][-1] if mine else 1
            longs = [LONGEST * one / longest for one in times[n]]
            told, rest = f"memory {_time(times[n][0])}", f"computing {_time(computing)}"
            deciding = int(times[n][1] > times[n][0])
            body += [
                text(8, y + 11, name, font_weight="600" if mine else "400", data_part=f"name-{n}",
                     **START),
                rect(BARS, y, longs[0], 14, stroke="muted", stroke_dasharray="3 3"),
                rect(BARS, y, longs[0] * passed, 14, "ink", fill_opacity=0.75 if mine else 0.3,
                     data_part=f"bar-{n}"),
                rect(BARS, y + PITCH - 2, longs[1], 14, "plus", data_part=f"computing-{n}",
                     fill_opacity=0.75 if mine else 0.3),
                *(text(EDGE, y + 11 + row * (PITCH - 2), words, fill=("ink", "plus")[row],
                       font_weight="600" if row == deciding else "400", **END)
                  for row, words in enumerate((told, rest))),
                hit(4, y - 3, EDGE, 2 * PITCH, f"way:{n}"),
            ]
        body.append(text(BARS + 10, foot + 26 + 2 * PITCH + 16, ratio, font_weight="600", **START))
        so_far = f"{_bytes(total)} have crossed, {_time(total / speed)}"
        words = f"{way}, step {place}: {move.told}. {so_far}.\n"
        words += f"Of {_bytes(sent[way][-1])} in all; computing takes {_time(computing)}."
        row = (way, str(place), move.told, _bytes(here), _bytes(total), _time(total / speed))
        return Frame("".join(body), words, [row])

    n_steps = len(ways[WAYS[0]])
    controls = (
        Control("way", "attention in", WAYS, kind="choice"),
        Control("step", "step", tuple(map(str, range(n_steps))), n_steps // 2, pace=0.9),
    )
    columns = ("way", "step", "what is done", "crosses", "so far", "least time so far")
    return moving(
        draw, controls, WIDTH, foot + 30 + 4 * PITCH, columns=columns, about="the memories"
    )
