"""Every form is asked every case of `attnlib.conformance`, as any other kernel would be.

Beyond what `check` asks of other people's kernels, a form here must give a log-sum-exp that is
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
from claims import claims
from implementations import IMPLEMENTATIONS, Implementation
from tolerance import HALF, assert_close, lse_size

from attnlib import conformance, numpy_dense, numpy_tokenwise
from attnlib._checks import FLOATING
from attnlib.conformance import CLAIMED, TOPICS, Case, backend_for, judge, problem
from attnlib.conformance._calls import HEAD_DIMS
from attnlib.conformance._shapes import MANY

backend_of = cache(backend_for)


def kind(form: Implementation) -> str:
    return "torch" if form.on_tensors else "numpy"


@cache
def asked(form: Implementation) -> list[Case]:
    """Return the cases that a form promises: in all dtypes, or, if it is slow, in float32."""
    found = []
    is_slow = form.blocks or form.takes_long or form.name == "numpy_tokenwise"
    for case in conformance.cases(kind(form), kernel=claims(form), dtypes=FLOATING):
        # Blocks of a few keys are many where there are many keys.
        many = (
            form.blocks
            and not form.takes_long
            and any(words in case.name for words in ("131", "79", "70", "65", "many pages"))
        )
        # A column of another head dimension comes in float32, but for the topic dtypes.
        column = case.head_dims != HEAD_DIMS
        left_out = (is_slow or column) and case.topic != "dtypes" and case.dtype != "float32"
        # Other blocks change nothing there, and a slow form is asked at one of them.
        one = form.takes_long and case.topic != "values" and case.head_dims != (64, 64)
        left_out = left_out or (column and (form.blocks or one))
        # In the interpreter each sequence of a batch takes a tenth of a second.
        endless = form.is_interpreted and case.name == f"a batch of {MANY:,}"
        if not (many or left_out or endless):
            found.append(case)
    return found


class Remembering:
    """A form, as `judge` calls it; it keeps its log-sum-exp, and what it was given."""

    def __init__(self, form: Implementation, *, with_lse: bool) -> None:
        end = "_with_lse" if with_lse else ""
        self.attend, self.has_lse = form.function(f"scaled_dot_product_attention{end}"), with_lse
        self.backend = backend_of(kind(form), form.device)
        self.lse: Any = None
        self.given: dict[str, tuple[Any, bytes]] = {}

    def __call__(self, query: Any, key: Any, value: Any, **options: Any) -> Any:
        arguments = {"query": query, "key": key, "value": value, **options}
        arrays = {n: x for n, x in arguments.items() if hasattr(x, "dtype")}
        self.given = {n: (x, self.backend.bits(x)) for n, x in arrays.items()}
        with np.errstate(all="raise"):
            result = self.attend(query, key, value, **options)
        if not self.has_lse:
            return result
        output, lse = result
        self.lse = lse if self.lse is None else self.lse  # that of the first call
        return output

    def modified(self) -> list[str]:
        """Name the arguments that are not as they were."""
        return [name for name, (own, bits) in self.given.items() if self.backend.bits(own) != bits]


TRUTHS: dict[str, tuple[Any, Any]] = {}


def with_truth(case: Case) -> tuple[Case, Any]:
    """Return a case that knows its output, and its log-sum-exp: the same for every form."""
    call = case.call
    if str(case) not in TRUTHS:
        query, key, value, mask, scale = problem(call)[:5]
        # A truth that is given stands for loops of minutes.
        long = call.truth is not None and call.truth.size > 10**5
        form = numpy_dense if long else numpy_tokenwise
        attend = form.scaled_dot_product_attention_with_lse
        TRUTHS[str(case)] = attend(query, key, value, mask, scale=scale)
    output, lse = TRUTHS[str(case)]
    known = replace(call, truth=output if call.truth is None else call.truth)
    return replace(case, draw=lambda _: known), lse


def judged(form: Implementation, case: Case) -> None:
    """Require what a case asks of a form, and what only forms promise."""
    call = case.call
    backend = backend_of(kind(form), form.device)
    if case.topic in CLAIMED:
        result = judge(case, claims(form), backend)
        assert result.passed, str(result)
        return
    if call.refused:
        given = {name: backend.give(own) for name, own in call.given.items()}
        try:
            form.function()(**given, **call.options)
        except (ValueError, TypeError):
            return
        raise AssertionError("not refused")
    has_lse = call.upstream is None
    case, truth = with_truth(case) if has_lse else (case, None)
    attend = Remembering(form, with_lse=has_lse)
    result = judge(case, attend, backend)
    assert result.passed, str(result)
    assert attend.modified() == []
    if has_lse:
        query, key, _, mask, scale = problem(call)[:5]
        sums = "float32" if case.dtype in HALF else case.dtype
        lse = form.take(attend.lse)
        assert lse.dtype.name in ("float64", sums)
        assert_close(lse, truth, dtype=sums, size=lse_size(query, key, mask, scale))


# Of a ring of another size, what is asked at once: the rest is asked by `make slow`.
QUICK = ("causal", "empty")


def topics() -> Iterator[Any]:
    """Every topic of a form; cases are drawn when they are asked, and not when tests are listed."""
    for form in IMPLEMENTATIONS:
        without = () if form.on_tensors else ("gradients", "mask gradients")
        for topic in [topic for topic in TOPICS if topic not in without]:
            is_long = topic in ("gradients", "windows") or (form.blocks and topic not in QUICK)
            marks = [pytest.mark.slow] if form.takes_long and is_long else []
            yield pytest.param(form, topic, marks=marks, id=f"{form}-{topic}")


@pytest.mark.parametrize(("form", "topic"), list(topics()))
def test_the_cases_of_a_topic(form: Implementation, topic: str) -> None:
    failed, chosen = [], [case for case in asked(form) if case.topic == topic]
    assert chosen
    for case in chosen:
        try:
            judged(form, case)
        except Exception as error:
            failed.append(f"{case}: {error}")
    assert not failed, "\n".join(failed)
