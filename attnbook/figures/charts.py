"""Axes in one style: every chart of the course is a Matplotlib figure that starts here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from attnbook.figures.drawing import COLOURS, Drawing

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


@contextmanager
def canvas(height: float, n_panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure of so many inches and its panels side by side, in the course's style."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        yield figure, list(figure.subplots(1, n_panels, squeeze=False)[0])


def powers_axis(axes: Axes, values: Sequence[int], n_panels: int = 1) -> None:
    """Make the horizontal axis logarithmic, with a tick at each value and none between."""
    axes.set_xscale("log", base=2)
    ticks(axes, values, np.log2(values), n_panels)
    axes.minorticks_off()


def ticks(axes: Axes, values: Sequence[int], places: ArrayLike, n_panels: int = 1) -> None:
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
    """Return a drawing of up to three series over the same x, in different colours and dashes.

    With `powers` both axes are logarithmic, so that a power law is a straight line. Every x has its
    tick. The axes and the ends of each series follow in the alt text.

    Raises:
        ValueError: for more than three series or one that is not as long as x.
    """
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"there must be one to {len(SERIES)} series; got {len(series)}")
    with canvas(3.9) as (figure, [axes]):
        kind = ", both axes logarithmic" * powers
        words = [f"{y_title} against {x_title}{kind}"]
        for (name, values), look in zip(series.items(), SERIES, strict=False):
            heights = np.asarray(values, dtype=np.float64)
            if heights.shape != (len(x),):
                raise ValueError(f"{name!r} must have {len(x)} values; got shape {heights.shape}")
            words.append(f"{name} from {heights[0]:.3g} at {x[0]} to {heights[-1]:.3g} at {x[-1]}")
            axes.plot(x, heights, label=name, markersize=6, **look)
        if powers:
            powers_axis(axes, x)
            axes.set_yscale("log")
        else:
            ticks(axes, x, x)
        axes.set_xlabel(x_title)
        axes.set_ylabel(y_title)
        axes.grid(axis="y")
        if len(series) > 1:
            legend_above(figure, axes)
        return Drawing.from_matplotlib(figure, _told(alt, words))


def bars(
    labels: Sequence[str], series: Mapping[str, ArrayLike], *, y_title: str, alt: str
) -> Drawing:
    """Return a drawing of up to three rows of numbers as bars, each bar with its number.

    Numbers have two decimals, and none where all are whole; they follow in the alt text.

    Raises:
        ValueError: for more than three series or one that is not as long as `labels`.
    """
    if not 1 <= len(series) <= len(SERIES):
        raise ValueError(f"there must be one to {len(SERIES)} series; got {len(series)}")
    places = np.arange(len(labels))
    width = 0.8 / len(series)
    whole = all(np.equal(np.mod(values, 1), 0).all() for values in series.values())
    with canvas(3.5) as (figure, [axes]):
        words = []
        for index, ((name, values), look) in enumerate(zip(series.items(), SERIES, strict=False)):
            heights = np.asarray(values, dtype=np.float64)
            if heights.shape != (len(labels),):
                raise ValueError(
                    f"{name!r} must have {len(labels)} values; got shape {heights.shape}"
                )
            left = places + (index - (len(series) - 1) / 2) * width
            drawn = axes.bar(
                left,
                heights,
                0.9 * width,
                label=name,
                color=look["color"],
                hatch="/" * index or None,
                edgecolor=COLOURS["paper"],
            )
            shown = [f"{height:.{0 if whole else 2}f}".replace("-", "−") for height in heights]
            axes.bar_label(drawn, shown, color=COLOURS["ink"])
            pairs = (f"{label} {height}" for label, height in zip(labels, shown, strict=True))
            words.append(f"{name}: {', '.join(pairs)}")
        # Where they would touch each other, labels of two words have two lines.
        crowded = sum(map(len, labels)) + 2 * len(labels) > 44
        axes.set_xticks(places, [s.replace(" ", "\n") if crowded else s for s in labels])
        axes.set_ylabel(y_title)
        axes.margins(y=0.15)
        legend_above(figure, axes)
        return Drawing.from_matplotlib(figure, _told(alt, words))


def _told(alt: str, words: Sequence[str]) -> str:
    """Return what a chart's author says of it, and then its numbers."""
    numbers = re.sub(r"(?<!\w)-(?=\d)", "−", "; ".join(words))
    return f"{alt} {numbers}."
