"""Decoding in drawings: the cache call by call, keys dealt out to cores, what a token leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from attnbook.figures.drawing import Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.labels import END, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

CELL, LEFT, TOP = 28.0, 46.0, 128.0
SLOTS = 62.0  # where the row of keys and values stands
# What a mark means, as the legend says it; colour is not the only carrier.
MARKS = {"now": "in this step", "before": "before", "masked": "masked"}


class Step(NamedTuple):
    """One call: the queries from `first` to `last`, on keys from 0 to `last`, both included.

    The keys and values from `made` on are computed in it.
    """

    first: int
    last: int
    made: int


def steps_of(chunks: Sequence[int] | None, n_tokens: int) -> list[Step]:
    """Return the calls that process tokens in chunks of these sizes; all anew each time if None.

    >>> steps_of([2, 1], 3)
    [Step(first=0, last=1, made=0), Step(first=2, last=2, made=2)]
    >>> steps_of(None, 2)
    [Step(first=0, last=0, made=0), Step(first=0, last=1, made=0)]
    """
    if chunks is None:
        return [Step(0, last, 0) for last in range(n_tokens)]
    ends = accumulate(chunks)
    return [Step(end - size, end - 1, end - size) for size, end in zip(chunks, ends, strict=True)]


def _scores(step: Step | None) -> int:
    """Return the scores of a call under the causal mask: query i sees the keys 0 to i."""
    return sum(i + 1 for i in range(step.first, step.last + 1)) if step else 0


def _made(step: Step | None) -> int:
    """Return how many tokens get their key and value in a call."""
    return step.last + 1 - step.made if step else 0


def _plural(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _mark(kind: str, x: float, y: float) -> str:
    """Return the mark of a square whose upper left corner is at (x, y)."""
    if kind == "masked":
        return tag("path", d=f"M{x + 9:g} {y + 9:g}l10 10m0-10l-10 10", stroke="muted", fill="none")
    if kind == "before":
        return tag("circle", cx=x + CELL / 2, cy=y + CELL / 2, r=4, fill="muted")
    tick = tag("path", d=f"M{x + 7:g} {y + 15:g}l4.5 5 9-12", stroke_width=2, fill="none",
               stroke="ink")
    return rect(x, y, CELL, CELL, "ink", fill_opacity="0.12") + tick


def _square(name: str, x: float, y: float, shown: str, kinds: Sequence[str]) -> str:
    """Return the marks that a square can have, of which one at most can be seen."""
    marks = (
        tag("g", _mark(kind, x, y), data_part=f"{kind}-{name}", opacity=kind == shown)
        for kind in kinds
    )
    return "".join(marks)


def _rulings(top: float, rows: int, columns: int) -> str:
    """Return the lines between the squares, in one path."""
    wide, tall = number(columns * CELL), number(rows * CELL)
    across = "".join(f"M{LEFT:g} {number(top + i * CELL)}h{wide}" for i in range(rows + 1))
    down = "".join(f"M{number(LEFT + j * CELL)} {top:g}v{tall}" for j in range(columns + 1))
    return tag("path", d=across + down, stroke="muted", fill="none")


def _score_mark(i: int, j: int, step: Step | None, seen: int) -> str:
    """Return the mark of the score of query i and key j, when `seen` tokens were there before."""
    if step and step.first <= i <= step.last and j <= step.last:
        return "now" if j <= i else "masked"
    return "before" if j <= i < seen else ""


def _key_mark(j: int, step: Step | None, seen: int) -> str:
    if step and step.made <= j <= step.last:
        return "now"
    return "before" if j < seen else ""


def _elements(
    n_tokens: int,
    step: Step | None,
    seen: int,
    title: str,
    note: str,
    counts: Sequence[int],
    most_scores: int,
    asks: Sequence[int],
) -> str:
    """Return the drawing of one step. The bar of the scores so far is full at the most."""
    right, bottom = LEFT + n_tokens * CELL, TOP + n_tokens * CELL
    body = [
        text(4, 22, title, data_part="title", font_size=14, **START),
        axis_title(LEFT, SLOTS - 10, "key and value of token j", **START),
        axis_title(LEFT, TOP - 10, "scores: key j answers", **START),
        axis_title(14, (TOP + bottom) / 2, "query i asks", upright=True),
    ]
    for j in range(n_tokens):
        x = LEFT + j * CELL
        # Half a key and half a value, as soon as they are there.
        mark = _key_mark(j, step, seen)
        halves = "".join(
            rect(x, SLOTS + half * CELL / 2, CELL, CELL / 2, shade, fill_opacity="0.4")
            for half, shade in enumerate(("key", "value"))
        )
        body.append(tag("g", halves, data_part=f"token-{j}", opacity=bool(mark)))
        body.append(_square(f"key-{j}", x, SLOTS, mark, ("now", "before")))
        body.append(text(LEFT - 8, TOP + (j + 0.5) * CELL + 5, str(j), **END))
        for i in range(n_tokens):
            shown = _score_mark(i, j, step, seen)
            kinds = ("now", "before") if j <= i else ("masked",)
            body.append(_square(f"{i}-{j}", x, TOP + i * CELL, shown, kinds))
    body += [_rulings(SLOTS, 1, n_tokens), _rulings(TOP, n_tokens, n_tokens)]
    scores, made, scores_so_far, made_so_far = map(str, counts)
    column, edge = right + 24, right + 174
    rows = [
        (SLOTS + 18, "keys in this step", made, "made"),
        (SLOTS + 38, "keys so far", made_so_far, "made-so-far"),
        (TOP + 18, "scores in this step", scores, "scores"),
        (TOP + 38, "scores so far", scores_so_far, "scores-so-far"),
    ]
    for y, words, count, name in rows:
        body.append(text(column, y, words, fill="muted", **START))
        body.append(text(edge, y, count, data_part=name, font_weight="600", **END))
    wide = round(150 * counts[2] / most_scores, 1)
    body.append(rect(column, TOP + 46, 150, 12, stroke="muted"))
    body.append(rect(column, TOP + 46, wide, 12, "ink", data_part="bar"))
    for place, (kind, words) in enumerate(MARKS.items()):
        y = bottom - (len(MARKS) - place) * 34
        body += [rect(column, y, CELL, CELL, stroke="muted"), _mark(kind, column, y)]
        body.append(text(column + CELL + 10, y + 19, words, **START))
    body.append(text(4, bottom + 26, note, data_part="note", **START))
    body += [
        hit(LEFT - 20, TOP + i * CELL, right - LEFT + 20, CELL, f"step:{place}", drag=True,
            data_part=f"hit-{i}")
        for i, place in enumerate(asks)
    ]
    return "".join(body)


def cache_filling(
    n_tokens: int, ways: Mapping[str, Sequence[int] | None], *, start: tuple[int, int] = (0, 0)
) -> MovingDrawing:
    """Return a moving figure: the tokens of a causal sequence call by call, and what is computed.

    `ways` maps a name to the sizes of the chunks, or to None where nothing is kept and each call
    takes all tokens so far. One list picks the way, one slider the step, and so does a click on the
    row of a query. A bar of the scores so far is full at the most of all ways. `start` numbers the
    first frame's way and step.

    >>> cache_filling(2, {"with a cache": [1, 1]}, start=(0, 2)).alt[:57]
    'with a cache, step 2: token 1. 1 query meets 2 keys: 2 of'
    """
    calls = {name: steps_of(chunks, n_tokens) for name, chunks in ways.items()}
    most = max(map(len, calls.values()))
    totals = {name: [*accumulate(map(_scores, steps), initial=0)] for name, steps in calls.items()}
    most_scores = max(total[-1] for total in totals.values())
    names = list(ways)

    def draw(way: int, place: int) -> Frame:
        name, steps = names[way], calls[names[way]]
        step = steps[place - 1] if 0 < place <= len(steps) else None
        done = steps[:place]
        before = done[:-1] if step else done
        seen = before[-1].last + 1 if before else 0
        made, so_far = sum(map(_made, done)), totals[name][len(done)]
        counts = _scores(step), _made(step), so_far, made
        rows = []
        if step:
            many, n_keys = step.last + 1 - step.first, step.last + 1
            queries = "1 query meets" if many == 1 else f"{many} queries meet"
            which = f"tokens {step.made} to {step.last}"
            which = f"token {step.last}" if step.made == step.last else which
            title = f"{name}, step {place}: {which}"
            note = (
                f"{queries} {_plural(n_keys, 'key')}: "
                f"{_scores(step)} of {many * n_keys} scores take part."
            )
            rows = [(name, str(place), which, *map(str, counts))]
        else:
            title = f"{name}, step {place}: " + ("all tokens are there" if place else "start")
            note = "Nothing is left to do." if place else "Nothing is computed yet."
        total = f"So far: {_plural(so_far, 'score')}, keys of {_plural(made, 'token')}."
        # A click on a row goes to the step in which its query asks.
        asks = [next(n for n, s in enumerate(steps, 1) if i <= s.last) for i in range(n_tokens)]
        elements = _elements(n_tokens, step, seen, title, note, counts, most_scores, asks)
        return Frame(elements, f"{title}. {note}\n{total}", rows)

    return moving(
        draw,
        [
            Control("way", "way", tuple(ways), start[0], kind="choice"),
            Control("step", "step", tuple(map(str, range(most + 1))), start[1], pace=1.2),
        ],
        LEFT + n_tokens * CELL + 182,
        TOP + n_tokens * CELL + 38,
        columns=(
            "way", "step", "computed", "scores in this step", "keys in this step",
            "scores so far", "keys so far",
        ),
        about="the tokens, call by call",
    )


def cached_numbers(
    separate: tuple[int, int, int], groups: tuple[int, int, int], latent: tuple[int, int]
) -> Drawing:
    """Return a drawing of the numbers that a token leaves in a layer's cache, as areas to scale.

    A bar is as high as its heads are many, and as long as one head has entries.

    Args:
        separate: the number of heads, and the entries of a key and of a value.
        groups: the same for heads that are shared by groups of queries.
        latent: the entries of the vector and of the rotated key that all heads share.

    >>> cached_numbers((8, 4, 2), (2, 4, 2), (5, 3)).alt[-54:]
    'one latent (MLA): 1 × (5 latent + 3 rotated keys) = 8.'
    """
    rows = (
        ("separate heads", *separate, {"keys": "key", "values": "value"}),
        (f"{groups[0]} groups (GQA)", *groups, {"keys": "key", "values": "value"}),
        ("one latent (MLA)", 1, *latent, {"latent": "muted", "rotated keys": "key"}),
    )
    left, width = 8.0, 390.0
    down = 190.0 / max(heads for _, heads, *_ in rows)
    across = width / max(first + second for _, _, first, second, _ in rows)
    y, body, told = 0.0, [], []
    for name, heads, *entries, parts in rows:
        total = f"{heads * sum(entries):,}"
        product = f"{heads} × ({entries[0]} + {entries[1]}) = {total}"
        body += [
            text(left, y + 18, name, text_anchor="start", font_weight="600"),
            text(left + width, y + 18, product, text_anchor="end"),
        ]
        x, foot = left, y + 28 + heads * down
        for (part, shade), count in zip(parts.items(), entries, strict=True):
            wide = count * across
            body += [
                rect(x, y + 28, wide, heads * down, shade),
                line(x, y + 28, x, foot, "paper"),  # between two parts
                text(x + wide / 2, foot + 18, part),
            ]
            x += wide
        first, second = (f"{n} {part}" for n, part in zip(entries, parts, strict=True))
        told.append(f"{name}: {heads} × ({first} + {second}) = {total}")
        y = foot + 38
    alt = f"Numbers that a token leaves in a layer's cache, as areas to scale. {'; '.join(told)}."
    return Drawing.from_elements("".join(body), left + width + 42, y - 8, alt)
