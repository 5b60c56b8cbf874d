"""A sequence on several devices: who computes what in each step of a ring, and bytes a device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attnbook.figures.charts import SERIES, canvas, legend_above, powers_axis
from attnbook.figures.drawing import Drawing, axis_title, rect, tag, text
from attnbook.figures.moving import Control, MovingDrawing

LAYOUTS = ("contiguous", "zigzag")
CELL, LEFT, TOP, UNIT, ROW = 25.0, 64.0, 84.0, 23.0, 26.0
START: dict[str, Any] = {"text_anchor": "start"}


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


def _words(kind: str, plan: Timetable, step: int) -> tuple[str, str, str]:
    """Return a frame's title, what stands below its timetable, and its label."""
    title = (
        f"{kind}, step {step}: keys of device r − {step}" if step else f"{kind}, step 0: own keys"
    )
    work = [row[step] for row in plan.work]
    idle = [str(rank) for rank, amount in enumerate(work) if not amount]
    end, done = sum(plan.lengths[: step + 1]), sum(sum(row[: step + 1]) for row in plan.work)
    share = done / (len(work) * end)
    note = f"After step {step}: time {_amount(end)}, of which the devices used {share:.0%}."
    waits = f" Nothing to do: device {', '.join(idle)}." if idle else ""
    each = "; ".join(
        f"device {r} has keys {a} and {b}, {_amount(work[r])} tiles"
        for r in range(len(work))
        for a, b in [plan.deal[r - step]]
    )
    return title, note, f"{title}. {note}{waits}\n{each}."


def _matrix(plan: Timetable, step: int) -> list[str]:
    """Return the tiles: done, at work, to come, and those above the diagonal."""
    n_chunks, body = 2 * len(plan.deal), []
    owner = {chunk: rank for rank, own in enumerate(plan.deal) for chunk in own}
    for i, j in product(range(n_chunks), repeat=2):
        x, y = LEFT + j * CELL, TOP + i * CELL
        if (i, j) not in plan.tiles and j > i:
            look = {"fill_opacity": "0.35", "stroke": "paper"}
            body.append(rect(x, y, CELL, CELL, "grid", **look))
            continue
        rank, when = plan.tiles[i, j]
        name = "key" if when == step else "query"
        shade = "0.4" if when == step else "0.14" if when < step else "0"
        body.append(
            rect(x, y, CELL, CELL, name, fill_opacity=shade, stroke="muted",
                 stroke_width=2.5 if when == step else 0.7, data_part=f"tile-{i}-{j}")
        )  # fmt: skip
        look = {"font_weight": "700" if when == step else "400"}
        shown = str(rank) if when <= step else ""
        body.append(text(x + CELL / 2, y + 17, shown, data_part=f"device-{i}-{j}", **look))
    for chunk in range(n_chunks):
        place = TOP + chunk * CELL + 17
        body.append(text(LEFT - 8, place, str(chunk), text_anchor="end"))
        body.append(text(LEFT + (chunk + 0.5) * CELL, TOP - 8, str(chunk)))
        here = f"({owner[chunk]})"
        body.append(text(LEFT - 24, place, here, fill="muted", text_anchor="end",
                         data_part=f"owner-{chunk}"))  # fmt: skip
    return body


def _held(plan: Timetable, step: int) -> list[str]:
    """Return what each device holds, beside the tiles."""
    x = LEFT + 2 * len(plan.deal) * CELL + 16
    body = [axis_title(x, TOP - 8, "keys at hand", **START)]
    for rank in range(len(plan.deal)):
        a, b = plan.deal[rank - step]
        y = TOP + 22 + rank * 46
        body.append(text(x, y, f"device {rank}", font_weight="600", **START))
        shown = f"of device {(rank - step) % len(plan.deal)}: {a} and {b}"
        body.append(text(x, y + 18, shown, data_part=f"held-{rank}", **START))
    return body


def _bars(plan: Timetable, step: int, top: float, longest: float) -> list[str]:
    """Return the timetable: a row for each device, a slot for each step, filled while it works."""
    body = []
    bottom = top + len(plan.deal) * ROW
    for rank in range(len(plan.deal)):
        y = top + rank * ROW
        body.append(text(LEFT - 8, y + 17, f"device {rank}", text_anchor="end"))
        x = LEFT
        for s, length in enumerate(plan.lengths):
            there, busy = s <= step, plan.work[rank][s] * UNIT
            part, now = f"{rank}-{s}", s == step
            body.append(
                rect(x, y + 3, length * UNIT, ROW - 6, stroke="muted", stroke_dasharray="3 3",
                     data_part=f"slot-{part}", opacity="1" if there else "0")
            )  # fmt: skip
            body.append(
                rect(x, y + 3, busy, ROW - 6, "key" if now else "query",
                     fill_opacity="0.4" if now else "0.3", data_part=f"busy-{part}",
                     opacity="1" if there else "0")
            )  # fmt: skip
            shown = (str(rank) if busy else "waits") if there else ""
            body.append(text(x + length * UNIT / 2, y + 18, shown, data_part=f"word-{part}"))
            x += length * UNIT
    axis = LEFT + longest * UNIT
    body.append(tag("line", x1=LEFT, y1=bottom + 4, x2=axis, y2=bottom + 4, stroke="muted"))
    for unit in range(0, int(longest) + 1, 2):
        body.append(text(LEFT + unit * UNIT, bottom + 20, str(unit), fill="muted"))
    body.append(axis_title(LEFT + longest * UNIT, bottom + 38, "time, in tiles", text_anchor="end"))
    return body


def ring_timetable(n_devices: int = 4) -> MovingDrawing:
    """Return a moving figure: causal ring attention step by step, contiguous against zigzag.

    One list picks the layout, one slider the step. Above are the tiles of chunks of queries and
    keys, each with the number of the device that computes it; below is the timetable, where a step
    lasts as long as its slowest device computes.

    Raises:
        ValueError: for fewer than two devices or more than four.
    """
    if not 2 <= n_devices <= 4:
        raise ValueError(f"n_devices must be 2, 3 or 4; got {n_devices}")
    frames, labels, rows = [], [], []
    plans = {kind: _timetable(kind, n_devices) for kind in LAYOUTS}
    longest = max(sum(plan.lengths) for plan in plans.values())
    foot = TOP + 2 * n_devices * CELL + 28
    width, height = LEFT + longest * UNIT + 24, foot + n_devices * ROW + 74
    for kind, step in product(LAYOUTS, range(n_devices)):
        plan = plans[kind]
        title, note, label = _words(kind, plan, step)
        body = [
            text(4, 24, title, data_part="title", font_size=14, **START),
            axis_title(LEFT, TOP - 28, "chunk of keys", **START),
            axis_title(14, TOP + n_devices * CELL, "chunk of queries (device)", upright=True),
            *_matrix(plan, step), *_held(plan, step), *_bars(plan, step, foot, longest),
            text(4, height - 12, note, data_part="note", **START),
        ]  # fmt: skip
        frames.append("".join(body))
        labels.append(label)
        for rank in range(n_devices):
            a, b = plan.deal[rank - step]
            source = str((rank - step) % n_devices)
            amount = _amount(plan.work[rank][step]), _amount(plan.lengths[step])
            rows.append((kind, str(step), str(rank), source, f"{a}, {b}", *amount))
    return MovingDrawing.from_frames(
        frames, max(width, 430), height,
        controls=(
            Control("layout", "layout", LAYOUTS, kind="choice"),
            Control("step", "step", tuple(map(str, range(n_devices)))),
        ),
        labels=labels,
        table=(
            ("layout", "step", "device", "keys of device", "chunks", "tiles", "step lasts"), *rows
        ),
        about="the ring's timetable",
    )  # fmt: skip


def ring_bytes(n_devices: Sequence[int], keys_and_values: int, results: int) -> Drawing:
    """Return a drawing of the bytes that one of P devices holds and sends, both axes logarithmic.

    `keys_and_values` are the bytes of the keys and values of all tokens. An all-gather collects
    all of them; a ring has at most three blocks of 1/P of them at a time; a tree has its own block,
    and sends `results` bytes for one query.
    """
    devices = np.asarray(n_devices, dtype=np.float64)
    block, same = keys_and_values / devices, np.ones_like(devices)
    sent, in_ring = keys_and_values - block, np.minimum(3, devices) * block
    panels = {
        "held": {"all-gather": keys_and_values * same, "ring": in_ring, "tree": block},
        "sent": {"all-gather": sent, "ring": sent, "tree": results * same},
    }
    told = []
    with canvas(3.9, len(panels)) as (figure, axes):
        for one, (title, series) in zip(axes, panels.items(), strict=True):
            for (name, values), look in zip(series.items(), SERIES, strict=True):
                one.plot(n_devices, values, label=name, markersize=6, **look)
                ends = f"{values[0]:.3g} at {n_devices[0]} to {values[-1]:.3g} at {n_devices[-1]}"
                told.append(f"{title}, {name} from {ends}")
            powers_axis(one, n_devices, len(panels))
            one.set_yscale("log")
            one.set_ylim(results / 4, keys_and_values * 4)
            one.set_xlabel("devices")
            one.set_title(title)
            one.grid(axis="y")
        axes[0].set_ylabel("bytes of one device")
        legend_above(figure, axes[0])
        alt = (
            "Bytes of one device, by the number of devices. Held: the all-gather’s stay, those of "
            "ring and tree fall. Sent: ring and all-gather the same, the tree far less."
        )
        return Drawing.from_matplotlib(figure, f"{alt} {'; '.join(told)}.")
