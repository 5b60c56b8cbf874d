"""Call an implementation as a case says, and compare its result with the definition."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from attnlib._checks import HALF, Array
from attnlib.conformance import _definition, _tolerance
from attnlib.conformance._backends import Backend
from attnlib.conformance._calls import Call, Case, WrongResultError
from attnlib.conformance._report import Result

REFUSALS = (ValueError, TypeError, RuntimeError)


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
