"""The tools of the Makefile: notebooks, the repository's address, what must be installed first."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import check_prerequisites, notebooks, set_repository
from tools.set_repository import ROOT

HERE = set_repository.repository_address()
ELSEWHERE = "https://github.com/some-school/attention.course"


# -- notebooks ------------------------------------------------------------------------------------


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
    cells = notebooks.normalise(untidy())["cells"][1:]
    assert [cell["execution_count"] for cell in cells] == [1, None, 2]
    assert cells[0]["outputs"][2]["execution_count"] == 1


def test_normalise_twice_is_once() -> None:
    once = notebooks.normalise(untidy())
    assert notebooks.normalise(once) == once


def test_written_text(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    assert notebooks.write_normalised(path, untidy())
    written = path.read_text(encoding="utf-8")
    assert written.startswith('{\n "cells": [\n') and written.endswith("}\n")
    assert "√d" in written
    assert json.loads(written)["cells"][1]["source"] == ["x = 1\n", "x"]
    assert not notebooks.write_normalised(path, notebooks.read(path))


def test_check_names_the_files_that_normalise_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tidy, other = tmp_path / "tidy.ipynb", tmp_path / "other.ipynb"
    notebooks.write_normalised(tidy, untidy())
    other.write_text(json.dumps(untidy()))
    assert notebooks.main(["check", str(tidy), str(other)]) == 1
    assert capsys.readouterr().err.count("Not normalised") == 1
    assert notebooks.main(["normalise", str(tidy), str(other)]) == 0
    assert capsys.readouterr().out == f"Normalised {other}\n"
    assert notebooks.main(["check", str(tidy), str(other)]) == 0


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


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([code("x = 1"), code("x / 0"), code("x")], "cell 2:"),
        ([code("x = 1", metadata={"tags": ["raises-exception"]})], "raised none"),
    ],
)
def test_execute_stops_where_a_cell_does_not_do_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cells: list[dict[str, Any]], message: str
) -> None:
    path = stored(tmp_path / "a.ipynb", *copy.deepcopy(cells))
    before = path.read_bytes()
    assert notebooks.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert f"{path}, cell" in said and message in said
    if "cell 2" in message:
        assert "x / 0" in said and "ZeroDivisionError" in said


# -- the repository's address ---------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the files that may name the repository."""
    for path in set_repository.places(ROOT):
        copied = tmp_path / path.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    return tmp_path


def contents(project: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in set_repository.places(project)}


def test_address_is_set_in_every_place_and_back(project: Path) -> None:
    before = contents(project)
    changed = set_repository.set_repository(ELSEWHERE, project)
    account, name = set_repository.parse(HERE)
    assert set_repository.repository_address(project) == ELSEWHERE
    assert {path for path, text in before.items() if HERE.encode() in text} <= set(changed)
    assert not any(f"{account}/{name}".encode() in text for text in contents(project).values())
    names = {str(path.relative_to(project)) for path in changed}
    assert {"_config.yml", "README.md", "CITATION.cff", "pyproject.toml", "index.md"} <= names
    assert ".github/ISSUE_TEMPLATE/config.yml" in names
    for path in project.glob("chapters/*.ipynb"):
        assert path in changed
        assert notebooks.is_normalised(path) == notebooks.is_normalised(
            ROOT / "chapters" / path.name
        )
    assert set_repository.set_repository(ELSEWHERE, project) == []
    set_repository.set_repository(HERE, project)
    assert contents(project) == before


@pytest.mark.parametrize("ending", ["", "/", ".git", ".git/"])
def test_forms_of_an_address(ending: str) -> None:
    assert set_repository.parse(ELSEWHERE + ending) == ("some-school", "attention.course")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "some-school/attention",
        "http://github.com/a/b",
        "https://gitlab.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/tree/main",
        "https://github.com/-a/b",
        "https://github.com/a/..",
        "https://github.com/a/b c",
        "git@github.com:a/b.git",
    ],
)
def test_another_address_changes_nothing(project: Path, address: str) -> None:
    before = contents(project)
    with pytest.raises(ValueError, match=r"https://github\.com/ACCOUNT/REPO, got"):
        set_repository.set_repository(address, project)
    assert contents(project) == before


def test_wrong_call_says_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert set_repository.main(["nowhere"]) == 1
    assert capsys.readouterr().err.startswith("Nothing changed: expected an address of the form")


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("(https://github.com/a/b)", "(https://github.com/c/d)"),
        ("git+https://github.com/a/b.git", "git+https://github.com/c/d.git"),
        ("at https://github.com/a/b. Then", "at https://github.com/c/d. Then"),
        ("https://github.com/a/b/issues", "https://github.com/c/d/issues"),
        (
            "https://colab.research.google.com/github/a/b/blob/main/x.ipynb",
            "https://colab.research.google.com/github/c/d/blob/main/x.ipynb",
        ),
        ("https://a.github.io/b/", "https://c.github.io/d/"),
        ("git clone x\ncd b\n", "git clone x\ncd d\n"),
        ("https://github.com/a/b-other", "https://github.com/a/b-other"),
        ("https://github.com/a/b.other", "https://github.com/a/b.other"),
        ("https://github.com/a/bc", "https://github.com/a/bc"),
        ("https://example.org/a/b", "https://example.org/a/b"),
    ],
)
def test_what_is_replaced(text: str, replaced: str) -> None:
    assert set_repository.replace(text, ("a", "b"), ("c", "d")) == replaced


NOT_OURS = {"node_modules", "_build", "build", "dist", "__pycache__"}


def project_files() -> list[Path]:
    """Return the project's files: not what is installed, built or cached."""
    found = []
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [
            name
            for name in inner
            if name in (".ci", ".github")
            or not (name in NOT_OURS or name.startswith(".") or "egg-info" in name)
        ]
        found += [Path(folder, name) for name in files]
    return found


def test_no_other_file_names_the_repository() -> None:
    slug = "/".join(set_repository.parse(HERE)).encode()
    named = {path for path in project_files() if slug in path.read_bytes()}
    assert named <= set(set_repository.places(ROOT))


def test_all_places_agree_with_the_configuration() -> None:
    account, name = set_repository.parse(HERE)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"]["url"] == HERE
    assert config["html"]["baseurl"] == f"https://{account}.github.io/{name}/"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["repository-code"] == HERE
    for place in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md", "pyproject.toml"):
        assert HERE in (ROOT / place).read_text(encoding="utf-8"), place
    for path in (*(ROOT / "chapters").glob("*.ipynb"), *(ROOT / "reference").glob("*.ipynb")):
        assert f"git+{HERE}" in path.read_text(encoding="utf-8"), path.name
    slug = re.compile(rf"github\.com/(?:github/)?([\w-]+)/{re.escape(name)}\b")
    pages = re.compile(rf"([\w-]+)\.github\.io/{re.escape(name)}\b")
    for path in set_repository.places(ROOT):
        text = path.read_text(encoding="utf-8")
        assert set(slug.findall(text) + pages.findall(text)) <= {account}, path.name


# -- what must be installed first -----------------------------------------------------------------


def test_this_python_will_do() -> None:
    assert check_prerequisites.problem() is None


def test_python_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    assert "is Python 3.10, and 3.11 or newer is needed" in str(check_prerequisites.problem())


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_module_missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    said = str(check_prerequisites.problem())
    assert f"without its module {module}" in said and "-venv" in said


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call make as a user does, though a make may have called us."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    mine |= {"PYTHON": sys.executable}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=mine, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)", makefile)
    commands = set(phony.split()) - {"FORCE"}
    assert {"book", "test", "bench-gpu"} <= commands
    listed = re.findall(r"(?m)^  (\S+) +\S", make().stdout)
    assert sorted(listed) == sorted(commands)


def test_every_file_that_the_book_reads_makes_it_out_of_date() -> None:
    pages = ROOT / "_build" / ".doctrees" / "environment.pickle"
    if not pages.is_file():
        pytest.skip("the book is not built: run `make book`")
    environment = pickle.loads(pages.read_bytes())
    read = {Path(environment.doc2path(name)) for name in environment.all_docs}
    for noted in environment.dependencies.values():
        read |= {Path(os.path.normpath(ROOT / name)) for name in noted}
    ours = {str(path.relative_to(ROOT)) for path in read & set(project_files())}
    assert {
        "index.md",
        "attnlib/masks.py",
        "tests/mistakes.txt",
    } <= ours
    assert make("_build/.sources").returncode == 0
    sources = (ROOT / "_build" / ".sources").read_text(encoding="utf-8").splitlines()
    assert sorted(ours - set(sources)) == []


def test_a_python_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = make("book", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}")
    assert done.returncode
    assert done.stderr.splitlines()[0].startswith(
        "Cannot start: there is no command no-such-python"
    )
    assert not (tmp_path / "venv").exists()
