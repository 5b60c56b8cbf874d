"""Runs of the oracle that end as soon as they have shown what a test wants to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import attncheck
from attncheck import Case, Kernel, backend_for, judge
from attncheck._calls import HEAD_DIMS


@cache
def listed(kind: str, topic: str) -> list[Case]:
    """Return the cases of a topic for a function with all keywords."""
    return attncheck.cases(kind, only=[topic])


def noticing(kernel: Callable[..., Any] | Kernel, kind: str, topics: Iterable[str]) -> set[str]:
    """Return the topics that notice a kernel; each is asked up to its first failure."""
    backend = backend_for(kind)
    return {
        topic
        for topic in topics
        if any(not judge(case, kernel, backend).passed for case in listed(kind, topic))
    }


def at_one(kernel: Kernel) -> Kernel:
    """Return a kernel that claims no more than its smallest head dimension and its first dtype."""
    smallest, *_ = kernel.dims or [HEAD_DIMS]
    return replace(kernel, head_dims=[smallest], dtypes=(kernel.dtypes or ["float32"])[:1])
