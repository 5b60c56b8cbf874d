"""Where each token looks in one layer after another: the figure of chapter 17."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Array, axis_title, number, rect, tag, text
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving

STEP, EDGE = 27.0, 8.0  # a token's width, and the room beside the first
ARCS, BOX, ROOM = 74.0, 26.0, 158.0  # the height of the arcs, of a token, and of a layer
LEAST = 0.005  # what rounds to 0 percent is not drawn


def _arc(query: int, key: int, base: float) -> str:
    """Return the path from one token's upper edge to that of another, or a loop above itself."""
    start, end = (EDGE + (place + 0.5) * STEP for place in (query, key))
    if query == key:
        return f"M{number(start - 6)} {number(base)}a6 9 0 1 1 12 0"
    rise = 2 * min(ARCS - 14, 14 + 6 * abs(query - key)) * 2 / 3
    return (
        f"M{number(start)} {number(base)}C{number(start)} {number(base - rise)} "
        f"{number(end)} {number(base - rise)} {number(end)} {number(base)}"
    )


def _layer(
    index: int, name: str, weights: Array, query: int, tokens: Sequence[str], top: float
) -> str:
    base = top + 22 + ARCS
    body = [text(4, top + 15, name, text_anchor="start", font_style="italic")]
    for key, token in enumerate(tokens):
        x, weight = EDGE + key * STEP, weights[query, key]
        part = f"{index}-{key}"
        seen = weight >= LEAST
        role = "query" if key == query else "key" if seen else "muted"
        body += [
            tag("path", d=_arc(query, key, base), fill="none", stroke="weight",
                stroke_width=number(0.75 + 3 * weight), opacity=number(seen),
                data_part=f"a{part}"),
            rect(x + 1, base, STEP - 2, BOX, "weight", fill_opacity=number(0.45 * weight),
                 data_part=f"f{part}"),
            rect(x + 1, base, STEP - 2, BOX, stroke=role,
                 stroke_width=number(3 if key == query else 1), data_part=f"b{part}"),
            text(x + STEP / 2, base + 18, token),
            text(x + STEP / 2, base + BOX + 17, f"{100 * weight:.0f}" if seen else " ",
                 data_part=f"w{part}"),
        ]
    return "".join(body)


def _found_before(
    index: int, before: Array, after: Array, query: int, tokens: Sequence[str], top: float
) -> tuple[str, str]:
    """Return where the token that the next layer finds had looked itself, drawn and in words.

    This look, and not that of the query, is why the next layer finds the token.
    """
    found = int(after[query].argmax())
    seen = int(before[found].argmax())
    there = after[query, found] >= 0.5 and before[found, seen] >= 0.5
    words = f"{tokens[found]} at {found} has looked at {tokens[seen]} at {seen}" if there else ""
    arc = tag("path", d=_arc(found, seen, top + 22 + ARCS), fill="none", stroke="key",
              stroke_width=2, stroke_dasharray="4 3", opacity=number(there),
              data_part=f"found{index}")
    note = text(EDGE + len(tokens) * STEP, top + 15, words or " ", text_anchor="end", fill="key",
                data_part=f"note{index}")
    return arc + note, words


def _words(name: str, weights: Array, query: int, tokens: Sequence[str]) -> str:
    """Say at which tokens a token looks in a layer."""
    seen = [
        key for key in np.argsort(-weights[query], kind="stable") if weights[query, key] >= LEAST
    ]
    at = ", ".join(f"{tokens[key]} at {key} ({weights[query, key]:.0%})" for key in seen[:3])
    more = f" and {len(seen) - 3} more" if len(seen) > 3 else ""
    return f"{name}: {at or 'nothing'}{more}"


def looking_back(
    tokens: Sequence[str],
    layers: Mapping[str, ArrayLike],
    guesses: Sequence[str],
    *,
    start: int = 0,
    about: str = "where each token looks",
) -> MovingDrawing:
    """Return a moving figure: where one token looks in each layer, as arcs; a slider picks it.

    The weights stand below the tokens, in percent, and below them the token's guess. In a layer
    before the last, a dashed arc says where the token that the next layer finds had looked.

    Shapes:
        weights (T, T) for each layer; T tokens and T guesses, at most 16.

    >>> looking_back("ab", {"layer 1": [[1, 0], [0.5, 0.5]]}, ["b", "a"], start=1).alt
    'token 1, b, guess: a. layer 1: a at 0 (50%), b at 1 (50%).'
    """
    tables = {name: np.asarray(weights, dtype=np.float64) for name, weights in layers.items()}
    width, bottom = 2 * EDGE + len(tokens) * STEP, len(tables) * ROOM

    def draw(query: int) -> Frame:
        body = [
            _layer(index, name, table, query, tokens, index * ROOM)
            for index, (name, table) in enumerate(tables.items())
        ]
        found = [
            _found_before(index, *pair, query, tokens, index * ROOM)
            for index, pair in enumerate(pairwise(tables.values()))
        ]
        body += [drawn for drawn, _ in found]
        body += [
            text(4, bottom + 18, f"guess: {guesses[query]}", text_anchor="start",
                 font_weight="600", data_part="note"),
            axis_title(4, bottom + 40, "weights in percent", text_anchor="start"),
        ]
        said = [_words(name, table, query, tokens) for name, table in tables.items()]
        looks = [words.split(": ", 1)[1] for words in said]
        said += [words for _, words in found if words]
        words = f"token {query}, {tokens[query]}, guess: {guesses[query]}.\n{'; '.join(said)}."
        row = (f"{query}: {tokens[query]}", *looks, guesses[query])
        return Frame("".join(body), words, (row,))

    slider = Control("token", "token", tuple(f"{i}: {x}" for i, x in enumerate(tokens)), start)
    columns = ("token", *tables, "guess")
    return moving(draw, (slider,), max(width, 300), bottom + 48, columns=columns, about=about)
