"""Every form is asked every case of `attncheck`, as any other kernel would be.

Beyond what `check` asks of other people's kernels, a form here must give a right log-sum-exp in
every case, no floating-point warning from NumPy, and a ValueError or a TypeError where it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from claims import claims
from implementations import IMPLEMENTATIONS, Implementation
from tolerance import HALF, assert_close

import attncheck
from attncheck import (
    CLAIMED,
    TOPICS,
    Call,
    Case,
    _definition,
    _tolerance,
    backend_for,
    judge,
    problem,
)
from attncheck._calls import HEAD_DIMS
from attncheck._shapes import MANY
from attnlib._checks import FLOATING

backend_of = cache(backend_for)


class Known(NamedTuple):
    """A case whose call is drawn; its log-sum-exp, and by how many ε that may be off, if any."""

    case: Case
    call: Call
    lse: Any = None
    lse_size: Any = None


@cache
def every(of: str, topic: str) -> list[Case]:
    """Return the cases of a topic in all dtypes: the same for all forms of a kind."""
    form = next(form for form in IMPLEMENTATIONS if form.kind == of)
    return attncheck.cases(of, kernel=claims(form), only=[topic], dtypes=FLOATING)


KNOWN: dict[tuple[str, str], Known] = {}


def known(case: Case) -> Known:
    """Return a case with its truth, which is computed once for all forms."""
    key = str(case), ",".join(case.kinds)
    if key not in KNOWN:
        call, lse, size = case.call, None, None
        if call.upstream is None and not call.refused:
            own = problem(call)
            output, lse = _definition.attention(own)
            call = replace(call, truth=output if call.truth is None else call.truth)
            size = _tolerance.lse_size(own)
        KNOWN[key] = Known(replace(case, draw=lambda _: call), call, lse, size)
    return KNOWN[key]


def is_left_out(form: Implementation, case: Case) -> bool:
    """Return whether nobody asks a case of a form, because it would take minutes."""
    is_slow = form.blocks or form.takes_long or form.name == "numpy_tokenwise"
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
    # In the interpreter each sequence of a batch takes a tenth of a second.
    endless = form.is_interpreted and case.name == f"a batch of {MANY:,}"
    return bool(many or left_out or (column and (form.blocks or one)) or endless)


# What `attnlib.serving` makes of a form is made of any form in the same way.
SERVED = ("documents", "pages", "sinks", "soft cap")
# Of the numbers of key heads, all but 2.
GROUPINGS = tuple(f"6 query heads, {n} of key and value" for n in (1, 3, 6))
WITHIN = r"queries: [27],|keys: [27]\b"  # lengths


def is_quick(form: Implementation, case: Case) -> bool:
    """Return whether a case is asked on each change, and not by `make slow` alone.

    In another dtype than float32 those are asked whose numbers are chosen for a dtype, and of each
    other topic a column. What remains has the same shapes, masks and keywords in float32. A slow
    form is asked the other head dimensions where all tiles are asked, and loops are not: they have
    no tiles. Nor do loops count sequences in 16 bits. With groups, a slow form is asked two key
    heads for six query heads: one key head, and one for each, are special cases of it. In the
    interpreter, 2 and 7 lie within a tile as 1 does; about its ends test_triton_fused asks.
    """
    if form.takes_long and case.topic in SERVED and not case.everywhere:
        return False
    if form.takes_long and case.name.startswith(GROUPINGS):
        return False
    within = case.topic in ("values", "causal") and re.search(WITHIN, case.name)
    if form.is_interpreted and within:
        return False
    loops = form.name == "numpy_tokenwise"
    if loops and case.name == f"a batch of {MANY:,}":
        return False
    if case.head_dims != HEAD_DIMS and (loops or (form.takes_long and case.topic != "values")):
        return False
    return case.dtype == "float32" or case.topic in ("dtypes", "numbers") or case.everywhere


def asked(form: Implementation, topic: str, quick: bool) -> list[Case]:
    """Return the cases of a topic that a form is asked, on each change or by `make slow`."""
    found = [case for case in every(form.kind, topic) if not is_left_out(form, case)]
    return [case for case in found if is_quick(form, case) == quick]


def judged(form: Implementation, asked: Known) -> None:
    """Require what a case asks of a form, and what only forms promise."""
    case, call = asked.case, asked.call
    backend = backend_of(form.kind, form.device)
    if call.refused:
        given = {name: backend.give(own) for name, own in call.given.items()}
        try:
            form.function()(**given, **call.options)
        except (ValueError, TypeError):
            return
        raise AssertionError("not refused")
    lses: list[Any] = []

    def with_lse(*inputs: Any, **options: Any) -> Any:
        with np.errstate(all="raise"):
            output, lse = form.function("scaled_dot_product_attention_with_lse")(*inputs, **options)
        lses.append(lse)
        return output

    has_lse = call.upstream is None and case.topic not in CLAIMED
    result = judge(case, with_lse if has_lse else claims(form), backend)
    assert result.passed, str(result)
    if has_lse:
        sums = "float32" if case.dtype in HALF else case.dtype
        lse = form.take(lses[0])
        assert lse.dtype.name in ("float64", sums)
        assert_close(lse, asked.lse, dtype=sums, size=asked.lse_size)


# Of a ring of another size, what is asked at once: the rest is asked by `make slow`.
QUICK = ("causal", "empty")
# These a slow form is asked by its own tests, at few sizes; and `attnlib.serving` makes of any form
# the same.
LONG = ("gradients", "windows", "mask gradients", "layouts", "merge", *SERVED)


def topics() -> Iterator[Any]:
    """Every topic of a form; cases are drawn when they are asked, and not when tests are listed."""
    without: tuple[str, ...]
    for form in IMPLEMENTATIONS:
        without = () if form.on_tensors else ("gradients", "mask gradients")
        without += ("large masks", "compiled")  # no form claims them
        for topic in [topic for topic in TOPICS if topic not in without]:
            is_long = topic in LONG or (form.blocks and topic not in QUICK)
            marks = [pytest.mark.slow] if form.takes_long and is_long else []
            yield pytest.param(form, topic, marks=marks, id=f"{form}-{topic}")


def failures(form: Implementation, cases: list[Case]) -> list[str]:
    """Return what went wrong, case by case."""
    found = []
    for case in cases:
        try:
            judged(form, known(case))
        except Exception as error:
            found.append(f"{case}: {error}")
    return found


@pytest.mark.parametrize(("form", "topic"), list(topics()))
def test_the_cases_of_a_topic(form: Implementation, topic: str) -> None:
    chosen = asked(form, topic, quick=True)
    assert chosen
    failed = failures(form, chosen)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("form", IMPLEMENTATIONS, ids=str)
def test_the_other_cases(form: Implementation) -> None:
    chosen = [case for topic in TOPICS for case in asked(form, topic, quick=False)]
    failed = failures(form, chosen)
    assert not failed, "\n".join(failed)
