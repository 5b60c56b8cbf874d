"""Figures that move show in each frame what is stored for it: in the book, and outside of it.

That the stored frames are right is held by tests/attnbook/test_figures.py, and by nbval that the
notebooks store them. Outside of the book, what a notebook stores is put into a bare page; no other
file is there, and no network.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import ROOT, OpenPage, pages

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


def assert_shows(figure: Any, places: Places) -> None:
    """Every part, the controls' values and the label belong to the frame of these places."""
    data = json.loads(figure.locator('script[type="application/json"]').text_content())
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


def has_moving_figure(book: Path, name: str) -> bool:
    """Whether a built page holds a figure that moves."""
    return "attn-moving" in (book / f"{name}.html").read_text(encoding="utf-8")


def test_some_page_has_a_moving_figure(book: Path) -> None:
    assert [name for name in pages() if has_moving_figure(book, name)]


@pytest.mark.parametrize("name", pages())
def test_moving_figures_follow_the_keyboard(book: Path, open_page: OpenPage, name: str) -> None:
    """One step of each slider, to the right, or to the left where it stands at its end."""
    if not has_moving_figure(book, name):
        return  # most pages have none; that some page has one is asserted above
    visit = open_page(name)
    for figure in visit.page.locator(MOVING).all():
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
    assert visit.problems == []


@pytest.mark.parametrize("name", pages())
def test_keyboard_takes_a_figure_through_all_its_frames(
    book: Path, open_page: OpenPage, name: str
) -> None:
    if not has_moving_figure(book, name):
        return
    visit = open_page(name)
    for figure in visit.page.locator(MOVING).all():
        controls = list(start(figure))
        at: Places = {}
        for choice in itertools.product(*(range(last(figure, name) + 1) for name in controls)):
            for control, place in zip(controls, choice, strict=True):
                if at.get(control) == place:
                    continue
                own = figure.locator(f'[name="{control}"]')
                forward = (
                    "ArrowDown" if own.evaluate("c => c.tagName") == "SELECT" else "ArrowRight"
                )
                own.press("Home" if place == 0 else forward)
                at[control] = place
            assert_shows(figure, at)
    assert visit.problems == []


@pytest.mark.parametrize("name", pages())
def test_moving_figures_have_a_table(book: Path, open_page: OpenPage, name: str) -> None:
    if not has_moving_figure(book, name):
        return
    for figure in open_page(name).page.locator(MOVING).all():
        figure.locator("summary").first.click()
        table = figure.locator("table").first
        table.wait_for()
        rows = table.locator("tbody tr")
        assert rows.count() >= 2
        assert table.locator("thead th").count() == rows.first.locator("th, td").count()


@pytest.mark.parametrize("name", pages())
def test_without_scripts_a_figure_stands_still(book: Path, open_page: OpenPage, name: str) -> None:
    if not has_moving_figure(book, name):
        return
    visit = open_page(name, scripts=False)
    for figure in visit.page.locator(MOVING).all():
        figure.scroll_into_view_if_needed()
        figure.locator("svg").first.wait_for()
        for control in figure.locator("input, button, select").all():
            assert not control.is_visible()
        figure.locator("summary").first.click()
        figure.locator("table").first.wait_for()


# -- outside of it ---------------------------------------------------------------------------------

# For each figure its chapter, and the slider that is moved.
FIGURES = {
    "turned query": ("01_lookup", "angle"),
    "turned pair": ("02_scores", "q"),
    "scaling explorer": ("03_scaling", "d_k"),
    "temperature explorer": ("04_softmax", "temperature"),
    "stepper": ("05_output", "token"),
    "word in context": ("05_output", "sentence"),
    "handout links": ("06_published_examples", "link"),
    "mask explorer": ("07_masks", "n_keys"),
    "tile walk": ("12_online_softmax", "tile"),
    "forms explorer": ("18_todays_models", "setting"),
}
ALL = pytest.mark.parametrize("name", FIGURES)


def output(name: str) -> str:
    """The HTML that the notebook stores for a figure."""
    chapter, slider = FIGURES[name]
    notebook = json.loads((ROOT / "chapters" / f"{chapter}.ipynb").read_text("utf-8"))
    stored = [
        "".join(part["data"]["text/html"])
        for cell in notebook["cells"]
        for part in cell.get("outputs", [])
        if "text/html" in part.get("data", {})
    ]
    [found] = [html for html in stored if "attn-moving" in html and f'name="{slider}"' in html]
    return found


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


def assert_moves(name: str, figure: Any) -> None:
    """By keyboard to both ends of a slider."""
    slider, places = FIGURES[name][1], start(figure)
    assert_shows(figure, places)
    said = figure.get_by_role("status").filter(has=figure.page.locator("xpath=self::p"))
    assert said.text_content() == ""
    for key, place in (("End", last(figure, slider)), ("Home", 0), ("End", last(figure, slider))):
        figure.locator(f'input[name="{slider}"]').press(key)
        assert_shows(figure, places | {slider: place})
    words = str(said.text_content())
    assert words and str(figure.locator("svg").get_attribute("aria-label")).startswith(words)


@ALL
def test_a_stored_output_moves_in_a_page_alone(bare: Callable[..., Any], name: str) -> None:
    page = bare(output(name))
    assert_moves(name, page.locator(MOVING))
    assert page.problems == []


@ALL
def test_an_output_moves_as_jupyter_inserts_it(bare: Callable[..., Any], name: str) -> None:
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
        output(name),
    )
    assert_moves(name, page.locator(MOVING))
    assert page.problems == []


@ALL
def test_an_output_moves_in_a_frame_of_its_own_as_in_colab(
    bare: Callable[..., Any], name: str
) -> None:
    other = next(one for one in FIGURES if one != name)
    frames = "".join(
        f'<iframe sandbox="allow-scripts" width="760" height="420" title="Output of a cell" '
        f'srcdoc="{escape(output(one))}"></iframe>'
        for one in (name, other)
    )
    page = bare(frames)
    inside = page.frame_locator("iframe").first
    assert_moves(name, inside.locator(MOVING))
    assert inside.locator("body").evaluate("() => origin") == "null"
    beside = page.frame_locator("iframe").last.locator(MOVING)
    assert_shows(beside, start(beside))
    assert page.problems == []


@ALL
def test_two_of_a_kind_move_apart(bare: Callable[..., Any], name: str) -> None:
    page = bare(output(name) + output(name))
    first, second = page.locator(MOVING).all()
    slider, places = FIGURES[name][1], start(first)
    end = places | {slider: last(first, slider)}
    first.locator(f'input[name="{slider}"]').press("End")
    assert_shows(first, end)
    assert_shows(second, places)
    second.locator(f'input[name="{slider}"]').press("Home")
    assert_shows(second, places | {slider: 0})
    assert_shows(first, end)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(part => part.id)")
    assert ids == [] and page.problems == []


@ALL
def test_an_output_without_scripts_is_a_picture_and_a_table(
    bare: Callable[..., Any], name: str
) -> None:
    figure = bare(output(name), java_script_enabled=False).locator(MOVING)
    figure.locator("svg").wait_for()
    assert len(str(figure.locator("svg").get_attribute("aria-label")).split()) > 10
    assert not figure.locator(".attn-controls").is_visible()
    figure.locator("summary").click()
    figure.locator("table").wait_for()


@ALL
def test_a_mouse_drags_the_slider(open_page: OpenPage, name: str) -> None:
    chapter, slider = FIGURES[name]
    page = open_page(f"chapters/{chapter}").page
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


@ALL
def test_a_finger_drags_the_slider(bare: Callable[..., Any], name: str) -> None:
    slider = FIGURES[name][1]
    page = bare(
        f'<meta name="viewport" content="width=device-width">{output(name)}',
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
