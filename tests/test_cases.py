"""Every rung is asked every case of `attnlib.conformance`, as any other kernel would be.

Beyond what `check` asks of other people's kernels, a rung here must give the same bits with its
log-sum-exp as without, a log-sum-exp that is right, inputs that are left as they are in every
case, no floating-point warning from NumPy, and a ValueError or a TypeError where it refuses.
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
from attnlib.conformance import Case, _truth, hands_for
from attnlib.conformance._judge import judge

hands_of = cache(hands_for)
# What is asked in all dtypes; everything else in float64 and in one other, in turn.
IN_ALL = ("masks", "dtypes", "gradients", "mask gradients")


@cache
def table(kind: str) -> list[tuple[Case, str]]:
    """Give the cases for a kind of rung, and the dtypes in which each is asked."""
    found: dict[tuple[str, str], list[tuple[Case, str]]] = {}
    for case in conformance.cases(kind, dtypes=FLOATING):
        found.setdefault((case.topic, case.name), []).append((case, case.dtype))
    chosen = []
    for turn, ((topic, _), row) in enumerate(found.items()):
        alone = [row[-1], *row[:-1][turn % max(1, len(row) - 1) :][:1]]
        chosen += row if topic in IN_ALL else alone
    return chosen


def kind(rung: Rung) -> str:
    return "torch" if rung.on_tensors else "numpy"


def asked() -> Iterator[Any]:
    """Yield each rung with each case that it promises."""
    for rung in RUNGS:
        without = set() if rung.takes_windows else {"bottom-right", "windows"}
        without |= set() if rung.has_mask_gradients else {"mask gradients"}
        for case, dtype in table(kind(rung)):
            # Blocks of a few keys are many where there are many keys.
            many = rung.blocks and any(words in case.name for words in ("131", "79"))
            if not many and not without & {case.topic, *case.needs}:
                # The dtype has a name of its own, by which conftest leaves out what is slow.
                same = replace(case, dtype="")
                yield pytest.param(rung, same, dtype, id=f"{rung}-{case}")


class Asked:
    """A rung, as `judge` calls it; it keeps its log-sum-exp, and what it was given."""

    def __init__(self, rung: Rung, *, with_lse: bool) -> None:
        self.rung, self.with_lse = rung, with_lse
        self.hands = hands_of(kind(rung), rung.device)
        self.lse: Any = None
        self.given: dict[str, tuple[Any, bytes]] = {}

    def __call__(self, **arguments: Any) -> Any:
        arrays = {n: x for n, x in arguments.items() if hasattr(x, "dtype")}
        self.given = {n: (x, self.hands.bits(x)) for n, x in arrays.items()}
        with np.errstate(all="raise"):
            output = self.rung.function()(**arguments)
            if self.with_lse:
                with_lse = self.rung.function("scaled_dot_product_attention_with_lse")
                same, self.lse = with_lse(**arguments)
                assert self.hands.bits(same) == self.hands.bits(output), "the functions differ"
        return output

    def modified(self) -> list[str]:
        """Name the arguments that are not as they were."""
        return [name for name, (own, bits) in self.given.items() if self.hands.bits(own) != bits]


@cache
def true_lse(case: Case) -> tuple[Any, float]:
    """Give the log-sum-exp of a case, and how many ε it can be off."""
    query, key, value, mask, scale = _truth.problem(case.asked)
    attend = numpy_tokenwise.scaled_dot_product_attention_with_lse
    return attend(query, key, value, mask, scale=scale)[1], lse_size(query, key, mask, scale)


@pytest.mark.parametrize(("rung", "case", "dtype"), list(asked()))
def test_a_case(rung: Rung, case: Case, dtype: str) -> None:
    case = replace(case, dtype=dtype)
    call = case.asked
    hands = hands_of(kind(rung), rung.device)
    if call.refused:
        given = {name: hands.give(own) for name, own in call.given.items()}
        with pytest.raises((ValueError, TypeError)):
            rung.function()(**given, **call.options)
        return
    attend = Asked(rung, with_lse=call.upstream is None)
    result = judge(case, attend, hands)
    assert result.passed, str(result)
    assert attend.modified() == []
    if attend.with_lse:
        truth, size = true_lse(case)
        lse, sums = rung.take(attend.lse), "float32" if dtype in HALF else dtype
        assert lse.dtype.name in ("float64", sums)
        assert_close(lse, truth, dtype=sums, size=size)
