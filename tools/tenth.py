"""What takes long is checked a tenth at a time: which tenth is due, and what belongs to it.

    python -m tools.tenth        prints the tenth of this commit, from 0 to 9

Each test, mistake or notebook at another level of the CPU belongs to a tenth by its name, for
good. The tenth that is due is the number of the commit on its branch, so that ten commits that
follow each other see all of them, and the same commit always sees the same. Where the history is
not there, or is one commit, the commit's tree tells the tenth.
"""

from __future__ import annotations

import subprocess
from zlib import crc32

from tools import ROOT

TENTHS = range(10)


def of(name: str) -> int:
    """Return the tenth to which something of this name belongs."""
    return crc32(name.encode()) % len(TENTHS)


def due() -> int:
    """Return the tenth of this commit."""
    if git("rev-parse", "--is-shallow-repository") == "false":
        n_commits = int(git("rev-list", "--count", "--first-parent", "HEAD"))
        if n_commits > 1:
            return n_commits % len(TENTHS)
    return of(git("rev-parse", "HEAD^{tree}"))


def git(*arguments: str) -> str:
    """Return what git says."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    print(due())
