"""Notebooks in their one written form, and how they are run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kernels import patiently

from tools import notebooks


def code(source: str, **values: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    return cell | {"source": source} | values


def output(kind: str, **values: Any) -> dict[str, Any]:
    return {"output_type": kind} | values


def untidy() -> dict[str, Any]:
    """Return a notebook as editors leave it behind."""
    said = [("stdout", "one\n"), ("stdout", "two\n"), ("stderr", "three\n")]
    outputs = [output("stream", name=name, text=text) for name, text in said]
    outputs.append(
        output("execute_result", execution_count=41, data={"text/plain": "1"}, metadata={})
    )
    trace = ["File /home/me/a.py", "ZeroDivisionError"]
    error = output("error", ename="ZeroDivisionError", evalue="by zero", traceback=trace)
    metadata = {"execution": {"iopub.busy": "2026"}, "tags": ["a", "a"], "cellView": ""}
    cells = [
        {"cell_type": "markdown", "id": "kept", "metadata": {"id": "x"}, "source": "# √d\n\n"},
        code("\nx = 1  \nx\n\n", id="kept", execution_count=41, metadata=metadata, outputs=outputs),
        code("# @title Solution 1\ny = 2", id="no good id", metadata={"tags": ["solution"]}),
        code("  \n", id="blank"),
        code("1 / 0", id="cell-01", execution_count=7, outputs=[error]),
        code("x = 1", id="last", metadata={"tags": ["set-up"]}),
    ]
    metadata = {"kernelspec": {"name": "venv"}, "widgets": {"state": {}}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def test_normalise_gives_the_one_form() -> None:
    given = untidy()
    new = notebooks.normalise(given)
    assert given == untidy()  # it is left as it was
    assert new["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    title, first, *folded, error, setup = new["cells"]
    ids = [cell["id"] for cell in new["cells"]]
    assert ids == ["kept", "cell-02", "cell-03", "cell-01", "last"]
    assert title == {"cell_type": "markdown", "id": "kept", "metadata": {}, "source": "# √d"}
    assert (first["source"], first["metadata"]) == ("x = 1\nx", {"tags": ["a"]})
    assert [one.get("text") for one in first["outputs"]] == ["one\ntwo\n", "three\n", None]
    assert error["outputs"][0]["traceback"] == ["ZeroDivisionError: by zero"]
    for cell, tag in zip([*folded, setup], ("solution", "set-up"), strict=True):
        assert cell["metadata"] == {
            "cellView": "form",
            "jupyter": {"source_hidden": True},
            "tags": ["hide-cell", tag],
        }
    # What ran is counted, and a cell that did not run is seen.
    assert [cell["execution_count"] for cell in new["cells"][1:]] == [1, None, 2, None]
    assert first["outputs"][2]["execution_count"] == 1
    assert notebooks.normalise(new) == new


def test_a_cell_that_only_draws_hides_its_code() -> None:
    cell = code("# @title A square.\ndraw()", id="a", metadata={"tags": ["fig-square"]})
    [new] = notebooks.normalise(untidy() | {"cells": [cell]})["cells"]
    assert new["metadata"] == {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["hide-input", "fig-square"],
    }
    cell["metadata"]["tags"].append("nbval-ignore-output")  # nothing else shows what it does
    [new] = notebooks.normalise(untidy() | {"cells": [cell]})["cells"]
    assert new["metadata"] == {"tags": ["fig-square", "nbval-ignore-output"]}


def test_the_command_writes_the_one_text_and_names_what_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tidy, other = tmp_path / "tidy.ipynb", tmp_path / "other.ipynb"
    assert notebooks.write_normalised(tidy, untidy())
    other.write_text(json.dumps(untidy()))
    assert not notebooks.is_normalised(other)
    assert notebooks.main(["normalise", str(tidy), str(other)]) == 0
    assert capsys.readouterr().out == f"Normalised {other}\n"
    assert notebooks.is_normalised(other) and tidy.read_bytes() == other.read_bytes()
    written = tidy.read_text(encoding="utf-8")
    assert written.startswith('{\n "cells": [\n') and written.endswith("}\n") and "√d" in written
    assert json.loads(written)["cells"][1]["source"] == ["x = 1\n", "x"]


def stored(path: Path, *cells: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    notebooks.write_normalised(path, untidy() | {"cells": list(cells)})
    return path


def test_execute_runs_in_the_folder_and_in_this_environment(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "chapters" / "a.ipynb",
        code("import os, sys\nprint(os.path.basename(os.getcwd()))"),
        code(f"sys.executable == {sys.executable!r}"),
        code("1 / 0", metadata={"tags": ["raises-exception"]}),
    )
    assert notebooks.main(["execute", str(path)]) == 0
    where, which, error = notebooks.read(path)["cells"]
    assert where["outputs"][0]["text"] == "chapters\n"
    assert which["outputs"][0]["data"]["text/plain"] == "True"
    assert error["outputs"][0]["ename"] == "ZeroDivisionError"
    assert [cell["execution_count"] for cell in (where, which, error)] == [1, 2, 3]
    assert notebooks.is_normalised(path)


def test_execute_stops_where_a_cell_fails_and_leaves_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "a.ipynb", code("x = 1"), code("x / 0"), code("x"))
    before = path.read_bytes()
    assert notebooks.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert f"{path}, cell 2:" in said and "x / 0" in said and "ZeroDivisionError" in said


def test_numbers_that_differ_in_each_run_are_not_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = code("import torch\nweights = torch.nn.Linear(1, 1)")
    path = stored(tmp_path / "a.ipynb", drawn)
    before = path.read_bytes()
    assert notebooks.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    assert "without torch.manual_seed" in capsys.readouterr().err


@pytest.mark.parametrize(("deaths", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_whose_port_is_taken_is_started_again(deaths: int, starts: int) -> None:
    left = ["Kernel died before replying to kernel_info"] * deaths
    started: list[str] = []

    def start(name: str) -> str:
        started.append(name)
        if left:
            raise RuntimeError(left.pop())
        return "a kernel"

    if deaths < 3:
        assert patiently(start)("python") == "a kernel"
    else:
        with pytest.raises(RuntimeError, match="Kernel died"):
            patiently(start)("python")
    assert started == ["python"] * starts
