"""How much of its time a processor computes in a step of decoding, and how long it waits."""

from __future__ import annotations

from collections.abc import Mapping

from attnbook.figures.drawing import Drawing, axis_title, rect, text
from attnbook.figures.labels import END, START

WIDTH, TOP, ROW, BAR = 412.0, 40.0, 56.0, 24.0


def time_computing(points: Mapping[str, float], *, peak: float, bandwidth: float) -> Drawing:
    """Return a drawing of the time in which a processor computes, by its operations per byte.

    The roofline is min(peak, intensity · bandwidth). So of the time that the bytes take, computing
    takes the share intensity · bandwidth / peak, at most all of it.

    >>> time_computing({"one": 1}, peak=40e12, bandwidth=4e12).alt
    'A processor waits below 10 operations a byte. one 1, computes at most 10%.'
    """
    balance = peak / bandwidth
    title = f"A processor waits below {balance:.0f} operations a byte"
    body, told = [text(0, 18, title, font_size=14, font_weight="600", **START)], []
    for row, (name, intensity) in enumerate(points.items()):
        y, share = TOP + ROW * row, min(1.0, intensity / balance)
        computes, waits = (f"{part:.{0 if share > 0.095 else 1}%}" for part in (share, 1 - share))
        many = "s" * (intensity != 1)
        body += [text(0, y + 13, name, font_weight="600", **START),
                 axis_title(WIDTH, y + 13, f"{intensity:,.0f} operation{many} a byte", **END),
                 rect(0, y + 20, WIDTH, BAR, "grid", fill_opacity="0.6"),
                 rect(0, y + 20, round(WIDTH * share, 1), BAR, "plus")]
        # The words stand where they have room: in their own bar, or else beside it.
        inside = share > 0.45
        can = f"computes at most {computes}" if share < 1 else "can compute all of the time"
        body.append(text(10 if inside else round(WIDTH * share, 1) + 8, y + 37, can,
                         fill="paper" if inside else "ink", font_weight="600", **START))
        if share < 0.6:
            body.append(text(WIDTH - 8, y + 37, f"waits for memory {waits}", **END))
        told.append(f"{name} {intensity:.0f}, computes at most {computes}")
    height = TOP + ROW * len(points)
    return Drawing.from_elements("".join(body), WIDTH, height, f"{title}. {'; '.join(told)}.")
