"""A judge: a kernel in a process of its own, asked in secret, and asked again.

The judge's process never imports the kernel's module. It draws the inputs from a secret seed, puts
those of one call into shared memory, and asks the kernel's process for the bytes of the result.
Only then does it compute the truth and compare. After each call it reads the inputs again. A crash,
a hang, or a call that comes back twice is a result, after which the kernel starts anew. What passes
is asked again (`thrice`).

Both processes belong to the same user. Therefore a kernel can still do this:

- kill the judge. Then there is no report, and no file of `--json`;
- open the judge's terminal by its name and write to it, or change files, also after the end.
  Whoever pays for results runs the judge in a container, keeps attncheck and the file where the
  kernel cannot write, and believes the file only beside an exit status of 0 or 1;
- be imported by the judge in place of a module of Python, such as json.py, if the judge starts in
  the kernel's folder: start it elsewhere, and name the folder (`folder`, `--folder`);
- call somebody else's attention. If that is right, the kernel is right: the judge sees what comes
  out, and not who computes it;
- answer for itself whether a result lies in the memory of an argument, and whether the next call
  changes it. Only code in the kernel's process can look at that.
"""

from __future__ import annotations

import inspect
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from attncheck._backends import Backend, stored, wide
from attncheck._calls import Call, Case, Given, WrongResultError
from attncheck._claims import INPUTS, TAKEN, Also, Kernel, parameters_of
from attncheck._comparison import MODIFIED, SAYING_NO, Result, judge
from attncheck._process import NoResult, Process, words_of
from attncheck._report import followed
from attncheck._types import Array
from attncheck._wire import WIDTHS, Came, Sent, Valued, encoded


class Remote(Backend):
    """Arrays that lie in the memory of a process, and a kernel that is called there."""

    def __init__(self, process: Process, inner: Backend, kind: str) -> None:
        self.process, self.inner, self.missing = process, inner, inner.missing
        self.array = {"torch": "torch.Tensor", "numpy": "numpy.ndarray"}[kind]
        # A result is called what it is in the process, in messages too.
        self.result: Any = type(self.array.rpartition(".")[2], (Came,), {})
        self.is_poisoned, self.is_new, self.is_watched = False, True, True
        self.leaves: list[int] = []

    def dtypes(self) -> tuple[str, ...]:
        return self.inner.dtypes()

    @contextmanager
    def poisoned(self) -> Iterator[None]:
        """Let memory hold NaN in the process."""
        self.is_poisoned = True
        try:
            yield
        finally:
            self.is_poisoned = False

    def give(self, given: Given) -> Sent:
        own = stored(given.numbers, given.dtype)
        sent = self.process.memory.place(own if given.layout is None else given.layout(own))
        sent.told["given"] = given.dtype
        return sent

    def bits(self, own: Any) -> bytes:
        """Return what an input holds, or what a result holds now."""
        if isinstance(own, Sent):
            return own.view.tobytes()
        answer = self.process.ask({"do": "again", "result": own.n})
        now: bytes = self.process.read(lambda: self._results(*answer).bits)
        return now

    def take(self, result: Any) -> tuple[Array, str]:
        if not isinstance(result, Came):
            raise WrongResultError(f"expected a {self.array}, got {type(result).__qualname__}")
        if result.wrong:
            raise WrongResultError(result.wrong)
        return result.numbers, result.dtype

    def shares(self, result: Any, own: Any) -> bool:
        header = {"do": "shares", "result": result.n, "own": encoded(own)}
        return bool(self.process.ask(header)[0].get("shares"))

    def peer(self, call: Call) -> Array:
        return self.inner.peer(call)

    def peer_gradients(self, call: Call) -> dict[str, Array]:
        return self.inner.peer_gradients(call)

    def gradients(
        self, attention: Any, own: dict[str, Any], upstream: Any, wanted: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the gradients that the process gives, after calls whose results it keeps."""
        above = upstream if isinstance(upstream, tuple) else (upstream,)
        for sent, name in zip(above, ("output", "log-sum-exp"), strict=False):
            sent.name = f"the gradient of the {name}"
        self.leaves = [own[name].told["offset"] for name in wanted]
        try:
            result = encoded(attention(**own))
        finally:
            leaves, self.leaves = self.leaves, []
        header = {"do": "gradients", "of": result, "above": encoded(upstream), "leaves": leaves}
        found = self._answer(header | {"poisoned": self.is_poisoned})
        return dict(zip(wanted, found, strict=True))

    def call(
        self, function: tuple[str, str], args: Sequence[Any], named: dict[str, Any],
        compiled: str | None = None,
    ) -> Any:
        """Return what a function of the kernel returns in its process."""
        for name, own in {**dict(zip(INPUTS, args, strict=False)), **named}.items():
            sent = own.own if isinstance(own, Valued) else own
            if isinstance(sent, Sent):
                sent.name = name
        header = {
            "do": "call", "function": function, "new": self.is_new, "poisoned": self.is_poisoned,
            "args": list(map(encoded, args)), "leaves": self.leaves, "compiled": compiled,
            "named": {name: encoded(own) for name, own in named.items()},
        }
        self.is_new = False
        return self._answer(header)

    def _answer(self, header: dict[str, Any]) -> Any:
        """Return the results of a request that leaves inputs as they are."""
        answer = self.process.ask(header)
        self.untouched()
        return self._results(*answer)

    def _results(self, reply: dict[str, Any], body: bytes) -> Any:
        """Return the results of an answer, or raise what was raised in the process."""
        if "raised" in reply:
            said = self.process.read(lambda: [words_of(reply["raised"][n]) for n in (0, 1, 2)])
            base, name, words = said
            raise type(name[:100], (SAYING_NO.get(base, Exception),), {})(words)
        return self.process.read(lambda: self._read(reply, body))

    def _read(self, reply: dict[str, Any], body: bytes) -> Any:
        found, begin = [], 0
        for n, told in enumerate(reply["results"], int(reply["first"])):
            wrong, shape = words_of(told.get("wrong", "")), tuple(map(int, told.get("shape", ())))
            dtype = words_of(told.get("dtype", ""))
            width = 0 if wrong else WIDTHS.get(dtype, 0)
            end = begin + width * math.prod(shape)
            if min(shape, default=0) < 0 or end > len(body):
                raise ValueError("fewer bytes than the shape says")
            bits, numbers = body[begin:end], np.zeros(0)
            if width:
                own = np.frombuffer(bits, "int16" if dtype == "bfloat16" else dtype)
                numbers = wide(own, dtype).reshape(shape)
            found.append(self.result(n, dtype, shape, numbers, bits, wrong))
            begin = end
        return tuple(found) if reply["several"] is True or not found else found[0]

    def untouched(self) -> None:
        """Require that inputs, and what lies beside them, are as they were put there."""
        changed = self.process.memory.changed() if self.is_watched else None
        if changed is not None:
            sent, within = changed
            words = f"expected inputs that are left as they are, but {sent.name} was modified"
            kind = MODIFIED
            if not within:
                words = f"expected writes to the result alone, but {sent.name} was written beside"
                kind = "memory beside an input is written"
            raise NoResult(words, kind)

    def kernel(self, claims: Kernel | None) -> Kernel:
        """Return what is claimed, with functions that are called in the process."""
        if claims is not None:
            return with_claims(claims, self)
        try:
            self.process.load()
            return self.process.read(lambda: claimed(self.process.claims, self))  # type: ignore[no-any-return]
        except NoResult as none:
            # A kernel that says nothing is asked what torch's own attention takes.
            self.process.not_loaded = none
            return Kernel(Function(self, ("function", "function"), TAKEN))

    def asked(self, case: Case, kernel: Kernel) -> Result:
        """Return what becomes of one case."""
        self.process.memory.clear()
        self.is_new = True
        try:
            return judge(case, kernel, self)
        except NoResult as none:
            return Result(case, False, f"{case.call}\n{none.words}", none.kind)


class Function:
    """A function of the kernel, called in its process."""

    def __init__(
        self, remote: Remote, name: tuple[str, str], parameters: Sequence[inspect.Parameter]
    ) -> None:
        self.remote, self.name = remote, name
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.remote.call(self.name, args, named)

    def compiled(self, backend: str | None) -> Callable[..., Any]:
        """Return the function under torch.compile, in its process."""
        return lambda *args, **named: self.remote.call(self.name, args, named, backend)


def claimed(told: dict[str, Any], remote: Remote) -> Kernel:
    """Return the claims that a process told, with functions that are called there."""
    names = [own.name for own in fields(Kernel) if own.init]
    said: dict[str, Any] = {name: _claim(name, told[name], remote) for name in names}
    said["values"] = {word: _value(word, remote) for word in told["values"]["of"]}
    return Kernel(**said | {"always": {}})


def _claim(name: str, own: Any, remote: Remote) -> Any:
    if not isinstance(own, dict):
        return words_of(own) if isinstance(own, str) else own
    [(what, inner)] = own.items()
    if what == "also":
        found = {field.name: _claim(name, inner[field.name], remote) for field in fields(Also)}
        return Also(**found | {"always": {}})
    if what == "takes":
        return Function(remote, (name, name), list(map(_parameter, inner)))
    if what == "each":
        return tuple(_claim(name, x, remote) for x in inner)
    return {word: words_of(x) for word, x in inner.items()}


def _parameter(told: list[Any]) -> inspect.Parameter:
    name, kind, is_integer = told
    annotation = int if is_integer is True else inspect.Parameter.empty
    return inspect.Parameter(name, inspect._ParameterKind(kind), annotation=annotation)


def _value(word: str, remote: Remote) -> Callable[[Any], Any]:
    """Return the function that stands for one of the kernel's `values`."""
    known: dict[str, bool] = {}

    def valued(own: Any) -> Any:
        if not isinstance(own, Sent) and repr(own) not in known:
            header = {"do": "claimed", "word": word, "own": encoded(own)}
            answer: dict[str, Any] = {}
            with suppress(NoResult):  # it comes again where the case is asked
                answer, _ = remote.process.ask(header)
            known[repr(own)] = answer.get("claimed") is not False
        return Valued(word, own) if known.get(repr(own), True) else NotImplemented

    return valued


def with_claims(claims: Kernel, remote: Remote) -> Kernel:
    """Return claims of the judge's own, with functions that are called in the process.

    A second function is the kernel's own; where it has none, that of the kernel's module with the
    name that it has in the claims.
    """

    def there(field: str, own: Callable[..., Any]) -> Function:
        field = "function" if own is claims.function else field
        return Function(remote, (field, getattr(own, "__name__", field)), parameters_of(own))

    found: dict[str, Any] = {}
    for field in fields(Kernel):
        own = getattr(claims, field.name)
        if isinstance(own, Also):
            found[field.name] = replace(own, function=there(field.name, own.function))
        elif callable(own):
            found[field.name] = there(field.name, own)
    return replace(claims, **found)


def thrice(
    cases: Sequence[Case], kernel: Kernel, remote: Remote, progress: bool
) -> list[Result]:
    """Return a result for each case. What passes is asked again, in an order that nobody knows.

    It is asked with the same numbers, which finds a kernel that is right at first, and with those
    of another seed, which finds one that repeats what it gave before.
    """
    results = [remote.asked(case, kernel) for case in (followed(cases) if progress else cases)]
    order = [(n, more) for n, own in enumerate(results) if own.passed for more in (0, 1)]
    secrets.SystemRandom().shuffle(order)
    for n, more in order:
        if results[n].passed:
            case = replace(cases[n], seed=cases[n].seed + more)
            again = remote.asked(case, kernel)
            if not again.passed:
                call, wrong = again.message.split("\n", 1)
                words = f"{call}\nasked again, with seed {case.seed}: {wrong}"
                results[n] = Result(cases[n], False, words, f"asked again: {again.kind}")
    return results
