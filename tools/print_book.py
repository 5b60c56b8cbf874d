"""Print every page of the built book with Chromium and join them to one PDF: `make print`.

The PDF, `_build/attention-step-by-step.pdf`, has bookmarks for parts, pages and sections, page
numbers throughout, and links that lead within it.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, FloatObject, NameObject, NullObject

from tools import ROOT, parts

BOOK = ROOT / "_build" / "html"
PDF = ROOT / "_build" / "attention-step-by-step.pdf"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The sandbox needs rights that a container does not give; the pages are the book's own.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def chromium() -> str | None:
    """Return the system's Chromium, or None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def printed(browser: Any, file: Path, first: int) -> PdfReader:
    """Return a page of the book as a PDF whose page numbers begin with `first`."""
    # The page's own policy would refuse the style.
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    # Some pages are long, and a machine may be slow or busy.
    page.set_default_timeout(0)
    page.goto(file.as_uri())
    page.evaluate("document.fonts.ready.then(() => true)")
    page.add_style_tag(content=f"html {{ counter-reset: page {first - 1} }}")
    pdf = page.pdf(prefer_css_page_size=True, print_background=True, outline=True, tagged=True)
    context.close()
    return PdfReader(io.BytesIO(pdf))


class Book:
    """A PDF that grows by one page of the book at a time."""

    def __init__(self) -> None:
        self.writer = PdfWriter()
        self.places: dict[str, Any] = {}  # where a page of the book, or an anchor in it, stands
        self.links: list[tuple[Any, str]] = []
        self.part: Any = None

    def add(self, reader: PdfReader, address: str, part: str) -> None:
        """Add a page of the book, first of `part` if named; remember its anchors and its links."""
        first = len(self.writer.pages)
        self.writer.append(reader, import_outline=False)
        if part:
            self.part = self.writer.add_outline_item(title=part, page_number=first)
        self.add_bookmarks(reader, reader.outline, first, self.part)
        self.places[address] = self.place(first, None)
        for name, goal in reader.named_destinations.items():
            number = reader.get_destination_page_number(goal)
            self.places[f"{address}#{name.lstrip('/')}"] = self.place(
                first + (number or 0), goal.top
            )
        for sheet in self.writer.pages[first:]:
            for annotation in sheet.get("/Annots") or []:
                link = annotation.get_object()
                uri = link.get("/A", {}).get("/URI", "")
                if "/Dest" in link:
                    self.links.append((link, f"{address}#{str(link['/Dest']).lstrip('/')}"))
                elif uri.startswith("file:"):
                    self.links.append((link, uri))

    def add_bookmarks(self, reader: PdfReader, items: Any, first: int, parent: Any) -> None:
        """Add the headings of a page; pypdf has those below a heading in a list after it."""
        last = parent
        for item in items:
            if isinstance(item, list):
                self.add_bookmarks(reader, item, first, last)
            else:
                number = first + (reader.get_destination_page_number(item) or 0)
                last = self.writer.add_outline_item(
                    title=str(item.title), page_number=number, parent=parent
                )

    def place(self, number: int, top: Any) -> ArrayObject:
        """Return a place as PDF has it: a sheet, and how far up the window begins."""
        height = NullObject() if top is None else FloatObject(top)
        sheet = self.writer.pages[number].indirect_reference
        return ArrayObject([sheet, NameObject("/XYZ"), NullObject(), height, NullObject()])

    def join_links(self) -> None:
        """Let each link between the pages lead within the PDF: to its anchor, else to its page.

        A link to a page that is not in the PDF leads nowhere: its file is on this machine alone.
        """
        for link, goal in self.links:
            link.pop("/A", None)
            place = self.places.get(goal) or self.places.get(goal.partition("#")[0])
            if place is not None:
                link[NameObject("/Dest")] = place


def print_book(browser: Any) -> Book:
    """Return the whole book, printed page by page."""
    book = Book()
    for name, pages in parts():
        for page in pages:
            file = BOOK / f"{page}.html"
            reader = printed(browser, file, len(book.writer.pages) + 1)
            book.add(reader, file.as_uri(), name if page == pages[0] else "")
    book.join_links()
    return book


def main() -> int:
    """Print, say where the PDF is, and return the exit status."""
    program = chromium()
    if program is None:
        names = " or ".join(PROGRAMS[::2])
        print(f"No PDF: none of the commands {names} is there. Print a page from any browser.")
        return 0
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        book = print_book(browser)
        browser.close()
    book.writer.compress_identical_objects()
    book.writer.write(PDF)
    print(f"The whole book as a PDF of {len(book.writer.pages)} pages: {PDF}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
