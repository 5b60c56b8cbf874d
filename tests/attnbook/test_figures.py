"""Every drawing against its stored image, and what all drawings promise.

An image is an SVG in the folder `images` beside this file. Words and structure are compared to the
letter, places within what an eye can see: `pictures.py` says how. `make images` writes the images
anew; look at them before you commit them.
"""

from __future__ import annotations

import inspect
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
import yaml
from contrast import contrast
from drawings import DRAWINGS, drawn, texts
from pictures import differences

from attnbook import costs, examples, figures
from attnbook.figures.drawing import COLOURS
from attnbook.figures.labels import decimal
from attnlib import numpy_tokenwise
from tools import ROOT

IMAGES = Path(__file__).parent / "images"


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_the_stored_image(
    name: str, update_images: bool, compared_part: Callable[[str], str]
) -> None:
    image = IMAGES / f"{name}.svg"
    svg = drawn(name).plain_svg().replace("><", ">\n<") + "\n"
    if update_images:
        image.parent.mkdir(exist_ok=True)
        image.write_text(svg, encoding="utf-8")
    stored = image.read_text(encoding="utf-8")
    found = differences(compared_part(svg), compared_part(stored))
    assert not found, f"{name} differs; look, then `make images`:\n" + "\n".join(found[:10])


def test_the_readme_has_its_figure_for_dark_pages(update_images: bool) -> None:
    """The colours are those of the website's dark theme."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    dark = config["sphinx"]["config"]["html_theme_options"]["dark_css_variables"]
    svg = (IMAGES / "scaling_explorer.svg").read_text(encoding="utf-8")
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, dark[f"attn-{name}"])
    image = IMAGES / "dark" / "scaling_explorer.svg"
    if update_images:
        image.parent.mkdir(exist_ok=True)
        image.write_text(svg, encoding="utf-8")
    assert image.read_text(encoding="utf-8") == svg, "look, then `make images`"


def test_one_language_of_colour() -> None:
    """Drawings, both themes and formulas have the same names; each is written down and legible."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    options = config["sphinx"]["config"]["html_theme_options"]
    for theme in ("light", "dark"):
        variables = options[f"{theme}_css_variables"]
        named = {name[5:]: value for name, value in variables.items() if name[:5] == "attn-"}
        assert named.keys() == COLOURS.keys()
        assert theme == "dark" or named == COLOURS
        for name in COLOURS.keys() - {"grid", "paper"}:
            assert contrast(named[name], named["paper"]) >= 4.5, (theme, name)
            assert contrast(named[name], variables["book-surface"]) >= 4.5, (theme, name)
        assert len({*named.values()}) == len(named)
    guide = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"(?m)^- ((?:`[a-z]+`(?: and )?)+)[,:]", guide)
    assert set(re.findall("[a-z]+", " ".join(told).replace(" and ", " "))) == COLOURS.keys()
    formulas = (ROOT / "tools" / "site" / "assets" / "book.css").read_text(encoding="utf-8")
    in_formulas = re.findall(r"\.katex \.attn-(\w+) \{ color: var\(--attn-(\w+)\); \}", formulas)
    assert in_formulas == [(n, n) for n in ("query", "key", "value", "weight", "output")]


def test_every_public_drawing_has_an_image() -> None:
    offered = dict(inspect.getmembers(figures, inspect.isfunction))
    functions = offered.keys() - {"moving", "needs"}
    variants = {"matrix_product": "matrix_equation"}
    assert functions == {variants.get(name, name) for name in DRAWINGS}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_complete_svg_with_words_and_theme_colours(name: str) -> None:
    drawing = drawn(name)
    root = ET.fromstring(drawing.svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == drawing.alt and len(drawing.alt.split()) >= 5
    # No colour but the named ones, so that the dark theme reaches all of them.
    colours = set(re.findall(r"#[0-9a-f]{6}\b", drawing.svg))
    assert colours <= set(COLOURS.values())
    assert all(f"var(--attn-{n}, {c})" in drawing.svg for n, c in COLOURS.items() if c in colours)
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", drawing.svg), "a colour outside a variable"
    # No coordinate with more than two decimals.
    places = re.sub(r'(fill-opacity|aria-label)="[^"]*"|>[^<]*<', "", drawing.svg)
    assert not re.search(r"\d\.\d{3,}", places)


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_again_gives_the_same_text_and_leaves_the_readers_settings_alone(name: str) -> None:
    first = drawn(name)._repr_html_()
    with mpl.rc_context({"font.size": 30}):
        settings = dict(mpl.rcParams)
        assert DRAWINGS[name]()._repr_html_() == first
        assert dict(mpl.rcParams) == settings


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', svg)


@pytest.mark.parametrize("name", DRAWINGS)
def test_ids_are_referred_to_and_no_reference_dangles(name: str) -> None:
    svg = drawn(name).svg
    references = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    assert len(ids(svg)) == len(set(ids(svg)))
    assert {a or b for a, b in references} == set(ids(svg))


def test_ids_of_two_charts_do_not_meet_on_one_page() -> None:
    first, second = (set(ids(drawn(name).svg)) for name in ("lines", "rule_curves"))
    assert first and second and not first & second


def test_the_last_bit_of_a_coordinate_changes_nothing() -> None:
    def rise(noise: float) -> str:
        heights = [2.0 * noise, 3.0 * noise]
        return figures.lines([1, 2], {"a": heights}, x_title="x", y_title="y", alt="a rise").svg

    assert '-1"' in rise(1.0)  # ids are numbers, no hashes of coordinates
    assert rise(1.0) == rise(1.0 + 2**-52) == rise(1.0 - 2**-53)
    half = figures.heatmap([[0.275 - 2**-54, 0.275, 0.275 + 2**-54]], name="weights", limit=1.0)
    assert half.svg.count('fill-opacity="0.138"') == 3


def test_a_bar_is_brown_where_a_longer_text_leaves_the_angles_of_training() -> None:
    """Training shows 2 radians and 1; the longer text reaches 4 and 2, and slower 2.5 and 1."""
    drawing = drawn("angles_reached")
    assert "as it was 32, 0.64, 0.32; slower 16, 0.40, 0.16. Kept in all" in drawing.alt
    assert drawing.alt.endswith(": by none.")
    brown = r'<rect[^>]* width="([\d.]+)" height="10" fill="var\(--attn-minus'
    bars = re.findall(brown, drawing.svg)
    radians = [float(width) * 2 * np.pi / 88 for width in bars[:-1]]  # the last is the legend's
    assert radians == pytest.approx([2, 1, 0.5], abs=0.001)
    # A step that is another, and an angle that is not reached, are crossed.
    assert [mark for mark in texts(drawing) if mark in "✓✗"] == [*"✓✗✗✗✗✓"]
    ways = {"as it was": [1.0, 0.02, 0.01], "rescued": [1.0, 0.01, 0.005]}
    ways["slower still"] = [1.0, 0.005, 0.001]
    alt = figures.angles_reached(ways, 100, 200, (0, 1, 2)).alt
    assert alt.endswith("Kept in all 3 pairs: rescued, slower still.")


def test_the_handout_differs_where_half_a_unit_of_the_last_digit_does_not_explain_it() -> None:
    told = figures.handout_links(examples.published_identity())._repr_html_()
    for link, differ in {
        "raw scores, against the products of X": "15 of 25",
        "scaled scores, against the printed raw scores": "0 of 25",
        "weights of token 1, against the printed scores": "5 of 5",
    }.items():
        assert f"{link}: {differ} differ" in told


def test_a_chart_rounds_coordinates_and_not_the_numbers_that_it_prints() -> None:
    heights = {"a": [0.2051, 0.2052, 0.2053]}
    drawing = figures.lines([1, 2, 3], heights, x_title="x", y_title="y", alt="a line of points")
    assert any(re.fullmatch(r"0\.205\d+", words) for words in texts(drawing))


def test_lines_that_end_together_have_their_names_in_the_order_of_the_lines() -> None:
    way = {"low": [0, 0.1, 1], "high": [0, 0.9, 1]}
    drawing = figures.lines([0, 1, 2], way, x_title="x", y_title="y", alt="a")._repr_html_()
    height = {name: float(y) for y, name in re.findall(r'y="([\d.]+)"[^>]*>(low|high)<', drawing)}
    assert height["high"] < height["low"]


def test_four_lines_differ_in_more_than_colour() -> None:
    way = {name: [0.1 * i, 0.2 * i] for i, name in enumerate("abcd")}
    drawing = figures.lines([1, 2], way, x_title="x", y_title="y", alt="four lines that rise").svg
    dashes = re.findall(r"stroke-dasharray: ([\d., ]+)", drawing)
    assert len(set(dashes)) == 3  # and one line is whole
    assert [drawing.count(f">{name}<") for name in way] == [1] * 4


def test_the_owned_tiles_are_those_of_the_two_loops() -> None:
    """A column begins where `keys_backward` does, and a row ends where `query_backward` does."""
    b_q, b_k, row, start = 32, 16, 64, 48
    drawing = drawn("owned_tiles")
    rows, keys = range(start // b_q * b_q, 128, b_q), range(0, min(row + b_q, 128), b_k)
    told = f"goes down {len(rows)} tiles, the first with the queries from {rows[0]} on"
    assert told in drawing.alt
    assert f"right through {len(keys)} tiles to dQ" in drawing.alt
    seen = sum(j < i + b_q for i in range(0, 128, b_q) for j in range(0, 128, b_k))
    assert drawing.svg.count('fill-opacity="0.5"') == seen == 20


def test_heatmap_has_a_cross_where_an_entry_is_forbidden() -> None:
    drawing = figures.heatmap([[1.0, 0.0]], name="weights", forbidden=[[False, True]])
    assert drawing.alt.endswith("row 0: 1.00, ×.") and "0.00" not in texts(drawing)


WORDS = "one two three four five"


@pytest.mark.parametrize(
    "call",
    [
        lambda: figures.Drawing("<svg/>", "a chart"),
        lambda: figures.heatmap([[1.0]], name="w", rows=["a", "b"]),
        lambda: figures.matrix_equation(("X", [[1.0]], ["a", "b"], None), "=", ("Y", [[1.0]])),
        lambda: figures.matrix_equation(("X", [[1.0]], None, {"a": 2}), "=", ("Y", [[1.0]])),
        lambda: figures.matrix_equation(("X", [[2.0]]), "·", ("W", [[2.0]]), "=", ("Q", [[5.0]])),
        lambda: figures.head_explorer(
            {"": "ab", "2": "ba"}, np.ones((2, 1, 1, 2, 2)), looks=("a", "b")
        ),
        lambda: figures.weight_held([1.0], dict.fromkeys((2, 4, 8, 16), (0.5,))),
        lambda: figures.lines([1], dict.fromkeys("abcde", (1,)), x_title="", y_title="", alt=WORDS),
    ],
)
def test_what_would_be_drawn_wrong_without_an_error_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must.*; got "):
        call()


def test_the_poster_has_the_numbers_of_attnlib() -> None:
    def rows(table: np.ndarray, digits: int) -> str:
        return "; ".join(", ".join(decimal(v, digits) for v in row) for row in table)

    _, X, W_Q, W_K, W_V = examples.running()
    q, k, v = X @ W_Q, X @ W_K, X @ W_V
    scores, output = figures.sheet_scores().alt, figures.sheet_output().alt
    assert all((x == x.round(1)).all() for x in (q, k, v))  # one digit shows them all
    assert f"Q, L × dₖ: {rows(q, 1)}. Kᵀ, dₖ × S: {rows(k.T, 1)}" in scores
    assert rows(q @ k.T / np.sqrt(2), 1) in scores
    o = numpy_tokenwise.scaled_dot_product_attention(q, k, v)
    weights = numpy_tokenwise.scaled_dot_product_attention(q, k, np.eye(3))
    assert f"A, L × S: {rows(weights, 2)}. V, S × dᵥ: {rows(v, 1)}" in output
    assert output.endswith(f"{rows(o, 2)}.")
    # The draw is the explorer's.
    largest = figures.scaling_explorer((64, 1024), start=64, n_draws=2).table[1][1:4]
    assert re.findall(r": (\d\.\d+), ", figures.three_divisors().alt) == list(largest)
    row = np.array([0.5, 0.0, 1.0, 2.0, 0.5, 1.5])
    assert figures.sheet_merge().alt.endswith(f"ℓ = {np.exp(row - row.max()).sum():.2f}.")
    q = k = v = torch.empty(1, 32, 8192, 128, device="meta")
    counted = costs.operations(torch.nn.functional.scaled_dot_product_attention, q, k, v)
    told = figures.sheet_costs().alt
    assert f", {counted / 1e12:.3g} T," in told
    weights_of, cache = 2 * 32 * 8192**2 / 2**30, 2 * 2 * 32 * 8192 * 128 / 2**20
    assert f", {weights_of:g} GiB," in told and f", {cache:g} MiB," in told
