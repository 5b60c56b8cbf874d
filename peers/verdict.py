"""What becomes of one case: passed, failed, differs by policy, or not claimed.

The definition leaves two things open (`policy`): the output of a query with no key to see, and NaN
in a value that is removed. `attnlib` gives zeros to the one and leaves out the other. A library
that returns NaN there, as IEEE arithmetic does, *differs by policy*. A library that returns NaN
elsewhere, or another number, fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from attnlib.conformance import Case, judge
from peers.adapter import Adapter, NotClaimed
from peers.backends import KINDS
from peers.policy import Ieee

PASSED, FAILED, POLICY, NOT_CLAIMED = "passed", "failed", "differs by policy", "not claimed"


@dataclass(frozen=True)
class Verdict:
    """What became of a case, and why, in words ("" where it passed)."""

    kind: str
    words: str = ""


class Asking:
    """An adapter's function that remembers what its library does not claim."""

    def __init__(self, adapter: Adapter, refusal: bool) -> None:
        self.adapter, self.refusal = adapter, refusal
        self.not_claimed = ""

    def __call__(self, **call: Any) -> Any:
        """Call the library. Any exception is a refusal, of whatever class it is."""
        try:
            return self.adapter.attention(**call)
        except NotClaimed as reason:
            self.not_claimed = str(reason)
            raise
        except Exception as error:
            if self.refusal and str(error).strip():
                raise RuntimeError(str(error)) from error
            raise


def shortened(words: str) -> str:
    """Return words without the paths of this machine, and no more than 200 characters of them.

    >>> shortened("CppCompileError: g++ /tmp/cache/main.cpp failed")
    'CppCompileError: g++ … failed'
    """
    return re.sub(r"(/[\w.+-]+){2,}", "…", words)[:200]


def verdict(case: Case, adapter: Adapter) -> Verdict:
    """Return what becomes of a case with the library of an adapter."""
    for topic in (case.topic, *case.needs):
        if topic in adapter.without:
            return Verdict(NOT_CLAIMED, adapter.without[topic])
    call = case.call
    for word in (*call.given, *call.options):
        if word not in adapter.keywords:
            return Verdict(NOT_CLAIMED, f"no {word}")
    if call.upstream is not None and adapter.arrays == "numpy":
        return Verdict(NOT_CLAIMED, "no gradients")
    backend = KINDS[adapter.arrays]()
    attention = Asking(adapter, call.refused)
    result = judge(case, attention, backend)
    if result.passed:
        return Verdict(PASSED)
    if attention.not_claimed:
        return Verdict(NOT_CLAIMED, attention.not_claimed)
    words = shortened(result.message.splitlines()[-1])
    if not call.refused and judge(case, attention, backend, Ieee()).passed:
        return Verdict(POLICY, words)
    return Verdict(FAILED, words)
