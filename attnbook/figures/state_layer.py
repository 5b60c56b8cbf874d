"""A layer with a state, with what stands around its rule: the figure of a page below chapter 21."""

from __future__ import annotations

from attnbook.figures.drawing import Drawing, arrow, rect, tag, text
from attnbook.figures.products import lowered

# The ways of queries, keys and values, of the gate and the rate, and of the factor z.
Q, K, V, RATES, Z = 44.0, 132.0, 220.0, 308.0, 396.0
HALF, HIGH, STEP, TOP = 40.0, 26.0, 46.0, 50.0
# Each row has boxes: words, colour, the ways that lead into it, and those that lead out.
ROWS = (
    (("XW_Q", "query", (Q,), (Q,)), ("XW_K", "key", (K,), (K,)), ("XW_V", "value", (V,), (V,)),
     ("α and β", "weight", (RATES,), (RATES,)), ("XW_Z", "plus", (Z,), (Z,))),
    (("convolution, SiLU", "ink", (Q, K, V), (Q, K, V)),),
    (("to length 1", "ink", (Q, K), (Q, K)),),
    (("the state fades, is written, is read", "weight", (Q, K, V, RATES), (V,)),),
    (("norm", "output", (V,), (V,)), ("SiLU", "plus", (Z,), (Z,))),
    (("× entry by entry", "output", (V, Z), (V,)),),
    (("W_O", "output", (V,), (V,)),),
)


def state_layer() -> Drawing:
    """Return the drawing of a layer of Qwen3-Next with a state, from top to bottom.

    >>> state_layer().alt[:44]
    'A layer with a state, from top to bottom. XW'
    """
    ends = dict.fromkeys((Q, K, V, RATES, Z), 26.0)
    body = [rect(Q - HALF, 2, Z - Q + 2 * HALF, 24, "paper", stroke="ink", rx=4),
            text(V, 19, "X: a row for each token")]
    for n, row in enumerate(ROWS):
        top = TOP + n * STEP
        for words, shade, ins, outs in row:
            left, right = ins[0] - HALF, ins[-1] + HALF
            body += [arrow(way, ends[way], way, top, "muted") for way in ins]
            body += [
                rect(left, top, right - left, HIGH, "paper", stroke=shade, stroke_width=1.6, rx=4),
                tag("text", lowered(words), x=(left + right) / 2, y=top + 18, fill="ink",
                    text_anchor="middle", font_size=13),
            ]
            ends |= dict.fromkeys(outs, top + HIGH)
    foot = TOP + len(ROWS) * STEP
    body += [arrow(V, ends[V], V, foot, "muted"), text(V, foot + 15, "a new row for each token")]
    told = "; ".join(", ".join(words for words, *_ in row) for row in ROWS)
    alt = f"A layer with a state, from top to bottom. {told}."
    return Drawing.from_elements("".join(body), Z + Q, foot + 22, alt)
