"""What a process and all that it has started are, and the processor time that they took."""

from __future__ import annotations

import contextlib

import psutil


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started; nothing where it has ended."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def taken(pid: int) -> float:
    """Return the seconds of processor time that a process and all that it has started took."""
    total = 0.0
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # its own, and of children that have ended
    return total
