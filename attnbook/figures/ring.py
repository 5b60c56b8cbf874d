"""A sequence on several devices: who computes what in each step of a ring."""

from __future__ import annotations

from itertools import accumulate, product
from math import cos, radians, sin
from typing import Any, NamedTuple

from attnbook.figures.drawing import WIDEST, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import START
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving

LAYOUTS = ("contiguous", "zigzag")

# The ring, a packet on it, a device with its tiles beside it, and the timetable below.
CENTRE = WIDEST / 2, 148.0
PACKET = 44.0, 26.0
BOX, CELL, TALL = (138.0, 84.0), 13.0, 17.0
LEFT, TOP, ROW, ROOM = 68.0, 278.0, 22.0, 364.0
SHADES = {"to do": "0", "now": "1", "done": "0.4"}  # how strong a tile is filled


class Timetable(NamedTuple):
    """Tiles by query and key chunk; work of device r in step s, in tiles; length of each step."""

    deal: list[tuple[int, int]]
    tiles: dict[tuple[int, int], tuple[int, int]]  # the device and the step of each tile
    work: list[list[float]]
    lengths: list[float]


def _timetable(kind: str, size: int) -> Timetable:
    """Return who computes which tile when. A tile on the diagonal is half of one."""
    contiguous = kind == "contiguous"
    deal = [(2 * r, 2 * r + 1) if contiguous else (r, 2 * size - 1 - r) for r in range(size)]
    tiles, work = {}, [[0.0] * size for _ in range(size)]
    for rank, step in product(range(size), range(size)):
        for i, j in product(deal[rank], deal[rank - step]):
            if j <= i:
                tiles[i, j] = rank, step
                work[rank][step] += 0.5 if i == j else 1.0
    return Timetable(deal, tiles, work, [max(row[s] for row in work) for s in range(size)])


def _amount(tiles: float) -> str:
    """Return a number of tiles in words, without a decimal where it is whole."""
    return f"{tiles:.1f}".removesuffix(".0")


def _packet(owner: int) -> tuple[str, str]:
    """Return the names of a device's own keys and values."""
    return "K" + "₀₁₂₃"[owner], "V" + "₀₁₂₃"[owner]


def _words(kind: str, plan: Timetable, step: int) -> tuple[str, str, str]:
    """Return what stands above a frame and below its timetable, and the frame's label."""
    work = [row[step] for row in plan.work]
    idle = [str(rank) for rank, amount in enumerate(work) if not amount]
    waits = " and ".join(filter(None, [", ".join(idle[:-1]), *idle[-1:]]))
    who = f"device{'s' * (len(idle) > 1)} {waits} wait{'s' * (len(idle) == 1)}"
    title = f"{kind}, step {step}: {who if idle else 'every device works'}"
    end, done = sum(plan.lengths[: step + 1]), sum(sum(row[: step + 1]) for row in plan.work)
    share = done / (len(work) * end)
    note = f"After step {step}: time {_amount(end)}, of which the devices used {share:.0%}."
    each = "; ".join(
        f"device {r} has keys {a} and {b}, {_amount(work[r])} tiles"
        for r in range(len(work))
        for a, b in [plan.deal[r - step]]
    )
    return title, note, f"{title}. {note}\n{each}."


def _angle(rank: float, size: int) -> float:
    """Return where a device stands on the ring: degrees from the right, clockwise."""
    return 360 / size * (rank + 0.5 * (size > 2)) - 180


def _ring(size: int, step: int) -> str:
    """Return the ring with its packets: they move on as the whole ring turns."""
    (x, y), radius, (wide, tall) = CENTRE, 74.0 if size == 4 else 58.0, PACKET
    body = [tag("circle", cx=x, cy=y, r=radius, fill="none", stroke="grid", stroke_width=9)]
    for rank in range(size):
        turned = f"rotate({number(_angle(rank + 0.5, size))})translate({number(radius)})"
        placed = f"translate({number(x)} {number(y)}){turned}"
        body.append(tag("path", d="M-5-5L0 5L5-5z", fill="muted", transform=placed))
    packets = []
    for owner in range(size):
        names = [
            text(side * wide / 4, 4.5, name, fill="paper", font_weight="700")
            for side, name in zip((-1, 1), _packet(owner), strict=True)
        ]
        look = {"stroke": "paper", "stroke_width": 1.5}
        halves = [
            rect(-wide / 2, -tall / 2, wide / 2, tall, "key", **look),
            rect(0, -tall / 2, wide / 2, tall, "value", **look),
        ]
        angle = _angle(owner, size)
        upright = tag("g", "".join([*halves, *names]), data_part=f"packet-{owner}",
                      transform=f"rotate({number(-angle - 360 / size * step)})")
        there = f"rotate({number(angle)})translate({number(radius)})"
        packets.append(tag("g", upright, transform=there))
    turning = tag("g", "".join(packets), data_part="ring",
                  transform=f"rotate({number(360 / size * step)})")
    body.append(tag("g", turning, transform=f"translate({number(x)} {number(y)})"))
    body.append(text(x, y + 5, f"step {step}", data_part="step", font_weight="700", font_size=15))
    return "".join(body)


def _tile(x: float, y: float, plan: Timetable, i: int, j: int, step: int, part: str) -> str:
    """Return one tile: to come, now or done. On the diagonal it is a half, above it unseen."""
    wide, tall = CELL - 1.5, TALL - 1.5
    top, foot = (0.0, wide) if i == j else (wide, -wide)
    shape = f"h{number(top)}v{number(tall)}h{number(foot)}z"
    when = plan.tiles[i, j][1] if j <= i else len(plan.deal)
    shade = SHADES["now" if when == step else "done" if when < step else "to do"]
    return tag("path", d=f"M{number(x + 0.75)} {number(y + 0.75)}{shape}", fill_opacity=shade,
               opacity="1" if j <= i else "0", data_part=part)


def _device(plan: Timetable, rank: int, step: int) -> str:
    """Return a device: in its rows the own queries, in its columns all keys, and so its tiles.

    The keys at hand have their numbers, and a strip down the column where there is work for them.
    """
    size, (wide, tall) = len(plan.deal), BOX
    angle, work = radians(_angle(rank, size)), plan.work[rank][step]
    x = 3.0 if cos(angle) < 0 else WIDEST - 3 - wide
    y = CENTRE[1] + 57 * round(sin(angle)) - tall / 2
    look: dict[str, Any] = {
        "stroke": "ink",
        "stroke_width": 2.5,
        "stroke_dasharray": "none",
        "fill_opacity": "0",
    }
    if not work:
        look |= {"stroke": "muted", "stroke_width": 1, "stroke_dasharray": "4 3"}
        look |= {"fill_opacity": "0.2"}
    status = f"{_amount(work)} tiles" if work else "waits"
    body = [
        rect(x, y, wide, tall, "grid", rx=6, data_part=f"box-{rank}", **look),
        text(x + 9, y + 18, f"device {rank}", font_weight="600", **START),
        text(x + wide - 9, y + 18, status, text_anchor="end", font_weight="600",
             data_part=f"status-{rank}"),
    ]
    left, top = x + 25, y + 40
    for place, j in enumerate(plan.deal[rank - step]):
        works = any(j <= i for i in plan.deal[rank])
        down = f"translate({number(left + j * CELL)} {number(top - 17)})"
        strip = rect(0, 0, CELL, 17 + 2 * TALL * works, "key", fill_opacity="0.2",
                     data_part=f"strip-{rank}-{place}")
        strip += text(CELL / 2, 13, str(j), font_weight="600", data_part=f"key-{rank}-{place}")
        body.append(tag("g", strip, transform=down, data_part=f"at-hand-{rank}-{place}"))
    keys = range(2 * size)
    tiles = []
    for row, i in enumerate(plan.deal[rank]):
        y = top + row * TALL
        body.append(text(left - 5, y + 13, str(i), fill="query", text_anchor="end",
                         data_part=f"queries-{rank}-{row}"))
        tiles += [
            _tile(left + j * CELL, y, plan, i, j, step, f"tile-{rank}-{row}-{j}")
            for j in keys
            if j <= max(_timetable(kind, size).deal[rank][row] for kind in LAYOUTS)
        ]
    body.append(tag("g", "".join(tiles), fill="ink", stroke="muted", stroke_width=0.8))
    return "".join(body)


def _legend() -> str:
    """Return what the three shades of a tile say, and what a half is."""
    body, x, tall = list[str](), 6.0, TALL - 1.5
    look: dict[str, Any] = {"stroke": "muted", "stroke_width": 0.8}
    for name, shade in SHADES.items():
        body.append(rect(x, TOP - 26, CELL, tall, "ink", fill_opacity=shade, **look))
        body.append(text(x + CELL + 5, TOP - 14, name, **START))
        x += CELL + 26 + 7 * len(name)
    path = f"M{number(x)} {number(TOP - 26)}v{number(tall)}h{number(CELL)}z"
    body.append(tag("path", d=path, fill="none", **look))
    body.append(text(x + CELL + 5, TOP - 14, "half a tile: later keys are masked", **START))
    return "".join(body)


def _ghost(other: Timetable, end: float, unit: float) -> str:
    """Return the work of the other layout that comes after the end of this one, as outlines."""
    body, ends = list[str](), list(accumulate(other.lengths, initial=0.0))
    for rank, row in enumerate(other.work):
        for s, busy in enumerate(row):
            x = max(ends[s], end)
            wide = max(ends[s] + busy - x, 0) * unit
            body.append(rect(
                LEFT + x * unit, TOP + rank * ROW + 2, wide, ROW - 4, "grid",
                data_part=f"ghost-{rank}-{s}",
            ))
    return tag("g", "".join(body), fill_opacity=0.3, stroke="muted", stroke_dasharray="2 3")


def _bars(plan: Timetable, step: int, longest: float) -> str:
    """Return the timetable: a row for each device, a slot for each step, filled while it works."""
    size, unit = len(plan.deal), ROOM / longest
    bottom, body = TOP + size * ROW, list[str]()
    slots, bars, words = list[str](), list[str](), list[str]()
    ends = list(accumulate(plan.lengths, initial=0.0))
    for rank in range(size):
        y = TOP + rank * ROW
        body.append(text(LEFT - 8, y + 16, f"device {rank}", text_anchor="end"))
        for s, length in enumerate(plan.lengths):
            there, x, busy = s <= step, LEFT + ends[s] * unit, plan.work[rank][s]
            look: dict[str, Any] = {"data_pick": f"step:{s}", "height": ROW - 4, "y": y + 2, "x": x}
            slots.append(tag("rect", width=length * unit * (there and not busy), **look,
                             data_part=f"slot-{rank}-{s}"))
            bars.append(tag("rect", width=busy * unit * there, **look, data_part=f"busy-{rank}-{s}",
                            fill_opacity="1" if s == step else "0.7"))
            shown = ("".join(_packet((rank - s) % size)) if busy else "waits") if there else ""
            words.append(text(x + length * unit / 2, y + 16, shown, fill="paper" if busy else "ink",
                              data_part=f"word-{rank}-{s}"))
    body.append(tag("g", "".join(slots), fill="none", stroke="muted", stroke_dasharray="3 3"))
    body.append(tag("g", "".join(bars), fill="ink", stroke="paper"))
    body.append(tag("g", "".join(words), pointer_events="none"))
    body.append(line(LEFT, bottom + 4, LEFT + longest * unit, bottom + 4, "muted"))
    for tick in range(0, int(longest) + 1, 2):
        body.append(text(LEFT + tick * unit, bottom + 20, str(tick), fill="muted"))
    body.append(axis_title(LEFT + ROOM / 2, bottom + 38, "time, in tiles; sending is not counted"))
    return "".join(body)


def ring_timetable(n_devices: int = 4) -> MovingDrawing:
    """Return a moving figure: causal ring attention step by step, contiguous against zigzag.

    One list picks the layout, one slider the step. Packets of keys and values travel round a ring
    of devices, each of which keeps its queries and computes the tiles of the keys at hand; below
    is the timetable, where a step lasts as long as its slowest device computes.
    """
    plans = {kind: _timetable(kind, n_devices) for kind in LAYOUTS}
    longest = max(sum(plan.lengths) for plan in plans.values())
    foot = TOP + n_devices * ROW

    def draw(layout: int, step: int) -> Frame:
        kind, plan = LAYOUTS[layout], plans[LAYOUTS[layout]]
        title, note, label = _words(kind, plan, step)
        end = sum(plan.lengths)
        past = f"{LAYOUTS[1 - layout]}: until {_amount(longest)}" if end < longest else ""
        body = [
            text(3, 18, title, data_part="title", font_size=15, font_weight="600", **START),
            text(3, 39, "Queries (rows) stay.", fill="query", **START),
            text(WIDEST - 3, 39, "Keys and values (columns) travel.", fill="key",
                 text_anchor="end"),
            *(_device(plan, rank, step) for rank in range(n_devices)),
            _ring(n_devices, step),
            _legend(),
            _ghost(plans[LAYOUTS[1 - layout]], end, ROOM / longest),
            text(LEFT + ROOM, TOP + ROW + 14, past, fill="muted", text_anchor="end",
                 data_part="past"),
            _bars(plan, step, longest),
            text(3, foot + 59, note, data_part="note", **START),
            tag("g", tag("circle", cx=CENTRE[0], cy=CENTRE[1], r=40, fill="ink", fill_opacity="0",
                         class_="attn-hit"),
                data_part="next", data_pick=f"step:{(step + 1) % n_devices}"),
        ]
        rows = [
            (kind, str(step), str(rank), str((rank - step) % n_devices),
             ", ".join(map(str, plan.deal[rank - step])),
             _amount(plan.work[rank][step]), _amount(plan.lengths[step]))
            for rank in range(n_devices)
        ]
        return Frame("".join(body), label, rows)

    steps = tuple(map(str, range(n_devices)))
    return moving(
        draw,
        [
            Control("layout", "layout", LAYOUTS, kind="choice"),
            Control("step", "step", steps, min(2, n_devices - 1), pace=1.6),
        ],
        WIDEST,
        foot + 68,
        columns=("layout", "step", "device", "keys of device", "chunks", "tiles", "step lasts"),
        about="the ring's timetable",
    )
