"""Work in forked processes, several at a time, each with a limit of its own."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

Task = TypeVar("Task")


class _Child(NamedTuple):
    pid: int
    task: Any
    deadline: float
    said: list[bytes]


def forked(
    tasks: Iterable[Task], work: Callable[[Task], Any], jobs: int, limit: float
) -> Iterator[tuple[Task, Any]]:
    """Do each task in a fork of this process; give it and its result, in the order of their ends.

    A result travels as JSON. None stands for that of a process which died, or which took longer
    than `limit` seconds and was ended.
    """
    waiting = iter(tasks)
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        while True:
            while len(running) < jobs:
                try:
                    task = next(waiting)
                except StopIteration:
                    break
                reading, child = _start(task, work, limit)
                running[reading] = child
                selector.register(reading, selectors.EVENT_READ)
            if not running:
                return
            soonest = min(child.deadline for child in running.values())
            for key, _ in selector.select(max(0.0, soonest - time.monotonic())):
                data = os.read(key.fd, 1 << 16)
                if data:
                    running[key.fd].said.append(data)
                    continue
                selector.unregister(key.fd)
                yield _ended(key.fd, running.pop(key.fd))
            for reading, child in list(running.items()):
                if time.monotonic() > child.deadline:
                    selector.unregister(reading)
                    child.said.clear()
                    os.killpg(child.pid, signal.SIGKILL)
                    yield _ended(reading, running.pop(reading))


def _start(task: Any, work: Callable[[Any], Any], limit: float) -> tuple[int, _Child]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, _Child(pid, task, time.monotonic() + limit, [])
    os.setsid()  # so that what it starts can be ended with it
    os.close(reading)
    screen = os.dup(2)
    with tempfile.TemporaryFile() as away:
        os.dup2(away.fileno(), 1)
        os.dup2(away.fileno(), 2)
        try:
            answer = json.dumps(work(task)).encode()
        except BaseException:
            os.write(screen, traceback.format_exc().encode())
            answer = b""
    while answer:
        answer = answer[os.write(writing, answer) :]
    os._exit(0)


def _ended(reading: int, child: _Child) -> tuple[Any, Any]:
    os.close(reading)
    os.waitpid(child.pid, 0)
    said = b"".join(child.said)
    return child.task, json.loads(said) if said else None
