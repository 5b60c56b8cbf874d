"""The atlas in drawings: what a token leaves in each model, the marks of layers, and the cards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap

from attnbook.atlas import Card
from attnbook.figures.drawing import Drawing, axis_title, line, number, rect, tag, text
from attnbook.figures.growth import in_bytes
from attnbook.figures.labels import END, START

# What is kept has one colour and one fullness, in the chart and on the cards.
WAYS = {
    "own keys": ("key", 1.0), "shared keys": ("key", 0.4), "latent": ("plus", 1.0),
    "compressed": ("plus", 0.3), "windows": ("ink", 1.0), "states": ("muted", 1.0),
}
# A layer's mark: its height, and what it keeps, where that is not the keys of its model. One that
# keeps nothing of a token is as grey as a state.
LOOKS = {
    "all keys": (20.0, ""), "chosen": (20.0, ""), "compressed, chosen": (13.0, ""),
    "compressed": (7.0, ""), "window": (7.0, "windows"), "state": (0.0, "states"),
    "shared": (20.0, "states"), "no attention": (1.0, "states"),
}
MEANINGS = (
    ("all keys", "own keys", "own keys", "each query head has its own"),
    ("all keys", "shared keys", "shared keys", "several query heads share them"),
    ("all keys", "latent", "latent", "one short vector for all heads"),
    ("chosen", "latent", "chosen", "all are kept, a query reads a few"),
    ("compressed", "compressed", "compressed", "many tokens share an entry"),
    ("window", "", "window", "only the last tokens are kept"),
    ("state", "", "state", "does not grow with the text"),
    ("shared", "", "reused", "the keys of an earlier layer"),
    ("no attention", "", "no attention", "nothing is kept"),
)
STRIP, HIGH, LONG_TEXT = 20.0, 19.0, 131_072
# A line of layers on a card. Rhythms of 2, 3, 4 and 6 layers stand below one another.
WIDTH, PER_LINE, STEP = 340.0, 48, 7.0


def leaves_chart(cards: Sequence[Card]) -> Drawing:
    """Return a drawing of what a token leaves in the cache of each model, as bars that are sorted.

    The scale goes from zero to the second longest bar: one that is longer is cut.

    >>> from attnbook.atlas import Layer
    >>> made = [Card("A", "", "own keys", [Layer("all keys", size)], "", "", "") for size in (9, 2)]
    >>> leaves_chart(made).alt[:75]
    'One more token, at 16 bits: 9 bytes down to 2 bytes. A 9 bytes, own keys; A'
    """
    cards = sorted(cards, key=lambda card: -card.leaves())
    longest, last = cards[1].leaves(), [card for card in cards if card.leaves()][-1]
    sizes = [in_bytes(card.leaves()) if card.leaves() else "nothing" for card in cards]
    title = f"One more token, at 16 bits: {sizes[0]} down to {in_bytes(last.leaves())}"
    left, right, top = 190.0, 312.0, 44.0
    body = [text(0, 16, title, font_size=14, font_weight="600", **START)]
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
        if not card.leaves():
            filled = max(layer.window for layer in card.layers)
            body.append(axis_title(left, y, f"after {filled:,} tokens", **START))
        told.append(f"{card.model} {size}, {card.way}")
    cuts = f"M{number(right - 14)} {number(top + 4)}l8 -17m6 0l-8 17"
    cut = f"{cards[0].leaves() / longest:.1f} × the next"
    body += [tag("path", d=cuts, stroke="paper", stroke_width=3, fill="none"),
             text(left + 6, top, cut, fill="paper", **START)]
    foot = top + HIGH * len(cards) - 8
    return Drawing.from_elements("".join(body), 414, foot, f"{title}. {'; '.join(told)}.")


def layer_marks() -> Drawing:
    """Return a drawing of the marks of layers, each with what it means.

    >>> layer_marks().alt[:60]
    'Marks of layers. own keys: each query head has its own; shar'
    """
    body = ""
    for row, (kind, keys, name, meaning) in enumerate(MEANINGS):
        y = 26.0 + 28 * row
        words = tag("tspan", f"{name}: ", font_weight="600") + tag("tspan", meaning)
        body += _marks([4.0, 12.0, 20.0], y, 6.0, kind, keys)
        body += tag("text", words, x=40, y=y - 4, fill="ink", font_size=13, **START)
    usual = ("Unless a card says otherwise, the scale is 1/√dₖ,",
             "and positions turn all entries (rotary).")
    height = 28.0 * len(MEANINGS) + 46
    for place, words in enumerate(usual):
        body += axis_title(4, height - 24 + 18 * place, words, **START)
    told = "; ".join(f"{name}: {meaning}" for *_, name, meaning in MEANINGS)
    return Drawing.from_elements(body, 380, height, f"Marks of layers. {told}. {' '.join(usual)}")


def layer_card(card: Card) -> Drawing:
    """Return a drawing of a model: what a token leaves, its layers, and what its attention has.

    Layers have one size on all cards, and stand in lines of 48, the first on the upper left.

    >>> from attnbook.atlas import Layer
    >>> layers = [Layer("all keys", 8.0)]
    >>> layer_card(Card("A", "2026-01", "own keys", layers, "2 query heads", "dₖ 2", "")).alt[:51]
    'A, 2026-01, 8 bytes a token. 1 × own keys. 2 query '
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
            body += _marks(lefts, foot, STEP - 1.4, kind, card.keys) if lefts else ""
    y, x, kinds = foot + 24, 0.0, []
    for kind, n in card.kinds().items():
        one = next(layer for layer in card.layers if layer.kind == kind)
        named = {"all keys": card.keys, "chosen": f"{card.keys}, chosen", "shared": "reused"}
        words = f"{n} × {named.get(kind, kind)}"
        if kind == "window":
            words += f" {one.window:,}"
        if one.tokens > 1:
            words += f", {one.tokens} tokens an entry"
        if x + 7.5 * len(words) + 14 > WIDTH:
            x, y = 0.0, y + 24
        body += _marks([x], y, 6.0, kind, card.keys) + text(x + 12, y, words, **START)
        x += 7 * len(words) + 26
        kinds.append(words)
    # What most models have is said once, beside the marks.
    sizes = re.sub(r"^(dₖ (\d+)\b.*), scale 1/√\2$", r"\1", card.sizes)
    told = [card.heads, sizes, *card.words.split("; ")]
    told = [words for words in told if words != "positions turn all entries (rotary)"]
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


def _marks(lefts: Sequence[float], foot: float, wide: float, kind: str, keys: str) -> str:
    """Return the marks of all layers of one kind, which stand on the line `foot`."""
    height, way = LOOKS[kind]
    shade, full = WAYS[way or keys]
    w, h = number(wide), number(height)
    outline, inside = f"v-{h}h{w}v{h}z", ""
    if kind == "state":
        half = number(wide / 2)
        outline = f"m{half} 0l{half} -{half}l-{half} -{half}l-{half} {half}z"
    if "chosen" in kind:  # a few of its entries are read
        inside = "".join(f"M{number(x + 0.7)} {number(foot - up)}v-2.5h{w}v2.5z" for x in lefts
                         for up in range(5, round(height) - 4, 8))
        inside, full = tag("path", d=inside, fill=shade), 0.0
    if kind == "shared":
        full = 0.0
    starts = (f"M{number(x + 0.7)} {number(foot)}" for x in lefts)
    return inside + tag("path", d="".join(start + outline for start in starts), fill=shade,
                        fill_opacity=f"{full:g}", stroke=shade, stroke_width=0.8)
