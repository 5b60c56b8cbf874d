"""Count what a reader meets on the way through each chapter: `make counts`.

Counted is what stands on the page unfolded, without exercises and questions: the words between the
displayed formulas, the cells that show their text or code (a figure shows none), the displayed
formulas. The minutes are computed from these: 150 words a minute, five seconds for each line of
code that is shown, 45 seconds for each displayed formula.
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
    """What one chapter has."""

    words: int
    cells: int
    formulas: int
    minutes: int


# A chapter is read in one sitting, and so is a page below it.
LIMIT = Counts(words=1_500, cells=30, formulas=8, minutes=20)
LIMIT_BELOW = Counts(words=1_300, cells=30, formulas=8, minutes=20)


def limit_of(page: str) -> Counts:
    """Return the limit of a chapter, or of a page below one."""
    return LIMIT if page in chapters() else LIMIT_BELOW


def counts(notebook: Notebook) -> Counts:
    """Return what a reader of this notebook meets."""
    words = cells = formulas = lines = 0
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
            cells += bool(text.strip())
        elif not is_exercise and not _tags(cell) & {"hide-cell", "hide-input", "quiz"}:
            cells += 1
            lines += sum(bool(line.strip()) for line in source.splitlines())
    minutes = words / 150 + lines * 5 / 60 + formulas * 0.75
    return Counts(words, cells, formulas, round(minutes))


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
    print(f"{'':26}" + "".join(f"{name:>16}" for name in Counts._fields))
    for name, (row, limit) in rows.items():
        more = [f"({n - most:+,})" if n > most else "" for n, most in zip(row, limit, strict=True)]
        print(f"{name:26}" + "".join(f"{n:8,} {m:7}" for n, m in zip(row, more, strict=True)))


if __name__ == "__main__":
    main()
