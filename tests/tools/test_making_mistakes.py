"""Every mistake of mistakes.txt is made, and noticed by the tests and chapters named for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlib import implementations
from tools import ROOT, notebooks, parts
from tools.mistakes import TABLE, TableError, first_of_each_chapter, read_table

MISTAKES = read_table((ROOT / TABLE).read_text(encoding="utf-8"))
CHAPTERS = list(dict.fromkeys(name for mistake in MISTAKES for name in mistake.chapters))
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it forks after importing torch")


def make(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mistakes", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@on_linux
def test_every_mistake_is_noticed() -> None:
    """Of each chapter the first alone: a chapter takes a few seconds."""
    done = make("--first")
    missed = re.findall(r"(?m)^ *\d+/\d+  (?!noticed).*", done.stdout)
    assert done.returncode == 0, "\n".join(missed) + done.stderr
    assert ", 0 missed, " in done.stdout.splitlines()[-1]


TEST = "test_every_key_takes_part_once"
NOT_MISTAKES = f"""\
[attnlib/numpy_dense.py numpy_dense]
the last key is left out | {TEST}
-     weights, lse = _softmax(scores)
+     scores[..., -1] = -np.inf
+     weights, lse = _softmax(scores)
a change that changes nothing | {TEST}
- weights, lse = _softmax(scores)
+ weights, lse = _softmax(scores, -1)
a mistake of another name | {TEST}
+ weights, lse = _softmax(scores * 2)
what cannot be read | {TEST}
+ weights, lse = _softmax(scores
what cannot be imported | {TEST}
- import numpy as np
+ import nump as np

[02_scores]
the chapter notices
- raw_scores = Q @ K.T
+ raw_scores = K @ Q.T
the chapter does not notice
+ raw_scores = (Q) @ K.T
"""


@pytest.mark.slow
@on_linux
def test_only_a_test_that_fails_in_the_right_words_counts(tmp_path: Path) -> None:
    (table := tmp_path / "table.txt").write_text(NOT_MISTAKES)
    done = make("--table", str(table))
    assert done.returncode == 1
    verdicts = {
        words: verdict
        for verdict, words in re.findall(r"(?m)^ *\d+/\d+  (.*?)  +\S+: (.*)", done.stdout)
    }
    assert verdicts == {
        "the last key is left out": "noticed",
        "a change that changes nothing": "not noticed",
        "a mistake of another name": "not named",
        "what cannot be read": "broken",
        "what cannot be imported": "broken",
        "the chapter notices": "noticed",
        "the chapter does not notice": "not noticed",
    }, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("7 mistakes, 5 missed, ")


@pytest.mark.slow
@on_linux
def test_what_fails_on_the_code_as_it_is_counts_for_nothing(tmp_path: Path) -> None:
    table = f"words | attnlib/masks.py {TEST}[numpy_rung]\n- return keys <= places\n+ return keys"
    (tmp_path / "table.txt").write_text(table)
    done = make("--table", str(tmp_path / "table.txt"))
    assert done.returncode == 1
    assert "do not pass on the code as it is" in done.stderr


def test_the_table_fits_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for mistake in MISTAKES:
        assert mistake.made_in(mistake.file) != mistake.file.read_text(encoding="utf-8")


def test_no_rung_lacks_mistakes() -> None:
    tests = {test for mistake in MISTAKES for test in mistake.tests}
    for rung in implementations():
        assert [test for test in tests if re.search(rf"\b{rung}\]$", test)], rung


def test_the_page_shows_the_mistakes_of_every_chapter() -> None:
    page = (ROOT / "reference" / "break_it.md").read_text(encoding="utf-8")
    shown = re.findall(r'(?m)^:start-after: "\[(\w+)\]"$', page)
    assert shown == CHAPTERS
    titles = re.findall(r"(?m)^## (\d+\. .+)$", page)
    pages = [page for _, part in parts() for page in part]
    numbers = {name: pages.index(f"chapters/{name}") for name in shown}  # the first page has 0
    assert titles == [
        f"{number}. {text_of(name).splitlines()[0].removeprefix('# ')}"
        for name, number in numbers.items()
    ]


def text_of(chapter: str) -> str:
    """Return what a chapter says between its cells of code."""
    cells = notebooks.read(ROOT / "chapters" / f"{chapter}.ipynb")["cells"]
    return "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")


def test_the_page_says_what_is_true_of_each_chapter() -> None:
    for chapter in CHAPTERS:
        files = [mistake.file.stem for mistake in MISTAKES if chapter in mistake.chapters]
        assert len(files) >= 2 and chapter in files, chapter
        assert re.search(r"(?m)^##+ What breaks if$", text_of(chapter)), chapter


def test_a_mistake_may_change_several_places_and_lines(tmp_path: Path) -> None:
    one, two, three, four = read_table(
        "# a comment\n[attnlib/masks.py]\nwords: more | test_causal_masks 04_softmax\n"
        "- a\n-     b\n+ c\n- d\n+ e\n+ \n\n"
        "[attnlib/x.py numpy_dense torch_dense]\n"
        "others | test_causal_rows_begin_at_the_first_key[a,b]\n"
        "- a\n+ b\nagain | test_x.py::test_y\n+ c\n[04_softmax]\nof a cell\n- = 1\n+ = 2"
    )
    assert (one.words, one.chapters) == ("words: more", ("04_softmax",))
    assert one.edits == (("a\n    b", "c"), ("d", "e\n"))
    assert one.tests == ("tests/attnlib/test_mistakes_around.py::test_causal_masks",)
    name = "tests/attnlib/test_mistakes.py::test_causal_rows_begin_at_the_first_key"
    rungs = [f"{case}-{rung}" for case in "ab" for rung in ("numpy_dense", "torch_dense")]
    assert two.tests == tuple(f"{name}[{case}]" for case in rungs)
    assert three.edits == (("a", "c"),)
    assert three.tests[0] == "tests/attnlib/test_x.py::test_y[numpy_dense]"
    assert (four.file, four.tests) == (Path("chapters/04_softmax.ipynb"), ())
    (source := tmp_path / "x.py").write_text("x a\n    b y d")
    assert one.made_in(source) == "x c y e\n"
    cells = [{"cell_type": "markdown"}, {"cell_type": "code", "source": ["x = 1\n", "y"]}]
    (notebook := tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    assert json.loads(four.made_in(notebook))["cells"][1]["source"] == "x = 2\ny"


def test_of_each_chapter_the_first_is_made() -> None:
    first = first_of_each_chapter(MISTAKES)
    assert [name for mistake in first for name in mistake.chapters] == CHAPTERS
    assert [m.words for m in first if m.tests] == [m.words for m in MISTAKES if m.tests]


@pytest.mark.parametrize("text", ["axis=-1", "no such text"])
def test_a_text_that_moved_is_an_error(text: str) -> None:
    (mistake,) = read_table(f"words | attnlib/numpy_dense.py {TEST}\n- {text}\n+ axis=-2")
    with pytest.raises(TableError, match=r"numpy_dense.py: words: .* times, not once"):
        mistake.made_in(ROOT / mistake.file)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("words | test_causal_masks\n- a\n+ b", "no mistake in one file"),
        ("words | attnlib/masks.py\n- a\n+ b", "who must notice"),
        ("words | attnlib/masks.py test_causal_masks", "a change"),
        ("words | attnlib/masks.py test_causal_masks\n- a", "nothing takes the place"),
        ("words | attnlib/masks.py test_causal_masks\n+ a", "no text to change"),
        ("words | attnlib/masks.py test_of_nothing\n- a\n+ b", "test_of_nothing"),
    ],
)
def test_a_table_that_cannot_be_read(table: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_table(table)
