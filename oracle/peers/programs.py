"""Run the short programs on the page of peers, and store what they print.

A program `reproductions/FAMILY/NAME.py` shows one thing that a library gets otherwise and prints
what comes out. `NAME.txt` beside it holds what was printed. The page shows both.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from peers.asking import HOUSE

FOLDER = HOUSE / "peers" / "reproductions"


def programs(family: str) -> list[Path]:
    """Return the programs of a family."""
    return sorted((FOLDER / family).glob("*.py"))


def printed(python: str, program: Path) -> str:
    """Return what a program prints.

    Raises:
        RuntimeError: a program that ends with an error.
    """
    command = [python, "-W", "ignore", str(program)]
    done = subprocess.run(command, cwd=HOUSE.parent, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{program} must end without an error; got {done.stderr[-2000:]}")
    return str(done.stdout)


def store(python: str, family: str) -> None:
    """Run the programs of a family, and store what they print."""
    for program in programs(family):
        program.with_suffix(".txt").write_text(printed(python, program), "utf-8")
