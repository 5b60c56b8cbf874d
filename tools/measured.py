"""Measure anew what the course quotes of trained models, and compare it with what is stored.

    python -m tools.measure_copying 2026-11-27    measure, and store with the day
    python -m tools.measure_copying --compare     measure, and compare with what is stored
    python -m tools.measured                      compare what all four programs have stored

The four programs are `measure_copying`, `measure_choosing`, `measure_learning` and `measure_heads`.
With `--only NAME` they take what has NAME in its name, "table: row": to store, whole tables; to
compare, single rows. A row that is not what is stored is named with both numbers, and the command
returns 1.

Training differs in its last bits from one CPU to another, and after some hundred steps in all of
them. The seeds of a row are ten draws, and on another CPU the same seeds are ten others. So two
rows are compared by their means over the seeds: these may differ by 0.02, for what the number of
digits and of texts leaves open, and by 4 standard errors of their difference. What is computed
from one trained model without training is compared number by number.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from tools import ROOT
from tools.notebooks import read as read_notebook

SLACK, ERRORS = 0.02, 4


class Table(NamedTuple):
    """Results that are stored together: each row by its name, measured anew and as it is stored."""

    rows: Mapping[str, Callable[[], Any]]
    stored: Callable[[str], Any]
    store: Callable[[dict[str, Any], str], None]  # all rows, and the day
    apart: Callable[[Any, Any], list[str]]  # what is stored, what is new


def means_apart(stored: ArrayLike, new: ArrayLike) -> list[str]:
    """Return the means over the first axis, the seeds, that differ by more than they may.

    >>> means_apart([0.90, 0.96, 0.93], [0.96, 0.90, 0.95])
    []
    >>> means_apart([0.90, 0.96, 0.93], [0.76, 0.73, 0.70])
    ['stored mean 0.930, new mean 0.730, at most 0.118 apart']
    """
    old, found = np.asarray(stored, dtype=float), np.asarray(new, dtype=float)
    if old.shape != found.shape:
        return [f"stored are {old.shape} numbers, new are {found.shape}"]
    spread = old.var(axis=0, ddof=1) + found.var(axis=0, ddof=1)
    most = SLACK + ERRORS * np.sqrt(spread / len(old))
    means = np.broadcast_arrays(old.mean(axis=0), found.mean(axis=0), most)
    return [
        f"stored mean {before:.3f}, new mean {after:.3f}, at most {limit:.3f} apart"
        for before, after, limit in zip(*(x.ravel() for x in means), strict=True)
        if not abs(after - before) <= limit  # NaN is no agreement
    ]


def numbers_apart(stored: Any, new: Any, rtol: float = 0.05, atol: float = 0.002) -> list[str]:
    """Return the numbers, found under the same names, that are not close.

    >>> numbers_apart({"held": [0.5, 0.7]}, {"held": [0.5, 0.9]})
    ['held: stored 0.700, new 0.900']
    """
    old, found = dict(_leaves(stored)), dict(_leaves(new))
    if list(old) != list(found):
        return [f"stored are {list(old)}, new are {list(found)}"]
    faults = []
    for name, before in old.items():
        if before.shape != found[name].shape:
            faults.append(f"{name}: stored are {before.shape} numbers, new {found[name].shape}")
            continue
        far = ~np.isclose(found[name], before, rtol=rtol, atol=atol)
        pairs = zip(before[far], found[name][far], strict=True)
        faults += [f"{name}: stored {one:.3f}, new {other:.3f}" for one, other in pairs]
    return faults


def _leaves(found: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Return the arrays inside dictionaries, each with the names that lead to it."""
    if isinstance(found, Mapping):
        for key in sorted(found):
            yield from _leaves(found[key], f"{name}/{key}".strip("/"))
    else:
        yield name, np.atleast_1d(np.asarray(found, dtype=float))


# -- pages ----------------------------------------------------------------------------------------


def program(page: str, *names: str) -> Any:
    """Return what a page defines under these names, and what it imports.

    So the numbers are measured with the functions that the page shows.
    """
    found: dict[str, Any] = {}
    for cell in read_notebook(ROOT / "chapters" / f"{page}.ipynb")["cells"]:
        if cell["cell_type"] != "code" or "set-up" in cell["metadata"].get("tags", ()):
            continue
        for node in ast.parse(cell["source"]).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            bound = {name.id for x in targets for name in ast.walk(x) if isinstance(name, ast.Name)}
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound = {node.name}
            if bound & set(names) or isinstance(node, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([node], []), page, "exec"), found)
    return SimpleNamespace(**found)


# -- files ----------------------------------------------------------------------------------------


def when(day: str) -> dict[str, str]:
    """Return what is stored beside a measurement: the day, and what it ran on."""
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    return {"day": day, "python": platform.python_version(), **versions}


def in_json(
    path: Path,
    name: str,
    rows: Mapping[str, Callable[[], Any]],
    apart: Callable[[Any, Any], list[str]] = means_apart,
    **about: Any,
) -> Table:
    """Return a table of a JSON file, which holds rows under `found`, and what is said about them.

    A table whose only row has no name is held as it is measured.
    """

    def read() -> dict[str, Any]:
        held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return held

    def stored(row: str) -> Any:
        table = read()[name]
        return table["found"][row] if row else table

    def store(found: dict[str, Any], day: str) -> None:
        held = read() if path.exists() else {"measured": {}}
        held["measured"][name] = when(day)
        held[name] = found.get("", {**about, "found": found})
        path.write_text(json.dumps(held, separators=(",", ":")) + "\n", encoding="utf-8")

    return Table(rows, stored, store, apart)


# -- command line ---------------------------------------------------------------------------------


def named(table: str, row: str) -> str:
    """Return what `--only` looks into and a report begins with."""
    return f"{table}: {row}" if row else table


def compare(tables: Mapping[str, Table], only: str = "") -> bool:
    """Measure anew, say of each row how it compares, and return whether all are as stored."""
    chosen = [
        (name, row)
        for name, table in tables.items()
        for row in table.rows
        if only in named(name, row)
    ]
    if not chosen:
        raise SystemExit(f"--only must be part of a name; got {only!r}. Tables: {list(tables)}")
    good = True
    for name, row in chosen:
        faults = tables[name].apart(tables[name].stored(row), tables[name].rows[row]())
        for fault in faults or ["as stored"]:
            print(f"{named(name, row)}: {fault}", flush=True)
        good = good and not faults
    return good


def store(tables: Mapping[str, Table], day: str, only: str = "") -> None:
    """Measure whole tables anew, and write them."""
    chosen = {name: table for name, table in tables.items() if only in name}
    if not chosen:
        raise SystemExit(f"--only must be part of a name; got {only!r}. Tables: {list(tables)}")
    for name, table in chosen.items():
        found = {}
        for row, measure in table.rows.items():
            print(f"{named(name, row)} …", flush=True)
            found[row] = measure()
        table.store(found, day)


def main(
    tables: Mapping[str, Table], arguments: Sequence[str] | None = None, *, writes: bool = True
) -> int:
    """Store or compare, as the arguments say, and return the exit status."""
    parser = argparse.ArgumentParser()
    if writes:
        parser.add_argument("day", nargs="?", type=datetime.date.fromisoformat, help="YYYY-MM-DD")
        parser.add_argument("--compare", action="store_true", help="write nothing")
    parser.add_argument("--only", default="", metavar="NAME", help="what has NAME in its name")
    asked = parser.parse_args(arguments)
    day = asked.day if writes else None
    if writes and (day is None) != asked.compare:
        parser.error("either a day to store with, or --compare")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # tiny numbers count as 0: they are slow
    if day is None:
        return 0 if compare(tables, asked.only) else 1
    store(tables, day.isoformat(), asked.only)
    return 0


def everything() -> dict[str, Table]:
    """Return the tables of all four programs."""
    from tools import measure_choosing, measure_copying, measure_heads, measure_learning

    modules = measure_copying, measure_heads, measure_choosing, measure_learning
    return {
        f"{module.__name__.removeprefix('tools.measure_')}, {name}": table
        for module in modules
        for name, table in module.TABLES.items()
    }


if __name__ == "__main__":
    sys.exit(main(everything(), writes=False))
