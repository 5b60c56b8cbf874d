"""A layer from top to bottom, with what today's models change: chapter 18."""

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
