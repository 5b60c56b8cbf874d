"""All heads of a trained model, each a small picture of its weights: the figure of chapter 19."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import WIDEST, Array, axis_title, headline, number, rect, tag, text
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

# A small picture and its room; where the pictures begin; a letter's width; the length of a line.
PICTURE, ROOM, LEFT, TOP, LETTER, LINES = 24.0, 26.0, 38.0, 66.0, 7.6, 108.0
LEVELS = ((0.2, "0.4"), (0.4, "1"))  # from such a weight on, a picture has a cell, and how strong
PLAIN = {"fill": None, "text_anchor": None, "font_size": None}  # what a group of texts says once
LEAST = 0.1  # a smaller weight has no line: with them the frames would be too many bytes


def _picture(weights: Array, least: float) -> str:
    """Return the path of the cells from a weight on, each column's runs as strokes downwards."""
    path = ""
    for key, column in enumerate((weights >= least).T):
        edges = np.flatnonzero(np.diff(np.r_[0, column.astype(int), 0]))
        path += "".join(f"M{key} {a}v{b - a}" for a, b in edges.reshape(-1, 2))
    return path or "M0 0"


def _looks(weights: Array, tokens: Sequence[str]) -> str:
    """Return the two tokens that a token most looks at, with percent."""
    order = np.argsort(-weights.round(6), kind="stable")[:2]
    seen = [f"{tokens[key]} {weights[key]:.0%}" for key in order if weights[key] >= LEAST]
    return ", ".join(seen) or "nothing"


def head_explorer(
    sentences: Mapping[str, Sequence[str]],
    weights: ArrayLike,
    *,
    looks: tuple[str, ...],
    start: tuple[int, int] = (0, 0),
    model: str = "",
) -> MovingDrawing:
    """Return a moving figure: a picture of the weights of each head, and one head as lines.

    A line is as thick as its weight; weights below 10 percent have none. Those of the query
    `looks[0]` stand out; its weights of the other tokens of `looks`, one or two, are told in
    percent for all sentences. Three heads have names: of the means over the first sentence, they
    give most weight one token back, to the first token, and from `looks[0]` to `looks[1]`. The
    pictures, too, are of the first sentence. `start` is (layer, head), from 0, and `model` the name
    of the model.

    Shapes:
        weights (sentences, layers, heads, T, T); T tokens in each sentence, at its name.

    >>> a = {"one": ["[CLS]", "it"]}
    >>> head_explorer(a, [[[[[1, 0], [0.75, 0.25]]]]], looks=("it", "[CLS]")).alt
    'layer 0, head 0, one: it looks at [CLS] 75%, it 25%.'
    """
    table = np.asarray(weights, dtype=np.float64)
    names, both = tuple(sentences), [tuple(tokens) for tokens in sentences.values()]
    n_layers, n_heads, n_tokens = table.shape[1:4]
    places = [[tokens.index(look) for look in looks if look in tokens] for tokens in both]
    if any(place != places[0] for place in places):
        raise ValueError(f"looks must be at the same places in all sentences; got {looks}")
    it, noun = places[0][:2]
    longest = max((token for tokens in both for token in tokens), key=len)
    column = LEFT + n_layers * ROOM + 16
    query_at = round(column + LETTER * max(len(longest), 6)) + 5
    key_at = query_at + LINES
    width = max(key_at + query_at - column + 2, WIDEST)
    tall = max(n_heads * ROOM, 19 * n_tokens)
    middles = [round(TOP + (place + 0.5) * tall / n_tokens) for place in range(n_tokens)]
    means = {
        "one token back": np.trace(table[0, :, :, 1:, :-1], axis1=2, axis2=3) / (n_tokens - 1),
        f"at {both[0][0]}": table[0, ..., 0].mean(axis=-1),
        f"{looks[0]} → {looks[1]}": table[0, :, :, it, noun],
    }
    named = {name: divmod(int(mean.round(6).argmax()), n_heads) for name, mean in means.items()}

    pictures, scale = "", PICTURE / n_tokens
    for layer, head in np.ndindex(n_layers, n_heads):
        # A stroke lies about its line: the first column is half a cell from the edge.
        x, y = LEFT + layer * ROOM + 1 + scale / 2, TOP + head * ROOM + 1
        moves = f"translate({number(x)} {number(y)}) scale({number(scale)})"
        inner = tag("rect", x=-0.5, width=n_tokens, height=n_tokens, stroke="none")
        for least, shade in LEVELS:
            path = _picture(table[0, layer, head], least)
            inner += tag("path", d=path, stroke_opacity=shade if shade != "1" else None)
        pictures += tag("g", inner, transform=moves,
                        data_pick=f"layer:{layer} head:{head}")
    marks = {"[CLS]": "start", "[SEP]": "end"}
    said = ", ".join(f"{token}: {marks[token]}" for token in both[0] if token in marks)
    notes = [
        f"{said}. " * bool(said) + f"Weights below {LEAST:.0%} have no line.",
        f"Small pictures: “{names[0]}”" + f" Model: {model}" * bool(model),
    ]
    foot = TOP + tall + 18
    still = [
        axis_title(2, TOP - 8, "layer", text_anchor="start"),
        axis_title(13, TOP + tall / 2, "head", upright=True),
        *(text(LEFT + (n + 0.5) * ROOM, TOP - 8, str(n)) for n in range(n_layers)),
        *(text(LEFT - 5, TOP + (n + 0.5) * ROOM + 4.5, str(n), text_anchor="end")
          for n in range(n_heads)),
        rect(LEFT, TOP, n_layers * ROOM, n_heads * ROOM, "grid"),
        tag("g", pictures, fill="paper", stroke="weight"),
        text(query_at - 5, TOP - 8, "query", text_anchor="end", fill="query"),
        text(key_at + 5, TOP - 8, "key", text_anchor="start", fill="key"),
        *(axis_title(8, foot + 17 * n, words, text_anchor="start")
          for n, words in enumerate((*notes, "The head that looks most:"))),
    ]
    beside = []  # where a weight of `looks[0]` stands: sentence, key, x
    differ = [n for n in range(n_tokens) if len({tokens[n] for tokens in both}) > 1]
    x = 8.0
    for look, key in zip(looks[1:], places[0][1:], strict=True):
        name = f"{looks[0]} → {look}:" if key == noun else f"{look}:"
        still.append(text(x, 37, name, text_anchor="start"))
        x += 6.6 * len(name) + 4
        for n, tokens in enumerate(both):
            word = tokens[differ[0]] if differ else names[n]
            x += 6 * len(word) + 8
            still.append(text(x, 37, word, text_anchor="end", fill="muted"))
            beside.append((n, key, x + 4))
            x += 39
        x += 4
    pairs = [
        (query, key)
        for query, key in product(range(n_tokens), repeat=2)
        if table[:, :, :, query, key].max().round(6) >= LEAST
    ]
    step = (width - 8) / len(named)

    def draw(sentence: int, layer: int, head: int) -> Frame:
        shown, tokens = table[sentence, layer, head].round(6), both[sentence]
        title, told = f"layer {layer}, head {head}", _looks(shown[it], tokens)
        lines = {True: "", False: ""}
        for number_of, (query, key) in enumerate(pairs):
            # One character, so that many frames stay small: thickness, and 0 for none.
            thick = str(round(9 * shown[query, key])) if shown[query, key] >= LEAST else "0"
            start, end = middles[query], middles[key]
            path = f"M0 {start}C45 {start} 63 {end} {LINES:g} {end}"
            lines[query == it] += tag(
                "path", d=path, stroke_width=thick, data_part=f"{number_of:x}"
            )
        look = {"fill": "none", "stroke": "weight", "transform": f"translate({query_at:g} 0)"}
        body = [
            *still,
            rect(LEFT + layer * ROOM - 1, TOP + head * ROOM - 1, ROOM + 2, ROOM + 2, rx=3,
                 stroke="ink", stroke_width=3, data_part="chosen"),
            headline(8, 16, title, "title"),
            text(152, 16, f"{looks[0]} looks at {told}", text_anchor="start", fill="weight",
                 font_weight="600", data_part="told"),
            *(text(at, 37, f"{table[n, layer, head, it, key].round(6):.0%}", text_anchor="start",
                   fill="weight", font_weight="600", data_part=f"percent-{n}-{key}")
              for n, key, at in beside),
            tag("g", lines[False], stroke_opacity="0.15", **look),
            tag("g", lines[True], **look),
            rect(column - 3, middles[it] - 10, query_at - column + 3, 20, rx=3, stroke="query",
                 stroke_width=2),
        ]
        for x, anchor, side in ((query_at - 5, "end", "q"), (key_at + 5, "start", "k")):
            column_of = ""
            for place, (token, y) in enumerate(zip(tokens, middles, strict=True)):
                differs = len({tokens[place] for tokens in both}) > 1
                part = f"{side}{place}" if differs else None
                column_of += text(x, y + 4.5, token, data_part=part, **PLAIN)
            body.append(tag("g", column_of, fill="ink", text_anchor=anchor, font_size=13))
        for place, (name, (one, other)) in enumerate(named.items()):
            x, y = 8 + place * step, TOP + tall + 60
            thick = "3" if (one, other) == (layer, head) else "1"
            body += [
                rect(x, y, step - 8, 26, rx=13, stroke="ink", stroke_width=thick,
                     data_part=f"name-{place}"),
                text(x + step / 2 - 4, y + 17.5, name),
                hit(x, y, step - 8, 26, f"layer:{one} head:{other}"),
            ]
        row = (
            f"{layer}.{head}",
            *(f"{100 * mean[layer, head]:.0f}" for mean in means.values()),
            *(_looks(table[n, layer, head, it], both[n]) for n in range(len(both))),
        )
        words = f"{title}, {names[sentence]}: {looks[0]} looks at {told}."
        return Frame("".join(body), words, (row,))

    return moving(
        draw,
        (
            Control("sentence", "sentence", names, kind="choice"),
            Control("layer", "layer", tuple(map(str, range(n_layers))), start[0]),
            Control("head", "head", tuple(map(str, range(n_heads))), start[1]),
        ),
        width,
        TOP + tall + 90,
        columns=("layer.head", *named, *(f"{looks[0]} looks at, {name}" for name in names)),
        about="where each head looks",
    )
