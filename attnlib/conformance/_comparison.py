"""Call an implementation as a case says, compare its result with the definition, and report.

`judge` gives the `Result` of one case. A `Report` has the results of all, and prints their table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from attnlib._checks import HALF, Array
from attnlib.conformance import _definition, _tolerance
from attnlib.conformance._backends import Backend
from attnlib.conformance._calls import TOPICS, Call, Case, WrongResultError

REFUSALS = (ValueError, TypeError, RuntimeError)
WIDTH = 30  # of the bar, in characters


@dataclass(frozen=True)
class Result:
    """What became of one case.

    Attributes:
        case: The case.
        passed: Whether the kernel gave what the definition gives.
        message: The call and the first wrong entry, or the exception that came; "" if it passed.
    """

    case: Case
    passed: bool
    message: str = ""

    def __str__(self) -> str:
        lines = [str(self.case), *self.message.splitlines()]
        return "\n    ".join(lines)


class Open(Protocol):
    """What says where a result may be NaN although the truth is a number, as boolean arrays."""

    def output(self, call: Call) -> Array:
        """Return the entries of the output that may be NaN."""

    def gradients(self, call: Call) -> dict[str, Array]:
        """Return the entries of each gradient that may be NaN."""


def judge(case: Case, attention: Any, backend: Backend, open_to_nan: Open | None = None) -> Result:
    """Return whether a kernel passes a case, and what is wrong where it does not.

    Where `open_to_nan` says so, NaN is as good as the truth.
    """
    call = case.call
    require = _refusal if call.refused else _output if call.upstream is None else _gradients
    try:
        # A kernel on arrays may warn of ∞ and NaN; what counts is whether they come out.
        with np.errstate(all="ignore"):
            require(call, attention, backend, open_to_nan)
    except WrongResultError as wrong:
        return Result(case, False, f"{call}\n{wrong}")
    return Result(case, True)


def _called(name: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Return what a function returns; its exception becomes a wrong result, in words."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        raise WrongResultError(f"expected {name}, but {_words(error)} was raised") from error


def _words(error: Exception) -> str:
    """Return an exception on one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else f"{type(error).__name__} without words"


def _refusal(call: Call, attention: Any, backend: Backend, open_to_nan: Open | None) -> None:
    """Require an exception with a message, for a call that is invalid."""
    own = {name: backend.give(given) for name, given in call.given.items()}
    kinds = "a ValueError, a TypeError or a RuntimeError with a message"
    try:
        result = attention(**own, **call.options)
    except REFUSALS as error:
        if not str(error).strip():
            raise WrongResultError(f"expected {kinds}, but {_words(error)} was raised") from error
        return
    except Exception as error:
        raise WrongResultError(f"expected {kinds}, but {_words(error)} was raised") from error
    shape = getattr(result, "shape", None)
    came = type(result).__qualname__ + (f" of shape {tuple(shape)}" if shape is not None else "")
    raise WrongResultError(f"expected {kinds}, but the call returned: {came}")


def _output(call: Call, attention: Any, backend: Backend, open_to_nan: Open | None) -> None:
    """Require the output of the definition."""
    own = {name: backend.give(given) for name, given in call.given.items()}
    before = {name: backend.bits(argument) for name, argument in own.items()}
    result = _called("a result", attention, **own, **call.options)
    truth = _definition.output(call)
    dtype = call.given["query"].dtype
    got = _numbers(result, dtype, backend)
    size = call.size if call.size is not None else _tolerance.forward_size(*_sized(call))
    peer = call.peer
    if peer is None and dtype in HALF:
        peer = backend.peer(call)
    bound = _tolerance.bound(truth, dtype=dtype, size=size, peer=peer)
    _compare("", got, truth, bound, None if open_to_nan is None else open_to_nan.output(call))
    if call.watched:
        _untouched(own, before, backend)
        for name, argument in own.items():
            if backend.shares(result, argument):
                raise WrongResultError(
                    f"expected a result of its own, but it lies in the memory of {name}"
                )


def _gradients(call: Call, attention: Any, backend: Backend, open_to_nan: Open | None) -> None:
    """Require the gradients of the definition."""
    assert call.upstream is not None
    own = {name: backend.give(given) for name, given in call.given.items()}
    upstream = backend.give(call.upstream)
    everything = own | {"the gradient of the output": upstream}
    before = {name: backend.bits(argument) for name, argument in everything.items()}
    wanted = call.wanted
    found = _called("gradients", backend.gradients, attention, own, upstream, wanted, call.options)
    truth = _definition.gradients(call)
    query, key, value, mask, scale = _sized(call)
    above = call.upstream.numbers
    sizes = _tolerance.gradient_sizes(query, key, value, above, mask, scale=scale)
    dtype = call.given["query"].dtype
    peers, floors = {}, dict.fromkeys(wanted, 0.0)
    free = {} if open_to_nan is None else open_to_nan.gradients(call)
    if dtype in HALF:
        peers = backend.peer_gradients(call)
        floors = _tolerance.row_sum_sizes(query, key, value, above, mask, scale)
    for name in wanted:
        got = _numbers(found[name], call.given[name].dtype, backend, f"the gradient of {name}: ")
        bound = _tolerance.bound(
            truth[name],
            dtype=dtype,
            size=sizes[name],
            peer=peers.get(name),
            times=3,
            floor=floors[name] * _tolerance.epsilon("float32"),
        )
        _compare(f"the gradient of {name}: ", got, truth[name], bound, free.get(name))
    if call.watched:
        _untouched(everything, before, backend)


def _untouched(arguments: dict[str, Any], before: dict[str, bytes], backend: Backend) -> None:
    """Require arguments that hold what they held before the call."""
    for name, argument in arguments.items():
        if backend.bits(argument) != before[name]:
            raise WrongResultError(
                f"expected inputs that are left as they are, but {name} was modified"
            )


def _sized(call: Call) -> tuple[Array, Array, Array, Array | None, float | None]:
    """Return the numbers that say how far roundings can add up."""
    numbers = {name: given.numbers for name, given in call.given.items()} | call.meant
    mask = numbers.get("attn_mask")
    return numbers["query"], numbers["key"], numbers["value"], mask, call.options.get("scale")


def _numbers(result: Any, dtype: str, backend: Backend, what: str = "") -> Array:
    """Return the numbers of a result, which must be an array or a tensor of this dtype."""
    try:
        numbers: Array
        numbers, came = backend.take(result)
    except WrongResultError as wrong:
        raise WrongResultError(f"{what}{wrong}") from None
    if came != dtype:
        raise WrongResultError(f"{what}expected dtype {dtype}, got {came}")
    return numbers


def _compare(what: str, got: Array, truth: Array, bound: float, free: Array | None) -> None:
    if free is not None and got.shape == truth.shape:
        truth = np.where(free & np.isnan(got), np.nan, truth)
    said = _tolerance.difference(got, truth, bound)
    if said:
        raise WrongResultError(f"{what}{said}")


# What a check tells -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What became of all cases of a check. `print(report)` gives the table and each failed case.

    Attributes:
        results: A result for each case that was checked, in the order of the topics.
        left_out: What was not checked, in words.
    """

    results: Sequence[Result]
    left_out: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Return whether every case that was checked passed."""
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> list[Result]:
        """Return the results of the cases that failed."""
        return [result for result in self.results if not result.passed]

    @property
    def table(self) -> str:
        """Return how many cases of each topic passed and failed, and what was left out."""
        rows = [("topic", "passed", "failed")]
        for topic in [
            topic for topic in TOPICS if any(r.case.topic == topic for r in self.results)
        ]:
            rows.append(_row(topic, [r for r in self.results if r.case.topic == topic]))
        rows.append(_row("all", self.results))
        lines = [f"{topic:16}{passed:>8}{failed:>8}" for topic, passed, failed in rows]
        left_out = [f"left out: {', '.join(self.left_out)}"] if self.left_out else []
        return "\n".join([*lines, *left_out])

    def __str__(self) -> str:
        return "\n\n".join([self.table, *map(str, self.failed)])


def _row(name: str, results: Sequence[Result]) -> tuple[str, str, str]:
    n_passed = sum(result.passed for result in results)
    return name, str(n_passed), str(len(results) - n_passed)


def followed(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the cases, and draw how many of them are done; the bar is gone at the end."""
    for done, case in enumerate(cases):
        full = WIDTH * done // len(cases)
        bar = "#" * full + "." * (WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {done} of {len(cases)}, {case.topic:14}")
        sys.stderr.flush()
        yield case
    sys.stderr.write("\r" + " " * (WIDTH + 40) + "\r")
    sys.stderr.flush()
