"""One card for each of several models: its layers, its heads, and the bytes that it keeps."""

from __future__ import annotations

from collections.abc import Sequence

from attnbook.atlas import Card
from attnbook.figures.drawing import Drawing, axis_title, line, number, tag, text

WIDTH, HIGH, LEFT, STRIP, LONG_TEXT = 414.0, 162.0, 8.0, 20.0, 131_072
# How a layer is drawn: its height, and how full its mark is. A state is a diamond.
LOOKS = {
    "all keys": (STRIP, 1.0), "chosen": (STRIP, 0.2), "compressed": (13.0, 0.2),
    "window": (8.0, 1.0), "shared": (STRIP, 0.0), "state": (0.0, 1.0),
    "no attention": (0.5, 1.0),
}


def layer_cards(cards: Sequence[Card]) -> Drawing:
    """Return a drawing of a card for each model, one below the other (128k tokens: 131,072).

    A row of marks has the layers from the first to the last. A tall full mark keeps all keys, a
    tall light one chooses among them, a low light one keeps one entry for many tokens, and a low
    full one a window. A diamond is a state, an empty frame uses what another layer keeps, and a
    flat line has no attention.

    >>> from attnbook.atlas import Card, Layer
    >>> one = Card("A", "2026-01", [Layer("all keys", 8.0)], "2 query heads", "dₖ 2", "ALiBi")
    >>> layer_cards([one]).alt.split("; ")[0]
    'A (2026-01): 1 × all keys'
    >>> layer_cards([one]).alt.split("; ")[2]
    '8 bytes a token, 0.00105 GB at 128k tokens.'
    """
    body, said = "", []
    for row, card in enumerate(cards):
        drawn, told = _card(card, row * HIGH)
        body += drawn
        said.append(told)
    return Drawing.from_elements(body, WIDTH, len(cards) * HIGH, " ".join(said))


def _card(card: Card, top: float) -> tuple[str, str]:
    """Return one card with its upper edge at `top`, and its words."""
    step = min(10.0, (WIDTH - 2 * LEFT) / len(card.layers))
    foot = top + 34 + STRIP
    body = line(LEFT, top + 3, WIDTH - LEFT, top + 3, "grid")
    body += text(LEFT, top + 22, card.model, text_anchor="start", font_size=15, font_weight="600")
    bytes_each = f"{card.leaves():,.0f} bytes a token"
    body += text(WIDTH - LEFT, top + 22, bytes_each, text_anchor="end", font_weight="600")
    for kind in card.kinds():
        places = [n for n, layer in enumerate(card.layers) if layer.kind == kind]
        body += _marks([LEFT + step * n for n in places], foot, step - 1.4, kind)
    x, kinds = LEFT, []
    for kind, n in card.kinds().items():
        sizes = {layer.window for layer in card.layers if layer.kind == kind == "window"}
        words = " ".join([f"{n} × {kind}", *(f"{size:,}" for size in sizes)])
        body += _marks([x], foot + 29, 7.6, kind)
        body += text(x + 13, foot + 27, words, text_anchor="start", font_size=12)
        x += 28 + 6.4 * len(words)
        kinds.append(words)
    memory = f"{card.cache(LONG_TEXT) / 1e9:.3g} GB at 128k tokens"
    parts = {
        "windows": sum(layer.in_window * layer.window for layer in card.layers),
        "states": sum(layer.state for layer in card.layers),
    }
    inside = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in parts.items() if size)
    lines = (card.heads, card.sizes, card.words, memory + f" ({inside})" * bool(inside))
    for place, words in enumerate(lines):
        body += text(LEFT, foot + 47 + 17 * place, words, text_anchor="start", font_size=12)
    body += axis_title(WIDTH - LEFT, foot + 64, card.released, text_anchor="end", font_size=12)
    told = f"{card.model} ({card.released}): {', '.join(kinds)}; " + ", ".join(lines[:3])
    return body, f"{told}; {bytes_each}, {lines[3]}."


def _marks(lefts: Sequence[float], foot: float, wide: float, kind: str) -> str:
    """Return the marks of all layers of one kind, which stand on the line `foot`."""
    height, share = LOOKS[kind]
    w, h = number(wide), number(height)
    outline = f"v-{h}h{w}v{h}z"
    if kind == "state":
        half = number(wide / 2)
        outline = f"m{half} 0l{half} -{half}l-{half} -{half}l-{half} {half}z"
    colour = "muted" if kind in ("state", "shared", "no attention") else "key"
    return tag("path", d="".join(f"M{number(x + 0.7)} {number(foot)}{outline}" for x in lefts),
               fill=colour, fill_opacity=f"{share:g}", stroke=colour, stroke_width=0.8)
