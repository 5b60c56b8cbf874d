"""Run and normalise notebooks, so that a diff shows what changed and nothing else.

    python -m tools.notebooks execute   [NOTEBOOK …]   run in place, from top to bottom
    python -m tools.notebooks normalise [NOTEBOOK …]   rewrite without running

Without a name each takes every notebook of `chapters/` and `reference/`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import yaml

from tools import ROOT

Cell = dict[str, Any]
Notebook = dict[str, Any]

REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
SETUP_TAG = "set-up"
FOLDED_TAGS = {SETUP_TAG, "solution"}
UNCHECKED_TAG = "nbval-ignore-output"
FIGURE_TAG = "fig-"  # of a cell that draws: its title is the caption, and its code is hidden
QUIZ_TAG = "quiz"  # of a cell that asks questions, or computes their answers: its code is hidden
SETUP_CELL = f"""\
# @title Set-up: installs attnlib where it is missing (on Colab); changes nothing else
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{REPOSITORY}"""
# For chapters that import Triton: torch brings it with its CUDA build alone, and not on macOS.
TRITON_SETUP_CELL = f"""\
# @title Set-up: installs attnlib and Triton where missing (on Colab); changes nothing else
import importlib.util
import sys

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{REPOSITORY}
if importlib.util.find_spec("triton") is None and sys.platform == "linux":
    %pip install --quiet --no-deps triton"""
# For pages that ask the oracle.
ORACLE_SETUP_CELL = f"""\
# @title Set-up: installs attnlib and attncheck where missing (on Colab); changes nothing else
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{REPOSITORY}
if importlib.util.find_spec("attncheck") is None:
    %pip install --quiet --no-deps "git+{REPOSITORY}#subdirectory=oracle\""""
# For chapters on the models of others. Colab has transformers.
MODELS_SETUP_CELL = f"""\
# @title Set-up: installs attnlib and transformers where missing; changes nothing else
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install --quiet --no-deps git+{REPOSITORY}
if importlib.util.find_spec("transformers") is None:
    %pip install --quiet "transformers>=5\""""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
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
    held = [cell.get("id", "") for cell in written]
    free = (name for n in range(1, 10_000) if (name := f"cell-{n:02d}") not in held)
    cells: list[Cell] = []
    count = 0
    for place, (cell, name) in enumerate(zip(written, held, strict=True)):
        is_good = CELL_ID.fullmatch(name) and name not in held[:place]
        is_code = cell["cell_type"] == "code"
        source = re.sub(r"^(?:[ \t]*\n)+|\s+$", "", cell["source"])
        new: Cell = {
            "cell_type": cell["cell_type"],
            "id": name if is_good else next(free),
            "metadata": _normalised_metadata(cell["metadata"]),
            "source": re.sub(r"(?m)[ \t]+$", "", source) if is_code else source,
        }
        if is_code:
            ran = cell["execution_count"] is not None
            count += ran
            new["execution_count"] = count if ran else None
            new["outputs"] = _normalised_outputs(cell["outputs"], new["execution_count"])
        cells.append(new)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def _normalised_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    new = {key: metadata[key] for key in CELL_METADATA if metadata.get(key)}
    tags = list(dict.fromkeys(new.pop("tags", [])))
    hidden = new.pop("jupyter", {}).get("source_hidden") is True
    # Where nothing compares the output, the code is what a reader can check, so it stays.
    draws = any(tag.startswith(FIGURE_TAG) for tag in tags) and UNCHECKED_TAG not in tags
    if QUIZ_TAG in tags:
        hidden = True
        new["cellView"] = "form"
    elif draws or FOLDED_TAGS & set(tags):
        # Folded in the book, in Jupyter and in Colab, each of which has its own word for it.
        hidden = True
        new["cellView"] = "form"
        fold = "hide-input" if draws else "hide-cell"
        if fold not in tags:
            tags.insert(0, fold)
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


# Run behind a notebook. Without manual_seed each process begins with another seed, of 64 bits.
SEEDED = """
import sys
if torch := sys.modules.get("torch"):
    now, seed = torch.default_generator.get_state(), torch.initial_seed()
    untouched = torch.equal(now, torch.Generator().manual_seed(seed).get_state())
    if seed > 2**40 and not untouched:
        raise RuntimeError("torch has drawn numbers without torch.manual_seed")
"""


def execute(path: Path) -> None:
    """Run the notebook from top to bottom in its folder and store what it shows.

    The file is written only when no cell raises, but for those with the tag `raises-exception`.
    That these do is a rule of the pages (tests/chapters/honesty). Nor is it written when torch drew
    numbers that differ in each run, in a cell or in a library that it calls.

    Raises:
        NotebookError: which cell did not, and its traceback.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from traitlets.config import Config

    # One thread: the order of a sum, so its last bit, does not hang on the number of cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # this environment's kernel
    number = 0

    def note(cell: Cell, cell_index: int) -> None:
        nonlocal number
        number = cell_index + 1

    node = nbformat.from_dict(read(path))  # type: ignore[no-untyped-call]
    for cell in node["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"], cell["outputs"] = None, []
    node["cells"].append(nbformat.v4.new_code_cell(SEEDED))  # type: ignore[no-untyped-call]
    client = NotebookClient(
        node,
        # Without encryption the kernel warns on each start that others could listen.
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_start=note,
    )
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError, TimeoutError) as error:
        raise NotebookError(f"{path}, cell {number}:\n{error}") from None
    node["cells"].pop()
    write_normalised(path, node)


# -- command line ---------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run one of the two commands and return its exit status."""
    command, *names = arguments or [""]
    if command not in ("execute", "normalise"):
        print(__doc__, file=sys.stderr)
        return 2
    everything = [*Path().glob("chapters/*.ipynb"), *Path().glob("reference/*.ipynb")]
    for path in [Path(name) for name in names] or sorted(everything):
        if command == "normalise":
            if write_normalised(path, read(path)):
                print(f"Normalised {path}")
            continue
        print(f"Running {path}", flush=True)
        try:
            execute(path)
        except NotebookError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
