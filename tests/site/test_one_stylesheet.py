"""One stylesheet: what can be used stays, what cannot goes, and each page asks for no other."""

from __future__ import annotations

import gzip
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the book's packages are not installed")

from tests.site.conftest import ROOT, OpenPage, all_pages
from tests.site.test_extensions import build

MOST_KIB = 20

PAGE = """<html><main class="used" id="here" lang="en"><details><summary>a</summary></details>
<a href="#" style="color: var(--in-page)">b</a></main>"""
SCRIPT = "element.classList.add('by-script'); element.append(document.createElement('kbd'));"

KEPT = [
    ".used { top: 1px }",
    "#here { top: 2px }",
    "main a { top: 3px }",
    "a:hover { top: 4px }",
    "a:focus-visible { top: 5px }",
    ".by-script { top: 6px }",
    "kbd { top: 7px }",
    "[lang] { top: 8px }",
    'html[data-theme="dark"] a { top: 9px }',
    "details[open] { top: 10px }",
    ":is(.unused, .used) a { top: 11px }",
    ":is(:hover, :focus) { top: 12px }",
    "a:not(.unused) { top: 13px }",
    "a:where(.unused, :active) { top: 14px }",
    "main:has(> .unused, a) { top: 15px }",
    ".used::before { top: 16px }",
    "@media print { .used { top: 17px } }",
    "::highlight(searched) { color: red }",
    ":root { --in-page: 18px; --by-other: 19px; --other: var(--by-other) } a { top: var(--other) }",
    "@keyframes turn { to { top: 20px } } .used { animation: 1s turn }",
    "@font-face { font-family: Kept; src: url(fonts/kept.woff2) } .used { font-family: Kept }",
]
DROPPED = [
    ".unused { top: 31px }",
    "#nowhere { top: 32px }",
    "main table { top: 33px }",
    "[dir] { top: 34px }",
    ".used.unused { top: 35px }",
    ":is(.unused, .gone) a { top: 36px }",
    "main:has(.unused) { top: 37px }",
    "@media print { .unused { top: 38px } }",
    ":root { --nobody: 39px; --only-nobody: 40px } :root { --nobody-2: var(--only-nobody) }",
    "@keyframes never { to { top: 41px } }",
    "@font-face { font-family: Gone; src: url(fonts/gone42px.woff2) }",
]


def module() -> Any:
    return importlib.import_module("one_stylesheet")


@pytest.fixture
def join(tmp_path: Path) -> Any:
    """Join stylesheets given as text; the result without its first line, the licences."""
    if not (ROOT / "node_modules" / "lightningcss").is_dir():
        pytest.skip("what joins stylesheets is not installed: run `make book`")

    def joined(*parts: str) -> str:
        (tmp_path / "katex").mkdir(exist_ok=True)
        paths = []
        for number, text in enumerate(parts):
            path = tmp_path / "katex" / f"{number}.css"
            path.write_text(text, encoding="utf-8")
            paths.append(path.relative_to(tmp_path).as_posix())
        names = module().Names(attributes=set(module().LATER))
        names.read_page(PAGE)
        names.read_script(SCRIPT)
        text = str(module().joined(tmp_path, paths, names, ROOT))
        first, _, rest = text.partition("\n")
        assert first.startswith("/*!") and "MIT" in first
        return rest

    return joined


def test_what_can_be_used_stays(join: Any) -> None:
    text = join("\n".join(KEPT))
    for rule in KEPT:
        for value in re.findall(r"\b\d+px", rule):
            assert re.search(rf"\b{value}", text), rule
    assert "::highlight(searched)" in text and "--in-page" in text and "Kept" in text


def test_what_no_page_can_use_goes(join: Any) -> None:
    text = join("\n".join(DROPPED))
    assert text.strip() == ""


def test_a_list_of_selectors_keeps_those_that_can_match(join: Any) -> None:
    assert join(".used, .unused, a { top: 0 }").strip() == ".used,a{top:0}"


def test_parts_follow_one_another_and_their_addresses_move_along(join: Any) -> None:
    text = join("a { top: 1px }", 'a { left: 2px; background: url("../b.svg") } b::x { top: 0 }')
    assert text.index("top:1px") < text.index("left:2px")
    assert 'url("b.svg")' in text.replace("url(b.svg)", 'url("b.svg")')
    assert "url(katex/c.svg)" in join("a { background: url(c.svg) }").replace('"', "")
    assert "data:image/svg" in join("a { background: url('data:image/svg+xml,<svg/>') }")


def test_a_stylesheet_that_cannot_be_read_is_one_clear_line(join: Any) -> None:
    errors = importlib.import_module("sphinx.errors")
    with pytest.raises(errors.ExtensionError, match="could not be joined"):
        join("a { top: 1px")


def test_missing_tools_are_one_clear_line(tmp_path: Path) -> None:
    errors = importlib.import_module("sphinx.errors")
    with pytest.raises(errors.ExtensionError, match="not found: run `make book`"):
        module().joined(tmp_path, [], module().Names(), tmp_path)


def test_an_unknown_stylesheet_is_a_warning(tmp_path: Path) -> None:
    # A theme other than the book's brings a stylesheet that the list does not name.
    _, said = build(tmp_path, "Nothing.", "one_stylesheet")
    assert "stylesheet is not known: alabaster.css" in said


# -- the book -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", all_pages())
def test_a_page_asks_for_one_stylesheet(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    found = re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]*)"', page)
    assert [link.rpartition("/")[2] for link in found] == ["pages.css"]
    assert "<style" not in page


def test_the_stylesheet_is_small_and_alone(book: Path) -> None:
    static = book / "_static"
    assert [path.name for path in static.rglob("*.css")] == ["pages.css"]
    text = (static / "pages.css").read_bytes()
    assert len(gzip.compress(text)) <= MOST_KIB * 1024
    for font in (static / "katex" / "fonts").iterdir():
        assert f"katex/fonts/{font.name}".encode() in text


@pytest.mark.parametrize(
    "rule",
    [
        ".scrolled ",  # a class of book.js
        ".pst-sidebar-hidden",
        ".copybtn.success",
        "::highlight(searched)",
        "ul.search",  # the list that the search makes
        "p.context",
        'html[data-theme="dark"]',
        "details.hide[open]",
        "dialog",
        ":focus-visible",
        "@media print",
        "prefers-reduced-motion",
    ],
)
def test_rules_for_what_comes_later_are_there(book: Path, rule: str) -> None:
    text = (book / "_static" / "pages.css").read_text(encoding="utf-8")
    assert rule.replace('"', "") in text.replace('"', "")


@pytest.mark.parametrize(("theme", "colour"), [("light", "255, 255, 255"), ("dark", "20, 24, 30")])
def test_the_first_frame_has_the_colours_of_the_theme(
    browser: Any, address: str, theme: Any, colour: str
) -> None:
    context = browser.new_context(color_scheme=theme)
    page = context.new_page()
    # A slow stylesheet: what is drawn before it comes would flash.
    page.route("**/pages.css", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.add_init_script(
        """requestAnimationFrame(function look() {
          if (!document.body) return requestAnimationFrame(look);
          window.first = getComputedStyle(document.body).backgroundColor;
        })"""
    )
    page.goto(f"{address}/index.html", wait_until="load")
    assert page.evaluate("window.first") == f"rgb({colour})"
    context.close()


def test_names_that_only_the_browser_or_a_script_gives_are_listed_with_a_reason() -> None:
    scripts = (ROOT / "_ext" / "first_paint.js").read_text(encoding="utf-8")
    for name, reason in module().LATER.items():
        assert len(reason.split()) >= 3
        if name.startswith("data-"):
            assert f"dataset.{name.removeprefix('data-')}" in scripts


def test_the_first_page_opens_without_a_stylesheet_of_its_own(open_page: OpenPage) -> None:
    page = open_page("index").page
    assert page.evaluate("document.styleSheets.length") == 1
