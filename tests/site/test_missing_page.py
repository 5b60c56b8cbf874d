"""404.html: it looks and leads right at any depth, at a host's root and below a project's name."""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.site.conftest import chapters, pages
from tests.site.test_links import read
from tests.site.test_page_meta import BASE
from tests.site.test_pages import contrast
from tools import serve

PROJECT = urlsplit(BASE).path
# Where the page is asked for: beside the first page, in a folder, two folders deep.
MISSING = ["nowhere", "chapters/99_nowhere.html", "a/b/nowhere.html"]


class _Pages(http.server.SimpleHTTPRequestHandler):
    """GitHub Pages: a project below its name, and its 404.html as it is for all that is missing."""

    def translate_path(self, path: str) -> str:
        inside = urlsplit(path).path.startswith(PROJECT)
        return super().translate_path("/" + path.removeprefix(PROJECT) if inside else "/no such")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Quiet(serve.Handler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(
    scope="module",
    params=[pytest.param("at the root", marks=pytest.mark.slow), "below the project's name"],
)
def site(request: pytest.FixtureRequest, book: Path) -> Iterator[str]:
    """The book by `make serve` at the root, and as GitHub Pages has it."""
    handler, path = (_Quiet, "/") if request.param == "at the root" else (_Pages, PROJECT)
    serving = partial(handler, directory=str(book))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{path}"
        server.shutdown()
        thread.join()


class Look:
    """The page for a missing address, open, and all that its browser asked for."""

    def __init__(self, browser: Any, address: str, theme: str = "light", width: int = 1280) -> None:
        self.asked: dict[str, int] = {}
        self.messages: list[str] = []
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
        self.page = context.new_page()
        self.page.on("response", lambda got: self.asked.update({got.url: got.status}))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.goto(address)

    def colour(self, selector: str, which: str) -> str:
        """A computed colour as "#rrggbb"."""
        found: str = self.page.locator(selector).first.evaluate(
            "(element, which) => getComputedStyle(element)[which]", which
        )
        red, green, blue = (int(part) for part in found[4:-1].split(","))
        return f"#{red:02x}{green:02x}{blue:02x}"

    def close(self) -> None:
        self.page.context.close()


@pytest.mark.parametrize("path", MISSING)
def test_a_missing_address_gets_the_page_and_all_its_links_lead_on(
    browser: Any, site: str, path: str
) -> None:
    look = Look(browser, site + path)
    assert look.page.title().startswith("Page not found")
    assert look.asked[site + path] == HTTPStatus.NOT_FOUND
    # Nothing but the page itself and its icon, and the policy forbade nothing of it.
    assert {one for one in look.asked if one != site + path} <= {f"{site}_static/favicon.svg"}
    assert not [text for text in look.messages if "Content Security Policy" in text]
    assert look.page.evaluate("getComputedStyle(document.body).maxWidth") == "688px"
    links = look.page.evaluate("[...document.querySelectorAll('a')].map(link => link.href)")
    action = look.page.evaluate("document.forms[0].action")
    icon = look.page.evaluate("document.querySelector('link[rel=icon]').href")
    for link in {*links, action, icon}:
        assert link.startswith(site)
        assert urllib.request.urlopen(link).status == HTTPStatus.OK
    # The page of each module is one link further, behind the overview of the package.
    listed = [name for name in pages() if not name.startswith("reference/api/")]
    assert set(links) == {f"{site}{name}.html" for name in listed}
    look.close()


def test_the_chapters_are_listed_with_their_numbers(browser: Any, site: str) -> None:
    look = Look(browser, f"{site}a/b/nowhere.html")
    entries = look.page.locator("li").all_text_contents()
    for number, name in enumerate(chapters(), start=1):
        assert entries[number - 1].startswith(f"{number}. "), name
    look.page.locator("li a", has_text="3. Why √dₖ").click()
    look.page.wait_for_url(f"{site}chapters/03_scaling.html")
    look.close()


def test_its_search_leads_to_the_search(browser: Any, site: str) -> None:
    look = Look(browser, f"{site}a/b/nowhere.html")
    look.page.locator("input[type=search]").fill("softmax")
    look.page.keyboard.press("Enter")
    look.page.wait_for_url(f"{site}search.html?q=softmax")
    look.page.locator("#search-results ul.search li a").first.wait_for(timeout=5000)
    look.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read_in_both_themes_and_on_a_phone(browser: Any, site: str, theme: str) -> None:
    look = Look(browser, f"{site}a/b/nowhere.html", theme, 360)
    paper = look.colour("body", "backgroundColor")
    assert paper == {"light": "#ffffff", "dark": "#14181e"}[theme]
    for part in ("body", "li a", "main p a", "header a", "button"):
        assert contrast(look.colour(part, "color"), paper) >= 4.5, part
    assert contrast(look.colour("input", "borderTopColor"), paper) >= 3
    assert look.page.evaluate("document.documentElement.scrollWidth") <= 360
    # A theme that was chosen on another page holds here too, whatever the system has.
    other = "light" if theme == "dark" else "dark"
    look.page.evaluate("mode => localStorage.setItem('mode', mode)", other)
    look.page.reload()
    assert look.colour("body", "backgroundColor") != paper
    look.close()


def test_the_page_is_not_listed_for_search_engines(book: Path) -> None:
    page = (book / "404.html").read_text(encoding="utf-8")
    assert '<meta name="robots" content="noindex">' in page
    assert "404" not in (book / "sitemap.xml").read_text(encoding="utf-8")
    ids = read(book / "404.html").ids
    assert len(ids) == len(set(ids))


def test_other_errors_and_books_without_the_page_are_served_as_ever(tmp_path: Path) -> None:
    serving = partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError, match="File not found") as raised:
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/nowhere")
        raised.value.close()
        server.shutdown()
