"""Figures that move show in each frame what is stored for it: in the book, and outside of it.

That the stored frames are right is held by tests/attnbook/test_moving_figures.py, and by nbval that
the notebooks store them. Outside of the book, what a notebook stores is put into a bare page; no
other file is there, and no network.

Motion is reduced where a test asks what stands there after a step, because nothing is on its way
then. What moves, plays and follows the pointer is asked of a small drawing made for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest

from attnbook.figures.drawing import rect, tag, text
from attnbook.figures.moving import Control, Frame, MovingDrawing, hit
from attnbook.figures.moving import moving as moving_drawing
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
      const [kinds, which] = Array.isArray(values[0]) ? values : [values];
      ask(`${name} ${key}`, drawn, kinds[which ? which.charCodeAt(frame) - 93 : frame]);
    }
  }
  ask("label", svg.getAttribute("aria-label"), labels[frame].replace("\\n", " "));
  return Object.keys(parts).length ? wrong : ["nothing moves"];
}"""


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
        html = (book / f"{name}.html").read_text(encoding="utf-8")
        if options.get("scripts", True):  # what stands there without them is no figure then
            html = re.sub("<noscript>.*?</noscript>", "", html, flags=re.DOTALL)
        if "attn-moving" not in html:
            return []
        visits.append(open_page(name, motion="reduce", **options))
        found: list[Any] = visits[-1].page.locator(MOVING).all()
        assert found
        return found

    yield figures
    for visit in visits:
        assert visit.problems == []


@pytest.mark.quick
@pytest.mark.parametrize("name", pages())
def test_moving_figures_follow_the_keyboard(moving: Callable[..., list[Any]], name: str) -> None:
    """One step of each control, forward, or back where it stands at its end; and its last place."""
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
            one.press("End")
            places[control] = last
            assert_shows(figure, places)


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


# -- the engine ------------------------------------------------------------------------------------


def sliding(start: int = 0, **options: Any) -> MovingDrawing:
    """Return a square that slides over three places, in two sizes, and can be clicked and drawn."""

    def draw(size: int, place: int) -> Frame:
        square = rect(150 * place, 10, 20 + 20 * size, 20, "query", data_part="square")
        path = tag("path", d=f"M0 {60 + 5 * size}l9 {4 - 4 * place}10-1", data_part="path")
        words = text(200, 90, "abc"[place], data_part="letter")
        hits = [hit(150 * i, 0, 150, 50, f"place:{i}", drag=True) for i in range(3)]
        both = hit(0, 50, 448, 50, "size:1 place:2")
        told = f"The square is at {place}.\nIts size is {size}."
        return Frame(square + path + words + "".join(hits) + both, told, [(str(size), str(place))])

    controls = (
        Control("size", "size", ("small", "large"), kind="choice"),
        Control("place", "place", ("0", "1", "2"), start, pace=0.1, **options),
    )
    return moving_drawing(draw, controls, 448, 100, columns=("size", "place"))


Sliding = Callable[..., Any]


@pytest.fixture
def slide(browser: Any) -> Iterator[Sliding]:
    """Open the small drawing alone, with or without motion."""
    contexts = []

    def open_it(motion: str = "no-preference", **options: Any) -> Any:
        contexts.append(browser.new_context(reduced_motion=motion))
        page = contexts[-1].new_page()
        page.set_content(
            f"<!doctype html><title>A square</title>{sliding(**options)._repr_html_()}"
        )
        return page.locator(MOVING)

    yield open_it
    for context in contexts:
        context.close()


# What the square's x was in each of 40 frames of the screen.
WATCH = """figure => new Promise(resolve => {
  const seen = [], square = figure.querySelector("[data-part=square]");
  const look = () => {
    seen.push(Number(square.getAttribute("x")));
    if (seen.length < 40) requestAnimationFrame(look); else resolve(seen);
  };
  const slider = figure.querySelector("input");
  slider.value = 2;
  slider.dispatchEvent(new Event("input"));
  look();
})"""


@pytest.mark.quick
def test_numbers_go_from_frame_to_frame_and_end_where_they_belong(slide: Sliding) -> None:
    figure = slide()
    seen = figure.evaluate(WATCH)
    assert seen[0] < 100 and seen[-1] == 300 and seen == sorted(seen)
    assert len({*seen} - {0.0, 300.0}) >= 3  # it was seen on its way
    assert_shows(figure, {"size": 0, "place": 2})


@pytest.mark.quick
def test_where_motion_is_unwanted_numbers_are_there_at_once(slide: Sliding) -> None:
    assert {*slide("reduce").evaluate(WATCH)} == {300}


@pytest.mark.quick
def test_play_goes_to_the_last_step_and_stops_there_or_where_it_is_told(slide: Sliding) -> None:
    figure = slide("reduce")
    button = figure.get_by_role("button")
    assert button.get_attribute("aria-label") == "play: place"
    # In one go, because on a busy machine the play may be over before a second question is asked.
    assert button.evaluate("button => { button.click(); return button.ariaLabel; }") == "pause"
    figure.get_by_role("button", name="play: place").wait_for()
    assert_shows(figure, {"size": 0, "place": 2})
    assert figure.locator("p[role=status]").text_content() == "The square is at 2."
    # From the start again, because it stands at the end; a hand on a control stops the play.
    seen = button.evaluate(
        """button => {
          const figure = button.closest('.attn-moving'), select = figure.querySelector('select');
          button.click();
          const seen = [button.ariaLabel, figure.querySelector('input').value];
          select.value = '1';
          for (const name of ['input', 'change']) {
            select.dispatchEvent(new Event(name, {bubbles: true}));
          }
          return [...seen, button.ariaLabel];
        }"""
    )
    assert seen[0] == "pause" and seen[1] in "01" and seen[2] == "play: place"


@pytest.mark.quick
@pytest.mark.parametrize(("chosen", "first"), [(False, "0"), (True, "1")])
def test_the_first_play_shows_how_the_frame_of_the_page_came(
    slide: Sliding, chosen: bool, first: str
) -> None:
    seen = slide("reduce", start=1).evaluate(
        """(figure, chosen) => {
          const slider = figure.querySelector("input");
          if (chosen) slider.dispatchEvent(new Event("input"));
          figure.querySelector("button").click();
          return slider.value;
        }""",
        chosen,
    )
    assert seen == first


@pytest.mark.quick
def test_what_plays_by_itself_does_so_once_and_not_where_motion_is_unwanted(slide: Sliding) -> None:
    figure = slide(once=True)
    figure.locator("output").filter(has_text="2").wait_for()
    still = slide("reduce", once=True)
    still.page.wait_for_function("() => new Promise(resolve => setTimeout(resolve, 500, true))")
    assert_shows(still, {"size": 0, "place": 0})


@pytest.mark.quick
def test_the_drawing_itself_is_a_control(slide: Sliding) -> None:
    figure = slide("reduce")
    box, mouse = figure.locator("svg").bounding_box(), figure.page.mouse
    scale = box["width"] / 448

    def at(x: float, y: float) -> tuple[float, float]:
        return box["x"] + scale * x, box["y"] + scale * y

    mouse.click(*at(220, 20))
    assert_shows(figure, {"size": 0, "place": 1})
    mouse.move(*at(20, 20))
    mouse.down()
    mouse.move(*at(400, 20), steps=5)
    assert_shows(figure, {"size": 0, "place": 2})
    mouse.move(*at(20, 20), steps=5)
    mouse.up()
    mouse.move(*at(400, 20))
    assert_shows(figure, {"size": 0, "place": 0})
    figure.page.keyboard.press("ArrowRight")  # the keyboard goes on from there
    assert_shows(figure, {"size": 0, "place": 1})
    mouse.click(*at(220, 80))  # this sets two
    assert_shows(figure, {"size": 1, "place": 2})


@pytest.mark.quick
def test_a_figure_takes_up_the_values_that_a_browser_kept(slide: Sliding) -> None:
    """After the page is loaded again, a slider may stand elsewhere than the page says."""
    figure = slide("reduce")
    begin = """(figure, places) => {
      const copy = figure.cloneNode(true), script = copy.querySelector(".attn-moving-script");
      delete copy.dataset.ready;
      figure.replaceWith(copy);
      for (const [name, value] of Object.entries(places)) {
        copy.querySelector(`[name="${name}"]`).value = value;
      }
      const again = document.createElement("script");
      again.textContent = script.textContent;
      script.replaceWith(again);
    }"""
    figure.evaluate(begin, {"size": 1, "place": 2})
    assert_shows(figure, {"size": 1, "place": 2})


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
    context = browser.new_context(viewport={"width": 800, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.route("**/*", lambda route: route.abort())
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda said: page.problems.append(said.text))
    page.on("request", lambda request: page.problems.append(request.url))
    yield page
    context.close()


@pytest.mark.parametrize("way", ["Jupyter", "Colab", "two in a page"])
@pytest.mark.parametrize("chapter", KINDS)
def test_a_stored_output_moves_outside_of_the_book(bare: Any, chapter: str, way: str) -> None:
    """By keyboard to both ends of a slider; the same figure beside it stands still."""
    html = stored(chapter)
    frame = f'<iframe sandbox="allow-scripts" title="A cell" srcdoc="{escape(html)}"></iframe>'
    body = {"Jupyter": "<div></div>", "Colab": 2 * frame, "two in a page": 2 * html}[way]
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
    if way != "Jupyter":
        assert_shows(beside, places)
    assert bare.locator("[id]").count() == 0  # two figures in a page would have an id twice
    assert bare.problems == []
