"""Figures that move show in each frame what is stored for it: in the book, and outside of it.

That the stored frames are right is held by tests/attnbook/test_moving_figures.py, and by nbval that
the notebooks store them. Outside of the book, what a notebook stores is put into a bare page; no
other file is there, and no network.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.site.conftest import OpenPage, chapters, pages
from tools import ROOT, notebooks

MOVING = "figure.attn-moving"
Places = dict[str, int]

# Of each control, in order: its name, its number of options, where it starts, and what it shows.
CONTROLS = """figure => [...figure.querySelectorAll("input[type=range], select")].map(control => {
  const list = control.tagName === "SELECT";
  return [control.name, list ? control.options.length : Number(control.max) + 1,
    list ? [...control.options].findIndex(option => option.defaultSelected)
      : Number(control.getAttribute("value")),
    list ? control.selectedOptions[0].textContent
      : control.parentElement.querySelector("output").textContent,
    list ? null : control.getAttribute("aria-valuetext")];
})"""
PARTS = """figure => Object.fromEntries(
  [...figure.querySelectorAll("svg [data-part]")].map(part => [part.dataset.part, {
    text: part.textContent,
    ...Object.fromEntries([...part.attributes].map(({ name, value }) => [name, value])),
  }]))"""


def start(figure: Any) -> Places:
    """Return the place where each control starts."""
    return {name: place for name, _, place, *_ in figure.evaluate(CONTROLS)}


def last(figure: Any, control: str) -> int:
    """Return the last place of a control."""
    [n_options] = [n for name, n, *_ in figure.evaluate(CONTROLS) if name == control]
    return int(n_options) - 1


def frames(figure: Any) -> dict[str, Any]:
    """Return what a figure holds of its frames."""
    found: dict[str, Any] = json.loads(
        figure.locator('script[type="application/json"]').text_content()
    )
    return found


def assert_shows(figure: Any, places: Places, data: dict[str, Any] | None = None) -> None:
    """Every part, the controls' values and the label belong to the frame of these places."""
    data = data or frames(figure)
    controls = figure.evaluate(CONTROLS)
    assert [name for name, *_ in controls] == list(data["options"]) == list(places)
    frame = 0
    for name, n_options, _, words, spoken in controls:
        options = data["options"][name]
        assert n_options == len(options) and words == options[places[name]]
        assert spoken in (None, words)
        frame = frame * len(options) + places[name]
    drawn = figure.evaluate(PARTS)
    assert data["parts"]
    for part, attributes in data["parts"].items():
        for key, values in attributes.items():
            assert drawn[part][key] == values[frame], (part, key, places)
    label = figure.locator("svg").first.get_attribute("aria-label")
    assert label == data["labels"][frame].replace("\n", " ")


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


def test_some_page_has_a_moving_figure(moving: Callable[..., list[Any]]) -> None:
    assert moving("index") and moving("chapters/03_scaling") and len(ONE_OF_A_KIND) == 3


@pytest.mark.quick
@pytest.mark.parametrize("name", pages())
def test_moving_figures_follow_the_keyboard(moving: Callable[..., list[Any]], name: str) -> None:
    """One step of each slider, to the right, or to the left where it stands at its end."""
    for figure in moving(name):
        places = start(figure)
        assert_shows(figure, places)
        sliders = figure.locator("input[type=range]").all()
        assert sliders
        for slider in sliders:
            assert slider.evaluate("input => input.labels[0]?.textContent.trim()")
            control = str(slider.get_attribute("name"))
            step = -1 if places[control] == last(figure, control) else 1
            drawn = figure.locator("svg").first.evaluate("svg => svg.innerHTML")
            slider.press("ArrowRight" if step > 0 else "ArrowLeft")
            places[control] += step
            assert_shows(figure, places)
            assert figure.locator("svg").first.evaluate("svg => svg.innerHTML") != drawn


@pytest.mark.parametrize("name", pages())
def test_keyboard_takes_a_figure_through_all_its_frames(
    moving: Callable[..., list[Any]], name: str
) -> None:
    for figure in moving(name):
        controls, data = figure.evaluate(CONTROLS), frames(figure)
        forward = {  # a slider has a spoken value, a list has none
            name: "ArrowRight" if spoken else "ArrowDown" for name, *_, spoken in controls
        }
        at: Places = {}
        for choice in itertools.product(*(range(n_options) for _, n_options, *_ in controls)):
            for control, place in zip(forward, choice, strict=True):
                if at.get(control) != place:
                    key = forward[control] if place else "Home"
                    figure.locator(f'[name="{control}"]').press(key)
                    at[control] = place
            assert_shows(figure, at, data)


def assert_stands_still(figure: Any) -> None:
    """A picture with words, no control, and a table to open."""
    figure.scroll_into_view_if_needed()
    figure.locator("svg").first.wait_for()
    assert len(str(figure.locator("svg").first.get_attribute("aria-label")).split()) >= 5
    for control in figure.locator(".attn-controls, input, button, select").all():
        assert not control.is_visible()
    figure.locator("summary").first.click()
    table = figure.locator("table").first
    table.wait_for()
    rows = table.locator("tbody tr")
    assert rows.count() >= 2
    assert table.locator("thead th").count() == rows.first.locator("th, td").count()


@pytest.mark.parametrize("name", pages())
def test_without_scripts_a_figure_is_a_picture_and_a_table(
    moving: Callable[..., list[Any]], name: str
) -> None:
    for figure in moving(name, scripts=False):
        assert_stands_still(figure)


# -- outside of it ---------------------------------------------------------------------------------


class Stored(NamedTuple):
    """A figure as a notebook stores it: the chapter, the name of the first slider, the HTML."""

    chapter: str
    slider: str
    html: str


def stored() -> list[Stored]:
    """Return the figures of all chapters that move."""
    found = []
    for chapter in chapters():
        for cell in notebooks.read(ROOT / f"{chapter}.ipynb")["cells"]:
            for output in cell.get("outputs", []):
                html = output.get("data", {}).get("text/html", "")
                if "attn-moving" in html:
                    [slider, *_] = re.findall(r'<input type="range" name="(\w+)"', html)
                    found.append(Stored(chapter, slider, html))
    return found


FIGURES = stored()
# All figures have the same program. One of these has a slider, one a slider and a list, one three
# controls.
KINDS = ("chapters/03_scaling", "chapters/07_masks", "chapters/19_real_model")
ONE_OF_A_KIND = [one for one in FIGURES if one.chapter in KINDS]
each_figure = pytest.mark.parametrize("stored", FIGURES, ids=lambda one: f"{one[0]}-{one[1]}")
few_figures = pytest.mark.parametrize("stored", ONE_OF_A_KIND, ids=lambda one: one.chapter)


@pytest.fixture
def bare(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of its own, without any file or network: `bare(body, scripts=…)`."""
    contexts = []

    def open_bare(body: str, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": 800, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.route("**/*", lambda route: route.abort())
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: page.problems.append(said.text))
        page.on("request", lambda request: page.problems.append(request.url))
        page.set_content(f'<!doctype html><html lang="en"><title>A cell</title>{body}')
        return page

    yield open_bare
    for context in contexts:
        context.close()


def assert_moves(figure: Any, slider: str) -> None:
    """By keyboard to both ends of a slider."""
    places = start(figure)
    assert_shows(figure, places)
    said = figure.get_by_role("status").filter(has=figure.page.locator("xpath=self::p"))
    assert said.text_content() == ""
    for key, place in (("End", last(figure, slider)), ("Home", 0), ("End", last(figure, slider))):
        figure.locator(f'input[name="{slider}"]').press(key)
        assert_shows(figure, places | {slider: place})
    words = str(said.text_content())
    assert words and str(figure.locator("svg").get_attribute("aria-label")).startswith(words)


@each_figure
def test_a_stored_output_moves_in_a_page_alone(bare: Callable[..., Any], stored: Stored) -> None:
    page = bare(stored.html)
    assert_moves(page.locator(MOVING), stored.slider)
    # Two figures in a page would have an id twice.
    assert page.locator("[id]").count() == 0
    assert page.problems == []


@few_figures
def test_an_output_moves_as_jupyter_inserts_it(bare: Callable[..., Any], stored: Stored) -> None:
    page = bare("<div class='jp-OutputArea-output'></div>")
    page.evaluate(
        """html => {
          // Markup that is inserted does not run; Jupyter then puts each script in anew.
          const area = document.querySelector("div");
          area.innerHTML = html;
          for (const script of area.querySelectorAll("script")) {
            const copy = document.createElement("script");
            for (const { name, value } of script.attributes) copy.setAttribute(name, value);
            copy.textContent = script.textContent;
            script.replaceWith(copy);
          }
        }""",
        stored.html,
    )
    assert_moves(page.locator(MOVING), stored.slider)
    assert page.problems == []


@few_figures
def test_an_output_moves_in_a_frame_of_its_own_as_in_colab(
    bare: Callable[..., Any], stored: Stored
) -> None:
    other = next(one for one in ONE_OF_A_KIND if one != stored)
    frames = "".join(
        f'<iframe sandbox="allow-scripts" width="760" height="420" title="Output of a cell" '
        f'srcdoc="{escape(one.html)}"></iframe>'
        for one in (stored, other)
    )
    page = bare(frames)
    inside = page.frame_locator("iframe").first
    assert_moves(inside.locator(MOVING), stored.slider)
    assert inside.locator("body").evaluate("() => origin") == "null"
    beside = page.frame_locator("iframe").last.locator(MOVING)
    assert_shows(beside, start(beside))
    assert page.problems == []


@few_figures
def test_two_of_a_kind_move_apart(bare: Callable[..., Any], stored: Stored) -> None:
    page = bare(stored.html + stored.html)
    first, second = page.locator(MOVING).all()
    slider, places = stored.slider, start(first)
    end = places | {slider: last(first, slider)}
    first.locator(f'input[name="{slider}"]').press("End")
    assert_shows(first, end)
    assert_shows(second, places)
    second.locator(f'input[name="{slider}"]').press("Home")
    assert_shows(second, places | {slider: 0})
    assert_shows(first, end)
    assert page.problems == []


@few_figures
def test_an_output_without_scripts_is_a_picture_and_a_table(
    bare: Callable[..., Any], stored: Stored
) -> None:
    assert_stands_still(bare(stored.html, java_script_enabled=False).locator(MOVING))


@few_figures
def test_a_mouse_drags_the_slider(open_page: OpenPage, stored: Stored) -> None:
    slider = stored.slider
    page = open_page(stored.chapter).page
    figure = page.locator(f'{MOVING}:has(input[name="{slider}"])')
    control = figure.locator(f'input[name="{slider}"]')
    control.scroll_into_view_if_needed()
    control.press("Home")
    control.hover()  # waits until what came into view above has taken its place
    box = control.bounding_box()
    assert box is not None and box["height"] >= 24
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=3)
    page.mouse.move(box["x"] + box["width"] + 30, y, steps=3)
    page.mouse.up()
    assert_shows(figure, start(figure) | {slider: last(figure, slider)})


@few_figures
def test_a_finger_drags_the_slider(bare: Callable[..., Any], stored: Stored) -> None:
    slider = stored.slider
    page = bare(
        f'<meta name="viewport" content="width=device-width">{stored.html}',
        has_touch=True,
        is_mobile=True,
    )
    page.set_viewport_size({"width": 360, "height": 800})
    figure = page.locator(MOVING)
    control = figure.locator(f'input[name="{slider}"]')
    control.scroll_into_view_if_needed()
    control.press("Home")
    box = control.bounding_box()
    touch = page.context.new_cdp_session(page)
    xs = [box["x"] + share * box["width"] for share in (0.02, 0.3, 0.7, 1.05)]
    for kind, x in zip(("touchStart", "touchMove", "touchMove", "touchMove"), xs, strict=True):
        points = [{"x": x, "y": box["y"] + box["height"] / 2}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert_shows(figure, start(figure) | {slider: last(figure, slider)})
