"""The process of a kernel: it imports the kernel, calls it when it is asked, and sends what came.

The judge does not trust it. A kernel may change everything that is imported here; the truth, the
bounds, the seed and the comparison are in the judge's process.
"""

from __future__ import annotations

import importlib
import json
import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from typing import Any

import numpy as np

from attncheck import backend_for
from attncheck.__main__ import found
from attncheck._calls import WrongResultError
from attncheck._claims import Also, Kernel, compiled, parameters_of, takes_integer
from attncheck._comparison import SAYING_NO
from attncheck._wire import FORKED, HEAD, WIDTHS, Memory, message
from attncheck.hands import SHAPES

LATE = 2.0  # seconds in which a forked process may come back


def work(told: dict[str, Any]) -> None:
    """Answer requests until there are no more."""
    home, worker = os.getpid(), Worker(told)
    with open(told["requests"], "rb") as requests:
        while head := requests.read(HEAD.size):
            n_header, _ = HEAD.unpack(head)
            header = json.loads(requests.read(n_header))
            gone, held = os.pipe()  # a copy of the process holds the second end until it is gone
            forks, reply, body = worker.forks, {}, b""
            try:
                reply, body = getattr(worker, header["do"])(header)
            except BaseException as error:  # of sys.exit too
                names = [name for name, own in SAYING_NO.items() if isinstance(error, own)]
                said = type(error).__name__, " ".join(str(error).split())
                reply = {"raised": ["".join(names[:1]), *said]}
            if os.getpid() != home:  # pragma: no cover (the judge ends it here)
                worker.memory.bytes[FORKED] = 1
                os._exit(0)
            os.close(held)
            if worker.forks > forks:
                select.select([gone], [], [], LATE)
            os.close(gone)
            whole = memoryview(message(reply | {"token": header["token"]}, body))
            while whole:
                whole = whole[os.write(told["replies"], whole) :]


class Worker:
    """A kernel with its backend, and the arrays of one case."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told, self.memory = told, Memory(told["memory"])
        self.backend = backend_for(told["kind"], told["device"])
        self.given: dict[int, tuple[Any, Any]] = {}  # by place: what the kernel has, and the memory
        self.results: list[Any] = []
        self.leaves: list[int] = []
        self.forks = 0
        os.register_at_fork(after_in_parent=self._count)

    def _count(self) -> None:
        self.forks += 1

    def load(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Import the kernel, and say what it claims."""
        self.kernel = Kernel.of(found(self.told["kernel"]))
        module = self.told["kernel"].partition(":")[0]
        self.module = None if module in SHAPES else importlib.import_module(module)
        return {"claims": said(self.kernel)}, b""

    def claimed(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Say whether the kernel has something for a value."""
        value = self.kernel.values[header["word"]](self.decoded(header["own"]))
        return {"claimed": value is not NotImplemented}, b""

    def call(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Call a function of the kernel, and send its results or gradients."""
        if header["new"]:
            self.given, self.results = {}, []
        if self.memory.size < header["size"]:
            self.memory.grow(header["size"])
        self.leaves = header["leaves"]
        function, always = self.function(*header["function"])
        function = compiled(function, header["compiled"])
        positional = [self.decoded(own) for own in header["args"]]
        named = {name: self.decoded(own) for name, own in header["named"].items()}
        with self.context(header):
            came = function(*positional, **named, **always)
        return self.kept(came)

    def gradients(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send the gradients of results that are kept."""
        result, above = self.decoded(header["of"]), self.decoded(header["above"])
        leaves = {str(place): self.given[place][0] for place in header["leaves"]}
        with self.context(header):
            found = self.backend.gradients(lambda **_: result, leaves, above, tuple(leaves))
        return self.kept(tuple(found.values()))

    @contextmanager
    def context(self, header: dict[str, Any]) -> Iterator[None]:
        """Call with memory of NaN where that is wanted, and without warnings of ∞ and NaN."""
        poison = self.backend.poisoned if header["poisoned"] else nullcontext
        with poison(), np.errstate(all="ignore"):
            yield

    def kept(self, came: Any) -> tuple[dict[str, Any], bytes]:
        """Keep results until the next case, and send them."""
        if self.told["device"] != "cpu":  # pragma: no cover (needs an accelerator)
            self.copied_back()
        several = isinstance(came, (tuple, list))
        first = len(self.results)
        self.results += came if several else [came]
        sent = [self.packed(own) for own in self.results[first:]]
        about = [own for own, _ in sent]
        return {"results": about, "first": first, "several": several}, b"".join(b for _, b in sent)

    def again(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a result of an earlier call as it is now."""
        about, body = self.packed(self.results[header["result"]])
        return {"results": [about], "first": header["result"], "several": False}, body

    def shares(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Say whether a result lies in the memory of an argument."""
        own = self.decoded(header["own"])
        return {"shares": self.backend.shares(self.results[header["result"]], own)}, b""

    def function(self, name: str, of_claims: str) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the kernel's own function, or the one of its module that the claims name.

        Beside it stand the keywords of all of its calls.
        """
        own: Any = getattr(self.kernel, name) or getattr(self.module, of_claims)
        always = {} if name == "merge" else dict(self.kernel.always)
        also = isinstance(own, Also)
        return (own.function, always | dict(own.always)) if also else (own, always)

    def decoded(self, told: dict[str, Any]) -> Any:
        """Return what a message tells: an array, a result of an earlier call, numbers or words."""
        [(what, own), *_] = told.items()
        if what == "array":
            place = own["offset"]
            if place not in self.given:
                view = self.memory.view(own)
                self.given[place] = self.backend.held(view, own["given"]), view
                if place in self.leaves:
                    self.given[place][0].requires_grad_()
            return self.given[place][0]
        if what == "word":
            return self.kernel.values[own](self.decoded(told["own"]))
        if what == "result":
            return self.results[own]
        if what == "is":
            return own
        return {"tuple": tuple, "list": list}[what](map(self.decoded, own))

    def packed(self, result: Any) -> tuple[dict[str, Any], bytes]:
        """Return the dtype and the shape of a result, and its bytes; or what else it is."""
        try:
            numbers, dtype = self.backend.packed(result)
        except WrongResultError as wrong:
            return {"wrong": str(wrong)}, b""
        body = numbers.tobytes() if dtype in WIDTHS else b""
        return {"dtype": dtype, "shape": numbers.shape}, body

    def copied_back(self) -> None:  # pragma: no cover (needs an accelerator)
        """Write what a device holds into the memory, which the judge looks at."""
        for own, view in self.given.values():
            now = self.backend.packed(own)[0].view(view.dtype)
            if now.tobytes() != view.tobytes():
                view.flags.writeable = True
                view[...] = now


def said(kernel: Kernel) -> dict[str, Any]:
    """Return the claims of a kernel in JSON: of its functions only what they take."""
    return {own.name: _said(getattr(kernel, own.name)) for own in fields(kernel) if own.init}


def _said(own: Any) -> Any:
    if isinstance(own, Also):
        return {"also": {x.name: _said(getattr(own, x.name)) for x in fields(own)}}
    if callable(own):
        return {"takes": _parameters(own)}
    if isinstance(own, Mapping):
        # A keyword of every call is added here, and never sent.
        return {"of": {name: str(x) for name, x in own.items()}}
    if isinstance(own, (list, tuple)):
        return {"each": list(map(_said, own))}
    return own


def _parameters(function: Callable[..., Any]) -> list[tuple[str, int, bool]]:
    """Return what a function takes: names, how each is given, and whether it is an integer."""
    found = parameters_of(function)
    return [(own.name, int(own.kind), takes_integer(function, own.name)) for own in found]
