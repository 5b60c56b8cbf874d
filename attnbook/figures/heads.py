"""Several heads: their weights, what each brings, the way through them, and what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.diagrams import Box, Join, boxes_and_arrows
from attnbook.figures.drawing import Array, Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.grid import heatmap_elements
from attnbook.figures.moving import Control, MovingDrawing

# A head is known by its number; colour and dash of its lines say it again.
LOOKS = (("query", None), ("key", "7 4"), ("value", "2 3"), ("muted", "9 3 2 3"))


def head_weights(weights: ArrayLike, tokens: Sequence[str]) -> Drawing:
    """Return a drawing of the weights of each head as one heatmap, the heads beside each other.

    Shapes:
        weights (h, T, T), one label for each of the T tokens.

    Raises:
        ValueError: for weights of another shape.
    """
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 3 or table.shape[0] == 0 or table.shape[1:] != (len(tokens),) * 2:
        raise ValueError(f"weights must be (h, {len(tokens)}, {len(tokens)}); got {table.shape}")
    x, tall, body, words = 0.0, 0.0, [], []
    for index, one in enumerate(table):
        inner, width, height, alt = heatmap_elements(
            one, f"head {index}", tokens, tokens, limit=1.0, alone=index == 0
        )
        body.append(tag("g", inner, transform=f"translate({number(x)} 0)"))
        x, tall = x + width, max(tall, height)
        words.append(alt)
    return Drawing.from_elements("".join(body), x, tall, " ".join(words))


# `which_head`: where the weights and the features begin, the room for a feature and for a row.
WEIGHTS, FEATURES, CELL, ROW = 92.0, 196.0, 30.0, 32.0
SQUARE = 24.0  # the side of the square for 1 or −1


def _square(x: float, y: float, value: float, part: str) -> str:
    """Return a square about (x, y) with the area of |value|, filled above zero, else outlined."""
    side = SQUARE * abs(value) ** 0.5
    name = "query" if value > 0 else "key"
    fill = "query" if value > 0 else "none"
    return rect(x - side / 2, y - side / 2, side, side, fill, stroke=name, stroke_width=1.6,
                data_part=part)  # fmt: skip


def _which_head_frame(
    sentence: str, way: str, tokens: Sequence[str], values: Array, weights: Array, found: Array,
    chosen: int | None,
) -> str:  # fmt: skip
    """Return the drawing of one way to take: its weights, and what all heads together give."""
    places = [FEATURES + (index + 0.5) * CELL for index in range(values.shape[1])]
    right = FEATURES + CELL * len(places)
    body = [
        text(4, 22, f"{sentence}, {way}", text_anchor="start", font_weight="600", font_size=15,
             data_part="title"),
        axis_title(WEIGHTS, 50, "weight", text_anchor="start"),
        axis_title((FEATURES + right) / 2, 50, "value: filled 1, outlined −1"),
    ]  # fmt: skip
    for row, (token, value, weight) in enumerate(zip(tokens, values, weights, strict=True)):
        y = 76 + row * ROW
        body += [
            text(4, y + 4.5, token, text_anchor="start"),
            rect(WEIGHTS, y - 8, 56 * weight, 16, "query", data_part=f"bar-{row}"),
            text(FEATURES - 8, y + 4.5, f"{weight:.2f}", text_anchor="end",
                 data_part=f"weight-{row}"),
        ]  # fmt: skip
        body += [
            _square(x, y, entry, f"value-{row}-{index}")
            for index, (x, entry) in enumerate(zip(places, value, strict=True))
        ]
    top = 76 + len(tokens) * ROW
    body += [
        line(4, top - 10, right, top - 10, "grid"),
        axis_title(
            4, top + 12, f"output of “{tokens[0]}”, all heads together", text_anchor="start"
        ),
    ]
    for head, row_found in enumerate(found):
        y = top + 38 + head * ROW
        first = head * len(places)
        body.append(
            text(4, y + 4.5, f"places {first} to {first + len(places) - 1}", text_anchor="start")
        )
        framed = "1" if chosen in (None, head) else "0"
        body.append(
            rect(FEATURES - 2, y - ROW / 2 + 1, right - FEATURES + 4, ROW - 2, stroke="muted",
                 stroke_width=1.4, opacity=framed, data_part=f"frame-{head}")
        )  # fmt: skip
        body += [
            _square(x, y, entry, f"found-{head}-{index}")
            for index, (x, entry) in enumerate(zip(places, row_found, strict=True))
        ]
    return "".join(body)


def which_head(
    sentences: Mapping[str, ArrayLike], weights: ArrayLike, tokens: Sequence[str]
) -> MovingDrawing:
    """Return a moving figure: one head's weights at a time, and what all heads together give.

    The query is the first token. Head n writes what it takes from the values into its own places of
    the output, which are framed. The last step of the slider gives every head the mean of all
    weights instead. Numbers are drawn to two decimals.

    Shapes:
        each sentence (T, m) of values from −1 to 1, weights (h, T), T labels of the tokens.

    Raises:
        ValueError: for other shapes or values, or no sentence.

    >>> rows = {"a": [[0.0], [1.0], [-1.0]]}
    >>> which_head(rows, [[0, 1, 0], [0, 0, 1]], ["it", "one", "two"]).alt
    'a, head 0: weights it 0.00, one 1.00, two 0.00. Places 0 to 0: 1; places 1 to 1: −1.'
    """
    heads = np.asarray(weights, dtype=np.float64)
    tables = {name: np.asarray(rows, dtype=np.float64) for name, rows in sentences.items()}
    if not tables:
        raise ValueError("sentences must hold at least one sentence; got none")
    if heads.ndim != 2 or heads.shape[0] == 0 or heads.shape[1] != len(tokens):
        raise ValueError(f"weights must be (h, {len(tokens)}); got {heads.shape}")
    features = next(iter(tables.values())).shape[-1:]
    for name, rows in tables.items():
        if rows.shape != (len(tokens), *features) or not np.all(np.abs(rows) <= 1.0):
            raise ValueError(
                f"sentences must be ({len(tokens)}, m) with entries from −1 to 1; "
                f"got {rows.shape} for {name!r}"
            )
    ways = [*(f"head {n}" for n in range(len(heads))), "their mean"]
    frames, labels, table = [], [], []
    for name, rows in tables.items():
        for n, way in enumerate(ways):
            chosen = n if n < len(heads) else None
            row = heads.mean(axis=0) if chosen is None else heads[n]
            taken = np.broadcast_to(row, heads.shape) if chosen is None else heads
            found = np.round(taken @ rows, 2) + 0.0
            frames.append(_which_head_frame(name, way, tokens, rows, row, found, chosen))
            told = ", ".join(f"{t} {a:.2f}" for t, a in zip(tokens, row, strict=True))
            numbers = [", ".join(f"{v:g}".replace("-", "−") for v in head) for head in found]
            spans = [
                f"{i * rows.shape[1]} to {(i + 1) * rows.shape[1] - 1}" for i in range(len(heads))
            ]
            parts = "; places ".join(f"{s}: {v}" for s, v in zip(spans, numbers, strict=True))
            labels.append(f"{name}, {way}: weights {told}.\nPlaces {parts}.")
            table.append((f"{name}, {way}", told, *numbers))
    header = "sentence and head", "weights", *(f"places {span}" for span in spans)
    return MovingDrawing.from_frames(
        frames,
        FEATURES + CELL * features[0] + 8,
        76 + len(tokens) * ROW + 38 + (len(heads) - 0.5) * ROW + 6,
        controls=(
            Control("sentence", "sentence", tuple(tables), kind="choice"),
            Control("head", "weights of", tuple(ways)),
        ),
        labels=labels,
        about="which head takes what",
        table=(header, *table),
    )


def _spread(middle: float, step: float, count: int) -> list[float]:
    """Places at equal steps, about the middle."""
    return [middle + (index - (count - 1) / 2) * step for index in range(count)]


def heads_diagram(n_tokens: int, d_model: int, n_heads: int, d_k: int, d_v: int) -> Drawing:
    """Return a drawing of the way from X through the heads to the output, with every shape on it.

    Raises:
        ValueError: for fewer than one or more than four heads.
    """
    if not 1 <= n_heads <= len(LOOKS):
        raise ValueError(f"n_heads must be one to {len(LOOKS)}; got {n_heads}")
    left, wide = 92.0 + 58.0 * max(n_heads, 3), 106.0
    shape = f"{n_tokens} × {d_model}"
    boxes, joins = {"X": Box(left, 10, 118, 50, ("X", shape))}, []

    def segmented(name: str, x: float, top: float, width: float) -> None:
        """Cut a matrix into one segment for each head."""
        step = width / n_heads
        for head, place in enumerate(_spread(x, step, n_heads)):
            boxes[f"{name} {head}"] = Box(place, top, step, 26, (str(head),), LOOKS[head][0])

    for name, x in zip(("X W_Q", "X W_K", "X W_V"), _spread(left, wide + 10, 3), strict=True):
        columns = n_heads * (d_v if name == "X W_V" else d_k)
        boxes[name] = Box(x, 80, wide, 22, (f"{name}: {n_tokens} × {columns}",), None)
        segmented(name, x, 104, wide)
        joins.append(Join("X", name))
        joins += [Join(f"{name} {h}", f"head {h}", *LOOKS[h]) for h in range(n_heads)]
    rows = (
        f"Q, K: {n_tokens} × {d_k}",
        f"V: {n_tokens} × {d_v}",
        f"weights: {n_tokens} × {n_tokens}",
        f"output: {n_tokens} × {d_v}",
    )
    for head, x in enumerate(_spread(left, 116, n_heads)):
        name = f"head {head}"
        boxes[name] = Box(x, 214, 108, 106, (name, *rows), LOOKS[head][0])
        joins.append(Join(name, f"joined {head}", *LOOKS[head]))
    segmented("joined", left, 372, 200)
    boxes["joined"] = Box(left, 372, 200, 26, (), None)
    boxes["output"] = Box(left, 438, 118, 50, ("output Y", shape))
    body = boxes_and_arrows(boxes, [*joins, Join("joined", "output")])
    body += text(left + 106, 390, f"{n_tokens} × {n_heads * d_v}", text_anchor="start")
    steps = {
        "project": 79,
        "split": 178,
        "attend": 272,
        "concatenate": 348,
        f"W_O: {n_heads * d_v} × {d_model}": 424,
    }
    for words, y in steps.items():
        body += text(4, y, words, text_anchor="start", font_style="italic")
    alt = (
        f"From X ({n_tokens} by {d_model}) through {n_heads} heads to the output ({n_tokens} by "
        f"{d_model}). X W_Q and X W_K ({n_tokens} by {n_heads * d_k}) and X W_V ({n_tokens} by "
        f"{n_heads * d_v}) are cut into {n_heads} parts. Each head has queries and keys "
        f"({n_tokens} by {d_k}), values ({n_tokens} by {d_v}), weights ({n_tokens} by {n_tokens}) "
        f"and an output ({n_tokens} by {d_v}) of its own. The outputs side by side ({n_tokens} by "
        f"{n_heads * d_v}) times W_O ({n_heads * d_v} by {d_model}) are the output."
    )
    return Drawing.from_elements(body, 2 * left - 92 + 4, 498, alt)


def shared_heads(n_heads: int, n_kv_heads: Sequence[int]) -> Drawing:
    """Return a drawing of which key and value head each query head uses, one row for each h_kv.

    >>> shared_heads(4, [2]).alt
    'Query heads and the key head that each uses. h_kv = 2: 0, 1 use 0; 2, 3 use 1.'

    Raises:
        ValueError: for a number of key heads that does not divide the query heads.
    """
    step, left, tall, body, words = 52.0, 102.0, 138.0, "", []
    for row, n_shared in enumerate(n_kv_heads):
        if n_shared < 1 or n_heads % n_shared:
            raise ValueError(f"h_kv must be a divisor of {n_heads} query heads; got {n_shared}")
        group, y = n_heads // n_shared, 12.0 + row * tall
        body += text(8, y + 21, "query heads", text_anchor="start")
        body += text(8, y + 91, "keys, values", text_anchor="start")
        body += text(8, y + 56, f"h_kv = {n_shared}", text_anchor="start", font_weight="600")
        middle = left + n_heads * step / 2
        boxes = {
            f"query {i}": Box(x, y, 40, 32, (str(i),))
            for i, x in enumerate(_spread(middle, step, n_heads))
        }
        # Each key head stands below the middle of its group.
        boxes |= {
            f"key {i}": Box(x, y + 70, 40, 32, (str(i),), "key")
            for i, x in enumerate(_spread(middle, group * step, n_shared))
        }
        joins = [Join(f"query {i}", f"key {i // group}") for i in range(n_heads)]
        body += boxes_and_arrows(boxes, joins)
        groups = [range(index * group, (index + 1) * group) for index in range(n_shared)]
        uses = [
            f"{', '.join(map(str, heads))} use{'s' if group == 1 else ''} {index}"
            for index, heads in enumerate(groups)
        ]
        words.append(f"h_kv = {n_shared}: {'; '.join(uses)}.")
    alt = "Query heads and the key head that each uses. " + " ".join(words)
    height = 12 + len(words) * tall - 24
    return Drawing.from_elements(body, left + n_heads * step, height, alt)
