"""Decoding in drawings: the cache call by call, tables of pages, and what a token leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from attnbook.figures.drawing import (
    WIDEST,
    Drawing,
    arrow,
    axis_title,
    line,
    number,
    rect,
    tag,
    text,
)
from attnbook.figures.labels import END, START
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit, moving

CELL, LEFT, BESIDE, TOP = 22.0, 40.0, 54.0, 138.0
SLOTS = 80.0  # where the row of keys and values stands
# What a mark means, as the legend says it; colour is not the only carrier.
MARKS = {"now": "in this step", "before": "before", "masked": "masked"}


SHADES = "minus", "plus", "muted"  # of sequences side by side


class Step(NamedTuple):
    """One call: the queries from `first` to `last`, on keys from 0 to `last`, both included.

    The keys and values from `made` on are computed in it.
    """

    first: int
    last: int
    made: int


def steps_of(chunks: Sequence[int], *, keeps: bool) -> list[Step]:
    """Return the calls that process tokens in chunks of these sizes; all anew if nothing is kept.

    >>> steps_of([2, 1], keeps=True)
    [Step(first=0, last=1, made=0), Step(first=2, last=2, made=2)]
    >>> steps_of([2, 1], keeps=False)
    [Step(first=0, last=1, made=0), Step(first=0, last=2, made=0)]
    """
    ends = [*accumulate(chunks)]
    starts = [0, *ends[:-1]] if keeps else [0] * len(ends)
    return [Step(start, end - 1, start) for start, end in zip(starts, ends, strict=True)]


def _scores(step: Step | None) -> int:
    """Return the scores of a call under the causal mask: query i sees the keys 0 to i."""
    return sum(i + 1 for i in range(step.first, step.last + 1)) if step else 0


def _made(step: Step | None) -> int:
    """Return how many tokens get their key and value in a call."""
    return step.last + 1 - step.made if step else 0


def _mark(kind: str, x: float, y: float) -> str:
    """Return the mark of a square whose upper left corner is at (x, y)."""
    if kind == "masked":
        return tag("path", d=f"M{x + 7:g} {y + 7:g}l8 8m0-8l-8 8", stroke="muted", fill="none")
    if kind == "before":
        return tag("circle", cx=x + CELL / 2, cy=y + CELL / 2, r=3.5, fill="muted")
    tick = tag("path", d=f"M{x + 5:g} {y + 12:g}l4 4 8-10", stroke_width=2, fill="none",
               stroke="ink")
    return rect(x, y, CELL, CELL, "ink", fill_opacity="0.12") + tick


def _square(name: str, x: float, y: float, shown: str, kinds: Sequence[str]) -> str:
    """Return the marks that a square can have, of which one at most can be seen."""
    marks = (
        tag("g", _mark(kind, x, y), data_part=f"{kind}-{name}", opacity=kind == shown)
        for kind in kinds
    )
    return "".join(marks)


def _rulings(left: float, top: float, rows: int, columns: int) -> str:
    """Return the lines between the squares, in one path."""
    wide, tall = number(columns * CELL), number(rows * CELL)
    across = "".join(f"M{left:g} {number(top + i * CELL)}h{wide}" for i in range(rows + 1))
    down = "".join(f"M{number(left + j * CELL)} {top:g}v{tall}" for j in range(columns + 1))
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


def _panel(
    left: float, n_tokens: int, name: str, done: Sequence[Step], ends: bool, most: int
) -> list[str]:
    """Return the squares after some calls, with what they have computed so far.

    If the last of them `ends` the text, no call is shown as the present one. The bar of the scores
    is full at the most.
    """
    foot, wide = TOP + n_tokens * CELL, n_tokens * CELL
    step = done[-1] if done and not ends else None
    seen = 0 if not done else done[-1].last + 1 if ends else done[-1].made
    scores, made = sum(map(_scores, done)), sum(map(_made, done))
    body = [text(left, SLOTS - 30, name, font_weight="600", **START),
            axis_title(left, SLOTS - 9, "keys and values", **START),
            axis_title(left, TOP - 9, "scores", **START)]
    for j in range(n_tokens):
        x, part = left + j * CELL, f"{left:g}-{j}"
        # Half a key and half a value, as soon as they are there.
        mark = _key_mark(j, step, seen)
        halves = "".join(
            rect(x, SLOTS + half * CELL / 2, CELL, CELL / 2, shade, fill_opacity="0.4")
            for half, shade in enumerate(("key", "value"))
        )
        body.append(tag("g", halves, data_part=f"token-{part}", opacity=bool(mark)))
        body.append(_square(f"key-{part}", x, SLOTS, mark, ("now", "before")))
        for i in range(n_tokens):
            shown = _score_mark(i, j, step, seen)
            kinds = ("now", "before") if j <= i else ("masked",)
            body.append(_square(f"{left:g}-{i}-{j}", x, TOP + i * CELL, shown, kinds))
    full = round(wide * scores / most, 1)
    body += [
        _rulings(left, SLOTS, 1, n_tokens), _rulings(left, TOP, n_tokens, n_tokens),
        text(left, foot + 20, f"{scores} scores so far", data_part=f"scores-{left:g}",
             font_weight="600", **START),
        rect(left, foot + 27, wide, 10, stroke="muted"),
        rect(left, foot + 27, full, 10, "ink", data_part=f"bar-{left:g}"),
        text(left, foot + 54, f"keys made: {made}", data_part=f"made-{left:g}", **START),
    ]
    return body


def cache_filling(
    n_tokens: int, ways: Mapping[str, Sequence[int]], *, start: tuple[int, int] = (0, 0)
) -> MovingDrawing:
    """Return a moving figure: what a causal sequence computes call by call, without and with cache.

    `ways` maps a name to the sizes of the chunks in which the tokens come. On the left, nothing is
    kept, and each call takes all tokens so far. One list picks the way, one slider the step, and so
    does a click on the row of a query. `start` numbers the first frame's way and step.

    >>> cache_filling(2, {"one by one": [1, 1]}, start=(0, 2)).alt[:67]
    'one by one, step 2: 4 scores without a cache, 3 with one. Keys made'
    """
    names, longest = list(ways), max(map(len, ways.values()))
    calls = [[steps_of(chunks, keeps=keeps) for keeps in (False, True)] for chunks in ways.values()]
    most = max(sum(map(_scores, again)) for again, _ in calls)
    second = LEFT + n_tokens * CELL + BESIDE
    foot = TOP + n_tokens * CELL

    def draw(way: int, place: int) -> Frame:
        done = [steps[:place] for steps in calls[way]]
        ends = place > len(calls[way][0])
        scores = [sum(map(_scores, steps)) for steps in done]
        made = [sum(map(_made, steps)) for steps in done]
        verdict = f"{scores[0]} scores without a cache, {scores[1]} with one"
        title = verdict if place else "Nothing is computed yet"
        body = [text(4, 20, title, data_part="title", font_size=15, font_weight="600", **START),
                axis_title(14, (TOP + foot) / 2, "query i asks key j", upright=True)]
        for left, name, steps in zip(
            (LEFT, second), ("nothing kept", "with a cache"), done, strict=True
        ):
            body += _panel(left, n_tokens, name, steps, ends, most)
        for i in range(n_tokens):
            body.append(text(LEFT - 7, TOP + (i + 0.5) * CELL + 4.5, str(i), **END))
            # A click on a row goes to the step in which its query asks.
            asks = next(n for n, s in enumerate(calls[way][1], 1) if i <= s.last)
            body.append(hit(LEFT - 20, TOP + i * CELL, second - LEFT + n_tokens * CELL + 20, CELL,
                            f"step:{asks}", drag=True, data_part=f"hit-{i}"))
        x = LEFT
        for kind, words in MARKS.items():
            body += [rect(x, foot + 68, CELL, CELL, stroke="muted"), _mark(kind, x, foot + 68),
                     text(x + CELL + 7, foot + 84, words, **START)]
            x += CELL + 26 + 8 * len(words)
        told = (f"{names[way]}, step {place}: {title}.\nKeys made: {made[0]} without a cache, "
                f"{made[1]} with one.")
        row = (names[way], str(place), *map(str, (*scores, *made)))
        return Frame("".join(body), told, [row] * (place > 0 and not ends))

    return moving(
        draw,
        [
            Control("way", "tokens come", tuple(ways), start[0], kind="choice"),
            Control("step", "step", tuple(map(str, range(longest + 1))), start[1], pace=1.2),
        ],
        second + n_tokens * CELL + 8,
        foot + 98,
        columns=(
            "tokens come", "step", "scores, nothing kept", "scores, with a cache",
            "keys made, nothing kept", "keys made, with a cache",
        ),
        about="the tokens, call by call",
    )


def block_tables(
    tables: Mapping[str, Sequence[int]], lengths: Sequence[int], n_pages: int, p: int
) -> Drawing:
    """Return a drawing of sequences' block tables, above the pool of pages of p slots.

    A slot shows whose token it holds, and which one: B2 is token 2 of sequence B.

    >>> block_tables({"A": [2, 0], "B": [1]}, [3, 2], 4, 2).alt
    'Block tables: A (3 tokens) has the pages 2, 0; B (2 tokens) has the page 1. Free: page 3.'
    """
    left, pool, high = 8.0, 132.0, 24.0
    step = (WIDEST - 2 * left) / n_pages
    body = [
        axis_title(left, 16, "block tables", **START),
        axis_title(left, pool + 30 + p * high, "the pool: pages and their numbers", **START),
    ]
    held, told, x = dict[tuple[int, int], tuple[str, str]](), list[str](), left
    for (name, table), length, shade in zip(tables.items(), lengths, SHADES, strict=False):
        body.append(text(x, 47, name, font_weight="600", **START))
        x += 16
        for place, page in enumerate(table):
            at = left + (page + 0.5) * step
            body += [rect(x, 30, 34, high, shade, fill_opacity="0.25", stroke="ink"),
                     text(x + 17, 47, str(page)),
                     arrow(x + 17, 30 + high, at, pool - 18, "muted")]
            tokens = range(place * p, min((place + 1) * p, length))
            held |= {(page, t % p): (f"{name}{t}", shade) for t in tokens}
            x += 34
        x += 40
        pages = f"page{'s' * (len(table) > 1)} {', '.join(map(str, table))}"
        told.append(f"{name} ({length} token{'s' * (length > 1)}) has the {pages}")
    taken = [page for table in tables.values() for page in table]
    free = [page for page in range(n_pages) if page not in taken]
    for page in range(n_pages):
        x, is_free = left + page * step, page in free
        body.append(text(x + step / 2, pool - 4, str(page), fill="muted" if is_free else "ink"))
        for slot in range(p):
            name, shade = held.get((page, slot), ("", "none"))
            y = pool + 4 + slot * high
            look = {"stroke": "muted", "stroke_dasharray": "3 3" if is_free else None}
            body += [rect(x + 3, y, step - 6, high, shade, fill_opacity="0.25", **look),
                     text(x + step / 2, y + 17, name)]
    rest = f"page{'s' * (len(free) > 1)} {', '.join(map(str, free))}"
    alt = f"Block tables: {'; '.join(told)}. Free: {rest}."
    return Drawing.from_elements("".join(body), WIDEST, pool + 40 + p * high, alt)


def row_slots(tokens: Sequence[int], lengths: Sequence[int], n_slots: int) -> Drawing:
    """Return a drawing of the slots of each row of a batch, after each row got one new token.

    A slot shows the position of its token, and the new token has a thick frame.

    Args:
        tokens: of the text of each row; behind them is padding, up to the longest.
        lengths: what each row is taken to have, which is where its new token goes.
        n_slots: of each row.

    >>> row_slots([2, 1], [2, 2], 4).alt
    'Slots after a step: row 0, new token at 2; row 1, new token at 2, sees padding.'
    """
    left, wide, high, gap = 48.0, 29.0, 26.0, 10.0
    end, told = left + n_slots * wide + 10, list[str]()
    body = [axis_title(left - 8, 18, "slot", **END)]
    body += [axis_title(left + (slot + 0.5) * wide, 18, str(slot)) for slot in range(n_slots)]
    for row, (held, length) in enumerate(zip(tokens, lengths, strict=True)):
        y = 28 + row * (high + gap)
        body.append(text(left - 8, y + 18, f"row {row}", **END))
        for slot in range(n_slots):
            seen, padded = slot <= length, held <= slot < max(tokens) and slot != length
            look: dict[str, Any] = {"stroke": "muted", "stroke_dasharray": None if seen else "3 3"}
            if seen and not padded:
                look |= {"fill": "plus", "fill_opacity": "0.25"}
            shown, x = "pad" if padded else str(slot) if seen else "", left + slot * wide
            body += [rect(x + 1, y, wide - 2, high, **look),
                     text(x + wide / 2, y + 18, shown, fill="ink" if seen else "muted")]
        x = left + length * wide
        body.append(rect(x + 1, y, wide - 2, high, stroke="ink", stroke_width=2.5))
        padding = ", sees padding" if length > held else ""
        body.append(text(end, y + 18, f"new at {length}{padding}", **START))
        told.append(f"row {row}, new token at {length}{padding}")
    foot = 28 + len(tokens) * (high + gap) + 14
    body.append(axis_title(left, foot, "in a slot: the position of its token", **START))
    alt = f"Slots after a step: {'; '.join(told)}."
    return Drawing.from_elements("".join(body), WIDEST, foot + 10, alt)


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
