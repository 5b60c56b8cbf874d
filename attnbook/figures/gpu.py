"""What limits a step of decoding: the roof that bytes and operations build."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log, log10

from attnbook.figures.drawing import Drawing, axis_title, line, number, tag, text
from attnbook.figures.labels import END, START

LEFT, RIGHT, TOP, FOOT, WIDTH = 56.0, 396.0, 84.0, 264.0, 420.0


def roofline(points: Mapping[str, float], *, peak: float, bandwidth: float) -> Drawing:
    """Return a drawing of the operations a second that a machine allows, by operations per byte.

    The roof is min(peak, intensity · bandwidth), both axes logarithmic. Each point lies on it, at
    its intensity, with the share of the peak that it can reach.

    >>> roofline({"one": 1, "many": 64}, peak=40e12, bandwidth=4e12).alt[:61]
    'From 10% of the full speed to 100%. Operations a second: the '
    """
    balance, last = peak / bandwidth, ceil(log(max(points.values()), 4))
    low, high = log10(bandwidth) - 0.5, log10(peak)

    def across(intensity: float) -> float:
        return LEFT + log(intensity, 4) / last * (RIGHT - LEFT)

    def up(rate: float) -> float:
        return FOOT - (log10(rate) - low) / (high - low) * (FOOT - TOP)

    shares = {name: min(1.0, intensity / balance) for name, intensity in points.items()}
    shown = {name: f"{share:.{0 if share > 0.095 else 1}%}" for name, share in shares.items()}
    ends = (shown[end(shares, key=lambda name: shares[name])] for end in (min, max))
    title, bend = "From {} of the full speed to {}".format(*ends), across(balance)
    body = [text(4, 20, title, font_size=15, font_weight="600", **START),
            line(LEFT, FOOT, RIGHT, FOOT, "muted"),
            line(bend, up(peak), bend, FOOT, "muted", "2 3"),
            axis_title((LEFT + RIGHT) / 2, FOOT + 38, "operations per byte"),
            axis_title(14, (TOP + FOOT) / 2, "10¹² operations a second", upright=True),
            text(bend - 8, FOOT - 8, "waits for memory", fill="muted", **END),
            text(bend + 8, FOOT - 8, "full speed", fill="muted", **START)]
    for power in range(last + 1):
        x = across(4.0**power)
        body += [line(x, FOOT, x, FOOT + 4, "muted"), text(x, FOOT + 18, f"{4**power:,}")]
    for rate in (10.0**power for power in range(12, 18)):
        if low <= log10(rate) <= high + 0.1:
            body += [line(LEFT, up(rate), RIGHT, up(rate), "grid"),
                     text(LEFT - 6, up(rate) + 4.5, f"{rate / 1e12:,.0f}", **END)]
    corners = (LEFT, up(bandwidth)), (bend, up(peak)), (RIGHT, up(peak))
    roof = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
    body.append(tag("polyline", points=roof, fill="none", stroke="ink", stroke_width=2))
    # Names stand where no line is: below the slope, and above the flat roof one over the other.
    flat = [name for name, share in shares.items() if share == 1]
    for name, intensity in points.items():
        x, y, words = across(intensity), up(peak * shares[name]), f"{name}: {shown[name]}"
        if name in flat:
            above = 14 + 18 * flat.index(name)
            body += [line(x, y, x, y - above + 4, "muted"),
                     text(min(x + 8, RIGHT + 16), y - above, words, **END)]
        else:
            body.append(text(x + 12, y + 8, words, **START))
        body.append(tag("circle", cx=x, cy=y, r=5.5, fill="ink"))
    told = "; ".join(f"{name} {intensity:.0f}, {shown[name]}" for name, intensity in points.items())
    alt = (f"{title}. Operations a second: the roof rises to {peak / 1e12:.0f} · 10¹² at "
           f"{balance:.0f} operations per byte, and is flat from there. {told}.")
    return Drawing.from_elements("".join(body), WIDTH, FOOT + 46, alt)
