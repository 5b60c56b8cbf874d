"""The reference pages: no empty row, links that lead to chapters and sections, terms that occur."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
import yaml
from honesty import PAGE_RULES

from tools import ROOT, chapters
from tools.counts import FIRST_VOLUME_MINUTES, counts, minutes_of_the_first_volume
from tools.notebooks import is_normalised, read

REFERENCE = ROOT / "reference"
PAGES = ("errata", "sources")
DOCUMENTS = (
    "The token-by-token notes",
    "The workshop post",
    "The five-token handout",
    "The short article",
    "The retrieval post",
)
LINK = re.compile(r"\[[^\]]+\]\([^)\s]+\)")


@cache
def text(page: str) -> str:
    return (REFERENCE / f"{page}.md").read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """Return the cells of each row of each table, without the two lines of its head."""
    found, table = [], 0
    for line in text(page).splitlines():
        table = table + 1 if line.startswith("|") else 0
        if table > 2:
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def glossary() -> dict[str, str]:
    """Return each term of the glossary with its definition."""
    body = text("glossary").split("```{glossary}\n")[1].split("\n```")[0]
    blocks = (block.partition("\n") for block in body.split("\n\n"))
    return {term: definition.strip() for term, _, definition in blocks}


@cache
def words_of(path: str) -> str:
    """Return what a chapter says, or the source of a module with a page of its own, in small."""
    if path.startswith("../chapters/"):
        return "\n".join(cell.source for cell in nbformat.read(REFERENCE / path, 4).cells).lower()
    module = ROOT / "attnlib" / Path(path).stem
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return file.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("page", PAGES)
def test_a_row_has_two_cells_of_which_the_second_leads_into_a_chapter(page: str) -> None:
    assert rows(page)
    for row in rows(page):
        assert len(row) == 2 and all(row) and "](../chapters/" in row[-1], row


@pytest.mark.parametrize("page", PAGES)
def test_every_document_has_its_section(page: str) -> None:
    written = re.findall(r"(?m)^#{2,3} (The .+)$", text(page))
    assert sorted(written) == sorted(DOCUMENTS)
    bibliography = (REFERENCE / "bibliography.md").read_text(encoding="utf-8")
    assert all(f"| t{name[1:]} |" in bibliography for name in DOCUMENTS)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_chapter_names_its_section(page: str) -> None:
    assert re.findall(r"\]\(\.\./chapters/[^)#]+\)", text(page)) == []
    assert re.findall(r"\[chapter \d+\]", text(page)) == []


def test_every_public_module_has_a_page_and_the_overview_leads_to_it() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    (listed,) = (
        [section["file"].removeprefix("reference/api/") for section in entry["sections"]]
        for part in toc["parts"]
        for entry in part["chapters"]
        if entry["file"] == "reference/api"
    )
    found = (ROOT / "attnlib").glob("[!_]*")
    public = {p.stem for p in found if p.suffix == ".py" or (p / "__init__.py").exists()}
    *modules, oracle, of_pages = listed
    assert {*modules} == public and (oracle, of_pages) == ("attncheck", "attnbook")
    assert re.findall(r"\]\(api/(\w+)\.md\)", text("api")) == [of_pages, oracle, *modules]
    for name in public:
        assert f"\n# attnlib.{name}\n" in text(f"api/{name}")


def test_every_term_of_the_glossary_occurs_in_what_its_entry_leads_to() -> None:
    """In the chapter that introduces it, or in the module that it is about."""
    assert len(glossary()) > 40
    for term, definition in glossary().items():
        places = re.findall(r"\]\((\.\./chapters/[^)]+|api/\w+\.md)\)", definition)
        assert places, f"{term} leads nowhere"
        for place in places:
            words = re.findall(r"[^\W\d]{3,}", term.lower())
            missing = [word for word in words if word.rstrip("s") not in words_of(place)]
            assert not missing, f"{place} does not say {missing} ({term})"


def test_glossary_is_in_alphabetical_order() -> None:
    assert list(glossary()) == sorted(glossary(), key=str.lower)


def questions() -> dict[str, str]:
    """Return each question of its page with the answer."""
    blocks = text("questions").split("\n### ")[1:]
    return {title: answer for title, _, answer, *_ in (block.split("\n") for block in blocks)}


def test_a_question_has_a_short_answer_and_a_link_to_what_shows_it() -> None:
    assert len(questions()) >= 30
    for question, answer in questions().items():
        words, links = LINK.sub("", answer), LINK.findall(answer)
        sentences = re.findall(r"[.?!](?=\s|$)", words)
        assert question.endswith("?") and 2 <= len(sentences) <= 3, question
        assert len(words.split()) <= 85 and links, question


def test_the_teachers_page_gives_the_minutes_of_each_page() -> None:
    row = r"\]\(\.\./(chapters/\w+)\.ipynb\) \| (\d+)(?: \+ (\d+))? \|"
    given = re.findall(row, text("teachers"))
    listed = [page for chapter, below in chapters().items() for page in (chapter, *below)]
    assert [page for page, *_ in given] == listed
    for page, *minutes in given:
        assert [int(n or 0) for n in minutes] == [*counts(read(ROOT / f"{page}.ipynb"))[-2:]], page


def test_the_first_volume_takes_as_long_as_the_first_page_says() -> None:
    page = (ROOT / "index.md").read_text(encoding="utf-8")
    assert "**Three hours**" in page and FIRST_VOLUME_MINUTES == 3 * 60
    assert FIRST_VOLUME_MINUTES - 30 < minutes_of_the_first_volume() <= FIRST_VOLUME_MINUTES


@pytest.mark.parametrize("rule", PAGE_RULES)
@pytest.mark.parametrize("page", ["asked", "atlas", "lab"])
def test_a_notebook_keeps_rule(page: str, rule: str) -> None:
    path = REFERENCE / f"{page}.ipynb"
    assert PAGE_RULES[rule](read(path)) == []
    assert is_normalised(path)


def test_the_five_lines_of_the_one_sheet_are_those_of_chapter_5() -> None:
    lines = text("one_sheet").split("```python\n")[1].split("```")[0].strip()
    cells = [c.source for c in nbformat.read(ROOT / "chapters" / "05_output.ipynb", 4).cells]
    assert len(lines.splitlines()) == 5 and lines in cells
