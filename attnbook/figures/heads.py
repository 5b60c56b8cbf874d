"""Several heads: their weights side by side, the way through them, and what they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.diagrams import Box, Join, boxes_and_arrows
from attnbook.figures.drawing import Drawing, number, tag, text
from attnbook.figures.matrices import _heatmap

# A head is known by its number; colour and dash of its lines say it again.
LOOKS = (("blue", None), ("orange", "7 4"), ("green", "2 3"), ("muted", "9 3 2 3"))


def head_weights(weights: ArrayLike, tokens: Sequence[str]) -> Drawing:
    """Return a drawing of the weights of each head as one heatmap, the heads beside each other.

    Shapes: weights (h, T, T), one label for each of the T tokens.

    Raises: `ValueError` for weights of another shape.
    """
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 3 or table.shape[0] == 0 or table.shape[1:] != (len(tokens),) * 2:
        raise ValueError(f"weights must be (h, {len(tokens)}, {len(tokens)}); got {table.shape}")
    x, tall, body, words = 0.0, 0.0, [], []
    for index, one in enumerate(table):
        inner, width, height, alt = _heatmap(
            one, f"head {index}", tokens, tokens, limit=1.0, alone=index == 0
        )
        body.append(tag("g", inner, transform=f"translate({number(x)} 0)"))
        x, tall = x + width, max(tall, height)
        words.append(alt)
    return Drawing.from_elements("".join(body), x, tall, " ".join(words))


def _spread(middle: float, step: float, count: int) -> list[float]:
    """Places at equal steps, about the middle."""
    return [middle + (index - (count - 1) / 2) * step for index in range(count)]


def heads_diagram(n_tokens: int, d_model: int, n_heads: int, d_k: int, d_v: int) -> Drawing:
    """Return a drawing of the way from X through the heads to the output, with every shape on it.

    Raises: `ValueError` for fewer than one or more than four heads.
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

    Raises: `ValueError` for a number of key heads that does not divide the query heads.
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
            f"key {i}": Box(x, y + 70, 40, 32, (str(i),), "orange")
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
