"""The book's own extensions: what they change, and how a build that must fail fails."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the book's packages are not installed")

from docutils import nodes

from tests.site.conftest import ROOT

NAMES = (
    "accessible_pages", "book_pages", "docstrings", "plain_search", "source_links", "static_math",
)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def build(
    folder: Path, text: str, extension: str, *, katex: bool = False, more: str = ""
) -> tuple[int, str]:
    """Build a book of one page; the exit status and all that was said."""
    page, content = folder / "index.rst", f"Title\n=====\n\n{text}\n"
    # A page that did not change is not read again.
    if not page.exists() or page.read_text(encoding="utf-8") != content:
        page.write_text(content, encoding="utf-8")
    settings = f"import sys\nsys.path.insert(0, {str(ROOT / 'tools' / 'site')!r})\n"
    settings += f"extensions = [{extension!r}]\n{more}\n"
    (folder / "conf.py").write_text(settings, encoding="utf-8")
    if katex and not (folder / "tools").exists():
        if not (ROOT / "tools" / "node" / "node_modules" / "katex").is_dir():
            pytest.skip("KaTeX is not installed: run `make book`")
        (folder / "tools").mkdir()
        (folder / "tools" / "node").symlink_to(ROOT / "tools" / "node")
    command = [sys.executable, "-m", "sphinx", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_formula_that_cannot_be_read_fails_each_build(tmp_path: Path) -> None:
    wrong = (r"\undefined{x}", r"\frac{a}{", "é")
    text = "Good :math:`x`.\n\n" + "".join(f".. math::\n\n   {tex}\n\n" for tex in wrong)
    for _ in range(2):  # the second build must not take the first one's page as good
        status, said = build(tmp_path, text, "static_math", katex=True)
        assert status != 0
        # Each of the three with its line; a paragraph and two lines stand above the first.
        assert [f"index.rst:{line}: ERROR: formula" in said for line in (6, 10, 14)] == [True] * 3
        assert "formulas that KaTeX cannot read in: index" in said
    status, said = build(tmp_path, "Good :math:`x`.", "static_math", katex=True)
    assert status == 0, said


def test_a_comma_stays_with_its_formula() -> None:
    accessible_pages = importlib.import_module("accessible_pages")
    texts = [nodes.Text(words) for words in ("Say (", "), so 5 % of ", " is")]
    formula, alone = nodes.math("", "x"), nodes.math("", "y")
    paragraph = nodes.paragraph("", "", texts[0], formula, texts[1], alone, texts[2])
    document = nodes.document(None, None)
    document += nodes.section("", nodes.title("", "Shapes"), paragraph)
    accessible_pages.keep_together(None, document, "")
    before, kept, between, left, after = paragraph.children
    assert (before, between, after) == ("Say ", " so 5\u00a0% of ", " is")
    assert kept["classes"] == ["book-kept"] and kept.children == ["(", formula, "),"]
    assert left is alone


def test_a_table_is_named_and_sorted(tmp_path: Path) -> None:
    cells = ["letter", "code", "shape", "meaning"]
    wordy = ["T", "n", "1", "the length of the sequence in tokens"]
    rows = "\n".join("   * - " + "\n     - ".join(row) for row in (cells, wordy))
    table = f".. list-table::\n   :header-rows: 1\n\n{rows}\n"
    numbers = table.replace(wordy[-1], "17")
    status, said = build(tmp_path, f"{table}\n\n{numbers}", "accessible_pages")
    assert status == 0, said
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("Title: letter, code, shape, meaning</caption>") == 2
    assert page.index("book-prose") < page.index("book-numbers")


def test_the_index_leads_to_sections_and_names_what_leads_nowhere(tmp_path: Path) -> None:
    text = "Section one\n-----------\n\nText.\n"
    terms = {"index#section-one": ["Zebra"], "index#two": ["Lion"], "nowhere": ["Gnu"]}
    more = f"search_terms = {terms}"
    (tmp_path / "out").mkdir(parents=True)
    status, said = build(tmp_path, text, "plain_search", more=more)
    assert status == 0, said
    assert "index has no section two" in said and "there is no page nowhere" in said
    index = (tmp_path / "out" / "searchindex.js").read_text(encoding="utf-8")
    assert '"zebra": [[0, "section-one", true]]' in index
