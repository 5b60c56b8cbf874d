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

NAMES = ("accessible_pages", "book_pages", "docstrings", "plain_search", "static_math")


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def build(
    folder: Path, text: str, *extensions: str, katex: bool = True, more: str = ""
) -> tuple[int, str]:
    """Build a book of one page; the exit status and all that was said."""
    page, content = folder / "index.rst", f"Title\n=====\n\n{text}\n"
    # A page that did not change is not read again.
    if not page.exists() or page.read_text(encoding="utf-8") != content:
        page.write_text(content, encoding="utf-8")
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / '_ext')!r})\n"
        f"extensions = {extensions!r}\n{more}\n",
        encoding="utf-8",
    )
    installed = ROOT / "node_modules"
    if katex:
        if not (installed / "katex").is_dir():
            pytest.skip("KaTeX is not installed: run `make book`")
        if not (folder / "node_modules").exists():
            (folder / "node_modules").symlink_to(installed)
    command = [sys.executable, "-m", "sphinx", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_formulas_are_html_when_the_page_is_built(tmp_path: Path) -> None:
    status, said = build(
        tmp_path,
        r"Let :math:`x^2` be." + "\n\n.. math::\n   :label: one\n\n   y = \\sqrt{x}\n",
        "static_math",
    )
    assert status == 0, said
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count('class="katex-html"') == 2
    assert 'id="equation-one"' in page and ">(1)<" in page
    assert "mathjax" not in page.lower()
    fonts = list((tmp_path / "out" / "_static" / "katex" / "fonts").iterdir())
    assert {font.suffix for font in fonts} == {".woff2"}
    style = (tmp_path / "out" / "_static" / "katex" / "katex.min.css").read_text(encoding="utf-8")
    assert ".woff2" in style and ".ttf" not in style and ".woff)" not in style


def test_a_formula_that_cannot_be_read_fails_each_build(tmp_path: Path) -> None:
    wrong = (r"\undefined{x}", r"\frac{a}{", "é")
    text = "Good :math:`x`.\n\n" + "".join(f".. math::\n\n   {tex}\n\n" for tex in wrong)
    for _ in range(2):  # the second build must not take the first one's page as good
        status, said = build(tmp_path, text, "static_math")
        assert status != 0
        # Each of the three with its line; a paragraph and two lines stand above the first.
        assert [f"index.rst:{line}: ERROR: formula" in said for line in (6, 10, 14)] == [True] * 3
        assert "formulas that KaTeX cannot read in: index" in said
    status, said = build(tmp_path, "Good :math:`x`.", "static_math")
    assert status == 0, said


def test_missing_katex_is_one_clear_line(tmp_path: Path) -> None:
    status, said = build(tmp_path, "Good :math:`x`.", "static_math", katex=False)
    assert status != 0
    assert "KaTeX was not found" in said and "run `make book`" in said
    assert "Traceback" not in said


def test_missing_node_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    static_math = importlib.import_module("static_math")
    errors = importlib.import_module("sphinx.errors")
    monkeypatch.setattr(static_math.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(errors.ExtensionError, match="Node was not found: run `make book`"):
        static_math.find_node()


def resolved(*children: nodes.Node) -> nodes.document:
    """A document of one section with a title."""
    document = nodes.document(None, None)
    document += nodes.section("", nodes.title("", "Shapes"), *children)
    return document


def test_a_comma_stays_with_its_formula() -> None:
    accessible_pages = importlib.import_module("accessible_pages")
    formula, alone = nodes.math("", "x"), nodes.math("", "y")
    paragraph = nodes.paragraph(
        "", "", nodes.Text("Say ("), formula, nodes.Text("), so 5 % of "), alone, nodes.Text(" is")
    )
    document = resolved(paragraph)
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
    status, said = build(tmp_path, f"{table}\n\n{numbers}", "accessible_pages", katex=False)
    assert status == 0, said
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("Title: letter, code, shape, meaning</caption>") == 2
    assert page.index("book-prose") < page.index("book-numbers")


def test_works_of_the_bibliography_are_a_list(tmp_path: Path) -> None:
    text = "See [A]_ and [B]_.\n\n.. [A] One.\n.. [B] Two.\n"
    status, said = build(tmp_path, text, "accessible_pages", katex=False)
    assert status == 0, said
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count('role="list"') == 1 and page.count('role="listitem"') == 2
    assert "doc-biblioentry" not in page


def test_the_index_leads_to_sections_and_names_what_leads_nowhere(tmp_path: Path) -> None:
    text = "Section one\n-----------\n\nText.\n"
    terms = {"index#section-one": ["Zebra"], "index#two": ["Lion"], "nowhere": ["Gnu"]}
    more = f"search_terms = {terms}"
    (tmp_path / "out").mkdir(parents=True)
    status, said = build(tmp_path, text, "plain_search", katex=False, more=more)
    assert status == 0, said
    assert "index has no section two" in said and "there is no page nowhere" in said
    index = (tmp_path / "out" / "searchindex.js").read_text(encoding="utf-8")
    assert '"zebra": [[0, "section-one", true]]' in index
