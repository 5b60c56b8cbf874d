"""Figures that move: an SVG, the frames as JSON beside it, one script and one stylesheet.

`moving(draw, controls, …)` calls `draw` for every choice of the controls. Each frame is drawn in
Python as if it were the only one. A comparison of the finished frames finds what changes from one
to another; the script takes these values from frame to frame, and numbers go there in a quarter of
a second. Without scripts the frame that the controls start with and the table remain.

To those who hear the page, a slider tells its value, and a line that is not seen tells what the
move has changed: the first line of the frame's words. All of them are the drawing's name.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import chain, pairwise, product
from typing import Literal, NamedTuple

from attnbook.figures.drawing import Drawing, colour, rect

FIRST = ord("]")  # the first of 33 characters that JSON and a page need not escape


def changes(frames: Sequence[str]) -> dict[str, dict[str, Sequence[str]]]:
    """Return what changes from frame to frame: data-part, then attribute or "text", then values.

    Values of one character each are joined into a string, which takes the least room.

    >>> changes(['<a data-part="p" x="1" y="2">u</a>', '<a data-part="p" x="1" y="30">v</a>'])
    {'p': {'y': ['2', '30'], 'text': 'uv'}}

    Raises:
        ValueError: when frames differ in their elements, or an element without name changes.
    """
    parts: dict[str, dict[str, Sequence[str]]] = {}
    trees = [list(ET.fromstring(f"<g>{frame}</g>").iter()) for frame in frames]
    if len({tuple((element.tag, *element.attrib) for element in tree) for tree in trees}) > 1:
        raise ValueError("frames must have the same elements with the same attributes")
    for one in zip(*trees, strict=True):
        looks = [{**element.attrib, "text": element.text or ""} for element in one]
        for key, first in looks[0].items():
            values = [look[key] for look in looks]
            if any(value != first for value in values):
                if "data-part" not in one[0].attrib:
                    raise ValueError(f"an element that changes must have a data-part; got {first}")
                joined = "".join(values) if all(len(v) == 1 for v in values) else values
                parts.setdefault(one[0].attrib["data-part"], {})[key] = joined
    return parts


def packed(values: Sequence[str]) -> Sequence[Sequence[str]] | Sequence[str]:
    """Return the values as those that differ, and one character a frame that says which.

    Where that is not shorter, or the characters do not suffice, the values stay as they are.

    >>> packed(["from here", "to there", "from here"]), packed("010")
    ((['from here', 'to there'], ']^]'), '010')
    """
    kinds = list(dict.fromkeys(values))
    if isinstance(values, str) or not len(kinds) < min(len(values), 33):
        return values
    return kinds, "".join(chr(FIRST + kinds.index(value)) for value in values)


class Frame(NamedTuple):
    """One frame: its finished elements, its words, and its rows of the table below the drawing.

    The first line of the words is told when a control has moved; a second may have the rest.
    """

    elements: str
    words: str
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Control:
    """A slider, or a list to choose from: its label, its options as shown, and where it starts.

    A slider whose options are steps of one story has a button that plays them, `pace` seconds each;
    with `once` it plays by itself when the reader first sees the drawing.
    """

    name: str
    label: str
    options: tuple[str, ...]
    start: int = 0
    kind: Literal["slider", "choice"] = "slider"
    pace: float | None = None
    once: bool = False

    def html(self) -> str:
        """Return the label with its native input, which brings the keyboard along."""
        words = f"<label><span>{escape(self.label)}</span>"
        if self.kind == "choice":
            options = "".join(
                f'<option value="{index}"{" selected" * (index == self.start)}>'
                f"{escape(option)}</option>"
                for index, option in enumerate(self.options)
            )
            inner = f'{words}<select name="{self.name}">{options}</select></label>'
        else:
            shown = escape(self.options[self.start])
            # Room for the longest option, so that the slider keeps its length under the hand.
            room = f"min-width:{max(map(len, self.options))}ch"
            inner = (
                f'{words}<input type="range" name="{self.name}" min="0" '
                f'max="{len(self.options) - 1}" step="1" value="{self.start}" '
                f'aria-valuetext="{shown}"><output aria-live="off" style="{room}">{shown}</output>'
                "</label>"
            )
        return f'<div class="attn-control">{self._button()}{inner}</div>'

    def _button(self) -> str:
        if self.pace is None:
            return ""
        once = " data-once" * self.once
        return (
            f'<button type="button" value="{self.name}" data-pace="{1000 * self.pace:g}"{once} '
            f'aria-label="play: {escape(self.label)}">▶\ufe0e</button>'
        )


def hit(
    x: float, y: float, width: float, height: float, choice: str, *, drag: bool = False, **look: str
) -> str:
    """Return an unseen rectangle that sets controls: "control:place", several with a space between.

    It does so when it is clicked, or, to `drag`, while the pointer is drawn over it. What it does
    can be done with the controls below the drawing too, so it is no stop for the keyboard.
    """
    look = {"data_drag" if drag else "data_pick": choice} | look
    return rect(x, y, width, height, "ink", fill_opacity="0", class_="attn-hit", **look)


def strips(edges: Sequence[float], top: float, foot: float, control: str) -> list[str]:
    """Return what is unseen between neighbouring edges, over which a slider is dragged."""
    return [
        hit(left, top, right - left, foot - top, f"{control}:{place}", drag=True)
        for place, (left, right) in enumerate(pairwise(edges))
        if right > left
    ]


@dataclass(frozen=True, repr=False)
class MovingDrawing(Drawing):
    """A drawing with controls. Frames are numbered row by row over the controls' options.

    `parts` is what changes, as `changes` finds it: the `data-part` name of an SVG element, then an
    attribute's name or "text", then one value a frame.
    `labels` are the words of each frame, which the SVG's label follows. `table` (a header row, then
    rows) holds all values for those who see or hear no picture. `about` tells the table from that
    of another figure on the same page.
    """

    controls: tuple[Control, ...]
    parts: Mapping[str, Mapping[str, Sequence[str]]]
    labels: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    about: str = "the figure"

    def _controls(self) -> str:
        inputs = "".join(control.html() for control in self.controls)
        said = '<p class="attn-said" role="status"></p>'
        return f'<div class="attn-controls" hidden>{inputs}{said}</div>'

    def _table(self) -> str:
        head, *rows = self.table
        header = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        body = "".join(
            f'<tr><th scope="row">{escape(row[0])}</th>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
            + "</tr>"
            for row in rows
        )
        return (
            '<details><summary>All values as a table</summary><div class="attn-scroll" '
            f'tabindex="0" role="region" aria-label="All values of {escape(self.about)}">'
            f"<table><thead><tr>"
            f"{header}</tr></thead><tbody>{body}</tbody></table></div></details>"
        )

    def _repr_html_(self) -> str:
        data = {
            "options": {control.name: list(control.options) for control in self.controls},
            "labels": list(self.labels),
            "parts": {
                name: {key: packed(values) for key, values in attributes.items()}
                for name, attributes in self.parts.items()
            },
        }
        # "<" would let a label close the script element.
        stored = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        stylesheet, script = (
            (files("attnbook.figures") / f"moving.{kind}").read_text(encoding="utf-8")
            for kind in ("css", "js")
        )
        return (
            f'<div class="attn-figure attn-moving" style="background:{colour("paper")}">'
            f"{self.svg}{self._controls()}{self._table()}"
            f'<script type="application/json">{stored}</script>'
            f'<style class="attn-moving-style">{stylesheet}</style>'
            f'<script class="attn-moving-script">{script}</script></div>'
        )


def moving(
    draw: Callable[..., Frame],
    controls: Iterable[Control],
    width: float,
    height: float,
    *,
    columns: Sequence[str],
    about: str = "the figure",
) -> MovingDrawing:
    """Return the moving drawing whose frames are `draw(*places)`, in a box of width × height.

    There is one place a control, the index of its option; the last control changes fastest. An
    element that changes needs a `data-part` name, and is there in every frame. The table has these
    columns and the rows of all frames, each row once.
    """
    controls = tuple(controls)
    sizes = [len(control.options) for control in controls]
    frames = [draw(*places) for places in product(*map(range, sizes))]
    first = 0
    for control, size in zip(controls, sizes, strict=True):
        first = first * size + control.start
    chosen = frames[first]
    still = Drawing.from_elements(chosen.elements, width, height, chosen.words.replace("\n", " "))
    rows = dict.fromkeys(tuple(row) for row in chain(*(frame.rows for frame in frames)))
    labels = tuple(frame.words for frame in frames)
    parts = changes([frame.elements for frame in frames])
    return MovingDrawing(
        still.svg, still.alt, controls, parts, labels, (tuple(columns), *rows), about
    )
