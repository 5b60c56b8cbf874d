"""How long a processor computes in a step of decoding, and how long the memory is read."""

from __future__ import annotations

from collections.abc import Mapping

from attnbook.figures.drawing import Drawing, axis_title, headline, rect, text
from attnbook.figures.labels import END, START

WIDTH, TOP, ROW, BAR, LEFT, RIGHT = 412.0, 62.0, 76.0, 18.0, 76.0, 356.0


def time_computing(points: Mapping[str, float], *, peak: float, bandwidth: float) -> Drawing:
    """Return a drawing of how busy a processor and its memory are, by the operations per byte.

    The roofline is min(peak, intensity · bandwidth). The slower of the two is busy all the time,
    and the other waits: computing takes the share intensity · bandwidth / peak of the time that the
    bytes take, or these take the inverse share of the time of computing.

    >>> time_computing({"one": 1}, peak=40e12, bandwidth=4e12).alt
    'A processor waits below 10 operations a byte. one 1: processor 10%, memory 100%.'
    """
    balance = peak / bandwidth
    title = f"A processor waits below {balance:.0f} operations a byte"
    body = [headline(0, 18, title, "title"),
            axis_title(0, 38, "share of the time that each is busy, at best", **START)]
    told = []
    for row, (name, intensity) in enumerate(points.items()):
        y, said = TOP + ROW * row, []
        many = "s" * (intensity != 1)
        body += [text(0, y + 8, name, font_weight="600", **START),
                 text(WIDTH, y + 8, f"{intensity:,.0f} operation{many} a byte", **END)]
        for place, (part, shade, share) in enumerate((
            ("processor", "plus", min(1.0, intensity / balance)),
            ("memory", "minus", min(1.0, balance / intensity)),
        )):
            top, shown = y + 16 + (BAR + 3) * place, f"{share:.{0 if share > 0.095 else 1}%}"
            body += [text(LEFT - 6, top + 14, part, fill=shade, **END),
                     rect(LEFT, top, RIGHT - LEFT, BAR, "grid", fill_opacity="0.6"),
                     rect(LEFT, top, round((RIGHT - LEFT) * share, 1), BAR, shade),
                     text(RIGHT + 8, top + 14, shown, fill=shade, font_weight="600", **START)]
            said.append(f"{part} {shown}")
        told.append(f"{name} {intensity:.0f}: {', '.join(said)}")
    height = TOP + ROW * len(points) - 12
    return Drawing.from_elements("".join(body), WIDTH, height, f"{title}. {'; '.join(told)}.")
