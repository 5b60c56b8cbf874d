"""Print the front of "Attention on one sheet" as a poster, for A3 and for A4: `make poster`.

The two PDFs are kept beside the page that offers them, as `reference/poster_a3.pdf` and so on: who
builds the book needs no Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pypdf import PdfWriter

from tools import ROOT
from tools.print_book import BOOK, FLAGS, chromium, printed

# Points; the sides of both have the same ratio, so one layout serves both.
SIZES = {"a4": (595.28, 841.89), "a3": (841.89, 1190.55)}
PLACE = ROOT / "reference"


def posters(browser: Any, folder: Path) -> list[Path]:
    """Print the front of the sheet, write it in each size, and return the files."""
    sheet, files = printed(browser, BOOK / "reference" / "one_sheet.html", 1), []
    for size, sides in SIZES.items():
        writer = PdfWriter()
        writer.append(sheet, pages=(0, 1))
        writer.remove_links()  # they lead to files of this machine
        writer.pages[0].scale_to(*sides)
        writer.pages[0].compress_content_streams()
        writer.add_metadata({"/Title": "Attention on one sheet"})
        writer.compress_identical_objects(remove_unreferenced=True)
        files.append(folder / f"poster_{size}.pdf")
        writer.write(files[-1])
    return files


def main() -> int:
    """Print, say where the posters are, and return the exit status."""
    program = chromium()
    if program is None:
        print("No poster: it needs Chromium.", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        files = posters(browser, PLACE)
        browser.close()
    print("The poster:", *files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
