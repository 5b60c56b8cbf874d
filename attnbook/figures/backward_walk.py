"""A walk over the tiles of the backward: the moving figure of chapter 13."""

from __future__ import annotations

from typing import NamedTuple

from attnbook.figures.drawing import axis_title, rect, tag, text
from attnbook.figures.moving import Control, MovingDrawing

LOOPS = ("queries outside", "queries outside, causal", "keys outside", "keys outside, causal")
TILE, GAP = 68.0, 10.0
WIDE, NARROW, TALL = 104.0, 66.0, 42.0  # the boxes around the tiles
LEFT, TOP = 28 + WIDE + 2 * GAP, 62 + TALL + 2 * GAP
DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
Place = tuple[int, int]  # a block of queries and a block of keys


class Step(NamedTuple):
    """What a frame shows: the tile at work, what has been done so far, and what has been moved."""

    at: Place | None  # none before the first tile, and after the last
    done: frozenset[Place]  # the tile at work among them
    skipped: frozenset[Place]
    read: int  # blocks of Q, K, V, G or of a gradient; L and D have one number a row
    written: int

    def works(self) -> bool:
        """Return whether there is a tile at work, and it is not skipped."""
        return self.at in self.done


def _tiles(n_blocks: int, loop: str) -> list[Place]:
    """Return all tiles, in the order of the loop."""
    blocks = range(n_blocks)
    if loop.startswith("keys"):
        return [(i, j) for j in blocks for i in blocks]
    return [(i, j) for i in blocks for j in blocks]


def _walk(n_blocks: int, loop: str) -> list[Step]:
    """Return every step: the start, each tile, and the end.

    What belongs to the outer block is read once, and its sums are written once, after its last
    tile. What belongs to the inner block is read for each tile, and its sums are written back. A
    sum that begins is 0, and is not read.
    """
    keys_outside, causal = loop.startswith("keys"), loop.endswith("causal")
    sums = (1, 2)  # a block of queries has the sum dQ, one of keys dK and dV; both have two inputs
    tiles = _tiles(n_blocks, loop)
    visited = [(i, j) for i, j in tiles if not (causal and j > i)]
    steps = [Step(None, frozenset(), frozenset(), 0, 0)]
    outer, inner = (1, 0) if keys_outside else (0, 1)
    for tile in tiles:
        _, done, skipped, read, written = steps[-1]
        if tile not in visited:
            steps.append(Step(tile, done, skipped | {tile}, read, written))
            continue
        begins = not any(t[outer] == tile[outer] for t in done)
        first_sum = not any(t[inner] == tile[inner] for t in done)
        done |= {tile}
        ends = all(t in done for t in visited if t[outer] == tile[outer])
        read += 2 * begins + 2 + sums[inner] * (not first_sum)
        written += sums[inner] + sums[outer] * ends
        steps.append(Step(tile, done, skipped, read, written))
    return [*steps, steps[-1]._replace(at=None)]


def _name(block: int, letters: str) -> str:
    """Return the names of what belongs to a block: `_name(1, "K V")` is "K₁ V₁"."""
    return " ".join(letter + str(block).translate(DIGITS) for letter in letters.split())


def _words(loop: str, number: int, n_tiles: int, step: Step) -> tuple[str, list[str]]:
    """Return the title of a frame and the lines below the tiles."""
    moved = f"Blocks moved so far: {step.read} read, {step.written} written."
    if step.at is None and not step.done:
        return f"{loop}: before the first of {n_tiles} tiles", [
            "Fast memory is empty.", "All sums are 0.", moved,
        ]  # fmt: skip
    if step.at is None:
        return f"{loop}: after the last tile", [
            "Fast memory is empty again.", "All sums are written, and no tile was kept.", moved,
        ]  # fmt: skip
    i, j = step.at
    title = f"{loop}, tile {number} of {n_tiles}: queries {i}, keys {j}"
    if not step.works():
        return title, ["Skipped: these keys come after these queries.", "Nothing is read.", moved]
    of_row, of_column = _name(i, "Q G L D dQ"), _name(j, "K V dK dV")
    stays, goes, line = (of_row, of_column, "row")
    if loop.startswith("keys"):
        stays, goes, line = (of_column, of_row, "column")
    return title, [
        f"Held for the whole {line}: {stays}",
        f"Held for this tile only: {goes}, its A and dS",
        moved,
    ]


def _box(x: float, y: float, width: float, lines: list[str], held: bool, part: str) -> str:
    """Return the box of an input (orange, dashed) or a sum (blue), thick where it is held."""
    name, dash = ("query", None) if part.startswith("to-") else ("key", "5 3")
    faint = rect(x, y, width, TALL, rx=5, stroke="grid", stroke_dasharray=dash)
    thick = rect(
        x, y, width, TALL, name, rx=5, fill_opacity="0.25", stroke=name, stroke_width=2.6,
        stroke_dasharray=dash, data_part=f"{part}-held", opacity=held,
    )  # fmt: skip
    words = "".join(
        text(
            x + width / 2, y + TALL / 2 + 4.5 + (place - (len(lines) - 1) / 2) * 16, line,
            data_part=f"{part}-{place}",
        )
        for place, line in enumerate(lines)
    )  # fmt: skip
    return faint + thick + words


def _progress(step: Step, place: int, block: int, total: int) -> str:
    """Return how much of a sum is there: "1 of 3", or "done" when it is finished and away."""
    added = sum(tile[place] == block for tile in step.done)
    at_work = step.works() and step.at is not None and step.at[place] == block
    return "done" if added == total and not at_work else f"{added} of {total}"


def _mark(x: float, y: float, kind: str) -> str:
    """Return a tick or a cross around a point."""
    if kind == "done":
        return tag("path", d=f"M{x - 7:g} {y:g}l5 6 10-13", fill="none", stroke="value",
                   stroke_width=2)  # fmt: skip
    return tag("path", d=f"M{x - 7:g} {y - 7:g}l14 14m0-14l-14 14", fill="none", stroke="muted",
               stroke_width=2)  # fmt: skip


def _frame(n_blocks: int, loop: str, step: Step, title: str, notes: list[str]) -> str:
    """Return the drawing of one step."""
    right, bottom = LEFT + n_blocks * TILE, TOP + n_blocks * TILE
    causal = loop.endswith("causal")
    row, column = step.at if step.works() and step.at is not None else (-1, -1)
    body = [
        text(4, 18, title, data_part="title", font_size=14, text_anchor="start"),
        axis_title((LEFT + right) / 2, 48, "block of keys"),
        axis_title(14, (TOP + bottom) / 2, "block of queries", upright=True),
    ]
    for j in range(n_blocks):
        x, held = LEFT + j * TILE + 2, j == column
        added = _progress(step, 1, j, n_blocks - j if causal else n_blocks)
        above, below = [_name(j, "K V")], [_name(j, "dK dV"), added]
        body.append(_box(x, TOP - TALL - GAP, TILE - 4, above, held, f"key-{j}"))
        body.append(_box(x, bottom + GAP, TILE - 4, below, held, f"to-key-{j}"))
    for i in range(n_blocks):
        y, held = TOP + i * TILE + (TILE - TALL) / 2, i == row
        added = _progress(step, 0, i, i + 1 if causal else n_blocks)
        before, after = [_name(i, "Q G L D")], [_name(i, "dQ"), added]
        body.append(_box(28, y, WIDE, before, held, f"query-{i}"))
        body.append(_box(right + 2 * GAP, y, NARROW, after, held, f"to-query-{i}"))
    for i, j in _tiles(n_blocks, LOOPS[0]):
        x, y, here = LEFT + j * TILE, TOP + i * TILE, (i, j) == (row, column)
        sides = x + 1, y + 1, TILE - 2, TILE - 2
        thick = rect(*sides, "value", fill_opacity="0.3", stroke="value", stroke_width=2.6)
        thick += text(x + TILE / 2, y + TILE / 2 + 4.5, "A  dS", font_weight="600")
        body.append(rect(*sides, stroke="grid"))
        body.append(tag("g", thick, data_part=f"tile-{i}-{j}", opacity=here))
        for kind, places in (("done", step.done), ("skip", step.skipped)):
            shown = (i, j) in places and not here
            mark = _mark(x + TILE / 2, y + TILE / 2, kind)
            body.append(tag("g", mark, data_part=f"{kind}-{i}-{j}", opacity=shown))
    for place, note in enumerate(notes):
        y = bottom + GAP + TALL + 24 + 19 * place
        body.append(text(4, y, note, data_part=f"note-{place}", text_anchor="start"))
    return "".join(body)


def backward_walk(n_blocks: int = 3) -> MovingDrawing:
    """Return a moving figure: the backward tile by tile, and what fast memory holds meanwhile.

    One list picks the loop: blocks of queries outside or blocks of keys outside, with or without a
    causal mask. One slider goes through its tiles. Thick boxes are in fast memory; beside a sum
    stands how many tiles have been added to it. Below are counted the blocks that were read from
    slow memory and written to it.

    Raises:
        ValueError: for fewer than two blocks, or more than three, which would be too wide.
    """
    if n_blocks not in (2, 3):
        raise ValueError(f"n_blocks must be 2 or 3; got {n_blocks}")
    n_tiles = n_blocks**2
    frames, labels, rows = [], [], []
    for loop in LOOPS:
        for number, step in enumerate(_walk(n_blocks, loop)):
            title, notes = _words(loop, number, n_tiles, step)
            frames.append(_frame(n_blocks, loop, step, title, notes))
            labels.append(f"{title}. {notes[2]}\n{notes[0].rstrip('.')}. {notes[1].rstrip('.')}.")
            if step.at is not None:
                i, j = step.at
                what = (
                    ["skipped"] * 2 if not step.works() else [n.split(": ")[1] for n in notes[:2]]
                )
                places = (str(number), str(i), str(j))
                rows.append((loop, *places, *what, str(step.read), str(step.written)))
    options = ("start", *(str(number) for number in range(1, n_tiles + 1)), "end")
    return MovingDrawing.from_frames(
        frames,
        LEFT + n_blocks * TILE + 2 * GAP + NARROW + 6,
        TOP + n_blocks * TILE + GAP + TALL + 24 + 2 * 19 + 10,
        controls=(
            Control("loop", "loop", LOOPS, kind="choice"),
            Control("tile", "tile", options, start=n_tiles // 2 + 1),
        ),
        labels=labels,
        table=(
            ("loop", "tile", "queries", "keys", "held for the block outside",
             "held for the tile", "blocks read", "blocks written"),
            *rows,
        ),
        about="the walk backward",
    )  # fmt: skip
