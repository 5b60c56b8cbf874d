"""Check an attention function against the definition, as every implementation here is checked.

This module is for somebody who has written an attention of their own and wants to know whether it
is right. `check` makes some hundred small calls of it, one topic after the other, and compares each
result with the definition in float64 (`numpy_tokenwise`). A failed case shows the call, and which
entry was the first wrong one:

    from attnlib import conformance
    report = conformance.check(my_attention)
    print(report)

The same check runs from a shell: `python -m attnlib.conformance my_module:my_attention`. Name the
topics that a kernel does not claim, and they are left out. How far a result may be off follows
from the arithmetic of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from attnlib._checks import FLOATING
from attnlib.conformance import _dtypes, _errors, _gradients, _layouts, _masks, _shapes
from attnlib.conformance._backends import Backend, NumpyBackend
from attnlib.conformance._calls import TOPICS, Call, Case, Given, WrongResultError
from attnlib.conformance._comparison import Report, Result, followed, judge
from attnlib.conformance._definition import argument_gradients, problem

__all__ = ["TOPICS", "Call", "Case", "Report", "Result", "cases", "check"]
# What peers/ needs besides, to check functions that take neither tensors nor arrays of NumPy.
__all__ += ["Backend", "Given", "WrongResultError", "argument_gradients", "backend_for", "judge"]
__all__ += ["problem"]

CASES = {
    "values": _shapes.values,
    "masks": _masks.masks,
    "causal": _masks.causal,
    "bottom-right": _masks.bottom_right,
    "windows": _masks.windows,
    "groups": _shapes.groups,
    "empty": _shapes.empty,
    "numbers": _dtypes.numbers,
    "layouts": _layouts.layouts,
    "dtypes": _dtypes.dtypes,
    "gradients": _gradients.gradients,
    "mask gradients": _gradients.mask_gradients,
    "errors": _errors.errors,
}


def _checked_topics(name: str, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics, each of which must be one."""
    topics = (topics,) if isinstance(topics, str) else tuple(topics)
    for topic in topics:
        if topic not in TOPICS:
            raise ValueError(f"{name} must name topics of {', '.join(TOPICS)}; got {topic!r}")
    return topics


def cases(
    kind: str = "torch",
    *,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None,
) -> list[Case]:
    """Return the cases for a kind of kernel, in the order of the topics.

    Args:
        kind: "numpy" or "torch"; gradients are for torch alone.
        only: The topics to keep; all of them where it is empty.
        without: The topics to leave out. A case that uses one of them is left out as well: a
            causal case of the topic gradients goes with "causal".
        dtypes: The dtypes of the calls. None means all four for the topic dtypes, and float32 for
            everything else.

    Raises:
        ValueError: a kind, a topic or a dtype that is unknown.

    Example:
        >>> case = cases("numpy", only=["causal"])[0]
        >>> print(case)
        causal: query (5, 13), key (7, 13), float32
        >>> print(case.call)
        query (5, 13) float32, key (7, 13) float32, value (7, 11) float32, is_causal=True
    """
    if kind not in ("numpy", "torch"):
        raise ValueError(f'kind must be "numpy" or "torch"; got {kind!r}')
    kept, left_out = _checked_topics("only", only), _checked_topics("without", without)
    dtypes = (dtypes,) if isinstance(dtypes, str) else dtypes
    for dtype in dtypes or ():
        if dtype not in FLOATING:
            raise ValueError(f"dtypes must name some of {', '.join(FLOATING)}; got {dtype!r}")
    found = []
    for topic, table in CASES.items():
        if kept and topic not in kept:
            continue
        wanted = dtypes or (FLOATING if topic == "dtypes" else ("float32",))
        for case in table():
            if kind in case.kinds and not {topic, *case.needs} & set(left_out):
                found += [replace(case, dtype=dtype) for dtype in wanted if dtype in case.dtypes]
    return found


def backend_for(kind: str, device: str = "cpu") -> Backend:
    """Return the backend of a kind of kernel, "torch" or "numpy".

    Raises:
        ValueError: a device that is not there.
    """
    if kind == "torch":
        from attnlib.conformance._torch_backend import TorchBackend

        return TorchBackend(device)
    return NumpyBackend(device)


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
        dtypes: The dtypes to check in, of float16, bfloat16, float32 and float64. None checks the
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
    backend = backend_for(kind, device)
    missing = [
        dtype for dtype in dict.fromkeys(c.dtype for c in chosen) if dtype not in backend.dtypes()
    ]
    if missing and dtypes is not None:
        raise ValueError(f"dtypes must be there: {', '.join(missing)} is not, {backend.missing}")
    chosen = [case for case in chosen if case.dtype not in missing]
    if not chosen:
        raise ValueError("no case is left: only, without and dtypes leave nothing to check")
    following = followed(chosen) if progress else chosen
    results = [judge(case, attention, backend) for case in following]
    topics = {result.case.topic for result in results}
    offered = {case.topic for case in cases(kind)}
    left_out = [topic for topic in TOPICS if topic in offered - topics]
    left_out += [f"{dtype} ({backend.missing})" for dtype in missing]
    return Report(results, left_out)
