"""Every rung is asked every case of `attnlib.conformance`, as any other kernel would be.

Beyond what `check` asks of other people's kernels, a rung here must give a log-sum-exp that is
right, inputs that are left as they are in every case, no floating-point warning from NumPy, and a
ValueError or a TypeError where it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from rungs import RUNGS, Rung
from tolerance import HALF, assert_close, lse_size

from attnlib import conformance, numpy_tokenwise
from attnlib._checks import FLOATING
from attnlib.conformance import Case, backend_for, judge, problem

backend_of = cache(backend_for)


def kind(rung: Rung) -> str:
    return "torch" if rung.on_tensors else "numpy"


@cache
def asked(rung: Rung) -> list[Case]:
    """Return the cases that a rung promises: in all dtypes, or, if it is slow, in float32."""
    found = []
    is_slow = rung.blocks or rung.takes_long or rung.name == "numpy_tokenwise"
    for case in conformance.cases(kind(rung), dtypes=FLOATING):
        # Blocks of a few keys are many where there are many keys.
        many = (
            rung.blocks
            and not rung.takes_long
            and any(words in case.name for words in ("131", "79"))
        )
        left_out = is_slow and case.topic != "dtypes" and case.dtype != "float32"
        if not (many or left_out):
            found.append(case)
    return found


class Remembering:
    """A rung, as `judge` calls it; it keeps its log-sum-exp, and what it was given."""

    def __init__(self, rung: Rung, *, with_lse: bool) -> None:
        end = "_with_lse" if with_lse else ""
        self.attend, self.has_lse = rung.function(f"scaled_dot_product_attention{end}"), with_lse
        self.backend = backend_of(kind(rung), rung.device)
        self.lse: Any = None
        self.given: dict[str, tuple[Any, bytes]] = {}

    def __call__(self, **arguments: Any) -> Any:
        arrays = {n: x for n, x in arguments.items() if hasattr(x, "dtype")}
        self.given = {n: (x, self.backend.bits(x)) for n, x in arrays.items()}
        with np.errstate(all="raise"):
            result = self.attend(**arguments)
        if not self.has_lse:
            return result
        output, self.lse = result
        return output

    def modified(self) -> list[str]:
        """Name the arguments that are not as they were."""
        return [name for name, (own, bits) in self.given.items() if self.backend.bits(own) != bits]


TRUTHS: dict[str, tuple[Any, Any]] = {}


def with_truth(case: Case) -> tuple[Case, Any]:
    """Return a case that knows its output, and its log-sum-exp: the same for every rung."""
    call = case.call
    if str(case) not in TRUTHS:
        query, key, value, mask, scale = problem(call)
        attend = numpy_tokenwise.scaled_dot_product_attention_with_lse
        TRUTHS[str(case)] = attend(query, key, value, mask, scale=scale)
    output, lse = TRUTHS[str(case)]
    known = replace(call, truth=output if call.truth is None else call.truth)
    return replace(case, draw=lambda _: known), lse


def judged(rung: Rung, case: Case) -> None:
    """Require what a case asks of a rung, and what only rungs promise."""
    call = case.call
    backend = backend_of(kind(rung), rung.device)
    if call.refused:
        given = {name: backend.give(own) for name, own in call.given.items()}
        try:
            rung.function()(**given, **call.options)
        except (ValueError, TypeError):
            return
        raise AssertionError("not refused")
    has_lse = call.upstream is None
    case, truth = with_truth(case) if has_lse else (case, None)
    attend = Remembering(rung, with_lse=has_lse)
    result = judge(case, attend, backend)
    assert result.passed, str(result)
    assert attend.modified() == []
    if has_lse:
        query, key, _, mask, scale = problem(call)
        sums = "float32" if case.dtype in HALF else case.dtype
        lse = rung.take(attend.lse)
        assert lse.dtype.name in ("float64", sums)
        assert_close(lse, truth, dtype=sums, size=lse_size(query, key, mask, scale))


# Of a ring of another size, what is asked at once: the rest is asked by `make slow`.
QUICK = ("causal", "empty")


def topics() -> Iterator[Any]:
    for rung in RUNGS:
        for topic in dict.fromkeys(case.topic for case in asked(rung)):
            is_long = topic in ("gradients", "windows") or (rung.blocks and topic not in QUICK)
            marks = [pytest.mark.slow] if rung.takes_long and is_long else []
            yield pytest.param(rung, topic, marks=marks, id=f"{rung}-{topic}")


@pytest.mark.parametrize(("rung", "topic"), list(topics()))
def test_the_cases_of_a_topic(rung: Rung, topic: str) -> None:
    failed = []
    for case in asked(rung):
        if case.topic == topic:
            try:
                judged(rung, case)
            except Exception as error:
                failed.append(f"{case}: {error}")
    assert not failed, "\n".join(failed)
