"""The memory that a call needs at most, in a process of its own: the peak of a process stays."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch


def added(call: Callable[[int], object], first: int, then: int) -> int:
    """Return the bytes by which `call(then)` raises the peak that `call(first)` has left.

    The process is a fork where that is safe, because importing torch takes longer than most calls.
    """
    forks = sys.platform == "linux" and not torch.cuda.is_available()
    context = multiprocessing.get_context("fork" if forks else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(call, first, then, sender))
    child.start()
    sender.close()
    found: int = receiver.recv()
    child.join()
    return found


def _send(call: Callable[[int], object], first: int, then: int, sender: Connection) -> None:
    import resource

    torch.set_num_threads(1)  # the others of the process that was forked are not here
    peaks = []
    for size in (first, then):
        call(size)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    unit = 1 if sys.platform == "darwin" else 1024
    sender.send(unit * (peaks[1] - peaks[0]))
    sender.close()
