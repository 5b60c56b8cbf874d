"""Check a kernel from the command line.

    python -m attncheck my_module:my_attention
    python -m attncheck my_module:my_attention --kind numpy --without groups windows
    python -m attncheck my_module:my_attention --expected failures.txt
    python -m attncheck my_module:my_attention --search 200 --seed random
    python -m attncheck attncheck.adapters:flash_attn --device cuda
    python -m attncheck my_module:my_attention --judge --json result.json
    python -m attncheck kernelbench:model.py            `hands` tells of gpumode:, flashinfer-bench:
                                                        and hub:
    python -m attncheck --list
    python -m attncheck --export cases.safetensors

Exit status: 0 if some case passed and none failed, 1 otherwise, 2 if the command is invalid or what
it needs is not there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attncheck import (
    TOPICS,
    Kernel,
    Report,
    backend_for,
    cases,
    check,
    expected_failures,
    judged,
    seed_of,
)
from attncheck._advice import advice
from attncheck._types import FLOATING
from attncheck.adapters import ready
from attncheck.hands import SHAPES, in_hand

EXPECTED = "expected MODULE:FUNCTION, such as my_module:my_attention"
# What chooses among the cases of the table.
ALONE = ("only", "without", "dtypes", "case", "search", "expected", "export", "list", "badge")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m attncheck",
        description="Check an attention function against the definition, topic by topic.",
        epilog='A topic of two words is quoted: --without "mask gradients".',
    )
    add: Any = parser.add_argument
    add("attention", nargs="?", metavar="MODULE:FUNCTION",
        help="what to check: a function, or a Kernel")
    add("--kind", choices=("torch", "numpy"), default="torch", help="tensors (default) or arrays")
    add("--device", default="cpu", help="the device of the tensors, such as cuda")
    many = {"nargs": "+", "default": []}
    add("--only", **many, action="extend", metavar="TOPIC", help="the topics to check")
    add("--without", **many, action="extend", metavar="TOPIC", help="the topics to leave out")
    add("--dtypes", nargs="+", metavar="DTYPE",
        help=f"the dtypes to check in: {', '.join(FLOATING)}")
    add("--case", **many, metavar="ID", help="these cases alone, as a report names them")
    add("--seed", help='the seed of all numbers: an integer, or "random"')
    add("--search", type=int, default=0, metavar="N", help="draw N calls beyond the table")
    add("--expected", metavar="FILE",
        help="ids that are expected to fail, one a line, # for a reason")
    add("--export", metavar="FILE", help="write the cases to a file of safetensors")
    add("--badge", metavar="FILE", help="write JSON for a badge, and print its line last")
    add("--json", metavar="FILE", help="write a record a case, and a score by class")
    words = "run the kernel in a process of its own, with a secret seed"
    add("--judge", action="store_true", help=words)
    words = "the Kernel that says what must be claimed, for --judge"
    add("--claims", metavar="MODULE:KERNEL", help=words)
    words = "the seconds of a call and of all calls, for --judge (60 1800)"
    two: Any = {"nargs": 2, "type": float, "metavar": ("CALL", "ALL"), "default": (60.0, 1800.0)}
    add("--limits", **two, help=words)
    add("--folder", default="", help="where the kernel's module is, for --judge")
    add("--log", default="", metavar="FILE", help="what the kernel prints, for --judge")
    add("--all", action="store_true", help="tell every group of failures")
    add("--list", action="store_true", help="list the topics and their cases")
    return parser


def found(path: str, device: str = "cpu") -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names.

    Raises:
        ValueError: what is no such path, a module or a name in it that is not there, or one that
            needs a library which is missing.
        TypeError: what is not callable.
    """
    module, colon, name = path.partition(":")
    if module in SHAPES:
        return in_hand(path, device)  # type: ignore[no-any-return]
    if not (module and colon and name):
        raise ValueError(f"{EXPECTED}; got {path!r}")
    try:
        thing: Any = importlib.import_module(module)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"expected a module that can be imported from {os.getcwd()}; {module} gave {words}"
        ) from error
    for attribute in name.split("."):
        try:
            thing = getattr(thing, attribute)
        except AttributeError as error:
            raise ValueError(f"expected a function in {module}; it has no {name!r}") from error
        except ImportError as error:  # of a module that imports what a name needs only then
            raise ValueError(str(error)) from error
    if not (callable(thing) or isinstance(thing, Kernel)):
        raise TypeError(f"expected {path} to be callable; got {type(thing).__qualname__}")
    return thing  # type: ignore[no-any-return]


def listed(chosen: Sequence[Any]) -> str:
    """Return the topics, and the ids of their cases."""
    lines = []
    for topic, words in TOPICS.items():
        names = dict.fromkeys(case.id for case in chosen if case.topic == topic)
        if names:
            lines += [f"{topic}: {words}", *(f"    {name}" for name in names)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    command = parser()
    values = command.parse_args(arguments)
    options = {"only": values.only, "without": values.without, "dtypes": values.dtypes}
    try:
        if values.json:
            # An old file must not be taken for this one's, whatever becomes of the judge.
            Path(values.json).unlink(missing_ok=True)
        if values.badge:
            Path(values.badge).unlink(missing_ok=True)
            if values.case or values.search:
                raise ValueError("expected no --case and no --search beside --badge")
        if values.attention and not (values.list or values.export):
            ready(values.attention, values.device)
        if values.judge:
            return told(_judged(values, options), values, [])
        seed = values.seed or "7"
        options["seed"] = seed if seed == "random" else int(seed)
        asked: Any = None if values.attention is None else found(values.attention, values.device)
        if hasattr(asked, "check"):
            return _beside(asked, values, seed_of(options["seed"]))
        kernel = None if asked is None else Kernel.of(asked)
        if values.list or values.export:
            if values.list or kernel is not None:
                chosen = cases(values.kind, kernel=kernel, **options)
            else:
                from attncheck._export import everything

                chosen = everything(values.kind, **options)
            chosen = [case for case in chosen if not values.case or case.id in values.case]
            if values.list:
                print(listed(chosen))
            else:
                from attncheck._export import export

                backend = backend_for(values.kind)
                n = export(chosen, values.export, backend)
                print(f"{n} cases are in {values.export}, the plain ones line by line in "
                      f"{values.export}.txt")
                if backend.missing and len(backend.dtypes()) < len(FLOATING):
                    print(f"cases of bfloat16 are left out: {backend.missing}")
            return 0
        if kernel is None:
            raise ValueError(f"{EXPECTED}; got nothing")
        expected = expected_failures(values.expected) if values.expected else []
        report = check(
            kernel, values.kind, device=values.device, case=values.case, search=values.search,
            name=values.attention, progress=sys.stderr.isatty(), **options,
        )
    except (TypeError, ValueError) as error:
        command.exit(2, f"{command.prog}: error: {error}\n")
    if said := getattr(kernel, "said", ""):
        print(said)
    hint = "" if isinstance(asked, Kernel) else advice(asked, report, values.kind, values.device)
    return told(report, values, expected, hint)


def _beside(pair: Any, values: argparse.Namespace, seed: int) -> int:
    """Ask a pair of `hands`, of which the definition says nothing; return the exit status."""
    if further := [own for own in ALONE if getattr(values, own)]:
        words = "expected --device, --seed and --json alone beside a reference that is asked itself"
        raise ValueError(f"{words}; got --{', --'.join(further)}")
    report = pair.check(values.attention, values.device, seed)
    if values.json:
        from attncheck._record import record_beside, write

        write(values.json, record_beside(report))
    print(report)
    return 0 if report.passed else 1


def _judged(values: argparse.Namespace, options: dict[str, Any]) -> Report:
    """Return the report of a judge."""
    for name in ("seed", "list", "export", "expected"):
        if getattr(values, name):
            raise ValueError(f"expected no --{name} beside --judge")
    prefix = (values.attention or "").partition(":")[0]
    if prefix in SHAPES and prefix != "hub":
        raise ValueError(
            f"{EXPECTED} beside --judge; got {values.attention!r}, whose kernel and reference run "
            "in one process. A function of query, key and value that calls the kernel can be "
            "judged, with --claims of your own"
        )
    claims = Kernel.of(found(values.claims)) if values.claims else None
    return judged(
        values.attention or "", values.kind, claims=claims, device=values.device, case=values.case,
        search=values.search, limits=tuple(values.limits), folder=values.folder, log=values.log,
        progress=sys.stderr.isatty(), **options,
    )


def told(
    report: Report, values: argparse.Namespace, expected: Sequence[str], hint: str = ""
) -> int:
    """Print a report and a hint, write its record, and return the exit status."""
    if values.json:
        from attncheck._record import record, write

        write(values.json, record(report, judged=values.judge))
    whole = report
    report, unexpected = report.without(expected)
    print(report.told(None) if values.all else report)
    for own in unexpected:
        print(f"expected to fail, and passes: {own}")
    if hint:
        print(hint)
    if values.badge:
        from attncheck import _badge

        print(_badge.write(values.badge, whole))
    return 0 if report.passed and not unexpected else 1


if __name__ == "__main__":
    sys.exit(main())
