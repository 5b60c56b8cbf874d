"""Each chapter notices a mistake that it teaches about; what is stored of all of them is whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import guards
from tools.guards import CHAPTER, Guard, called, changed_notebook, chapters, read_guards
from tools.mutants import TABLE, Mutant, TableError, read_table
from tools.notebooks import read

ROOT = Path(__file__).parent.parent
TABLE_OF_GUARDS = read_guards((ROOT / guards.GUARDS).read_text(encoding="utf-8"))

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="it forks; and one chapter has Triton"
)


@pytest.mark.slow
@on_linux
def test_every_chapter_notices_the_first_of_its_mistakes() -> None:
    """And in the cell that is stored: a chapter that fails anyway would do so in another."""
    command = [sys.executable, "-m", "tools.guards", "first"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{len(chapters())} mistakes, 0 missed, ")


def test_every_chapter_has_mistakes_in_the_package_and_in_its_own_code() -> None:
    for chapter in chapters():
        files = [guard.file for guard in TABLE_OF_GUARDS if guard.chapter == chapter]
        assert CHAPTER in files
        assert any(file.startswith(("attnlib/", "attnbook/")) for file in files)
    assert list(dict.fromkeys(guard.chapter for guard in TABLE_OF_GUARDS)) == chapters()


@pytest.mark.parametrize("guard", TABLE_OF_GUARDS, ids=str)
def test_every_change_fits_its_file(guard: Guard) -> None:
    if guard.file == CHAPTER:
        notebook = read(ROOT / "chapters" / f"{guard.chapter}.ipynb")
        before = json.dumps(notebook)
        assert json.dumps(changed_notebook(notebook, guard)) != before
    else:
        source = (ROOT / guard.file).read_text(encoding="utf-8")
        assert Mutant(guard.mistake, guard.file, "", "", guard.edits).source(source) != source


def test_a_change_that_stands_nowhere_or_twice_is_an_error() -> None:
    notebook: dict[str, Any] = {
        "cells": [{"cell_type": "code", "source": "x = 1\ny = 1"}, {"cell_type": "markdown"}]
    }
    for old in ("z", "= 1"):
        with pytest.raises(TableError, match="does not stand in one place"):
            changed_notebook(notebook, Guard("01_lookup", "words", CHAPTER, ((old, "2"),)))


def test_a_chapter_is_tried_on_what_its_cells_run() -> None:
    text = (ROOT / "attnlib" / "masks.py").read_text(encoding="utf-8")
    window = next(m for m in read_table((ROOT / TABLE).read_text()) if "right end" in m.mistake)
    (line,) = (n for n, row in enumerate(text.splitlines(), 1) if window.edits[0][0] in row)
    assert called(window, [line])
    assert not called(window, [line - 60, line + 20])
    assert not called(window, [])


def test_what_is_stored_is_what_the_table_asks_for() -> None:
    stored = json.loads((ROOT / guards.RESULTS).read_text(encoding="utf-8"))["chapters"]
    assert list(stored) == chapters()
    asked = [(g.chapter, g.mistake, g.file, [list(e) for e in g.edits]) for g in TABLE_OF_GUARDS]
    found = [
        (chapter, entry["mistake"], entry["file"], entry["edits"])
        for chapter, parts in stored.items()
        for entry in parts["own"]
    ]
    assert found == asked
    assert all(e["verdict"] == "noticed" for parts in stored.values() for e in parts["own"])
    named = [entry for parts in stored.values() for entry in parts["named"]]
    assert {entry["verdict"] for entry in named} <= {"noticed", "not noticed"}
