"""Photograph every figure of the built book in every view, on one sheet: `make sheet`.

The sheet, `_build/sheet/index.html`, has a row for each figure and a column for each view: as it
opens on a desktop, its first and its last frame, in the dark, on a phone, and in print.
"""

from __future__ import annotations

import shutil
import sys
from html import escape
from typing import Any

from tools import ROOT, parts
from tools.print_book import BOOK, FLAGS, chromium

SHEET = ROOT / "_build" / "sheet"
# Width, theme and medium of the page, and the place of all controls: 0, or -1 for their last.
VIEWS: dict[str, tuple[int, str, str, int | None]] = {
    "desktop": (1280, "light", "screen", None),
    "first": (1280, "light", "screen", 0),
    "last": (1280, "light", "screen", -1),
    "dark": (1280, "dark", "screen", None),
    "phone": (360, "light", "screen", None),
    "print": (794, "light", "print", None),  # A4 at 96 dots an inch
}
SET = """(figure, place) => {
  for (const input of figure.querySelectorAll("input, select")) {
    input.value = place < 0 ? (input.options?.length - 1 || input.max) : place;
    input.dispatchEvent(new Event("input"));
  }
}"""


def photograph(browser: Any, page: str, view: str) -> list[str]:
    """Store a picture of each figure of a page in a view; return the names of the files."""
    width, theme, medium, place = VIEWS[view]
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    context.add_init_script("localStorage['attention-answers'] = 'all'")
    tab = context.new_page()
    tab.goto((BOOK / f"{page}.html").as_uri())
    tab.emulate_media(media=medium)
    files = []
    for number, figure in enumerate(tab.locator("article .attn-figure").all(), start=1):
        if place is not None:
            figure.evaluate(SET, place)
        files.append(f"{page.replace('/', '-')}-{number}-{view}.png")
        figure.screenshot(path=SHEET / files[-1])
    context.close()
    return files


def main() -> int:
    """Photograph, say where the sheet is, and return the exit status."""
    program = chromium()
    if program is None:
        print("No sheet: it needs Chromium.", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    shutil.rmtree(SHEET, ignore_errors=True)
    SHEET.mkdir(parents=True)
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for page in (page for _, pages in parts() for page in pages):
            if "attn-figure" not in (BOOK / f"{page}.html").read_text(encoding="utf-8"):
                continue
            for files in zip(*(photograph(browser, page, view) for view in VIEWS), strict=True):
                cells = "".join(f'<td><img src="{file}" alt="" loading="lazy">' for file in files)
                rows.append(f"<tr><th>{escape(page)}{cells}")
        browser.close()
    head = "".join(f"<th>{view}" for view in VIEWS)
    style = "img{max-width:22rem} td,th{vertical-align:top;border-bottom:1px solid #999}"
    page = f"<!doctype html><meta charset=utf-8><title>Figures</title><style>{style}</style>"
    table = f"<table><tr><th>{head}{''.join(rows)}</table>"
    (SHEET / "index.html").write_text(page + table, encoding="utf-8")
    print(f"{len(rows)} figures in {len(VIEWS)} views: {SHEET / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
