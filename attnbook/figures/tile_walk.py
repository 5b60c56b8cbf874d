"""A walk over the tiles of a score matrix: the second moving figure of chapter 12."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, number, rect, tag, text
from attnbook.figures.labels import END, HALO, START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib import masks
from attnlib.numpy_blockwise import SoftmaxState

KINDS = ("all keys", "causal")
COLUMNS = {"m": "ink", "ℓ": "weight", "õ": "output", "o": "output"}
TOLD = "m = max s", "ℓ = Σ eˢ⁻ᵐ", "õ = Σ eˢ⁻ᵐ v"
# The queries and keys of each tile, row by row, by its place among the tiles.
Tiles = dict[tuple[int, int], tuple[slice, slice]]
CELL, LEFT, TOP, COLUMN = 38.0, 56.0, 96.0, 49.0
# Below the scores: the gauge, and how the numbers of one row are made, column by column.
GAUGE, HEAD, BEFORE = 15.0, 58.0, 194.0


class Step(NamedTuple):
    """What a frame shows: its tile, the scores held, each row's numbers, and the tiles' fate."""

    here: tuple[slice, slice] | None
    held: dict[tuple[int, int], float]  # by query and key; none where the tile is skipped
    rows: tuple[tuple[str, ...], ...]  # m, ℓ, õ, o of every query, as printed
    factors: dict[int, float]  # by query: ℓ and õ of before are multiplied by it, where m rises
    made: tuple[tuple[str, ...], ...]  # of the tile's last row: before, what each key adds, now
    done: frozenset[tuple[int, int]]
    skipped: frozenset[tuple[int, int]]


def _blocks(length: int, size: int) -> list[slice]:
    """Return the slices that cover this length in blocks of this size; the last may be shorter."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _range(name: str, block: slice) -> str:
    """Return the rows or columns of a block in words: "keys 2 to 3", "key 4"."""
    last = block.stop - 1
    return f"{name} {last}" if block.start == last else f"{name}s {block.start} to {last}"


def _printed(state: SoftmaxState, row: int, finished: bool) -> tuple[str, ...]:
    shown = map(decimal, (state.m[row], state.ell[row], state.o[row, 0]))
    return (*shown, decimal(state.finish()[0][row, 0]) if finished else "")


def _factor(exponential: float) -> str:
    """Return a number up to 1, with a digit more than the sums, so that these can be checked."""
    return "1" if exponential == 1 else f"{exponential:.3f}"


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _made(
    old: SoftmaxState, new: SoftmaxState, tile: Array, value: Array
) -> tuple[tuple[str, ...], ...]:
    """Return how m, ℓ and õ of the last row are made: before, what each key adds, and now."""
    row, m = tile[-1], new.m[-1]
    before = [""] * 3
    if np.isfinite(old.m[-1]):
        factor = float(np.exp(old.m[-1] - m))
        shrunk = f" × {_factor(factor)}" if factor < 1 else ""
        before = [decimal(old.m[-1])] + [f"{decimal(x)}{shrunk}"
                                         for x in (old.ell[-1], old.o[-1, 0])]
    weights = np.exp(row - m)
    keys = [["–"] * 3 if np.isneginf(score) else
            [decimal(score, 1), f"+ {_factor(e)}", f"+ {_factor(e)} · {_signed(v)}"]
            for score, e, v in zip(row, weights, value, strict=True)]
    now = [decimal(m), *(f"= {decimal(x)}" for x in (new.ell[-1], new.o[-1, 0]))]
    return tuple(zip(before, *keys, now, strict=True))


def _walk(scores: Array, value: Array, kind: str, tiles: Tiles) -> list[Step]:
    """Every step from the empty states on: one row of tiles after the other."""
    n_queries, n_keys = scores.shape
    part = masks.causal(n_queries, n_keys) if kind == "causal" else np.ones_like(scores, bool)
    rows = [("",) * len(COLUMNS)] * n_queries
    steps = [Step(None, {}, tuple(rows), {}, (), frozenset(), frozenset())]
    for place, (queries, keys) in tiles.items():
        if keys.start == 0:
            state = SoftmaxState.empty((queries.stop - queries.start,), 1)
        made: tuple[tuple[str, ...], ...] = ()
        held, factors, seen = {}, {}, part[queries, keys]
        done, skipped = steps[-1].done, steps[-1].skipped
        if seen.any():
            tile = np.where(seen, scores[queries, keys], -np.inf)
            held = {(queries.start + i, keys.start + j): s for (i, j), s in np.ndenumerate(tile)}
            old, state = state, state.update(tile, value[keys, None])
            factors = {queries.start + i: float(np.exp(old.m[i] - state.m[i]))
                       for i in np.flatnonzero(np.isfinite(old.m) & (old.m < state.m))}
            made = _made(old, state, tile, value[keys])
            finished = not part[queries, keys.stop :].any()
            for row in range(queries.stop - queries.start):
                rows[queries.start + row] = _printed(state, row, finished)
            done |= {place}
        else:
            skipped |= {place}
        steps.append(Step((queries, keys), held, tuple(rows), factors, made, done, skipped))
    return steps


def _words(kind: str, place: int, steps: list[Step], size: int) -> tuple[str, str, str]:
    """Return the title of a frame, what stands beside the gauge, and its label."""
    step, total = steps[place], len(steps) - 1
    note = f"{len(step.held)} of {size} scores held"
    if step.here is None:
        title = "Before the first tile no score is held"
        return title, note, f"{kind}: {title.lower()}. {note}.\nNo row has a state yet."
    queries, keys = step.here
    title = f"Tile {place}: only its {len(step.held)} scores are held"
    if not step.held:
        title = f"Tile {place} is skipped: all its keys are masked"
    elif len(step.held) == 1:
        title = f"Tile {place}: only its single score is held"
    said = f"{title}, {_range('row', queries)}, {_range('key', keys)}. {note}"
    if place == total:
        title = f"Done: never more than {max(len(one.held) for one in steps)} scores were held"
    if not step.held:
        return title, note, f"{kind}: {said}."
    hidden = list(step.held.values()).count(-np.inf)
    each = "; ".join(
        f"row {i}: "
        + ", ".join(
            f"{name} = {shown}" for name, shown in zip(COLUMNS, step.rows[i], strict=True) if shown
        )
        + (f" (old ℓ and õ × {step.factors[i]:.2f})" if i in step.factors else "")
        for i in range(queries.start, queries.stop)
    )
    return title, note, f"{kind}: {said}{f', {hidden} masked' if hidden else ''}.\n{each}."


def _box(here: tuple[slice, slice] | None) -> tuple[float, float, float, float]:
    """Return where a tile lies: x, y, width and height."""
    queries, keys = here or (slice(0, 0), slice(0, 0))  # before the first tile: without width
    x, y = LEFT + keys.start * CELL, TOP + queries.start * CELL
    return x, y, (keys.stop - keys.start) * CELL, (queries.stop - queries.start) * CELL


def _mark(name: str, box: tuple[float, float, float, float]) -> str:
    """Return a tile that is done (with a tick) or skipped (with a word where it has room)."""
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    if name == "done":
        tick = tag("path", d=f"M{x - 7:g} {y:g}l5 6 10-13", fill="none", stroke="muted",
                   stroke_width=2)
        return rect(*box, "grid", fill_opacity="0.5") + tick
    turned = f"rotate(-90 {number(x)} {number(y)})" if box[2] < 60 else None
    room = max(box[2:]) > 60
    return text(x, y + 4, "skipped" if room else "–", font_size=13, transform=turned, **HALO)


def _hatch(part: Array) -> str:
    """Return the path of the hatch over the cells that are masked."""
    corners = [(LEFT + j * CELL, TOP + i * CELL) for i, j in np.argwhere(~part.astype(bool))]
    third = CELL / 3
    return "".join(
        f"M{number(x)} {number(y + k * third)}L{number(x + k * third)} {number(y)}"
        if k <= 3
        else f"M{number(x + (k - 3) * third)} {number(y + CELL)}"
        f"L{number(x + CELL)} {number(y + (k - 3) * third)}"
        for x, y in corners
        for k in (1, 2, 3, 4, 5)
    )


def _frame(step: Step, tiles: Tiles, value: Array, kind: str, title: str, note: str) -> str:
    """Return the drawing of one step."""
    n_keys = len(value)
    right, bottom = LEFT + n_keys * CELL, TOP + len(step.rows) * CELL
    body: list[str] = []
    hatch = _hatch(masks.causal(len(step.rows), n_keys))
    body.append(tag("path", d=hatch, stroke="muted", stroke_width=0.8, data_part="masked",
                    opacity=kind == "causal"))
    for (a, b), here in tiles.items():
        done = (a, b) in step.done and step.here != here
        for name, there in (("done", done), ("skip", (a, b) in step.skipped)):
            mark = _mark(name, _box(here))
            body.append(tag("g", mark, data_part=f"{name}-{a}-{b}", opacity=there))
        body.append(rect(*_box(here), stroke="muted"))
    body.append(
        rect(*_box(step.here), stroke="ink", stroke_width=3, data_part="here")
    )
    for i, j in np.ndindex(len(step.rows), n_keys):
        x, y = LEFT + (j + 0.5) * CELL, TOP + (i + 0.5) * CELL + 5
        shown = decimal(step.held[i, j], 1) if (i, j) in step.held else ""
        body.append(text(x, y, shown, data_part=f"score-{i}-{j}", font_size=13, **HALO))
    x, top, wide, tall = _box(step.here)
    # The blocks of queries, keys and values that the tile is made of come along with it.
    blocks = {
        "Q": ("query", (LEFT - 38, top + 3, 16, max(tall - 6, 0))),
        "K": ("key", (x + 1, TOP - 58, max(wide / 2 - 2, 0), 16)),
        "V": ("value", (x + wide / 2 + 1, TOP - 58, max(wide / 2 - 2, 0), 16)),
    }
    for name, (shade, box) in blocks.items():
        there = bool(step.here)
        body += [
            rect(*box, shade, rx=2, opacity=there, data_part=f"block-{name}"),
            text(box[0] + box[2] / 2, box[1] + box[3] / 2 + 4.5, name, fill="paper", font_size=13,
                 font_weight="600", opacity=there, data_part=f"letter-{name}"),
        ]
    body.append(
        rect(right + 3, top, len(COLUMNS) * COLUMN + 3, tall, "grid", fill_opacity="0.4", rx=4,
             data_part="rows")
    )
    # The row whose numbers are made below, the last one of the tile, has a line around it.
    row = step.here[0].stop - 1 if step.here and step.made else 0
    framed = right + 3, TOP + row * CELL + 2, 3 * COLUMN + 3, CELL - 4
    body.append(rect(*framed, stroke="ink", rx=4, opacity=bool(step.made), data_part="framed"))
    for i, numbers in enumerate(step.rows):
        y = TOP + (i + 0.5) * CELL + 5
        body.append(text(LEFT - 6, y, str(i), fill="query", **END))
        for c, (name, shown) in enumerate(zip(COLUMNS, numbers, strict=True), start=1):
            look = {"fill": COLUMNS[name], "font_weight": "600" if name == "o" else None} | END
            body.append(text(right + c * COLUMN, y, shown, data_part=f"{name}-{i}", **look))
    for c, (name, shade) in enumerate(COLUMNS.items(), start=1):
        body.append(text(right + c * COLUMN - 8, TOP - 8, name, fill=shade, font_size=15,
                         font_weight="600", **END))
    body += [
        axis_title(right + 3 * COLUMN, TOP - 27, "kept for each row", **END),
        axis_title(right + 4 * COLUMN, TOP - 27, "õ / ℓ", **END),
        text(LEFT - 6, TOP - 26, "key", fill="key", **END),
        text(LEFT - 6, TOP - 8, "v", fill="value", **END),
    ]
    for j, v in enumerate(value):
        middle = LEFT + (j + 0.5) * CELL
        body += [text(middle, TOP - 26, str(j), fill="key"),
                 text(middle, TOP - 8, _signed(v), fill="value")]
    body += [
        axis_title(13, (TOP + bottom) / 2, "queries", upright=True, fill="query"),
        text(4, 22, title, data_part="title", font_size=15, font_weight="600", **START),
    ]
    # The gauge: a square for every score, and in ink for each that is held.
    size, level = len(step.rows) * n_keys, bottom + GAUGE
    pitch = round(min(12.0, 288 / size), 2)
    ruled = "".join(f"M{number(4 + n * pitch)} {number(level)}v11" for n in range(size + 1))
    ruled += f"M4 {number(level)}h{number(size * pitch)}m0 11H4"
    body += [
        rect(4, level, len(step.held) * pitch, 11, "ink", data_part="held"),
        tag("path", d=ruled, stroke="muted", stroke_width=0.8),
    ]
    body.append(text(12 + size * pitch, level + 10, note, data_part="note", font_weight="600",
                     **START))
    body += _sums(step, row, max(keys.stop - keys.start for _, keys in tiles.values()),
                  bottom + HEAD, right + 4 * COLUMN)
    body += [hit(*_box(tile), f"tile:{n}") for n, tile in enumerate(tiles.values(), start=1)]
    return "".join(body)


def _sums(step: Step, row: int, most: int, top: float, right: float) -> list[str]:
    """Return how m, ℓ and õ of one row are made, in columns: before, each key of a tile, now."""
    there, pitch = bool(step.made), (right - 64 - BEFORE) / most
    first = step.here[1].start if step.here else 0
    named = [f"key {first + n}" for n in range(len(step.made[0]) - 2)] if there else []
    heads = [("before", "muted"), *((name, "key") for name in named + [""] * (most - len(named))),
             ("now", "muted")]
    places = [BEFORE, *(BEFORE + pitch * n for n in range(1, most + 1)), right]
    body = [text(4, top, f"query {row}" if there else "", fill="query", font_weight="600",
                 data_part="row", **START)]
    for n, ((words, shade), x) in enumerate(zip(heads, places, strict=True)):
        body.append(text(x, top, words if there else "", fill=shade, data_part=f"head-{n}", **END))
    for c, (name, words) in enumerate(zip(COLUMNS, TOLD, strict=False)):
        y, cells = top + 21 * (c + 1), list(step.made[c]) if there else ["", ""]
        cells[-1:-1] = [""] * (most + 2 - len(cells))
        body.append(text(4, y, words, fill=COLUMNS[name], opacity=there, data_part=f"told-{name}",
                         **START))
        for n, (shown, x) in enumerate(zip(cells, places, strict=True)):
            body.append(text(x, y, shown, fill=COLUMNS[name], data_part=f"made-{name}-{n}",
                             font_weight="600" if x == right else "400", **END))
    return body


def tile_walk(
    scores: ArrayLike, value: ArrayLike, block_q: int = 2, block_k: int = 2
) -> MovingDrawing:
    """Return a moving figure: attention tile by tile, and the state of each row after each tile.

    One list picks the mask (none, causal), one slider the step. Scores are printed in the tile at
    work only, since no other is held: a gauge with a square for every score counts them. A tick
    marks a tile that is done; masked scores are hatched, and a tile of nothing else is skipped.
    Beside each row stand m, ℓ and õ of its `SoftmaxState`, and o once it is finished. Below, those
    of the tile's last row are added up: the old sums, times a factor where m rises, and what each
    key adds.

    Shapes:
        scores (L, S), value (S,), one entry of each value. Made for small L and S.
    """
    table, values = np.asarray(scores, dtype=np.float64), np.asarray(value, dtype=np.float64)
    n_queries, n_keys = table.shape
    tiles = {
        (a, b): (queries, keys)
        for a, queries in enumerate(_blocks(n_queries, block_q))
        for b, keys in enumerate(_blocks(n_keys, block_k))
    }
    walks = [_walk(table, values, kind, tiles) for kind in KINDS]

    def draw(which: int, place: int) -> Frame:
        kind, step, rows = KINDS[which], walks[which][place], []
        title, note, label = _words(kind, place, walks[which], table.size)
        if step.here:
            queries, keys = step.here
            for i in range(queries.start, queries.stop):
                shown = step.rows[i] if step.held else ("skipped",) * len(COLUMNS)
                factor = f"{step.factors[i]:.2f}" if i in step.factors else ""
                rows.append((kind, str(place), str(i), _range("key", keys), *shown, factor))
        return Frame(_frame(step, tiles, values, kind, title, note), label, rows)

    options = ("start", *(str(place) for place in range(1, len(tiles) + 1)))
    controls = (
        Control("kind", "mask", KINDS, kind="choice"),
        Control("tile", "tile", options, (len(tiles) + 1) // 2, pace=1.2),
    )
    return moving(
        draw, controls, LEFT + n_keys * CELL + len(COLUMNS) * COLUMN + 6,
        TOP + n_queries * CELL + HEAD + 72,
        columns=("mask", "tile", "query", "keys", *COLUMNS, "factor of the old sums"),
        about="the walk over the tiles",
    )
