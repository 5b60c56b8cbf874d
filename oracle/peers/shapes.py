"""Questions about shapes that adapters ask before they call."""

from __future__ import annotations

from collections.abc import Sequence


def stretched(*sizes: int) -> bool:
    """Return whether an axis of length 1 stands beside longer ones, and would have to broadcast.

    Lengths that do not fit at all are not stretched: such a call is an error, and cases check it.

    >>> stretched(1, 3, 3), stretched(3, 3, 3), stretched(2, 3, 3)
    (True, False, False)
    """
    return 1 in sizes and len(set(sizes)) > 1


def fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether a shape broadcasts to a whole one.

    >>> fits((3, 1), (2, 3, 5)), fits((3, 4), (2, 3, 5)), fits((1, 2, 3, 5), (2, 3, 5))
    (True, False, False)
    """
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(own in (1, n) for own, n in pairs)
