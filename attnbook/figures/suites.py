"""Which wrong attentions pass which suites of tests: a square for each pair."""

from __future__ import annotations

from collections.abc import Mapping

from attnbook.figures.drawing import Drawing, line, rect, tag, text

CELL, HIGH, HEAD = 19.0, 19.0, 78.0
SIGNS = {"passes": "passes", "at the bound": "the draw decides", "noticed": "is noticed"}


def suites(verdicts: Mapping[str, Mapping[str, str]]) -> Drawing:
    """Return a drawing of a row for each suite and a column for each wrong attention.

    A full square says that the wrong attention passes, half a square that the draw decides, a dot
    that it is noticed. Where there is nothing, the suite does not ask.

    >>> drawing = suites({"one": {"mean": "passes", "zeros": "noticed"}})
    >>> drawing.alt
    'What passes which suite of tests. one: mean passes.'
    """
    columns = list(next(iter(verdicts.values())))
    left = 11 + 6.8 * max(map(len, verdicts))
    body = ""
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * CELL
        turned = f"rotate(-55 {x:.1f} {HEAD - 8:.1f})"
        body += text(x, HEAD - 8, name, text_anchor="start", transform=turned)
    for i, (suite, row) in enumerate(verdicts.items()):
        top = HEAD + i * HIGH
        body += text(left - 8, top + 13.5, suite, text_anchor="end", font_size=12)
        body += line(left, top + HIGH, left + len(columns) * CELL, top + HIGH, "grid")
        for j, name in enumerate(columns):
            body += _sign(left + j * CELL, top, row[name])
    foot = HEAD + len(verdicts) * HIGH + 26
    x = 10.0
    for verdict, words in SIGNS.items():
        body += _sign(x, foot - 15, verdict)
        body += text(x + CELL + 2, foot - 1.5, words, text_anchor="start", font_size=12)
        x += CELL + 16 + 6.6 * len(words)
    said = [_words(suite, row) for suite, row in verdicts.items()]
    told = " ".join(words for words in said if words) or "Everything is noticed."
    alt = f"What passes which suite of tests. {told}"
    return Drawing.from_elements(body, left + len(columns) * CELL + 22, foot + 8, alt)


def _sign(x: float, y: float, verdict: str) -> str:
    """Return the sign of a verdict, in the cell from (x, y)."""
    if verdict == "passes":
        return rect(x + 2, y + 2, 15, 15, "minus")
    if verdict == "at the bound":
        corners = f"{x + 2:.1f},{y + 17:.1f} {x + 17:.1f},{y + 17:.1f} {x + 2:.1f},{y + 2:.1f}"
        return tag("polygon", points=corners, fill="minus")
    if verdict == "noticed":
        return tag("circle", cx=x + CELL / 2, cy=y + 9.5, r=2, fill="plus")
    return ""


def _words(suite: str, row: Mapping[str, str]) -> str:
    """Return what passes a suite, in words; "" for nothing."""
    found = [name for name, verdict in row.items() if verdict == "passes"]
    near = [f"{name} by the draw" for name, verdict in row.items() if verdict == "at the bound"]
    return f"{suite}: {', '.join([*found, *near])} passes." if found or near else ""
