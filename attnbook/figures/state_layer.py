"""A layer with a state, with what stands around its rule: the figure of a page below chapter 21."""

from __future__ import annotations

from attnbook.atlas import stored
from attnbook.figures.drawing import Drawing
from attnbook.figures.layer import Box, Row, steps_of_layer

# The ways of queries, keys and values, of the gate and the rate, and of the factor z.
Q, K, V, RATES, Z = 23.0, 69.0, 115.0, 161.0, 207.0
HALF, NOTES, WIDTH = 21.0, 244.0, 420.0


def _box(words: str, shade: str, *ways: float, outs: tuple[float, ...] = ()) -> Box:
    return Box(words, shade, ways[0] - HALF, ways[-1] + HALF, ways, outs or ways)


def state_layer() -> Drawing:
    """Return the drawing of a layer of Qwen3-Next with a state, from top to bottom.

    >>> state_layer().alt[:64]
    'A layer with a state from top to bottom, in 8 steps. New: α, β, '
    """
    found = next(model for model in stored() if model.model == "Qwen3-Next 80B").settings
    size = "S: {} × {} a head".format(*(
        found[f"linear_{name}_head_dim"] for name in ("key", "value")
    ))
    tokens = found["linear_conv_kernel_dim"]
    rows = (
        Row((_box("XW_Q", "query", Q), _box("XW_K", "key", K), _box("XW_V", "value", V)), True),
        Row((_box("α, β", "weight", RATES), _box("XW_Z", "plus", Z)), False,
            "two rates, one gate", "from each token"),
        Row((_box("convolution, SiLU", "ink", Q, K, V),), False,
            f"mix of the last {tokens} tokens", "entry by entry"),
        Row((_box("to length 1", "ink", Q, K),), False,
            "vectors of one length", "each q and each k"),
        Row((_box("the state S\nfaded: αS\nwritten: + βkᵀ(v − kS)\nread: o = qS", "weight",
                  Q, K, V, RATES, outs=(V,)),), False, size, "however long the text is"),
        Row((_box("norm", "output", V), _box("SiLU", "plus", Z)), False,
            "outputs of one size", "before the gate"),
        Row((_box("× entry by entry", "output", V, Z, outs=(V,)),), False,
            "a gate on the output", "also in its softmax layers"),
        Row((_box("W_O", "output", V),), True),
    )
    told = "; ".join(
        f"{', '.join(box.words for box in row.boxes)}: {row.change} ({row.who})"
        for row in rows if row.change
    ).replace("\n", ", ")
    alt = f"A layer with a state from top to bottom, in {len(rows)} steps. New: {told}."
    return steps_of_layer(rows, (Q, K, V, RATES, Z), V, alt, NOTES, WIDTH)
