"""Diagrams of boxes joined by arrows, and the diagram of the whole: attention with its shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attnbook.figures.drawing import Drawing, arrow, line, rect, text


class Box(NamedTuple):
    """A box by its centre line and its top. Of several lines of words the first is its name."""

    x: float
    top: float
    width: float
    height: float
    words: tuple[str, ...] = ()
    stroke: str | None = "query"  # None for words without a frame


class Join(NamedTuple):
    """What leads from the foot of one box to the top of another: an arrow, or a line."""

    source: str
    target: str
    name: str = "muted"
    dash: str | None = None
    tip: bool = False


def boxes_and_arrows(boxes: Mapping[str, Box], joins: Iterable[Join]) -> str:
    """Return the elements of these boxes, by name, and of what joins them."""
    body: list[str] = []
    for join in joins:
        (x1, top, _, height, *_), (x2, y2, *_) = boxes[join.source], boxes[join.target]
        if join.tip:
            body.append(arrow(x1, top + height, x2, y2 - 2, join.name))
        else:
            body.append(line(x1, top + height, x2, y2, join.name, join.dash))
    for x, top, width, height, words, stroke in boxes.values():
        if stroke:
            body.append(rect(x - width / 2, top, width, height, "paper", rx=6, stroke=stroke))
        first = top + height / 2 - 9 * (len(words) - 1) + 5
        for row, shown in enumerate(words):
            name = {"font_weight": "600"} if len(words) > 1 else {}
            body.append(text(x, first + 19 * row, shown, **({"fill": "muted"} if row else name)))
    return "".join(body)


def attention_steps(n_tokens: int, d_model: int, d_k: int, d_v: int) -> Drawing:
    """Return a drawing of the way from X to the output, with the shape of every matrix on it.

    >>> attention_steps(3, 4, 2, 3).alt.split(":")[0]
    'Flow from X (3 by 4) to the output (3 by 3)'
    """
    # centre, top and number of columns of each matrix
    places = {
        "X": (210.0, 10.0, d_model),
        "Q = X W_Q": (70.0, 106.0, d_k),
        "K = X W_K": (210.0, 106.0, d_k),
        "V = X W_V": (350.0, 106.0, d_v),
        "scores QKᵀ": (140.0, 202.0, n_tokens),
        "weights": (140.0, 298.0, n_tokens),
        "output": (245.0, 394.0, d_v),
    }
    joins = (
        ("X", "Q = X W_Q"),
        ("X", "K = X W_K"),
        ("X", "V = X W_V"),
        ("Q = X W_Q", "scores QKᵀ"),
        ("K = X W_K", "scores QKᵀ"),
        ("scores QKᵀ", "weights"),
        ("weights", "output"),
        ("V = X W_V", "output"),
    )
    boxes = {
        name: Box(x, top, 118, 52, (name, f"{n_tokens} × {columns}"))
        for name, (x, top, columns) in places.items()
    }
    body = boxes_and_arrows(boxes, [Join(*ends, tip=True) for ends in joins])
    # What happens on the way, on the side away from the other arrows.
    for words, y in (("÷ √dₖ, softmax", 273), ("of each row", 290), ("times V", 376)):
        body += text(128, y, words, text_anchor="end", fill="muted")
    alt = (
        f"Flow from X ({n_tokens} by {d_model}) to the output ({n_tokens} by {d_v}): X gives Q, K "
        f"({n_tokens} by {d_k} each) and V ({n_tokens} by {d_v}); Q and K give the scores "
        f"({n_tokens} by {n_tokens}); scaling and softmax of each row give the weights; weights "
        "times V give the output."
    )
    return Drawing.from_elements(body, 420, 456, alt)
