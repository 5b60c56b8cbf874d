"""The atlas in drawings: what a token leaves in each model, the marks of layers, and the cards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap

from attnbook.atlas import Card
from attnbook.figures.drawing import Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.growth import in_bytes
from attnbook.figures.labels import END, START

# How a layer is drawn (its height, and how full its mark is), and what it does.
LOOKS = {
    "all keys": (20.0, 1.0, "keeps the keys and values of all tokens"),
    "chosen": (20.0, 0.2, "keeps all as well, but a query reads a few"),
    "compressed, chosen": (13.0, 0.2, "the same, and several tokens share an entry"),
    "compressed": (7.0, 0.2, "keeps one entry for many tokens"),
    "window": (7.0, 1.0, "keeps the last tokens only"),
    "state": (0.0, 1.0, "has a state, which does not grow"),
    "shared": (20.0, 0.0, "uses the keys of an earlier layer"),
    "no attention": (1.0, 1.0, "has no attention"),
}
STRIP, HIGH, LONG_TEXT = 20.0, 19.0, 131_072
# A line of layers on a card. Rhythms of 2, 3, 4 and 6 layers stand below one another.
WIDTH, PER_LINE, STEP = 340.0, 48, 7.0
# The ways of the chart have a colour and a fullness each.
WAYS = {
    "own keys": ("key", 1.0), "shared keys": ("key", 0.6), "windows": ("minus", 1.0),
    "latent": ("plus", 1.0), "compressed": ("plus", 0.3), "states": ("muted", 1.0),
}


def leaves_chart(cards: Sequence[Card]) -> Drawing:
    """Return a drawing of what a token leaves in the cache of each model, as bars that are sorted.

    The scale goes from zero to the second longest bar: one that is longer is cut.

    >>> from attnbook.atlas import Layer
    >>> made = [Card("A", "", "own keys", [Layer("all keys", size)], "", "", "") for size in (9, 2)]
    >>> leaves_chart(made).alt
    'The cache grows by 9 bytes a token, or by 2 bytes. A 9 bytes, own keys; A 2 bytes, own keys.'
    """
    cards = sorted(cards, key=lambda card: -card.leaves())
    longest, last = cards[1].leaves(), [card for card in cards if card.leaves()][-1]
    sizes = [in_bytes(card.leaves()) if card.leaves() else "nothing" for card in cards]
    title = f"The cache grows by {sizes[0]} a token, or by {in_bytes(last.leaves())}"
    left, right, top = 190.0, 312.0, 66.0
    times = cards[0].leaves() / longest
    cut = f"The first bar is cut: it is {times:.1f} times as long as the next."
    body = [text(0, 16, title, font_size=14, font_weight="600", **START),
            axis_title(0, 36, cut, **START)]
    told = []
    for row, (card, size) in enumerate(zip(cards, sizes, strict=True)):
        y, (shade, full) = top + HIGH * row, WAYS[card.way]
        wide = (right - left) * min(card.leaves() / longest, 1.0)
        body += [
            text(0, y, card.model, **START),
            text(left - 6, y, size, font_weight="600", **END),
            rect(left, y - 11, wide, 13, shade, fill_opacity=f"{full:g}", stroke=shade),
            text(right + 14, y, card.way, fill=shade, **START),
        ]
        told.append(f"{card.model} {size}, {card.way}")
    cuts = f"M{number(right - 14)} {number(top + 4)}l8 -17m6 0l-8 17"
    body.append(tag("path", d=cuts, stroke="paper", stroke_width=3, fill="none"))
    foot = top + HIGH * len(cards) - 8
    return Drawing.from_elements("".join(body), 414, foot, f"{title}. {'; '.join(told)}.")


def layer_marks() -> Drawing:
    """Return a drawing of the marks of layers, each with what it means.

    >>> layer_marks().alt[:60]
    'Marks of layers. all keys: keeps the keys and values of all '
    """
    body = ""
    for row, (kind, (*_, meaning)) in enumerate(LOOKS.items()):
        y = 26.0 + 28 * row
        body += _marks([4.0, 12.0, 20.0], y, 6.0, kind)
        body += text(40, y - 4, meaning, **START)
    told = "; ".join(f"{kind}: {meaning}" for kind, (*_, meaning) in LOOKS.items())
    height = 28.0 * len(LOOKS) + 6
    return Drawing.from_elements(body, 340, height, f"Marks of layers. {told}.")


def layer_card(card: Card) -> Drawing:
    """Return a drawing of a model: what a token leaves, its layers, and what its attention has.

    Layers have one size on all cards, and stand in lines of 48, the first on the upper left.

    >>> from attnbook.atlas import Layer
    >>> layers = [Layer("all keys", 8.0)]
    >>> layer_card(Card("A", "2026-01", "own keys", layers, "2 query heads", "dₖ 2", "")).alt[:51]
    'A, 2026-01, 8 bytes a token. 1 × all keys. 2 query '
    """
    leaves = f"{in_bytes(card.leaves())} a token" if card.leaves() else "stops growing"
    body = line(0, 1, WIDTH, 1, "grid")
    body += text(0, 22, card.model, font_size=15, font_weight="600", **START)
    body += text(WIDTH, 22, leaves, font_weight="600", **END)
    body += axis_title(0, 41, f"{card.released} · {card.way}", **START)
    body += axis_title(WIDTH, 41, f"{in_bytes(card.cache(LONG_TEXT))} at 128k tokens", **END)
    for kind in card.kinds():
        for first in range(0, len(card.layers), PER_LINE):
            lefts = [STEP * n for n, layer in enumerate(card.layers[first : first + PER_LINE])
                     if layer.kind == kind]
            foot = 53 + STRIP + (STRIP + 5) * (first // PER_LINE)
            body += _marks(lefts, foot, STEP - 1.4, kind) if lefts else ""
    y, x, kinds = foot + 24, 0.0, []
    for kind, n in card.kinds().items():
        one = next(layer for layer in card.layers if layer.kind == kind)
        words = f"{n} × {kind}"
        if kind == "window":
            words += f" {one.window:,}"
        if one.tokens > 1:
            words += f", {one.tokens} tokens an entry"
        if x + 7 * len(words) + 14 > WIDTH:
            x, y = 0.0, y + 20
        body += _marks([x], y, 6.0, kind) + text(x + 12, y, words, **START)
        x += 7 * len(words) + 26
        kinds.append(words)
    told = [card.heads, card.sizes, *card.words.split("; ")]
    parts = {
        "windows": sum(layer.in_window * layer.window for layer in card.layers),
        "states": sum(layer.state for layer in card.layers),
    }
    told += [f"{name} take {in_bytes(size)}, once" for name, size in parts.items() if size]
    joined = re.sub("(?<=ₖ|ᵥ) |(?<=scale) ", "\N{NO-BREAK SPACE}", "; ".join(told))
    for place, words in enumerate(wrap(joined, 47, break_on_hyphens=False)):
        body += text(0, y + 24 + 18 * place, words, **START)
    alt = f"{card.model}, {card.released}, {leaves}. {', '.join(kinds)}. {'; '.join(told)}."
    return Drawing.from_elements(body, WIDTH, y + 32 + 18 * place, alt)


def _marks(lefts: Sequence[float], foot: float, wide: float, kind: str) -> str:
    """Return the marks of all layers of one kind, which stand on the line `foot`."""
    height, full, _ = LOOKS[kind]
    w, h = number(wide), number(height)
    outline = f"v-{h}h{w}v{h}z"
    if kind == "state":
        half = number(wide / 2)
        outline = f"m{half} 0l{half} -{half}l-{half} -{half}l-{half} {half}z"
    colour = "muted" if kind in ("state", "shared", "no attention") else "key"
    return tag("path", d="".join(f"M{number(x + 0.7)} {number(foot)}{outline}" for x in lefts),
               fill=colour, fill_opacity=f"{full:g}", stroke=colour, stroke_width=0.8)
