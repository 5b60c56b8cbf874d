"""The drawings of chapter 09 and below: clock hands, turned vectors, and the angles they reach."""

from __future__ import annotations

from cmath import phase
from collections.abc import Mapping, Sequence
from math import cos, degrees, pi, sin

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import (
    WIDEST,
    Array,
    Drawing,
    axis_title,
    headline,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import START, decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving
from attnbook.figures.vectors import axes_of_plane, past_tip, turning_arrow
from attnlib.positions import rotary, sinusoidal

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# The clocks: their left and right end, radius and centre; below the waves, a row a position.
MARGIN, RIGHT, RADIUS, CLOCK = 46.0, 446.0, 21.0, 143.0
WAVES, ROW, BEHIND = 177.0, 8.0, 3

Clock = tuple[float, float]  # where its middle is, from the left, and its speed


def clock_hands(n_positions: int, n_entries: int, *, start: int) -> MovingDrawing:
    """Return a moving figure: the sinusoids of a position as clock hands, one for each pair.

    One slider moves the position. Each hand turns with it, and a thin one follows three positions
    behind, always by the same angle. The waves below hold the sines at all positions, and the
    numbers are those of the present one: the sine to the right, the cosine upwards.

    Args:
        n_positions: how many positions there are, from 0.
        n_entries: how many entries the vector of a position has, two for each hand.
        start: the first position.
    """
    table = sinusoidal(n_positions, n_entries)
    speeds = [float(10000 ** (-2 * c / n_entries)) for c in range(n_entries // 2)]
    column = (RIGHT - MARGIN) / len(speeds)
    clocks = [(MARGIN + column * (c + 0.5), speed) for c, speed in enumerate(speeds)]
    foot = WAVES + ROW * n_positions
    still = _faces(clocks, n_positions) + _waves(clocks, n_positions)

    def draw(t: int) -> Frame:
        turned = [f"{degrees(speed * t):,.0f}°" for speed in speeds]
        words = f"Position {t}: the hands have turned {', '.join(turned)}."
        title, note = "Each hand turns at its own speed", f"Position {t}"
        if t >= BEHIND:
            title = f"{BEHIND} positions apart: the same angles, at all positions"
            names = [f"z{place}".translate(SUBSCRIPTS) for place in (t, t - BEHIND)]
            note += f", and {t - BEHIND} (thin): {' · '.join(names)} = "
            note += (
                f"{decimal(float(table[t] @ table[t - BEHIND]))}, as for all pairs {BEHIND} apart"
            )
        body = [
            text(4, 16, title, data_part="title", font_size=15, font_weight="600", **START),
            text(4, 37, note, data_part="product", **START),
            still,
            rect(MARGIN - 1, WAVES + ROW * t, RIGHT - MARGIN + 2, ROW * (n_positions - t),
                 "paper", fill_opacity="0.7", data_part="to-come"),
            *(text(MARGIN - 12, WAVES + ROW * place + 4.5, str(place), fill="muted",
                   opacity=float(min(abs(t - place), abs(t - BEHIND - place)) > 2),
                   text_anchor="end", data_part=f"at-{place}")
              for place in range(0, n_positions, 4)),
            _before(table[max(t - BEHIND, 0)], clocks, t), _hands(table[t], clocks, t),
            _row(table[t], clocks, t, foot),
        ]
        strips = (
            tag("rect", x=0, y=WAVES + ROW * (place - 0.5), width=RIGHT, height=ROW,
                data_drag=f"t:{place}", class_="attn-hit")
            for place in range(n_positions)
        )
        body.append(tag("g", "".join(strips), fill="ink", fill_opacity="0"))
        return Frame("".join(body), words, [(str(t), *map(decimal, table[t]))])

    return moving(
        draw,
        [Control("t", "position t", tuple(map(str, range(n_positions))), start, pace=0.6)],
        WIDEST,
        foot + 46,
        columns=("position", *(f"entry {entry}" for entry in range(n_entries))),
        about="the clock hands",
    )


def _faces(clocks: Sequence[Clock], n_positions: int) -> str:
    """Return what of the clocks stays: their faces, and how many positions a turn takes."""
    slow = f"slow hands hardly move in {n_positions}"
    body = [
        axis_title(4, 59, "positions in one turn:", **START),
        axis_title(RIGHT, 59, slow, text_anchor="end"),
    ]
    for x, speed in clocks:
        turn = 2 * pi / speed
        shown = f"{turn:,.0f}" if turn > 10 else f"{turn:.1f}"
        body.append(text(x, 76, shown))
        body.append(tag("circle", cx=x, cy=CLOCK, r=RADIUS, fill="none", stroke="muted"))
        body.append(line(x, CLOCK - RADIUS, x, CLOCK - RADIUS + 5, "muted"))
    return "".join(body)


def _waves(clocks: Sequence[Clock], n_positions: int) -> str:
    """Return the sines of all positions, which go down the page."""
    body, last = [], n_positions - 1
    for x, speed in clocks:
        body.append(line(x, WAVES, x, WAVES + ROW * last, "grid"))
        n_steps = last * max(1, round(6 * speed))
        places = [last * step / n_steps for step in range(n_steps + 1)]
        points = [(x + RADIUS * sin(speed * t), WAVES + ROW * t) for t in places]
        drawn = " ".join(f"{number(round(x, 1))},{number(round(y, 1))}" for x, y in points)
        body.append(tag("polyline", points=drawn, fill="none", stroke="plus", stroke_width=2))
    return "".join(body)


def _before(entries: Array, clocks: Sequence[Clock], t: int) -> str:
    """Return the row three positions before, with its dots, and the angles to it, which stay."""
    there, place = float(t >= BEHIND), max(t - BEHIND, 0)
    row = [
        line(MARGIN - 6, 0, RIGHT, 0, "muted", "4 3"),
        rect(MARGIN - 36, -8, 30, 16, "paper", rx=8, stroke="muted"),
        text(MARGIN - 21, 4.5, str(place), fill="muted", data_part="there"),
    ]
    angles = [axis_title(4, 97, f"angle between the hands, {BEHIND} positions apart:", **START)]
    for clock, (x, speed) in enumerate(clocks):
        at = round(x + RADIUS * float(entries[2 * clock]), 1)
        row.append(tag("circle", cx=at, r=3, fill="paper", stroke="muted", stroke_width=1.5,
                       data_part=f"dot-before-{clock}"))
        angle = degrees(speed * BEHIND)
        shown = f"{angle:.0f}°" if angle > 10 else f"{angle:.2g}°"
        angles.append(text(x, 114, shown))
    moved = f"translate(0 {number(WAVES + ROW * place)})"
    return tag("g", "".join(row), transform=moved, opacity=there, data_part="row-before") + tag(
        "g", "".join(angles), opacity=there, data_part="angles"
    )


def _hands(entries: Array, clocks: Sequence[Clock], t: int) -> str:
    """Return the hands, thin ones behind them, and their coordinates; a line goes down to the row.

    What is turned does not change its shape: the thin hand is always behind by the same angle.
    """
    body = []
    for clock, (middle, speed) in enumerate(clocks):
        x, y = (round(RADIUS * float(entry), 1) for entry in entries[2 * clock : 2 * clock + 2])
        angle = -speed * BEHIND
        tip = f"{number(round(RADIUS * sin(angle), 1))} {number(round(-RADIUS * cos(angle), 1))}"
        reach = number(RADIUS)
        sector = f"M0 0L{tip}A{reach} {reach} 0 0 1 0 -{reach}z"
        thin = tag("path", d=sector, fill_opacity=0.25)
        thin += tag("path", d=f"M0 0L{tip}", stroke="muted", stroke_width=1.5)
        end_x, end_y = tip.split()
        thin += tag("circle", cx=end_x, cy=end_y, r=3, fill="paper", stroke="muted",
                    stroke_width=1.5)
        hand = [tag("g", thin, opacity=float(t >= BEHIND), data_part=f"before-{clock}")]
        hand.append(tag("path", d=f"M0 0V{number(-RADIUS)}", stroke="ink", stroke_width=2.5))
        hand.append(tag("circle", cy=-RADIUS, r=3.5))
        legs = [
            tag("path", d=f"M0 0V{number(-y)}", stroke="minus", data_part=f"cos-{clock}"),
            tag("path", d=f"M0 {number(-y)}H{number(x)}", stroke="plus", data_part=f"sin-{clock}"),
        ]
        down = f"M{number(x)} {number(-y)}V{number(WAVES + ROW * t - CLOCK)}"
        body.append(tag(
            "g",
            tag("path", d=down, stroke="plus", stroke_dasharray="1 3", data_part=f"down-{clock}")
            + tag("g", "".join(legs), stroke_width=4)
            + tag("g", "".join(hand), fill="ink", data_part=f"hand-{clock}",
                  transform=f"rotate({degrees(speed * t):.1f})"),
            transform=f"translate({number(middle)} {number(CLOCK)})",
        ))
    return "".join(body)


def _row(entries: Array, clocks: Sequence[Clock], t: int, foot: float) -> str:
    """Return the present row: a dot on each wave, and below the numbers of the table."""
    row = [
        line(MARGIN - 6, 0, RIGHT, 0, "ink"),
        rect(MARGIN - 36, -9, 30, 18, "ink", rx=9),
        text(MARGIN - 21, 4.5, str(t), fill="paper", font_weight="600", data_part="here"),
    ]
    numbers = [
        text(MARGIN - 10, foot + 18 + 18 * kind, name, fill=fill, text_anchor="end")
        for kind, (name, fill) in enumerate((("sin", "plus"), ("cos", "minus")))
    ]
    for place, entry in enumerate(map(float, entries)):
        x, y = clocks[place // 2][0], foot + 18 + 18 * (place % 2)
        numbers.append(text(x, y, decimal(entry), data_part=f"entry-{place}"))
        if place % 2 == 0:
            row.append(tag("circle", cx=round(x + RADIUS * entry, 1), r=4, fill="plus",
                           stroke="paper", data_part=f"dot-{place // 2}"))
    moved = f"translate(0 {number(WAVES + ROW * t)})"
    return tag("g", "".join(row), transform=moved, data_part="row") + "".join(numbers)


# The turned pair: the strip of positions, the plane with its words, the scores by offset.
WIDTH, BOX, LEFT = 440.0, 34.0, 16.0
CENTRE, SPAN, WORDS = (104.0, 164.0), 68.0, 208.0
ZERO, TALL, STEP = 322.0, 40.0, 66.0


def rotary_offset(
    query: ArrayLike,
    key: ArrayLike,
    names: tuple[str, str],
    *,
    n_places: int = 6,
    n_offsets: int = 6,
    start: tuple[int, int] = (0, 1),
) -> MovingDrawing:
    """Return a moving figure: a query and a key turn with their positions, and their score follows.

    One slider moves the key, and the query with it; the other changes the offset, by which the
    query comes after the key. Each vector is turned by one radian a position. The bars below show
    the scores up to the present offset, whose bar is filled; larger offsets are still to come.

    Args:
        query, key: the vectors before they are turned.
        names: the token that the query is of, and the token that the key is of.
        n_places: how many positions the key can have, from 0.
        n_offsets: how many offsets there are, from 1.
        start: the first position of the key, and the first offset.

    Shapes:
        query and key (2,).
    """
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    offsets = range(1, n_offsets + 1)
    scores = [float(_turned(q, offset) @ k) for offset in offsets]

    def draw(u: int, index: int) -> Frame:
        offset = index + 1
        t = u + offset
        score = decimal(float(_turned(q, t) @ _turned(k, u)))
        body = _strip((t, u), names, n_places, n_places + n_offsets)
        body += _turning((q, k), (t, u), names, score) + _score_bars(scores, offset)
        words = f"{names[1]} at {u}, {names[0]} at {t}: offset {offset}, score {score}."
        return Frame(body, words, [(str(offset), decimal(scores[index]))])

    return moving(
        draw,
        [
            Control("place", f"{names[1]} at", tuple(map(str, range(n_places))), start[0], pace=1),
            Control("offset", "offset", tuple(map(str, offsets)), start[1] - 1, pace=1),
        ],
        WIDTH,
        ZERO + TALL + 56,
        columns=("offset", "score, at every position"),
        about="the turned query and key",
    )


def _turned(vector: Array, position: int) -> Array:
    """Return a vector of two entries, turned for its position."""
    turned: Array = rotary(vector[None], [position])[0]
    return turned


def _strip(places: tuple[int, int], names: tuple[str, str], n_places: int, n_boxes: int) -> str:
    """Return the strip of positions with both tokens on it; the key's can be dragged."""
    t, u = places
    body = [
        headline(8, 20, f"{names[1]} at {u}, {names[0]} at {t}: offset {t - u}", "title"),
    ]
    for box in range(n_boxes):
        x = LEFT + BOX * box
        body.append(rect(x, 34, BOX, 24, stroke="grid"))
        body.append(text(x + BOX / 2, 74, str(box), fill="muted"))
    for place, name, fill, part in ((t, names[0], "query", "q"), (u, names[1], "key", "k")):
        look = {
            "stroke": fill,
            "stroke_width": 2,
            "stroke_dasharray": "5 4" if part == "k" else None,
        }
        token = rect(2, 36, BOX - 4, 20, "paper", rx=4, **look)
        token += text(BOX / 2, 51, name, fill=fill, font_weight="600")
        body.append(tag("g", token, transform=f"translate({number(LEFT + BOX * place)})",
                        data_part=f"{part}-token"))
    body += [
        hit(LEFT + BOX * box, 32, BOX, 28, f"place:{box}", drag=True) for box in range(n_places)
    ]
    return "".join(body)


def _turning(
    vectors: tuple[Array, Array], places: tuple[int, int], names: tuple[str, str], score: str
) -> str:
    """Return the plane, where each arrow is turned as a whole, and the words beside it.

    Entry 0 goes to the right and entry 1 up, so the arrows turn against the clock.
    """
    (q, k), (t, u) = vectors, places
    unit = SPAN / float(max(np.hypot(*q), np.hypot(*k)))
    arrows = _arm(q, unit, t, "query", "q") + _arm(k, unit, u, "key", "k", "5 4", _arc(k, q, t - u))
    body = [
        axes_of_plane(CENTRE, SPAN + 4),
        axis_title(WORDS, 226, "right: entry 0, up: entry 1", **START),
        tag("g", arrows, transform=f"translate({number(CENTRE[0])} {number(CENTRE[1])})"),
    ]
    between = round(degrees(abs(_sweep(k, q, t - u))))
    words = [
        ("q-turn", f"q of {names[0]}, turned by {t} rad ({degrees(t):.0f}°)", "query", "normal"),
        ("k-turn", f"k of {names[1]}, turned by {u} rad ({degrees(u):.0f}°)", "key", "normal"),
        ("between", f"angle between them {between}°", "ink", "normal"),
        ("score", f"score q·k = {score}", "ink", "600"),
    ]
    for row, (part, line_of, fill, weight) in enumerate(words):
        body.append(text(WORDS, 130 + 24 * row, line_of, fill=fill, font_weight=weight,
                         data_part=part, **START))
    return "".join(body)


def _arm(
    vector: Array, unit: float, place: int, name: str, part: str, dash: str = "", more: str = ""
) -> str:
    """Return an arrow about (0, 0) that is turned for its position; its name stays upright."""
    angle = f"{degrees(place):.1f}"
    x, y = past_tip((0.0, 0.0), vector, unit, 10)
    upright = tag("g", text(0, 4.5, part, fill=name, font_weight="600"),
                  transform=f"rotate({angle})", data_part=f"{part}-upright")
    arrow = more + turning_arrow((0.0, 0.0), vector, unit, name, part, dash)
    arrow += tag("g", upright, transform=f"translate({number(x)} {number(y - 4.5)})")
    return tag("g", arrow, transform=f"rotate(-{angle})", data_part=f"{part}-arm")


def _sweep(k: Array, q: Array, offset: int) -> float:
    """Return the angle from the key to the query an offset later, the short way round."""
    return phase(complex(*_turned(q, offset)) * complex(*k).conjugate())  # against the clock


def _arc(k: Array, q: Array, offset: int) -> str:
    """Return the arc from the key's direction, before it is turned, to the query's."""
    begin, sweep = phase(complex(*k)), _sweep(k, q, offset)
    turns = [begin + sweep * step / 24 for step in range(25)]
    drawn = " ".join(
        f"{number(round(26 * cos(a), 1))},{number(round(-26 * sin(a), 1))}" for a in turns
    )
    return tag("polyline", points=drawn, fill="none", stroke="muted", stroke_width=3,
               data_part="arc")


def _score_bars(scores: Sequence[float], offset: int) -> str:
    """Return a bar of the score for each offset up to the present one, whose bar is filled."""
    largest = max(map(abs, scores)) or 1.0
    step = min(STEP, (WIDTH - 2 * LEFT) / len(scores))
    body = [axis_title(8, ZERO - TALL - 24, "score q·k for each offset so far", **START)]
    for index, score in enumerate(scores):
        x, tall = LEFT + step / 2 - 23 + step * index, round(TALL * abs(score) / largest, 1)
        name = "plus" if score >= 0 else "minus"
        here, seen = index + 1 == offset, float(index < offset)
        top = ZERO - tall if score >= 0 else ZERO
        body.append(rect(x, top, 44, tall, name if here else "none", stroke=name, opacity=seen,
                         data_part=f"bar-{index}"))
        at = ZERO - tall - 6 if score >= 0 else ZERO + tall + 15
        body.append(text(x + 22, at, decimal(score), opacity=seen, data_part=f"score-{index}"))
        weight = "600" if here else "400"
        body.append(text(x + 22, ZERO + TALL + 32, str(index + 1), fill="muted",
                         font_weight=weight, data_part=f"number-{index}"))
        left = x + 22 - step / 2
        body.append(hit(left, ZERO - TALL - 18, step, 2 * TALL + 56, f"offset:{index}"))
    body.append(line(LEFT, ZERO, WIDTH - LEFT, ZERO, "muted"))
    body.append(axis_title(WIDTH / 2, ZERO + TALL + 49, "offset"))
    return "".join(body)


# The bars: where the rows begin and how far apart they are, the hand's middle and radius, the left
# end of the first bar, a full turn, and from one bar to the next.
FIRST, DOWN, HAND, TURN_RADIUS = 96.0, 42.0, 126.0, 16.0
BARS, FULL, ACROSS = 210.0, 88.0, 124.0


def angles_reached(
    speeds: Mapping[str, ArrayLike], n_trained: int, n_tokens: int, pairs: tuple[int, int, int]
) -> Drawing:
    """Return what of training a longer text keeps: the step of a fast pair, angles of slow ones.

    A row is a way to set the speeds, the first of them that of training. A hand is the turn of the
    fast pair from one token to the next. A bar goes from 0 to a full turn: grey is what training
    has shown, and on it lies what the longer text reaches, in another colour where it goes beyond.

    Args:
        speeds: of each way, the angle by which each pair turns from one token to the next.
        n_trained, n_tokens: the tokens of a text in training, and of the longer text.
        pairs: the pairs that are drawn: a fast one, and two that never went round in training.
    """
    ways = {name: np.asarray(given, dtype=np.float64) for name, given in speeds.items()}
    as_trained = next(iter(ways.values()))
    fast, *slow = pairs
    lefts = [BARS + ACROSS * place for place in range(len(slow))]
    heads = [(HAND, fast), *zip((left + FULL / 2 for left in lefts), slow, strict=True)]
    body = [text(x, 45, f"pair {pair}", font_weight="600") for x, pair in heads]
    body += [axis_title(HAND, 63, "step per token"),
             axis_title((lefts[0] + lefts[-1] + FULL) / 2, 63, "angles, from 0 to a full turn")]
    told, passed = [], []
    for row, (name, speed) in enumerate(ways.items()):
        y = FIRST + DOWN * row
        step, keeps = float(speed[fast]), [bool(np.isclose(speed[fast], as_trained[fast]))]
        body += [text(2, y + 4.5, name, font_weight="600", **START), _step(HAND, y, step),
                 text(HAND + 22, y + 4.5, f"{degrees(step):.0f}°", **START)]
        for x, pair in zip(lefts, slow, strict=True):
            shown = min(as_trained[pair] * n_trained / (2 * pi), 1.0)
            reached = min(speed[pair] * n_tokens / (2 * pi), 1.0)
            keeps.append(bool(reached <= shown + 1e-6))
            body += [rect(x, y - 10, FULL * shown, 20, "muted", fill_opacity="0.35"),
                     rect(x, y - 5, FULL * min(shown, reached), 10, "plus"),
                     rect(x, y - 10, FULL, 20, stroke="muted")]
            if not keeps[-1]:
                body.append(rect(x + FULL * shown, y - 5, FULL * (reached - shown), 10, "minus"))
        for x, kept in zip((HAND + 52, *(left + FULL for left in lefts)), keeps, strict=True):
            body.append(text(x + 13, y + 5.5, "✓" if kept else "✗", font_size=16,
                             fill="plus" if kept else "minus", font_weight="600"))
        turns = ", ".join(_turns(speed[pair] * n_tokens) for pair in pairs)
        told.append(f"{name} {turns}")
        passed += [name] * all(keeps)
    title = f"Kept in all {len(pairs)} pairs: {', '.join(passed) or 'by none'}"
    body.insert(0, headline(2, 18, title, "title"))
    y = FIRST + DOWN * (len(ways) - 1) + 36
    legend = [
        ("muted", f"angles that training has shown, in {n_trained:,} tokens"),
        ("plus", f"reached in {n_tokens:,} tokens, and known"),
        ("minus", f"reached in {n_tokens:,} tokens, but never shown in training"),
    ]
    for row, (shade, words) in enumerate(legend):
        top = y + 20 * row
        body += [rect(4, top, 18, 10, shade, fill_opacity=0.35 if shade == "muted" else 1),
                 text(30, top + 9.5, words, **START)]
    alt = (f"Turns of pairs {', '.join(map(str, pairs))} in training: "
           f"{', '.join(_turns(as_trained[pair] * n_trained) for pair in pairs)}. "
           f"In a text of {n_tokens:,} tokens: {'; '.join(told)}. "
           f"{title}.")
    return Drawing.from_elements("".join(body), WIDEST, y + 58, alt)


def _turns(angle: float) -> str:
    """Return an angle as a number of turns."""
    turns = angle / (2 * pi)
    return f"{turns:,.0f}" if turns > 10 else f"{turns:.2f}"


def _step(x: float, y: float, angle: float) -> str:
    """Return a hand before and after a step of less than half a turn, and the sector between."""
    up, tip = f"{number(x)} {number(y - TURN_RADIUS)}", (x + TURN_RADIUS * sin(angle),
                                                         y - TURN_RADIUS * cos(angle))
    end, reach = " ".join(map(number, tip)), number(TURN_RADIUS)
    sector = f"M{number(x)} {number(y)}L{up}A{reach} {reach} 0 0 1 {end}z"
    return (tag("circle", cx=x, cy=y, r=TURN_RADIUS, fill="none", stroke="muted")
            + tag("path", d=sector, fill="ink", fill_opacity="0.15", stroke="ink",
                  stroke_width=1.5))
