"""Launch ranks on this machine: processes that talk by torch.distributed, as torchrun starts them.

A rank answers once, through a pipe: what its function returned, or the error that it raised. From
these answers, and from those that are missing, the parent says which rank failed and why.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attnbook.ranks import process
from attnbook.ranks.process import Answer

START = "forkserver" if sys.platform == "linux" else "spawn"
# Imported once, before the first rank. Without it each rank imports what its first operator needs.
PRELOADED = ["attnbook.ranks", "attnlib.torch_ring", "torch._dynamo"]
# Seconds in which the cause may still answer, once a rank has lost its connection, and in which a
# process that has answered may end. They pass only where a rank hangs.
GRACE = 5.0
ENDING = 20.0  # seconds until the exit code of a process that has closed its pipe must be known


def run(function: Callable[..., Any], size: int, *args: Any, limit: float = 20.0) -> list[Any]:
    """Run a function on `size` ranks of this machine, and return what each of them returned.

    Each rank is a process of its own with one thread. In it torch.distributed is initialized with
    gloo, so that `function(*args)` runs as in a script that torchrun starts: its rank is
    `torch.distributed.get_rank()`. Function, arguments and results are pickled. Therefore the
    function stands in a module that can be imported; for one in a notebook there is `on_ranks`.

    If a rank raises, is killed, leaves early or hangs, all ranks are ended at once.

    Args:
        function: What each rank calls.
        size: How many ranks, at least one.
        args: Its arguments, the same for all ranks.
        limit: How many seconds the ranks may take, once they are started.

    Raises:
        RuntimeError: A rank failed, or was not done within the limit. The error names the rank and
            the cause.
        TypeError, ValueError: A function that cannot be pickled, no ranks, a limit that is not
            positive.

    Example:
        >>> import operator
        >>> run(operator.add, 2, 3, 4)
        [7, 7]
    """
    if size < 1:
        raise ValueError(f"size must be at least 1; got {size}")
    if not 0 < limit < math.inf:
        raise ValueError(f"limit must be positive and finite; got {limit!r}")
    call = _pickled(function, args)
    context: Any = multiprocessing.get_context(START)
    if START == "forkserver":  # pragma: no branch (macOS alone takes the other one)
        context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ranks = []
        for number in range(size):
            receiver, sender = context.Pipe(duplex=False)
            given = call, number, size, folder, float(limit), sender
            child = context.Process(target=process.main, args=given, daemon=True)
            child.start()
            sender.close()
            ranks.append(Rank(number, child, receiver, process.stack_file(folder, number)))
            stack.callback(ranks[-1].end)
        _listen(ranks, time.monotonic() + limit)  # a server that had to start first is running now
        if not all(rank.returned for rank in ranks):
            raise RuntimeError(_cause(ranks, limit))
        return [rank.answer.result for rank in ranks if rank.answer]


def _pickled(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return a function and its arguments as bytes; say so where a rank could not find it."""
    if not callable(function):
        raise TypeError(f"function must be callable; got {function!r}")
    main = sys.modules["__main__"]
    in_notebook = getattr(function, "__module__", None) == "__main__" and not hasattr(
        main, "__file__"
    )
    try:
        if in_notebook:
            raise pickle.PicklingError("it is defined in a notebook or typed at a prompt")
        return pickle.dumps((function, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            "function must stand in a module that can be imported, and its arguments must be "
            f"such that can be pickled; got {function!r}: {error}"
        ) from None


@dataclass
class Rank:
    """A process, as the parent sees it."""

    number: int
    process: Any
    receiver: Connection
    stack_file: Path
    answer: Answer | None = None

    @property
    def returned(self) -> bool:
        """Whether the function has returned."""
        return self.answer is not None and not self.answer.error

    @property
    def lost(self) -> bool:
        """Whether it failed because another rank did not answer."""
        return self.answer is not None and self.answer.lost

    def receive(self) -> None:
        """Take the answer; the end of the pipe is one too."""
        try:
            self.answer = pickle.loads(self.receiver.recv_bytes())
        except (EOFError, OSError):
            # The pipe closes before the process has ended, on a busy machine long before.
            self.process.join(ENDING)
            code = self.process.exitcode
            if code is None:
                self.answer = Answer(error="closed its pipe before its function returned")
            elif code < 0:
                self.answer = Answer(error=f"was killed by {signal.Signals(-code).name}")
            else:
                how = f"exited with code {code} before its function returned"
                self.answer = Answer(error=how)

    def end(self) -> None:
        """Leave nothing of it. A rank that has answered is about to end by itself."""
        if self.answer:
            self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.receiver.close()


def _listen(ranks: list[Rank], end: float) -> None:
    """Take the answers until all are there, one has failed, or time is over."""
    silent: dict[Any, Rank] = {rank.receiver: rank for rank in ranks}
    while silent and (ready := wait(list(silent), max(0.0, end - time.monotonic()))):
        for receiver in ready:
            silent.pop(receiver).receive()
        if any(rank.answer and not rank.returned and not rank.lost for rank in ranks):
            return
        if any(rank.lost for rank in ranks):  # the rank that is the cause may not have answered yet
            end = min(end, time.monotonic() + GRACE)


def _cause(ranks: list[Rank], limit: float) -> str:
    """Say in words which rank failed, and why."""
    of = f"of {len(ranks)}"
    lost = [rank for rank in ranks if rank.lost]
    for rank in ranks:
        if rank.answer and rank.answer.error and not rank.lost:
            line = f"rank {rank.number} {of} {rank.answer.error}"
            return f"{line}\n\n{rank.answer.traceback}".rstrip()
    failed, how = [rank for rank in ranks if rank.answer is None], "did not answer the others"
    if not lost:
        how = f"did not return within {limit:g} s"
    elif not failed:
        failed, how = [rank for rank in ranks if rank.returned], "left before the others were done"
    lines = [f"rank {rank.number} {of} {how}{_last_call(rank.stack_file)}" for rank in failed]
    lines += [f"rank {rank.number} {of} {rank.answer.error}" for rank in lost if rank.answer]
    return "\n".join(lines)


def _last_call(file: Path) -> str:
    """Return the line of code where a rank was after most of its time, if it wrote that down."""
    lines = file.read_text().splitlines() if file.exists() else []
    calls = [call.strip() for head, call in itertools.pairwise(lines) if "hread 0x" in head]
    return f", at {calls[-1]}" if calls else ""
