"""Where a token looks, in each head of each layer of a trained model: the figure of chapter 19."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, axis_title, rect, tag, text
from attnbook.figures.moving import Control, MovingDrawing

ROW, TOP, LETTER = 24.0, 58.0, 8.4  # a token's height, and room above; a letter's width
GAP, NUMBERS = 110.0, 46.0  # between the two columns, and for the percent at the right
# A smaller weight has neither a line nor a number: with them the frames would be too many bytes.
LEAST = 0.05


def _looks(weights: Array, tokens: Sequence[str]) -> list[str]:
    """Return the two tokens that a token most looks at, with percent."""
    order = np.argsort(-weights, kind="stable")[:2]
    return [f"{tokens[key]} {weights[key]:.0%}" for key in order if weights[key] >= LEAST]


def _frame(weights: Array, query: int, tokens: Sequence[str], title: str) -> str:
    """Return the drawing of one token's weights in one head: lines from left to right."""
    room = 10 + LETTER * max(map(len, tokens))
    left, right = room, room + GAP
    width = right + room + NUMBERS
    middle = TOP + (query + 0.5) * ROW
    body = [
        text(4, 20, title, text_anchor="start", font_style="italic", data_part="title"),
        axis_title(left - 6, TOP - 10, "query", text_anchor="end"),
        axis_title(right + 6, TOP - 10, "key", text_anchor="start"),
        axis_title(width - 4, TOP - 10, "percent", text_anchor="end"),
        rect(2, middle - ROW / 2, left - 2, ROW, stroke="key", stroke_width=2, data_part="mark"),
    ]
    for key, token in enumerate(tokens):
        y, weight = TOP + (key + 0.5) * ROW, float(weights[key])
        # One character, so that a thousand frames stay small: thickness, and 0 for none.
        thick = f"{max(round(8 * weight), 1) if weight >= LEAST else 0}"
        share = f"{100 * weight:.0f}" if weight >= LEAST else " "
        body += [
            tag("line", x1=left, y1=middle, x2=right, y2=y, stroke="query", stroke_width=thick,
                stroke_opacity="0.75", data_part=f"l{key}"),
            text(left - 6, y + 4.5, token, text_anchor="end"),
            text(right + 6, y + 4.5, token, text_anchor="start"),
            text(width - 4, y + 4.5, share, text_anchor="end", data_part=f"w{key}"),
        ]  # fmt: skip
    return "".join(body)


def head_explorer(
    tokens: Sequence[str], weights: ArrayLike, *, start: tuple[int, int, int] = (0, 0, 0)
) -> MovingDrawing:
    """Return a moving figure: sliders pick a token, a layer and a head; lines say where it looks.

    A line is as thick as its weight, and the number at the key says the weight in percent. Weights
    below 5 percent are not shown. `start` is the first frame's (token, layer, head), from 0 on.

    Shapes:
        weights (layers, heads, T, T), T tokens.

    Raises:
        ValueError: for weights of another shape, tokens too long for a phone, and a start that is
            not there.

    >>> head_explorer(["a", "it"], [[[[0, 1], [0.75, 0.25]]]], start=(1, 0, 0)).alt
    'it, layer 0, head 0: a 75%, it 25%.'
    """
    table, n_tokens = np.asarray(weights, dtype=np.float64), len(tokens)
    if table.ndim != 4 or table.size == 0 or table.shape[2:] != (n_tokens, n_tokens):
        raise ValueError(
            f"weights must be (layers, heads, {n_tokens}, {n_tokens}); got {table.shape}"
        )
    n_layers, n_heads = table.shape[:2]
    sizes = (n_tokens, n_layers, n_heads)
    if any(not 0 <= place < size for place, size in zip(start, sizes, strict=True)):
        raise ValueError(f"start must be (token, layer, head) below {sizes}; got {start}")
    width = 2 * (10 + LETTER * max(map(len, tokens))) + GAP + NUMBERS
    if width > WIDEST:
        raise ValueError(f"tokens must have at most 16 letters; got {max(tokens, key=len)!r}")
    frames, labels = [], []
    for query, layer, head in product(*map(range, sizes)):
        row = table[layer, head, query]
        title = f"layer {layer}, head {head}"
        frames.append(_frame(row, query, tokens, title))
        labels.append(f"{tokens[query]}, {title}: {', '.join(_looks(row, tokens)) or 'nothing'}.")
    rows = [
        [f"{layer}.{head}", *(", ".join(_looks(row, tokens)[:1]) for row in table[layer, head])]
        for layer, head in product(range(n_layers), range(n_heads))
    ]
    names = tuple(f"{index}: {token}" for index, token in enumerate(tokens))
    return MovingDrawing.from_frames(
        frames,
        width,
        TOP + n_tokens * ROW + 8,
        controls=(
            Control("token", "token", names, start[0]),
            Control("layer", "layer", tuple(map(str, range(n_layers))), start[1]),
            Control("head", "head", tuple(map(str, range(n_heads))), start[2]),
        ),
        labels=labels,
        table=[["layer.head, most at", *names], *rows],
        about="where each token looks in each head",
    )
