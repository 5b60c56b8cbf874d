"""Questions from memory: each chapter asks some of its own and two of earlier chapters."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest
from honesty.cells import code_cells, tags
from honesty.content import FILLER

from attnbook import quiz
from tools import ROOT, chapters
from tools.notebooks import QUIZ_TAG, Notebook, read

NAMES = [Path(chapter).name for chapter in chapters()]
FEWEST, MOST = 4, 6


def notebook(name: str) -> Notebook:
    return read(ROOT / "chapters" / f"{name}.ipynb")


def quiz_cells(name: str, tag: str) -> list[str]:
    return [
        cell["source"]
        for _, cell in code_cells(notebook(name))
        if {QUIZ_TAG, tag} <= set(tags(cell))
    ]


def test_every_chapter_has_questions() -> None:
    assert quiz.chapters() == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_shows_its_own_and_two_of_earlier_ones(name: str) -> None:
    shown = "\n".join(quiz_cells(name, "remove-input"))
    assert re.findall(r"quiz\.(\w+)\(\"(\w+)\"\)", shown) == [
        *([("again", name)] if NAMES.index(name) >= 2 else []),
        ("questions", name),
    ]
    asked = quiz.earlier(name)
    assert len(asked) == (2 if NAMES.index(name) >= 2 else 0)
    assert len({question.text for _, question in asked}) == len(asked)
    assert all(NAMES.index(other) < NAMES.index(name) for other, _ in asked)


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_computed(name: str) -> None:
    """A cell of the chapter asserts what it computed against each right answer."""
    asserts = re.findall(
        r"(?m)^ *assert .+(?:\n[ )].*)*", "\n".join(quiz_cells(name, "remove-cell"))
    )
    computed = {one for text in asserts for one in re.findall(r'right\["(\w+)"\]', text)}
    assert computed == set(quiz.of_chapter(name))


@pytest.mark.parametrize("name", NAMES)
def test_questions_are_well_made(name: str) -> None:
    asked = quiz.of_chapter(name)
    assert FEWEST <= len(asked) <= MOST
    for question in asked.values():
        texts = [question.text, question.answer, question.why, *question.wrong]
        texts += question.wrong.values()
        assert 2 <= len(question.wrong) <= 4 and question.answer not in question.wrong
        assert all(len(reason.split()) >= 4 for reason in question.wrong.values())
        assert all(text == text.strip() and "!" not in text for text in texts)
        assert not any(FILLER.search(text) or "$" in text for text in texts)
    places = {question.options().index(question.answer) for question in asked.values()}
    assert len(places) > 1, "the right answer always has the same place"


def test_the_right_answer_has_no_favourite_place() -> None:
    asked = [each for name in NAMES for each in quiz.of_chapter(name).values()]
    places = Counter(each.options().index(each.answer) for each in asked if len(each.wrong) == 2)
    assert min(places[n] for n in range(3)) > places.total() / 5


def test_what_is_shown() -> None:
    [first, *_] = quiz.of_chapter("03_scaling").values()
    html = quiz.questions("03_scaling")._repr_html_()
    assert f"<summary>{first.answer}</summary><p>Yes. {first.why}</p>" in html
    assert quiz.answers("03_scaling")[first.name] == first.answer
    for option, reason in first.wrong.items():
        assert f"<summary>{option}</summary><p>No. {reason}</p>" in html
    assert "Before you begin: 2 questions from" in repr(quiz.again("03_scaling"))


def test_the_command_prints_the_stored_deck(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(quiz.__file__, run_name="__main__")
    stored = (ROOT / "reference" / "attention.txt").read_text(encoding="utf-8")
    assert stored == capsys.readouterr().out, "python -m attnbook.quiz > reference/attention.txt"
