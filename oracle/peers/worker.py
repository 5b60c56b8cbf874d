"""Ask one library the cases, and print a line of JSON for each. `peers.asking` starts this.

    python -m peers.worker FAMILY NUMBER FIRST

A line says what became of a case. Before each case a line says that it begins, so that whoever
reads knows where a process that crashed or hangs has stood.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from importlib import metadata
from typing import Any

from peers.adapter import Adapter
from peers.verdict import questions, verdict


def library(family: str, number: int) -> Adapter:
    """Return an adapter of a family, or of another module if the name has a dot."""
    module = family if "." in family else f"peers.families.{family}"
    chosen: Adapter = importlib.import_module(module).ADAPTERS[number]
    return chosen


def versions(adapter: Adapter) -> dict[str, str]:
    """Return the versions of the packages that an adapter names."""
    return {name: metadata.version(name) for name in adapter.packages}


def main() -> None:
    """Ask the cases from the first one on."""
    family, number, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # What a library prints must not come between the lines.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**line: Any) -> None:
        lines.write(json.dumps(line) + "\n")

    warnings.simplefilter("ignore")
    adapter = library(family, number)
    every = questions()
    about = {"name": adapter.name, "documentation": adapter.documentation}
    say(**about, versions=versions(adapter), n_cases=len(every))
    for n, case in enumerate(every[first:], first):
        say(asking=n)
        said = verdict(case, adapter)
        say(case=n, verdict=said.kind, words=said.words)


if __name__ == "__main__":
    main()
