"""Count what a reader meets on the way through each chapter: `make counts`.

Cells and lines of code are all of them, folded or not: in Colab a folded cell is a cell like any
other. The table also says which part of the lines stands in cells that a reader has to unfold:
drawings and checks. The set-up, solutions, and what stands behind everything (the answers of the
questions and the checks of the text, which only the tests and Colab show) are not counted as
folded. Words and displayed formulas are those of what stands on the page unfolded, without
exercises and questions.

The minutes are computed: 150 words a minute, five seconds for each line of code that is shown, 45
seconds for each displayed formula, a minute for each prediction, and five for each exercise, which
have a column of their own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tools import ROOT, chapters, parts
from tools.notebooks import QUIZ_TAG, SETUP_TAG, Notebook, read

EXERCISES = re.compile(r"(?m)^## +(?:Exercises|From memory)\b")
EXERCISE = re.compile(r"(?m)^### Exercise \d")
PREDICT = re.compile(r"\*\*Predict\*\*")
SECTION = re.compile(r"(?m)^## ")
FORMULA = re.compile(r"\$\$.+?\$\$(?:[ \t]*\([^()\s]+\))?", re.DOTALL)
FOLDED = re.compile(r"<details.*?</details>", re.DOTALL)
# Where a link leads to, the marks of Markdown and the minutes themselves are not read.
UNREAD = re.compile(
    r"\]\([^)\s]*\)|<[^>\n]+>|^\s*(?:[#>*-]+|\|[ :|-]+\|)(?=\s)"
    r"|^\*\d+ minutes(?:, and \d+ for the exercises)?\.",
    re.MULTILINE,
)


class Counts(NamedTuple):
    """What one page has; `folded` is the percentage of its lines of code in folded cells.

    `minutes` are those of reading and of predictions, `exercises` the minutes of the exercises.
    """

    words: int
    cells: int
    lines: int
    folded: int
    formulas: int
    minutes: int
    exercises: int


# A chapter is read in one sitting, and so is a page below it. The first volume is for readers to
# whom all is new, so the limits of its pages are narrower, and all its chapters together have one.
LIMIT = Counts(words=1_500, cells=45, lines=160, folded=20, formulas=8, minutes=24, exercises=20)
LIMIT_BELOW = LIMIT._replace(words=1_300)
LIMIT_FIRST = LIMIT._replace(words=1_300, lines=150)
FIRST_VOLUME_MINUTES = 180  # three hours, says the first page
FOLDS = {"hide-cell", "hide-input"}
UNCOUNTED = {SETUP_TAG, "solution", QUIZ_TAG, "remove-cell"}


def first_volume() -> list[str]:
    """Return the chapters of Volume 1 and the pages below them."""
    return parts()[1][1]


def limit_of(page: str) -> Counts:
    """Return the limit of a chapter, or of a page below one."""
    if page in first_volume():
        return LIMIT_FIRST
    return LIMIT if page in chapters() else LIMIT_BELOW


def counts(notebook: Notebook) -> Counts:
    """Return what a reader of this notebook meets."""
    words = lines = folded = shown = formulas = predictions = exercises = 0
    is_exercise = False
    for cell in notebook["cells"]:
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            before, *after = EXERCISES.split(source)
            if SECTION.search(source):
                is_exercise = bool(after)
            text = FOLDED.sub(" ", before if after else "" if is_exercise else source)
            predictions += len(PREDICT.findall(text))
            exercises += len(EXERCISE.findall(source))
            formulas += len(FORMULA.findall(text))
            words += len(UNREAD.sub(" ", FORMULA.sub(" ", text)).split())
            continue
        n = sum(bool(line.strip()) for line in source.splitlines())
        is_folded = bool(_tags(cell) & FOLDS) and not _tags(cell) & UNCOUNTED
        lines, folded = lines + n, folded + n * is_folded
        shown += n * (not is_exercise and not _tags(cell) & (FOLDS | UNCOUNTED))
    minutes = round(words / 150 + shown * 5 / 60 + formulas * 0.75 + predictions)
    share = round(100 * folded / max(1, lines))
    n_cells = len(notebook["cells"])
    return Counts(words, n_cells, lines, share, formulas, minutes, 5 * exercises)


def minutes_of_the_first_volume() -> int:
    """Return how long its chapters take, without the pages below them and without exercises."""
    pages = [page for page in first_volume() if page in chapters()]
    return sum(counts(read(ROOT / f"{page}.ipynb")).minutes for page in pages)


def _tags(cell: Notebook) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def main() -> None:
    """Print the counts of each chapter and page below one, and how far they are above the limit."""
    pages = [page for _, part in parts() for page in part if page.startswith("chapters/")]
    limits = {"limit": LIMIT, "limit below": LIMIT_BELOW, "limit of Volume 1": LIMIT_FIRST}
    rows = {name: (limit, limit) for name, limit in limits.items()}
    for page in pages:
        limit = limit_of(page)
        name = page.removeprefix("chapters/")
        rows[name if page in chapters() else f"  {name}"] = (
            counts(read(ROOT / f"{page}.ipynb")),
            limit,
        )
    print(f"{'':26}" + "".join(f"{name:>15}" for name in Counts._fields))
    for name, (row, limit) in rows.items():
        more = [f"({n - most:+,})" if n > most else "" for n, most in zip(row, limit, strict=True)]
        print(f"{name:26}" + "".join(f"{n:7,} {m:7}" for n, m in zip(row, more, strict=True)))
    print(f"Volume 1: {minutes_of_the_first_volume()} minutes, at most {FIRST_VOLUME_MINUTES}")


if __name__ == "__main__":
    main()
