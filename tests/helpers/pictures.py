"""The one place where it is said when a drawing is the stored one.

Words and structure are compared exactly: elements, attributes, texts, ids, colours, dashes. Numbers
that say where something stands may differ by less than an eye can see, because the last bits of a
computed coordinate differ from CPU to CPU, and a last bit can turn 0.125 into 0.12 or 0.13.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from nbval.plugin import get_sanitize_patterns

# In the pixels of a drawing. The finest screens have three or four dots to a pixel, so that a tenth
# is less than half a dot; it is also ten times what rounding to two decimals can do.
VISIBLE = 0.1
# Of a colour: one of its 256 steps is 0.004.
VISIBLE_OPACITY = 0.002

PLACES = {"d", "points", "transform", "viewBox", "x", "x1", "x2", "y", "y1", "y2"}
PLACES |= {"cx", "cy", "r", "rx", "ry", "width", "height"}
TOLERANCE = dict.fromkeys(PLACES, VISIBLE) | {"fill-opacity": VISIBLE_OPACITY}

NUMBER = re.compile(r"-?\d*\.?\d+")


def differences(drawn: str, stored: str) -> list[str]:
    """Return what differs between two SVGs, one line for each difference that can be seen.

    Example:
        >>> differences('<a x="1"/>', '<a x="1.05"/>')
        []
        >>> differences('<a x="1"/>', '<a x="2"/>')
        ['a, x: drawn 1, stored 2']
    """
    return list(_elements(ET.fromstring(drawn), ET.fromstring(stored)))


def _elements(drawn: ET.Element, stored: ET.Element) -> Iterator[str]:
    name = stored.tag.rpartition("}")[2]
    if drawn.tag != stored.tag or len(drawn) != len(stored):
        yield f"{name}: drawn {_outline(drawn)}, stored {_outline(stored)}"
        return
    for part in ("text", "tail"):
        words = [(getattr(element, part) or "").strip() for element in (drawn, stored)]
        if words[0] != words[1]:
            yield f"{name}: drawn {words[0]!r}, stored {words[1]!r}"
    for key in sorted(drawn.attrib.keys() | stored.attrib.keys()):
        values = drawn.get(key), stored.get(key)
        if None in values or not _same(*values, TOLERANCE.get(key, 0.0)):  # type: ignore[arg-type]
            yield f"{name}, {key}: drawn {values[0]}, stored {values[1]}"
    for pair in zip(drawn, stored, strict=True):
        yield from _elements(*pair)


def _outline(element: ET.Element) -> str:
    names = [inner.tag.rpartition("}")[2] for inner in (element, *element)]
    return f"{names[0]} of {len(names) - 1} elements: {' '.join(names[1:])}"


def _same(drawn: str, stored: str, tolerance: float) -> bool:
    if not tolerance:
        return drawn == stored
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (drawn, stored)]
    return NUMBER.split(drawn) == NUMBER.split(stored) and all(
        abs(a - b) <= tolerance for a, b in zip(*numbers, strict=True)
    )


def without(sanitizers: Path | None, drawing: str) -> str:
    """Return the drawing without what nbval's file of sanitizers replaces; None leaves it whole."""
    if sanitizers is not None:
        for regex, new in get_sanitize_patterns(sanitizers.read_text(encoding="utf-8")):
            drawing = re.sub(regex, new, drawing)
    return drawing
