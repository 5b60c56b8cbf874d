"""What published tests of attention let pass: `python -m attncheck.suites`.

Each suite is asked by what it states itself: its inputs, its options and its tolerance, read in the
file and the commit that stand beside it. Ten attentions that are wrong on purpose take the place of
the kernel. All is computed anew in NumPy, in seconds; nobody's runner is run.

    attentions   the right attention, and ten wrong ones
    rules        how a suite decides, as the largest error in units of what it allows
    published    the suites: source, use, calls, and a mend in one line
    __main__     prints the table, and the table with the mends
"""

from __future__ import annotations

from attncheck.suites.attentions import WRONG
from attncheck.suites.published import SUITES, Suite

__all__ = ["SUITES", "WRONG", "Suite", "asked"]

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
    calls = list(suite.asks(mended))
    verdicts = {}
    for wrong in WRONG:
        errors = [error for call in calls if (error := call(wrong)) is not None]
        largest = max(errors, default=-1.0)
        near = abs(largest - 1) < MARGIN
        verdicts[wrong] = (
            "not asked" if not errors else "at the bound" if near
            else "noticed" if largest > 1 else "passes"
        )
    return verdicts
