"""A picture of coloured patches, and what words that ask it look at: chapter 10."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnbook.figures.drawing import Drawing, rect, tag, text
from attnbook.figures.grid import STRONGEST
from attnbook.figures.labels import decimal

PATCH, TOP, GAP = 24.0, 44.0, 12.0
SHADES = {"red": "output", "green": "value"}


def picture_asked(
    picture: Sequence[Sequence[str]], words: Sequence[str], weights: ArrayLike, answers: ArrayLike
) -> Drawing:
    """Return a picture of patches beside the weights that each word gives them.

    `picture` has the colour of each patch, or "". A dot stands at the answer of a word: the mean
    place (row, column) under its weights. Above is how often its largest weight occurs, roughly.

    Shapes:
        words W, weights (W, rows · columns), answers (W, 2).
    """
    n_rows, n_columns = len(picture), len(picture[0])
    tables = np.asarray(weights, float).reshape(-1, n_rows, n_columns)
    places = np.asarray(answers, float)
    body, left, told = "", 20.0, []
    for title, table, place in [("picture", None, None), *zip(words, tables, places, strict=True)]:
        if table is not None:
            many = int((table > table.max() / 2).sum())
            title += ": " + f"{many} × " * (many > 1) + decimal(table.max())
            told.append(f"{title}, dot at row {place[0]:.1f}, column {place[1]:.1f}")
        body += text(left + n_columns * PATCH / 2, 16, title)
        for row, column in np.ndindex(n_rows, n_columns):
            x, y, word = left + column * PATCH, TOP + row * PATCH, picture[row][column]
            share = STRONGEST * (bool(word) if table is None else table[row, column] ** 0.5)
            fill = "weight" if table is not None else SHADES.get(word, "paper")
            body += rect(x, y, PATCH, PATCH, fill, fill_opacity=f"{share:.3f}", stroke="grid")
            if table is None and word:
                body += text(x + PATCH / 2, y + PATCH / 2 + 4.5, word[0].upper())
        if place is not None:
            y, x = TOP + (place[0] + 0.5) * PATCH, left + (place[1] + 0.5) * PATCH
            body += tag("circle", cx=x, cy=y, r=5, fill="ink", stroke="paper", stroke_width=1.5)
        for column in range(n_columns):
            body += text(left + (column + 0.5) * PATCH, TOP - 6, str(column), fill="muted")
        left += n_columns * PATCH + GAP
    for row in range(n_rows):
        body += text(10, TOP + (row + 0.5) * PATCH + 4.5, str(row), fill="muted")
    rows = "; ".join(", ".join(word or "blank" for word in row) for row in picture)
    alt = f"A picture of {n_rows} × {n_columns} patches: {rows}. Weights: {'; '.join(told)}."
    return Drawing.from_elements(body, left - GAP + 4, TOP + n_rows * PATCH + 8, alt)
