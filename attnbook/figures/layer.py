"""A layer from top to bottom, with what today's models change, and a block: chapters 18 and 10."""

from __future__ import annotations

from typing import NamedTuple

from attnbook.figures.drawing import Drawing, arrow, line, rect, tag, text
from attnbook.figures.products import lowered


class Box(NamedTuple):
    """A step: its words and colour, its two ends, and the ways that lead in and out."""

    words: str
    shade: str
    left: float
    right: float
    ins: tuple[float, ...]
    outs: tuple[float, ...]


class Row(NamedTuple):
    """Boxes side by side; whether the formula of 2017 has them; a change there, and who has it."""

    boxes: tuple[Box, ...]
    is_old: bool
    change: str = ""
    who: str = ""


# The ways of queries, keys and values, of the weights, and of the output.
Q, K, V, A, Y = 40.0, 116.0, 192.0, 78.0, 116.0
HALF, HIGH, STEP = 34.0, 26.0, 44.0
TOP, NOTES, WIDTH = 52.0, 244.0, 446.0


def _on(way: float, words: str, shade: str) -> Box:
    return Box(words, shade, way - HALF, way + HALF, (way,), (way,))


def _pair(words: str) -> tuple[Box, Box]:
    return _on(Q, words, "query"), _on(K, words, "key")


def _mixed(words: str) -> tuple[Box]:
    return (Box(words, "weight", Q - HALF, K + HALF, (A,), (A,)),)


def _out(words: str, ins: tuple[float, ...] = (Y,)) -> tuple[Box]:
    return (Box(words, "output", Q - HALF, V + HALF, ins, (Y,)),)


MAPS = _on(Q, "XW_Q", "query"), _on(K, "XW_K", "key"), _on(V, "XW_V", "value")
ROWS = (
    Row((Box("c", "ink", K - HALF, V + HALF, (K, V), (K, V)),), False,
        "one short vector for all", "MLA: DeepSeek-V3"),
    Row(MAPS, True, "fewer key and value heads", "GQA: Llama 3, Qwen3"),
    Row(_pair("norm"), False, "vectors of one length", "QK-norm: OLMo 2, Qwen3"),
    Row(_pair("turn"), False, "turned by their position", "RoPE: nearly all"),
    Row((Box("QKᵀ ÷ √dₖ", "weight", Q - HALF, K + HALF, (Q, K), (A,)),), True),
    Row(_mixed("+ bias"), False, "less for far keys", "ALiBi: BLOOM"),
    Row(_mixed("cap"), False, "scores with a limit", "soft cap: Gemma 2"),
    Row(_mixed("mask"), True, "only the last keys", "window: Gemma 3, gpt-oss"),
    Row(_mixed("softmax"), True, "weight for nobody", "sink: gpt-oss"),
    Row(_out("A V", (A, V)), True),
    Row(_out("× gate"), False, "entry by entry", "gate: Qwen3-Next"),
    Row(_out("W_O"), True),
)


def layer_today() -> Drawing:
    """Return the drawing of a layer: the steps of the formula of 2017, and what models change.

    A box with a full frame is a step of 2017, and one with a dashed frame is added. Beside it
    stands what is new there, and below who has it.

    >>> layer_today().alt[:46]
    'One layer from top to bottom, in 12 steps. New'
    """
    start, end = Q - HALF, V + HALF
    ends, top = dict.fromkeys((Q, K, V), 26.0), TOP
    body = [rect(start, 2, end - start, 24, "paper", stroke="ink", rx=4),
            text((start + end) / 2, 19, "X: a row for each token"),
            text(NOTES, 14, "dashed: added since 2017", text_anchor="start", fill="muted")]
    for boxes, is_old, change, who in ROWS:
        for words, shade, left, right, ins, outs in boxes:
            body += [arrow(way, ends[way], way, top, "muted") for way in ins]
            dash = {"stroke_dasharray": None if is_old else "5 3"}
            body += [
                rect(left, top, right - left, HIGH, "paper", stroke=shade, stroke_width=1.6, rx=4,
                     **dash),
                tag("text", lowered(words), x=(left + right) / 2, y=top + 18, fill="ink",
                    text_anchor="middle", font_size=13),
            ]
            ends |= dict.fromkeys(outs, top + HIGH)
        if change:
            body += [
                line(right + 2, top + HIGH / 2, NOTES - 4, top + HIGH / 2, "muted", "1 4"),
                text(NOTES, top + HIGH / 2 - 3, change, text_anchor="start", font_weight="600"),
                text(NOTES, top + HIGH / 2 + 13, who, text_anchor="start", fill="muted"),
            ]
        top += STEP
    body += [arrow(Y, ends[Y], Y, top, "muted"), text(Y, top + 15, "a new row for each token")]
    told = [f"{row.boxes[0].words}: {row.change} ({row.who})" for row in ROWS if row.change]
    alt = f"One layer from top to bottom, in {len(ROWS)} steps. New or changed: {'; '.join(told)}."
    return Drawing.from_elements("".join(body), WIDTH, top + 22, alt)


def block() -> Drawing:
    """Return the drawing of a block of a model: a stream to which two layers add.

    >>> block().alt[:50]
    'A block, from top to bottom. A stream carries one '
    """
    stream, norm, layer, wide, high = 50.0, 96.0, 186.0, 108.0, 30.0
    body = [text(10, 16, "X: one row for each token", text_anchor="start"),
            line(stream, 24, stream, 232, "muted")]
    for top, name, shade, note in ((44.0, "attention", "weight", "mixes the tokens"),
                                   (136.0, "feed-forward", "ink", "each token alone")):
        middle, plus = top + high / 2, top + 66
        back = layer + wide / 2
        body += [
            arrow(stream, middle, norm, middle, "muted"),
            rect(norm, top, 50, high, "paper", stroke="ink", rx=4),
            text(norm + 25, middle + 4.5, "norm"),
            rect(layer, top, wide, high, "paper", stroke=shade, stroke_width=2, rx=4),
            text(back, middle + 4.5, name, font_weight="600"),
            text(layer + wide + 10, middle + 4.5, note, text_anchor="start", fill="muted"),
            line(back, top + high, back, plus, "output" if shade == "weight" else "muted"),
            arrow(back, plus, stream + 11, plus, "output" if shade == "weight" else "muted"),
            tag("circle", cx=stream, cy=plus, r=10, fill="paper", stroke="ink"),
            text(stream, plus + 5, "+", font_size=16),
        ]
        ways = (("query", -9), ("key", 0), ("value", 9)) if shade == "weight" else (("muted", 0),)
        body += [arrow(norm + 50, middle + d, layer, middle + d, way, 1.4) for way, d in ways]
    body += [
        arrow(stream, 230, stream, 240, "muted"),
        text(stream - 40, 257, "on to the next block, dozens of times; then one matrix",
             text_anchor="start"),
    ]
    alt = (
        "A block, from top to bottom. A stream carries one row for each token. From it a way leads "
        "through a norm, as queries, keys and values, into attention, which mixes the tokens, and "
        "back to a plus sign on the stream. A second way leads through a norm into the "
        "feed-forward layer, which takes each token alone, and back to a second plus sign."
    )
    return Drawing.from_elements("".join(body), 430, 268, alt)
