"""What attention does, in four steps and two sentences: the drawing of the first page."""

from __future__ import annotations

import numpy as np

from attnbook import words
from attnbook.figures.context import HEIGHT, WIDTH, Scene, draw_scene, leaning, percent, thickness
from attnbook.figures.drawing import Array
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

SENTENCES = {
    "river": "the boat reached the bank of the river",
    "cash": "she paid cash at the bank",
}
ENDS = ("water", "money")
TITLES = (
    "“bank” alone leans to money",
    "q · k: which words fit its question?",
    "÷ √dₖ, softmax: weights that add up to 1",
    "Σ a v: “bank” now leans to {}",
)
ASKED = 16.0  # both entries of the query of bank


def asked(x: Array) -> Array:
    """Return the scores of bank's query with the keys of words, of width 2, both made by hand.

    The key of a word is its dot products with *shore* and with *finance*, without their part along
    *bank*, whose own key is 0. The query is the same number twice: bank asks for both.
    """
    bank, *senses = words.vectors("bank shore finance")
    w_k = np.transpose([sense - (sense @ bank) * bank for sense in senses])
    return np.asarray(x @ w_k @ np.full(2, ASKED))


def first_screen() -> MovingDrawing:
    """Return a moving figure: *bank* asks, gets weights, and leans to water or to money.

    The four steps are those of the formula. The vectors are those of `attnbook.words`, the query
    and the keys are made by hand (`asked`), and the values are the vectors themselves. Each word
    lies on the beam where its vector leans, as heavy as its weight.
    """
    sentences = list(SENTENCES.values())

    def draw(step: int, sentence: int) -> Frame:
        tokens = sentences[sentence].split()
        asks = tokens.index("bank")
        x, leans = leaning(tokens, ENDS)
        scores = asked(x)
        weights = softmax(scores / np.sqrt(2))
        output, equal, own = float(weights @ leans), float(leans.mean()), float(leans[asks])
        none, alone = [0.0] * len(tokens), np.eye(len(tokens))[asks]
        arcs = [none, [1.0] * len(tokens), [*map(thickness, weights)]]
        numbers = [[""] * len(tokens), [decimal(s, 1) for s in scores], [*map(percent, weights)]]
        scene = Scene(
            tokens, asks, leans,
            arcs=arcs[min(step, 2)],
            numbers=numbers[min(step, 2)],
            loads=alone if step < 2 else weights,
            fallen=step != 2,
            output=output if step == 3 else None,
            equal=equal if step == 3 else None,
            scored=step == 1,
        )  # fmt: skip
        side = ENDS[0] if output > 0 else ENDS[1]
        pairs = [f"{t} {n}" for t, n in zip(tokens, numbers[min(step, 2)], strict=True)]
        said = (
            f"Step 1: alone, “bank” leans to money, {decimal(own)}, in every sentence.",
            f"Step 2, scores: {', '.join(pairs)}.",
            f"Step 3, weights: {', '.join(pairs)}.",
            f"Step 4, output: “bank” leans to {side}, {decimal(output)}; alone {decimal(own)}, "
            f"with equal weights {decimal(equal)}.",
        )[step]
        rows = [
            (sentences[sentence], t, decimal(s), decimal(a), decimal(lean))
            for t, s, a, lean in zip(tokens, scores, weights, leans, strict=True)
        ]
        return Frame(draw_scene(scene, TITLES[step].format(side), 8, ENDS), said, rows)

    return moving(
        draw,
        (
            Control("step", "step", ("alone", "q · k", "softmax", "Σ a v"), 3, pace=1.4, once=True),
            Control("sentence", "sentence", tuple(SENTENCES), kind="choice"),
        ),
        WIDTH,
        HEIGHT,
        columns=("sentence", "word", "score", "weight", "lean"),
        about="bank in two sentences",
    )
