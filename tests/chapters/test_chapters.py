"""Every chapter keeps every rule of `honesty`, and the chapters are those of the contents."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from honesty import RULES
from honesty.cells import Notebook, code_cells, shown
from honesty.content import equation_labels

from tools import ROOT, parts
from tools.notebooks import is_normalised, read

CHAPTERS = [page for _, part in parts() for page in part if page.startswith("chapters/")]


def path_of(chapter: str) -> Path:
    return ROOT / f"{chapter}.ipynb"


@cache
def notebook(chapter: str) -> Notebook:
    """Return a chapter, which is read once for all rules."""
    return read(path_of(chapter))


def test_contents_and_folder_list_the_same_chapters() -> None:
    on_disk = {f"chapters/{path.stem}" for path in (ROOT / "chapters").glob("*.ipynb")}
    assert set(CHAPTERS) == on_disk
    assert len(CHAPTERS) == len(on_disk)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_keeps_rule(chapter: str, rule: str) -> None:
    faults = RULES[rule](notebook(chapter))
    assert not faults, "\n".join([f"{chapter}.ipynb:", *faults])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_file_is_normalised(chapter: str) -> None:
    assert is_normalised(path_of(chapter))


def test_a_label_belongs_to_one_equation_of_the_book() -> None:
    labels = Counter(label for c in CHAPTERS for label in equation_labels(notebook(c)))
    assert labels
    assert {label: count for label, count in labels.items() if count > 1} == {}


def test_a_stored_output_names_the_pinned_version_of_triton() -> None:
    """What a compiler made of a kernel is not compared, so at least its version must be right."""
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    [pinned] = re.findall(r"(?m)^triton==([\d.]+)", requirements)
    named = {
        version
        for chapter in CHAPTERS
        for _, cell in code_cells(notebook(chapter))
        for version in re.findall(r"Triton (\d[\d.]*\d)", shown(cell))
    }
    assert named == {pinned}
