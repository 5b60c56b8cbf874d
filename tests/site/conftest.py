"""One browser and one small web server for all tests of the built pages.

They are skipped, with the reason, where the book is not built or no Chromium is installed; with
ATTENTION_REQUIRE_BROWSER=1, as in continuous integration, that is a failure instead.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tools.serve import server_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
BOOK = Path(os.environ.get("ATTENTION_BOOK", ROOT / "_build" / "html"))

sys.path.insert(0, str(ROOT / "_ext"))

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A request that leaves this machine fails at once; it is recorded as well, and fails a test.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chapters() -> list[str]:
    """The notebooks of the table of contents, without suffix, in order."""
    return [name for name in pages() if name.startswith("chapters/")]


def pages() -> list[str]:
    """Every page that an author wrote."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = [toc["root"]]
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            found += [page["file"] for page in (chapter, *chapter.get("sections", []))]
    return found


def all_pages() -> list[str]:
    """Every page of the site, with the one that Sphinx makes."""
    return [*pages(), "search"]


# What looks at every page in every view is left to `make slow`; `make test` takes each page once,
# as on a phone, and of the rest these.
FEW = ("index", "chapters/03_scaling", "404")
ON_EVERY_PAGE = (
    "test_axe_finds_nothing",
    "test_a_page_of_a_file_works_without_a_word",
    "test_a_page_of_the_website_is_as_wide_as_its_sheet",
    "test_most_of_a_chapter_waits_and_then_has_its_place",
    "test_moving_figures_have_a_table",
    "test_without_scripts_a_figure_stands_still",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `FEW` does not name, before the marks are asked for."""
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if item.path.parent.name != "site" or given.get("name", FEW[0]) in FEW:
            continue
        view = given.get("view", (given.get("theme", "light"), given.get("width", 360)))
        if view != ("light", 360) or item.originalname in ON_EVERY_PAGE:
            item.add_marker(pytest.mark.slow)


def missing(reason: str) -> Any:
    """Skip, or fail where a browser is required."""
    if os.environ.get("ATTENTION_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def book() -> Path:
    """The folder of the built pages."""
    if not (BOOK / "index.html").is_file():
        missing(f"the book is not built in {BOOK.name}: run `make book`")
    return BOOK


@pytest.fixture(scope="session")
def address(book: Path) -> Iterator[str]:
    """The address at which the book is served while the tests run."""
    with server_of(book, quiet=True) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser(book: Path) -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("no Chromium on PATH")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """One page, open, and what went wrong while it was loaded and used."""

    page: Page
    foreign: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


OpenPage = Callable[..., Visit]


@pytest.fixture(scope="session")
def open_anywhere(browser: Browser, address: str) -> OpenPage:
    """Open a page by name; who opens it closes its context."""

    def open_page(
        name: str,
        theme: str = "light",
        width: int = 1280,
        height: int = 900,
        *,
        scripts: bool = True,
        motion: str = "no-preference",
        moved: bool = True,
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
            reduced_motion=motion,  # type: ignore[arg-type]
            java_script_enabled=scripts,
        )
        visit = Visit(context.new_page())

        def on_request(request: Any) -> None:
            if not request.url.startswith((address, "data:", "blob:")):
                visit.foreign.append(request.url)

        def on_message(message: Any) -> None:
            if message.type in ("error", "warning"):
                visit.problems.append(f"{message.type}: {message.text}")

        def on_response(response: Any) -> None:
            if response.status >= 400:
                visit.problems.append(f"{response.status}: {response.url}")

        visit.page.on("request", on_request)
        visit.page.on("console", on_message)
        visit.page.on("response", on_response)
        visit.page.on("pageerror", lambda error: visit.problems.append(f"exception: {error}"))
        path, _, rest = name.partition("?")
        query = f"?{rest}" if rest else ""
        visit.page.goto(f"{address}/{path}.html{query}", wait_until="load")
        if scripts:
            visit.page.evaluate("document.fonts.ready.then(() => true)")
        if scripts and moved and visit.page.locator("html[data-layout]").count():
            # A reader's first move: what is below the first screen gets its place.
            visit.page.evaluate("dispatchEvent(new Event('pointermove'))")
            visit.page.locator("html[data-laid-out]").wait_for(state="attached")
        return visit

    return open_page


@pytest.fixture
def open_page(open_anywhere: OpenPage) -> Iterator[OpenPage]:
    """Open pages that are closed when the test ends: `open_page(name, theme=…, width=…).page`."""
    opened: list[Visit] = []

    def remember(*args: Any, **options: Any) -> Visit:
        opened.append(open_anywhere(*args, **options))
        return opened[-1]

    yield remember
    for visit in opened:
        visit.page.context.close()


def shown(figure: Any, part: str) -> str:
    """The text of one part of a moving figure."""
    return str(figure.locator(f'[data-part="{part}"]').text_content())


def parts(figure: Any, prefix: str, attribute: str | None = None) -> dict[str, str]:
    """The text, or an attribute, of every part whose name begins so."""
    found: dict[str, str] = figure.evaluate(
        """(figure, [prefix, attribute]) => Object.fromEntries(
          [...figure.querySelectorAll(`[data-part^="${prefix}"]`)].map((part) => [
            part.dataset.part, attribute ? part.getAttribute(attribute) : part.textContent]))""",
        [prefix, attribute],
    )
    return found


def as_number(words: str) -> float:
    """The number that a figure prints, with typographic minus signs."""
    return float(words.replace("−", "-").replace("∞", "inf"))
