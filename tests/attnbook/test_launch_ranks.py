"""Launching ranks, and what is said of those that fail. conftest.py keeps this file in one
process of pytest, so that the server of the ranks starts once."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import failing_ranks
import psutil
import pytest

from attnbook.ranks import launch, run

ROOT = Path(__file__).parents[2]
LIMIT = 120.0  # seconds; ranks that return or fail need a few even on a busy machine


def ranks(function: Any, size: int, *args: Any) -> list[Any]:
    """Run a function on ranks, with more time than it needs on any machine."""
    return run(function, size, *args, limit=LIMIT)


def pids(folder: Path) -> list[int]:
    """Return the numbers of the processes that have begun; a file may be there before its text."""
    return [int(text) for file in folder.glob("[0-9]") if (text := file.read_text())]


def comes_true(condition: Callable[[], bool]) -> bool:
    """Wait for what must come true some time."""
    end = time.monotonic() + LIMIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def all_gone(folder: Path, size: int) -> bool:
    """Return whether all ranks have begun, and have ended."""
    begun = pids(folder)
    return len(begun) == size and comes_true(lambda: not any(map(psutil.pid_exists, begun)))


FAILURES = {
    "raises": r"rank 1 of 3 raised KeyError: 'no such thing'\n\nTraceback(.|\n)*failing_ranks.py",
    "exits": "rank 1 of 3 exited with code 3 before its function returned",
    "is killed": "rank 1 of 3 was killed by SIGKILL",
    "returns": r"rank 1 of 3 left before the others were done\nrank [02] of 3 raised RuntimeError",
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_rank_that_fails_ends_the_others(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE", LIMIT)  # a busy machine may need longer than usual
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=FAILURES[how]):
        ranks(failing_ranks.fails, 3, how, str(tmp_path))
    assert time.monotonic() - start < LIMIT / 2
    assert all_gone(tmp_path, 3)


@pytest.mark.parametrize(
    ("function", "size", "words"),
    [
        # Only one does: the others wait for it, and lose patience before the limit.
        (failing_ranks.one_hangs, 3, r"rank 1 of 3 did not .*, at .*failing_ranks.py.* in hang"),
        (failing_ranks.hang, 2, r"rank 0 .* did not .*, at File .*\nrank 1 .* did not .*, at File"),
    ],
)
def test_ranks_that_hang_are_named_and_ended(
    function: Any, size: int, words: str, tmp_path: Path
) -> None:
    """A busy machine may need some of the time to start them: then they are given more."""
    for limit in (2.5, 20.0, LIMIT):
        start = time.monotonic()
        with pytest.raises(
            RuntimeError, match=f"did not (return within {limit:g} s|answer)"
        ) as got:
            run(function, size, str(tmp_path), limit=limit)
        assert time.monotonic() - start < limit + 60
        if re.search(words, str(got.value)):
            break
    else:
        pytest.fail(str(got.value))
    assert all_gone(tmp_path, size)


def test_who_did_not_answer_is_named_before_those_who_lost_patience(tmp_path: Path) -> None:
    """As above, on a machine so busy that there all ranks run into the limit."""
    waits: Any = SimpleNamespace(
        number=0, lost=True, answer=SimpleNamespace(error="raised RuntimeError", traceback="")
    )
    hangs: Any = SimpleNamespace(number=1, lost=False, answer=None, stack_file=tmp_path / "none")
    assert launch._cause([waits, hangs], 5) == (
        "rank 1 of 2 did not answer the others\nrank 0 of 2 raised RuntimeError"
    )


def test_a_result_that_cannot_be_pickled_is_an_error_of_its_rank() -> None:
    with pytest.raises(RuntimeError, match=r"rank [01] of 2 raised .*pickle"):
        ranks(failing_ranks.cannot_be_pickled, 2)


def test_a_function_of_a_notebook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> None: ...

    function.__module__ = "__main__"
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(TypeError, match=r"stand in a module .* it is defined in a notebook"):
        run(function, 2)


@pytest.mark.slow
def test_ranks_end_with_their_parent(tmp_path: Path) -> None:
    code = "from attnbook.ranks import run; import failing_ranks\n"
    code += f"run(failing_ranks.hang, 2, {str(tmp_path)!r}, limit=300)"
    folders = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": folders}
    )
    assert comes_true(lambda: len(pids(tmp_path)) == 2)
    parent.kill()
    parent.wait()
    assert all_gone(tmp_path, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: run("max", 2), TypeError, "function must be callable; got 'max'"),
        (lambda: run(lambda: 1, 2), TypeError, "function must stand in a module that can be"),
        (lambda: run(max, 0), ValueError, "size must be at least 1; got 0"),
        (lambda: run(max, 2, limit=0), ValueError, "limit must be positive and finite; got 0"),
        (lambda: run(max, 2, limit=math.nan), ValueError, "limit must be positive and finite; got"),
    ],
)
def test_an_error_says_what_came(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# One rank, without the others ---------------------------------------------------------------------


def test_a_process_that_does_not_end_has_no_exit_code() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.close()
    endless: Any = SimpleNamespace(join=lambda _: None, exitcode=None)
    rank = launch.Rank(0, endless, receiver, Path())
    rank.receive()
    assert rank.answer and rank.answer.error == "closed its pipe before its function returned"
    receiver.close()
