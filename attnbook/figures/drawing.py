"""A drawing: one SVG that follows the page's colours, with the words that stand for it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from html import escape
from io import StringIO
from math import hypot
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# One name, one meaning, one colour: CONTRIBUTING.md says which is for what. On a page each is the
# CSS variable --attn-<name>, so that a dark theme can redefine it; the value here is the fallback,
# and what a saved file contains.
COLOURS = {
    "ink": "#1f2933",
    "muted": "#56616e",
    "grid": "#d4dae1",
    "paper": "#ffffff",
    "query": "#1565b0",
    "key": "#b5500b",
    "value": "#1b7340",
    "weight": "#7a3db8",
    "output": "#b3246b",
    "plus": "#0b6b73",
    "minus": "#85501f",
}

# Letters are 13 px high. On a phone of 360 px the column has 328: a drawing that is no wider than
# this shrinks to three quarters there, and its letters to 9.5 px.
WIDEST = 448.0
# Where there is room, a drawing is shown so many times as large, but never wider than this.
SCALE, WIDEST_SHOWN = 1.4, 720.0

FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def colour(name: str) -> str:
    """Return the CSS value of a named colour: `colour("ink")` is `var(--attn-ink, #1f2933)`."""
    return f"var(--attn-{name}, {COLOURS[name]})"


def number(value: float) -> str:
    """Return a coordinate with at most two decimals, so that rounding noise never reaches a file.

    The noise goes first, with a rounding to six decimals: half a hundredth and a last bit less is
    still half a hundredth, and both CPUs print the same.

    >>> number(12.0), number(0.1 + 0.2), number(-0.001)
    ('12', '0.3', '0')
    >>> number(4.035), number(4.035 - 1e-12), number(4.035 + 1e-12)
    ('4.04', '4.04', '4.04')
    """
    text = f"{round(float(value), 6):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """Return an SVG element: "_" in a name becomes "-", numbers are rounded, colours have names.

    >>> tag("rect", x=1, stroke_width=0.5, fill="ink")
    '<rect x="1" stroke-width="0.5" fill="var(--attn-ink, #1f2933)"/>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else number(value)
            if key in ("fill", "stroke") and shown in COLOURS:
                shown = colour(shown)
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    opening = " ".join(parts)
    return f"<{opening}>{content}</{name}>" if content else f"<{opening}/>"


def text(x: float, y: float, words: str, **attributes: Any) -> str:
    """Text at (x, y), in ink and centred unless the attributes say otherwise."""
    style = {"fill": "ink", "text_anchor": "middle", "font_size": 13} | attributes
    return tag("text", escape(words, quote=False), x=x, y=y, **style)


def headline(x: float, y: float, words: str, part: str) -> str:
    """Return the words above a drawing, which tell what a frame shows."""
    look = {"text_anchor": "start", "font_size": 15, "font_weight": "600"}
    return text(x, y, words, **look, data_part=part)


def line(x1: float, y1: float, x2: float, y2: float, name: str, dash: str | None = None) -> str:
    """Return a line in a named colour, dashed where a dash is given."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=name, stroke_dasharray=dash)


def rect(x: float, y: float, width: float, height: float, fill: str = "none", **look: Any) -> str:
    """Return a rectangle with its upper left corner at (x, y)."""
    return tag("rect", x=x, y=y, width=width, height=height, fill=fill, **look)


def arrow(x1: float, y1: float, x2: float, y2: float, name: str, width: float = 1.0) -> str:
    """Return an arrow in a named colour, with its tip at (x2, y2)."""
    length = hypot(x2 - x1, y2 - y1)
    along = (x2 - x1) / length, (y2 - y1) / length
    foot = x2 - 7 * along[0], y2 - 7 * along[1]
    sides = [(foot[0] + s * 4 * along[1], foot[1] - s * 4 * along[0]) for s in (1, -1)]
    points = " ".join(f"{number(x)},{number(y)}" for x, y in [(x2, y2), *sides])
    shaft = tag("line", x1=x1, y1=y1, x2=foot[0], y2=foot[1], stroke=name, stroke_width=width)
    return shaft + tag("polygon", points=points, fill=name)


def axis_title(x: float, y: float, words: str, *, upright: bool = False, **look: Any) -> str:
    """Return the muted title of an axis; an upright one is read from below."""
    turned = f"rotate(-90 {number(x)} {number(y)})" if upright else None
    return text(x, y, words, **{"fill": "muted", "transform": turned} | look)


@dataclass(frozen=True)
class Drawing:
    """An SVG with its words: shown by Jupyter, Colab and the book, and readable aloud.

    `alt` says what the picture shows to those who do not see it; `svg` is the complete element.

    Raises:
        ValueError: when `alt` has fewer than five words, since no picture goes without.
    """

    svg: str
    alt: str

    def __post_init__(self) -> None:
        if len(self.alt.split()) < 5:
            raise ValueError(f"alt text must have at least five words; got {self.alt!r}")

    @classmethod
    def from_elements(cls, body: str, width: float, height: float, alt: str) -> Drawing:
        """Return the drawing of finished SVG elements in a box of width × height.

        It is shown larger where there is room, and shrinks to a narrower column.
        """
        scale = min(SCALE, WIDEST_SHOWN / width)
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} '
            f'{number(height)}" width="{number(scale * width)}" height="{number(scale * height)}" '
            f'style="max-width:100%;height:auto" role="img" '
            f'aria-label="{escape(alt)}" font-family="{FONT}">'
        )
        return cls(f"{opening}{body}</svg>", alt)

    @classmethod
    def from_matplotlib(cls, figure: Figure, alt: str) -> Drawing:
        """Return the drawing of a Matplotlib figure: text stays text, colours become variables."""
        buffer = StringIO()
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True
        )
        source = buffer.getvalue()
        body = source[source.index(">", source.index("<svg")) + 1 : source.rindex("</svg>")]
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
        # Stable and small: coordinates of two decimals; text between tags stays as it is.
        body = re.sub(
            r"(>[^<]*<)|-?\d+\.\d{3,}(?:e-?\d+)?",
            lambda match: match[1] or number(float(match[0])),
            body,
        )
        body = re.sub(r">\s+<", "><", _numbered_ids(body, alt))
        body = body.replace("xlink:href", "href")
        for name, value in COLOURS.items():
            body = body.replace(value, colour(name))
        # The page's own font stands in for the one that Matplotlib measured with.
        body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
        width, height = figure.get_size_inches() * 72
        return cls.from_elements(body.strip(), width, height, alt)

    def plain_svg(self) -> str:
        """Return the SVG with fixed colours, for programs that know no CSS variables."""
        return re.sub(r"var\(--attn-[a-z]+, (#[0-9a-f]{6})\)", r"\1", self.svg)

    def _repr_html_(self) -> str:
        # The paper stands behind the drawing outside the book, where nothing sets the variables.
        background = f"background:{colour('paper')}"
        return f'<div class="attn-figure" style="{background}">{self.svg}</div>'

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.alt}"


class Drawings(tuple[Drawing, ...]):
    """Drawings of one width: beside one another where there is room, else one below the other.

    >>> two = Drawings([Drawing("<svg/>", "one drawing of the two")] * 2)
    >>> two._repr_html_().count("<svg/>"), len(repr(two).splitlines())
    (2, 2)
    """

    def _repr_html_(self) -> str:
        look = ("display:grid;gap:1.5rem 1.25rem;align-items:start;"
                "grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));"
                f"background:{colour('paper')}")
        return f'<div class="attn-figure" style="{look}">{"".join(one.svg for one in self)}</div>'

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))


def _numbered_ids(body: str, alt: str) -> str:
    """Return the SVG with the ids that are referred to, numbered in the order of appearance.

    Matplotlib's own ids are hashes of unrounded coordinates, whose last bits differ from CPU to
    CPU. Several drawings share one page: the hash of its words makes the ids this drawing's own.
    """
    reference = r"(xlink:href=\"#|url\(#)([\w.-]+)"
    used = {name for _, name in re.findall(reference, body)}
    defined = [name for name in re.findall(r' id="([\w.-]+)"', body) if name in used]
    own = hashlib.sha256(alt.encode()).hexdigest()[:8]
    new = {name: f"{own}-{count}" for count, name in enumerate(defined, start=1)}
    body = re.sub(
        r' id="([\w.-]+)"',
        lambda match: f' id="{new[match[1]]}"' if match[1] in new else "",
        body,
    )
    return re.sub(reference, lambda match: match[1] + new[match[2]], body)
