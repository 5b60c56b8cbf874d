"""The check of an exercise, for a reader who writes the answer: it says what is missing or wrong.

Notebooks for a class (`make class`) have each check in this form:

    @check("Exercise 1", "largest")
    def _():
        assert abs(largest(8) - 0.87) < 0.1

It runs at once and prints one of three: *still to write*, *not yet* with the comparison that failed
and its values, or *right*. It raises nothing, so that the cells below run too, and it looks at
copies of the answers, so that it changes none.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import traceback
import zlib
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

WIDTH = 100


def fingerprint(source: str) -> int:
    """Return a number that code keeps when only its layout and its comments change.

    >>> fingerprint("x = f(a,b)") == fingerprint("x = f(a, b)  # so") != fingerprint("x = f(b, a)")
    True
    """
    return zlib.crc32(ast.unparse(ast.parse(textwrap.dedent(source))).encode())


def check(
    exercise: str, *names: str, given: Mapping[str, int] | None = None
) -> Callable[[FunctionType], None]:
    """Run the decorated function as the check of an exercise, and print the verdict.

    Args:
        exercise: what the verdict calls the exercise.
        names: what the reader has to define. A name that is not defined, or is `...`, is still to
            write, and so is a function that raises NotImplementedError.
        given: of a function that is handed out with a mistake, the `fingerprint` of its code.
            As long as the code is this, it is still to write.

    Example:
        >>> half = lambda x: x / 3
        >>> @check("Exercise 1", "half")
        ... def _():
        ...     assert half(4) == 2
        Exercise 1: not yet. This does not hold: half(4) == 2
          half(4) is 1.3333333333333333
    """

    def run(body: FunctionType) -> None:
        values = body.__globals__
        missing = [name for name in names if _is_empty(values.get(name, ...))]
        missing += [n for n, code in (given or {}).items() if n in values and _is(values[n], code)]
        if missing:
            print(f"{exercise}: still to write: {', '.join(missing)}.")
            return
        copies = {name: _copy(values[name]) for name in names}
        asked = FunctionType(body.__code__, {**values, **copies}, closure=body.__closure__)
        try:
            asked()
        except NotImplementedError:
            print(f"{exercise}: still to write: {', '.join(names)}.")
        except Exception as error:
            print(f"{exercise}: not yet. {_said(error, body)}")
        else:
            print(f"{exercise}: right.")

    return run


def _head() -> None:
    raise NotImplementedError  # pragma: no cover (its code is compared, nobody calls it)


def _is_empty(value: Any) -> bool:
    """Return whether it is `...`, or a function that does nothing but raise NotImplementedError."""
    code, empty = getattr(value, "__code__", None), _head.__code__
    return value is ... or (
        code is not None and (code.co_code, code.co_names) == (empty.co_code, empty.co_names)
    )


def _is(function: Any, code: int) -> bool:
    try:
        return fingerprint(inspect.getsource(function)) == code
    except (OSError, TypeError, SyntaxError):
        return False


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # for example, a tensor that was computed from one with a gradient
        return value


def _said(error: Exception, body: FunctionType) -> str:
    """Return what went wrong: of a comparison both sides, else the error's own words."""
    name = type(error).__name__
    words = f"{name}: {error}" if str(error) else name
    found = _where(error, body)
    if found is None:
        return words
    statement, frame = found
    if not isinstance(error, AssertionError) or not isinstance(statement, ast.Assert):
        return f"{words}\n  in: {_short(ast.unparse(statement).splitlines()[0])}"
    try:
        return "\n  ".join(_first_false(statement.test, frame))
    except Exception:  # a value that cannot be had a second time
        return f"This does not hold: {_short(ast.unparse(statement.test))}"


def _where(error: Exception, body: FunctionType) -> tuple[ast.stmt, Any] | None:
    """Return the statement of the check that raised, and its frame; None if it has no source."""
    try:
        lines, first = inspect.getsourcelines(body)
    except OSError:  # for example, it was typed at a prompt
        return None
    steps = traceback.walk_tb(error.__traceback__)
    frame, line = next(step for step in steps if step[0].f_code is body.__code__)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    place = line - first + 1
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= place <= (node.end_lineno or 0)
    ]
    return min(holding, key=lambda node: (node.end_lineno or 0) - node.lineno), frame


def _first_false(test: ast.expr, frame: Any) -> list[str]:
    """Return the first part of a test that does not hold, and the values on its sides."""

    def value(node: ast.expr) -> Any:
        code = compile(ast.Expression(node), "<check>", "eval")
        return eval(code, {**frame.f_globals, **frame.f_locals})

    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    part = next(part for part in parts if not value(part))
    lines = [f"This does not hold: {_short(ast.unparse(part))}"]
    sides = [part.left, *part.comparators] if isinstance(part, ast.Compare) else []
    if isinstance(part, ast.Call):  # such as np.allclose(found, expected)
        sides = part.args
    for side in sides:
        written, found = ast.unparse(side), value(side)
        shown = repr(found) if isinstance(found, str) else str(found)
        if shown != written and not callable(found):
            lines.append(f"{_short(written)} is {_short(shown)}")
    return lines


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
