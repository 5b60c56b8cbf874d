"""Figures that move show in each frame what is stored for it: in the book, and outside of it.

That the stored frames are right is held by tests/attnbook/test_moving_figures.py, and by nbval that
the notebooks store them. Outside of the book, what a notebook stores is put into a bare page; no
other file is there, and no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import OpenPage, pages
from tools import ROOT, notebooks

MOVING = ".attn-moving"
# All figures have the same program. The first of these has a slider, the others a list or two more.
KINDS = ("chapters/03_scaling", "chapters/07_masks", "chapters/19_real_model")

# Where each control starts, and its last place.
CONTROLS = """figure => [...figure.querySelectorAll("input[type=range], select")].map(control =>
  control.tagName === "SELECT"
    ? [control.name, [...control.options].findIndex(option => option.defaultSelected),
      control.options.length - 1]
    : [control.name, Number(control.getAttribute("value")), Number(control.max)])"""
# What does not belong to the frame of these places: of the controls, the parts and the label.
WRONG = """(figure, places) => {
  const json = figure.querySelector('script[type="application/json"]').textContent;
  const { options, parts, labels } = JSON.parse(json);
  const wrong = [];
  const ask = (what, is, should) => { if (is !== should) wrong.push([what, is, should]); };
  const svg = figure.querySelector("svg");
  const controls = [...figure.querySelectorAll("input[type=range], select")];
  ask("controls", controls.map(control => control.name).join(), Object.keys(options).join());
  let frame = 0;
  for (const control of controls) {
    const words = options[control.name][places[control.name]];
    if (control.tagName === "SELECT") ask("list", control.selectedOptions[0].textContent, words);
    else {
      ask("slider", control.parentElement.querySelector("output").textContent, words);
      ask("spoken", control.getAttribute("aria-valuetext"), words);
    }
    frame = frame * options[control.name].length + places[control.name];
  }
  for (const [name, attributes] of Object.entries(parts)) {
    const part = svg.querySelector(`[data-part="${name}"]`);
    for (const [key, values] of Object.entries(attributes)) {
      const drawn = key === "text" ? part.textContent : part.getAttribute(key);
      ask(`${name} ${key}`, drawn, values[frame]);
    }
  }
  ask("label", svg.getAttribute("aria-label"), labels[frame].replace("\\n", " "));
  return Object.keys(parts).length ? wrong : ["nothing moves"];
}"""
WRONG_ANYWHERE = (
    """figure => {
  const go = ([control, ...others], places) => {
    if (!control) return wrong(figure, places);
    const found = [];
    const last = control.options ? control.options.length - 1 : Number(control.max);
    for (let place = 0; place <= last; place++) {
      control.value = place;
      control.dispatchEvent(new Event("input"));
      found.push(...go(others, { ...places, [control.name]: place }));
    }
    return found;
  };
  const wrong = """
    + WRONG
    + """;
  return go([...figure.querySelectorAll("input[type=range], select")], {}).slice(0, 5);
}"""
)


def start(figure: Any) -> dict[str, int]:
    """Return the place where each control starts."""
    return {name: place for name, place, _ in figure.evaluate(CONTROLS)}


def assert_shows(figure: Any, places: dict[str, int]) -> None:
    """Every part, the controls' values and the label belong to the frame of these places."""
    assert figure.evaluate(WRONG, places) == []


# -- in the book -----------------------------------------------------------------------------------


@pytest.fixture
def moving(book: Path, open_page: OpenPage) -> Iterator[Callable[..., list[Any]]]:
    """Open a page and return its figures that move; a page without any is not opened."""
    visits = []

    def figures(name: str, **options: Any) -> list[Any]:
        if "attn-moving" not in (book / f"{name}.html").read_text(encoding="utf-8"):
            return []
        visits.append(open_page(name, **options))
        found: list[Any] = visits[-1].page.locator(MOVING).all()
        assert found
        return found

    yield figures
    for visit in visits:
        assert visit.problems == []


@pytest.mark.quick
@pytest.mark.parametrize("name", pages())
def test_moving_figures_follow_the_keyboard(moving: Callable[..., list[Any]], name: str) -> None:
    """One step of each control, forward, or back where it stands at its end."""
    for figure in moving(name):
        places = start(figure)
        assert_shows(figure, places)
        assert figure.locator("input[type=range]").count()
        for control, place, last in figure.evaluate(CONTROLS):
            step = -1 if place == last else 1
            drawn = figure.locator("svg").first.inner_html()
            one = figure.locator(f'[name="{control}"]')
            assert one.evaluate("one => one.labels[0]?.textContent.trim()")
            keys = {"input": ("ArrowRight", "ArrowLeft"), "select": ("ArrowDown", "ArrowUp")}
            one.press(keys[one.evaluate("one => one.localName")][step < 0])
            places[control] += step
            assert_shows(figure, places)
            assert figure.locator("svg").first.inner_html() != drawn


@pytest.mark.parametrize("name", pages())
def test_controls_take_a_figure_through_all_its_frames(
    moving: Callable[..., list[Any]], name: str
) -> None:
    for figure in moving(name):
        assert figure.evaluate(WRONG_ANYWHERE) == []


@pytest.mark.parametrize("name", pages())
def test_without_scripts_a_figure_is_a_picture_and_a_table(
    moving: Callable[..., list[Any]], name: str
) -> None:
    for figure in moving(name, scripts=False):
        figure.scroll_into_view_if_needed()
        figure.locator("svg").first.wait_for()
        assert len(str(figure.locator("svg").first.get_attribute("aria-label")).split()) >= 5
        assert not figure.locator(":is(.attn-controls, input, button, select):visible").count()
        figure.locator("summary").first.click()
        table = figure.locator("table").first
        table.wait_for()
        rows = table.locator("tbody tr")
        assert rows.count() >= 2
        assert table.locator("thead th").count() == rows.first.locator("th, td").count()


@pytest.mark.parametrize("name", KINDS)
def test_a_mouse_drags_the_slider(moving: Callable[..., list[Any]], name: str) -> None:
    figure = moving(name)[0]
    slider, mouse = figure.locator("input[type=range]").first, figure.page.mouse
    slider.scroll_into_view_if_needed()
    slider.press("Home")
    slider.hover()  # waits until what came into view above has taken its place
    box = slider.bounding_box()
    assert box is not None and box["height"] >= 24
    y = box["y"] + box["height"] / 2
    mouse.move(box["x"] + 8, y)
    mouse.down()
    for x in (box["x"] + box["width"] / 2, box["x"] + box["width"] + 30):
        mouse.move(x, y, steps=3)
    mouse.up()
    end = {str(slider.get_attribute("name")): int(str(slider.get_attribute("max")))}
    assert_shows(figure, start(figure) | end)


# -- outside of it ---------------------------------------------------------------------------------

# As Jupyter does it: markup that is inserted does not run, so each script is put in anew.
INSERT = """html => {
  const area = document.querySelector("div");
  area.innerHTML = html;
  for (const script of area.querySelectorAll("script")) {
    const copy = document.createElement("script");
    for (const { name, value } of script.attributes) copy.setAttribute(name, value);
    copy.textContent = script.textContent;
    script.replaceWith(copy);
  }
}"""


def stored(chapter: str) -> str:
    """Return the first moving figure of a chapter as its notebook stores it."""
    cells = notebooks.read(ROOT / f"{chapter}.ipynb")["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    found = (output.get("data", {}).get("text/html", "") for output in outputs)
    return next(html for html in found if "attn-moving" in html)


@pytest.fixture
def bare(browser: Any) -> Iterator[Any]:
    """An empty page without any file or network, which remembers its `problems`."""
    context = browser.new_context(viewport={"width": 800, "height": 900})
    page = context.new_page()
    page.route("**/*", lambda route: route.abort())
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda said: page.problems.append(said.text))
    page.on("request", lambda request: page.problems.append(request.url))
    yield page
    context.close()


@pytest.mark.parametrize("way", ["a page", "Jupyter", "Colab", "two in a page"])
@pytest.mark.parametrize("chapter", KINDS)
def test_a_stored_output_moves_outside_of_the_book(bare: Any, chapter: str, way: str) -> None:
    """By keyboard to both ends of a slider; the same figure beside it stands still."""
    html = stored(chapter)
    frame = f'<iframe sandbox="allow-scripts" title="A cell" srcdoc="{escape(html)}"></iframe>'
    body = {"a page": html, "Jupyter": "<div></div>", "Colab": 2 * frame}.get(way, 2 * html)
    bare.set_content(f'<!doctype html><html lang="en"><title>A cell</title>{body}')
    if way == "Jupyter":
        bare.evaluate(INSERT, html)
    figures = bare.frame_locator("iframe") if way == "Colab" else bare.locator(MOVING)
    figure, beside = (
        one.locator(MOVING) if way == "Colab" else one for one in (figures.first, figures.last)
    )
    assert way != "Colab" or figure.evaluate("() => origin") == "null"
    places, (slider, _, last) = start(figure), figure.evaluate(CONTROLS)[0]
    assert_shows(figure, places)
    said = figure.locator("p[role=status]")
    assert said.text_content() == ""
    for key, place in (("End", last), ("Home", 0), ("End", last)):
        figure.locator(f'[name="{slider}"]').press(key)
        assert_shows(figure, places | {slider: place})
    words = str(said.text_content())
    assert words and str(figure.locator("svg").get_attribute("aria-label")).startswith(words)
    if way in ("Colab", "two in a page"):
        assert_shows(beside, places)
    assert bare.locator("[id]").count() == 0  # two figures in a page would have an id twice
    assert bare.problems == []
