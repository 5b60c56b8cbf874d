"""Ask a library every case in a process that may crash or hang without ending the run."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.verdict import FAILED

HOUSE = Path(__file__).resolve().parents[1]  # `attncheck` and `peers` are imported from it
Line = dict[str, Any]


def lines(command: list[str], limit: float) -> Iterator[Line]:
    """Yield what a worker says; at its end, say how it ended.

    Args:
        command: The command that starts the worker.
        limit: The seconds after which a worker that says nothing is ended.

    Yields:
        The worker's lines, and {"ended": words} as the last one, "" if it ended as it should.
    """
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=HOUSE,
            start_new_session=True,
        ) as worker,
        selectors.DefaultSelector() as selector,
    ):
        assert worker.stdout is not None
        selector.register(worker.stdout, selectors.EVENT_READ)
        rest, ended = b"", ""
        while not ended:
            if not selector.select(limit):
                ended = f"no answer within {limit:g} seconds"
                break
            came = os.read(worker.stdout.fileno(), 1 << 16)
            if not came:
                break
            *whole, rest = (rest + came).split(b"\n")
            yield from map(json.loads, whole)
        if ended:
            os.killpg(worker.pid, signal.SIGKILL)
        status = worker.wait()
    if not ended and status:
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        ended = f"the process ended with {name}"
    yield {"ended": ended}


def answers(python: str, family: str, number: int, limit: float) -> Iterator[Line]:
    """Yield what becomes of each case of a library, and first what the library is.

    A case in which the process crashes or hangs has failed, and a new process asks the next one.

    Raises:
        RuntimeError: a process that ends before it asks anything.
    """
    first, n_cases = 0, 1
    while first < n_cases:
        asking = None
        command = [python, "-m", "peers.worker", family, str(number), str(first)]
        for line in lines(command, limit):
            if "name" in line:
                n_cases = line["n_cases"]
                if not first:
                    yield line
            elif "asking" in line:
                asking = line["asking"]
            elif "verdict" in line:
                first, asking = line["case"] + 1, None
                yield line
            elif asking is not None:
                first = asking + 1
                yield {"case": asking, "verdict": FAILED, "words": line["ended"]}
            elif first < n_cases:  # A process may crash at its own end; all is said by then.
                raise RuntimeError(
                    f"{' '.join(command)} must ask cases; {line['ended'] or 'it ended'}"
                )
