"""Make the whole book one page, and a PDF of it where a Chromium is installed: `make print`.

The page is `_build/print/index.html`, to be read without a network; the PDF stands beside it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRINT = ROOT / "_build" / "print"
PDF = "attention-step-by-step.pdf"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The sandbox needs rights that a container does not give; the page is the book's own.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def build_page(folder: Path = PRINT, doctrees: Path | None = None) -> None:
    """Build the page and what it needs in a folder.

    Raises:
        RuntimeError: the book has an error or a warning; Sphinx has said which.
    """
    from jupyter_book.sphinx import build_sphinx

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    status = build_sphinx(
        str(ROOT),
        str(folder),
        doctreedir=str(doctrees or ROOT / "_build" / ".doctrees"),
        path_config=str(ROOT / "_config.yml"),
        noconfig=True,
        # As `jupyter-book build` has them: with another value all pages would be read anew.
        confoverrides={
            "external_toc_path": str(ROOT / "_toc.yml"),
            "latex_individualpages": False,
            "nitpicky": True,
        },
        builder="singlehtml",
        warningiserror=True,
        keep_going=True,
        quiet=True,
    )
    if status != 0:
        raise RuntimeError(f"the page was not built: {status}")


def print_page(folder: Path = PRINT) -> Path | None:
    """Print the page to a PDF with bookmarks and page numbers; None where there is no Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        page = chromium.new_page()
        # It is a long page, and a machine may be slow or busy.
        page.set_default_timeout(0)
        page.goto((folder / "index.html").as_uri())
        page.evaluate("document.fonts.ready.then(() => true)")
        page.pdf(
            path=folder / PDF,
            prefer_css_page_size=True,
            print_background=True,
            outline=True,
            tagged=True,
        )
        chromium.close()
    return folder / PDF


def main() -> int:
    """Build, print, say where the results are, and return the exit status."""
    try:
        build_page()
    except RuntimeError as error:
        print(f"Cannot print: {error}", file=sys.stderr)
        return 1
    print(f"The whole book on one page: {PRINT / 'index.html'}")
    pdf = print_page()
    if pdf is None:
        names = " or ".join(PROGRAMS[::2])
        print(f"No PDF: none of the commands {names} is there. Print the page from any browser.")
    else:
        print(f"The same as PDF: {pdf}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
