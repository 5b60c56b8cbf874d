"""Print requirements.txt with the newest versions of what the notebooks run on: `make latest`.

The pins of the sections `numerics` and `notebooks and tests` are left out, and so is
constraints.txt. The book's own packages stay, for they resolve together in these versions alone,
and so do the tools, for a new rule of a linter says nothing about the book.
"""

from __future__ import annotations

import re
import sys

from tools.set_repository import ROOT

FREE = ("numerics", "notebooks and tests")


def unpinned(requirements: str) -> str:
    """Return the requirements without the pins of the free sections and without constraints.

    Raises:
        ValueError: a free section is not there, or has no pin.
    """
    lines, section, freed = [], "", set()
    for line in requirements.splitlines():
        if line.startswith("-c "):
            continue
        if heading := re.fullmatch(r"# (.*)", line):
            section = heading[1]
        if section in FREE and (pin := re.match(r"([\w.-]+)==[^\s;#]+(.*)", line)):
            freed.add(section)
            line = pin[1] + pin[2]
        lines.append(line)
    if missing := set(FREE) - freed:
        raise ValueError(f"expected pins under {sorted(missing)} in requirements.txt")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(unpinned((ROOT / "requirements.txt").read_text(encoding="utf-8")))
