"""A walk over the tiles of the backward: the moving figure of chapter 13."""

from __future__ import annotations

from typing import NamedTuple

from attnbook.figures.drawing import axis_title, rect, tag, text
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

LOOPS = ("queries outside", "queries outside, causal", "keys outside", "keys outside, causal")
BLOCKS, TILE, GAP = 3, 68.0, 10.0
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


def _tiles(loop: str) -> list[Place]:
    """Return all tiles, in the order of the loop."""
    blocks = range(BLOCKS)
    if loop.startswith("keys"):
        return [(i, j) for j in blocks for i in blocks]
    return [(i, j) for i in blocks for j in blocks]


def _walk(loop: str) -> list[Step]:
    """Return every step: the start, each tile, and the end.

    What belongs to the outer block is read once, and its sums are written once, after its last
    tile. What belongs to the inner block is read for each tile, and its sums are written back. A
    sum that begins is 0, and is not read.
    """
    keys_outside, causal = loop.startswith("keys"), loop.endswith("causal")
    sums = (1, 2)  # a block of queries has the sum dQ, one of keys dK and dV; both have two inputs
    tiles = _tiles(loop)
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
        ]
    if step.at is None:
        return f"{loop}: after the last tile", [
            "Fast memory is empty again.", "All sums are written, and no tile was kept.", moved,
        ]
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


def _box(x: float, y: float, width: float, name: str, part: str, share: float, told: str) -> str:
    """Return the box of an input or of a sum, which fills up by its share and tells how far."""
    side = "query" if "query" in part else "key"
    lines = [name, told] if told else [name]
    words = "".join(
        text(x + width / 2, y + TALL / 2 + 4.5 + (place - (len(lines) - 1) / 2) * 16, line,
             data_part=f"{part}-told" if place else None)
        for place, line in enumerate(lines)
    )
    fill = rect(x, y, round(width * share, 1), TALL, side, rx=5, fill_opacity="0.25",
                data_part=f"{part}-sum") if told else ""
    dash = None if side == "query" else "5 3"
    return rect(x, y, width, TALL, rx=5, stroke="grid", stroke_dasharray=dash) + fill + words


def _progress(step: Step, place: int, block: int, total: int) -> tuple[float, str]:
    """Return how much of a sum is there: "1 of 3", or "done" when it is finished and away."""
    added = sum(tile[place] == block for tile in step.done)
    at_work = step.works() and step.at is not None and step.at[place] == block
    return added / total, "done" if added == total and not at_work else f"{added} of {total}"


def _mark(x: float, y: float, kind: str) -> str:
    """Return a tick or a cross around a point."""
    if kind == "done":
        return tag("path", d=f"M{x - 7:g} {y:g}l5 6 10-13", fill="none", stroke="muted",
                   stroke_width=2)
    return tag("path", d=f"M{x - 7:g} {y - 7:g}l14 14m0-14l-14 14", fill="none", stroke="muted",
               stroke_width=2)


def _elements(loop: str, step: Step, title: str, notes: list[str], most: int) -> str:
    """Return the drawing of one step; the bar of the blocks that were moved ends at the most."""
    right, bottom = LEFT + BLOCKS * TILE, TOP + BLOCKS * TILE
    causal, at_work = loop.endswith("causal"), step.works()
    body = [
        text(4, 18, title, data_part="title", font_size=14, text_anchor="start"),
        axis_title((LEFT + right) / 2, 48, "block of keys"),
        axis_title(14, (TOP + bottom) / 2, "block of queries", upright=True),
    ]
    for j in range(BLOCKS):
        x, above = LEFT + j * TILE + 2, TOP - TALL - GAP
        done = _progress(step, 1, j, BLOCKS - j if causal else BLOCKS)
        body.append(_box(x, above, TILE - 4, _name(j, "K V"), f"key-{j}", 0, ""))
        body.append(_box(x, bottom + GAP, TILE - 4, _name(j, "dK dV"), f"to-key-{j}", *done))
    for i in range(BLOCKS):
        y = TOP + i * TILE + (TILE - TALL) / 2
        done = _progress(step, 0, i, i + 1 if causal else BLOCKS)
        body.append(_box(28, y, WIDE, _name(i, "Q G L D"), f"query-{i}", 0, ""))
        body.append(_box(right + 2 * GAP, y, NARROW, _name(i, "dQ"), f"to-query-{i}", *done))
    for i, j in _tiles(LOOPS[0]):
        x, y = LEFT + j * TILE, TOP + i * TILE
        body.append(rect(x + 1, y + 1, TILE - 2, TILE - 2, stroke="grid"))
        for kind, places in (("done", step.done), ("skip", step.skipped)):
            shown = (i, j) in places and not (at_work and (i, j) == step.at)
            mark = _mark(x + TILE / 2, y + TILE / 2, kind)
            body.append(tag("g", mark, data_part=f"{kind}-{i}-{j}", opacity=shown))
    # What is in fast memory: thick frames that move from block to block with the tile.
    row, column = step.at or ((0, 0) if not step.done else (BLOCKS - 1, BLOCKS - 1))
    x, y = LEFT + column * TILE, TOP + row * TILE
    middle = y + (TILE - TALL) / 2
    frames = {
        "key": (x + 2, TOP - TALL - GAP, TILE - 4, TALL),
        "to-key": (x + 2, bottom + GAP, TILE - 4, TALL),
        "query": (28.0, middle, WIDE, TALL),
        "to-query": (right + 2 * GAP, middle, NARROW, TALL),
    }
    for part, sides in frames.items():
        side = part.removeprefix("to-")
        dash = None if side == "query" else "5 3"
        body.append(
            rect(*sides, rx=5, stroke=side, stroke_width=3, stroke_dasharray=dash,
                 data_part=f"{part}-held", opacity=at_work)
        )
    tile = rect(1, 1, TILE - 2, TILE - 2, "weight", fill_opacity="0.25", stroke="weight",
                stroke_width=3)
    tile += text(TILE / 2, TILE / 2 + 4.5, "A  dS", font_weight="600")
    body.append(tag("g", tile, data_part="tile", transform=f"translate({x:g} {y:g})",
                    opacity=at_work))
    foot = bottom + GAP + TALL + 24
    for place, note in enumerate(notes):
        body.append(text(4, foot + 19 * place, note, data_part=f"note-{place}",
                         text_anchor="start"))
    unit, end = (right + 2 * GAP + NARROW - 4) / most, foot + 19 * len(notes) - 8
    read, written = (round(unit * count, 1) for count in (step.read, step.written))
    body += [
        rect(4, end, round(unit * most, 1), 12, stroke="grid"),
        rect(4, end, read, 12, "muted", data_part="read"),
        rect(4 + read, end, written, 12, "ink", data_part="written"),
    ]
    # A click on a tile goes to its step, which is another one where the keys are outside.
    order = _tiles(loop)
    for i, j in _tiles(LOOPS[0]):
        x, y, step_of = LEFT + j * TILE, TOP + i * TILE, order.index((i, j)) + 1
        body.append(hit(x, y, TILE, TILE, f"tile:{step_of}", data_part=f"hit-{i}-{j}"))
    return "".join(body)


def backward_walk() -> MovingDrawing:
    """Return a moving figure: the backward tile by tile, and what fast memory holds meanwhile.

    One list picks the loop: blocks of queries outside or blocks of keys outside, with or without a
    causal mask. One slider goes through its tiles, and so does a click on a tile. What has a thick
    frame is in fast memory; a sum fills up with the tiles that have been added to it. A bar below
    counts the blocks that were read from slow memory (grey) and written to it (dark), and is full
    at the end of the longest walk.
    """
    n_tiles = BLOCKS**2
    walks = [_walk(loop) for loop in LOOPS]
    most = max(walk[-1].read + walk[-1].written for walk in walks)

    def draw(which: int, place: int) -> Frame:
        loop, step = LOOPS[which], walks[which][place]
        title, notes = _words(loop, place, n_tiles, step)
        told = f"{title}. {notes[2]}\n{notes[0].rstrip('.')}. {notes[1].rstrip('.')}."
        rows = []
        if step.at is not None:
            kept = [note.split(": ")[1] for note in notes[:2]] if step.works() else ["skipped"] * 2
            places = (str(place), *map(str, step.at))
            rows = [(loop, *places, *kept, str(step.read), str(step.written))]
        return Frame(_elements(loop, step, title, notes, most), told, rows)

    options = ("start", *(str(number) for number in range(1, n_tiles + 1)), "end")
    return moving(
        draw,
        [
            Control("loop", "loop", LOOPS, kind="choice"),
            Control("tile", "tile", options, start=n_tiles // 2 + 1, pace=1.2),
        ],
        LEFT + BLOCKS * TILE + 2 * GAP + NARROW + 6,
        TOP + BLOCKS * TILE + GAP + TALL + 24 + 3 * 19 + 10,
        columns=(
            "loop", "tile", "queries", "keys", "held for the block outside",
            "held for the tile", "blocks read", "blocks written",
        ),
        about="the walk backward",
    )
