"""All cases, by topic, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from attnlib._checks import FLOATING
from attnlib.conformance import _dtypes, _errors, _gradients, _numbers, _places, _values
from attnlib.conformance._case import TOPICS, Case

TABLES = {
    "values": _values.values,
    "masks": _values.masks,
    "causal": _places.causal,
    "bottom-right": _places.bottom_right,
    "windows": _places.windows,
    "groups": _places.groups,
    "empty": _numbers.empty,
    "numbers": _numbers.numbers,
    "layouts": _dtypes.layouts,
    "dtypes": _dtypes.dtypes,
    "gradients": _gradients.gradients,
    "mask gradients": _gradients.mask_gradients,
    "errors": _errors.errors,
}


def check_topics(name: str, topics: Iterable[str]) -> tuple[str, ...]:
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
        dtypes: The dtypes to ask in. None asks the topic dtypes in all four, and everything else
            in float32.

    Raises:
        ValueError: a kind, a topic or a dtype that is unknown.

    Example:
        >>> case = cases("numpy", only=["causal"])[0]
        >>> print(case)
        causal: query (5, 13), key (7, 13), float32
        >>> print(case.asked)
        query (5, 13) float32, key (7, 13) float32, value (7, 11) float32, is_causal=True
    """
    if kind not in ("numpy", "torch"):
        raise ValueError(f'kind must be "numpy" or "torch"; got {kind!r}')
    kept, left_out = check_topics("only", only), check_topics("without", without)
    dtypes = (dtypes,) if isinstance(dtypes, str) else dtypes
    for dtype in dtypes or ():
        if dtype not in FLOATING:
            raise ValueError(f"dtypes must name some of {', '.join(FLOATING)}; got {dtype!r}")
    found = []
    for topic, table in TABLES.items():
        if kept and topic not in kept:
            continue
        asked = dtypes or (FLOATING if topic == "dtypes" else ("float32",))
        for case in table():
            if kind in case.kinds and not {topic, *case.needs} & set(left_out):
                found += [replace(case, dtype=dtype) for dtype in asked if dtype in case.dtypes]
    return found
