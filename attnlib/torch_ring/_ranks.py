"""Launch ranks on this machine: processes that talk by torch.distributed, as torchrun starts them.

A rank answers once, through a pipe: what its function returned, or the error that it raised. From
these answers, and from those that are missing, the parent says which rank failed and why.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from numbers import Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from attnlib._checks import checked_count

START = "forkserver" if sys.platform == "linux" else "spawn"
# Imported once, before the first rank. Without it each rank imports what its first operator needs.
PRELOADED = ["attnlib.torch_ring", "torch._dynamo"]
GRACE = 0.5  # seconds in which other ranks may say more, when one has lost its connection


def run(function: Callable[..., Any], size: int, *args: Any, limit: float = 20.0) -> list[Any]:
    """Run a function on `size` ranks of this machine, and return what each of them returned.

    Each rank is a process of its own with one thread. In it torch.distributed is initialized with
    gloo, so that `function(*args)` runs as in a script that torchrun starts: its rank is
    `torch.distributed.get_rank()`. Function, arguments and results are pickled. Therefore the
    function stands in a module that can be imported, not in a notebook.

    If a rank raises, is killed, leaves early or hangs, all ranks are ended at once.

    Args:
        function: What each rank calls.
        size: How many ranks, at least one.
        args: Its arguments, the same for all ranks.
        limit: How many seconds the ranks may take, once they are started.

    Returns:
        One result for each rank.

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
    size = checked_count("size", size, least=1)
    if isinstance(limit, bool) or not isinstance(limit, Real):
        raise TypeError(f"limit must be a real number of seconds; got {limit!r}")
    if not 0 < limit < math.inf:
        raise ValueError(f"limit must be positive and finite; got {limit!r}")
    work = _pickled(function, args)
    context: Any = multiprocessing.get_context(START)
    if START == "forkserver":  # pragma: no branch (macOS alone takes the other one)
        context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(size):
            hears, tells = context.Pipe(duplex=False)
            given = work, rank, size, folder, float(limit), tells
            process = context.Process(target=_process, args=given, daemon=True)
            process.start()
            tells.close()
            ranks.append(Rank(rank, process, hears, Path(folder, f"{rank}.txt")))
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
class Answer:
    """What a rank has to say when it is done."""

    result: Any = None
    error: str = ""  # in one line
    story: str = ""  # the traceback
    lost: bool = False  # whether it is an error of the connection to another rank


@dataclass
class Rank:
    """A process, as the parent sees it."""

    number: int
    process: Any
    hears: Connection
    stands: Path  # where a rank that takes long writes what it is doing
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
            self.answer = pickle.loads(self.hears.recv_bytes())
        except (EOFError, OSError):
            self.process.join(GRACE)
            code = self.process.exitcode
            how = f"exited with code {code} before its function returned"
            if code is not None and code < 0:
                how = f"was killed by {signal.Signals(-code).name}"
            self.answer = Answer(error=how)

    def end(self) -> None:
        """Leave nothing of it. A rank that has answered is about to end by itself."""
        if self.answer:
            self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.hears.close()


def _listen(ranks: list[Rank], end: float) -> None:
    """Take the answers until all are there, one has failed, or time is over."""
    silent: dict[Any, Rank] = {rank.hears: rank for rank in ranks}
    while silent and (ready := wait(list(silent), max(0.0, end - time.monotonic()))):
        for pipe in ready:
            silent.pop(pipe).receive()
        if any(rank.answer and not rank.returned and not rank.lost for rank in ranks):
            return
        if any(rank.lost for rank in ranks):  # who is the cause may not have answered yet
            end = min(end, time.monotonic() + GRACE)


def _cause(ranks: list[Rank], limit: float) -> str:
    """Say in words which rank failed, and why."""
    of = f"of {len(ranks)}"
    lost = [rank for rank in ranks if rank.lost]
    for rank in ranks:
        if rank.answer and rank.answer.error and not rank.lost:
            return f"rank {rank.number} {of} {rank.answer.error}\n\n{rank.answer.story}".rstrip()
    guilty, how = [rank for rank in ranks if rank.answer is None], "did not answer the others"
    if not lost:
        how = f"did not return within {limit:g} s"
    elif not guilty:
        guilty, how = [rank for rank in ranks if rank.returned], "left before the others were done"
    said = [f"rank {rank.number} {of} {how}{_place(rank.stands)}" for rank in guilty]
    said += [f"rank {rank.number} {of} {rank.answer.error}" for rank in lost if rank.answer]
    return "\n".join(said)


def _place(file: Path) -> str:
    """Return where a rank stood when it had used up most of its time, if it wrote that down."""
    lines = file.read_text().splitlines() if file.exists() else []
    places = [place.strip() for head, place in itertools.pairwise(lines) if "hread 0x" in head]
    return f", at {places[-1]}" if places else ""


# In the process of a rank -------------------------------------------------------------------------


def _process(
    work: bytes, rank: int, size: int, folder: str, limit: float, tells: Connection
) -> None:  # pragma: no cover (it runs in the process of a rank)
    """Do the work of a rank, in a process that ends when its parent does."""
    end, parent = time.monotonic() + limit, multiprocessing.parent_process()
    assert parent is not None
    watch = threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True)
    watch.start()
    torch.set_num_threads(1)
    with Path(folder, f"{rank}.txt").open("w") as file:
        faulthandler.dump_traceback_later(0.4 * _left(end), file=file)
        tells.send_bytes(pickle.dumps(_answer(work, rank, size, folder, end)))
        tells.close()
        sys.stdout.flush()
        os._exit(0)  # at once, so that whoever still waits for this rank hears that it is gone


def _left(end: float) -> float:
    """Return the seconds that are left."""
    return max(0.1, end - time.monotonic())


def _answer(work: bytes, rank: int, size: int, folder: str, end: float) -> Answer:
    """Return what the function of a rank returned or raised."""
    try:
        with _distributed(rank, size, folder, end):
            function, args = pickle.loads(work)
            result = function(*args)
            pickle.dumps(result)
            return Answer(result)
    except BaseException as error:
        lost = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
        line = f"raised {type(error).__name__}: {error}"
        return Answer(None, line, "".join(traceback.format_exception(error)), lost)


@contextlib.contextmanager
def _distributed(rank: int, size: int, folder: str, end: float) -> Iterator[None]:
    """Initialize torch.distributed on the loopback interface, and end it."""
    names = (name for _, name in socket.if_nameindex())
    os.environ["GLOO_SOCKET_IFNAME"] = next(filter(lambda name: name.startswith("lo"), names), "lo")
    # Ranks that wait for one that hangs are to say so before the parent's time is over.
    patience = datetime.timedelta(seconds=0.7 * _left(end))
    meeting = f"file://{folder}/meeting"
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=size, timeout=patience
    )
    try:
        dist.barrier()  # nobody begins before all are connected
        yield
    finally:
        dist.destroy_process_group()
