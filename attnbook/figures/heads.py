"""Several heads: their weights side by side, the way through them, and what they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Drawing, colour, line, number, tag, text
from attnbook.figures.matrices import _heatmap

# A head is known by its number; colour and dash of its lines say it again.
LOOKS = (("blue", None), ("orange", "7 4"), ("green", "2 3"), ("muted", "9 3 2 3"))


def head_weights(weights: ArrayLike, tokens: Sequence[str]) -> Drawing:
    """A drawing of the weights of each head as one heatmap, the heads beside each other.

    Shapes: weights (h, T, T), one label for each of the T tokens.

    Raises: `ValueError` for weights of another shape.
    """
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 3 or table.shape[0] == 0 or table.shape[1:] != (len(tokens),) * 2:
        raise ValueError(f"weights must be (h, {len(tokens)}, {len(tokens)}); got {table.shape}")
    x, tall, body, words = 0.0, 0.0, [], []
    for index, one in enumerate(table):
        inner, width, height, alt = _heatmap(one, f"head {index}", tokens, tokens, limit=1.0)
        body.append(tag("g", inner, transform=f"translate({number(x)} 0)"))
        x, tall = x + width + 20, max(tall, height)
        words.append(alt)
    return Drawing.from_elements("".join(body), x - 20, tall, " ".join(words))


def _box(x: float, y: float, width: float, height: float, name: str = "blue") -> str:
    """A rounded box with its centre line at x and its top at y."""
    fill, stroke = colour("paper"), colour(name)
    left = x - width / 2
    return tag("rect", x=left, y=y, width=width, height=height, rx=6, fill=fill, stroke=stroke)


def _line(x1: float, y1: float, x2: float, y2: float, head: int | None = None) -> str:
    return line(x1, y1, x2, y2, *(("muted", None) if head is None else LOOKS[head]))


def heads_diagram(n_tokens: int, d_model: int, n_heads: int, d_k: int, d_v: int) -> Drawing:
    """A drawing of the way from X through the heads to the output, with every shape on it.

    Raises: `ValueError` for fewer than one or more than four heads.
    """
    if not 1 <= n_heads <= len(LOOKS):
        raise ValueError(f"n_heads must be one to {len(LOOKS)}; got {n_heads}")
    left, wide, top = 330.0, 150.0, {"X": 10.0, "wide": 104.0, "head": 214.0, "join": 372.0}
    heads = [left + (index - (n_heads - 1) / 2) * 470 / max(n_heads, 3) for index in range(n_heads)]
    lines, boxes = [], [_box(left, top["X"], 118, 50)]
    boxes += [text(left, top["X"] + 21, "X", font_weight="600")]
    boxes += [text(left, top["X"] + 40, f"{n_tokens} × {d_model}", fill="muted")]

    def segmented(x: float, y: float, width: float) -> list[float]:
        """A matrix cut into one segment for each head; gives where the segments' centres lie."""
        step = width / n_heads
        places = [x + (index - (n_heads - 1) / 2) * step for index in range(n_heads)]
        for index, place in enumerate(places):
            boxes.append(_box(place, y, step, 26, LOOKS[index][0]))
            boxes.append(text(place, y + 18, str(index)))
        return places

    for index, name in enumerate(("X W_Q", "X W_K", "X W_V")):
        x = left + (index - 1) * (wide + 18)
        columns = n_heads * (d_v if name == "X W_V" else d_k)
        lines.append(_line(left, top["X"] + 50, x, top["wide"] - 24))
        boxes.append(text(x, top["wide"] - 8, f"{name}: {n_tokens} × {columns}"))
        for head, place in enumerate(segmented(x, top["wide"], wide)):
            lines.append(_line(place, top["wide"] + 26, heads[head], top["head"], head))
    joined = segmented(left, top["join"], 260)
    shape = f"{n_tokens} × {n_heads * d_v}"
    boxes.append(text(left + 138, top["join"] + 18, shape, text_anchor="start"))
    rows = (
        f"Q, K: {n_tokens} × {d_k}",
        f"V: {n_tokens} × {d_v}",
        f"weights: {n_tokens} × {n_tokens}",
        f"output: {n_tokens} × {d_v}",
    )
    for head, x in enumerate(heads):
        boxes.append(_box(x, top["head"], 112, 106, LOOKS[head][0]))
        boxes.append(text(x, top["head"] + 21, f"head {head}", font_weight="600"))
        for row, words in enumerate(rows):
            boxes.append(text(x, top["head"] + 41 + 19 * row, words, fill="muted"))
        lines.append(_line(x, top["head"] + 106, joined[head], top["join"], head))
    end = top["join"] + 26
    lines.append(_line(left, end, left, end + 40))
    boxes += [_box(left, end + 40, 118, 50), text(left, end + 61, "output Y", font_weight="600")]
    boxes += [text(left, end + 80, f"{n_tokens} × {d_model}", fill="muted")]
    steps = (
        ("project", top["wide"] - 25),
        ("split", top["wide"] + 74),
        ("attend", top["head"] + 58),
        ("concatenate", top["join"] - 24),
        (f"W_O: {n_heads * d_v} × {d_model}", end + 26),
    )
    for words, y in steps:
        boxes.append(text(4, y, words, text_anchor="start", font_style="italic"))
    alt = (
        f"From X ({n_tokens} by {d_model}) through {n_heads} heads to the output ({n_tokens} by "
        f"{d_model}). X W_Q and X W_K ({n_tokens} by {n_heads * d_k}) and X W_V ({n_tokens} by "
        f"{n_heads * d_v}) are cut into {n_heads} parts. Each head has queries and keys "
        f"({n_tokens} by {d_k}), values ({n_tokens} by {d_v}), weights ({n_tokens} by {n_tokens}) "
        f"and an output ({n_tokens} by {d_v}) of its own. The outputs side by side ({n_tokens} by "
        f"{n_heads * d_v}) times W_O ({n_heads * d_v} by {d_model}) are the output."
    )
    return Drawing.from_elements("".join(lines + boxes), 600, end + 100, alt)


def shared_heads(n_heads: int, n_kv_heads: Sequence[int]) -> Drawing:
    """A drawing of which key and value head each query head uses, one row for each h_kv.

    >>> shared_heads(4, [2]).alt
    'Query heads and the key head that each uses. h_kv = 2: 0, 1 use 0; 2, 3 use 1.'

    Raises: `ValueError` for a number of key heads that does not divide the query heads.
    """
    step, left, tall, body, words = 66.0, 120.0, 138.0, [], []
    for row, n_shared in enumerate(n_kv_heads):
        if n_shared < 1 or n_heads % n_shared:
            raise ValueError(f"h_kv must be a divisor of {n_heads} query heads; got {n_shared}")
        group, y = n_heads // n_shared, 12.0 + row * tall
        body.append(text(8, y + 21, "query heads", text_anchor="start"))
        body.append(text(8, y + 91, "keys, values", text_anchor="start"))
        body.append(text(8, y + 56, f"h_kv = {n_shared}", text_anchor="start", font_weight="600"))
        places = [left + (index + 0.5) * step for index in range(n_heads)]
        # Each key head stands below the middle of its group.
        centres = [left + (index + 0.5) * group * step for index in range(n_shared)]
        for index, x in enumerate(places):
            body.append(_line(x, y + 32, centres[index // group], y + 70))
        for index, x in enumerate(places):
            body += [_box(x, y, 46, 32), text(x, y + 21, str(index))]
        for index, x in enumerate(centres):
            body += [_box(x, y + 70, 46, 32, "orange"), text(x, y + 91, str(index))]
        groups = [range(index * group, (index + 1) * group) for index in range(n_shared)]
        uses = [
            f"{', '.join(map(str, heads))} use{'s' if group == 1 else ''} {index}"
            for index, heads in enumerate(groups)
        ]
        words.append(f"h_kv = {n_shared}: {'; '.join(uses)}.")
    alt = "Query heads and the key head that each uses. " + " ".join(words)
    height = 12 + len(words) * tall - 24
    return Drawing.from_elements("".join(body), left + n_heads * step, height, alt)
