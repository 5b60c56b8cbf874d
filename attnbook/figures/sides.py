"""A word in several sentences, by five ways to weigh their words: the figure of chapter 05."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnbook.figures.drawing import Array, axis_title, headline, line, rect, tag, text
from attnbook.figures.first_screen import ENDS, PLAIN, asked, leaning
from attnbook.figures.labels import HALO, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

WIDTH, TOP, ROW = 448.0, 62.0, 62.0  # the first sentence begins at TOP, and each has ROW pixels
# A lean of 0 is at MIDDLE, UNIT pixels to a lean of 1. A bar of weight 1 has TALL pixels.
MIDDLE, UNIT, REACH, TALL = 356.0, 210.0, 76.0, 34.0
LETTER, GAP, BAR = 7.9, 6.0, 16.0  # of a sentence: one letter, the space after a word, a bar
WAYS = ("alone", "mean", "minus four", "Q = K = X", "made")
ALONE, MEAN, FOUR, SAME, MADE = range(5)


def all_ways(sentence: str) -> tuple[Array, Array]:
    """Return the leans of a sentence's words, and the five rows of weights in the order of `WAYS`.

    >>> leans, weights = all_ways("fish swim near the bank")
    >>> weights.shape, (weights @ leans).round(2).tolist()
    ((5, 5), [-0.18, 0.1, 0.22, 0.03, 0.22])
    """
    tokens = np.array(sentence.split())
    x, leans = leaning(tokens.tolist())
    alone = tokens == "bank"
    counted = [alone, tokens != "", ~np.isin(tokens, PLAIN.split())]
    equal = [which / which.sum() for which in counted]
    scores = x @ x[alone][0], asked(x) / np.sqrt(2)
    return leans, np.array([*equal, *map(softmax, scores)])


def room(token: str, bold: bool) -> float:
    """Return how wide a word is, about: letters like *i* need less than others, *m* and *w* more.

    >>> room("the", False) < room("way", False) < room("way", True)
    True
    """
    narrow, broad = (sum(map(token.count, letters)) for letters in ("fijlrt", "mw"))
    return max(LETTER * len(token) - 3.3 * narrow + 3.8 * broad, BAR - 4) * (1.1 if bold else 1)


def _headline(way: int, right: int, less: int, more: int, n: int) -> tuple[str, str]:
    """Return what a frame says, in two lines; the counts are of sentences."""
    sides = f"the expected side in {right} of {n}"
    return (
        (f"“bank” alone: {sides}", "One vector for every sentence, and it leans to money."),
        (f"Mean (equal weights): {sides}", "No query and no key: each word counts the same."),
        (f"Without four: {sides}", "“bank”, “of”, “the” and “at” get 0, the others the same."),
        (f"Q = K = X: {sides}", f"“bank” takes most from itself; ● moves less than ○ in {less}."),
        (f"Made: {sides}", f"The mean (○) chooses it too; ● is further in {more}."),
    )[way]


def word_in_context(sentences: Mapping[str, str]) -> MovingDrawing:
    """Return a moving figure: where five ways to weigh put *bank*, in one row for each sentence.

    At the left, each word of a sentence carries its weight as a bar, *bank* and the largest with
    its number where weights differ. At the right is where the
    weighted sum leans: its dot product with *water* minus its dot product with *money*. The half
    that the sentence speaks of is tinted. The disc is the sum with the weights that are shown, the
    ring the mean, and the dashed line *bank* alone. The first of all ways, with which the figure
    opens, shows the trouble, that one vector cannot lie on both sides.

    Args:
        sentences: Each sentence with the side that it speaks of, "water" or "money".

    >>> word_in_context({"fish swim near the bank": "water"}).alt
    '“bank” alone: the expected side in 0 of 1. Leans: −0.18.'
    """
    signs = np.array([{ENDS[0]: 1, ENDS[1]: -1}[side] for side in sentences.values()])
    found = [all_ways(sentence) for sentence in sentences]
    leans = np.array([weights @ words for words, weights in found])  # one row a sentence
    own = leans[0, ALONE]
    bottom = TOP + ROW * len(found)

    def row(i: int, tokens: list[str], way: int) -> str:
        """Return one sentence: its words with their bars, and its place between the sides."""
        base, x, parts = TOP + ROW * i + 40, 6.0, []
        largest = found[i][1][way].argmax()
        for j, token in enumerate(tokens):
            is_bank, weight = token == "bank", found[i][1][way, j]
            wide = room(token, is_bank)
            tall = round(TALL * weight, 1)
            told = way in (SAME, MADE) and j in (largest, tokens.index("bank"))
            parts += [
                rect(round(x + (wide - BAR) / 2, 1), round(base - tall, 1), BAR, tall, "weight",
                     fill_opacity="0.75", data_part=f"bar-{i}-{j}"),
                text(x + wide / 2, base + 14, token, font_size=13,
                     font_weight="700" if is_bank else "400", fill="query" if is_bank else "ink"),
                text(x + wide / 2, round(base - tall - 4, 1), decimal(weight) if told else "",
                     font_size=13, fill="weight", data_part=f"weight-{i}-{j}"),
            ]
            x += wide + GAP
        y, lean, equal = base - 8, leans[i, way], leans[i, MEAN]
        at, ring, alone = (round(MIDDLE + UNIT * z, 1) for z in (lean, equal, own))
        shown = "0" if way in (ALONE, MEAN) else "1"
        other = ring if shown == "1" else at
        right = lean > 0 and way != ALONE
        tint = "plus" if signs[i] > 0 else "minus"
        half = MIDDLE if signs[i] > 0 else MIDDLE - REACH
        return "".join([
            rect(half, base - 30, REACH, 44, tint, fill_opacity="0.18"),
            *parts,
            tag("line", x1=alone, x2=at, y1=y, y2=y, stroke="output", stroke_width=3,
                stroke_opacity="0.45", data_part=f"way-{i}"),
            tag("circle", cx=ring, cy=y, r=6, fill="paper", stroke="ink", stroke_width=2,
                opacity=shown, data_part=f"ring-{i}"),
            tag("circle", cx=at, cy=y, r=6, fill="output", data_part=f"disc-{i}"),
            text(max(at, other) + 10 if right else min(at, other) - 10, y + 4,
                 decimal(lean) if way != ALONE else "",
                 text_anchor="start" if right else "end", fill="output",
                 font_weight="600", font_size=13, data_part=f"lean-{i}", **HALO),
        ])

    def legend(y: float, way: int) -> list[str]:
        """Return what tints and discs are, and rings where there are any, in one line."""
        ring = "".join([
            tag("circle", cx=326, cy=y - 4, r=6, fill="paper", stroke="ink", stroke_width=2),
            axis_title(338, y, "mean", text_anchor="start"),
        ])
        return [
            rect(4, y - 11, 14, 14, "plus", fill_opacity="0.18"),
            rect(20, y - 11, 14, 14, "minus", fill_opacity="0.18"),
            axis_title(40, y, "the expected side", text_anchor="start"),
            tag("circle", cx=190, cy=y - 4, r=6, fill="output"),
            axis_title(202, y, "weights shown", text_anchor="start"),
            tag("g", ring, opacity=int(way not in (ALONE, MEAN)), data_part="ring"),
        ]

    def draw(way: int) -> Frame:
        shown = leans[:, way]
        right = int((shown * signs > 0).sum())
        moved = signs * (shown - leans[:, MEAN])
        less = int((np.abs(shown - own) < np.abs(leans[:, MEAN] - own)).sum())
        title, more = _headline(way, right, less, int((moved > 0).sum()), len(found))
        dash = MIDDLE + UNIT * own
        body = "".join([
            headline(4, 17, title, "title"),
            axis_title(4, 36, more, text_anchor="start", data_part="more"),
            text(MIDDLE - 6, TOP + 4, "← money", text_anchor="end", font_weight="600",
                 font_size=13),
            text(MIDDLE + 6, TOP + 4, "water →", text_anchor="start", font_weight="600",
                 font_size=13),
            axis_title(4, TOP + 4, "weights of “bank”", text_anchor="start"),
            line(dash, TOP + 12, dash, bottom + 2, "muted", "4 3"),
            line(MIDDLE, TOP + 12, MIDDLE, bottom + 2, "ink"),
            *(row(i, sentence.split(), way) for i, sentence in enumerate(sentences)),
            axis_title(dash + 24, bottom + 16, f"“bank” alone {decimal(own)}", text_anchor="end"),
            axis_title(MIDDLE, bottom + 16, "0"),
            *legend(bottom + 40, way),
        ])
        rows = [
            (sentence, WAYS[way], ", ".join(decimal(w) for w in weights[way]), decimal(lean))
            for sentence, (_, weights), lean in zip(sentences, found, shown, strict=True)
        ]
        return Frame(body, f"{title}. Leans: {', '.join(map(decimal, shown))}.", rows)

    return moving(
        draw,
        (Control("way", "weights", WAYS, pace=2.0),),
        WIDTH,
        bottom + 50,
        columns=("sentence", "weights", "of each word", "lean"),
        about="the word in its sentences",
    )
