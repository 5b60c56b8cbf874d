"""A bar on stderr while a check runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from attnlib.conformance._case import Case

WIDTH = 30


def followed(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the cases, and draw how many of them are done; the bar is gone at the end."""
    for done, case in enumerate(cases):
        full = WIDTH * done // len(cases)
        bar = "#" * full + "." * (WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {done} of {len(cases)}, {case.topic:14}")
        sys.stderr.flush()
        yield case
    sys.stderr.write("\r" + " " * (WIDTH + 40) + "\r")
    sys.stderr.flush()
