"""On paper: the whole book as one page, and each page of the website as a browser prints it."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the book's packages are not installed")

from tests.site.conftest import ROOT, OpenPage, chapters, pages
from tests.site.test_links import read
from tools import print_book

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


class _Counter(HTMLParser):
    """Counts, page by page, what the website or the one page shows, and collects its words."""

    def __init__(self, html: str, page: str = "") -> None:
        super().__init__()
        self.page = page
        self.counts: dict[str, dict[str, int]] = {page: {}}
        self.titles: list[str] = []
        self.words: list[str] = []
        self.silent: list[str] = []
        self.heading: str | None = None
        self.feed(html)

    def count(self, what: str) -> None:
        """One more."""
        counts = self.counts.setdefault(self.page, {})
        counts[what] = counts.get(what, 0) + 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        classes = values.get("class", "").split()
        if values.get("id", "").startswith("document-"):
            self.page = values["id"].removeprefix("document-")
        for name in ("katex-html", "attn-figure", "attn-moving", "cell_input", "math-block"):
            if name in classes:
                self.count(name)
        if tag in ("script", "details", "h2"):
            self.count(tag)
        if tag == "h2":
            self.titles.append("")
            self.heading = tag
        if tag not in VOID and (
            self.silent or tag in ("pre", "code", "script", "style") or "katex" in classes
        ):
            self.silent.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.silent:
            self.silent.pop()
        if tag == self.heading:
            self.heading = None

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.words.append(data)
        if self.heading:
            self.titles[-1] += data


@pytest.fixture(scope="module")
def one_page(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one page, built from what the website's build has read already."""
    folder = tmp_path_factory.mktemp("print")
    doctrees = folder / "doctrees"
    if (book.parent / ".doctrees").is_dir():
        shutil.copytree(book.parent / ".doctrees", doctrees)
    code = (
        "import sys, pathlib; from tools.print_book import build_page; "
        "build_page(*map(pathlib.Path, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, str(folder / "page"), str(doctrees)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "page" / "index.html"


@cache
def counted(path: Path, page: str = "") -> _Counter:
    return _Counter(path.read_text(encoding="utf-8"), page)


def test_every_page_of_the_book_is_there_in_order(one_page: Path, book: Path) -> None:
    found = counted(one_page)
    assert [page for page in found.counts if page] == pages()
    titles = iter(found.titles)
    for name in pages()[1:]:
        title = re.search(r"<h1>(.*?)<a class=\"headerlink\"", (book / f"{name}.html").read_text())
        assert title, name
        words = re.sub(r"<[^>]*>", "", title[1]).strip()
        assert any(one.removesuffix("#").strip() == words for one in titles), words


@pytest.mark.parametrize("name", pages())
def test_nothing_of_a_page_is_lost(one_page: Path, book: Path, name: str) -> None:
    there = counted(book / f"{name}.html", name).counts[name]
    here = counted(one_page).counts[name]
    for what in ("katex-html", "attn-figure", "attn-moving", "math-block"):
        assert here.get(what, 0) == there.get(what, 0), what
    # All cells but the one that sets a notebook up.
    has_set_up = (ROOT / f"{name}.ipynb").is_file()
    assert here.get("cell_input", 0) == there.get("cell_input", 0) - has_set_up
    assert not here.get("script") and not here.get("details")


def test_ids_are_unique_and_anchors_resolve(one_page: Path) -> None:
    page = read(one_page)
    assert sorted({one for one in page.ids if page.ids.count(one) > 1}) == []
    within = [link[1:] for _, link in page.links if link.startswith("#")]
    assert len(within) > 500
    assert sorted(set(within) - set(page.ids)) == []
    text = one_page.read_text(encoding="utf-8")
    for named in re.findall(r"(?:aria-labelledby|aria-describedby)=\"([^\"]+)\"", text):
        assert set(named.split()) <= set(page.ids), named
    assert {*re.findall(r"url\(#([^)]+)\)", text)} <= set(page.ids)


def test_it_needs_nothing_but_the_files_beside_it(one_page: Path) -> None:
    for tag, link in read(one_page).links:
        if tag == "a":
            assert link.startswith(("#", "https://", "mailto:")), link
        else:
            assert (one_page.parent / link).is_file(), link
    assert "src=" not in re.sub(r"<pre>.*?</pre>", "", one_page.read_text(), flags=re.DOTALL)


def test_no_formula_is_left_as_text_on_paper(one_page: Path) -> None:
    words = "".join(counted(one_page).words)
    for raw in ("$$", r"\(", r"\[", r"\begin{", r"\frac", r"\sqrt", "katex-error"):
        assert raw not in words
    assert "katex-error" not in one_page.read_text(encoding="utf-8")


def test_solutions_stand_open_under_their_names(one_page: Path) -> None:
    names = re.findall(r'<p class="print-name">([^<]*)</p>', one_page.read_text(encoding="utf-8"))
    assert len(names) >= 3 * len(chapters())
    assert all(name.startswith("Solution") for name in names), set(names)


def test_what_leads_nowhere_is_found() -> None:
    page = importlib.import_module("one_page")
    assert page.problems('<b id="x"></b><b id="x"></b><a href="#y"></a>') == [
        "id x stands 2 times",
        "no id y",
    ]


@pytest.fixture
def small_page(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "index.html").write_text(
        "<!DOCTYPE html><html lang=en><title>Book</title><h1>One</h1><p>a</p>"
        "<h2 style='break-before: page'>Two</h2><p>b</p></html>",
        encoding="utf-8",
    )
    yield tmp_path


def test_the_pdf_has_bookmarks_and_tags(browser: Any, small_page: Path) -> None:
    # The browser of these tests is the second in this process, so it prints in one of its own.
    code = (
        "import sys, pathlib; from tools.print_book import print_page; "
        "print_page(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(small_page)], cwd=ROOT, check=True)
    pdf = (small_page / print_book.PDF).read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Outlines" in pdf and b"/StructTreeRoot" in pdf
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 2


def test_no_chromium_is_said_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(print_book, "build_page", lambda: None)
    assert print_book.main() == 0
    said = capsys.readouterr().out
    assert "No PDF: none of the commands chromium or google-chrome is there" in said


def test_a_page_that_is_not_built_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("the page was not built: 1")

    monkeypatch.setattr(print_book, "build_page", fail)
    assert print_book.main() == 1
    assert capsys.readouterr().err == "Cannot print: the page was not built: 1\n"


@pytest.mark.slow
def test_a_page_of_the_website_is_printed_in_ink_on_white(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling", theme="dark").page
    page.evaluate(
        """() => {
          window.printed = [];
          addEventListener("beforeprint", () => window.printed.push([
            document.documentElement.dataset.theme,
            document.querySelectorAll("details.hide:not([open])").length,
          ]));
        }"""
    )
    closed = page.locator("details.hide:not([open])").count()
    assert closed >= 4
    page.pdf()
    assert page.evaluate("window.printed") == [["light", 0]]
    # After it everything is as it was.
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("details.hide:not([open])").count() == closed

    page.emulate_media(media="print")
    for gone in (".bd-sidebar-primary", ".bd-header-article", ".attn-controls", ".headerlink"):
        for element in page.locator(gone).all():
            assert not element.is_visible(), gone
    assert page.locator("figure svg").first.is_visible()
    broken = page.evaluate(
        """[...document.querySelectorAll('.attn-figure, .math-block, div.cell_output')]
           .filter((box) => getComputedStyle(box).breakInside !== 'avoid').length"""
    )
    assert broken == 0


# What the margins leave of an A4 sheet, at 96 pixels an inch.
SHEET = {"the one page": 627, "a page of the website": 642}
WIDTH = "document.documentElement.scrollWidth"


@pytest.mark.slow
def test_the_one_page_is_as_wide_as_its_sheet(browser: Any, one_page: Path) -> None:
    # A browser prints a page that is wider in smaller letters, all of it. One pixel is a formula's
    # words for screen readers at the end of a line.
    width = SHEET["the one page"]
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.emulate_media(media="print")
    page.goto(one_page.as_uri(), timeout=120_000)
    assert page.evaluate(WIDTH) <= width + 1
    context.close()


@pytest.mark.parametrize("name", pages())
def test_a_page_of_the_website_is_as_wide_as_its_sheet(open_page: OpenPage, name: str) -> None:
    width = SHEET["a page of the website"]
    page = open_page(name, width=width).page
    page.emulate_media(media="print")
    assert page.evaluate(WIDTH) <= width
