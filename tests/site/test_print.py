"""On paper: each page of the website as a browser prints it, and the whole book as a PDF."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from tests.site.conftest import ROOT, OpenPage, pages
from tools import poster, print_book


def test_the_pdf_has_pages_bookmarks_and_links_within(browser: Any, tmp_path: Path) -> None:
    # The browser of these tests is the second in this process, so it prints in one of its own.
    code = (
        "import sys, pathlib; from tools import print_book as p; "
        "p.PDF = pathlib.Path(sys.argv[1]); "
        "p.parts = lambda: [('Part', ['chapters/01_lookup', 'chapters/03_scaling'])]; "
        "sys.exit(p.main())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "book.pdf")]
    subprocess.run(command, cwd=ROOT, check=True)
    reader = PdfReader(tmp_path / "book.pdf")
    part, [first, *_, chapter, sections] = reader.outline
    assert (part.title, chapter.title) == ("Part", "3. Why √dₖ, and not dₖ")
    assert sections[0].title.startswith("A hundred times")
    number = reader.get_destination_page_number(chapter)
    words = reader.pages[number].extract_text().split()
    # Numbered throughout, and the link to chapter 1 leads to its sheet of this very file.
    assert str(number + 1) in (words[0], words[-1])
    links = [one.get_object() for page in reader.pages for one in page.get("/Annots", ())]
    # Most pages are not in this file. A link to them would name a folder of the printing machine.
    assert not any("file:" in str(link.get("/A", "")) for link in links)
    goals = [link["/Dest"][0].get_object() for link in links if "/Dest" in link]
    assert reader.pages[reader.get_destination_page_number(first)].get_object() in goals


def test_a_page_is_printed_in_ink_on_white_with_its_solutions(open_page: OpenPage) -> None:
    page = open_page("chapters/03_scaling", theme="dark").page
    solution = page.locator("details.hide", has_text="Solution").first
    assert not solution.locator("pre").first.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    for gone in (".sidebar-drawer", ".mobile-header", ".attn-controls", ".headerlink", ".copybtn"):
        for element in page.locator(gone).all():
            assert not element.is_visible(), gone
    page.locator("figure svg").first.wait_for()
    assert solution.locator("pre").first.evaluate("code => code.getBoundingClientRect().height") > 9
    colours = "part => [getComputedStyle(part).color, getComputedStyle(document.body).background]"
    ink, paper = page.locator("article p").first.evaluate(colours)
    assert ink == "rgb(31, 41, 51)" and "rgb(255, 255, 255)" in paper


def test_the_stored_posters_are_the_front_of_the_sheet(
    browser: Any, book: Path, tmp_path: Path
) -> None:
    front, back = print_book.printed(browser, book / "reference/one_sheet.html", 1).pages
    assert "softmax" in front.extract_text() and "fast memory" in back.extract_text()
    for (width, height), file in zip(
        ((210, 297), (297, 420)), poster.posters(browser, tmp_path), strict=True
    ):
        [side], [stored] = PdfReader(file).pages, PdfReader(poster.PLACE / file.name).pages
        for page in (side, stored):
            assert [round(float(edge) / 72 * 25.4) for edge in page.mediabox[2:]] == [width, height]
        words, anew = ("".join(page.extract_text().split()) for page in (stored, side))
        assert words == anew, "make poster"
        assert not stored.get("/Annots"), "a link would name a folder of this machine"


def test_nothing_on_the_poster_leaves_its_box_or_is_small(open_page: OpenPage) -> None:
    page = open_page("reference/one_sheet", width=710).page  # 188 mm, what the margins leave of A4
    page.emulate_media(media="print")
    texts = page.evaluate("""() => [...document.querySelectorAll(
      "#attention-on-one-sheet > section:not(#more-formulas) :is(svg text, p, .katex-html)"
    )].filter((part) => part.checkVisibility()).map((part) => {
      const box = part.closest(".attn-figure, section").getBoundingClientRect();
      const { left, right, top, bottom } = part.getBoundingClientRect();
      const scale = part.closest("svg")?.getScreenCTM().a ?? 1;
      const inside = box.width === 0 || (left > box.left - 1 && right < box.right + 1
        && top > box.top - 1 && bottom < box.bottom + 2);
      return [part.textContent, inside, scale * parseFloat(getComputedStyle(part).fontSize)];
    })""")
    assert len(texts) > 100
    for words, inside, size in texts:
        # A3 is larger than A4 by √2, and a pixel is 0.75 points: 14 points or more.
        assert inside and size * 0.75 * 2**0.5 >= 14, (words, size)


@pytest.mark.parametrize("name", pages())
def test_a_page_is_as_wide_as_its_sheet(open_page: OpenPage, name: str) -> None:
    # What the margins leave of an A4 sheet; a browser prints what is wider in smaller letters.
    width = 642
    page = open_page(name, width=width).page
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
