"""A walk over the tiles of a score matrix: the second moving figure of chapter 12."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, rect, tag, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib import masks
from attnlib.numpy_blockwise import SoftmaxState

KINDS = ("all keys", "causal")
COLUMNS = {"m": "ink", "ℓ": "weight", "õ": "output", "o": "output"}
# The queries and keys of each tile, row by row, by its place among the tiles.
Tiles = dict[tuple[int, int], tuple[slice, slice]]
CELL, LEFT, TOP, COLUMN = 36.0, 46.0, 82.0, 51.0


class Step(NamedTuple):
    """What a frame shows: its tile, the scores held, each row's numbers, and the tiles' fate."""

    here: tuple[slice, slice] | None
    held: dict[tuple[int, int], float]  # by query and key; none where the tile is skipped
    rows: tuple[tuple[str, ...], ...]  # m, ℓ, õ, o of every query, as printed
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
    numbers = (state.m[row], state.ell[row], state.o[row, 0])
    shown = tuple(decimal(number) for number in numbers)
    return (*shown, decimal(state.finish()[0][row, 0]) if finished else "…")


def _walk(scores: Array, value: Array, kind: str, tiles: Tiles) -> list[Step]:
    """Every step from the empty states on: one row of tiles after the other."""
    n_queries, n_keys = scores.shape
    part = masks.causal(n_queries, n_keys) if kind == "causal" else np.ones_like(scores, bool)
    rows = [_printed(SoftmaxState.empty((1,), 1), 0, False)] * n_queries
    steps = [Step(None, {}, tuple(rows), frozenset(), frozenset())]
    for place, (queries, keys) in tiles.items():
        if keys.start == 0:
            state = SoftmaxState.empty((queries.stop - queries.start,), 1)
        held, seen = {}, part[queries, keys]
        done, skipped = steps[-1].done, steps[-1].skipped
        if seen.any():
            tile = np.where(seen, scores[queries, keys], -np.inf)
            held = {(queries.start + i, keys.start + j): s for (i, j), s in np.ndenumerate(tile)}
            state = state.update(tile, value[keys, None])
            finished = not part[queries, keys.stop :].any()
            for row in range(queries.stop - queries.start):
                rows[queries.start + row] = _printed(state, row, finished)
            done |= {place}
        else:
            skipped |= {place}
        steps.append(Step((queries, keys), held, tuple(rows), done, skipped))
    return steps


def _words(kind: str, number: int, total: int, step: Step) -> tuple[str, str, str]:
    """Return the title of a frame, the line below the tiles, and its label."""
    if step.here is None:
        title, note = f"{kind}: before the first of {total} tiles", "Every row has seen nothing."
        return title, note, f"{title}. {note}\nm = −∞, ℓ = 0.00, õ = 0.00 in each."
    queries, keys = step.here
    title = f"{kind}, tile {number} of {total}: {_range('row', queries)}, {_range('key', keys)}"
    if not step.held:
        note = "Skipped: these keys come after the rows."
        return title, note, f"{title}. {note}"
    hidden = list(step.held.values()).count(-np.inf)
    note = f"Scores held: {len(step.held)}" + (f", {hidden} of them masked." if hidden else ".")
    each = "; ".join(
        f"row {i}: "
        + ", ".join(
            f"{name} = {shown}"
            for name, shown in zip(COLUMNS, step.rows[i], strict=True)
            if shown != "…"
        )
        for i in range(queries.start, queries.stop)
    )
    return title, note, f"{title}. {note}\n{each}."


def _box(here: tuple[slice, slice] | None) -> tuple[float, float, float, float]:
    """Return where a tile lies: x, y, width and height."""
    queries, keys = here or (slice(0, 0), slice(0, 0))  # before the first tile: without width
    x, y = LEFT + keys.start * CELL, TOP + queries.start * CELL
    return x, y, (keys.stop - keys.start) * CELL, (queries.stop - queries.start) * CELL


def _mark(name: str, box: tuple[float, float, float, float]) -> str:
    """Return a tile that is done (with a tick) or skipped (with a cross)."""
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    if name == "done":
        d, dense = f"M{x - 7:g} {y:g}l5 6 10-13", "0.5"
    else:
        d, dense = f"M{x - 7:g} {y - 7:g}l14 14m0-14l-14 14", "0"
    line = tag("path", d=d, fill="none", stroke="muted", stroke_width=2)
    return rect(*box, "grid", fill_opacity=dense) + line


def _frame(step: Step, tiles: Tiles, n_keys: int, title: str, note: str) -> str:
    """Return the drawing of one step."""
    right, bottom = LEFT + n_keys * CELL, TOP + len(step.rows) * CELL
    start: dict[str, Any] = {"text_anchor": "start"}
    end: dict[str, Any] = {"text_anchor": "end"}
    body: list[str] = []
    for (a, b), here in tiles.items():
        done = (a, b) in step.done and step.here != here
        for name, there in (("done", done), ("skip", (a, b) in step.skipped)):
            mark = _mark(name, _box(here))
            body.append(tag("g", mark, data_part=f"{name}-{a}-{b}", opacity=there))
        body.append(rect(*_box(here), stroke="muted"))
    body.append(
        rect(*_box(step.here), stroke="ink", stroke_width=3, data_part="here")
    )  # fmt: skip
    for i, j in np.ndindex(len(step.rows), n_keys):
        x, y = LEFT + (j + 0.5) * CELL, TOP + (i + 0.5) * CELL + 5
        shown = decimal(step.held[i, j], 1) if (i, j) in step.held else ""
        body.append(text(x, y, shown, data_part=f"score-{i}-{j}"))
    _, top, _, tall = _box(step.here)
    body.append(
        rect(right + 8, top, len(COLUMNS) * COLUMN, tall, "grid", fill_opacity="0.4", rx=4,
             data_part="rows")
    )  # fmt: skip
    for i, row in enumerate(step.rows):
        y = TOP + (i + 0.5) * CELL + 5
        body.append(text(LEFT - 8, y, str(i), **end))
        for c, (name, shown) in enumerate(zip(COLUMNS, row, strict=True), start=1):
            look = {"fill": COLUMNS[name], "font_weight": "600" if name == "o" else None} | end
            body.append(text(right + c * COLUMN, y, shown, data_part=f"{name}-{i}", **look))
    for c, (name, shade) in enumerate(COLUMNS.items(), start=1):
        body.append(axis_title(right + c * COLUMN, TOP - 10, name, fill=shade, **end))
    body += [text(LEFT + (j + 0.5) * CELL, TOP - 10, str(j)) for j in range(n_keys)]
    body += [
        axis_title(LEFT, TOP - 30, "key j answers", **start),
        axis_title(14, (TOP + bottom) / 2, "query i asks", upright=True),
        text(4, 24, title, data_part="title", font_size=15, font_weight="600", **start),
        text(4, bottom + 26, note, data_part="note", **start),
    ]
    body += [hit(*_box(tile), f"tile:{n}") for n, tile in enumerate(tiles.values(), start=1)]
    return "".join(body)


def tile_walk(
    scores: ArrayLike, value: ArrayLike, block_q: int = 2, block_k: int = 2
) -> MovingDrawing:
    """Return a moving figure: attention tile by tile, and the state of each row after each tile.

    One list picks the mask (none, causal), one slider the step. Scores are printed in the tile at
    work only, since no other is held; a tick marks a tile that is done, a cross one that is
    skipped. Beside each row stand m, ℓ and õ of its `SoftmaxState`, and o once it is finished.

    Shapes:
        scores (L, S), value (S,), one entry of each value. Made for small L and S.

    Raises:
        ValueError: for shapes that do not fit, or a block below 1.
    """
    table, values = np.asarray(scores, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or values.shape != table.shape[1:]:
        raise ValueError(
            f"scores and value must have shapes (L, S) and (S,); got {table.shape}, {values.shape}"
        )
    if min(block_q, block_k) < 1:
        raise ValueError(f"block_q and block_k must be at least 1; got {block_q} and {block_k}")
    n_queries, n_keys = table.shape
    tiles = {
        (a, b): (queries, keys)
        for a, queries in enumerate(_blocks(n_queries, block_q))
        for b, keys in enumerate(_blocks(n_keys, block_k))
    }
    walks = [_walk(table, values, kind, tiles) for kind in KINDS]

    def draw(which: int, number: int) -> Frame:
        kind, step, rows = KINDS[which], walks[which][number], []
        title, note, label = _words(kind, number, len(tiles), step)
        if step.here:
            queries, keys = step.here
            for i in range(queries.start, queries.stop):
                shown = step.rows[i] if step.held else ("skipped",) * len(COLUMNS)
                rows.append((kind, str(number), str(i), _range("key", keys), *shown))
        return Frame(_frame(step, tiles, n_keys, title, note), label, rows)

    options = ("start", *(str(number) for number in range(1, len(tiles) + 1)))
    controls = (
        Control("kind", "mask", KINDS, kind="choice"),
        Control("tile", "tile", options, (len(tiles) + 1) // 2, pace=1.2),
    )
    return moving(
        draw, controls, LEFT + n_keys * CELL + len(COLUMNS) * COLUMN + 12,
        TOP + n_queries * CELL + 38, columns=("mask", "tile", "query", "keys", *COLUMNS),
        about="the walk over the tiles",
    )  # fmt: skip
