"""Check an attention function against the definition, as every rung of the ladder is checked.

This module is for somebody who has written an attention of their own and wants to know whether it
is right. `check` asks it some hundred small calls, one topic after the other, and compares each
answer with the definition in float64 (`numpy_tokenwise`). A failed case says what was asked, and
which entry was the first wrong one:

    from attnlib import conformance
    report = conformance.check(my_attention)
    print(report)

The same check runs from a shell: `python -m attnlib.conformance my_module:my_attention`. Name the
topics that a kernel does not claim, and they are left out. How far a result may be off follows
from the arithmetic of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attnlib.conformance._case import TOPICS, Asked, Case
from attnlib.conformance._cases import cases
from attnlib.conformance._judge import judge
from attnlib.conformance._progress import followed
from attnlib.conformance._report import Report, Result

__all__ = ["TOPICS", "Asked", "Case", "Report", "Result", "cases", "check"]


def hands_for(kind: str, device: str = "cpu") -> Any:
    """Return what gives arguments to a kernel of this kind and takes its results back."""
    if kind == "torch":
        from attnlib.conformance._tensors import Tensors

        return Tensors(device)
    from attnlib.conformance._arrays import Arrays

    return Arrays(device)


def check(
    attention: Callable[..., Any],
    kind: str = "torch",
    *,
    device: str = "cpu",
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None,
    progress: bool = False,
) -> Report:
    """Check an attention function against the definition, and return what was found.

    Args:
        attention: A function with the signature of torch's `scaled_dot_product_attention` and,
            where it claims them, the keywords `causal_align` and `window`. A keyword is passed
            only where a case needs it.
        kind: What the function takes and returns: "torch" for tensors, "numpy" for arrays.
        device: The device of the tensors, as torch names it.
        only: The topics to check; all of `TOPICS` where it is empty.
        without: The topics to leave out. A case that uses one of them is left out as well.
        dtypes: The dtypes to check in, of float16, bfloat16, float32 and float64. None asks the
            topic dtypes in all of them, and everything else in float32.
        progress: Whether to draw a bar on stderr.

    Returns:
        A report, with `report.passed`, `report.results`, and a table where it is printed.

    Raises:
        TypeError: an attention that is not callable.
        ValueError: a kind, device, topic or dtype that is unknown; no case that is left.

    Source:
        The bounds for half precision are those of FlashAttention's tests (Dao et al. 2022).

    Example:
        A kernel that takes is_causal and does not look at it:

        >>> from attnlib.numpy_dense import scaled_dot_product_attention
        >>> def blind(query, key, value, is_causal=False):
        ...     return scaled_dot_product_attention(query, key, value)
        >>> report = check(blind, "numpy", only=["causal"])
        >>> report.passed
        False
        >>> print(report.failed[0].case)
        causal: query (5, 13), key (7, 13), float32
    """
    if not callable(attention):
        raise TypeError(f"attention must be callable; got {type(attention).__qualname__}")
    chosen = cases(kind, only=only, without=without, dtypes=dtypes)
    hands = hands_for(kind, device)
    missing = [
        dtype for dtype in dict.fromkeys(c.dtype for c in chosen) if dtype not in hands.dtypes()
    ]
    if missing and dtypes is not None:
        raise ValueError(f"dtypes must be there: {', '.join(missing)} is not, {hands.missing}")
    chosen = [case for case in chosen if case.dtype not in missing]
    if not chosen:
        raise ValueError("no case is left: only, without and dtypes leave nothing to check")
    results = [judge(case, attention, hands) for case in (followed(chosen) if progress else chosen)]
    topics = {result.case.topic for result in results}
    offered = {case.topic for case in cases(kind)}
    left_out = [topic for topic in TOPICS if topic in offered - topics]
    left_out += [f"{dtype} ({hands.missing})" for dtype in missing]
    return Report(results, left_out)
