"""A plane with vectors that turn about its centre. A coordinate is in pixels, y points down."""

from __future__ import annotations

from math import hypot

import numpy as np

from attnbook.figures.drawing import Array, line, number, tag, text

Point = tuple[float, float]


def turning_arrow(
    centre: Point, vector: Array, unit: float, name: str, part: str, dash: str = ""
) -> str:
    """Return an arrow that can turn, from the centre: a vector's entries times `unit` pixels."""
    along = np.array([vector[0], -vector[1]]) / hypot(*vector)
    tip = np.array(centre) + unit * hypot(*vector) * along
    foot = tip - 10 * along
    across = 5 * np.array([along[1], -along[0]])
    corners = [tip, foot + across, foot - across]
    points = " ".join(f"{number(round(x, 1))},{number(round(y, 1))}" for x, y in corners)
    shaft = tag("line", x1=centre[0], y1=centre[1], x2=round(foot[0], 1), y2=round(foot[1], 1),
                stroke=name, stroke_width=2.5, stroke_dasharray=dash or None,
                data_part=f"{part}-shaft")
    return shaft + tag("polygon", points=points, fill=name, data_part=f"{part}-tip")


def past_tip(centre: Point, vector: Array, unit: float, beyond: float) -> Point:
    """Return the point `beyond` pixels past a vector's tip, for a name in letters of 13."""
    length = hypot(*vector)
    x, y = (1 + beyond / (unit * length)) * unit * np.array([vector[0], -vector[1]])
    return round(centre[0] + x, 1), round(centre[1] + y + 4.5, 1)


def name_at_tip(centre: Point, vector: Array, unit: float, name: str, fill: str) -> str:
    """Return the name of a vector, beyond its tip."""
    return text(*past_tip(centre, vector, unit, 10), name, fill=fill, font_weight="600",
                data_part=f"{name}-name")


def axes_of_plane(centre: Point, reach: float) -> str:
    """Return the two axes of a plane."""
    x, y = centre
    return line(x - reach, y, x + reach, y, "grid") + line(x, y - reach, x, y + reach, "grid")
