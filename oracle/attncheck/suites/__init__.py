"""What published tests of attention let pass: `python -m attncheck.suites`.

Each suite is asked by what it states itself: its inputs, its options and its tolerance, read in the
file and the commit that stand beside it. Eleven attentions that are wrong on purpose take the place
of the kernel. All is computed anew in NumPy, in seconds; nobody's runner is run.

    attentions   the right attention, a correct kernel, and eleven wrong ones
    rules        how a suite decides, as the largest error in units of what it allows
    published    the suites: source, use, calls, and a mend
    __main__     prints the table, and the table with the mends
"""

from __future__ import annotations

from functools import lru_cache

from attncheck.suites.attentions import KERNEL, WRONG
from attncheck.suites.published import SUITES, Ask, Suite

__all__ = ["SUITES", "WRONG", "Suite", "asked", "correct_kernel"]

MARGIN = 0.07  # an error so near to the bound may lie on its other side in another draw


def asked(suite: Suite, mended: bool = False) -> dict[str, str]:
    """Return what becomes of each wrong attention in a suite.

    "noticed" and "passes" say on which side of the bound its largest error lies, "at the bound"
    that another draw may turn it, and "not asked" that no call differs.

    >>> from attncheck.suites import SUITES
    >>> candle = next(suite for suite in SUITES if suite.name == "candle")
    >>> asked(candle)["mean"], asked(candle)["corner"]
    ('noticed', 'not asked')
    """
    calls, verdicts = _calls(suite, mended), {}
    for wrong in WRONG:
        largest = _largest(calls, wrong)
        verdicts[wrong] = (
            "not asked" if largest is None else "at the bound" if abs(largest - 1) < MARGIN
            else "noticed" if largest > 1 else "passes"
        )
    return verdicts


def correct_kernel(suite: Suite) -> float:
    """Return the largest error of a correct kernel, in units of what a mended suite allows.

    It is the control of every mend: a tolerance of 0 notices all mistakes, and accepts no kernel.
    The kernel rounds its weights to the dtype of the call, and inputs or a cache to 8 or 4 bits
    where the suite is about these.

    >>> from attncheck.suites import SUITES
    >>> correct_kernel(SUITES[0]) < 1
    True
    """
    largest = _largest(_calls(suite, True), KERNEL)
    assert largest is not None
    return largest


@lru_cache(maxsize=1)
def _calls(suite: Suite, mended: bool) -> list[Ask]:
    """Return the calls of a suite, drawn once for all that is asked of it in a row."""
    return list(suite.asks(mended))


def _largest(calls: list[Ask], name: str) -> float | None:
    """Return the largest error of an attention in all calls; None where no call asks it."""
    return max((error for call in calls if (error := call(name)) is not None), default=None)
