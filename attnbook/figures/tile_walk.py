"""A walk over the tiles of a score matrix: the moving figure of chapter 12."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, Drawing, colour, tag, text
from attnbook.figures.matrices import _show
from attnbook.figures.moving import Control, MovingDrawing, one_line
from attnlib import masks
from attnlib.numpy_blockwise import SoftmaxState

KINDS = ("all keys", "causal")
COLUMNS = ("m", "ℓ", "õ", "o")
CELL, LEFT, TOP, COLUMN = 38.0, 46.0, 82.0, 54.0


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
    """The rows or columns of a block in words: "keys 2 to 3", "key 4"."""
    last = block.stop - 1
    return f"{name} {last}" if block.start == last else f"{name}s {block.start} to {last}"


def _printed(state: SoftmaxState, row: int, finished: bool) -> tuple[str, ...]:
    numbers = (state.row_max[row], state.row_sum[row], state.output[row, 0])
    shown = tuple(_show(number) for number in numbers)
    return (*shown, _show(state.finish()[0][row, 0]) if finished else "…")


def _walk(scores: Array, value: Array, kind: str, block_q: int, block_k: int) -> list[Step]:
    """Every step from the empty states on: one row of tiles after the other."""
    n_queries, n_keys = scores.shape
    part = masks.causal(n_queries, n_keys) if kind == "causal" else np.ones_like(scores, bool)
    rows = [_printed(SoftmaxState.empty((1,), 1), 0, False)] * n_queries
    steps = [Step(None, {}, tuple(rows), frozenset(), frozenset())]
    done: set[tuple[int, int]] = set()
    skipped: set[tuple[int, int]] = set()
    for a, queries in enumerate(_blocks(n_queries, block_q)):
        state = SoftmaxState.empty((queries.stop - queries.start,), 1)
        for b, keys in enumerate(_blocks(n_keys, block_k)):
            held, seen = {}, part[queries, keys]
            (done if seen.any() else skipped).add((a, b))
            if seen.any():
                tile = np.where(seen, scores[queries, keys], -np.inf)
                held = {
                    (queries.start + i, keys.start + j): s for (i, j), s in np.ndenumerate(tile)
                }
                state = state.update(tile, value[keys, None])
                finished = not part[queries, keys.stop :].any()
                for row in range(queries.stop - queries.start):
                    rows[queries.start + row] = _printed(state, row, finished)
            fate = frozenset(done), frozenset(skipped)
            steps.append(Step((queries, keys), held, tuple(rows), *fate))
    return steps


def _words(kind: str, number: int, total: int, step: Step) -> tuple[str, str, str]:
    """The title of a frame, the line below the tiles, and its label."""
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


def _box(here: tuple[slice, slice] | None) -> dict[str, Any]:
    queries, keys = here or (slice(0, 0), slice(0, 0))  # before the first tile: without width
    return {
        "x": LEFT + keys.start * CELL,
        "y": TOP + queries.start * CELL,
        "width": (keys.stop - keys.start) * CELL,
        "height": (queries.stop - queries.start) * CELL,
    }


def _mark(name: str, box: dict[str, Any]) -> str:
    """A tile that is done (blue, with a tick) or skipped (grey, with a cross)."""
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    if name == "done":
        fill, stroke, d = "blue", "blue", f"M{x - 7:g} {y:g}l5 6 10-13"
    else:
        fill, stroke, d = "grid", "muted", f"M{x - 7:g} {y - 7:g}l14 14m0-14l-14 14"
    line = tag("path", d=d, fill="none", stroke=colour(stroke), stroke_width=2)
    return tag("rect", **box, fill=colour(fill), fill_opacity="0.25") + line


def tile_walk(
    scores: ArrayLike, value: ArrayLike, block_q: int = 2, block_k: int = 2
) -> MovingDrawing:
    """A moving figure: attention tile by tile, and the state of each row after each tile.

    One list picks the mask (none, causal), one slider the step. Scores are printed in the tile at
    work only, since no other is held; a tick marks a tile that is done, a cross one that is
    skipped. Beside each row stand m, ℓ and õ of its `SoftmaxState`, and o once it is finished.

    Shapes: scores (L, S), value (S,): one entry of each value. Made for small L and S.

    Raises: `ValueError` for shapes that do not fit, or a block below 1.
    """
    table, values = np.asarray(scores, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or values.shape != table.shape[1:]:
        raise ValueError(
            f"expected scores (L, S) and value (S,), came {table.shape} and {values.shape}"
        )
    if min(block_q, block_k) < 1:
        raise ValueError(f"expected blocks of 1 or more, came {block_q} and {block_k}")
    n_queries, n_keys = table.shape
    walks = [_walk(table, values, kind, block_q, block_k) for kind in KINDS]
    frames = [step for walk in walks for step in walk]
    n_tiles = len(walks[0]) - 1
    first = n_tiles  # the last step without a mask: the picture is complete where no script runs
    told = [
        _words(kind, number, n_tiles, step)
        for kind, walk in zip(KINDS, walks, strict=True)
        for number, step in enumerate(walk)
    ]
    parts: dict[str, dict[str, Sequence[str]]] = {}
    body: list[str] = []

    def changing(part: str, words: Sequence[str], x: float, y: float, **look: str | float) -> None:
        parts[part] = {"text": list(words)}
        body.append(text(x, y, words[first], data_part=part, **look))

    for a, queries in enumerate(_blocks(n_queries, block_q)):
        for b, keys in enumerate(_blocks(n_keys, block_k)):
            here = queries, keys
            done = [(a, b) in step.done and step.here != here for step in frames]
            for name, flags in (("done", done), ("skip", [(a, b) in f.skipped for f in frames])):
                shown = "".join(str(int(flag)) for flag in flags)
                parts[f"{name}-{a}-{b}"] = {"opacity": shown}
                mark = _mark(name, _box(here))
                body.append(tag("g", mark, data_part=f"{name}-{a}-{b}", opacity=shown[first]))
            body.append(tag("rect", **_box(here), fill="none", stroke="muted"))
    boxes = [_box(step.here) for step in frames]
    parts["here"] = {name: [f"{box[name]:g}" for box in boxes] for name in boxes[0]}
    body.append(
        tag("rect", data_part="here", **boxes[first], fill="orange", fill_opacity="0.12",
            stroke="orange", stroke_width=3)
    )  # fmt: skip
    for i, j in np.ndindex(n_queries, n_keys):
        printed = [_show(f.held[i, j], 1) if (i, j) in f.held else "" for f in frames]
        changing(f"score-{i}-{j}", printed, LEFT + (j + 0.5) * CELL, TOP + (i + 0.5) * CELL + 5)
    right, bottom = LEFT + n_keys * CELL, TOP + n_queries * CELL
    for i in range(n_queries):
        y = TOP + (i + 0.5) * CELL + 5
        body.append(text(LEFT - 8, y, str(i), text_anchor="end"))
        for c, name in enumerate(COLUMNS):
            weight = {"font_weight": "600"} if name == "o" else {}
            words = [step.rows[i][c] for step in frames]
            changing(f"{name}-{i}", words, right + (c + 1) * COLUMN, y, text_anchor="end", **weight)
    for c, name in enumerate(COLUMNS):
        x = right + (c + 1) * COLUMN
        body.append(text(x, TOP - 10, name, text_anchor="end", fill="muted"))
    body += [text(LEFT + (j + 0.5) * CELL, TOP - 10, str(j)) for j in range(n_keys)]
    middle = (TOP + bottom) / 2
    body += [
        text(LEFT, TOP - 30, "key j answers", text_anchor="start", fill="muted"),
        text(14, middle, "query i asks", fill="muted",
             transform=f"rotate(-90 14 {middle:g})"),
    ]  # fmt: skip
    changing("title", [title for title, _, _ in told], 4, 24, text_anchor="start", font_size=14)
    changing("note", [note for _, note, _ in told], 4, bottom + 26, text_anchor="start")
    labels = tuple(label for _, _, label in told)
    width = right + len(COLUMNS) * COLUMN + 12
    picture = Drawing.from_elements("".join(body), width, bottom + 38, one_line(labels[first]))
    rows = [
        (kind, str(number), str(i), _range("key", step.here[1]),
         *(step.rows[i] if step.held else ("skipped",) * len(COLUMNS)))
        for kind, walk in zip(KINDS, walks, strict=True)
        for number, step in enumerate(walk) if step.here
        for i in range(step.here[0].start, step.here[0].stop)
    ]  # fmt: skip
    options = ("start", *(str(number) for number in range(1, n_tiles + 1)))
    return MovingDrawing(
        svg=picture.svg,
        alt=picture.alt,
        controls=(
            Control("kind", "mask", KINDS, kind="choice"),
            Control("tile", "tile", options, first),
        ),
        parts=parts,
        labels=labels,
        table=(("mask", "tile", "query", "keys", *COLUMNS), *rows),
    )
