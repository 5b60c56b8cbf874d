"""What a text prints, held against what comes out when it is computed again."""

from __future__ import annotations

import numpy as np

from attnbook.examples import PublishedIdentity
from attnbook.figures.drawing import Array, axis_title, headline, rect, text
from attnbook.figures.labels import decimal
from attnbook.figures.moving import Control, Frame, MovingDrawing, moving
from attnlib.numpy_dense import softmax

HEIGHT = 44.0


# What the slider calls each link, what it holds against what, the digits.
LINKS = (
    ("print", "raw scores, as printed", 2),
    ("raw", "raw scores, against the products of X", 2),
    ("scaled", "scaled scores, against the printed raw scores", 2),
    ("scaled X", "scaled scores, against X", 2),
    ("weight", "weights of token 1, against the printed scores", 3),
    ("weight X", "weights of token 1, against X", 3),
)
LEFT, TOP, WIDE = 56.0, 84.0, 72.0


def _link(
    told: str, result: str, above: list[list[str]], below: list[list[str]], differs: Array, n: int
) -> str:
    """Return the drawing of one link in n × n cells: printed above, computed below."""
    body = [
        headline(8, 22, told, "told"),
        text(8, 44, result, text_anchor="start", data_part="result"),
        axis_title(LEFT + n * WIDE / 2, TOP - 22, "key j answers"),
        axis_title(16, TOP + n * HEIGHT / 2, "query i asks", upright=True),
    ]
    body += [text(LEFT + (j + 0.5) * WIDE, TOP - 6, str(j + 1)) for j in range(n)]
    for i, j in np.ndindex(n, n):
        x, y, there = LEFT + j * WIDE, TOP + i * HEIGHT, i < len(above)
        off = bool(there and differs[i, j])
        body.append(rect(x, y, WIDE, HEIGHT, stroke="grid"))
        body.append(
            rect(x + 2, y + 2, WIDE - 4, HEIGHT - 4, "minus", fill_opacity="0.150", stroke="ink",
                 stroke_width=2, opacity=str(int(off)), data_part=f"frame-{i}-{j}")
        )
        one, other = (above[i][j], below[i][j]) if there else ("", "")
        body.append(text(x + WIDE / 2, y + 18, one, data_part=f"printed-{i}-{j}"))
        look = {"font_weight": "700" if off else "400", "fill": "ink" if off else "muted"}
        body.append(text(x + WIDE / 2, y + 35, other, **look, data_part=f"computed-{i}-{j}"))
        if j == 0:
            body.append(
                text(LEFT - 8, y + HEIGHT / 2 + 4.5, str(i + 1) if there else "",
                     text_anchor="end", data_part=f"row-{i}")
            )
    bottom = TOP + n * HEIGHT
    body += [
        rect(LEFT + 2, bottom + 14, 88, HEIGHT - 4, "minus", fill_opacity="0.150", stroke="ink",
             stroke_width=2),
        text(LEFT + 46, bottom + 30, "printed"),
        text(LEFT + 46, bottom + 47, "computed", font_weight="700"),
        text(LEFT + 102, bottom + 38, "where the two differ", text_anchor="start"),
    ]
    return "".join(body)


def handout_links(handout: PublishedIdentity) -> MovingDrawing:
    """Return a moving figure: each printed table of the handout, held against a computed one.

    The slider goes along the chain. Each printed step is held first against the printed step
    before it, and then against what follows from X. A cell has the printed number above and the
    computed one below, with a bold frame where they are more than half a unit of the last printed
    digit apart. The first place is the print alone; the figure starts at the second.

    >>> from attnbook import examples
    >>> handout_links(examples.published_identity()).alt.split(".")[0]
    'raw scores, against the products of X: 15 of 25 differ'
    """
    raw_scores = handout.X @ handout.W_Q @ (handout.X @ handout.W_K).T
    n = len(raw_scores)
    root, first = handout.X.shape[1] ** 0.5, handout.first_row_weights[None]
    pairs = (
        (handout.raw_scores, None),
        (handout.raw_scores, raw_scores),
        (handout.scores, handout.raw_scores / root),
        (handout.scores, raw_scores / root),
        (first, softmax(handout.scores[:1])),
        (first, softmax(raw_scores[:1] / root)),
    )

    def draw(place: int) -> Frame:
        (link, told, digits), (printed, computed) = LINKS[place], pairs[place]
        above = [[decimal(number, digits) for number in row] for row in printed]
        if computed is None:
            differs = np.zeros(printed.shape, dtype=bool)
            below = [[""] * len(row) for row in above]
            result = "nothing is compared yet"
        else:
            # A hair more than half a unit: the computed number carries rounding noise of its own.
            differs = ~(np.abs(printed - computed) <= 0.5 * 10.0**-digits + 1e-9)
            below = [[decimal(number, digits) for number in row] for row in computed]
            result = f"{differs.sum()} of {differs.size} differ"
        if len(printed) == 1:
            result += f"; printed sum {printed.sum():.3f}"
        found = [
            f"row {i + 1}, column {j + 1}: printed {above[i][j]}, computed {below[i][j]}"
            for i, j in np.argwhere(differs)
        ]
        rows = [
            (link, str(i + 1), str(j + 1), above[i][j], below[i][j], "yes" * bool(differs[i, j]))
            for i, j in np.ndindex(differs.shape)
            if computed is not None
        ]
        words = f"{told}: {result}.\n{'; '.join(found) or 'No number is marked'}."
        return Frame(_link(told, result, above, below, differs, n), words, rows)

    return moving(
        draw,
        [Control("link", "link", tuple(link for link, *_ in LINKS), start=1, pace=2.5)],
        LEFT + n * WIDE + 8,
        TOP + (n + 1) * HEIGHT + 22,
        columns=("link", "row", "column", "printed", "computed", "differs"),
        about="the handout, link by link",
    )
