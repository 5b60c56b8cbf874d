"""What limits a kernel: where its numbers live, and the roof that bytes and operations build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnbook.figures.charts import SERIES, canvas
from attnbook.figures.drawing import COLOURS, Drawing, line, rect, text

# One look for each point: a fourth joins those of the series.
LOOKS: tuple[dict[str, Any], ...] = (*SERIES, {"color": COLOURS["ink"], "marker": "D"})

# Size, and what a fused attention kernel keeps there. Sizes: data sheet of the H200, and NVIDIA's
# tuning guide for Hopper, which has 50 MB of L2 for the H100; an H200 tells torch of 60.
H200 = {
    "registers": ("256 KiB in each of 132", "a tile of scores; m, ℓ, õ"),
    "shared memory": ("228 KiB in each of 132", "blocks of Q, K and V"),
    "L2 cache": ("50 to 60 MB for all", "keys and values that were just read"),
    "HBM": ("141 GB for all, 4.8 TB/s", "Q, K, V, O, L; the dense form’s scores and weights"),
}


def memory_levels(levels: Mapping[str, tuple[str, str]]) -> Drawing:
    """Return a drawing of a GPU's memories, the fastest and smallest on top, and what each holds.

    `levels` maps a memory's name to its size and to what is kept in it, from the fastest on.

    Raises:
        ValueError: without levels.

    >>> memory_levels({"cache": ("1 MB", "Q"), "memory": ("9 GB", "K and V")}).alt[40:]
    'on top: cache (1 MB) holds Q; memory (9 GB) holds K and V.'
    """
    if not levels:
        raise ValueError("levels must hold at least one level; got none")
    width, height, gap = 440.0, 58.0, 24.0
    body: list[str] = []
    for index, (name, (size, held)) in enumerate(levels.items()):
        # Each is wider than the one above it, as it is larger.
        inset = 60.0 * (len(levels) - 1 - index) / len(levels)
        y = 10.0 + index * (height + gap)
        last = index == len(levels) - 1
        shade = "key" if last else "query"
        box = rect(
            10 + inset, y, width - 20 - 2 * inset, height, shade, rx=6, stroke=shade,
            fill_opacity=f"{0.06 if last else 0.2 - 0.04 * index:.2f}",
            stroke_dasharray="6 4" if last else None,
        )  # fmt: skip
        body.append(box)
        left, right, middle = 22 + inset, width - 22 - inset, y + height / 2
        body.append(text(left, middle - 5, name, text_anchor="start", font_weight="600"))
        body.append(text(right, middle - 5, size, text_anchor="end", fill="muted"))
        body.append(text(left, middle + 16, held, text_anchor="start"))
        if not last:
            x, top, foot = width / 2, y + height + 4, y + height + gap - 4
            body.append(line(x, top, x, foot, "muted"))
            for end, way in ((top, 5), (foot, -5)):
                body += [line(x, end, x + side, end + way, "muted") for side in (-4, 4)]
    words = "; ".join(f"{name} ({size}) holds {held}" for name, (size, held) in levels.items())
    alt = f"Memories of a GPU, fastest and smallest on top: {words}."
    tall = 20.0 + len(levels) * (height + gap) - gap
    return Drawing.from_elements("".join(body), width, tall, alt)


def roofline(
    points: Mapping[str, float], *, peak: float, bandwidth: float, lower: Mapping[str, float]
) -> Drawing:
    """Return a drawing of the operations a second that a machine allows, by operations per byte.

    The roof is min(peak, intensity · bandwidth); each of up to four points lies on it, at its
    intensity. `lower` maps words to further ceilings, in operations a second like `peak`.

    Raises:
        ValueError: for no point, more than four, or an intensity that is not positive.
    """
    if not 1 <= len(points) <= len(LOOKS):
        raise ValueError(f"points must hold one to {len(LOOKS)} points; got {len(points)}")
    if not all(0 < intensity < np.inf for intensity in points.values()):
        raise ValueError(f"intensities must be positive and finite; got {list(points.values())}")
    balance = peak / bandwidth
    ends = _powers([*points.values(), balance])
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
        for (name, intensity), look in zip(points.items(), LOOKS, strict=False):
            rate = min(peak, intensity * bandwidth) / 1e12
            axes.plot([intensity], [rate], label=name, markersize=9, **look | {"linestyle": ""})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ends, [str(end) for end in ends])
        axes.minorticks_off()
        axes.set_xlabel("operations per byte")
        axes.set_ylabel("10¹² operations a second")
        axes.grid(axis="y")
        axes.legend(loc="lower right")
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


def _powers(values: Sequence[float]) -> list[int]:
    """Return the powers of 4, from 1 on, that enclose some numbers."""
    first, last = np.log(min(values)) / np.log(4), np.log(max(values)) / np.log(4)
    return [4**power for power in range(max(int(first), 0), int(np.ceil(last)) + 1)]
