"""Several heads: their weights, what each brings, and the way through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import (
    Array,
    Drawing,
    arrow,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import HALO, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnbook.figures.products import lowered

# `head_weights`: the tops of the tokens and of the outputs, how high the arcs rise, the sides of
# a number, and the room between the heads.
TOKENS, OUTPUTS, ARCS, ENTRY, APART = 96.0, 176.0, 36.0, (27.0, 28.0), 16.0


def _arc(x1: float, x2: float, base: float) -> str:
    """Return the path over a line of tokens from one to another, or a loop above itself."""
    rise = 0.5 * ARCS + 0.12 * abs(x1 - x2)
    foot, side = (9, 26) if x1 == x2 else (0, 0)
    points = [(x1 - foot, 0), (x1 - side, rise), (x2 + side, rise), (x2 + foot, 0)]
    start, *others = (f"{number(x)} {number(base - up)}" for x, up in points)
    return f"M{start}C{' '.join(others)}"


def head_weights(
    weights: Mapping[str, ArrayLike], tokens: Sequence[str], values: ArrayLike
) -> Drawing:
    """Return a drawing of what the first token takes in two heads, and what they bring together.

    Each head has its weights under the question that it asks. Arcs are as thick as weights. Below
    each head stands its output, and both outputs are one row. Below them is what the mean of both
    rows of weights brings.

    Shapes:
        two rows of weights (T,), those of the first token, T labels of the tokens, values (T, m).

    >>> head_weights({"up": [0, 1], "down": [1, 0]}, ["p", "q"], [[2], [4]]).alt
    'Two heads bring 2 numbers. Head 0, up: p 0.00, q 1.00 gives 4.0. \
Head 1, down: p 1.00, q 0.00 gives 2.0. The mean of both rows, p 0.50, q 0.50, gives 3.0.'
    """
    table = np.array([*weights.values()], dtype=np.float64)
    v, (wide, high) = np.asarray(values, dtype=np.float64), ENTRY
    room = wide * v.shape[1]
    body = [headline(2, 18, "Two heads bring both addresses, side by side", "title")]
    told = []

    def row(left: float, top: float, entries: Array, shade: str) -> list[str]:
        """Return the numbers of an output, each in a cell."""
        cells = []
        for j, entry in enumerate(entries):
            cells += [rect(left + wide * j, top, wide, high, shade, fill_opacity="0.12",
                           stroke=shade),
                      text(left + wide * (j + 0.5), top + 19, decimal(entry, 1).removesuffix(".0"),
                           font_weight="600")]
        return cells

    for n, (ask, given) in enumerate(zip(weights, table, strict=True)):
        # The outputs touch in the middle. Each head stands above its own, and there is room between
        # the heads; a token's box is as wide as its word needs.
        left, shade = 4 + n * room, ("plus", "minus")[n]
        widths = np.array([7.2 * len(token) for token in tokens])
        widths += (room - APART - 4 * (len(tokens) - 1) - widths.sum()) / len(tokens)
        edges = left + APART / 2 + np.cumsum(widths + 4) - widths - 4
        middles = (edges + widths / 2).tolist()
        body += [text(left + room / 2, 44, f"head {n}: “{ask}”", font_weight="600", fill=shade)]
        for j, (x, token) in enumerate(zip(middles, tokens, strict=True)):
            weight = float(given[j])
            body += [
                tag("path", d=_arc(middles[0], x, TOKENS), fill="none", stroke="weight",
                    stroke_width=number(9 * weight)),
                rect(x - widths[j] / 2, TOKENS, widths[j], 26, "weight",
                     fill_opacity=number(0.3 * weight), stroke="key" if j else "query",
                     stroke_width=1 if j else 2.5, stroke_dasharray="5 3" if j else None),
                text(x, TOKENS + 18, token),
                text(x, TOKENS + 43, f"{weight:.2f}", fill="weight",
                     font_weight="600" if weight >= 0.5 else "400", **HALO),
            ]
        most = int(given.argmax())
        top, mostly = middles[most], "mostly " * bool(given[most] < 0.995)
        body += [arrow(top, TOKENS + 50, top, OUTPUTS - 4, shade, 2),
                 *row(left, OUTPUTS, given @ v, shade),
                 text(left + room / 2, OUTPUTS + high + 17, f"{mostly}address in “{tokens[most]}”",
                      fill=shade)]
        told.append(f"Head {n}, {ask}: {_shared(tokens, given)} gives {_listed(given @ v)}")
    mean = table.mean(axis=0)
    foot = OUTPUTS + high + 20
    body += [
        tag("path", d=f"M5 {number(foot + 5)}v7h{number(2 * room - 2)}v-7", fill="none",
            stroke="ink", stroke_width=1.5),
        text(4 + room, foot + 29, f"{2 * v.shape[1]} numbers for “{tokens[0]}”", font_weight="600"),
        line(4, foot + 46, 4 + 2 * room, foot + 46, "grid"),
        text(4, foot + 69, "One head with the mean of", text_anchor="start"),
        text(4, foot + 87, "both rows of weights,", text_anchor="start"),
        text(4, foot + 105, f"{', '.join(f'{w:.2f}' for w in mean)}:", fill="weight",
             text_anchor="start", font_weight="600"),
        *row(4 + room, foot + 56, mean @ v, "muted"),
        text(4 + 1.5 * room, foot + 105, f"{v.shape[1]} numbers, half of each"),
    ]
    alt = (f"Two heads bring {2 * v.shape[1]} numbers. {'. '.join(told)}. The mean of both rows, "
           f"{_shared(tokens, mean)}, gives {_listed(mean @ v)}.")
    return Drawing.from_elements("".join(body), 8 + 2 * room, foot + 113, alt)


def _shared(tokens: Sequence[str], weights: Array) -> str:
    return ", ".join(f"{token} {w:.2f}" for token, w in zip(tokens, weights, strict=True))


def _listed(entries: Array) -> str:
    return ", ".join(decimal(entry, 1) for entry in entries)


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
        the stamp gives to itself, the sender and the recipient in each of the two heads.

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


# `heads_diagram`: a number's side, the room for the names at the left and between heads, which row
# and column the last product frames (they cross no name), the tops of the rows, and how much is
# seen of the heads that are not followed.
UNIT, SIDE, BETWEEN, FRAMED, PALE = 6.0, 86.0, 28.0, (-1, 6), "0.4"
COLOUR_OF, SHADES = {"Q": "query", "K": "key", "V": "value"}, (0.12, 0.3, 0.5, 0.7)
TOPS = (32.0, 112.0, 192.0, 266.0, 340.0)


def heads_diagram(n_tokens: int, d_model: int, n_heads: int, d_k: int, d_v: int) -> MovingDrawing:
    """Return a moving figure: the way from X through the heads to the output, in five steps.

    Every matrix has its true shape, a small square a number. Lines lead from the pieces of one head
    to where they go, and the other heads are pale until their outputs are joined. Of the last
    product a number is framed, with the row and the column that make it.
    """
    sizes, found = {"Q": d_k, "K": d_k, "V": d_v}, n_heads * d_v
    tall, group = UNIT * n_tokens, UNIT * (2 * d_k + d_v) + 12  # a head's Q, K and V with gaps
    width, last = SIDE + n_heads * (group + BETWEEN), UNIT * (found + 2 * d_model) + 52
    middle = (SIDE + width) / 2
    heads = [SIDE + (n + 0.5) * (group + BETWEEN) for n in range(n_heads)]
    strips = [SIDE + (place + 0.5) * (width - SIDE) / 3 for place in range(3)]
    joined, followed = middle - last / 2, n_heads // 2
    steps = ("project", "split", "attend", "join", "mix")
    titles = ("One product gives the queries of all heads", "Each head gets its own columns",
              "Each head attends by itself", "The outputs come side by side",
              "Each number of Y is made of all heads")

    def block(x: float, top: float, wide: int, colour: str, words: str = "", head: int = 0,
              high: int = n_tokens, pale: bool = False) -> str:
        """Return a matrix with its upper left corner at (x, top), ruled into its numbers."""
        w, h = UNIT * wide, UNIT * high
        ruled = [f"M{number(x + UNIT * n)} {number(top)}v{number(h)}" for n in range(1, wide)]
        ruled += [f"M{number(x)} {number(top + UNIT * n)}h{number(w)}" for n in range(1, high)]
        shade = number(SHADES[head % len(SHADES)])
        shape = (
            rect(x, top, w, h, "paper")
            + rect(x, top, w, h, colour, fill_opacity=shade, stroke=colour)
            + tag("path", d="".join(ruled), stroke=colour, stroke_opacity="0.3", stroke_width=0.6)
        )
        look = {"fill": "muted"} if pale else {"font_weight": "600"}
        # A name keeps clear of the edges of a narrow block.
        size = 15 if w > 30 else 13
        named = text(x + w / 2, top + h / 2 + 5, words, **look, font_size=size)
        return (tag("g", shape, opacity=PALE) if pale else shape) + named

    def way(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
        return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=1.5,
                   stroke_opacity="0.7")

    def raised(words: str, x: float, y: float, colour: str) -> str:
        """Return a name with lowered letters, and the paper around it."""
        return tag("text", words, x=x, y=y, font_size=13, fill=colour, text_anchor="middle",
                   **HALO)

    rows = ["", "", "", "", ""]
    x = middle - UNIT * d_model / 2
    rows[0] += block(x, TOPS[0], d_model, "muted", "X")
    rows[0] += text(x + UNIT * d_model + 8, TOPS[0] + tall / 2 + 5, f"{n_tokens} × {d_model}",
                    text_anchor="start")
    for (letter, size), at in zip(sizes.items(), strips, strict=True):
        colour, name = COLOUR_OF[letter], lowered(f"XW_{letter}")
        rows[0] += way(middle, TOPS[0] + tall, at, TOPS[1] - 20, "muted")
        rows[0] += raised(f"{name}\u2002{n_tokens} × {n_heads * size}", at, TOPS[1] - 7, colour)
        for n in range(n_heads):
            left = at + UNIT * size * (n - n_heads / 2)
            rows[0] += block(left, TOPS[1], size, colour, str(n), n)
    for n, at in enumerate(heads):
        left, out = at - group / 2, at + (UNIT * (n_tokens - d_v) + 38) / 2
        weights = at - (UNIT * (n_tokens + d_v) + 38) / 2
        there, lines, pale = joined + UNIT * n * d_v, ["", ""], n != followed
        for place, ((letter, size), strip) in enumerate(zip(sizes.items(), strips, strict=True)):
            colour, here = COLOUR_OF[letter], left + UNIT * size / 2
            start = strip + UNIT * size * (n + 0.5 - n_heads / 2)
            lines[0] += way(start, TOPS[1] + tall, here, TOPS[2], colour)
            rows[1] += block(left, TOPS[2], size, colour, f"{letter}{n}", n, pale=pale)
            goal = out - 19 if letter == "V" else weights + tall * (place + 1) / 3
            foot = TOPS[3] + (tall / 2 - 9) * (letter == "V")
            lines[1] += way(here, TOPS[2] + tall, goal, foot, colour)
            left += UNIT * size + 6
        rows[2] += block(weights, TOPS[3], n_tokens, "weight", f"A{n}", n, pale=pale)
        rows[2] += text(out - 19, TOPS[3] + tall / 2 + 5, f"·\u2009V{n}\u2009=",
                        fill="muted" if pale else "ink")
        rows[2] += block(out, TOPS[3], d_v, "output", f"O{n}", n, pale=pale)
        if not pale:
            rows[1] += lines[0]
            rows[2] += lines[1]
        rows[3] += way(out + UNIT * d_v / 2, TOPS[3] + tall, there + UNIT * d_v / 2, TOPS[4],
                       "output")
    for row, moves in ((1, "reshape, transpose"), (3, "transpose, reshape")):
        rows[row] += text(2, TOPS[row + 1] - 12, moves, text_anchor="start",
                          font_family="ui-monospace, monospace", **HALO)
    matrix, result = joined + UNIT * found + 26, joined + last - UNIT * d_model
    for n in range(n_heads):
        rows[3] += block(joined + UNIT * n * d_v, TOPS[4], d_v, "output", f"O{n}", n)
        rows[4] += block(matrix, TOPS[4] + UNIT * n * d_v, d_model, "muted", "", n, d_v)
    row, column = FRAMED[0] % n_tokens, FRAMED[1]
    framed: dict[str, Any] = {"stroke": "ink", "stroke_width": 2.5}
    under, half = TOPS[4] + tall + 17, UNIT * d_model / 2
    rows[3] += text(joined + UNIT * found / 2, under, f"{n_tokens} × {found}", fill="output")
    rows[4] += block(result, TOPS[4], d_model, "muted", "Y")
    rows[4] += "".join((
        text(matrix - 13, TOPS[4] + tall / 2 + 5, "·"),
        text(result - 13, TOPS[4] + tall / 2 + 5, "="),
        text(result + half, under, f"{n_tokens} × {d_model}"),
        raised(f"{lowered('W_O')}\u2002{found} × {d_model}", matrix + half,
               TOPS[4] + UNIT * found + 17, "ink"),
        rect(joined, TOPS[4] + UNIT * row, UNIT * found, UNIT, **framed),
        rect(matrix + UNIT * column, TOPS[4], UNIT, UNIT * found, **framed),
        rect(result + UNIT * column, TOPS[4] + UNIT * row, UNIT, UNIT, **framed),
    ))
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
    below = ((), (f"Q, K: {n_tokens} × {d_k}", f"V: {n_tokens} × {d_v}"),
             (f"A: {n_tokens} × {n_tokens}", f"O: {n_tokens} × {d_v}"), (), ())
    levels = TOPS[1], TOPS[2], TOPS[3], TOPS[4] - 12, TOPS[4] + 24

    def draw(step: int) -> Frame:
        body = [headline(2, 17, titles[step], "title")]
        for place, (name, more, content) in enumerate(zip(steps, below, rows, strict=True)):
            seen, y = number(place <= step), levels[place] + tall / 2 + 5 - 9 * len(more)
            look: dict[str, Any] = {"text_anchor": "start", "opacity": seen}
            body += [
                tag("g", content, opacity=seen, data_part=f"row-{place}"),
                text(2, y, name, data_part=f"step-{place}", **look,
                     font_weight="600" if place == step else "400"),
                *(axis_title(2, y + 18 * n, words, data_part=f"more-{place}-{n}", **look)
                  for n, words in enumerate(more, start=1)),
            ]
        before = "; ".join(told[:step])
        words = f"{steps[step]}: {told[step]}." + f"\nBefore: {before}." * bool(step)
        return Frame("".join(body), words, ((steps[step], told[step]),))

    return moving(
        draw,
        (Control("step", "step", steps, 4, pace=1.6),),
        width,
        TOPS[4] + UNIT * found + 22,
        columns=("step", "what happens"),
        about="split, attend, concatenate",
    )
