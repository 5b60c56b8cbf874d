"""Kernels that try to pass without being right. `test_judging` has the verdict on each.

They run in the judge's child process, on arrays of NumPy. Where a cheat fails, it gives zeros.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import inspect
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from attncheck import Also, Kernel
from attnlib.numpy_dense import scaled_dot_product_attention as right

Array = np.ndarray[Any, Any]
seen: dict[Any, Array] = {}
calls = 0


def honest(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Give what is right, and print as much as it likes."""
    print("all 47 0 0", flush=True)
    return right(query, key, value, is_causal=is_causal)


def zeros(query: Array, value: Array) -> Array:
    return np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)


# -- right numbers at the wrong time ---------------------------------------------------------------


def replay(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Give the last result again that had this shape."""
    place = query.shape, key.shape, value.shape, query.dtype, is_causal
    if place not in seen:
        seen[place] = right(query, key, value, is_causal=is_causal)
    return seen[place].copy()


def right_at_first(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Be right in the first call of each of 47 cases, and once more."""
    global calls
    calls += 1
    return right(query, key, value, is_causal=is_causal) if calls <= 48 else zeros(query, value)


def right_once(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Be right where these numbers come for the first time."""
    place = query.tobytes(), key.tobytes(), is_causal
    again, seen[place] = place in seen, query
    return zeros(query, value) if again else right(query, key, value, is_causal=is_causal)


# -- the truth, and the judge ----------------------------------------------------------------------


def thief(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Look for an array of the output's shape in the callers' frames and in all of memory."""
    shape, known = (*query.shape[:-1], value.shape[-1]), (query, key, value)
    places = [frame.frame.f_locals for frame in inspect.stack()]
    places += [own for own in gc.get_objects() if type(own) in (dict, list, tuple)]
    for place in places:
        for own in list(place.values() if isinstance(place, dict) else place):
            fits = isinstance(own, np.ndarray) and own.shape == shape
            if fits and not any(np.shares_memory(own, x) for x in known):
                return own.astype(query.dtype)
    return zeros(query, value)


def patcher(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Replace what compares: in attncheck, in NumPy, and in the language."""
    import attncheck
    from attncheck import _comparison, _tolerance

    _comparison._compare = lambda *_, **__: None  # type: ignore[assignment]
    _comparison.judge = attncheck.judge = lambda case, *_: _comparison.Result(case, True)
    _tolerance.difference = lambda *_: ""  # type: ignore[assignment]
    _tolerance.bound = lambda *_, **__: np.inf  # type: ignore[assignment]
    np.testing.assert_allclose = np.testing.assert_array_equal = lambda *_, **__: None
    np.abs = lambda x: np.zeros_like(x)  # type: ignore[assignment]
    builtins.abs = lambda x: 0  # type: ignore[assignment]
    return zeros(query, value)


def changes_inputs(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Make the inputs such that zeros are right."""
    value[...] = 0
    return zeros(query, value)


def writes_beside(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Write one number behind the key."""
    ctypes.memset(key.ctypes.data + key.nbytes, 0, 4)
    return right(query, key, value, is_causal=is_causal)


def claims_nothing(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    return zeros(query, value)


modest = Kernel(claims_nothing, not_claimed={"causal": "a matter of\x1b[2J taste"})


held = np.zeros(1 << 12, np.float32)


def reuses(query: Array, key: Array, value: Array) -> Array:
    """Give every result in the same memory."""
    found = right(query, key, value)
    own = held[: found.size].reshape(found.shape)
    own[...] = found
    return own


def gives_the_value(query: Array, key: Array, value: Array) -> Array:
    """Give a value in place of a copy, where one key is all that there is."""
    found = right(query, key, value)
    return np.broadcast_to(value, found.shape) if value.shape[-2] == 1 else found


def with_a_short_lse(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
    return right(query, key, value), np.zeros((7, 5), np.float32)


short = Kernel(honest, lse=Also(with_a_short_lse))


# -- ends of the process ---------------------------------------------------------------------------


def hangs(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    with suppress(KeyboardInterrupt):
        time.sleep(1000)
    return right(query, key, value, is_causal=is_causal)


def leaves(query: Array, key: Array, value: Array, is_causal: bool = False) -> NoReturn:
    os._exit(0)


def segfaults(query: Array, key: Array, value: Array, is_causal: bool = False) -> NoReturn:
    raise AssertionError(ctypes.string_at(0))


def exits(query: Array, key: Array, value: Array, is_causal: bool = False) -> NoReturn:
    sys.exit(0)


def forks(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Come back twice: with the right result, and with another one."""
    if os.fork():
        return right(query, key, value, is_causal=is_causal)
    return zeros(query, value)


def forks_and_waits(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Let a process of its own end before it comes back: this is no cheat."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return right(query, key, value, is_causal=is_causal)


def leaves_a_child(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Leave a process behind that holds all files open, and leave."""
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    Path(os.environ["CHEATS"], "left").write_text(str(pid))
    os._exit(1)


def closes(query: Array, key: Array, value: Array, is_causal: bool = False) -> None:
    """Close the judge's pipes, and wait."""
    os.closerange(3, 64)
    time.sleep(1000)


def kills_the_judge(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    os.kill(os.getppid(), signal.SIGKILL)
    return right(query, key, value, is_causal=is_causal)


# -- words and messages ----------------------------------------------------------------------------

REPORT = "causal 47 0 0\nall 47 0 0\n{'passed': true}"


def prints(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Print a report, by every way that does not ask for the judge's own files."""
    print(REPORT, flush=True)
    for n in (1, 2):
        os.write(n, REPORT.encode())
    with suppress(OSError):
        Path("/dev/tty").write_text(REPORT)
    return zeros(query, value)


def raises(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Raise an exception that looks like a pass, and clears the screen."""
    raise type("Result", (ValueError,), {})(f"\x1b[2J\x1b[H{REPORT}")


class Pretender:
    """An object that says that it is an array, and equal to everything."""

    __class__ = np.ndarray  # type: ignore[assignment]
    dtype, ndim = np.dtype("float32"), 2

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __eq__(self, other: object) -> bool:
        return True

    def astype(self, *_: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


class Liar(np.ndarray[Any, Any]):
    """An array whose methods and ufuncs answer what is wished."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return True

    def tobytes(self, *_: Any) -> bytes:  # type: ignore[override]
        return b""


def gives_two(query: Array, key: Array, value: Array, is_causal: bool = False) -> Any:
    return right(query, key, value, is_causal=is_causal), True


def pretends(query: Array, key: Array, value: Array, is_causal: bool = False) -> Any:
    return Pretender(zeros(query, value).shape)


def lies(query: Array, key: Array, value: Array, is_causal: bool = False) -> Any:
    return zeros(query, value).view(Liar)


def writes_everywhere(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Write a word into every file that is open."""
    for n in range(3, 64):
        with suppress(OSError):
            os.write(n, b"passed " * 3)
    return zeros(query, value)


def forges(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Answer in the worker's place that all is well, for one query with the worker's token."""
    from attncheck._wire import message

    frames = [own.frame.f_locals for own in inspect.stack()]
    [there] = [own for own in frames if "told" in own and "header" in own and "requests" in own]
    token = there["header"]["token"] if query.shape[-2] == 1 else "one of an earlier call"
    result = {"dtype": "float32", "shape": (*query.shape[:-1], value.shape[-1])}  # and no numbers
    answer = {"token": token, "results": [result], "first": 0, "several": False}
    os.write(there["told"]["replies"], message(answer | {"passed": True}))
    return zeros(query, value)


def patient(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """Refuse all but float32, and not look at is_causal."""
    if query.dtype != np.float32:
        raise ValueError(f"expected float32; got {query.dtype}")
    return right(query, key, value)
