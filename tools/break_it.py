"""Write the chapters' part of the page "Break it yourself": `python -m tools.break_it`.

For each chapter, and each page below it, the page shows one whole function with a mistake in it,
and folded the line that is wrong. The mistakes are those of tests/mistakes.txt. A test holds the
page to be what is written here.
"""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from difflib import unified_diff
from pathlib import Path

from tools import ROOT, chapters
from tools.mistakes import TABLE, Mistake, read_table

PAGE = ROOT / "reference" / "break_it.md"
LONGEST = 25  # lines of a function that is shown
BEGIN, END = "<!-- the chapters -->\n", "<!-- end of the chapters -->\n"


def parts_of(path: Path, content: str) -> list[str]:
    """Return the sources of the code cells of a notebook, or the one source of a module."""
    if path.suffix == ".py":
        return [content]
    found = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in found]


def function_at(source: str, line: int) -> str:
    """Return the innermost function of a source that has this line, without its docstring.

    It is empty if the line is in no function.

    >>> function_at('x = 1\\n\\n\\ndef f():\\n    "Return x."\\n    return x\\n', 6)
    'def f():\\n    return x'
    """
    rows, found = source.splitlines(), ""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            first, *others = node.body
            body = others[0].lineno if ast.get_docstring(node) and others else first.lineno
            head = rows[node.lineno - 1 : first.lineno - 1]
            found = textwrap.dedent("\n".join([*head, *rows[body - 1 : node.end_lineno]]))
    return found


def changed(mistake: Mistake) -> tuple[str, str, bool]:
    """Return what holds the mistake, right and wrong, and whether this is a whole function."""
    path = ROOT / mistake.file
    before = parts_of(path, path.read_text(encoding="utf-8"))
    after = parts_of(path, mistake.made_in(path))
    right, wrong = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
    rows = zip(right.splitlines(), wrong.splitlines(), strict=False)
    line = next(n for n, (one, other) in enumerate(rows, 1) if one != other)
    functions = function_at(right, line), function_at(wrong, line)
    return (*functions, True) if all(functions) else (right, wrong, False)


def choice(mistakes: list[Mistake]) -> Mistake:
    """Return the mistake to find: in a short function, if there is one, and in the chapter."""

    def rank(mistake: Mistake) -> tuple[bool, bool]:
        _, wrong, is_function = changed(mistake)
        return not (is_function and wrong.count("\n") < LONGEST), mistake.file.suffix == ".py"

    return min(mistakes, key=rank)


def difference(before: str, after: str) -> str:
    """Return the lines that go and those that take their place."""
    rows = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(row for row in rows if row[:3] not in ("---", "+++") and row[0] != "@")


def section(page: str, heading: str, mistakes: list[Mistake]) -> str:
    """Return the section of one chapter or page."""
    cell = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"][0]
    title = "".join(cell["source"]).partition("\n")[0].removeprefix("# ")
    lines = [f"{heading} {title}", ""]
    one = choice(mistakes)
    before, after, _ = changed(one)
    lines += [f"In `{one.file}`:", ""] if one.file.suffix == ".py" else []
    lines += ["```python", after, "```", "", "<details><summary>What is wrong</summary>", ""]
    lines += [f"{one.words[0].upper()}{one.words[1:]}:", ""]
    lines += ["```diff", difference(before, after), "```", "", "</details>", ""]
    others = [mistake for mistake in mistakes if mistake is not one]
    if others:
        lines += ["<details><summary>More mistakes to make here</summary>", ""]
        for mistake in others:
            where = f" (`{mistake.file}`)" if mistake.file.suffix == ".py" else ""
            lines += [f"{mistake.words[0].upper()}{mistake.words[1:]}{where}:", "", "```diff"]
            for old, new in mistake.edits:
                lines += [f"- {row}" for row in old.split("\n")]
                lines += [f"+ {row}" for row in new.split("\n")]
            lines += ["```", ""]
        lines += ["</details>", ""]
    return "\n".join(lines)


def written() -> str:
    """Return the part of the page that is about the chapters."""
    table = read_table((ROOT / TABLE).read_text(encoding="utf-8"))
    found = []
    for n, (chapter, below) in enumerate(chapters().items(), 1):
        for page in (chapter, *below):
            name = page.removeprefix("chapters/")
            mistakes = [mistake for mistake in table if name in mistake.chapters]
            if mistakes:
                found.append(section(page, f"## {n}." if page == chapter else "###", mistakes))
    return "\n".join(found)


def main() -> int:
    """Write the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{written()}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
