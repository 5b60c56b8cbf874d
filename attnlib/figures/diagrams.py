"""Two diagrams of the whole: the steps of attention with their shapes, and the ladder of forms."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from attnlib.figures.drawing import Drawing, colour, tag, text


class Rung(NamedTuple):
    """One implementation: its module, what it adds to the one below, and its chapter."""

    module: str
    adds: str
    chapter: str


# From the definition upwards: each rung is held against it.
LADDER = (
    Rung("numpy_tokenwise", "the definition: one query, one key at a time", "01 to 05"),
    Rung("numpy_dense", "the same as matrices", "01 to 07"),
    Rung("torch_dense", "tensors, autograd, a GPU", "10"),
    Rung("numpy_blockwise", "one block of keys at a time, merged", "12"),
    Rung("torch_blockwise", "forward and backward in linear memory", "13"),
    Rung("triton_fused", "the same loop as one GPU kernel", "14"),
    Rung("torch_decoding", "one new token at a time", "15"),
    Rung("torch_ring", "the sequence split over devices", "16"),
)


def ladder() -> Drawing:
    """A drawing of the implementations from the definition at the foot to the ring at the top.

    A rung with a solid frame is in the installed package; a dashed one is still to come.
    """
    width, height, gap = 620.0, 46.0, 10.0
    body: list[str] = []
    words: list[str] = []
    for index, rung in enumerate(LADDER):
        there = find_spec(f"attnlib.{rung.module}") is not None
        y = 10.0 + (len(LADDER) - 1 - index) * (height + gap)
        body.append(
            tag(
                "rect",
                x=46,
                y=y,
                width=width - 56,
                height=height,
                rx=6,
                fill=colour("blue"),
                fill_opacity=0.14 if there else 0.0,
                stroke=colour("blue" if there else "muted"),
                stroke_dasharray=None if there else "6 4",
            )
        )
        middle = y + height / 2
        body.append(text(24, middle + 6, str(index + 1), font_size=18, fill=colour("muted")))
        body.append(text(60, middle - 3, rung.module, text_anchor="start", font_weight="600"))
        body.append(text(60, middle + 15, rung.adds, text_anchor="start", fill=colour("muted")))
        state = f"chapter {rung.chapter}" if there else f"to come, chapter {rung.chapter}"
        body.append(text(width - 24, middle + 5, state, text_anchor="end", fill=colour("muted")))
        words.append(f"{index + 1} {rung.module}, {rung.adds} ({state})")
    alt = (
        "The ladder of implementations, each checked against the definition at its foot: "
        + "; ".join(words)
    )
    tall = 20.0 + len(LADDER) * (height + gap) - gap
    return Drawing.from_elements("".join(body), width, tall, alt + ".")


def attention_steps(n_tokens: int, d_model: int, d_k: int, d_v: int) -> Drawing:
    """A drawing of the way from X to the output, with the shape of every matrix on it.

    >>> attention_steps(3, 4, 2, 3).alt.split(":")[0]
    'Flow from X (3 by 4) to the output (3 by 3)'
    """
    box_width, box_height = 118.0, 52.0
    # name, shape, centre x, top y
    boxes = {
        "X": (n_tokens, d_model, 310.0, 10.0),
        "Q = X W_Q": (n_tokens, d_k, 110.0, 106.0),
        "K = X W_K": (n_tokens, d_k, 310.0, 106.0),
        "V = X W_V": (n_tokens, d_v, 510.0, 106.0),
        "scores QKᵀ": (n_tokens, n_tokens, 210.0, 202.0),
        "weights": (n_tokens, n_tokens, 210.0, 298.0),
        "output": (n_tokens, d_v, 360.0, 394.0),
    }
    # from, to, and what happens on the way
    arrows = (
        ("X", "Q = X W_Q", ""),
        ("X", "K = X W_K", ""),
        ("X", "V = X W_V", ""),
        ("Q = X W_Q", "scores QKᵀ", ""),
        ("K = X W_K", "scores QKᵀ", ""),
        ("scores QKᵀ", "weights", "÷ √dₖ, softmax of each row"),
        ("weights", "output", "times V"),
        ("V = X W_V", "output", ""),
    )
    body = [
        tag(
            "defs",
            tag(
                "marker",
                tag("path", d="M0 0 L8 4 L0 8 z", fill=colour("muted")),
                id="attention-steps-tip",
                markerWidth=8,
                markerHeight=8,
                refX=8,
                refY=4,
                orient="auto",
            ),
        )
    ]
    for source, target, words in arrows:
        x1, y1 = boxes[source][2], boxes[source][3] + box_height
        x2, y2 = boxes[target][2], boxes[target][3]
        body.append(
            tag(
                "line",
                x1=x1,
                y1=y1,
                x2=x2,
                y2=y2 - 2,
                stroke=colour("muted"),
                marker_end="url(#attention-steps-tip)",
            )
        )
        if words:
            # Words on the side away from the other arrows.
            middle = (y1 + y2) / 2 + 4
            x = min(x1, x2) - 12
            body.append(text(x, middle, words, text_anchor="end", fill=colour("muted")))
    for name, (rows, columns, x, y) in boxes.items():
        body.append(
            tag(
                "rect",
                x=x - box_width / 2,
                y=y,
                width=box_width,
                height=box_height,
                rx=6,
                fill=colour("paper"),
                stroke=colour("blue"),
            )
        )
        body.append(text(x, y + 22, name, font_weight="600"))
        body.append(text(x, y + 41, f"{rows} × {columns}", fill=colour("muted")))
    alt = (
        f"Flow from X ({n_tokens} by {d_model}) to the output ({n_tokens} by {d_v}): X gives Q, K "
        f"({n_tokens} by {d_k} each) and V ({n_tokens} by {d_v}); Q and K give the scores "
        f"({n_tokens} by {n_tokens}); scaling and softmax of each row give the weights; weights "
        "times V give the output."
    )
    return Drawing.from_elements("".join(body), 600, 456, alt)
