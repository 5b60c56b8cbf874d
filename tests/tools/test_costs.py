"""What a run costs is counted, named and held: tests/helpers/costs.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from costs import BUDGET, WORDS, too_much

from tools import ROOT
from tools.processes import taken

TABLE = """\
# Upper bounds.
[training]
"chapters/a.ipynb" = 1_000

[oracle]
"tests/test_a.py" = 10

[browser]

[triton]
"""


def test_what_the_table_does_not_allow_is_refused_with_the_line_to_raise() -> None:
    def said(**counts: dict[str, int]) -> list[str]:
        return too_much({kind: Counter(files) for kind, files in counts.items()}, TABLE)

    assert said(training={"chapters/a.ipynb": 1000}, oracle={"tests/test_a.py": 3}) == []
    assert said(training={"chapters/b.ipynb": 10}) == []  # so few need no line
    assert said(training={"chapters/a.ipynb": 1500}) == [
        "chapters/a.ipynb: 1,500 steps of training, and line 3 of tests/budget.toml allows 1,000"
    ]
    # A file may stand below another kind, which allows it nothing here.
    assert said(browser={"tests/test_a.py": 2}) == [
        "tests/test_a.py: 2 pages opened in a browser, and no line below [browser] in "
        "tests/budget.toml allows more than 0"
    ]


def test_the_table_is_of_files_that_there_are() -> None:
    table = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    assert list(table) == list(WORDS)
    for files in table.values():
        assert list(files) == sorted(files)
        assert all((ROOT / file).is_file() and limit > 0 for file, limit in files.items())


def test_time_that_a_child_took_is_time_of_the_parent() -> None:
    before = taken(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert taken(os.getpid()) > before + 0.05


@pytest.mark.slow
def test_a_run_names_what_took_longest_and_refuses_what_is_not_allowed(tmp_path: Path) -> None:
    """As a developer would see it: a new test that computes, and a new notebook that trains."""
    train = "import torch\nw = torch.nn.Parameter(torch.ones(3))\nadam = torch.optim.Adam([w])\n"
    train += "for _ in range(500):\n    w.sum().backward()\n    adam.step()"
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": []}
    cells = [{**cell, "id": "a", "source": train}]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "trains.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "test_heavy.py").write_text("def test_heavy():\n    sum(range(5 * 10**7))")
    (tmp_path / "test_light.py").write_text("def test_light():\n    pass")
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "costs"]
    options += ["--nbval", "--nbval-current-env", "-m", "not slow", "-p", "no:cacheprovider"]
    options += ["--import-mode=importlib", "-n", "2"]
    folders = os.pathsep.join([str(ROOT / "tests" / "helpers"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": folders},
        capture_output=True,
        text=True,
    )
    said = done.stdout.splitlines()
    [start] = [n for n, line in enumerate(said) if "most processor time" in line]
    assert any(line.endswith(" s  test_heavy.py") for line in said[start + 1 : start + 4])
    assert done.returncode == 1 and "3 passed" in said[-1]
    assert (
        "trains.ipynb: 500 steps of training, and no line below [training] in tests/budget.toml "
        "allows more than 10" in said
    )
