"""What limits a kernel: the roof that bytes and operations build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnbook.figures.charts import SERIES, canvas
from attnbook.figures.drawing import COLOURS, Drawing

# One look for each point: a fourth joins those of the series.
LOOKS: tuple[dict[str, Any], ...] = (*SERIES, {"color": COLOURS["ink"], "marker": "D"})


def roofline(
    points: Mapping[str, float], *, peak: float, bandwidth: float, lower: Mapping[str, float]
) -> Drawing:
    """Return a drawing of the operations a second that a machine allows, by operations per byte.

    The roof is min(peak, intensity · bandwidth); each of up to four points lies on it, at its
    intensity. `lower` maps words to further ceilings, in operations a second like `peak`.

    Raises:
        ValueError: for no point or more than four.
    """
    if not 1 <= len(points) <= len(LOOKS):
        raise ValueError(f"points must hold one to {len(LOOKS)} points; got {len(points)}")
    balance = peak / bandwidth
    first, last = (np.log(end([*points.values(), balance])) / np.log(4) for end in (min, max))
    ends = [4**power for power in range(max(int(first), 0), int(np.ceil(last)) + 1)]
    with canvas(4.2) as (figure, [axes]):
        roof = np.array([ends[0], balance, ends[-1]])
        heights = np.minimum(peak, roof * bandwidth) / 1e12
        axes.plot(roof, heights, color=COLOURS["ink"], linewidth=2)
        for words, ceiling in lower.items():
            start = ceiling / bandwidth
            level = ceiling / 1e12
            axes.plot([start, ends[-1]], [level] * 2, color=COLOURS["muted"], linestyle="--")
            axes.annotate(
                words, (ends[-1], level), (0, -5), textcoords="offset points", ha="right", va="top"
            )
        axes.axvline(balance, color=COLOURS["grid"])
        n_flat = 0  # of the points so far
        for (name, intensity), look in zip(points.items(), LOOKS, strict=False):
            rate = min(peak, intensity * bandwidth) / 1e12
            axes.plot([intensity], [rate], markersize=9, **look | {"linestyle": ""})
            # Below the roof, where no line is: beside a slope, and each in its own line under what
            # is flat.
            slope = intensity < balance
            below = (10, -4) if slope else (0, -11 - 15 * n_flat)
            n_flat += not slope
            axes.annotate(
                name, (intensity, rate), below, va="top",
                textcoords="offset points", ha="left" if slope else "center", color=look["color"],
                bbox={"facecolor": COLOURS["paper"], "edgecolor": "none", "pad": 0.5},
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ends, [str(end) for end in ends])
        axes.minorticks_off()
        axes.set_xlabel("operations per byte")
        axes.set_ylabel("10¹² operations a second")
        axes.grid(axis="y")
        axes.set_ylim(bottom=heights.min() / 2)
        for words, way, side in (("← memory limits", -6, "right"), ("products limit →", 6, "left")):
            axes.annotate(
                words, (balance, 0), (way, 6), xycoords=("data", "axes fraction"), ha=side,
                textcoords="offset points", color=COLOURS["muted"],
            )
        places = "; ".join(
            f"{name} at {intensity:.0f}, roof {min(peak, intensity * bandwidth) / 1e12:.0f}"
            for name, intensity in points.items()
        )
        further = "".join(f", {words} at {ceiling / 1e12:.0f}" for words, ceiling in lower.items())
        alt = (
            f"Roofline: it rises to {peak / 1e12:.0f} at {balance:.0f} operations per byte and is "
            f"flat from there{further}. {places}."
        )
        return Drawing.from_matplotlib(figure, alt)
