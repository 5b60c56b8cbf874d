"""Execute, normalise and check notebooks, so that a diff shows what changed and nothing else.

    python -m tools.notebooks execute   [NOTEBOOK …]   run in place, from top to bottom
    python -m tools.notebooks normalise [NOTEBOOK …]   rewrite without running
    python -m tools.notebooks check     [NOTEBOOK …]   name those that `normalise` would change

Without arguments each takes every notebook of `chapters/` and `reference/`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

from tools.set_repository import repository_address

Cell = dict[str, Any]
Notebook = dict[str, Any]

SETUP_TAG = "set-up"
FOLDED_TAGS = {SETUP_TAG, "solution"}
SETUP_CELL = f"""\
# @title Set-up: installs attnlib where it is missing (on Colab); changes nothing else
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{repository_address()}"""
# For chapters that import Triton: torch brings it with its CUDA build alone, and not on macOS.
TRITON_SETUP_CELL = f"""\
# @title Set-up: installs attnlib and Triton where missing (on Colab); changes nothing else
import importlib.util
import sys

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{repository_address()}
if importlib.util.find_spec("triton") is None and sys.platform == "linux":
    %pip install --quiet --no-deps triton"""

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_METADATA = ("cellView", "jupyter", "mystnb", "tags")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class NotebookError(Exception):
    """A notebook does not run as it says it does."""


# -- normalise ------------------------------------------------------------------------------------


def normalise(notebook: Notebook) -> Notebook:
    """Return the notebook in its one written form; what its cells say and show stays as it is.

    A cell that was never run keeps its missing execution count: normalising does not hide that.
    """
    written = [cell for cell in notebook["cells"] if cell["source"].strip()]
    taken = {cell["id"] for cell in written if CELL_ID.fullmatch(cell.get("id", ""))}
    cells: list[Cell] = []
    seen: set[str] = set()
    count = 0
    for cell in written:
        identity = cell.get("id", "")
        if not CELL_ID.fullmatch(identity) or identity in seen:
            identity = _free_identity(taken)
        seen.add(identity)
        ran = cell["cell_type"] == "code" and cell["execution_count"] is not None
        count += ran
        cells.append(_normalised_cell(cell, identity, count if ran else None))
    return {
        "cells": cells,
        "metadata": {"kernelspec": dict(KERNELSPEC), "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _free_identity(taken: set[str]) -> str:
    number = 1
    while f"cell-{number:02d}" in taken:
        number += 1
    taken.add(f"cell-{number:02d}")
    return f"cell-{number:02d}"


def _normalised_cell(cell: Cell, identity: str, count: int | None) -> Cell:
    lines = [line.rstrip() if cell["cell_type"] == "code" else line for line in _lines(cell)]
    new: Cell = {
        "cell_type": cell["cell_type"],
        "id": identity,
        "metadata": _normalised_metadata(cell["metadata"]),
        "source": "\n".join(lines),
    }
    if cell["cell_type"] == "code":
        new["execution_count"] = count
        new["outputs"] = _normalised_outputs(cell["outputs"], count)
    elif cell.get("attachments"):
        new["attachments"] = cell["attachments"]
    return new


def _lines(cell: Cell) -> list[str]:
    lines: list[str] = cell["source"].split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _normalised_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    new = {key: metadata[key] for key in CELL_METADATA if metadata.get(key)}
    tags = list(dict.fromkeys(new.pop("tags", [])))
    hidden = new.pop("jupyter", {}).get("source_hidden") is True
    if FOLDED_TAGS & set(tags):
        # Folded in the book, in Jupyter and in Colab, each of which has its own word for it.
        hidden = True
        new["cellView"] = "form"
        if "hide-cell" not in tags:
            tags.insert(0, "hide-cell")
    if hidden:
        new["jupyter"] = {"source_hidden": True}
    if tags:
        new["tags"] = tags
    return new


def _normalised_outputs(outputs: list[dict[str, Any]], count: int | None) -> list[dict[str, Any]]:
    new: list[dict[str, Any]] = []
    for output in outputs:
        output = dict(output)
        kind = output["output_type"]
        if kind == "stream" and new and new[-1].get("name") == output["name"]:
            new[-1]["text"] += output["text"]
            continue
        if kind == "execute_result":
            output["execution_count"] = count
        if kind == "error":
            # The frames name files of the machine it ran on; the error itself is what is shown.
            output["traceback"] = [f"{output['ename']}: {output['evalue']}"]
        new.append(output)
    return new


# -- files ----------------------------------------------------------------------------------------


def read(path: Path) -> Notebook:
    """Return the notebook with each source and each text output as one string.

    Nothing is mended on the way in: nbformat's checked reading gives a cell without a good id a
    random one.
    """
    notebook: Notebook = nbformat.v4.reads(path.read_text(encoding="utf-8"))  # type: ignore[no-untyped-call]
    return notebook


def text_of(notebook: Notebook) -> str:
    """Return the file's text: keys sorted, an indent of one, a newline at the end."""
    node = nbformat.from_dict(normalise(notebook))  # type: ignore[no-untyped-call]
    nbformat.validate(node)
    return str(nbformat.v4.writes(node)).rstrip("\n") + "\n"  # type: ignore[no-untyped-call]


def is_normalised(path: Path) -> bool:
    """Return whether the file is, byte for byte, what `normalise` would write."""
    return path.read_bytes() == text_of(read(path)).encode()


def write_normalised(path: Path, notebook: Notebook) -> bool:
    """Write the notebook's normalised form and return whether the file changed."""
    new = text_of(notebook).encode()
    if path.exists() and path.read_bytes() == new:
        return False
    path.write_bytes(new)
    return True


# -- execute --------------------------------------------------------------------------------------


def execute(path: Path) -> None:
    """Run the notebook from top to bottom in its folder and store what it shows.

    The file is written only when every cell did what it says: none raises, but for those with the
    tag `raises-exception`, which do.

    Raises:
        NotebookError: which cell did not, and its traceback.
    """
    # One thread: the order of a sum, so its last bit, does not hang on the number of cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        write_normalised(path, executed(read(path), path.resolve().parent))
    except NotebookError as error:
        raise NotebookError(f"{path}, {error}") from None


def executed(
    notebook: Notebook,
    folder: Path,
    kernel: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> Notebook:
    """Return the notebook with the outputs of a run in this folder.

    The kernel is that of the Python that runs this tool unless another one is given, in the form of
    a kernel.json; `environment` replaces this process's own.

    Raises:
        NotebookError: which cell raised or, with the tag `raises-exception`, raised nothing.
    """
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from traitlets import default

    class ThisKernel(AsyncKernelManager):
        """Starts the one kernel that is meant, whatever else is registered as python3."""

        @default("transport_encryption")
        def _encrypted(self) -> str:
            return "auto"  # without it the kernel warns on each start that others could listen

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(resource_dir=RESOURCES, **(kernel or get_kernel_dict()))

    node = nbformat.from_dict(notebook)  # type: ignore[no-untyped-call]
    for cell in node["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"], cell["outputs"] = None, []
    client = NotebookClient(
        node,
        timeout=600,
        kernel_name="python3",
        kernel_manager_class=ThisKernel,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute(**({"env": environment} if environment else {}))
    except (CellExecutionError, DeadKernelError, TimeoutError) as error:
        raise NotebookError(f"cell {_stopped_at(node)}:\n{error}") from None
    for number, cell in enumerate(node["cells"], start=1):
        if "raises-exception" in cell["metadata"].get("tags", []) and not _raised(cell):
            raise NotebookError(f"cell {number}: tagged raises-exception, and raised none")
    ran: Notebook = node
    return ran


def _raised(cell: Cell) -> bool:
    return any(output["output_type"] == "error" for output in cell.get("outputs", []))


def _stopped_at(notebook: Notebook) -> int:
    """Return the number, from 1 and over all cells, of the last cell that was started."""
    started = [
        number
        for number, cell in enumerate(notebook["cells"], start=1)
        if cell["cell_type"] == "code" and (cell["execution_count"] is not None or cell["outputs"])
    ]
    return started[-1] if started else 1


# -- command line ---------------------------------------------------------------------------------


def _execute_all(paths: list[Path]) -> int:
    for path in paths:
        print(f"Running {path}", flush=True)
        try:
            execute(path)
        except NotebookError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _normalise_all(paths: list[Path]) -> int:
    for path in paths:
        if write_normalised(path, read(path)):
            print(f"Normalised {path}")
    return 0


def _check_all(paths: list[Path]) -> int:
    others = [path for path in paths if not is_normalised(path)]
    for path in others:
        print(f"Not normalised: {path} (make format mends it)", file=sys.stderr)
    return 1 if others else 0


COMMANDS: dict[str, Callable[[list[Path]], int]] = {
    "execute": _execute_all,
    "normalise": _normalise_all,
    "check": _check_all,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one of the three commands and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("notebook", nargs="*", type=Path)
    chosen = parser.parse_args(arguments)
    paths = chosen.notebook or [
        path
        for folder in ("chapters", "reference")
        for path in sorted(Path(folder).glob("*.ipynb"))
    ]
    return COMMANDS[chosen.command](paths)


if __name__ == "__main__":
    sys.exit(main())
