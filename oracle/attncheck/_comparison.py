"""Call a kernel as a case says, and compare its result with the definition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from attncheck import _definition, _tolerance
from attncheck._backends import Backend
from attncheck._calls import Call, Case, Given, WrongResultError
from attncheck._claims import Kernel, arranged, ranked, restored
from attncheck._types import HALF, Array, dtype_of_sums

REFUSALS = (ValueError, TypeError, RuntimeError)  # one of which an invalid call must raise
# An assertion says no too, where a result was expected.
SAYING_NO = {own.__name__: own for own in (*REFUSALS, AssertionError)}
RAISED = "raised"  # the kind of a result that did not come
INVERTED = "a boolean mask is inverted"
MODIFIED = "an input is modified"
OVERWRITTEN = "expected a result that stays, but the next call changed it"


@dataclass(frozen=True)
class Result:
    """What became of one case.

    Attributes:
        case: The case.
        passed: Whether the kernel gave what the definition gives.
        message: The call and the first wrong entry, or the exception that came; "" if it passed.
        kind: What sort of wrong it is, so that alike ones can stand together.
        refused: The words of an exception that says no, where a result was expected.
    """

    case: Case
    passed: bool
    message: str = ""
    kind: str = ""
    refused: str = ""

    def __str__(self) -> str:
        lines = [str(self.case), *self.message.splitlines()]
        return "\n    ".join(lines)


class Open(Protocol):
    """What says where a result may be NaN although the truth is a number, as boolean arrays."""

    def output(self, call: Call) -> Array:
        """Return the entries of the output that may be NaN."""

    def gradients(self, call: Call) -> dict[str, Array]:
        """Return the entries of each gradient that may be NaN."""


class RaisedError(WrongResultError):
    """An exception came in place of a result; `refusal` has its words if it says no."""

    def __init__(self, expected: str, error: Exception) -> None:
        said = one_line(error)
        super().__init__(f"expected {expected}, but {said} was raised", f"{RAISED}: {said}")
        says_no = isinstance(error, tuple(SAYING_NO.values())) and bool(str(error).strip())
        self.refusal = said if says_no else ""


def judge(case: Case, attention: Any, backend: Backend, open_to_nan: Open | None = None) -> Result:
    """Return whether a kernel passes a case, and what is wrong where it does not.

    `attention` is a function or a `Kernel`. Where `open_to_nan` says so, NaN is as good as the
    truth.
    """
    call, kernel = case.call, Kernel.of(attention)
    wrong = _Asked(kernel, backend, open_to_nan).of(call)
    if wrong is None:
        return Result(case, True)
    refused, kind, words = getattr(wrong, "refusal", ""), wrong.kind, f"{call}\n{wrong}"
    mask = call.given.get("attn_mask")
    if mask is not None and mask.dtype == "bool" and not (refused or call.refused):
        other: Any = "takes part" if kernel.mask_true == "removed" else "removed"
        if _Asked(replace(kernel, mask_true=other), backend, open_to_nan).of(call) is None:
            kind, words = INVERTED, f"{words}; it is right with the mask turned round (mask_true)"
    return Result(case, False, words, kind, refused)


def one_line(error: Exception) -> str:
    """Return an exception on one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else f"{type(error).__name__} without words"


@dataclass
class _Asked:
    """A kernel with a backend: what a call requires of it."""

    kernel: Kernel
    backend: Backend
    open_to_nan: Open | None = None

    @property
    def lse_unit(self) -> float:
        """Return what 1 in the kernel's log-sum-exp is in a natural one: log 2 for base 2."""
        also = self.kernel.lse
        return 1.0 if also is None or also.base == "e" else math.log(also.base)

    def of(self, call: Call) -> WrongResultError | None:
        """Return what is wrong with a call; None if nothing is."""
        try:
            # A kernel on arrays may warn of ∞ and NaN; what counts is whether they come out.
            with np.errstate(all="ignore"):
                if call.neighbour is not None:
                    self.refusal(call, call.neighbour)
                elif call.upstream is not None:
                    self.gradients(call)
                elif call.split is not None:
                    self.merge(call)
                else:
                    self.output(call)
        except WrongResultError as wrong:
            return wrong
        return None

    def given(self, call: Call) -> dict[str, Any]:
        """Return the kernel's own arrays of a call."""
        return {n: self.backend.give(own) for n, own in self.kernel.arranged(call).items()}

    def run(self, call: Call, own: Mapping[str, Any]) -> Any:
        """Return what the kernel returns."""
        further = self.kernel.further(call)
        extra = {n: self.backend.give(x) if isinstance(x, Given) else x for n, x in further.items()}
        return self.kernel.called(call, own, extra)

    def called(self, call: Call, own: Mapping[str, Any]) -> Any:
        """Return what the kernel returns; its exception becomes a wrong result, in words."""
        try:
            with self.backend.poisoned():
                return self.run(call, own)
        except Exception as error:
            raise RaisedError("a result", error) from error

    def refusal(self, call: Call, neighbour: Call) -> None:
        """Require an exception with a message, beside a neighbour that is accepted."""
        try:
            self.run(neighbour, self.given(neighbour))
        except Exception as error:
            raise RaisedError("the same call put right to be accepted", error) from error
        kinds = "a ValueError, a TypeError or a RuntimeError with a message"
        try:
            result = self.run(call, self.given(call))
        except Exception as error:
            says_no = isinstance(error, REFUSALS)
            if says_no and str(error).strip():
                return
            kind = "an error without words" if says_no else f"{RAISED}: {one_line(error)}"
            words = f"expected {kinds}, but {one_line(error)} was raised"
            raise WrongResultError(words, kind) from error
        shape = getattr(result, "shape", None)
        of_shape = "" if shape is None else f" of shape {tuple(shape)}"
        came = f"{type(result).__qualname__}{of_shape}"
        words = f"expected {kinds}, but the call returned: {came}"
        raise WrongResultError(words, "an invalid call is accepted")

    def output(self, call: Call) -> None:
        """Require the output of the definition, and its log-sum-exp where that is asked."""
        own = self.given(call)
        watched = own if call.watched else {}
        before = {name: self.backend.bits(argument) for name, argument in watched.items()}
        came = self.called(call, own)
        result, lse = _pair(came) if call.lse else (came, None)
        truth, dtype = _definition.output(call), call.given["query"].dtype
        got = self.taken(call, "output", result, dtype, truth.ndim)
        limit = output_limit(call, truth, self.backend)
        free = None if self.open_to_nan is None else self.open_to_nan.output(call)
        _compare("", got, truth, limit, free)
        if call.lse:
            self.lse(call, lse)
        if call.watched:
            self.untouched(own, before)
            for name, argument in own.items():
                if self.backend.shares(result, argument):
                    words = f"expected a result of its own, but it lies in the memory of {name}"
                    raise WrongResultError(words, "the result lies in the memory of an argument")
            self.kept(call, result, before)

    def kept(self, call: Call, result: Any, before: Mapping[str, bytes]) -> None:
        """Require a result that a second call leaves as it is; its query is another one."""
        first = self.backend.bits(result)
        query = call.given["query"]
        other = query._replace(numbers=query.numbers + 1.0)
        second = Call(call.given | {"query": other}, call.options, lse=call.lse)
        self.called(second, self.given(second))
        if self.backend.bits(result) != first:
            raise WrongResultError(OVERWRITTEN)

    def lse(self, call: Call, lse: Any) -> None:
        """Require the log-sum-exp of the definition."""
        own = _definition.problem(call)
        truth = _definition.attention(own)[1]
        numbers, came = self.natural_lse(call, lse, truth.ndim)
        sums = dtype_of_sums(call.given["query"].dtype)
        if came not in (sums, "float64"):
            words = f"the log-sum-exp: expected dtype {sums}, got {came}"
            raise WrongResultError(words, "the dtype of the log-sum-exp")
        _compare("the log-sum-exp: ", numbers, truth, lse_limit(call, truth))

    def natural_lse(self, call: Call, lse: Any, rank: int) -> tuple[Array, str]:
        """Return a natural log-sum-exp in our order of axes, and the name of its dtype."""
        numbers, came = self.in_numbers(call, "lse", lse, rank, "the log-sum-exp: ")
        return self.lse_unit * numbers, came

    def merge(self, call: Call) -> None:
        """Require that two halves of the keys, merged by their log-sum-exps, give the whole."""
        halves = _halves(call)
        results = [_pair(self.called(half, self.given(half))) for half in halves]
        truth = _definition.output(call)
        dtype = call.given["query"].dtype
        limit = output_limit(call, truth, self.backend)
        if self.kernel.merge is not None:
            try:
                merged = _pair(self.kernel.merged(results))
            except Exception as error:
                raise RaisedError("a merged result", error) from error
            got = self.taken(call, "output", merged[0], dtype, truth.ndim)
            _compare("merged by the kernel: ", got, truth, limit)
            self.lse(call, merged[1])
            return
        outputs = [self.taken(call, "output", own, dtype, truth.ndim) for own, _ in results]
        lses = [self.natural_lse(call, lse, truth.ndim - 1)[0] for _, lse in results]
        for what, shape, came in (
            ("", truth.shape, outputs), ("the log-sum-exp: ", truth.shape[:-1], lses),
        ):
            for own in came:
                if own.shape != shape:
                    words = f"{what}expected shape {shape}, got {own.shape}"
                    raise WrongResultError(words, f"{what}another shape")
        _compare("merged: ", merged_halves(outputs, lses), truth, limit)

    def gradients(self, call: Call) -> None:
        """Require the gradients of the definition."""
        assert call.upstream is not None
        orders, wanted = self.kernel.orders(call), call.wanted
        parts = [call] if call.split is None else _halves(call)
        given = [self.given(part) for part in parts]
        # The halves of a merge have leaves of their own: "key" and "key 1".
        own = {_of_part(name, n): x for n, part in enumerate(given) for name, x in part.items()}
        upstream: Any = self.backend.give(arranged(call.upstream, *orders["output"]))
        everything = own | {"the gradient of the output": upstream}
        before = {name: self.backend.bits(argument) for name, argument in everything.items()}
        above = upstream
        if call.lse_upstream is not None:
            own_lse = call.lse_upstream._replace(numbers=self.lse_unit * call.lse_upstream.numbers)
            above = upstream, self.backend.give(arranged(own_lse, *orders["lse"]))

        def attend(**arrays: Any) -> Any:
            results = [
                self.run(part, {name: arrays[_of_part(name, n)] for name in part.given})
                for n, part in enumerate(parts)
            ]
            if call.split is not None:
                merged = _pair(self.kernel.merged(map(_pair, results)))
                return merged if call.lse else merged[0]
            return _pair(results[0]) if call.lse else results[0]

        leaves = tuple(_of_part(name, n) for n, _ in enumerate(parts) for name in wanted)
        try:
            with self.backend.poisoned():
                found = self.backend.gradients(attend, own, above, leaves)
        except WrongResultError:
            raise
        except Exception as error:
            raise RaisedError("gradients", error) from error
        truth = _definition.gradients(call)
        limits = gradient_limits(call, truth, self.backend)
        free = {} if self.open_to_nan is None else self.open_to_nan.gradients(call)
        for name in wanted:
            said = f"the gradient of {name}: "
            own_dtype, rank = call.given[name].dtype, truth[name].ndim
            came = [found[_of_part(name, n)] for n, _ in enumerate(parts)]
            halves = [self.taken(call, name, one, own_dtype, rank, said) for one in came]
            got = halves[0]
            if call.split is not None:
                whole = name == "query"
                got = np.sum(halves, axis=0) if whole else np.concatenate(halves, axis=-2)
            _compare(said, got, truth[name], limits[name], free.get(name))
        if call.watched:
            self.untouched(everything, before)

    def taken(
        self, call: Call, name: str, result: Any, dtype: str, rank: int, what: str = ""
    ) -> Array:
        """Return the numbers of a result in our order of axes; it must be of this dtype."""
        numbers, came = self.in_numbers(call, name, result, rank, what)
        if came != dtype:
            raise WrongResultError(f"{what}expected dtype {dtype}, got {came}", f"{what}dtype")
        if name == "attn_mask" and self.kernel.mask_ranks is not None:
            return ranked(numbers, rank)
        return numbers

    def in_numbers(
        self, call: Call, name: str, result: Any, rank: int, what: str
    ) -> tuple[Array, str]:
        """Return a result in float64 and in our order of axes, and the name of its dtype."""
        try:
            numbers, came = self.backend.take(result)
        except WrongResultError as wrong:
            raise WrongResultError(f"{what}{wrong}") from None
        orders = self.kernel.orders(call)
        return restored(numbers, *orders[name], rank) if name in orders else numbers, came

    def untouched(self, arguments: Mapping[str, Any], before: Mapping[str, bytes]) -> None:
        """Require arguments that hold what they held before the call."""
        for name, argument in arguments.items():
            if self.backend.bits(argument) != before[name]:
                words = f"expected inputs that are left as they are, but {name} was modified"
                raise WrongResultError(words, MODIFIED)


def output_limit(call: Call, truth: Array, backend: Backend) -> float | Array:
    """Return how far an output may be off."""
    dtype, peer = call.given["query"].dtype, call.peer
    size: Any = call.size
    if dtype in HALF:
        peer = backend.peer(call) if peer is None else peer
    elif size is None:
        size = _tolerance.forward_size(_definition.problem(call))
    limit = _tolerance.bound(truth, dtype=dtype, size=size, peer=peer)
    if call.split is None:
        return limit
    # Two halves are off, and half precision rounds what they are merged to.
    merged = _tolerance.epsilon(dtype) * np.abs(truth).max(initial=0.0) if dtype in HALF else 0.0
    return 2 * limit + merged


def lse_limit(call: Call, truth: Array) -> float | Array:
    """Return how far a log-sum-exp may be off; half precision sums in float32."""
    dtype = call.given["query"].dtype
    size = _tolerance.lse_size(_definition.problem(call))
    return _tolerance.bound(truth, dtype=dtype_of_sums(dtype), size=size)


def gradient_limits(
    call: Call, truth: Mapping[str, Array], backend: Backend
) -> dict[str, float | Array]:
    """Return how far each of the wanted gradients may be off."""
    assert call.upstream is not None
    own, d_output = _definition.problem(call), call.upstream.numbers
    d_lse = None if call.lse_upstream is None else call.lse_upstream.numbers
    sizes = _tolerance.gradient_sizes(own, d_output, d_lse)
    sizes = _definition.argument_gradients(call, sizes)
    dtype = call.given["query"].dtype
    peers = backend.peer_gradients(call) if dtype in HALF else {}
    floors: dict[str, Array] = {n: _tolerance.epsilon("float32") * sizes[n] for n in call.wanted}
    if dtype in HALF:
        rounded = _tolerance.sizes_of_rounded(own, d_output)
        rounded = _definition.argument_gradients(call, rounded)
        ours = _tolerance.epsilon(dtype)
        floors = {name: floor + ours * rounded[name] for name, floor in floors.items()}
    n_parts = 1 if call.split is None else 2
    return {
        name: n_parts * _tolerance.bound(
            truth[name], dtype=dtype, size=sizes[name], peer=peers.get(name), times=3,
            floor=floors[name],
        )
        for name in call.wanted
    }


def _pair(result: Any) -> tuple[Any, Any]:
    """Return the output and the log-sum-exp of a result, which may hold more."""
    if not isinstance(result, (tuple, list)) or len(result) < 2:
        came = type(result).__qualname__
        raise WrongResultError(f"expected (output, log-sum-exp), got {came}")
    return result[0], result[1]


def _of_part(name: str, n: int) -> str:
    """Return the name of an argument of the n-th half."""
    return f"{name} {n}" if n else name


def _halves(call: Call) -> list[Call]:
    """Return the call with its keys before the split, and with those behind it."""
    halves = []
    for keys in (slice(0, call.split), slice(call.split, None)):
        given = dict(call.given)
        for name in ("key", "value"):
            given[name] = given[name]._replace(numbers=given[name].numbers[..., keys, :])
        if "attn_mask" in given:
            mask = given["attn_mask"]
            given["attn_mask"] = mask._replace(numbers=mask.numbers[..., keys])
        halves.append(Call(given, call.options, split=call.split))
    return halves


def merged_halves(outputs: list[Array], lses: list[Array]) -> Array:
    """Return the output of all keys: a mean of the outputs with the weights exp(lse).

    >>> merged_halves([np.array([[1.0]]), np.array([[4.0]])], [np.log([1.0]), np.log([2.0])])
    array([[3.]])
    """
    weights = _tolerance.softmax(np.stack(lses, axis=-1))
    return np.asarray((weights[..., None] * np.stack(outputs, axis=-2)).sum(axis=-2))


def _compare(
    what: str, got: Array, truth: Array, bound: float | Array, free: Array | None = None
) -> None:
    if free is not None and got.shape == truth.shape:
        truth = np.where(free & np.isnan(got), np.nan, truth)
    said = _tolerance.difference(got, truth, bound)
    if said:
        raise WrongResultError(f"{what}{said}", f"{what}{_tolerance.sort_of_wrong(got, truth)}")
