"""Which tile adds to which gradient, and in what order a loop over tiles comes by."""

from __future__ import annotations

from attnbook.figures.drawing import Drawing, arrow, axis_title, rect, text

TILE = 64.0
WIDE = 104.0  # the boxes left and right of the tiles
TALL = 38.0  # the boxes above and below them
GAP = 14.0
DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def _box(x: float, y: float, width: float, height: float, words: str, name: str, on: bool) -> str:
    """Return a box that is read (dashed) or written (solid), thick where the shown tile uses it."""
    fill, dash = ("orange", "5 3") if name == "read" else ("blue", None)
    frame = rect(
        x, y, width, height, fill, rx=5, fill_opacity=f"{0.22 if on else 0.05:.2f}",
        stroke=fill if on else "grid", stroke_width=2.4 if on else 1.0, stroke_dasharray=dash,
    )  # fmt: skip
    weight = "600" if on else None
    return frame + text(x + width / 2, y + height / 2 + 4.5, words, font_weight=weight)


def gradient_tiles(
    n_query_blocks: int, n_key_blocks: int, at: tuple[int, int], *, is_causal: bool = False
) -> Drawing:
    """Return a drawing of the backward over tiles: what the tile `at` reads, and what it adds to.

    The tiles carry the number of their turn in a loop over blocks of queries outside and blocks of
    keys inside. With `is_causal` those above the diagonal are empty and have none; blocks of
    queries and of keys are equally long then.

    Raises: `ValueError` for a tile that is not there, or is skipped.
    """
    row, column = at
    if not (0 <= row < n_query_blocks and 0 <= column < n_key_blocks):
        raise ValueError(f"at must be a tile of {n_query_blocks} by {n_key_blocks}; got {at}")
    if is_causal and row < column:
        raise ValueError(f"at must be a tile that is not skipped; got {at}")
    left, top = 26 + WIDE + 2 * GAP, 30 + TALL + 2 * GAP
    right, bottom = left + n_key_blocks * TILE, top + n_query_blocks * TILE
    body, turn, skipped = [], 0, 0
    for j in range(n_key_blocks):
        x, name = left + j * TILE, str(j).translate(DIGITS)
        body.append(_box(x + 2, 30, TILE - 4, TALL, f"K{name} V{name}", "read", j == column))
        words = f"dK{name} dV{name}"
        body.append(_box(x + 2, bottom + 2 * GAP, TILE - 4, TALL, words, "written", j == column))
    for i in range(n_query_blocks):
        y, name = top + i * TILE, str(i).translate(DIGITS)
        middle, reads = y + (TILE - TALL) / 2, f"Q{name} G{name} L{name} D{name}"
        body.append(_box(26, middle, WIDE, TALL, reads, "read", i == row))
        body.append(_box(right + 2 * GAP, middle, WIDE / 2, TALL, f"dQ{name}", "written", i == row))
        for j in range(n_key_blocks):
            shown, skip = (i, j) == at, is_causal and i < j
            turn, skipped = turn + (not skip), skipped + skip
            tile = rect(
                left + j * TILE + 1, y + 1, TILE - 2, TILE - 2, "green",
                fill_opacity=f"{0.3 if shown else 0.0 if skip else 0.08:.2f}",
                stroke="grid" if skip else "green", stroke_width=2.4 if shown else 1.0,
                stroke_dasharray="3 4" if skip else None,
            )  # fmt: skip
            label, ink = ("skip", "muted") if skip else (str(turn), "ink")
            # In the corner, where no arrow passes.
            corner = text(left + j * TILE + 5, y + 16, label, fill=ink, text_anchor="start")
            body.append(tile + corner)
    x, y = left + (column + 0.5) * TILE, top + (row + 0.5) * TILE
    body += [
        arrow(26 + WIDE, y, x - 14, y, "ink", 1.8),
        arrow(x + 14, y, right + 2 * GAP, y, "ink", 1.8),
        arrow(x, 30 + TALL, x, y - 14, "ink", 1.8),
        arrow(x, y + 14, x, bottom + 2 * GAP, "ink", 1.8),
        axis_title((left + right) / 2, 18, "block of keys"),
        axis_title(14, (top + bottom) / 2, "block of queries", upright=True),
    ]
    alt = (
        f"Tiles of {n_query_blocks} blocks of queries by {n_key_blocks} blocks of keys, numbered "
        f"as the loop visits them, one block of queries after another"
        f"{f'; the {skipped} above the diagonal are skipped' if is_causal else ''}. The tile of "
        f"queries {row} and keys {column} reads Q, G, L and D of its row and K and V of its "
        f"column, and adds to dQ of its row and to dK and dV of its column."
    )
    width, height = right + 2 * GAP + WIDE / 2 + 12, bottom + 2 * GAP + TALL + 12
    return Drawing.from_elements("".join(body), width, height, alt)
