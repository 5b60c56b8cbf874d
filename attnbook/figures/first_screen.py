"""What attention does, in four steps and two sentences: the drawing of the first page."""

from __future__ import annotations

import numpy as np

from attnbook import words
from attnbook.figures.context import (
    WIDTH,
    Mark,
    Scene,
    draw_scene,
    height,
    leaning,
    percent,
    thickness,
)
from attnbook.figures.drawing import Array, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

SENTENCES = {
    "river": "the boat reached the bank of the river",
    "cash": "she paid cash at the bank",
}
ENDS = ("water", "money")
PLAIN = "bank of the at"  # words whose keys are 0
ASKED = 16.0  # both entries of the query of bank


def asked(x: Array) -> Array:
    """Return the scores of bank's query with the keys of words, of width 2, both made by hand.

    The key of a word is its dot products with *shore* and with *finance*, without their parts along
    `PLAIN` words, whose own keys are therefore 0. The query is the same number twice: bank asks for
    both.
    """
    plain, senses = words.vectors(PLAIN).T, words.vectors("shore finance").T
    w_k = senses - plain @ np.linalg.solve(plain.T @ plain, plain.T @ senses)
    return np.asarray(x @ w_k @ np.full(2, ASKED))


def first_screen() -> MovingDrawing:
    """Return a moving figure: *bank* asks, gets weights, and leans to water or to money.

    The four steps are those of the formula. The vectors are those of `attnbook.words`, the query
    and the keys are made by hand (`asked`), and the values are the vectors themselves. Each word
    lies on the beam where its vector leans, as heavy as its weight, and the last step has the
    result of the other sentence too.
    """
    telling, sentences = list(SENTENCES), list(SENTENCES.values())

    def taken(sentence: int) -> tuple[Array, Array, Array]:
        """Return the scores, the weights and the leans of a sentence's words."""
        x, leans = leaning(sentences[sentence].split(), ENDS)
        scores = asked(x)
        return scores, softmax(scores / np.sqrt(2)), leans

    def draw(step: int, sentence: int) -> Frame:
        tokens = sentences[sentence].split()
        asks = tokens.index("bank")
        scores, weights, leans = taken(sentence)
        _, others, other_leans = taken(1 - sentence)
        output, equal, own = float(weights @ leans), float(leans.mean()), float(leans[asks])
        none, alone = [0.0] * len(tokens), np.maximum(np.eye(len(tokens))[asks], 0.02)
        arcs = [none, [1.0] * len(tokens), [*map(thickness, weights)]]
        numbers = [[""] * len(tokens), [decimal(s, 1) for s in scores], [*map(percent, weights)]]
        scene = Scene(
            tokens, asks, leans,
            arcs=arcs[min(step, 2)],
            numbers=numbers[min(step, 2)],
            loads=alone if step < 2 else weights,
            fallen=step != 2,
            marks=(
                Mark("attention", f"with “{telling[sentence]}”", output, step == 3),
                Mark("other", f"with “{telling[1 - sentence]}”", float(others @ other_leans),
                     step == 3),
                Mark("equal weights", "equal weights", equal, step == 3),
                Mark("alone", "alone", own),
            ),
            scored=step == 1,
        )  # fmt: skip
        side = ENDS[0] if output > 0 else ENDS[1]
        pairs = [f"{t} {n}" for t, n in zip(tokens, numbers[min(step, 2)], strict=True)]
        best = int(np.argmax(weights.round(6)))
        share = f"{percent(weights[best])} from “{tokens[best]}”"
        title, more = (
            ("Alone, “bank” leans to money", "its vector is the same in every sentence"),
            ("Which words fit what “bank” asks?", "score = query · key"),
            (f"“bank” takes {share}", "weight = softmax(score ÷ √dₖ), in %, rounded"),
            (f"“bank” takes {share}: it leans to {side}", "output = Σ weight · value"),
        )[step]
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
        also = text(WIDTH / 2, 82, f"also in “{sentences[1 - sentence]}”", font_size=15,
                    fill="muted", opacity=str(int(step == 0)), data_part="also")  # fmt: skip
        return Frame(draw_scene(scene, title, more, 8, ENDS, also), said, rows)

    return moving(
        draw,
        (
            Control(
                "step", "step", ("alone", "scores", "weights", "output"), 3, pace=1.4, once=True
            ),
            Control("sentence", "sentence", tuple(SENTENCES), kind="choice"),
        ),
        WIDTH,
        height(4),
        columns=("sentence", "word", "score", "weight", "lean"),
        about="bank in two sentences",
    )
