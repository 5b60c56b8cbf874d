"""One word in several sentences: the moving figure of chapter 05 with real word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from attnbook import words
from attnbook.figures.drawing import Array, axis_title, line, rect, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, MovingDrawing
from attnlib.numpy_dense import softmax

SCALES = {"0": 0.0, "1/√384": 384**-0.5, "1": 1.0, "4": 4.0}
TOP, ROW = 76.0, 26.0
# Where the weights stand, and where the cosines do: the words end, a bar of 1 begins and ends, and
# the number ends.
WEIGHTS = (68.0, 76.0, 166.0, 206.0)
COSINES = (288.0, 296.0, 396.0, 436.0)
RIGHT = 440.0


def _bar(row: int, share: float, place: tuple[float, float, float, float], name: str) -> str:
    """Return a bar and its number in a row, named as parts of a moving figure."""
    _, start, end, last = place
    y, long = TOP + ROW * row, round((end - start) * share, 1)
    shown = decimal(share)
    return rect(
        start + min(0.0, long), y + 6, abs(long), ROW - 12, "query", data_part=f"{name}-bar-{row}"
    ) + text(last, y + 18, shown, text_anchor="end", data_part=f"{name}-{row}")


def _empty(row: int, name: str) -> str:
    """Return a bar of length 0 without a number, for a row that the sentence does not need."""
    y = TOP + ROW * row
    bar = rect(WEIGHTS[1], y + 6, 0, ROW - 12, "query", data_part=f"{name}-bar-{row}")
    return bar + text(WEIGHTS[3], y + 18, "", text_anchor="end", data_part=f"{name}-{row}")


def _frame(
    title: str, word: str, tokens: Sequence[str], weights: Array,
    probes: Mapping[str, tuple[float, float]], rows: int,
) -> str:  # fmt: skip
    """Return the drawing of one sentence: weights on the left, cosines on the right."""
    body = [
        text(8, 22, title, text_anchor="start", font_weight="600", font_size=15, data_part="title"),
        axis_title(8, TOP - 14, "weights", text_anchor="start"),
        axis_title(COSINES[0], TOP - 14, "cosine with", text_anchor="end"),
        line(WEIGHTS[1], TOP, WEIGHTS[1], TOP + ROW * rows, "muted"),
        line(COSINES[1], TOP, COSINES[1], TOP + ROW * len(probes), "muted"),
    ]
    for row in range(rows):
        token = tokens[row] if row < len(tokens) else ""
        y = TOP + ROW * row + 18
        look = {"font_weight": "600" if token == word else "400"}
        body.append(text(WEIGHTS[0], y, token, text_anchor="end", data_part=f"token-{row}", **look))
        here = row < len(tokens)
        body.append(_bar(row, weights[row], WEIGHTS, "weight") if here else _empty(row, "weight"))
    for row, (probe, (before, now)) in enumerate(probes.items()):
        y = TOP + ROW * row
        at = COSINES[1] + (COSINES[2] - COSINES[1]) * before
        body.append(text(COSINES[0], y + 18, probe, text_anchor="end"))
        body.append(_bar(row, now, COSINES, "cosine"))
        body.append(rect(at - 1, y + 2, 2, ROW - 4, "key"))
    y = TOP + ROW * len(probes)
    at = COSINES[1]
    body.append(rect(at - 1, y + 12, 2, ROW - 4, "key"))
    body.append(text(at + 8, y + ROW + 2, "the word alone", text_anchor="start", fill="muted"))
    return "".join(body)


def word_in_context(
    word: str,
    sentences: Sequence[str],
    probes: Sequence[str],
    *,
    scales: Mapping[str, float] = SCALES,
    start: str = "1",
) -> MovingDrawing:
    """Return a moving figure: a word's weights and its output, in one sentence after the other.

    Queries, keys and values are the vectors of `attnbook.words` themselves. One slider picks the
    sentence, and begins with the word alone; the other picks the factor on the scores. On the left
    is what the word takes from each word of the sentence, on the right the cosine of its output
    with each probe, where a mark shows the cosine of the word alone.

    Raises:
        ValueError: when a sentence lacks the word, or `start` is not among the scales.

    >>> word_in_context("bank", ["fish swim near the bank"], ["water"]).alt
    '“bank” alone, scale 1: cosine with water 0.22. Weights: bank 1.00.'
    """
    if start not in scales:
        raise ValueError(f"start must be one of {', '.join(scales)}; got {start!r}")
    for sentence in sentences:
        if word not in sentence.split():
            raise ValueError(f"each sentence must have the word {word!r}; got {sentence!r}")
    compass, own = words.vectors(probes), words.vectors(word)[0]
    most = max(len(sentence.split()) for sentence in sentences)
    frames, labels, rows = [], [], []
    for sentence, (name, scale) in product([word, *sentences], scales.items()):
        tokens = sentence.split()
        x = words.vectors(tokens)
        weights = softmax(scale * x @ x[tokens.index(word)])
        output = weights @ x
        cosines = compass @ output / np.linalg.norm(output)
        title = f"“{word}” alone" if len(tokens) == 1 else f"“{sentence}”"
        pairs = dict(zip(probes, zip(compass @ own, cosines, strict=True), strict=True))
        frames.append(_frame(title, word, tokens, weights, pairs, most))
        where = title if len(tokens) == 1 else f"“{word}” in {title}"
        near = [f"{probe} {decimal(now)}" for probe, (_, now) in pairs.items()]
        taken = [f"{t} {decimal(a)}" for t, a in zip(tokens, weights, strict=True)]
        labels.append(
            f"{where}, scale {name}: cosine with {', '.join(near)}.\nWeights: {', '.join(taken)}."
        )
        rows.append((title, name, ", ".join(taken), *map(decimal, cosines)))
    return MovingDrawing.from_frames(
        frames,
        RIGHT,
        TOP + ROW * max(most, len(probes) + 2) + 8,
        controls=(
            Control("sentence", "sentence", ("none", *map(str, range(1, len(sentences) + 1)))),
            Control("scale", "scale", tuple(scales), list(scales).index(start)),
        ),
        labels=labels,
        about="the word in its sentences",
        table=(("sentence", "scale", "weights", *(f"cosine with {p}" for p in probes)), *rows),
    )
