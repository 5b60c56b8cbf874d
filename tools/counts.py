"""Count what a reader meets on the way through each chapter: `make counts`.

Cells and lines of code are all of them, folded or not: in Colab a folded cell is a cell like any
other. The table also says which part of the lines stands in folded cells. Words, displayed formulas
and minutes are those of what stands on the page unfolded, without exercises and questions. The
minutes are computed: 150 words a minute, five seconds for each line of code that is shown, 45
seconds for each displayed formula.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tools import ROOT, chapters, parts
from tools.notebooks import Notebook, read

EXERCISES = re.compile(r"(?m)^## +(?:Exercises|From memory)\b")
SECTION = re.compile(r"(?m)^## ")
FORMULA = re.compile(r"\$\$.+?\$\$(?:[ \t]*\([^()\s]+\))?", re.DOTALL)
FOLDED = re.compile(r"<details.*?</details>", re.DOTALL)
# Where a link leads to, and the marks of Markdown, are not read.
UNREAD = re.compile(r"\]\([^)\s]*\)|<[^>\n]+>|^\s*(?:[#>*-]+|\|[ :|-]+\|)(?=\s)", re.MULTILINE)


class Counts(NamedTuple):
    """What one page has; `folded` is the percentage of its lines of code in folded cells."""

    words: int
    cells: int
    lines: int
    folded: int
    formulas: int
    minutes: int


# A chapter is read in one sitting, and so is a page below it. How much is folded has no limit of
# its own, so nothing is gained by folding.
LIMIT = Counts(words=1_500, cells=75, lines=280, folded=100, formulas=8, minutes=20)
LIMIT_BELOW = Counts(words=1_300, cells=45, lines=180, folded=100, formulas=8, minutes=20)
FOLDS = {"hide-cell", "hide-input", "quiz", "remove-cell", "remove-input"}


def limit_of(page: str) -> Counts:
    """Return the limit of a chapter, or of a page below one."""
    return LIMIT if page in chapters() else LIMIT_BELOW


def counts(notebook: Notebook) -> Counts:
    """Return what a reader of this notebook meets."""
    words = lines = folded = shown = formulas = 0
    is_exercise = False
    for cell in notebook["cells"]:
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            before, *after = EXERCISES.split(source)
            if SECTION.search(source):
                is_exercise = bool(after)
            text = FOLDED.sub(" ", before if after else "" if is_exercise else source)
            formulas += len(FORMULA.findall(text))
            words += len(UNREAD.sub(" ", FORMULA.sub(" ", text)).split())
            continue
        n = sum(bool(line.strip()) for line in source.splitlines())
        is_folded = bool(_tags(cell) & FOLDS)
        lines, folded = lines + n, folded + n * is_folded
        shown += n * (not is_folded and not is_exercise)
    minutes = round(words / 150 + shown * 5 / 60 + formulas * 0.75)
    share = round(100 * folded / max(1, lines))
    return Counts(words, len(notebook["cells"]), lines, share, formulas, minutes)


def _tags(cell: Notebook) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def main() -> None:
    """Print the counts of each chapter and page below one, and how far they are above the limit."""
    pages = [page for _, part in parts() for page in part if page.startswith("chapters/")]
    rows = {"limit": (LIMIT, LIMIT), "limit below": (LIMIT_BELOW, LIMIT_BELOW)}
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


if __name__ == "__main__":
    main()
