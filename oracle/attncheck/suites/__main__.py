"""Print which wrong attentions pass which published suites, as published and with a mend.

    python -m attncheck.suites            both tables, and the sources
    python -m attncheck.suites KernelBench     the suites whose name holds this word
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attncheck.suites import asked
from attncheck.suites.attentions import WRONG
from attncheck.suites.published import SUITES, Suite

SIGNS = {"passes": "PASSES", "at the bound": "bound", "noticed": "·", "not asked": ""}


def table(suites: Sequence[Suite], mended: bool = False) -> str:
    """Return a line for each suite, and a column for each wrong attention."""
    width = max(len(suite.name) for suite in suites) + 2
    lines = [" " * width + "".join(f"{name:>10}" for name in WRONG)]
    for suite in suites:
        signs = [SIGNS[verdict] for verdict in asked(suite, mended).values()]
        lines.append(suite.name.ljust(width) + "".join(f"{sign:>10}" for sign in signs))
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Print both tables."""
    words = [word.lower() for word in arguments] or [""]
    chosen = [suite for suite in SUITES if any(word in suite.name.lower() for word in words)]
    if not chosen:
        names = ", ".join(suite.name for suite in SUITES)
        print(f"expected a word in the name of a suite, of {names}; got {' '.join(arguments)}")
        return 2
    print("Which wrong attentions pass (· is noticed; bound: the draw decides):\n")
    print(table(chosen))
    if mended := [suite for suite in chosen if suite.mend]:
        print("\nThe same with one change in each suite:\n")
        print(table(mended, mended=True))
        print()
        for suite in mended:
            print(f"{suite.name}: {suite.mend}")
    print("\nWhat is wrong:")
    for name, said in WRONG.items():
        print(f"  {name:10}{said}")
    print("\nRead in:")
    for suite in chosen:
        print(f"  {suite.name}: {suite.source}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
