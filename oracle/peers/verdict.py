"""What becomes of one case: passed, failed, differs by policy, or not claimed.

The definition leaves two things open (`policy`): the output of a query with no key to see, and NaN
in a value that is removed. `attncheck` wants zeros in the one and leaves out the other. A library
that returns NaN there, as IEEE arithmetic does, *differs by policy*. A library that returns NaN
elsewhere, or another number, fails.
"""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attncheck import Also, Case, Kernel, cases, judge
from peers.adapter import Adapter, NotClaimed
from peers.backends import KINDS
from peers.policy import Ieee

PASSED, FAILED, POLICY, NOT_CLAIMED = "passed", "failed", "differs by policy", "not claimed"


def questions() -> list[Case]:
    """Return all cases, those that need more than torch's function among them."""

    def everything(query: Any, key: Any, value: Any, **keywords: Any) -> None:
        """Stand for a function that claims all."""

    more = Also(everything)
    kernel = Kernel(
        everything, lse=more, documents=more, pages=more, sinks="sinks", softcap="softcap"
    )
    return cases("torch", kernel=kernel)


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
        self.__signature__ = inspect.signature(adapter.attention)

    def __call__(self, query: Any, key: Any, value: Any, **options: Any) -> Any:
        """Call the library. Any exception is a refusal, of whatever class it is."""
        try:
            return self.adapter.attention(query, key, value, **options)
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
    call = case.call
    attention = Asking(adapter, call.refused)
    kernel = adapter.kernel(attention)
    if reason := kernel.unclaimed(case, call):
        return Verdict(NOT_CLAIMED, reason)
    backend = KINDS[adapter.arrays]()
    result = judge(case, kernel, backend)
    if result.passed:
        return Verdict(PASSED)
    if call.refused and not attention.not_claimed:
        # A failure of the neighbour says nothing of a call that is not claimed.
        with suppress(Exception):
            kernel.called(call, {n: backend.give(own) for n, own in call.given.items()}, {})
    if attention.not_claimed:
        return Verdict(NOT_CLAIMED, attention.not_claimed)
    words = shortened(result.message.splitlines()[-1])
    if not call.refused and judge(case, kernel, backend, Ieee()).passed:
        return Verdict(POLICY, words)
    return Verdict(FAILED, words)
