"""The process of a kernel, as the judge sees it: asked, waited for, ended, and started again."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attncheck._wire import FORKED, HEAD, Memory, message

START = (
    "import json, sys; told = json.loads(sys.argv.pop()); sys.path[:] = told['path'];"
    "from attncheck._worker import work; work(told)"
)
LOADING = 120.0  # seconds in which a module must be imported
MOST = 1 << 28  # bytes of a result, beyond 16 times those of the inputs
NO_MESSAGE = "its process wrote no result into the pipe"


class NoResult(BaseException):
    """No result came that could be compared. No `except Exception` takes it for a refusal."""

    def __init__(self, words: str, kind: str) -> None:
        super().__init__(words)
        self.words, self.kind = words, kind


class Process:
    """A process that holds a kernel, and calls it when it is asked.

    It is started when it is needed, in a session of its own, so that it ends with what it started.
    What it prints goes nowhere, or into `log`.
    """

    def __init__(
        self, path: str, kind: str, device: str, limits: tuple[float, float], folder: str = "",
        log: str = "",
    ) -> None:
        module, colon, name = path.partition(":")
        if not (module and colon and name):
            raise ValueError(
                f"expected MODULE:FUNCTION, such as my_module:my_attention; got {path!r}"
            )
        self.call_seconds, self.total_seconds = limits
        if not 0 < self.call_seconds <= self.total_seconds:
            raise ValueError(f"limits must be above 0, a call's the smaller one; got {limits}")
        self.folder, self.log = folder, log
        with tempfile.TemporaryFile() as file:
            self.memory = Memory(os.dup(file.fileno()))
        self.told = {"kernel": path, "kind": kind, "device": device, "memory": self.memory.file}
        self.end = time.monotonic() + self.total_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.claims: dict[str, Any] = {}
        self.not_loaded: NoResult | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self.stop(0 if error else 5)
        os.close(self.memory.file)

    def load(self) -> None:
        """Start the process, and let it import the kernel.

        Raises:
            NoResult: a module that cannot be imported, now or before.
        """
        if self.not_loaded is not None:
            raise self.not_loaded
        if time.monotonic() >= self.end:
            raise self._late()
        if self.process is not None:
            return
        requests, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        told = self.told | {"requests": requests, "replies": replies}
        told["path"] = [self.folder, *sys.path]
        with open(self.log or os.devnull, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, json.dumps(told)], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
                pass_fds=(requests, replies, self.memory.file),
            )
        os.close(requests)
        os.close(replies)
        try:
            reply, _ = self._exchange({"do": "load"}, LOADING)
            raised: list[Any] = reply.get("raised", [])
            if raised:
                words = self.read(lambda: "{}: {}".format(*map(words_of, raised[1:])))
                raise self._lost(f"{words} was raised at its import", "it does not load")
            self.claims = self.claims or self.read(lambda: dict(reply["claims"]))
        except NoResult as none:
            self.not_loaded = none
            raise

    def ask(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the answer of the process to a request.

        Raises:
            NoResult: a process that ends, hangs, comes back twice, or writes what is no answer.
        """
        self.load()
        return self._exchange(header | {"size": self.memory.size}, self.call_seconds)

    def _exchange(self, header: dict[str, Any], seconds: float) -> tuple[dict[str, Any], bytes]:
        left, token = self.end - time.monotonic(), secrets.token_hex(8)
        deadline = self.end - max(0, left - seconds)
        self.memory.bytes[FORKED] = 0
        try:
            # The process has read all that came before: the pipe is empty, and holds this.
            os.write(self.requests, message(header | {"token": token}))
            n_header, n_body = HEAD.unpack(self._exactly(HEAD.size, deadline))
            if n_header > 1 << 20 or n_body > MOST + 16 * self.memory.used:
                raise self._lost(NO_MESSAGE)
            words, body = self._exactly(n_header, deadline), self._exactly(n_body, deadline)
        except BrokenPipeError:
            raise self._ended() from None
        reply = self.read(lambda: json.loads(words))
        if not isinstance(reply, dict) or reply.get("token") != token:
            raise self._lost(NO_MESSAGE)
        if self.memory.bytes[FORKED]:
            kind = "the call came back twice"
            raise self._lost(f"{kind}, because it forked its process", kind)
        return reply, body

    def read(self, reading: Callable[[], Any]) -> Any:
        """Return what a function reads out of an answer, which may be anything.

        Raises:
            NoResult: an answer that cannot be read.
        """
        try:
            return reading()
        except Exception:
            raise self._lost(NO_MESSAGE) from None

    def _exactly(self, n: int, deadline: float) -> bytes:
        """Return the next n bytes that the process writes."""
        assert self.process is not None
        found = bytearray()
        while len(found) < n:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._late()
            dead = self.process.poll() is not None
            # A copy of the process may hold the pipe open after the process has ended.
            if select.select([self.replies], [], [], 0 if dead else min(left, 0.1))[0]:
                part = os.read(self.replies, min(n - len(found), 1 << 20))
                if not part:
                    raise self._ended()
                found += part
            elif dead:
                raise self._ended()
        return bytes(found)

    def _late(self) -> NoResult:
        over = time.monotonic() >= self.end
        told = f"in the {self.total_seconds:g} s of all calls" if over else "in time"
        return self._lost(f"no result came {told}", "no result in time")

    def _ended(self) -> NoResult:
        assert self.process is not None
        try:
            status = self.process.wait(1)
        except subprocess.TimeoutExpired:
            return self._lost(NO_MESSAGE)
        how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        return self._lost(f"its process ended {how}")

    def _lost(self, words: str, kind: str = "") -> NoResult:
        """End the process, and return why."""
        self.stop(0)
        return NoResult(f"expected a result, but {words}", kind or words)

    def stop(self, patience: float) -> None:
        """End the process, which may take some seconds, and all that is left in its session."""
        if self.process is not None:
            os.close(self.requests)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            os.close(self.replies)
            self.process = None


def words_of(said: object) -> str:
    """Return words of a kernel on one line, without what a terminal would obey.

    >>> words_of("no\\x1b[2Jall passed")
    'no [2Jall passed'
    """
    return "".join(own if own.isprintable() else " " for own in str(said)[:2000])
