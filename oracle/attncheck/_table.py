"""The table of all cases, and which of them a kernel is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from attncheck import _dtypes, _errors, _gradients, _layouts, _masks, _modes, _serving, _shapes
from attncheck._calls import HEAD_DIMS, TOPICS, Case
from attncheck._claims import SMALLEST, Kernel
from attncheck._types import FLOATING

CASES: dict[str, Callable[[], Iterator[Case]]] = {
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
    "lse": _serving.lse,
    "merge": _serving.merge,
    "documents": _serving.documents,
    "pages": _serving.pages,
    "sinks": _serving.sinks,
    "soft cap": _serving.soft_cap,
    "large masks": _modes.large_masks,
    "compiled": _modes.compiled,
    "errors": _errors.errors,
}


def checked_topics(name: str, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics, each of which must be one."""
    topics = (topics,) if isinstance(topics, str) else tuple(topics)
    for topic in topics:
        if topic not in TOPICS:
            raise ValueError(f"{name} must name topics of {', '.join(TOPICS)}; got {topic!r}")
    return topics


def tabled(
    kernel: Kernel, kind: str, *, only: Iterable[str] = (), without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None, seed: int = 7,
) -> list[Case]:
    """Return the cases for a kernel of this kind in the order of the topics, claimed or not.

    The whole table is asked at the smallest head dimension, and a column of it at the others.
    """
    if kind not in ("numpy", "torch"):
        raise ValueError(f'kind must be "numpy" or "torch"; got {kind!r}')
    kept, left_out = checked_topics("only", only), checked_topics("without", without)
    dtypes = (dtypes,) if isinstance(dtypes, str) else dtypes
    for dtype in dtypes or ():
        if dtype not in FLOATING:
            raise ValueError(f"dtypes must name some of {', '.join(FLOATING)}; got {dtype!r}")
    found = []
    for topic in CASES:
        if topic in kept or not kept:
            own = _of_topic(topic, kernel, kind, dtypes, seed)
            found += [case for case in own if not {topic, *case.needs} & set(left_out)]
    return found


def _of_topic(
    topic: str, kernel: Kernel, kind: str, dtypes: Sequence[str] | None, seed: int
) -> Iterator[Case]:
    page = 4 if kernel.pages is None else kernel.pages.page
    smallest, *others = kernel.dims or [HEAD_DIMS, *((n, n) for n in SMALLEST)]
    for case in CASES[topic]():
        if kind in case.kinds:
            own = replace(case, topic=topic, seed=seed, page=page)
            for dims in [smallest, *(others if case.everywhere else ())]:
                for dtype in _dtypes_of(kernel, topic, dtypes, column=dims != smallest):
                    if dtype in case.dtypes:
                        yield replace(own, head_dims=dims, dtype=dtype)


def _dtypes_of(
    kernel: Kernel, topic: str, dtypes: Sequence[str] | None, column: bool
) -> Sequence[str]:
    """Return the dtypes to ask in.

    Those that are named; or all claimed ones for the topic dtypes and for the column of a claimed
    head dimension; or else float32, or what is nearest to it.
    """
    if dtypes is not None:
        return dtypes
    claimed = kernel.dtypes or FLOATING
    if topic == "dtypes" or (column and kernel.dtypes):
        return [dtype for dtype in FLOATING if dtype in claimed]
    nearest = ("float32", "bfloat16", "float16", "float64")
    return [dtype for dtype in nearest if dtype in claimed][:1]
