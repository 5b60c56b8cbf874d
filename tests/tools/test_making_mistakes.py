"""How mistakes are made, and judged; `make mistakes` makes those of mistakes.txt."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from attnlib import implementations
from tools import ROOT, chapters, mistakes, notebooks
from tools.break_it import BEGIN, END, written
from tools.mistakes import TABLE, Mistake, TableError, read_table

MISTAKES = read_table((ROOT / TABLE).read_text(encoding="utf-8"))
PAGES = list(dict.fromkeys(name for mistake in MISTAKES for name in mistake.chapters))
CHAPTERS = [Path(page).name for page in chapters()]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it forks after importing torch")


def make(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mistakes", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)


NOT_MISTAKES = """\
[attnlib/masks.py]
a query does not see its own key
- seen: Kind = keys <= positions
+ seen: Kind = keys < positions
a change that changes nothing
+ seen: Kind = (keys <= positions)
what cannot be imported
- import numpy as np
+ import nump as np

[02_scores]
the chapter notices
- raw_scores = Q @ K.T
+ raw_scores = K @ Q.T
the chapter does not notice
+ raw_scores = (Q) @ K.T
"""
VERDICTS = {
    "a query does not see its own key": "noticed",
    "a change that changes nothing": "not noticed",
    "what cannot be imported": "broken",
    "the chapter notices": "noticed",
    "the chapter does not notice": "not noticed",
}


@pytest.mark.slow
@on_linux
def test_only_what_fails_counts(tmp_path: Path) -> None:
    (table := tmp_path / "table.txt").write_text(NOT_MISTAKES)
    done = make("--table", str(table))
    found = re.findall(r"(?m)^ *\d+/\d+  (.*?)  +\S+: (.*)", done.stdout)
    assert {words: verdict for verdict, words in found} == VERDICTS, done.stdout + done.stderr
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("5 mistakes, 3 missed, 0 not judged, ")


def never(mistake: Mistake, folder: Path) -> None:
    time.sleep(10**6)


def second_time(mistake: Mistake, folder: Path) -> None:
    """Answer when asked for the second time: the first time, the machine was busy."""
    if not (mark := folder.parent.parent / "asked").exists():
        mark.touch()
        never(mistake, folder)
    (folder / "verdict.json").write_text('["noticed", "a test"]')


def without_end(mistake: Mistake, folder: Path) -> None:
    while True:
        pass


@on_linux
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (never, ("not judged", "no end after 1 s, mostly of waiting")),
        (second_time, ("noticed", "a test")),
        (without_end, ("broken", "no end after 0 s of processor time")),
    ],
)
def test_no_verdict_hangs_on_a_busy_machine(
    work: Any, expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(mistakes, "work", work)
    monkeypatch.setattr(mistakes, "LIMIT", 0.3 if work is without_end else 300.0)
    monkeypatch.setattr(mistakes, "PATIENCE", 600.0 if work is without_end else 1.0)
    [(_, *found)] = mistakes.each(MISTAKES[:1], jobs=1)
    assert tuple(found) == expected


def test_the_table_fits_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for mistake in MISTAKES:
        assert mistake.made_in(mistake.file) != mistake.file.read_text(encoding="utf-8")


def test_no_implementation_lacks_mistakes() -> None:
    modules = {Path(mistake.file.parts[1]).stem for mistake in MISTAKES if mistake.tests}
    assert set(implementations()) <= modules


def test_the_page_shows_the_mistakes_of_every_chapter_and_so_does_the_chapter() -> None:
    page = (ROOT / "reference" / "break_it.md").read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == f"\n{written()}\n", "run python -m tools.break_it"
    numbers = re.findall(r"(?m)^## (\d+)\. ", page)
    assert numbers == [str(int(name[:2])) for name in CHAPTERS]
    assert set(CHAPTERS) <= set(PAGES)
    for chapter, below in chapters().items():
        name = Path(chapter).name
        files = [mistake.file.stem for mistake in MISTAKES if name in mistake.chapters]
        assert len(files) >= 2 and name in files, chapter
        read = [notebooks.read(ROOT / f"{page}.ipynb") for page in (chapter, *below)]
        sources = [cell["source"] for notebook in read for cell in notebook["cells"]]
        assert any(re.search(r"(?m)^##+ What breaks if$", source) for source in sources), chapter


def test_a_mistake_may_change_several_places_and_lines(tmp_path: Path) -> None:
    one, two = read_table(
        "# a comment\n[attnlib/masks.py]\nwords: more\n"
        "- a\n-     b\n+ c\n- d\n+ e\n+ \n\n[04_softmax]\nof a cell\n- = 1\n+ = 2"
    )
    assert (one.words, one.chapters) == ("words: more", ())
    assert one.tests[0] == ("tests/attnlib/test_masks.py",)
    assert (two.file, two.tests) == (Path("chapters/04_softmax.ipynb"), [])
    (source := tmp_path / "x.py").write_text("x a\n    b y d")
    assert one.made_in(source) == "x c y e\n"
    cells = [{"cell_type": "markdown"}, {"cell_type": "code", "source": ["x = 1\n", "y"]}]
    (notebook := tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    assert json.loads(two.made_in(notebook))["cells"][1]["source"] == "x = 2\ny"


@pytest.mark.parametrize("text", ["axis=-1", "no such text"])
def test_a_text_that_moved_is_an_error(text: str) -> None:
    (mistake,) = read_table(f"words | attnlib/numpy_dense.py\n- {text}\n+ axis=-2")
    with pytest.raises(TableError, match=r"numpy_dense.py: words: .* times, not once"):
        mistake.made_in(ROOT / mistake.file)
