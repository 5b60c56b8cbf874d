"""Check a kernel from the command line.

    python -m attnlib.conformance my_module:my_attention
    python -m attnlib.conformance my_module:my_attention --kind numpy --without groups windows
    python -m attnlib.conformance --list

Exit status: 0 if every case passed, 1 if one failed, 2 if the command is invalid.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from attnlib._checks import FLOATING
from attnlib.conformance import TOPICS, cases, check


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m attnlib.conformance",
        description="Check an attention function against the definition, topic by topic.",
        epilog='A topic of two words is quoted: --without "mask gradients".',
    )
    parser.add_argument("attention", nargs="?", metavar="MODULE:FUNCTION", help="what to check")
    parser.add_argument(
        "--kind", choices=("torch", "numpy"), default="torch", help="tensors (default) or arrays"
    )
    parser.add_argument("--device", default="cpu", help="the device of the tensors, such as cuda")
    for name, words in (
        ("--only", "the topics to check"),
        ("--without", "the topics to leave out"),
    ):
        parser.add_argument(
            name, nargs="+", action="extend", default=[], metavar="TOPIC", help=words
        )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        metavar="DTYPE",
        help=f"the dtypes to check in: {', '.join(FLOATING)}",
    )
    parser.add_argument("--list", action="store_true", help="list the topics and their cases")
    return parser


def found(path: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names.

    Raises:
        ValueError: what is no such path, a module or a name in it that is not there.
        TypeError: what is not callable.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ValueError(f"expected MODULE:FUNCTION, such as my_module:my_attention; got {path!r}")
    try:
        thing: Any = importlib.import_module(module)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"expected a module that can be imported from {os.getcwd()}; {module} gave {words}"
        ) from error
    for attribute in name.split("."):
        if not hasattr(thing, attribute):
            raise ValueError(f"expected a function in {module}; it has no {name!r}")
        thing = getattr(thing, attribute)
    if not callable(thing):
        raise TypeError(f"expected {path} to be callable; got {type(thing).__qualname__}")
    return thing  # type: ignore[no-any-return]


def listed(chosen: Sequence[Any]) -> str:
    """Return the topics, and the names of their cases."""
    lines = []
    for topic, words in TOPICS.items():
        names = dict.fromkeys(case.name for case in chosen if case.topic == topic)
        if names:
            lines += [f"{topic}: {words}", *(f"    {name}" for name in names)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    command = parser()
    values = command.parse_args(arguments)
    options = {"only": values.only, "without": values.without, "dtypes": values.dtypes}
    try:
        if values.list:
            print(listed(cases(values.kind, **options)))
            return 0
        if values.attention is None:
            raise ValueError(
                "expected MODULE:FUNCTION, such as my_module:my_attention; got nothing"
            )
        report = check(
            found(values.attention),
            values.kind,
            device=values.device,
            progress=sys.stderr.isatty(),
            **options,
        )
    except (TypeError, ValueError) as error:
        command.error(str(error))
    print(report)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
