"""One browser and one small web server for all tests of the built pages.

They are skipped, with the reason, where the book is not built or no Chromium is installed; with
ATTENTION_REQUIRE_BROWSER=1, as in continuous integration, that is a failure instead.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml

from tools import ROOT, parts, print_book
from tools import chapters as chapters_below

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BOOK = Path(os.environ.get("ATTENTION_BOOK", ROOT / "_build" / "html"))

sys.path.insert(0, str(ROOT / "tools" / "site"))

# Where the book is published, and the part of it below the host.
BASE = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["html"]["baseurl"]
PROJECT = urlsplit(BASE).path

FLAGS = (
    *print_book.FLAGS,
    "--disable-component-update",
    "--disable-sync",
    # A request that leaves this machine fails at once; it is recorded as well, and fails a test.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chapters() -> list[str]:
    """The chapters, without suffix, in order."""
    return list(chapters_below())


def notebooks() -> list[str]:
    """The chapters and the pages below them."""
    return [name for name in pages() if name.startswith("chapters/")]


def pages() -> list[str]:
    """Every page that an author wrote."""
    return [page for _, part in parts() for page in part]


def all_pages() -> list[str]:
    """Every page of the site, with the one that Sphinx makes."""
    return [*pages(), "search"]


# `make test` asks what is marked as quick, of these pages; the rest is left to `make slow`.
FEW = ("index", "chapters/03_scaling")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `make test` leaves out, before the marks are asked for."""
    for item in items:
        if item.path.parent.name != "site":
            continue
        given = item.callspec.params if hasattr(item, "callspec") else {}
        in_view = given.get("view", ("light", 360)) == ("light", 360)
        of_a_page = not {"open_page", "look"}.isdisjoint(item.fixturenames)
        asked = not of_a_page or given.get("name", FEW[0]) in FEW
        if not item.get_closest_marker("quick") or not in_view or not asked:
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


class GitHubPages(SimpleHTTPRequestHandler):
    """A project below its name, and its 404.html, as it is, for all that is missing."""

    def handle(self) -> None:
        with suppress(ConnectionError):  # the browser has left the page
            super().handle()

    def translate_path(self, path: str) -> str:
        inside = urlsplit(path).path.startswith(PROJECT)
        return super().translate_path("/" + path.removeprefix(PROJECT) if inside else "/no such")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((Path(self.directory) / "404.html").read_bytes())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def address(book: Path) -> Iterator[str]:
    """The address at which the book is served while the tests run, as GitHub would."""
    handler = partial(GitHubPages, directory=str(book))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{PROJECT.rstrip('/')}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser(book: Path) -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed")
    program = print_book.chromium()
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
        guessing: bool = False,
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
            reduced_motion=motion,  # type: ignore[arg-type]
            java_script_enabled=scripts,
        )
        if not guessing:  # a reader who has asked for all answers
            context.add_init_script("try { localStorage['attention-answers'] = 'all' } catch {}")
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
