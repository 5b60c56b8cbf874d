"""Figures that move: an SVG, the frames as JSON beside it, one script and one stylesheet.

Every number is computed in Python before the page is opened; the script only copies the values of
the chosen frame into the SVG. Without scripts the first frame and the table remain.

To those who hear the page, a slider tells its value, and a line that is not seen tells what the
move has changed: the first line of the frame's label. The whole label is the drawing's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import prod
from typing import Literal

from attnbook.figures.drawing import Drawing, colour


def script() -> str:
    """The script that all moving figures share."""
    return (files("attnbook.figures") / "moving.js").read_text(encoding="utf-8")


def stylesheet() -> str:
    """The stylesheet that all moving figures share."""
    return (files("attnbook.figures") / "moving.css").read_text(encoding="utf-8")


def one_line(label: str) -> str:
    """A frame's label as the name of its drawing, which has no lines."""
    return label.replace("\n", " ")


@dataclass(frozen=True)
class Control:
    """A slider, or a list to choose from: its label, its options as shown, and where it starts."""

    name: str
    label: str
    options: tuple[str, ...]
    start: int = 0
    kind: Literal["slider", "choice"] = "slider"

    def html(self) -> str:
        """The label with its native input, which brings the keyboard along."""
        words = f"<label><span>{escape(self.label)}</span>"
        if self.kind == "choice":
            options = "".join(
                f'<option value="{index}"{" selected" * (index == self.start)}>'
                f"{escape(option)}</option>"
                for index, option in enumerate(self.options)
            )
            return f'{words}<select name="{self.name}">{options}</select></label>'
        shown = escape(self.options[self.start])
        # Room for the longest option, so that the slider does not change its length under the hand.
        room = f"min-width:{max(map(len, self.options))}ch"
        return (
            f'{words}<input type="range" name="{self.name}" min="0" '
            f'max="{len(self.options) - 1}" step="1" value="{self.start}" '
            f'aria-valuetext="{shown}"><output aria-live="off" style="{room}">{shown}</output>'
            "</label>"
        )


@dataclass(frozen=True, repr=False)
class MovingDrawing(Drawing):
    """A drawing with controls. Frames are numbered row by row over the controls' options.

    `parts` maps the `data-part` name of an SVG element to what changes: an attribute's name, or
    "text", to one value a frame (a string holds values of one character in the least room).
    `labels` are the words for each frame: a line that is told when a control has moved there, and
    perhaps a second with the rest. The SVG's label, which follows the controls, is both. `table` (a
    header row, then rows) holds all values for those who see or hear no picture.

    Raises: `ValueError` when a sequence does not have one value a frame.
    """

    controls: tuple[Control, ...]
    parts: Mapping[str, Mapping[str, Sequence[str]]]
    labels: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        n_frames = prod(len(control.options) for control in self.controls)
        lengths = {"labels": len(self.labels)}
        for part, attributes in self.parts.items():
            lengths |= {f"{part}.{key}": len(values) for key, values in attributes.items()}
        for name, length in lengths.items():
            if length != n_frames:
                raise ValueError(f"expected {n_frames} values, one a frame; {name} has {length}")

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
            f'tabindex="0" role="region" aria-label="All values of the figure"><table><thead><tr>'
            f"{header}</tr></thead><tbody>{body}</tbody></table></div></details>"
        )

    def _repr_html_(self) -> str:
        data = {
            "options": {control.name: list(control.options) for control in self.controls},
            "labels": list(self.labels),
            "parts": {name: dict(attributes) for name, attributes in self.parts.items()},
        }
        # "<" would let a label close the script element.
        stored = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return (
            f'<figure class="attn-figure attn-moving" style="background:{colour("paper")}">'
            f"{self.svg}{self._controls()}{self._table()}"
            f'<script type="application/json">{stored}</script>'
            f'<style class="attn-moving-style">{stylesheet()}</style>'
            f'<script class="attn-moving-script">{script()}</script></figure>'
        )
