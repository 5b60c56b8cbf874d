"""Figures that move, outside the book as in it: alone, in Jupyter's manner, in Colab's, by touch.

What a notebook stores is put into a bare page; no other file is there, and no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import pytest

from tests.site import (
    test_mask_explorer,
    test_scaling_explorer,
    test_stepper,
    test_temperature_explorer,
    test_tile_walk,
    test_turned,
)
from tests.site.conftest import ROOT, OpenPage, shown

Check = Callable[[Any], None]


def shows(part: str, words: str) -> Check:
    """Return the check that a part of a figure has these words."""

    def check(figure: Any) -> None:
        assert shown(figure, part) == words

    return check


# Chapter, the slider that is moved, and what the figure shows before, at the slider's start and at
# its end.
FIGURES: dict[str, tuple[str, str, Check, Check, Check]] = {
    "turned query": (
        "01_lookup",
        "angle",
        lambda figure: test_turned.assert_shows_query(figure, 0),
        lambda figure: test_turned.assert_shows_query(figure, 0),
        lambda figure: test_turned.assert_shows_query(figure, 345),
    ),
    "turned pair": (
        "02_scores",
        "q",
        lambda figure: test_turned.assert_shows_pair(figure, 0, 60),
        lambda figure: test_turned.assert_shows_pair(figure, 0, 60),
        lambda figure: test_turned.assert_shows_pair(figure, 330, 60),
    ),
    "scaling explorer": (
        "03_scaling",
        "d_k",
        lambda figure: test_scaling_explorer.assert_shows(figure, 64),
        lambda figure: test_scaling_explorer.assert_shows(figure, 1),
        lambda figure: test_scaling_explorer.assert_shows(figure, 1024),
    ),
    "temperature explorer": (
        "04_softmax",
        "temperature",
        lambda figure: test_temperature_explorer.assert_shows(figure, 0),
        lambda figure: test_temperature_explorer.assert_shows(figure, -4),
        lambda figure: test_temperature_explorer.assert_shows(figure, 5),
    ),
    "stepper": (
        "05_output",
        "token",
        lambda figure: test_stepper.assert_shows(figure, 0, 0),
        lambda figure: test_stepper.assert_shows(figure, 0, 0),
        lambda figure: test_stepper.assert_shows(figure, 2, 0),
    ),
    "word in context": (
        "05_output",
        "sentence",
        shows("title", "“bank” alone"),
        shows("title", "“bank” alone"),
        shows("title", "“the bank approved the loan”"),
    ),
    "handout links": (
        "06_published_examples",
        "link",
        shows("told", "raw scores, as printed"),
        shows("told", "raw scores, as printed"),
        shows("told", "weights of token 1, against X"),
    ),
    "mask explorer": (
        "07_masks",
        "n_keys",
        lambda figure: test_mask_explorer.assert_shows(figure, "window", 5, 2),
        lambda figure: test_mask_explorer.assert_shows(figure, "window", 3, 2),
        lambda figure: test_mask_explorer.assert_shows(figure, "window", 8, 2),
    ),
    "tile walk": (
        "12_online_softmax",
        "tile",
        lambda figure: test_tile_walk.assert_shows(figure, "all keys", 9),
        lambda figure: test_tile_walk.assert_shows(figure, "all keys", 0),
        lambda figure: test_tile_walk.assert_shows(figure, "all keys", 9),
    ),
    "cache filling": (
        "15_decoding",
        "step",
        shows("scores-so-far", "10"),
        shows("scores-so-far", "0"),
        shows("scores-so-far", "28"),
    ),
}
# The same script moves all of them: one shows what can go wrong there, the rest are `make slow`'s.
REST = [pytest.param(name, marks=pytest.mark.slow) for name in FIGURES if name != "stepper"]
ALL = pytest.mark.parametrize("name", ["stepper", *REST])


def output(name: str) -> str:
    """The HTML that the notebook stores for a figure."""
    notebook = json.loads((ROOT / "chapters" / f"{FIGURES[name][0]}.ipynb").read_text("utf-8"))
    stored = [
        "".join(part["data"]["text/html"])
        for cell in notebook["cells"]
        for part in cell.get("outputs", [])
        if "text/html" in part.get("data", {})
    ]
    slider = f'name="{FIGURES[name][1]}"'
    [found] = [html for html in stored if "attn-moving" in html and slider in html]
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
    """By keyboard to both ends of a slider: every value is the package's."""
    _, slider, before, start, end = FIGURES[name]
    before(figure)
    said = figure.get_by_role("status").filter(has=figure.page.locator("xpath=self::p"))
    assert said.text_content() == ""
    control = figure.locator(f'input[name="{slider}"]')
    for key, check in (("End", end), ("Home", start), ("End", end)):
        control.press(key)
        check(figure)
    words = str(said.text_content())
    assert words and str(figure.locator("svg").get_attribute("aria-label")).startswith(words)


@ALL
def test_a_stored_output_moves_in_a_page_alone(bare: Callable[..., Any], name: str) -> None:
    page = bare(output(name))
    assert_moves(name, page.locator("figure.attn-moving"))
    assert page.problems == []


@pytest.mark.slow
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
    assert_moves(name, page.locator("figure.attn-moving"))
    assert page.problems == []


@ALL
def test_an_output_moves_in_a_frame_of_its_own_as_in_colab(
    bare: Callable[..., Any], name: str
) -> None:
    others = [other for other in FIGURES if other != name][:1]
    frames = "".join(
        f'<iframe sandbox="allow-scripts" width="760" height="420" title="Output of a cell" '
        f'srcdoc="{escape(output(one))}"></iframe>'
        for one in (name, *others)
    )
    page = bare(frames)
    inside = page.frame_locator("iframe").first
    assert_moves(name, inside.locator("figure.attn-moving"))
    assert inside.locator("body").evaluate("() => origin") == "null"
    FIGURES[others[0]][2](page.frame_locator("iframe").last.locator("figure.attn-moving"))
    assert page.problems == []


@pytest.mark.slow
@ALL
def test_two_of_a_kind_move_apart(bare: Callable[..., Any], name: str) -> None:
    page = bare(output(name) + output(name))
    first, second = page.locator("figure.attn-moving").all()
    _, slider, before, start, end = FIGURES[name]
    first.locator(f'input[name="{slider}"]').press("End")
    end(first)
    before(second)
    second.locator(f'input[name="{slider}"]').press("Home")
    start(second)
    end(first)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(part => part.id)")
    assert ids == [] and page.problems == []


@ALL
def test_an_output_without_scripts_is_a_picture_and_a_table(
    bare: Callable[..., Any], name: str
) -> None:
    figure = bare(output(name), java_script_enabled=False).locator("figure.attn-moving")
    figure.locator("svg").wait_for()
    assert len(str(figure.locator("svg").get_attribute("aria-label")).split()) > 10
    assert not figure.locator(".attn-controls").is_visible()
    figure.locator("summary").click()
    figure.locator("table").wait_for()


@pytest.mark.slow
@ALL
def test_a_mouse_drags_the_slider(open_page: OpenPage, name: str) -> None:
    chapter, slider, before, start, end = FIGURES[name]
    page = open_page(f"chapters/{chapter}").page
    figure = page.locator(f'figure.attn-moving:has(input[name="{slider}"])')
    before(figure)
    control = figure.locator(f'input[name="{slider}"]')
    control.scroll_into_view_if_needed()
    control.press("Home")
    start(figure)
    box = control.bounding_box()
    assert box is not None and box["height"] >= 24
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=3)
    page.mouse.move(box["x"] + box["width"] + 30, y, steps=3)
    page.mouse.up()
    end(figure)


@pytest.mark.slow
@ALL
def test_a_finger_drags_the_slider(bare: Callable[..., Any], name: str) -> None:
    _, slider, _, start, end = FIGURES[name]
    page = bare(
        f'<meta name="viewport" content="width=device-width">{output(name)}',
        has_touch=True,
        is_mobile=True,
    )
    page.set_viewport_size({"width": 360, "height": 800})
    figure = page.locator("figure.attn-moving")
    control = figure.locator(f'input[name="{slider}"]')
    control.scroll_into_view_if_needed()
    control.press("Home")
    start(figure)
    box = control.bounding_box()
    touch = page.context.new_cdp_session(page)
    places = [box["x"] + share * box["width"] for share in (0.02, 0.3, 0.7, 1.05)]
    for kind, x in zip(("touchStart", "touchMove", "touchMove", "touchMove"), places, strict=True):
        points = [{"x": x, "y": box["y"] + box["height"] / 2}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    end(figure)
