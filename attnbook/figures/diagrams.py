"""A diagram of the whole: the steps of attention with their shapes."""

from __future__ import annotations

from attnbook.figures.drawing import Drawing, tag, text


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
                tag("path", d="M0 0 L8 4 L0 8 z", fill="muted"),
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
                stroke="muted",
                marker_end="url(#attention-steps-tip)",
            )
        )
        if words:
            # Words on the side away from the other arrows.
            middle = (y1 + y2) / 2 + 4
            x = min(x1, x2) - 12
            body.append(text(x, middle, words, text_anchor="end", fill="muted"))
    for name, (rows, columns, x, y) in boxes.items():
        body.append(
            tag(
                "rect",
                x=x - box_width / 2,
                y=y,
                width=box_width,
                height=box_height,
                rx=6,
                fill="paper",
                stroke="blue",
            )
        )
        body.append(text(x, y + 22, name, font_weight="600"))
        body.append(text(x, y + 41, f"{rows} × {columns}", fill="muted"))
    alt = (
        f"Flow from X ({n_tokens} by {d_model}) to the output ({n_tokens} by {d_v}): X gives Q, K "
        f"({n_tokens} by {d_k} each) and V ({n_tokens} by {d_v}); Q and K give the scores "
        f"({n_tokens} by {n_tokens}); scaling and softmax of each row give the weights; weights "
        "times V give the output."
    )
    return Drawing.from_elements("".join(body), 600, 456, alt)
