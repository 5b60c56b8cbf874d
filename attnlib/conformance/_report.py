"""What a check tells: a bar while it runs, a result for each case, and the table of all."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnlib.conformance._calls import TOPICS, Case

WIDTH = 30  # of the bar, in characters


@dataclass(frozen=True)
class Result:
    """What became of one case.

    Attributes:
        case: The case.
        passed: Whether the kernel gave what the definition gives.
        message: The call and the first wrong entry, or the exception that came; "" if it passed.
    """

    case: Case
    passed: bool
    message: str = ""

    def __str__(self) -> str:
        lines = [str(self.case), *self.message.splitlines()]
        return "\n    ".join(lines)


@dataclass(frozen=True)
class Report:
    """What became of all cases of a check. `print(report)` gives the table and each failed case.

    Attributes:
        results: A result for each case that was checked, in the order of the topics.
        left_out: What was not checked, in words.
    """

    results: Sequence[Result]
    left_out: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Return whether every case that was checked passed."""
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> list[Result]:
        """Return the results of the cases that failed."""
        return [result for result in self.results if not result.passed]

    @property
    def table(self) -> str:
        """Return how many cases of each topic passed and failed, and what was left out."""
        rows = [("topic", "passed", "failed")]
        for topic in [
            topic for topic in TOPICS if any(r.case.topic == topic for r in self.results)
        ]:
            rows.append(_row(topic, [r for r in self.results if r.case.topic == topic]))
        rows.append(_row("all", self.results))
        lines = [f"{topic:16}{passed:>8}{failed:>8}" for topic, passed, failed in rows]
        left_out = [f"left out: {', '.join(self.left_out)}"] if self.left_out else []
        return "\n".join([*lines, *left_out])

    def __str__(self) -> str:
        return "\n\n".join([self.table, *map(str, self.failed)])


def _row(name: str, results: Sequence[Result]) -> tuple[str, str, str]:
    n_passed = sum(result.passed for result in results)
    return name, str(n_passed), str(len(results) - n_passed)


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
