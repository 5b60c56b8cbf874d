"""What a function may take instead, where most plain calls of it fail.

A kernel for arrays that is given tensors, or one with other axes, fails nearly everything for a
reason that no case names. So a plain call is made in the other ways too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from attncheck import backend_for
from attncheck._calls import Case
from attncheck._claims import ALIGNMENTS, Kernel
from attncheck._comparison import judge
from attncheck._draws import heads
from attncheck._report import Report

ORDERS = ("BHSD", "BSHD", "HSD", "SHD")
TAKES = {"numpy": "for arrays", "torch": "for tensors"}


def advice(function: Callable[..., Any], report: Report, kind: str, device: str) -> str:
    """Return how a function gives the right numbers, in words; "" where it needs no advice.

    It is asked where most of the plain calls fail: in float32 and float16, for tensors and for
    arrays, in each order of axes, and with a causal mask that nobody wanted. The most likely ways
    come first.
    """
    plain = [result.passed for result in report.results if result.case.topic == "values"]
    if 2 * sum(plain) >= len(plain):
        return ""
    kinds = sorted(TAKES, key=lambda own: own != kind)
    ways = product(("", *ALIGNMENTS), kinds, ORDERS, ("float32", "float16"))
    for corner, other, order, dtype in ways:
        if _right(function, dtype, other, device if other == "torch" else "cpu", order, corner):
            said = [f"{TAKES[other]} (--kind {other})"] * (other != kind)
            said += [f'with axes="{order}" in a Kernel'] * (order in ("BSHD", "SHD"))
            said += [f"if all is causal at the {corner.replace('-', ' ')}"] * bool(corner)
            said += [f"in {dtype} (--dtypes {dtype})"] * (dtype != "float32")
            said = said or [f'with {len(order)} axes (axes="{order}" in a Kernel)']
            return f"hint: its numbers are right {', '.join(said)}"
    return ""


def _right(
    function: Callable[..., Any], dtype: str, kind: str, device: str, order: str, corner: str
) -> bool:
    """Return whether a function gives the right numbers for 5 queries and 7 keys."""

    def always(query: Any, key: Any, value: Any, is_causal: bool = False) -> Any:
        return function(query, key, value)

    options = {"is_causal": True, "causal_align": corner} if corner else {}
    case = Case("values", "advice", heads(5, 7, options), dtype=dtype, head_dims=(64, 64))
    kernel = Kernel(always, order, causal=[corner or ALIGNMENTS[0]])
    try:
        return judge(case, kernel, backend_for(kind, device)).passed
    except ImportError:  # torch is not there
        return False
