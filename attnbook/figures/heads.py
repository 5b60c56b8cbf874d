"""Several heads: their weights, what each brings, and the way through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import (
    Array,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnbook.figures.products import lowered

# `head_weights`: room for a head's name, for a token, for a line of tokens, and for the arcs.
NAMES, TOKEN, LINE, ARCS = 112.0, 112.0, 104.0, 50.0


def _arc(x1: float, x2: float, base: float) -> str:
    """Return the path over a line of tokens from one to another, or a loop above itself."""
    rise = 0.5 * ARCS + 0.12 * abs(x1 - x2)
    foot, side = (9, 26) if x1 == x2 else (0, 0)
    points = [(x1 - foot, 0), (x1 - side, rise), (x2 + side, rise), (x2 + foot, 0)]
    start, *others = (f"{number(x)} {number(base - up)}" for x, up in points)
    return f"M{start}C{' '.join(others)}"


def head_weights(weights: ArrayLike, tokens: Sequence[str], asks: Sequence[str]) -> MovingDrawing:
    """Return a moving figure: what one token takes from each, in one head, and in each of several.

    The one head has the mean of the weights. `asks` says what each of the several looks for. Arcs
    are as thick as weights; the reader picks the token that asks.

    Shapes:
        weights (h, T, T), T labels of the tokens, h questions.

    >>> head_weights([[[0, 1], [1, 0]], [[1, 0], [1, 0]]], ["p", "q"], ["up", "down"]).alt
    'p asks. Head 0: q 1.00; head 1: p 1.00. One head: p 0.50, q 0.50.'
    """
    table, n_tokens = np.asarray(weights, dtype=np.float64), len(tokens)
    names = ["one head", *(f"head {n}" for n in range(len(asks)))]
    heads = np.round([table.mean(axis=0), *table], 2)
    middles = [NAMES + (j + 0.5) * TOKEN for j in range(n_tokens)]
    width = NAMES + n_tokens * TOKEN

    def draw(query: int) -> Frame:
        body = []
        for row, (name, ask) in enumerate(zip(names, ("mean of both", *asks), strict=True)):
            base = 8 + row * LINE + ARCS
            body += [
                text(4, base + 10, name, text_anchor="start", font_weight="600", font_size=15),
                axis_title(4, base + 28, ask, text_anchor="start"),
            ]
            for j, (x, token) in enumerate(zip(middles, tokens, strict=True)):
                weight, left = float(heads[row, query, j]), x - TOKEN / 2 + 4
                body += [
                    tag("path", d=_arc(middles[query], x, base), fill="none", stroke="weight",
                        stroke_width=number(12 * weight), data_part=f"arc-{row}-{j}"),
                    rect(left, base, TOKEN - 8, 26, "weight", fill_opacity=number(0.4 * weight),
                         data_part=f"fill-{row}-{j}"),
                    rect(left, base, TOKEN - 8, 26, stroke="key", stroke_dasharray="5 3"),
                    text(x, base + 18, token),
                    text(x, base + 42, f"{weight:.2f}", fill="weight",
                         font_weight="600" if weight >= 0.5 else "400",
                         data_part=f"weight-{row}-{j}"),
                ]
            body.append(
                rect(NAMES + query * TOKEN + 4, base, TOKEN - 8, 26, stroke="query",
                     stroke_width=3, data_part=f"query-{row}")
            )
        body.append(line(4, 8 + LINE - 5, width - 4, 8 + LINE - 5, "grid"))
        body += [
            hit(NAMES + j * TOKEN, 0, TOKEN, len(names) * LINE, f"query:{j}", drag=True)
            for j in range(n_tokens)
        ]
        told = [
            ", ".join(f"{tokens[j]} {row[query, j]:.2f}" for j in range(n_tokens) if row[query, j])
            for row in heads
        ]
        one, *several = (f"{name}: {words}" for name, words in zip(names, told, strict=True))
        words = f"{tokens[query]} asks. {'; '.join(several).capitalize()}. {one.capitalize()}."
        return Frame("".join(body), words, ((tokens[query], *told),))

    return moving(
        draw,
        (Control("query", "query", tuple(tokens)),),
        width,
        8 + len(names) * LINE,
        columns=("query", *names),
        about="the weights of each head",
    )


# `which_head`: the shares of the sender that one head may give; the left edges of both envelopes,
# their width and height; the tops of those that one head writes and that two heads write.
SHARES = 0.0, 0.3, 0.5, 0.7, 1.0
EDGES, LETTER, PAPER, ONE, TWO = (2.0, 222.0), 212.0, 76.0, 84.0, 204.0


def which_head(
    people: Mapping[str, ArrayLike], pair: tuple[str, str], weights: ArrayLike
) -> MovingDrawing:
    """Return a moving figure: the addresses that one head and two heads write on two envelopes.

    The two letters are between the same two people, one in each direction. The reader picks how
    much of its weight the one head gives to the sender. Of each address on an envelope the colours
    are the people that are in it, each as wide as its weight; a tick stands where it is right, to
    two decimals, and a cross where it is not. The table has all entries.

    Shapes:
        an address (m,) of entries from −1 to 1 for each person, weights (2, 3): what the token
        *letter* gives to itself, the sender and the recipient in each of the two heads.

    >>> which_head({"A": [1.0], "B": [-1.0]}, ("A", "B"), [[0, 1, 0], [0, 0, 1]]).alt
    'One head, 0.5 to the sender, writes the same on both envelopes: 0 of 4 addresses are right. \
Two heads: 4 of 4 are right.'
    """
    heads = np.asarray(weights, dtype=np.float64)
    codes = {name: np.asarray(code, dtype=np.float64) for name, code in people.items()}
    m, looks = len(codes[pair[0]]), dict(zip(sorted(pair), ("plus", "minus"), strict=True))

    def address(x: float, y: float, row: Array, way: Sequence[str], part: str) -> str:
        """Return the shares side by side: a mixture does not know their order."""
        wide = LETTER - 84
        shares, body = dict(zip(way, row[1:].tolist(), strict=True)), ""
        left = x
        for place, name in enumerate(sorted(way)):
            long, there = round(wide * shares[name], 1), f"{part}-{place}"
            told = name if shares[name] == 1 else f"{shares[name]:g} {name}"
            told = told if long > 7.2 * len(told) else f"{shares[name]:g}" if long > 24 else ""
            middle = left + long / 2 if told else x + wide / 2
            body += rect(left, y, long, 24, looks[name], fill_opacity="0.3", data_part=there)
            body += text(round(middle, 1), y + 17, told, data_part=f"{there}-name")
            left = round(left + long, 1)
        return body + rect(x, y, wide, 24, stroke="ink")

    def envelope(x0: float, top: float, rows: Sequence[Array], way: Sequence[str],
                 right: Sequence[bool], part: str) -> str:
        """Return an envelope with two addresses, and whether each is right."""
        body = rect(x0, top, LETTER, PAPER, "paper", rx=5, stroke="ink", stroke_width=2)
        for line_no, (word, row, good) in enumerate(zip(("from", "to"), rows, right, strict=True)):
            y, there = top + 10 + 32 * line_no, f"{part}-{line_no}"
            body += text(x0 + 8, y + 17, word, text_anchor="start")
            body += address(x0 + 46, y, row, way, there)
            body += text(x0 + LETTER - 19, y + 19, "✓" if good else "✗", font_size=19,
                         font_weight="600", data_part=f"{there}-right")
        return body

    def draw(place: int) -> Frame:
        share = SHARES[place]
        one = np.array([0, share, 1 - share]).round(2)
        body, table, right, mixtures = [], [], [0, 0], []
        for x0, way in zip(EDGES, (pair, pair[::-1]), strict=True):
            body.append(text(x0 + LETTER / 2, 48, "letter from {} to {}".format(*way)))
            addresses = np.stack([np.zeros(m), *(codes[name] for name in way)])
            found = np.round(np.vstack([one, heads]) @ addresses, 2) + 0.0
            mixtures.append(found[0])
            for n, (top, rows, halves) in enumerate(
                ((ONE, [one, one], found[[0, 0]]), (TWO, list(heads), found[1:]))
            ):
                good = [
                    bool(np.abs(half - codes[name]).max() < 0.006)
                    for half, name in zip(halves, way, strict=True)
                ]
                right[n] += sum(good)
                body.append(envelope(x0, top, rows, way, good, f"{n}-{way[0]}"))
            cells = [", ".join(f"{v:g}".replace("-", "−") for v in row) for row in found]
            name = " to ".join(way)
            table += [(name, f"one head, {share:g}", cells[0], ""), (name, "two heads", *cells[1:])]
        same = np.abs(mixtures[0] - mixtures[1]).max() < 0.006
        writes = (
            "writes the same on both envelopes" if same
            else "writes a mixture for both people" if 0 < share < 1
            else "has room for one person only"
        )
        given = f"one head, {share:g} to the sender"
        body += [
            headline(2, 18, f"One head {writes}", "title"),
            *(text(2, top - 9, f"{words}: {count} of 4 right", text_anchor="start",
                   font_weight="600", data_part=f"count-{top:g}")
              for top, words, count in zip((ONE, TWO), (given, "two heads"), right, strict=True)),
        ]
        said = (f"{given.capitalize()}, {writes}: {right[0]} of 4 addresses are right.\n"
                f"Two heads: {right[1]} of 4 are right.")
        return Frame("".join(body), said, table)

    return moving(
        draw,
        (Control("share", "to the sender", tuple(f"{s:g}" for s in SHARES), 2),),
        436,
        TWO + PAPER + 2,
        columns=("letter", "weights", f"places 0 to {m - 1}", f"places {m} to {2 * m - 1}"),
        about="which head takes what",
    )


def _spread(middle: float, step: float, count: int) -> list[float]:
    """Places at equal steps, about the middle."""
    return [middle + (index - (count - 1) / 2) * step for index in range(count)]


# `heads_diagram`: a number's side, the room for the names at the left, and the tops of its rows.
UNIT, SIDE = 6.0, 84.0
COLOUR_OF, SHADES = {"Q": "query", "K": "key", "V": "value"}, (0.12, 0.3, 0.5, 0.7)
TOPS = (46.0, 116.0, 188.0, 248.0, 328.0, 390.0)


def heads_diagram(n_tokens: int, d_model: int, n_heads: int, d_k: int, d_v: int) -> MovingDrawing:
    """Return a moving figure: the way from X through the heads to the output, in five steps.

    Every matrix has its true shape, a small square a number. Pieces of one head have its number; a
    dashed frame stays where a piece has been.
    """
    widths = {"Q": d_k, "K": d_k, "V": d_v}
    wide = UNIT * (2 * d_k + d_v) + 8  # the three pieces of a head, with their gaps
    width, tall = SIDE + n_heads * (wide + 18) + 2, UNIT * n_tokens
    middle = (SIDE + width) / 2
    columns = _spread(middle, wide + 18, n_heads)
    strips = _spread(middle, (width - SIDE) / 3, 3)
    steps = ("project", "split", "attend", "concatenate", "times W_O")
    titles = ("One product gives the queries of all heads", "Each head gets its own columns",
              "Each head attends by itself", "The outputs come side by side",
              "The last product mixes the heads")
    found = n_heads * d_v

    def block(x: float, top: float, wide: int, colour: str, words: str = "",
              part: str | None = None, there: bool = True) -> str:
        """Return a matrix with its upper left corner at (x, top), ruled into its numbers."""
        w = UNIT * wide
        ruled = [f"M{number(UNIT * n)} 0v{number(tall)}" for n in range(1, wide)]
        ruled += [f"M0 {number(UNIT * n)}h{number(w)}" for n in range(1, n_tokens)]
        shade = SHADES[int(words or 0) % len(SHADES)]
        inner = (
            rect(0, 0, w, tall, "paper")
            + rect(0, 0, w, tall, colour, fill_opacity=number(shade), stroke=colour)
            + tag("path", d="".join(ruled), stroke=colour, stroke_opacity="0.3", stroke_width=0.6)
            + text(w / 2, tall / 2 + 6, words, font_size=17, font_weight="600")
        )
        moves = f"translate({number(x)} {number(top)})"
        return tag("g", inner, transform=moves, opacity=number(there), data_part=part)

    def ghost(x: float, top: float, wide: int, colour: str, part: str, there: bool) -> str:
        """Return what stays where a piece has been."""
        return rect(x, top, UNIT * wide, tall, colour, fill_opacity="0.1", stroke=colour,
                    stroke_dasharray="2 3", opacity=number(there), data_part=part)

    def shape(x: float, y: float, words: str, colour: str, part: str, there: bool) -> str:
        return text(x, y, words, fill=colour, opacity=number(there), data_part=part)

    def draw(step: int) -> Frame:
        body = [
            block(middle - UNIT * d_model / 2, TOPS[0], d_model, "muted"),
            text(middle, TOPS[0] - 5, f"X: {n_tokens} × {d_model}"),
            headline(2, 17, titles[step], "title"),
        ]
        below = ("", f"{n_tokens} × {d_k}, {n_tokens} × {d_v}", "weights · V", "", "")
        for place, (name, more) in enumerate(zip(steps, below, strict=True)):
            y, seen = TOPS[place + 1] + tall / 2 + 5 - 8 * bool(more), place <= step
            look: dict[str, Any] = {"text_anchor": "start", "opacity": "1" if seen else "0.7"}
            bold = "600" if place == step else "400"
            body += [
                text(2, y, name, font_weight=bold, data_part=f"step-{place}", **look),
                axis_title(2, y + 18, more, data_part=f"more-{place}", **look),
            ]
        for place, (letter, size) in enumerate(widths.items()):
            colour, left = COLOUR_OF[letter], strips[place] - UNIT * n_heads * size / 2
            title = lowered(f"XW_{letter}") + f"\u2002{n_tokens} × {n_heads * size}"
            body.append(tag("text", title, x=strips[place], y=TOPS[1] - 7, font_size=13,
                            fill=colour, text_anchor="middle"))
            for head, x in enumerate(columns):
                name, here = f"{letter}{head}", left + UNIT * head * size
                there = x - wide / 2 + (UNIT * d_k + 4) * place
                at = (there, TOPS[2]) if step else (here, TOPS[1])
                body += [
                    ghost(here, TOPS[1], size, colour, f"was-{name}", step > 0),
                    shape(there + UNIT * size / 2, TOPS[2] - 5, letter, colour, f"of-{name}",
                          step > 0),
                    block(*at, size, colour, str(head), name),
                ]
        for head, x in enumerate(columns):
            left = x - (UNIT * (n_tokens + d_v) + 8) / 2
            out, value = left + UNIT * n_tokens + 8, x + wide / 2 - UNIT * d_v
            joined = middle - UNIT * found / 2 + UNIT * head * d_v
            # It comes out of the values, and goes to its place beside the others.
            at = [(value, TOPS[2]), (out, TOPS[3]), (joined, TOPS[4])][min(max(step - 1, 0), 2)]
            under = TOPS[3] + tall + 16
            body += [
                block(left, TOPS[3], n_tokens, "weight", str(head), f"A{head}", step > 1),
                shape(left + tall / 2, under, f"{n_tokens} × {n_tokens}", "weight", f"of-A{head}",
                      step > 1),
                ghost(out, TOPS[3], d_v, "output", f"was-O{head}", step > 2),
                shape(out + UNIT * d_v / 2 + 3, under, f"{n_tokens} × {d_v}", "output",
                      f"of-O{head}", step > 1),
                block(*at, d_v, "output", str(head), f"O{head}", step > 1),
            ]
        right = middle + UNIT * found / 2 + 8
        body += [
            text(right, TOPS[4] + tall / 2 + 5, f"{n_tokens} × {found}", fill="output",
                 text_anchor="start", opacity=number(step > 2), data_part="joined-shape"),
            block(middle - UNIT * d_model / 2, TOPS[5 if step > 3 else 4], d_model,
                  "muted", "", "Y", step > 3),
            text(middle + UNIT * d_model / 2 + 8, TOPS[5] + tall / 2 + 5,
                 f"Y: {n_tokens} × {d_model}", text_anchor="start", opacity=number(step > 3),
                 data_part="Y-shape"),
        ]
        told = (
            f"X ({n_tokens} × {d_model}) gives X W_Q and X W_K ({n_tokens} × {n_heads * d_k} "
            f"each) and X W_V ({n_tokens} × {found})",
            f"each is cut into {n_heads} pieces, one a head: {n_tokens} × {d_k}, and "
            f"{n_tokens} × {d_v} for values",
            f"each head has its own weights ({n_tokens} × {n_tokens}) and output "
            f"({n_tokens} × {d_v})",
            f"the outputs come together side by side ({n_tokens} × {found})",
            f"times W_O ({found} × {d_model}) they are the output Y ({n_tokens} × {d_model})",
        )
        before = "; ".join(told[:step])
        words = f"{steps[step]}: {told[step]}." + f"\nBefore: {before}." * bool(step)
        return Frame("".join(body), words, ((steps[step], told[step]),))

    return moving(
        draw,
        (Control("step", "step", ("project", "split", "attend", "join", "W_O"), 4, pace=1.6),),
        width,
        TOPS[5] + tall + 6,
        columns=("step", "what happens"),
        about="split, attend, concatenate",
    )
