"""The class of a verdict: what matters to everybody, what is unsafe, and what few will ever meet.

A score by class needs a class for every case that was asked, passed or not. It follows from the
call, except where a failure shows that the kernel read or wrote what it may not.
"""

from __future__ import annotations

import numpy as np

from attncheck._calls import Call, Case
from attncheck._comparison import MODIFIED, OVERWRITTEN, Result

NUMBERS, MASKS, EDGES = "wrong numbers", "wrong masks", "wrong edges"
GRADIENTS, UNSAFE = "wrong gradients", "unsafe"
CLASSES = (NUMBERS, MASKS, GRADIENTS, UNSAFE, EDGES)
# Kinds of failures that say what a kernel did to memory, or to a process, that is not its own.
WRITES = (
    MODIFIED,
    "the result lies in the memory of an argument",
    OVERWRITTEN,
    "memory beside an input is written",
    "its process ended",
    "its process wrote no result",
    "the call came back twice",
)


def class_of(result: Result) -> str:
    """Return the class of a result, one of `CLASSES`.

    wrong numbers     nothing special was asked, and the numbers are wrong
    wrong masks       of calls with a mask, is_causal, a window or documents
    wrong gradients   of calls that ask for gradients
    unsafe            reads what it may not (NaN that is removed comes out, shapes that do not fit
                      are accepted), or writes what it may not (an input, an earlier result), or
                      brings its process down
    wrong edges       rows without keys, axes of length 0, NaN that takes part, numbers near the
                      largest one, and other invalid calls that are accepted

    Example:
        >>> from attncheck import cases
        >>> class_of(Result(cases("numpy", only=["causal"])[0], passed=True))
        'wrong masks'
    """
    if not result.passed and any(words in result.kind for words in WRITES):
        return UNSAFE
    call = result.case.call
    if not result.passed and call.pages is not None and result.kind.endswith("NaN"):
        return UNSAFE  # NaN stands in free pages and behind lengths, and nowhere else
    return _of_case(result.case, call)


def _of_case(case: Case, call: Call) -> str:
    if call.neighbour is not None:
        return UNSAFE if _shapes(call) != _shapes(call.neighbour) else EDGES
    if _bad_number_that_is_removed(call):
        return UNSAFE
    if case.topic in ("empty", "numbers") or {"empty", "numbers"} & set(case.needs):
        return EDGES
    if call.upstream is not None:
        return GRADIENTS
    by_position = call.options.get("is_causal") or call.options.get("window") is not None
    if "attn_mask" in call.given or by_position or call.documents is not None:
        return MASKS
    return NUMBERS


def _bad_number_that_is_removed(call: Call) -> bool:
    """Return whether keys that no query may read, or only those of one text, hold NaN or ∞."""
    held = [call.given[name].numbers for name in ("key", "value")]
    bad = any(not np.isfinite(numbers).all() for numbers in held)
    return bad and (bool(call.meant) or call.documents is not None)


def _shapes(call: Call) -> list[tuple[int, ...]]:
    return [given.numbers.shape for given in call.given.values()]
