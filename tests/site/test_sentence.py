"""The first page's line: its numbers are those of attnlib, and how one uses it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnbook import sentence
from attnbook.figures.labels import decimal
from attnlib.numpy_dense import scaled_dot_product_attention
from tests.site.conftest import OpenPage

SENTENCES = """\
the cat chased the mouse
i wrote a python program
we ate strawberry jam on toast
we sat in a traffic jam on the road
the virus gave the child a fever
the virus stole the data on my computer
he hit the ball with a bat
the vampire turned into a bat
she poured milk from the pitcher
the pitcher threw the ball to the catcher
she paid cash at the bank
the boat reached the bank of the river
he played bass guitar in a band
he caught a bass in the lake
a python is a large snake
python is a language for a computer
the crane lifted the steel wheel
attention is all you need
i love my dog and my cat
who drank the hot tea of the king
""".splitlines()

# What each word of each sentence shows under one divisor: they take turns.
SHOWN = """async sentences => {
  const root = document.querySelector(".sentence"), line = root.querySelector("input"), seen = [];
  for (const sentence of sentences) {
    line.value = sentence;
    line.dispatchEvent(new Event("input"));
    const words = () => [...root.querySelectorAll(".sentence-words button")];
    const there = () => words().map(one => one.firstChild.data).join(" ") === sentence &&
      words().every(one => !one.disabled);
    for (let i = 0; !there() && i < 400; i++) await new Promise(resolve => setTimeout(resolve, 5));
    for (const [j, button] of words().entries()) {
      root.querySelectorAll("input[type=radio]")[j % 3].click();
      button.click();
      const beam = root.querySelector(".sentence-beam");
      const leans = beam.hasAttribute("hidden") ? null : beam.getAttribute("aria-label");
      seen.push([
        [...root.querySelectorAll(".sentence-words small")].map(one => one.textContent),
        leans, [...root.querySelectorAll("dd")].map(one => one.textContent),
        root.querySelector(".sentence-said").textContent,
      ]);
    }
  }
  return seen;
}"""


def expected(text: str, divisor: int, asks: int) -> list[Any]:
    """Return what the page must show, computed by attnlib."""
    tokens = text.split()
    x = sentence.vectors(tokens)
    others = np.array(tokens)[None] != tokens[asks]

    def attention(values: Any) -> Any:
        return scaled_dot_product_attention(8 * x[[asks]], 8 * x, values, others, scale=1 / divisor)

    taken = attention(np.eye(len(x)))[0]
    small = [f"{100 * weight:.0f}%" for weight in taken]
    small[asks] = "asks"
    ways = {"alone": x[asks], "plain mean": x[others[0]].mean(axis=0), "attention": attention(x)[0]}
    near = [", ".join(sentence.nearest(way, tokens)) for way in ways.values()]
    first = [tokens[asks]] if tokens[asks] in sentence.SENSES else []
    best = int(taken.argmax())
    least = float(taken[others[0]].min())
    alike = others.sum() > 1 and taken[best] < 2 * least
    said = f"“{tokens[asks]}” takes {small[best]} from “{tokens[best]}”"
    if alike:
        ends = f"{100 * least:.0f}% to {small[best]}"
        said = f"“{tokens[asks]}” takes {ends} from each word, nearly the plain mean"
    if not first:
        return [small, None, near, said]
    poles = sentence.SENSES[first[0]].split()
    to = sentence.vectors(poles)
    leans = {name: float(way @ (to[1] - to[0])) for name, way in ways.items()}
    told = ", ".join(f"{name} {decimal(lean)}" for name, lean in leans.items())
    label = f"A beam from {poles[0]} to {poles[1]}: {told}."
    further = leans["attention"] - leans["plain mean"]
    gives = float(x[best] @ (to[1] - to[0])) - leans["plain mean"]
    unit = {name: lean / np.linalg.norm(ways[name]) for name, lean in leans.items()}
    turns = unit["attention"] - unit["plain mean"]
    moves = ""
    if not alike and abs(further) > 0.05 and further * gives > 0 and further * turns > 0:
        moves = f": nearer to {poles[int(further > 0)]} than the plain mean"
    return [small, label, near, said + moves]


@pytest.mark.quick
def test_the_numbers_are_those_of_attnlib(open_page: OpenPage) -> None:
    visit = open_page("index", motion="reduce")
    seen = visit.page.evaluate(SHOWN, SENTENCES)
    asked = [
        (text, sentence.DIVISORS[asks % 3], asks)
        for text in SENTENCES for asks in range(len(text.split()))
    ]
    for one, shown in zip(asked, seen, strict=True):
        assert shown == expected(*one), one
    assert visit.problems == visit.foreign == []


@pytest.mark.quick
def test_a_sentence_is_typed_clicked_switched_and_sent_on(open_page: OpenPage) -> None:
    visit = open_page("index", width=360, height=780, motion="reduce")
    page = visit.page
    said, words = page.locator(".sentence-said"), page.locator(".sentence-words")
    told = "“python” takes 82% from “program”: nearer to software than the plain mean"
    assert said.text_content() == told
    # By keyboard alone: the line, then the words, then the divisors.
    line = page.get_by_label("Type a sentence, click a word:")
    line.fill("Granny's giraffe drank milkk from the pitcher!")
    missing = page.locator(".sentence-missing span")
    missing.nth(2).wait_for()
    assert [str(one.text_content()).split(":")[0] for one in missing.all()] == [
        "“granny” is not here. Near it", "“giraffe” is not here, and none is spelt like it.",
        "“milkk” is not here. Near it",
    ]  # by its meaning; not at all; by its letters
    assert words.get_by_role("button", disabled=True).count() == 3
    missing.nth(0).get_by_role("button", name="grandmother").press("Enter")
    assert line.input_value() == "grandmother giraffe drank milkk from the pitcher"
    missing.get_by_role("button", name="milk", exact=True).press("Enter")
    pressed = words.get_by_role("button", pressed=True)
    assert str(pressed.text_content()).startswith("pitcher")
    words.get_by_role("button", name="milk").press("Enter")
    assert pressed.text_content() == "milk asks"
    assert str(said.text_content()).startswith("“milk” takes")
    single = page.locator(".sentence-single")
    assert str(single.text_content()).startswith("No two senses of “milk” are stored")
    page.get_by_label("√dₖ = 8").press("ArrowLeft")
    page.wait_for_url("**/index.html#*&word=4&divisor=1")
    told = str(said.text_content())
    assert "say=grandmother+giraffe+drank+milk+from+the+pitcher" in page.url
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # The address brings all of it back.
    page.reload()
    said.filter(has_text=told).wait_for()
    assert pressed.text_content() == "milk asks"
    assert page.get_by_label("1", exact=True).is_checked()
    line.fill("milk")
    said.filter(has_text="Type at least two words").wait_for()
    assert visit.problems == visit.foreign == []


@pytest.mark.quick
def test_without_scripts_the_drawing_of_bank_stands_there(open_page: OpenPage) -> None:
    page = open_page("index", scripts=False).page
    assert page.locator(".first-screen .attn-moving svg").is_visible()
    assert not page.locator(".sentence, .sentence-limits").filter(visible=True).count()


@pytest.mark.quick
def test_the_first_screen_is_light(book: Path) -> None:
    """All that the page asks for at once, as a server sends it, without the stored words."""
    html = (book / "index.html").read_text(encoding="utf-8")
    files = re.findall(r'(?:src|href)="(_static/[^"?]+\.(?:js|css))', html)
    assert "_static/sentence.js" in files and not [one for one in files if "sentence_" in one]
    sent = sum(len(gzip.compress((book / one).read_bytes())) for one in ("index.html", *files))
    assert sent < 250_000 - 50_000  # three faces of the formulas take 48,000 more
