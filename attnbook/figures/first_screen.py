"""What attention does, in four steps and two sentences: the drawing of the first page.

The words of a sentence hang on a beam between two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from attnbook import words
from attnbook.figures.drawing import Array, axis_title, headline, line, number, rect, tag, text
from attnbook.figures.labels import HALO, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

SENTENCES = {
    "river": "the boat reached the bank of the river",
    "cash": "she paid cash at the bank",
}
ENDS = ("water", "money")
PLAIN = "bank of the at"  # words whose keys are 0
ASKED = 16.0  # both entries of the query of bank

WIDTH = 448.0
# The sentence stands on a line; its numbers hang from another; the beam has a middle, where a lean
# of 0 is, and `UNIT` pixels to a lean of 1. Below are rows of marks, and the numbers of the beam.
SENTENCE, NUMBERS, BEAM, MIDDLE, UNIT, ROW = 138.0, 158.0, 250.0, 240.0, 330.0, 19.0
HEIGHT = BEAM + 4 * ROW + 22  # with four marks
LEAST, LETTER, GAP = 28.0, 9.6, 14.0  # of a word: its least width, one letter, the space after it


class Mark(NamedTuple):
    """A row below the beam: how it looks, its name, and where its mark stands."""

    look: str  # "attention", "other", "equal weights" or "alone"
    name: str
    lean: float
    there: bool = True


class Scene(NamedTuple):
    """What one frame shows of a sentence: one entry a word, unless it says otherwise."""

    tokens: Sequence[str]
    asks: int  # the place of the word that asks
    leans: Array
    arcs: Sequence[float]  # how thick
    numbers: Sequence[str]
    loads: Array  # the weights that the discs stand for
    fallen: bool  # whether the discs lie on the beam, or still hang at their words
    marks: Sequence[Mark]  # the first is where the beam balances, the last where the word stood
    scored: bool = False  # whether the numbers are scores, not yet weights


def percent(weight: float) -> str:
    """Return a weight as per cent.

    >>> percent(0.126)
    '13%'
    """
    return f"{100 * weight:.0f}%"


def room(token: str) -> float:
    """Return how wide a word may be, whatever the reader's font."""
    return max(LEAST, LETTER * len(token) + 4 * sum(map(token.count, "mw")))


def centres(tokens: Sequence[str]) -> list[float]:
    """Return where the middle of each word of a sentence is."""
    widths = [*map(room, tokens)]
    gap = min(GAP, (WIDTH - 8 - sum(widths)) / max(1, len(tokens) - 1))
    ends = np.cumsum(widths) + gap * np.arange(len(tokens))
    return [
        float(round(end - w / 2 + (WIDTH - ends[-1]) / 2))
        for end, w in zip(ends, widths, strict=True)
    ]


def on_beam(lean: float) -> float:
    """Return where on the beam a lean is."""
    return float(round(MIDDLE + UNIT * lean))


def pile(xs: Sequence[float], radii: Sequence[float]) -> list[float]:
    """Return how high the middle of each disc lies: the large ones on the beam, others on them.

    >>> pile([0, 0, 30], [5.0, 10.0, 5.0])
    [25.0, 10.0, 5.0]
    """
    heights = list(radii)
    done: list[int] = []
    for i in sorted(range(len(radii)), key=lambda i: (-radii[i], i)):
        for j in sorted(done, key=lambda j: heights[j]):
            apart, reach = abs(xs[i] - xs[j]), radii[i] + radii[j]
            if radii[i] and apart < reach:
                heights[i] = max(
                    heights[i], float(round(heights[j] + (reach**2 - apart**2) ** 0.5))
                )
        done.append(i)
    return heights


def _arc(start: float, end: float, wide: float, name: str, part: str) -> str:
    """Return the arc from the word that asks to a word; a word's arc to itself is a loop."""
    y, rise = SENTENCE - 19, round(28 + 0.3 * abs(end - start))
    # A thick loop is wider, so that its hole stays open.
    bow, foot = (round(26 + 3 * wide), min(4, wide / 2)) if start == end else (0, 0)
    rise += round(14 + 2 * wide) * (start == end)
    points = [(start - foot, y), (start - bow, y - rise), (end + bow, y - rise), (end + foot, y)]
    [first, *rest] = [f"{number(x)} {number(y)}" for x, y in points]
    path = f"M{first}C{' '.join(rest)}"
    return tag("path", d=path, fill="none", stroke=name, stroke_width=wide, data_part=part,
               stroke_opacity="0.8")


def _marks(marks: Sequence[Mark]) -> str:
    """Return a row for each mark: its name, its way from the last one's place, and its lean."""
    origin, drawn = on_beam(marks[-1].lean), []
    looks: dict[str, dict[str, Any]] = {
        "attention": {"fill": "output", "stroke": "output"},
        "other": {"fill": "paper", "stroke": "output"},
        "alone": {"fill": "paper", "stroke": "muted", "stroke_dasharray": "3 2"},
        "equal weights": {"fill": "paper", "stroke": "ink"},
    }
    for row, (kind, name, lean, there) in enumerate(marks):
        x, y, look = on_beam(lean if there else marks[-1].lean), BEAM + 3 + ROW * row, looks[kind]
        seen = {"opacity": str(int(there))}
        bold: dict[str, Any] = {"font_weight": "600" if kind == "attention" else "400", **seen}
        at: dict[str, Any] = {"transform": f"translate({number(x)} {number(y)})", **seen,
                              "stroke_width": 1.5, "data_part": f"{kind}-mark"}
        ink = {"attention": "output", "other": "output"}.get(kind, "ink")
        if kind != "alone":
            drawn.append(
                tag("line", x1=origin, x2=x, y1=y + 9, y2=y + 9, stroke=look["stroke"],
                    stroke_width=3, stroke_opacity="0.35", data_part=f"{kind}-way")
            )
        drawn += [
            tag("circle", cy=9, r=5.5, **look, **at) if kind == "equal weights"
            else tag("polygon", points="0,0 9,16 -9,16", **look, **at),
            text(4, y + 14, name, text_anchor="start", fill=ink, data_part=f"{kind}-name", **bold),
            text(max(x, origin) + 13, y + 14, decimal(lean), text_anchor="start", fill=ink,
                 data_part=f"{kind}-lean", **HALO, **bold),
        ]
    return "".join(drawn)


def draw_scene(scene: Scene, title: str, more: str, most: int, also: str) -> str:
    """Return a sentence with its arcs, and the beam below; there is room for `most` words."""
    spots, empty = centres(scene.tokens), most - len(scene.tokens)
    spots += [spots[-1]] * empty
    radii = [round(40 * load**0.5) / 2 for load in scene.loads] + [0.0] * empty
    beam = [on_beam(lean) for lean in scene.leans] + [MIDDLE] * empty
    heights, top = pile(beam, radii), max(scene.loads)
    name = "ink" if scene.scored else "weight"
    arcs, threads, row = [], [], []
    for j in range(most):
        here = j < len(scene.tokens)
        x, r = spots[j], radii[j]
        wide = scene.arcs[j] if here else 0
        arcs.append(_arc(spots[scene.asks], x, wide, name, f"arc-{j}"))
        hangs = (x, NUMBERS + 9 + r)
        at = (beam[j], BEAM - heights[j]) if scene.fallen and r else hangs
        # Only the threads of the largest weights are strong.
        strong = here and scene.loads[j] > 0.7 * top and len(set(radii[: len(scene.tokens)])) > 1
        threads.append(
            tag("line", x1=x, y1=NUMBERS + 7, x2=at[0], y2=at[1], stroke="value",
                stroke_width=1.5, stroke_dasharray="2 3", data_part=f"thread-{j}",
                opacity="0" if not (scene.fallen and r) else "1" if strong else "0.3")
            + tag("circle", cx=at[0], cy=at[1], r=r, fill="weight", fill_opacity="0.3",
                  stroke="weight", stroke_width=1.5 if r else 0, data_part=f"disc-{j}")
        )
        row.append(
            text(x, SENTENCE, scene.tokens[j] if here else "", font_size=17,
                 font_weight="700" if j == scene.asks else "400", data_part=f"word-{j}")
            + text(x, NUMBERS, scene.numbers[j] if here else "", font_size=14, fill=name,
                   data_part=f"number-{j}")
        )
    wide = room(scene.tokens[scene.asks]) + 18
    box = rect(spots[scene.asks] - wide / 2, SENTENCE - 18, wide, 25, "none", stroke="query",
               stroke_width=2, rx=5, data_part="asks")
    left, right, bottom = on_beam(-0.45), on_beam(0.45), HEIGHT - 18
    ticks = [
        line(on_beam(lean), BEAM, on_beam(lean), bottom, "muted" if lean == 0 else "grid")
        + axis_title(on_beam(lean), bottom + 14, decimal(lean, 1))
        for lean in (-0.4, -0.2, 0.0, 0.2, 0.4)
    ]
    return "".join([
        headline(8, 19, title, "title"),
        axis_title(8, 37, more, text_anchor="start", data_part="more"),
        *arcs, *threads, box, *row, *ticks, axis_title(4, bottom + 14, "lean", text_anchor="start"),
        tag("line", x1=left, y1=BEAM, x2=right, y2=BEAM, stroke="ink", stroke_width=3),
        text(left - 6, BEAM - 2, ENDS[1], text_anchor="end", font_size=15, font_weight="600"),
        text(right + 6, BEAM - 2, ENDS[0], text_anchor="start", font_size=15, font_weight="600"),
        _marks(scene.marks), also,
    ])


def leaning(tokens: Sequence[str]) -> tuple[Array, Array]:
    """Return the vectors of words, and their leans: dot products with one end minus the other."""
    x = words.vectors(tokens)
    return x, x @ np.subtract(*words.vectors(ENDS))


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
        x, leans = leaning(sentences[sentence].split())
        scores = asked(x)
        return scores, softmax(scores / np.sqrt(2)), leans

    def draw(step: int, sentence: int) -> Frame:
        tokens = sentences[sentence].split()
        asks = tokens.index("bank")
        scores, weights, leans = taken(sentence)
        _, others, other_leans = taken(1 - sentence)
        output, equal, own = float(weights @ leans), float(leans.mean()), float(leans[asks])
        none, alone = [0.0] * len(tokens), np.maximum(np.eye(len(tokens))[asks], 0.02)
        arcs = [none, [1.0] * len(tokens), [round(2 + 36 * a) / 2 for a in weights]]
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
        )
        side = ENDS[0] if output > 0 else ENDS[1]
        pairs = [f"{t} {n}" for t, n in zip(tokens, numbers[min(step, 2)], strict=True)]
        best = int(np.argmax(weights.round(6)))
        share = f"{percent(weights[best])} from “{tokens[best]}”"
        title, more = (
            ("Alone, “bank” leans to money", "its vector is the same in every sentence"),
            ("Which words fit what “bank” asks?", "a score for each word"),
            (f"“bank” takes {share}", "the weight is each word’s share, in %, rounded"),
            (f"“bank” takes {share}: it leans to {side}", "sum of vectors, each times its weight"),
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
                    fill="muted", opacity=str(int(step == 0)), data_part="also")
        return Frame(draw_scene(scene, title, more, 8, also), said, rows)

    return moving(
        draw,
        (
            Control(
                "step", "step", ("alone", "scores", "weights", "output"), 3, pace=1.4, once=True
            ),
            Control("sentence", "sentence", tuple(SENTENCES), kind="choice"),
        ),
        WIDTH,
        HEIGHT,
        columns=("sentence", "word", "score", "weight", "lean"),
        about="bank in two sentences",
    )
