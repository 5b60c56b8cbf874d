"""Axes in one style: every chart of the course is a Matplotlib figure that starts here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from attnbook.figures.drawing import (
    COLOURS,
    Drawing,
    axis_title,
    line,
    rect,
    text,
)
from attnbook.figures.labels import decimal

WIDTH = 5.85  # inches: 421 px, so that letters of 13 px still have 10 in the column of a phone

# Set for the time of one drawing only: the reader's own Matplotlib settings stay as they are.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "attnlib",
    "font.size": 13,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 13,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "grid.color": COLOURS["grid"],
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}

# Colour is never the only carrier: series differ in colour, marker and dash together.
SERIES: tuple[dict[str, Any], ...] = (
    {"color": COLOURS["minus"], "marker": "s", "linestyle": "--"},
    {"color": COLOURS["plus"], "marker": "o", "linestyle": "-"},
    {"color": COLOURS["muted"], "marker": "^", "linestyle": ":"},
)
LINES = (*SERIES, {"color": COLOURS["ink"], "marker": "D", "linestyle": "-."})


@contextmanager
def canvas(height: float, n_panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure of so many inches and its panels side by side, in the course's style."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        yield figure, list(figure.subplots(1, n_panels, squeeze=False)[0])


def powers_axis(axes: Axes, values: Sequence[int], n_panels: float = 1) -> None:
    """Make the horizontal axis logarithmic, with a tick at each value and none between."""
    axes.set_xscale("log", base=2)
    ticks(axes, values, np.log2(values), n_panels)
    axes.minorticks_off()


def ticks(axes: Axes, values: Sequence[int], places: ArrayLike, n_panels: float = 1) -> None:
    """Put a tick at each value, and numbers as close as they can stand without touching."""
    shown, at = [str(value) for value in values], np.asarray(places, dtype=np.float64)
    pixels = (at - at[0]) / (np.ptp(at) or 1.0) * (340 / n_panels - 10)

    def touch(step: int) -> bool:
        kept = list(zip(pixels, shown, strict=True))[::step]
        return any(y - x < 4 * (len(a) + len(b)) + 5 for (x, a), (y, b) in pairwise(kept))

    step = next((step for step in range(1, len(shown)) if not touch(step)), len(shown))
    axes.set_xticks(list(values), [s if i % step == 0 else "" for i, s in enumerate(shown)])


def legend_above(figure: Figure, axes: Axes) -> None:
    """Put the legend above the axes, where it covers nothing, in as few lines as there is room."""
    handles, names = axes.get_legend_handles_labels()
    columns = len(names) if sum(map(len, names)) * 8 + 50 * len(names) < 430 else 1
    figure.legend(handles, names, loc="outside upper center", ncols=columns)


def lines(
    x: Sequence[int],
    series: Mapping[str, ArrayLike],
    *,
    x_title: str,
    y_title: str,
    alt: str,
    powers: bool = False,
) -> Drawing:
    """Return a drawing of up to four series over the same x, in different colours and dashes.

    With `powers` both axes are logarithmic, so that a power law is a straight line. Every x has its
    tick. Each of several series has its name at the height of its end, and may end before the
    last x. The axes and the ends of each series follow in the alt text.

    Raises:
        ValueError: for more than four series.
    """
    if not 1 <= len(series) <= len(LINES):
        raise ValueError(f"there must be one to {len(LINES)} series; got {len(series)}")
    with canvas(3.9) as (figure, [axes]):
        kind = ", both axes logarithmic" * powers
        words = [f"{y_title} against {x_title}{kind}"]
        table = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
        for (name, heights), look in zip(table.items(), LINES, strict=False):
            end = len(heights) - 1
            first, last = f"{heights[0]:.3g} at {x[0]}", f"{heights[end]:.3g} at {x[end]}"
            words.append(f"{name} from {first} to {last}")
            axes.plot(x[: end + 1], heights, label=name, markersize=6, **look)
        panels = 1.4 if len(series) > 1 else 1  # names take some of the room
        if powers:
            powers_axis(axes, x, panels)
            axes.set_yscale("log")
        else:
            ticks(axes, x, x, panels)
        axes.set_xlabel(x_title)
        axes.set_ylabel(y_title)
        axes.grid(axis="y")
        if len(series) > 1:
            _names_at_ends(axes, x, table)
        return Drawing.from_matplotlib(figure, _told(alt, words))


def _names_at_ends(axes: Axes, x: Sequence[int], table: Mapping[str, NDArray[np.float64]]) -> None:
    """Write each name beside the end of its line, in its colour, none on another.

    Lines that end together have their names in the order in which they come there.
    """
    tall, row = 215.0, 15.0  # points: about the height of the axes, and of a line of letters
    ends = {name: (x[-1], heights[-1]) for name, heights in table.items()}
    looks = dict(zip(ends, LINES, strict=False))
    # A sum stays in one line.
    shown = {
        name: wrap(name.replace(" + ", "\N{NO-BREAK SPACE}+\N{NO-BREAK SPACE}"), 14,
                   break_long_words=False)
        for name in ends
    }
    to_share = axes.transScale + axes.transLimits
    places = {name: round(tall * to_share.transform(end)[1], 1) for name, end in ends.items()}
    way = {
        name: to_share.transform(list(zip(x, heights, strict=False)))[:, 1].mean()
        for name, heights in table.items()
    }
    below, order = -row, sorted(ends, key=lambda name: (round(places[name] / 4), way[name]))
    feet = []
    for name in order:
        half = row * len(shown[name]) / 2
        below = max(places[name] - half, below) + 2 * half
        feet.append(below - half)
    # Those that were pushed up beyond the top come down again, and take the others along.
    above = tall + row
    for place in reversed(range(len(order))):
        half = row * len(shown[order[place]]) / 2
        feet[place] = min(feet[place], above - half)
        above = feet[place] - half
    for name, foot in zip(order, feet, strict=True):
        axes.annotate(
            "\n".join(shown[name]), ends[name], (9, round(foot - places[name], 1)),
            textcoords="offset points", va="center", color=looks[name]["color"],
        )


# The width of a drawing of bars, whose letters keep 11 px on a phone of 390 px; a bar's height; the
# colours and looks of up to three series, which differ in more than colour.
ACROSS, BAR = 416.0, 17.0
FILLS: tuple[dict[str, Any], ...] = (
    {},
    {"fill_opacity": "0.2"},
    {"fill_opacity": "0", "stroke_dasharray": "4 3"},
)


def bars(
    labels: Sequence[str],
    series: Mapping[str, ArrayLike],
    *,
    y_title: str,
    alt: str,
    apart: bool = False,
) -> Drawing:
    """Return a drawing of up to three rows of numbers as bars, each bar with its number beside it.

    Bars lie, one below the other. If the series are `apart`, each has a column and a scale of its
    own, for quantities that are not to be compared. A series that is called as one of the course's
    quantities has its colour. Numbers have two decimals, and none where all of their scale
    are whole; they follow in the alt text.

    >>> bars(["a", "b"], {"weight": [0.25, 0.75]}, y_title="weight", alt="Two weights.").alt
    'Two weights. weight: a 0.25, b 0.75.'
    """
    table = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    whole = {name: bool(np.equal(np.mod(row, 1), 0).all()) for name, row in table.items()}
    if not apart:  # on one scale, all numbers have the same decimals
        whole = dict.fromkeys(table, all(whole.values()))
    shown = {
        name: [decimal(v, 0 if whole[name] else 2) for v in row] for name, row in table.items()
    }
    room = 8.0 * max(len(number) for row in shown.values() for number in row) + 8
    left, top = 18 + 8.4 * max(map(len, labels)), 34.0 if len(series) == 1 else 58.0
    columns, lanes = (len(series), 1) if apart else (1, len(series))
    column, step = (ACROSS - left) / columns, BAR * lanes + (12 if lanes > 1 else 9)
    body = [axis_title(left, 18, y_title, text_anchor="start")]
    plain = ("muted",) * 3 if apart else ("minus", "plus", "muted") if len(table) > 1 else ("plus",)
    mark = left
    for index, (name, values) in enumerate(table.items()):
        colour_name = name if name in COLOURS else plain[index]
        look = {"stroke": colour_name, "stroke_width": 1.5, **FILLS[0 if apart else index]}
        start = left + index * column if apart else left
        everything = values if apart else np.concatenate(list(table.values()))
        low, high = min(0.0, everything.min()), max(0.0, everything.max())
        unit = (column - room * (1 + (low < 0)) - 12) / ((high - low) or 1.0)
        zero = start + room * (low < 0) - low * unit
        if apart:
            body.append(text(zero, 41, name, text_anchor="start", font_weight="600",
                             fill=colour_name))
        elif len(table) > 1:
            body.append(rect(mark, 30, 16, 12, colour_name, **look))
            body.append(text(mark + 22, 41, name, text_anchor="start"))
            mark += 44 + 7.6 * len(name)
        for row, (value, number) in enumerate(zip(values, shown[name], strict=True)):
            y, wide = top + step * row + (0 if apart else BAR * index), round(unit * abs(value), 1)
            edge, side = (zero - wide - 6, "end") if value < 0 else (zero + wide + 6, "start")
            body += [
                rect(zero - wide if value < 0 else zero, y + 2, wide, BAR - 4, colour_name, **look),
                text(edge, y + BAR / 2 + 4.5, number, text_anchor=side),
            ]
        body.append(line(zero, top - 3, zero, top + step * len(labels) - 6, "muted"))
    for row, label in enumerate(labels):
        y = top + step * row + BAR * lanes / 2 + 4.5
        body.append(text(left - 10, y, label, text_anchor="end"))
    words = [
        f"{name}: " + ", ".join(f"{label} {n}" for label, n in zip(labels, row, strict=True))
        for name, row in shown.items()
    ]
    height = top + step * len(labels)
    return Drawing.from_elements("".join(body), ACROSS, height, _told(alt, words))


def _told(alt: str, words: Sequence[str]) -> str:
    """Return what a chart's author says of it, and then its numbers."""
    numbers = re.sub(r"(?<!\w)-(?=\d)", "−", "; ".join(words))
    return f"{alt} {numbers}."
