"""The commands of `attnbook.lab`.

Exit status: 0 if the stages that were asked are passed, 1 if one is not, 2 if the command is
invalid.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from attnbook.lab import STAGES, grade, skeleton


def start(name: str) -> None:
    """Write the file to begin with.

    Raises:
        ValueError: a name that no module can have, or a file that is there already.
        OSError: a file that cannot be written.
    """
    path = Path(name)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(f"the file must have a name such as my_attention.py; got {name}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(skeleton(path.stem))
    except FileExistsError:
        raise ValueError(f"the file must be a new one; {name} is there already") from None


def found(path: str) -> Callable[..., Any]:
    """Return the function of a module or a file: `attention`, or what is named after a colon.

    Raises:
        ValueError: what cannot be imported, or has no such function.
    """
    # The colon of C:\lab.py is followed by no name.
    name, function = re.fullmatch(r"(.*?)(?::([^\W\d]\w*))?", path).groups("attention")  # type: ignore[union-attr]
    try:
        module = _from_file(name) if name.endswith(".py") else importlib.import_module(name)
    except (Exception, SystemExit) as error:
        came = f"{type(error).__name__}: {error}"
        raise ValueError(f"expected what Python can import; {name} gave {came}") from error
    if not hasattr(module, function):
        raise ValueError(f"{name} must have a function {function}; it has no such name")
    attention: Callable[..., Any] = getattr(module, function)
    return attention


def _from_file(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    command = argparse.ArgumentParser(
        prog="python -m attnbook.lab", description="Grade an attention, stage after stage."
    )
    words = "a module or a file to grade; its function is attention unless it is named"
    command.add_argument("attention", nargs="?", metavar="MODULE[:FUNCTION]", help=words)
    words = f"only these stages, of {', '.join(STAGES)}"
    command.add_argument("--stage", nargs="+", default=[], metavar="STAGE", help=words)
    command.add_argument("--start", metavar="FILE", help="write a file to begin with")
    values = command.parse_args(arguments)
    try:
        if values.start is not None:
            start(values.start)
            print(f"{values.start} is written. Grade it: python -m attnbook.lab {values.start}")
            return 0
        if values.attention is None:
            raise ValueError("expected a module or a file, such as my_attention; got nothing")
        report = grade(found(values.attention), values.stage)
    except (OSError, TypeError, ValueError) as error:
        command.error(str(error))
    print(report)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
