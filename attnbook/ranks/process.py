"""What happens in the process of a rank: it joins the others, calls the function, and answers once.

The answer goes to the parent before the connections to other ranks close. Therefore the parent
hears of an error before it hears from the ranks that lost their connection because of it.
"""

from __future__ import annotations

import datetime
import faulthandler
import multiprocessing
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


@dataclass
class Answer:
    """What a rank sends when it is done."""

    result: Any = None
    error: str = ""  # in one line
    traceback: str = ""
    lost: bool = False  # whether it is an error of the connection to another rank


def main(
    call: bytes, rank: int, size: int, folder: str, limit: float, sender: Connection
) -> None:  # pragma: no cover (it runs in the process of a rank)
    """Run a rank, in a process that ends when its parent does."""
    end, parent = time.monotonic() + limit, multiprocessing.parent_process()
    assert parent is not None
    watch = threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True)
    watch.start()
    torch.set_num_threads(1)
    with stack_file(folder, rank).open("w") as file:
        faulthandler.dump_traceback_later(0.4 * _left(end), file=file)
        answer = answer_of(call, rank, size, folder, end)
        sys.stdout.flush()
        sender.send_bytes(answer)
        os._exit(0)  # closes the connections, so that whoever still waits for this rank hears of it


def stack_file(folder: str, rank: int) -> Path:
    """Return the file in which a rank that takes long writes what it is doing."""
    return Path(folder, f"{rank}.txt")


def answer_of(call: bytes, rank: int, size: int, folder: str, end: float) -> bytes:
    """Return the answer of a rank, pickled: what its function returned or raised."""
    try:
        _initialize(rank, size, folder, end)
        function, args = pickle.loads(call)
        return pickle.dumps(Answer(function(*args)))
    except BaseException as error:
        lost = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
        line = f"raised {type(error).__name__}: {error}"
        return pickle.dumps(Answer(None, line, "".join(traceback.format_exception(error)), lost))


def _initialize(rank: int, size: int, folder: str, end: float) -> None:
    """Initialize torch.distributed on the loopback interface."""
    names = (name for _, name in socket.if_nameindex())
    os.environ["GLOO_SOCKET_IFNAME"] = next(filter(lambda name: name.startswith("lo"), names), "lo")
    # Ranks that wait for one that hangs must say so before the parent's time is over.
    timeout = datetime.timedelta(seconds=0.7 * _left(end))
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout
    )
    dist.barrier()  # nobody begins before all are connected


def _left(end: float) -> float:
    """Return the seconds that are left."""
    return max(0.1, end - time.monotonic())
