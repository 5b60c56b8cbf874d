"""Chapters and the pages below them are those of the contents, and keep the rules of `honesty`."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from honesty import CHAPTER_RULES, PAGE_RULES
from honesty.cells import Notebook
from honesty.content import equation_labels, page_has_its_size

from tools import ROOT, chapters, parts
from tools.counts import limit_of
from tools.notebooks import is_normalised, read

PAGES = [page for _, part in parts() for page in part if page.startswith("chapters/")]


def path_of(page: str) -> Path:
    return ROOT / f"{page}.ipynb"


@cache
def notebook(page: str) -> Notebook:
    """Return a page, which is read once for all rules."""
    return read(path_of(page))


def test_contents_and_folder_list_the_same_pages() -> None:
    on_disk = [f"chapters/{path.stem}" for path in (ROOT / "chapters").glob("*.ipynb")]
    assert sorted(PAGES) == sorted(on_disk)


@pytest.mark.parametrize("rule", PAGE_RULES)
@pytest.mark.parametrize("page", PAGES)
def test_page_keeps_rule(page: str, rule: str) -> None:
    faults = PAGE_RULES[rule](notebook(page))
    assert not faults, "\n".join([f"{page}.ipynb:", *faults])


@pytest.mark.parametrize("rule", CHAPTER_RULES)
@pytest.mark.parametrize("chapter", chapters())
def test_chapter_keeps_rule(chapter: str, rule: str) -> None:
    faults = CHAPTER_RULES[rule](notebook(chapter))
    assert not faults, "\n".join([f"{chapter}.ipynb:", *faults])


@pytest.mark.parametrize("page", PAGES)
def test_page_has_its_size(page: str) -> None:
    faults = page_has_its_size(notebook(page), limit_of(page))
    assert not faults, "\n".join([f"{page}.ipynb:", *faults])


def test_chapter_and_page_below_lead_to_each_other() -> None:
    """The page does so in its first lines, where it says who needs it."""
    for chapter, below in chapters().items():
        text = "".join(c["source"] for c in notebook(chapter)["cells"] if "outputs" not in c)
        for page in below:
            assert page[:11] == chapter[:11], f"{page} has the number of its chapter"
            said = notebook(page)["cells"][0]["source"].split("\n")[2]
            assert f"]({path_of(chapter).name}" in said, f"{page}: {said}"
            assert f"]({path_of(page).name}" in text, f"{chapter} does not lead to {page}"


@pytest.mark.parametrize("page", PAGES)
def test_file_is_normalised(page: str) -> None:
    assert is_normalised(path_of(page))


def test_a_label_belongs_to_one_equation_of_the_book() -> None:
    labels = Counter(label for page in PAGES for label in equation_labels(notebook(page)))
    assert labels
    assert {label: count for label, count in labels.items() if count > 1} == {}
