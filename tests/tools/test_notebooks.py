"""Notebooks in their one written form, and how they are run."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import notebooks


def code(source: str, **values: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    return cell | {"source": source} | values


def untidy() -> dict[str, Any]:
    """Return a notebook as editors leave it behind."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"display_name": "my venv", "language": "python", "name": "venv"},
            "language_info": {"name": "python", "version": "3.11.7"},
            "widgets": {"application/vnd.jupyter.widget-state+json": {}},
        },
        "cells": [
            {"cell_type": "markdown", "id": "kept", "metadata": {"id": "x"}, "source": "# √d\n\n"},
            code(
                "\nx = 1  \nx\n\n",
                id="kept",
                execution_count=41,
                metadata={"execution": {"iopub.busy": "2026"}, "tags": ["a", "a"], "cellView": ""},
                outputs=[
                    {"output_type": "stream", "name": "stdout", "text": "one\n"},
                    {"output_type": "stream", "name": "stdout", "text": "two\n"},
                    {"output_type": "stream", "name": "stderr", "text": "three\n"},
                    {
                        "output_type": "execute_result",
                        "execution_count": 41,
                        "data": {"text/plain": "1"},
                        "metadata": {},
                    },
                ],
            ),
            code("# @title Solution 1\ny = 2", id="no good id", metadata={"tags": ["solution"]}),
            code("  \n", id="blank"),
            code(
                "1 / 0",
                id="cell-01",
                execution_count=7,
                outputs=[
                    {
                        "output_type": "error",
                        "ename": "ZeroDivisionError",
                        "evalue": "division by zero",
                        "traceback": ["File /home/me/a.py", "ZeroDivisionError"],
                    }
                ],
            ),
        ],
    }


def test_normalise_gives_the_one_form() -> None:
    before = untidy()
    given = copy.deepcopy(before)
    new = notebooks.normalise(given)
    assert given == before
    assert new["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    title, first, solution, error = new["cells"]
    assert [cell["id"] for cell in new["cells"]] == ["kept", "cell-02", "cell-03", "cell-01"]
    assert title == {"cell_type": "markdown", "id": "kept", "metadata": {}, "source": "# √d"}
    assert first["source"] == "x = 1\nx"
    assert first["metadata"] == {"tags": ["a"]}
    assert [output.get("text") for output in first["outputs"]] == ["one\ntwo\n", "three\n", None]
    assert solution["metadata"] == {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["hide-cell", "solution"],
    }
    assert error["outputs"][0]["traceback"] == ["ZeroDivisionError: division by zero"]


@pytest.mark.parametrize("tag", ["set-up", "solution"])
def test_normalise_folds_what_a_reader_need_not_see(tag: str) -> None:
    cells = [code("x = 1", metadata={"tags": [tag]})]
    [folded] = notebooks.normalise({"cells": cells, "metadata": {}})["cells"]
    assert folded["metadata"] == {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["hide-cell", tag],
    }


def test_normalise_counts_what_ran_and_hides_no_cell_that_did_not() -> None:
    once = notebooks.normalise(untidy())
    assert [cell["execution_count"] for cell in once["cells"][1:]] == [1, None, 2]
    assert once["cells"][1]["outputs"][2]["execution_count"] == 1
    assert notebooks.normalise(once) == once


def test_written_text(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    assert notebooks.write_normalised(path, untidy())
    written = path.read_text(encoding="utf-8")
    assert written.startswith('{\n "cells": [\n') and written.endswith("}\n")
    assert "√d" in written
    assert json.loads(written)["cells"][1]["source"] == ["x = 1\n", "x"]
    assert not notebooks.write_normalised(path, notebooks.read(path))


def test_the_command_names_the_files_that_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tidy, other = tmp_path / "tidy.ipynb", tmp_path / "other.ipynb"
    notebooks.write_normalised(tidy, untidy())
    other.write_text(json.dumps(untidy()))
    assert not notebooks.is_normalised(other)
    assert notebooks.main(["normalise", str(tidy), str(other)]) == 0
    assert capsys.readouterr().out == f"Normalised {other}\n"
    assert notebooks.is_normalised(other)


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


def test_execute_stops_where_a_cell_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "a.ipynb", code("x = 1"), code("x / 0"), code("x"))
    before = path.read_bytes()
    assert notebooks.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert f"{path}, cell 2:" in said and "x / 0" in said and "ZeroDivisionError" in said


def test_execute_refuses_a_cell_that_should_fail_and_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbclient.NotebookClient.execute", lambda client: None)  # nothing fails
    error = {"output_type": "error", "ename": "Old", "evalue": "", "traceback": []}
    tags = {"tags": ["raises-exception"]}
    path = stored(tmp_path / "a.ipynb", code("x = 1", metadata=tags, outputs=[error]))
    before = path.read_bytes()
    assert notebooks.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert f"{path}, cell 1:" in said and "raised none" in said
