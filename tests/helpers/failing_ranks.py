"""Functions of ranks that fail. A function that a rank calls stands in a module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist


def begin(folder: str) -> None:
    """Write down the number of this process, and wait until all ranks have done so."""
    Path(folder, f"{dist.get_rank()}").write_text(str(os.getpid()))
    dist.barrier()


def fails(how: str, folder: str) -> None:
    """Do the same on all ranks, but for rank 1, which fails while the others wait for it."""
    begin(folder)
    if dist.get_rank() == 1:
        match how:
            case "raises":
                raise KeyError("no such thing")
            case "exits":
                os._exit(3)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "returns":
                return
    dist.barrier()


def one_hangs(folder: str) -> None:
    """Let the others wait for rank 1."""
    if dist.get_rank() == 1:
        hang(folder)
    begin(folder)
    dist.barrier()


def hang(folder: str) -> None:
    """Never return."""
    begin(folder)
    time.sleep(600)


def cannot_be_pickled() -> Any:
    return lambda: 1
