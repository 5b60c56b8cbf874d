"""axe-core on every page, in both themes and both widths; and that it finds what is wrong.

axe reads a page as assistive technology does. What it would only read twice is taken out first:
the visible half of each formula, the insides of drawings (hidden from the tree of names; their
colours are checked in test_pages.py), and formulas and code after the first two of each kind.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from contrast import contrast

from tests.site.conftest import ROOT, OpenPage, Visit, all_pages, missing

AXE = ROOT / "tools" / "node" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
PHONE, DESKTOP = 360, 1280

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
# A stylesheet of the reader's own, for which the page's policy does not hold.
SET = """rules => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(rules);
  document.adoptedStyleSheets = [sheet];
}"""
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


def prepared(visit: Visit, axe: str) -> Any:
    """A page, thinned out and laid out to its end, with axe in it."""
    visit.page.evaluate(PRUNE)
    visit.page.evaluate(SET, "section { content-visibility: visible !important; }")
    visit.page.evaluate(axe)
    return visit.page


def in_theme(page: Any, theme: str) -> None:
    """Change a page's theme as its button does."""
    page.evaluate("theme => { document.body.dataset.theme = theme; }", theme)


def in_both_widths(page: Any, *themes: str) -> list[str]:
    """What axe objects to on a phone and then on a desktop, each in its theme.

    The page was loaded on the phone: the theme looks for boxes that scroll when it is loaded.
    """
    found = []
    for width, theme in zip((PHONE, DESKTOP), themes, strict=True):
        in_theme(page, theme)
        page.set_viewport_size({"width": width, "height": 900})
        # In a window as high as the page every box is near, and becomes a stop if it scrolls.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(REACHED)
        found += [f"{theme}, {width} px: {one}" for one in violations(page)]
    return found


@pytest.mark.quick
@pytest.mark.parametrize("name", [*all_pages(), "404"])
def test_axe_finds_nothing(open_page: OpenPage, axe: str, name: str) -> None:
    page = prepared(open_page(name, width=PHONE, motion="reduce"), axe)
    found = in_both_widths(page, "light", "dark")
    assert not found, "\n".join(found)


def test_axe_finds_nothing_where_answers_wait_for_a_guess(open_page: OpenPage, axe: str) -> None:
    page = open_page("chapters/03_scaling", motion="reduce", guessing=True).page
    page.evaluate(axe)
    page.locator(".predicted").first.scroll_into_view_if_needed()
    page.get_by_label("Your guess").first.wait_for()
    for theme in ("light", "dark"):
        in_theme(page, theme)
        found = violations(page)
        assert not found, "\n".join([theme, *found])


def test_axe_finds_nothing_among_search_results(open_page: OpenPage, axe: str) -> None:
    page = open_page("search?q=softmax", width=PHONE, motion="reduce").page
    page.locator("#search-results p.context").first.wait_for(timeout=10_000)
    page.evaluate(axe)
    found = in_both_widths(page, "light", "dark") + in_both_widths(page, "dark", "light")
    assert not found, "\n".join(found)


# What axe must find in a page that is thinned out: in the text, in a picture, in a control.
FAULTS = {
    "color-contrast": "<p style='color: #999; background: #fff'>Hardly to be read.</p>",
    "svg-img-alt": "<svg role='img' width='9' height='9'></svg>",
    "label": "<input type='range'>",
    "target-size": "<p><button style='all: unset; font-size: 8px'>a</button>"
    "<button style='all: unset; font-size: 8px'>b</button></p>",
}


def test_axe_finds_each_fault(open_page: OpenPage, axe: str) -> None:
    page = prepared(open_page("reference/bibliography", motion="reduce"), axe)
    assert violations(page) == []
    put = "html => document.querySelector('article h1').insertAdjacentHTML('afterend', html)"
    page.evaluate(put, "".join(FAULTS.values()))
    assert {one.partition(" (")[0] for one in violations(page)} == {*FAULTS}


STOP = """() => {
  const stop = document.activeElement, style = getComputedStyle(stop);
  let around = stop.parentElement;
  while (around && getComputedStyle(around).backgroundColor === "rgba(0, 0, 0, 0)") {
    around = around.parentElement;
  }
  const box = stop.getBoundingClientRect();
  return { name: stop.outerHTML.slice(0, 120), colour: style.outlineColor,
    ring: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    paper: getComputedStyle(around || document.body).backgroundColor,
    seen: box.width > 0 && box.height > 0 && box.right > 0 && box.bottom > 0 };
}"""


def as_hex(colour: str) -> str:
    """The colour "rgb(1, 2, 3)" as "#010203"."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize(("name", "theme"), [("index", "light"), ("chapters/05_output", "dark")])
def test_who_uses_the_tab_key_sees_where_they_are(
    open_page: OpenPage, name: str, theme: str
) -> None:
    page = open_page(name, theme, motion="reduce").page
    for place in range(40):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        assert place > 0 or "Skip to content" in stop["name"]
        assert stop["seen"] and stop["ring"] >= 2, stop
        assert contrast(as_hex(stop["colour"]), as_hex(stop["paper"])) >= 3, stop


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


@pytest.mark.parametrize("name", ["index", "chapters/07_masks"])
def test_the_contrast_themes_of_a_system_hide_no_mark_of_a_drawing(
    open_page: OpenPage, name: str
) -> None:
    page = open_page(name).page
    page.emulate_media(forced_colors="active")
    assert page.evaluate(HIDDEN) == []


def test_text_grows_with_the_reader_s_setting(open_page: OpenPage) -> None:
    page = open_page("reference/glossary").page
    sizes = "parts => parts.map(part => parseFloat(getComputedStyle(part).fontSize))"
    parts = page.locator("p, a, dt, dd, button, h1")
    before = parts.evaluate_all(sizes)
    page.evaluate(SET, "html { font-size: 200% !important; }")
    assert len(before) > 30
    assert parts.evaluate_all(sizes) == pytest.approx([2 * size for size in before], rel=0.01)
