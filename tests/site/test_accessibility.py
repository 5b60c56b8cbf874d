"""axe-core on every page, in both themes and both widths; and that it finds what is wrong.

axe reads a page as assistive technology does. What it would only read twice is taken out first:
the visible half of each formula, the insides of drawings (hidden from the tree of names; their
colours are checked in test_pages.py), and formulas and code after the first two of each kind.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.site.conftest import ROOT, OpenPage, Visit, all_pages, missing
from tests.site.test_pages import contrast

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# As high as the longest page, so that all of it is near: boxes that scroll become stops by then.
DESKTOP, PHONE = {"width": 1280, "height": 30_000}, {"width": 360, "height": 30_000}

# Every page in both themes and both widths, by two of the four pairs; a few pages in all four.
ONE, OTHER = {360: "light", 1280: "dark"}, {360: "dark", 1280: "light"}

PRUNE = """() => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  for (const part of document.querySelectorAll(".katex-html, figure svg > *")) part.remove();
  const met = new Map();
  for (const word of document.querySelectorAll("article :is(pre span, math)")) {
    const place = word.parentElement.closest("[class]").className;
    const kind = `${word.localName} ${word.className} in ${place}`;
    met.set(kind, (met.get(kind) || 0) + 1);
    if (met.get(kind) > 2) word.remove();
  }
}"""
REACHED = """() => [...document.querySelectorAll("article :is(pre, .math-scroll, .table-wrapper)")]
  .every((box) => box.scrollWidth <= box.clientWidth + 1 || box.tabIndex === 0)"""
RUN = """async (only) => {
  // Furo's two switches stand before all landmarks, so that its rules can look at them.
  const exclude = ["#__navigation", "#__toc"];
  const { violations } = await axe.run({ exclude }, { runOnly: only, resultTypes: ["violations"] });
  return violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.id} (${rule.impact}): ${rule.help}\\n    ${node.target.join(" ")}\\n    `
    + `${node.html.slice(0, 160)}\\n    `
    + [...node.any, ...node.all, ...node.none].map((check) => check.message).join("; ")));
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that is run inside each page."""
    if not AXE.is_file():
        missing("axe-core is not installed: run `make book`")
    return AXE.read_text(encoding="utf-8")


def violations(page: Any) -> list[str]:
    """What axe objects to: rule, place, source and reason."""
    found: list[str] = page.evaluate(RUN, {"type": "tag", "values": RULES})
    return found


def in_theme(page: Any, theme: str) -> None:
    """Change a page's theme as its button does."""
    page.evaluate("theme => { document.body.dataset.theme = theme; }", theme)


def in_both_widths(page: Any, themes: dict[int, str]) -> list[str]:
    """What axe objects to on a phone and then on a desktop, each in its theme.

    The page was loaded on the phone: the theme looks for boxes that scroll when it is loaded.
    """
    found = []
    for view in (PHONE, DESKTOP):
        theme = themes[view["width"]]
        page.set_viewport_size(view)
        in_theme(page, theme)
        page.wait_for_function(REACHED)
        found += [f"{theme}, {view['width']} px: {one}" for one in violations(page)]
    return found


def report(name: str, found: list[str]) -> str:
    """The objections to a page, one below the other."""
    return "\n  ".join([f"axe objects to {name}:", *found])


def prepared(visit: Visit, axe: str) -> Any:
    """A page, thinned out, with axe in it."""
    visit.page.evaluate(PRUNE)
    visit.page.evaluate(axe)
    return visit.page


@pytest.mark.parametrize("name", [*all_pages(), "404"])
def test_axe_finds_nothing(open_page: OpenPage, axe: str, name: str) -> None:
    page = prepared(open_page(name, **PHONE, motion="reduce"), axe)
    found = in_both_widths(page, ONE)
    assert not found, report(name, found)


@pytest.mark.parametrize("name", ["index", "reference/notation"])
def test_axe_finds_nothing_with_the_themes_exchanged(
    open_page: OpenPage, axe: str, name: str
) -> None:
    page = prepared(open_page(name, "dark", **PHONE, motion="reduce"), axe)
    found = in_both_widths(page, OTHER)
    assert not found, report(name, found)


def test_axe_finds_nothing_among_search_results(open_page: OpenPage, axe: str) -> None:
    page = open_page("search?q=softmax", **PHONE, motion="reduce").page
    page.locator("#search-results p.context").first.wait_for(timeout=10_000)
    page.evaluate(axe)
    found = in_both_widths(page, ONE) + in_both_widths(page, OTHER)
    assert not found, report("the search results", found)


def test_axe_finds_nothing_in_what_opens(open_page: OpenPage, axe: str) -> None:
    page = prepared(open_page("reference/errata", **PHONE, motion="reduce"), axe)
    for drawer, opener in ((".sidebar-drawer", "#__navigation"), (".toc-drawer", "#__toc")):
        page.locator(opener).focus()
        page.keyboard.press("Space")
        page.locator(f"{drawer} a:visible").first.wait_for()
        for theme in ("light", "dark"):
            in_theme(page, theme)
            found = violations(page)
            assert not found, report(f"{drawer} in {theme}", found)
        page.keyboard.press("Space")


FAULTS = {
    "color-contrast": "<p style='color: #999; background: #fff'>Hardly to be read.</p>",
    "image-alt": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
    "svg-img-alt": "<svg role='img' width='9' height='9'></svg>",
    "button-name": "<button></button>",
    "heading-order": "<h5>Three levels down</h5>",
    "label": "<input type='range'>",
    "target-size": "<p><button style='all: unset; font-size: 8px'>a</button>"
    "<button style='all: unset; font-size: 8px'>b</button></p>",
}


def test_axe_finds_each_fault(open_page: OpenPage, axe: str) -> None:
    page = prepared(open_page("reference/bibliography", motion="reduce"), axe)
    for rule, fault in FAULTS.items():
        page.evaluate(
            """html => document.querySelector("article h1").insertAdjacentHTML(
              "afterend", `<div id="fault">${html}</div>`)""",
            fault,
        )
        found = violations(page)
        assert found and all(one.startswith(f"{rule} (") for one in found)
        assert re.search(r"<(p|img|svg|button|h5|input)\b", found[0])
        assert f"axe objects to this page:\n  {rule}" in report("this page", found)
        page.evaluate("document.getElementById('fault').remove()")
    assert violations(page) == []


FEW = ["index", "chapters/07_masks", "reference/api", "reference/notation"]
STOP = """() => {
  const stop = document.activeElement;
  if (!stop || stop === document.body) return null;
  const style = getComputedStyle(stop);
  const box = stop.getBoundingClientRect();
  let around = stop.parentElement;
  while (around && getComputedStyle(around).backgroundColor === "rgba(0, 0, 0, 0)") {
    around = around.parentElement;
  }
  const ring = style.outlineStyle !== "none" && style.outlineWidth;
  return { name: stop.outerHTML.slice(0, 120), ring, shadow: style.boxShadow,
    colour: style.outlineColor, width: Math.round(box.width), height: Math.round(box.height),
    paper: getComputedStyle(around || document.body).backgroundColor,
    seen: box.width > 0 && box.right > 0 && box.bottom > 0 };
}"""


def as_hex(colour: str) -> str:
    """The colour "rgb(1, 2, 3)" as "#010203"."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize(("name", "theme"), [("index", "light"), ("chapters/05_output", "dark")])
def test_who_uses_the_tab_key_sees_where_they_are(
    open_page: OpenPage, name: str, theme: str
) -> None:
    page = open_page(name, theme, motion="reduce").page
    stops = []
    for _ in range(70):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(STOP))
    stops = [stop for stop in stops if stop]
    assert len(stops) > 40
    for stop in stops:
        assert stop["seen"] and min(stop["width"], stop["height"]) > 0, stop
        assert stop["ring"] and float(stop["ring"].removesuffix("px")) >= 2, stop
        assert contrast(as_hex(stop["colour"]), as_hex(stop["paper"])) >= 3, stop


def test_the_first_stop_skips_to_the_text(open_page: OpenPage) -> None:
    page = open_page("chapters/05_output", motion="reduce").page
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert "Skip to" in skip.inner_text()
    box = skip.bounding_box()
    assert box is not None and box["y"] >= 0 and box["height"] > 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('article') !== null")


def test_landmarks_name_the_parts_of_a_page(open_page: OpenPage) -> None:
    page = open_page("chapters/05_output").page
    for role, name in (
        ("main", None),
        ("search", None),
        ("complementary", "All chapters"),
        ("complementary", "On this page"),
    ):
        found = page.get_by_role(role, name=name) if name else page.get_by_role(role)
        assert found.count() == 1, (role, name)


HIDDEN = """() => {
  const paper = getComputedStyle(document.body).backgroundColor;
  const shown = (part) => part.checkVisibility({ visibilityProperty: true });
  const marks = [...document.querySelectorAll("figure svg :is(rect, path, line, text)")]
    .filter(shown).filter((mark) => {
      const { fill, stroke } = getComputedStyle(mark);
      const drawn = [fill, stroke].filter((colour) => colour !== "none");
      return drawn.length && drawn.every((colour) => colour === paper);
    });
  return marks.map((part) => part.outerHTML.slice(0, 120));
}"""
CUT = """() => [...document.querySelectorAll("body *")].filter((box) => {
  const style = getComputedStyle(box);
  return box.innerText?.trim() && style.clipPath === "none" && style.clip === "auto"
    && style.position !== "fixed"
    && [style.overflowX, style.overflowY].some((way) => way === "hidden" || way === "clip")
    && (style.overflowX !== "auto" && box.scrollWidth > box.clientWidth + 2
      || style.overflowY !== "auto" && box.scrollHeight > box.clientHeight + 6);
}).map((box) => box.outerHTML.slice(0, 120))"""
# The four distances that success criterion 1.4.12 lets a reader set.
WIDER_SPACING = """* { line-height: 1.5 !important; letter-spacing: 0.12em !important;
  word-spacing: 0.16em !important; } p { margin-bottom: 2em !important; }
  .katex, .katex * { letter-spacing: normal !important; line-height: normal !important; }"""
TWICE_THE_SIZE = "html { font-size: 200% !important; }"
# A reader's own stylesheet is not the page's, and the page's policy does not hold for it.
SET = """rules => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(rules);
  document.adoptedStyleSheets = [sheet];
}"""


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("width", [1280, 360])
def test_what_a_reader_sets_hides_nothing(open_page: OpenPage, name: str, width: int) -> None:
    """The system's contrast themes, wider spacing, and on a desktop text of twice the size."""
    page = open_page(name, width=width, height=800).page
    page.emulate_media(forced_colors="active")
    assert page.evaluate(HIDDEN) == []
    page.emulate_media(forced_colors="none")
    for settings in (WIDER_SPACING, TWICE_THE_SIZE) if width == 1280 else (WIDER_SPACING,):
        page.evaluate(SET, settings)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, settings
        assert page.evaluate(CUT) == [], settings


def test_text_grows_with_the_reader_s_setting(open_page: OpenPage) -> None:
    page = open_page("reference/glossary").page
    sizes = "parts => parts.map(part => parseFloat(getComputedStyle(part).fontSize))"
    parts = page.locator("p, a, dt, dd, button, h1")
    before = parts.evaluate_all(sizes)
    page.evaluate(SET, TWICE_THE_SIZE)
    after = parts.evaluate_all(sizes)
    assert len(before) > 30
    assert all(
        new == pytest.approx(2 * old, rel=0.01) for old, new in zip(before, after, strict=False)
    )
