"""Who may attend to whom: the moving figure of chapter 07."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from attnbook.figures.drawing import Drawing, colour, tag, text
from attnbook.figures.moving import Control, MovingDrawing, one_line
from attnlib import masks

# Each kind of mask: its rule, with a gap where the size stands, and its maker from L, S and size.
KINDS: dict[str, tuple[str, Callable[[int, int, int], masks.Mask]]] = {
    "none": ("every j", lambda L, S, size: np.ones((L, S), dtype=np.bool_)),
    "causal, top-left": ("j ≤ i", lambda L, S, size: masks.causal(L, S)),
    "causal, bottom-right": (
        "j ≤ i + S − L",
        lambda L, S, size: masks.causal(L, S, align="bottom-right"),
    ),
    "window": ("i − {} ≤ j ≤ i", lambda L, S, size: masks.window(L, S, left=size, right=0)),
    "padding": ("j < {}", lambda L, S, size: _padding(L, S, size)),
    "causal and padding": (
        "j ≤ i and j < {}",
        lambda L, S, size: masks.combine(masks.causal(L, S), _padding(L, S, size)),
    ),
}
# Narrow enough for a phone with eight keys.
CELL, LEFT, TOP = 28.0, 42.0, 86.0


def _padding(n_queries: int, n_keys: int, length: int) -> masks.Mask:
    mask = masks.padding([length], n_keys)[0, 0]
    return np.broadcast_to(mask, (n_queries, n_keys))


def _keys(row: masks.Mask) -> str:
    """The keys of one row in words. Every mask here leaves one run of keys."""
    seen = np.flatnonzero(row).tolist()
    if not seen:
        return "none"
    return f"{seen[0]}" if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"


def _words(kind: str, size: int, mask: masks.Mask) -> tuple[str, str, str, str, tuple[str, ...]]:
    """The title of a frame, its pairs, its empty rows, its label and its row of the table."""
    rule = KINDS[kind][0]
    sized = "{}" in rule
    title = f"{kind}: {rule.format(size)}{'' if sized else ', any size'}"
    pairs, share = f"{mask.sum()} of {mask.size}", f"{mask.mean():.0%}"
    empty = ", ".join(str(i) for i, row in enumerate(mask) if not row.any()) or "none"
    total, flagged = f"{pairs} pairs take part, {share}", f"empty rows: {empty}"
    seen = [_keys(row) for row in mask]
    each = ", ".join(f"query {i}: {keys}" for i, keys in enumerate(seen))
    told = f"{title}; {mask.shape[1]} keys. {total}; {flagged}."
    label = f"{told}\nThe keys seen by {each}."
    row = (kind, str(mask.shape[1]), str(size) if sized else "any", *seen, pairs, share, empty)
    return title, total, flagged, label, row


def _cell(x: float, y: float, part: str, opacity: str) -> str:
    """A box, and in it what is there only where the pair takes part: a colour and a tick."""
    box: dict[str, Any] = {"x": x, "y": y, "width": CELL, "height": CELL}
    d, look = f"M{x + 7:g} {y + 15:g}l4.5 5 9-12", {"fill": "none", "stroke": colour("ink")}
    tick = tag("path", d=d, stroke_width=2, **look)
    inner = tag("rect", **box, fill=colour("blue"), fill_opacity="0.35") + tick
    outer = tag("rect", **box, fill="none", stroke=colour("muted"))
    return outer + tag("g", inner, data_part=part, opacity=opacity)


def mask_explorer(
    n_queries: int = 5,
    n_keys: Sequence[int] = (3, 5, 8),
    sizes: Sequence[int] = (0, 1, 2, 3),
    *,
    start: tuple[str, int, int] = ("window", 5, 2),
) -> MovingDrawing:
    """A moving figure: which query may take from which key, by kind of mask and by size.

    One list picks the kind of mask, one slider the number S of keys, the other the size: the reach
    of a window to the left, or the length of a sequence before its padding. Every mask comes from
    `attnlib.masks`; `start` is the first frame's (kind, S, size).

    Raises: `ValueError` when `start` is not among the options, or a length is more than the keys.
    """
    options = (tuple(KINDS), tuple(n_keys), tuple(sizes))
    if any(choice not in choices for choice, choices in zip(start, options, strict=True)):
        raise ValueError(f"expected start to be one of {options}, came {start}")
    choices = list(product(*options))
    first = choices.index(start)
    frames = [KINDS[kind][1](n_queries, keys, size) for kind, keys, size in choices]
    titles, totals, empty, labels, rows = zip(
        *(_words(kind, size, mask) for (kind, _, size), mask in zip(choices, frames, strict=True)),
        strict=True,
    )
    parts: dict[str, dict[str, Sequence[str]]] = {}
    body = []
    for j in range(max(n_keys)):
        column = [text(LEFT + (j + 0.5) * CELL, TOP - 10, str(j))]
        for i in range(n_queries):
            # One character a frame: 1 where the pair takes part.
            marks = "".join(str(int(mask[i, j : j + 1].any())) for mask in frames)
            parts[f"cell-{i}-{j}"] = {"opacity": marks}
            x, y = LEFT + j * CELL, TOP + i * CELL
            column.append(_cell(x, y, f"cell-{i}-{j}", marks[first]))
        there = "".join(str(int(j < mask.shape[1])) for mask in frames)
        parts[f"key-{j}"] = {"opacity": there}
        body.append(tag("g", "".join(column), data_part=f"key-{j}", opacity=there[first]))

    def changing(part: str, values: Sequence[str], x: float, y: float, size: int = 13) -> str:
        parts[part] = {"text": list(values)}
        return text(x, y, values[first], text_anchor="start", font_size=size, data_part=part)

    right, middle = LEFT + max(n_keys) * CELL + 8, TOP + n_queries * CELL / 2
    for i in range(n_queries):
        y = TOP + (i + 0.5) * CELL + 5
        body.append(text(LEFT - 8, y, str(i), text_anchor="end"))
        counts = [str(count) if (count := mask[i].sum()) else "empty" for mask in frames]
        body.append(changing(f"count-{i}", counts, right, y))
    below = TOP + n_queries * CELL + 26
    body += [
        changing("title", titles, 4, 24, 14),
        text(LEFT, TOP - 30, "key j answers", text_anchor="start", fill=colour("muted")),
        text(right, TOP - 10, "sees", text_anchor="start", fill=colour("muted")),
        text(
            14, middle, "query i asks", fill=colour("muted"), transform=f"rotate(-90 14 {middle:g})"
        ),
        changing("total", totals, 4, below, 14),
        changing("empty", empty, 4, below + 20, 14),
    ]
    picture = Drawing.from_elements("".join(body), right + 54, below + 30, one_line(labels[first]))
    header = (
        "mask", "S", "size", *(f"query {i} sees" for i in range(n_queries)),
        "pairs", "share", "empty rows",
    )  # fmt: skip
    return MovingDrawing(
        svg=picture.svg,
        alt=picture.alt,
        controls=(
            Control("kind", "mask", options[0], options[0].index(start[0]), kind="choice"),
            Control("n_keys", "keys S", tuple(map(str, n_keys)), options[1].index(start[1])),
            Control("size", "size", tuple(map(str, sizes)), options[2].index(start[2])),
        ),
        parts=parts,
        labels=labels,
        table=(header, *dict.fromkeys(rows)),
    )
