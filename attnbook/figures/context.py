"""A sentence whose words hang on a beam between two words: the moving figure of chapter 05."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnbook import words
from attnbook.figures.drawing import Array, line, number, rect, tag, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

SCALES = {"0": 0.0, "1/√384": 384**-0.5, "1": 1.0, "4": 4.0}
WIDTH, HEIGHT = 448.0, 316.0
# The sentence stands on a line; its numbers hang from another; the beam has a middle, where a lean
# of 0 is, and `UNIT` pixels to a lean of 1.
SENTENCE, NUMBERS, BEAM, MIDDLE, UNIT = 126.0, 147.0, 260.0, 224.0, 380.0
LEAST, LETTER, GAP = 28.0, 9.6, 14.0  # of a word: its least width, one letter, the space after it
KEYS = (20.0, 132.0, 308.0)  # where the three signs below the beam are explained


class Scene(NamedTuple):
    """What one frame shows of a sentence: one entry a word, unless it says otherwise."""

    tokens: Sequence[str]
    asks: int  # the place of the word that asks
    leans: Array
    arcs: Sequence[float]  # how thick
    numbers: Sequence[str]
    loads: Array  # the weights that the discs stand for
    fallen: bool  # whether the discs lie on the beam, or still hang at their words
    output: float | None  # where the beam balances
    equal: float | None  # where it would, were all weights equal
    scored: bool = False  # whether the numbers are scores, not yet weights


def percent(weight: float) -> str:
    """Return a weight as per cent.

    >>> percent(0.126)
    '13%'
    """
    return f"{100 * weight:.0f}%"


def thickness(weight: float) -> float:
    """Return how thick the arc of a weight is."""
    return round(2 + 36 * weight) / 2


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
    bow = (start - 26, end + 26) if start == end else (start, end)
    rise += 18 * (start == end)
    points = [(start, y), (bow[0], y - rise), (bow[1], y - rise), (end, y)]
    [first, *rest] = [f"{number(x)} {number(y)}" for x, y in points]
    path = f"M{first}C{' '.join(rest)}"
    return tag("path", d=path, fill="none", stroke=name, stroke_width=wide, data_part=part,
               stroke_opacity="0.8")  # fmt: skip


def _keys(own: float, equal: float | None, output: float | None) -> str:
    """Return the three signs below the beam, and what each stands for."""
    marks = []
    given = {"alone": own, "attention": output, "equal weights": equal}
    for (name, lean), key in zip(given.items(), (KEYS[0], KEYS[2], KEYS[1]), strict=True):
        there = "0" if lean is None else "1"
        x, y = on_beam(own if lean is None else lean), BEAM + 2
        strong = {"font_weight": "600", "fill": "output"} if name == "attention" else {}
        shown = "" if lean is None else f"{name} {decimal(lean)}"
        marks.append(text(key + 14, HEIGHT - 9, shown, text_anchor="start",
                          data_part=f"{name}-key", **strong))  # fmt: skip
        for part, where in ((f"{name}-sign", (key, HEIGHT - 24)), (f"{name}-mark", (x, y))):
            move = f"translate({number(where[0])} {number(where[1])})"
            look = {"transform": move, "data_part": part, "opacity": there}
            if name == "equal weights":
                marks.append(tag("circle", cy=9, r=5.5, fill="paper", stroke="ink",
                                 stroke_width=1.5, **look))  # fmt: skip
                continue
            empty = {"fill": "paper", "stroke": "muted", "stroke_dasharray": "3 2"}
            full = {"fill": "output", "stroke": "output"}
            marks.append(tag("polygon", points="0,0 10,17 -10,17", stroke_width=1.5,
                             **(empty if name == "alone" else full), **look))  # fmt: skip
    return "".join(marks)


def draw_scene(scene: Scene, title: str, most: int, ends: Sequence[str]) -> str:
    """Return a sentence with its arcs, and the beam below; there is room for `most` words."""
    spots, empty = centres(scene.tokens), most - len(scene.tokens)
    spots += [spots[-1]] * empty
    radii = [round(40 * load**0.5) / 2 for load in scene.loads] + [0.0] * empty
    beam = [on_beam(lean) for lean in scene.leans] + [MIDDLE] * empty
    heights = pile(beam, radii)
    name = "ink" if scene.scored else "weight"
    arcs, threads, row = [], [], []
    for j in range(most):
        here = j < len(scene.tokens)
        x, r = spots[j], radii[j]
        wide = scene.arcs[j] if here else 0
        arcs.append(_arc(spots[scene.asks], x, wide, name, f"arc-{j}"))
        hangs = (x, NUMBERS + 9 + r)
        at = (beam[j], BEAM - heights[j]) if scene.fallen and r else hangs
        threads.append(
            tag("line", x1=x, y1=NUMBERS + 7, x2=at[0], y2=at[1], stroke="value", stroke_width=1.2,
                stroke_dasharray="2 3", opacity="1" if scene.fallen and r else "0",
                data_part=f"thread-{j}")
            + tag("circle", cx=at[0], cy=at[1], r=r, fill="weight", fill_opacity="0.3",
                  stroke="weight", stroke_width=1.5 if r else 0, data_part=f"disc-{j}")
        )  # fmt: skip
        row.append(
            text(x, SENTENCE, scene.tokens[j] if here else "", font_size=17,
                 font_weight="700" if j == scene.asks else "400", data_part=f"word-{j}")
            + text(x, NUMBERS, scene.numbers[j] if here else "", font_size=14, fill=name,
                   data_part=f"number-{j}")
        )  # fmt: skip
    wide = room(scene.tokens[scene.asks]) + 18
    box = rect(spots[scene.asks] - wide / 2, SENTENCE - 18, wide, 25, "none", stroke="query",
               stroke_width=2, rx=5, data_part="asks")  # fmt: skip
    left, right = on_beam(-0.4), on_beam(0.4)
    return "".join([
        text(8, 19, title, text_anchor="start", font_weight="600", font_size=15, data_part="title"),
        *arcs, *threads, box, *row,
        tag("line", x1=left, y1=BEAM, x2=right, y2=BEAM, stroke="ink", stroke_width=3),
        line(MIDDLE, BEAM - 6, MIDDLE, BEAM + 6, "ink"),
        text(left - 8, BEAM + 5, ends[1], text_anchor="end", font_size=15, font_weight="600"),
        text(right + 8, BEAM + 5, ends[0], text_anchor="start", font_size=15, font_weight="600"),
        _keys(scene.leans[scene.asks], scene.equal, scene.output),
    ])  # fmt: skip


def leaning(tokens: Sequence[str], ends: Sequence[str]) -> tuple[Array, Array]:
    """Return the vectors of words, and their leans: dot products with one end minus the other."""
    x = words.vectors(tokens)
    return x, x @ np.subtract(*words.vectors(ends))


def word_in_context(
    word: str,
    sentences: Sequence[str],
    others: Sequence[str] = (),
    *,
    ends: tuple[str, str] = ("water", "money"),
    scales: Mapping[str, float] = SCALES,
    start: str = "1",
) -> MovingDrawing:
    """Return a moving figure: a word's weights and its output, in one sentence after the other.

    Queries, keys and values are the vectors of `attnbook.words` themselves. Controls pick the
    sentence, the word that asks, and the factor on the scores. Arcs are as thick as the weights.
    Below, each word lies on a beam where its own vector leans, to the first of `ends` or to the
    second, as a disc as large as its weight; the output is where the beam balances.

    Args:
        word: A word of every sentence; the figure opens with its question.
        sentences: Words of `attnbook.words`, with spaces between.
        others: Words that can ask too, in each sentence as many as in the first.
        ends: The two words that the beam lies between.
        scales: Factors on the scores, by the names that the control shows.
        start: The factor that the figure opens with.

    Raises:
        ValueError: when a sentence lacks the word, `start` is not among the scales, or sentences
            differ in how many of the other words they have.

    >>> word_in_context("bank", ["fish swim near the bank"]).alt
    '“bank” at scale 1 leans 0.03, alone −0.18, with equal weights 0.10.'
    """
    if start not in scales:
        raise ValueError(f"start must be one of {', '.join(scales)}; got {start!r}")
    split = [sentence.split() for sentence in sentences]
    for sentence, tokens in zip(sentences, split, strict=True):
        if word not in tokens:
            raise ValueError(f"each sentence must have the word {word!r}; got {sentence!r}")
    places = [[s.index(word), *(j for j, t in enumerate(s) if t in others)] for s in split]
    if len({len(place) for place in places}) > 1:
        raise ValueError(f"each sentence must have as many of {others}; got {sentences}")
    most, names = max(map(len, split)), list(scales)
    askers = (word, *(f"marked word {j}" for j in range(1, len(places[0]))))
    columns = ("sentence", "asks", "scale", "weights", "lean alone", "equal weights", "attention")

    def draw(sentence: int, asker: int, scale: int) -> Frame:
        tokens, asks = split[sentence], places[sentence][asker]
        x, leans = leaning(tokens, ends)
        weights = softmax(scales[names[scale]] * x @ x[asks])
        output, equal = float(weights @ leans), float(leans.mean())
        scene = Scene(tokens, asks, leans, [*map(thickness, weights)], [*map(percent, weights)],
                      weights, True, output, equal)  # fmt: skip
        title = f"“{tokens[asks]}” asks" + ("" if scales[names[scale]] else ", every weight equal")
        hits = []
        spots = centres(tokens)
        for one, place in enumerate(places[sentence]):
            wide = room(tokens[place]) + 12
            x0 = spots[place] - wide / 2
            hits.append(
                tag("line", x1=x0 + 6, x2=x0 + wide - 6, y1=SENTENCE + 5, y2=SENTENCE + 5,
                    stroke="ink", stroke_dasharray="2 2", data_part=f"can-{one}",
                    opacity="0" if place == asks else "1")
                + rect(x0, SENTENCE - 22, wide, 52, "ink", fill_opacity="0", class_="attn-hit",
                       data_pick=f"asks:{one}", data_part=f"hit-{one}")
            )  # fmt: skip
        said = f"“{tokens[asks]}” at scale {names[scale]} leans {decimal(output)}, alone "
        said += f"{decimal(leans[asks])}, with equal weights {decimal(equal)}."
        rows = [(sentences[sentence], tokens[asks], names[scale], ", ".join(map(decimal, weights)),
                 decimal(leans[asks]), decimal(equal), decimal(output))]  # fmt: skip
        return Frame(draw_scene(scene, title, most, ends) + "".join(hits), said, rows)

    return moving(
        draw,
        (
            Control("sentence", "sentence", tuple(sentences), kind="choice"),
            Control("asks", "who asks", askers, kind="choice"),
            Control("scale", "scale", tuple(scales), names.index(start)),
        ),
        WIDTH,
        HEIGHT,
        columns=columns,
        about="the word in its sentences",
    )
