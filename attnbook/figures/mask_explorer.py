"""Who may attend to whom: the moving figure of chapter 07."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attnbook.figures.drawing import Array, axis_title, rect, tag, text
from attnbook.figures.labels import START
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnlib import masks

# Each kind of mask: its rule, with a gap where the size stands, and its maker from L, S and size.
KINDS: dict[str, tuple[str, Callable[[int, int, int], Array]]] = {
    "causal, top-left": ("j ≤ i", lambda L, S, size: masks.causal(L, S)),
    "causal, bottom-right": (  # on the sheet alone
        "j ≤ i + S − L",
        lambda L, S, size: masks.causal(L, S, align="bottom-right"),
    ),
    "window": ("i − {} ≤ j ≤ i", lambda L, S, size: masks.window(L, S, left=size, right=0)),
    "right padding": ("j < {}", lambda L, S, size: _padding(L, S, size, "right")),
    "causal, right padding": (
        "j ≤ i and j < {}",
        lambda L, S, size: masks.combine(masks.causal(L, S), _padding(L, S, size, "right")),
    ),
    "causal, left padding": (
        "S − {} ≤ j ≤ i",
        lambda L, S, size: masks.combine(masks.causal(L, S), _padding(L, S, size, "left")),
    ),
    "causal, two documents": (
        "j ≤ i, cut at {}",
        lambda L, S, size: masks.combine(
            masks.causal(L, S), masks.document(*(1 * (np.arange(n) < size) for n in (L, S)))
        ),
    ),
}
# Narrow enough for a phone with eight keys.
CELL, LEFT, TOP = 28.0, 42.0, 86.0


def _padding(n_queries: int, n_keys: int, length: int, side: masks.Side) -> Array:
    mask = masks.padding([length], n_keys, side=side)[0, 0]
    return np.broadcast_to(mask, (n_queries, n_keys))


def _keys(row: Array) -> str:
    """Return the keys of one row in words. Every mask here leaves one run of keys."""
    seen = np.flatnonzero(row).tolist()
    if not seen:
        return "none"
    return f"{seen[0]}" if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"


def _words(
    kind: str, rule: str, size: int, mask: Array
) -> tuple[tuple[str, str, str], str, tuple[str, ...]]:
    """Return the title of a frame, its pairs and empty rows; its label; its row of the table."""
    sized = "{}" in rule
    title = f"{kind}: {rule.format(size)}{'' if sized else ', any size'}"
    pairs, share = f"{mask.sum()} of {mask.size}", f"{mask.mean():.0%}"
    empty = ", ".join(str(i) for i, row in enumerate(mask) if not row.any()) or "none"
    total, flagged = f"{pairs} pairs take part, {share}", f"empty rows: {empty}"
    seen = [_keys(row) for row in mask]
    each = ", ".join(f"query {i}: {keys}" for i, keys in enumerate(seen))
    told = f"{kind}: {rule.format(size)}; size {size}. {total}; {flagged}."
    row = (kind, str(size) if sized else "any", *seen, pairs, share, empty)
    return (title, total, flagged), f"{told}\nThe keys seen by {each}.", row


def _elements(mask: Array, picks: Sequence[int], title: str, total: str, empty: str) -> str:
    """Return the drawing of one mask."""
    n_queries, n_keys = mask.shape
    right, bottom = LEFT + n_keys * CELL + 8, TOP + n_queries * CELL
    body: list[str] = []
    for j in range(n_keys):
        x = LEFT + j * CELL
        rules = "".join(f"M{x:g} {TOP + i * CELL:g}h{CELL:g}" for i in range(n_queries + 1))
        sides = f"M{x:g} {TOP:g}v{n_queries * CELL:g}m{CELL:g} 0v-{n_queries * CELL:g}"
        column = [
            text(x + CELL / 2, TOP - 10, str(j)),
            tag("path", d=rules + sides, stroke="muted", fill="none"),
        ]
        for i in range(n_queries):
            y = TOP + i * CELL
            # What is there only where the pair takes part: a colour and a tick.
            tick = tag("path", d=f"M{x + 7:g} {y + 15:g}l4.5 5 9-12", stroke_width=2, fill="none",
                       stroke="ink")
            inner = rect(x, y, CELL, CELL, "weight", fill_opacity="0.3") + tick
            column.append(tag("g", inner, data_part=f"cell-{i}-{j}", opacity=int(mask[i, j])))
        body.append("".join(column))
    for i, count in enumerate(mask.sum(axis=1)):
        y = TOP + (i + 0.5) * CELL + 5
        body.append(text(LEFT - 8, y, str(i), text_anchor="end"))
        body.append(text(right, y, str(count or "empty"), data_part=f"count-{i}", **START))
    body += [
        text(4, 24, title, data_part="title", font_size=14, **START),
        axis_title(LEFT, TOP - 30, "key j answers", **START),
        axis_title(right, TOP - 10, "sees", **START),
        axis_title(14, (TOP + bottom) / 2, "query i asks", upright=True),
        text(4, bottom + 26, total, data_part="total", font_size=14, **START),
        text(4, bottom + 46, empty, data_part="empty", font_size=14, **START),
    ]
    body += [
        hit(LEFT + j * CELL, TOP, CELL, n_queries * CELL, f"size:{place}", drag=True,
            data_part=f"hit-{j}")
        for j, place in enumerate(picks)
    ]
    return "".join(body)


def mask_explorer(
    n_tokens: int = 5,
    sizes: Sequence[int] = (0, 1, 2, 3),
    *,
    start: tuple[str, int] = ("causal, left padding", 3),
) -> MovingDrawing:
    """Return a moving figure: which query may take from which key, by kind of mask and by size.

    One list picks the kind of mask, one slider the size: the reach of a window to the left, the
    length of a sequence without its padding, or that of the first document. Where the mask has a
    size, a click on a key sets it: the window of the last query begins there, the sequence or the
    first document ends there, or the sequence begins there. Every mask comes from `attnlib.masks`;
    `start` is the first frame's (kind, size).
    """
    # With as many keys as queries, the two causal masks are the same.
    kinds = {"causal" if "top" in kind else kind: one for kind, one in KINDS.items()
             if "bottom" not in kind}
    header = (
        "mask", "size", *(f"query {i} sees" for i in range(n_tokens)),
        "pairs", "share", "empty rows",
    )

    def draw(place: int, reach: int) -> Frame:
        kind, size = tuple(kinds)[place], sizes[reach]
        rule, make = kinds[kind]
        mask = make(n_tokens, n_tokens, size)
        words, told, row = _words(kind, rule, size, mask)
        # What a click on a key sets, where the mask has a size: the keys before it or from it on.
        first, way = {"window": (n_tokens - 1, -1), "causal, left padding": (n_tokens, -1)}.get(
            kind, (1, 1)
        )
        clicks = (first + way * j if "{}" in rule else size for j in range(n_tokens))
        picks = [sizes.index(one if one in sizes else size) for one in clicks]
        return Frame(_elements(mask, picks, *words), told, [row])

    return moving(
        draw,
        [
            Control("kind", "mask", tuple(kinds), tuple(kinds).index(start[0]), kind="choice"),
            Control("size", "size", tuple(map(str, sizes)), sizes.index(start[1]), pace=1),
        ],
        LEFT + n_tokens * CELL + 150,
        TOP + n_tokens * CELL + 56,
        columns=header,
    )
