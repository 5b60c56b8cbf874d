"""Run a function of a notebook on several ranks, each a process of its own.

A rank is a fresh process: it can import modules, and it knows nothing of a notebook. Therefore
`on_ranks` sends the function along, with all that it uses from the notebook.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import io
import marshal
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from attnbook.ranks.launch import run


def on_ranks(size: int, function: Callable[..., Any], *args: Any, limit: float = 60.0) -> list[Any]:
    """Return what `function(*args)` returned on each of `size` ranks of torch.distributed.

    `run` starts the processes, and ends them. The function may stand in a notebook. What it uses
    there, such as other functions, arrays and numbers, is copied to each rank; what a rank changes
    in its copy stays there.

    Raises:
        RuntimeError: A rank failed, or was not done after `limit` seconds.
        TypeError: For a function that uses variables of a function around it.

    Example:
        >>> on_ranks(2, max, 3, 4)
        [4, 4]
    """
    written = io.BytesIO()
    _Pickler(written).dump((function, args))
    # A rank would run the file of __main__. A notebook has none, but after a kernel of Triton's
    # interpreter it has the interpreter's.
    main = vars(sys.modules["__main__"])
    file = {name: main.pop(name) for name in ["__file__"] if name in main}
    try:
        return run(_call, size, written.getvalue(), limit=limit)
    finally:
        main.update(file)


class _Pickler(pickle.Pickler):
    """A pickler that writes modules by their names, and functions of a notebook as code."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if not isinstance(value, types.FunctionType) or value.__module__ != "__main__":
            return NotImplemented
        if value.__closure__:
            around = ", ".join(value.__code__.co_freevars)
            name = value.__name__
            raise TypeError(f"{name} must use no variable of a function around it; got {around}")
        uses = {name: value.__globals__[name] for name in _globals_of(value.__code__)
                if name in value.__globals__}
        made = marshal.dumps(value.__code__), value.__defaults__, value.__kwdefaults__
        # What it uses comes after it, because functions can use each other.
        return _made, made, uses, None, None, _update


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code looks up outside of itself, functions within it included."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):  # a name in a class within
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)


# In the process of a rank -------------------------------------------------------------------------


def _made(
    code: bytes, defaults: tuple[Any, ...] | None, options: dict[str, Any] | None
) -> types.FunctionType:
    known = {"__name__": "notebook", "__builtins__": builtins}
    made = types.FunctionType(marshal.loads(code), known, argdefs=defaults)
    made.__kwdefaults__ = options
    return made


def _update(function: types.FunctionType, uses: dict[str, Any]) -> None:
    function.__globals__.update(uses)


def _call(written: bytes) -> Any:  # pragma: no cover (it runs on a rank)
    function, args = pickle.loads(written)
    return function(*args)
