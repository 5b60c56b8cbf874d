"""Every drawing against its stored image, and its words, numbers and colours against its data.

An image is an SVG in the folder `images` beside this file. Words and structure are compared to the
letter, places within what an eye can see: `pictures.py` says how. `make images` writes the images
anew; look at them before you commit them.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import yaml
from pictures import differences

from attnbook import examples, experiments, figures, words
from attnbook.figures import moving
from attnbook.figures.drawing import COLOURS
from attnbook.figures.drawing import colour as css_colour
from attnlib import masks
from attnlib.numpy_dense import softmax
from attnlib.torch_ring import work
from tools import ROOT

IMAGES = Path(__file__).parent / "images"
SIZES = (4, 16, 64)


def _rules() -> dict[int, dict[str, experiments.RuleStatistics]]:
    return {d_k: experiments.scaling_rules(d_k, n_draws=50) for d_k in SIZES}


def _projected() -> tuple[np.ndarray, np.ndarray]:
    example = examples.running()
    return example.X @ example.W_Q, example.X @ example.W_K


def _stepper() -> figures.MovingDrawing:
    example = examples.running()
    return figures.attention_stepper(*_projected(), example.X @ example.W_V, example.tokens)


WALKED = np.array([[1.0, 0.0, 2.5, -1.0], [-2.0, -0.5, 0.0, 3.0], [0.5, 0.5, 1.5, 2.0]])
WALKED_VALUE = np.array([1.0, 3.0, -2.0, 4.0])


def _tile_walk() -> figures.MovingDrawing:
    return figures.tile_walk(WALKED, WALKED_VALUE, 2, 3)


def _formed() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(18).standard_normal
    return 2 * draw((5, 8)), draw((5, 8))


DRINKS = ["herb tea", "juice", "coffee"]
DRINK_KEYS = np.array([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])
PRICES = np.array([2.0, 4.0, 3.0])


def _turned_query() -> figures.MovingDrawing:
    names = {"features": ("hot", "caffeine"), "answer": "price"}
    return figures.turned_query(DRINK_KEYS, PRICES, DRINKS, **names)


def _cosines() -> dict[int, np.ndarray]:
    q, k = np.random.default_rng(0).standard_normal((2, 400, 64))
    return {2: np.cos(np.arange(400)), 64: (q * k).sum(axis=1) / 64}


KEPT = (8, 6, 4), (2, 5, 3), (16, 4)
WAYS = {"nothing kept": None, "in chunks": (2, 1, 1), "two calls": (1, 3)}


def _cache_filling() -> figures.MovingDrawing:
    return figures.cache_filling(4, WAYS, start=(1, 1))


def _head_explorer() -> figures.MovingDrawing:
    weights = [
        [[[1, 0, 0], [0.75, 0.25, 0], [0.5, 0.496, 0.004]], np.eye(3)],
        [np.ones((3, 3)) / 3, np.eye(3)[[1, 2, 0]]],
    ]
    return figures.head_explorer(["[CLS]", "a", "because"], weights, start=(2, 0, 0))


BANKS = ("fish swim near the bank", "the bank approved the loan", "the boat reached the river bank")
PROBES = ("water", "shore", "money")

# Exact, rounded (257 and 259 lie halfway between two numbers of bfloat16), too small, too large.
BITS = {"−6.5": -6.5, "0": 0.0, "10⁻⁸": 1e-8, "10⁻⁵": 1e-5, "6.5": 6.5, "257": 257.0}
BITS |= {"259": 259.0, "65,519": 65519.0, "90,000": 9e4, "10³⁹": 1e39, "−10³⁹": -1e39}


LETTERS = {"Ann to Bo": [[0, 0], [1, -1], [1, 1]], "Bo to Ann": [[0, 0], [1, 1], [1, -1]]}
HEADS = [[0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]


LENGTHS = [1000, 2000, 8000]
SIZES_IN_BYTES = {"square": [n**2 for n in LENGTHS], "straight": [999 * n for n in LENGTHS]}


DRAWINGS: dict[str, Callable[[], figures.Drawing]] = {
    "attention_stepper": lambda: _stepper(),
    "attention_steps": lambda: figures.attention_steps(3, 4, 2, 5),
    "backward_walk": lambda: figures.backward_walk(),
    "bars": lambda: figures.bars(
        ["a", "b"], {"hard": [0.0, 1.0], "soft": [0.3, 0.7]}, y_title="weight", alt="a b c d e"
    ),
    "bytes_explorer": lambda: figures.bytes_explorer(
        LENGTHS, SIZES_IN_BYTES, limits={"1 MB": 1e6}, start=2000
    ),
    "cache_filling": lambda: _cache_filling(),
    "cached_numbers": lambda: figures.cached_numbers(*KEPT),
    "compared": lambda: figures.compared(
        [[1.0, -2.0, 0.5]], [[1.04, -2.06, 0.7]], name="scores", digits=1, rows=["p"]
    ),
    "cosine_histograms": lambda: figures.cosine_histograms(_cosines()),
    "dealt_keys": lambda: figures.dealt_keys(600, 3),
    "forms_explorer": lambda: figures.forms_explorer(*_formed()),
    "handout_links": lambda: figures.handout_links(examples.published_identity()),
    "head_explorer": lambda: _head_explorer(),
    "head_weights": lambda: figures.head_weights([[[1, 0], [0.5, 0.5]], np.eye(2)], ["p", "q"]),
    "heads_diagram": lambda: figures.heads_diagram(7, 12, 3, 4, 5),
    "heatmap": lambda: figures.heatmap(
        [[1.0, -2.0, 0.0], [0.5, np.inf, np.nan]], name="scores", rows=["p", "q"]
    ),
    "hull": lambda: figures.hull(
        [[0, 0], [4, 0], [0, 2], [1, 0.5]], [[1, 1], [2, 0.5], [0.5, 0.5], [1, 0.5]], list("abcd")
    ),
    "lines": lambda: figures.lines(
        [1, 2, 4], {"one": [1, 2, 3], "two": [3, 2, 1]}, x_title="x", y_title="y", alt="a b c d e"
    ),
    "looking_back": lambda: figures.looking_back(
        "abc",
        {"one": np.eye(3), "two": [[0, 0, 0], [1, 0, 0], [0.25, 0.5, 0.25]]},
        ["", "a", "b"],
        start=2,
    ),
    "mask_explorer": lambda: figures.mask_explorer(
        3, (2, 4), (0, 2), start=("causal, bottom-right", 2, 0)
    ),
    "matrix_equation": lambda: figures.matrix_equation(
        ("X", [[1.0, -1.0]]), "·", ("W", [[2.0], [0.5]]), "=", ("Q", [[1.5]])
    ),
    "memory_levels": lambda: figures.memory_levels(
        {"cache": ("1 MB", "tiles"), "memory": ("9 GB", "Q, K, V")}
    ),
    "number_bits": lambda: figures.number_bits(BITS, start="6.5"),
    "plane": lambda: figures.plane(*_projected(), examples.running().tokens),
    "ring_bytes": lambda: figures.ring_bytes([2, 4, 8], 8_000_000, 2_000),
    "ring_timetable": lambda: figures.ring_timetable(3),
    "roofline": lambda: figures.roofline(
        {"slow": 2.0, "fast": 100.0}, peak=40e12, bandwidth=4e12, lower={"half": 20e12}
    ),
    "rotary_offset": lambda: figures.rotary_offset(
        (0.0, -1.5), (1.0, -1.0), ("sat", "cat"), start=(1, 1)
    ),
    "roofline_explorer": lambda: figures.roofline_explorer(
        [16, 64, 128],
        {"slow": [2.0, 2.5, 3.0], "fast": [1.0, 4.0, 100.0]},
        peak=40e12,
        bandwidth=4e12,
        start=64,
    ),
    "rule_curves": lambda: figures.rule_curves(
        SIZES, _rules(), {"largest": "largest weight", "entropy": "entropy"}
    ),
    "rule_curves_log": lambda: figures.rule_curves(
        SIZES, _rules(), {"gradient_mean": "mean"}, log_y=True
    ),
    "scaling_explorer": lambda: figures.scaling_explorer((4, 16, 64), start=16, n_draws=50),
    "score_growth": lambda: figures.score_growth(SIZES, [2.1, 3.9, 8.0]),
    "squares": lambda: figures.squares(
        [[1.0, -1.0, 0.25], [0.0, -0.25, 0.001]], name="z", rows="position", columns="entry"
    ),
    "shared_heads": lambda: figures.shared_heads(6, [6, 2, 1]),
    "temperature_explorer": lambda: figures.temperature_explorer(
        [0.0, 2.0, -1.0], ["p", "q", "r"], powers=(-1, 0, 2)
    ),
    "tile_walk": lambda: _tile_walk(),
    "turned_pair": lambda: figures.turned_pair(),
    "turned_query": lambda: _turned_query(),
    "which_head": lambda: figures.which_head(LETTERS, HEADS, ["it", "from", "to"]),
    "word_in_context": lambda: figures.word_in_context("bank", BANKS, PROBES),
}


def _texts(drawing: figures.Drawing) -> list[str]:
    return [
        "".join(e.itertext()) for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith("text")
    ]


def _in_frame(drawing: figures.Drawing, part: str, key: str, frame: int) -> str:
    """Return what a part of a moving drawing is in a frame: what changes, or else what is drawn."""
    assert isinstance(drawing, figures.MovingDrawing)
    if key in drawing.parts.get(part, {}):
        return drawing.parts[part][key][frame]
    (drawn,) = ET.fromstring(drawing.svg).findall(f".//*[@data-part='{part}']")
    return (drawn.text or "") if key == "text" else drawn.attrib[key]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_the_stored_image(
    name: str, update_images: bool, compared_part: Callable[[str], str]
) -> None:
    image = IMAGES / f"{name}.svg"
    drawn = DRAWINGS[name]().plain_svg().replace("><", ">\n<") + "\n"
    if update_images:
        image.parent.mkdir(exist_ok=True)
        image.write_text(drawn, encoding="utf-8")
    stored = image.read_text(encoding="utf-8")
    found = differences(compared_part(drawn), compared_part(stored))
    assert not found, f"{name} differs; look, then `make images`:\n" + "\n".join(found[:10])


def test_the_readme_has_its_figure_for_dark_pages(update_images: bool) -> None:
    """The colours are those of the website's dark theme."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    dark = config["sphinx"]["config"]["html_theme_options"]["dark_css_variables"]
    drawn = (IMAGES / "scaling_explorer.svg").read_text(encoding="utf-8")
    for name, colour in COLOURS.items():
        drawn = drawn.replace(colour, dark[f"attn-{name}"])
    image = IMAGES / "dark" / "scaling_explorer.svg"
    if update_images:
        image.parent.mkdir(exist_ok=True)
        image.write_text(drawn, encoding="utf-8")
    assert image.read_text(encoding="utf-8") == drawn, "look, then `make images`"


def test_every_public_drawing_has_an_image() -> None:
    functions = {name for name in figures.__all__ if name[0].islower()}
    assert functions == {name.removesuffix("_log") for name in DRAWINGS}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_complete_svg_with_words_and_theme_colours(name: str) -> None:
    drawing = DRAWINGS[name]()
    root = ET.fromstring(drawing.svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == drawing.alt and len(drawing.alt.split()) >= 5
    # No colour but the named ones, so that the dark theme reaches all of them.
    colours = set(re.findall(r"#[0-9a-f]{6}\b", drawing.svg))
    assert colours <= set(COLOURS.values())
    assert all(f"var(--attn-{n}, {c})" in drawing.svg for n, c in COLOURS.items() if c in colours)
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", drawing.svg), "a colour outside a variable"
    assert not re.search(
        r"\d\.\d{3,}", re.sub(r'(fill-opacity|aria-label)="[^"]*"|>[^<]*<', "", drawing.svg)
    )


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_the_same_twice_gives_the_same_text(name: str) -> None:
    assert DRAWINGS[name]()._repr_html_() == DRAWINGS[name]()._repr_html_()


@pytest.mark.parametrize("name", DRAWINGS)
def test_ids_are_referred_to_and_no_reference_dangles(name: str) -> None:
    svg = DRAWINGS[name]().svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    references = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    assert len(ids) == len(set(ids))
    assert {a or b for a, b in references} == set(ids)


def test_ids_of_two_charts_do_not_meet_on_one_page() -> None:
    first, second = DRAWINGS["score_growth"]().svg, DRAWINGS["rule_curves"]().svg
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert ids[0] and ids[1] and not ids[0] & ids[1]


def test_the_last_bit_of_a_coordinate_changes_nothing() -> None:
    def drawn(noise: float) -> str:
        heights = [2.0 * noise, 3.0 * noise]
        return figures.lines([1, 2], {"a": heights}, x_title="x", y_title="y", alt="a rise").svg

    assert '-1"' in drawn(1.0)  # ids are numbers, no hashes of coordinates
    assert drawn(1.0) == drawn(1.0 + 2**-52) == drawn(1.0 - 2**-53)
    half = figures.heatmap([[0.25 - 2**-54, 0.25, 0.25 + 2**-54]], name="weights", limit=1.0)
    assert half.svg.count('fill-opacity="0.138"') == 3


def test_drawing_leaves_the_readers_settings_alone() -> None:
    before = dict(mpl.rcParams)
    DRAWINGS["rule_curves"]()
    assert dict(mpl.rcParams) == before


def test_heatmap_prints_every_entry_and_colours_by_size_and_sign() -> None:
    drawing = figures.heatmap([[4.0, -1.0]], name="raw", digits=1)
    assert {"4.0", "−1.0"} <= set(_texts(drawing))
    cells = [e for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith("rect")]
    looks = [(cell.attrib["fill"], float(cell.attrib["fill-opacity"])) for cell in cells]
    assert looks == [(css_colour("blue"), 0.55), (css_colour("orange"), 0.138)]
    assert "row 0: 4.0, −1.0" in drawing.alt


def test_heatmap_of_weights_is_coloured_against_its_limit() -> None:
    drawing = figures.heatmap([[0.5]], name="weights", limit=1.0)
    assert 'fill-opacity="0.275"' in drawing.svg


def test_heatmap_shows_what_is_not_finite_in_grey() -> None:
    drawing = figures.heatmap([[-np.inf, np.nan, 0.0]], name="masked scores")
    cells = [e for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith("rect")]
    looks = [(cell.attrib["fill"], float(cell.attrib["fill-opacity"])) for cell in cells]
    assert looks == [(css_colour("grid"), 0.8)] * 2 + [(css_colour("blue"), 0.0)]


def test_heatmap_shows_a_rounded_zero_without_a_sign() -> None:
    assert "0.00" in _texts(figures.heatmap([[-0.001]], name="raw"))


def test_compared_takes_half_a_unit_of_the_last_digit_for_rounding() -> None:
    printed = examples.published_identity()
    computed = printed.X @ printed.X.T
    assert "15 of 25 differ" in figures.compared(printed.raw_scores, computed, name="raw").alt
    assert "0 of 25 differ." in figures.compared(computed.round(2), computed, name="raw").alt
    assert "1 of 1 differ" in figures.compared([[1.0]], [[np.nan]], name="not a number").alt


def test_explorer_frames_hold_the_weights_and_the_means() -> None:
    drawing = figures.scaling_explorer((4, 64), start=64, n_draws=50)
    assert isinstance(drawing, figures.MovingDrawing)
    raw_scores = experiments.growing_scores((4, 64), seed=5)
    for frame, d_k in enumerate((4, 64)):
        means = experiments.scaling_rules(d_k, n_draws=50)
        for column, (rule, divisor) in enumerate(experiments.RULES.items()):
            bars = [_in_frame(drawing, f"bar-{column}-{j}", "height", frame) for j in range(8)]
            exponentials = np.exp(raw_scores[frame] / divisor(d_k))
            expected = 140 * exponentials / exponentials.sum()
            assert np.allclose([float(bar) for bar in bars], expected, atol=0.051)
            shown = _in_frame(drawing, f"largest-{column}", "text", frame)
            assert shown == f"{means[rule].largest:.2f}"
    assert [row[0] for row in drawing.table] == ["dₖ", "4", "64"]
    assert all(len(row) == 10 for row in drawing.table)


def test_head_explorer_frames_hold_the_weights_of_token_layer_and_head() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(3, 0.3), size=(2, 4, 3))
    drawing = figures.head_explorer(["a", "bb", "c"], weights, start=(1, 1, 3))
    assert isinstance(drawing, figures.MovingDrawing)
    assert (weights < 0.05).any() and (weights > 0.9).any()
    frames = list(np.ndindex(3, 2, 4))
    assert drawing.alt == drawing.labels[frames.index((1, 1, 3))]
    for frame, (token, layer, head) in enumerate(frames):
        assert drawing.labels[frame].startswith(f"{['a', 'bb', 'c'][token]}, layer {layer}, head")
        middle = float(_in_frame(drawing, "mark", "y", frame)) + 12
        for key, weight in enumerate(weights[layer, head, token]):
            assert float(_in_frame(drawing, f"l{key}", "y1", frame)) == middle
            shown = _in_frame(drawing, f"w{key}", "text", frame)
            thick = int(_in_frame(drawing, f"l{key}", "stroke-width", frame))
            assert shown == (f"{100 * weight:.0f}" if weight >= 0.05 else " ")
            assert thick == (max(round(8 * weight), 1) if weight >= 0.05 else 0)
    assert [row[0] for row in drawing.table[1:]] == [f"{n}.{m}" for n in (0, 1) for m in range(4)]


def test_turned_query_frames_hold_scores_weights_and_the_answer() -> None:
    drawing = _turned_query()
    for frame, degrees in enumerate(range(0, 360, 15)):
        angle = np.radians(degrees)
        query = np.sqrt(2) * np.array([np.cos(angle), np.sin(angle)])
        weights = softmax(DRINK_KEYS @ query)
        for j in range(3):
            score = _in_frame(drawing, f"score-{j}", "text", frame).replace("−", "-")
            assert abs(float(score) - DRINK_KEYS[j] @ query) < 0.0051
            assert _in_frame(drawing, f"weight-{j}", "text", frame) == f"{weights[j]:.2f}"
            wide = float(_in_frame(drawing, f"bar-{j}", "width", frame))
            assert abs(wide - 62 * weights[j]) < 0.051
        answer = _in_frame(drawing, "answer", "text", frame)
        assert answer == f"price {weights @ PRICES:.2f}" and answer in drawing.labels[frame]
        assert drawing.labels[frame].startswith(f"Query at {degrees}°:")
        assert drawing.table[frame + 1][0] == f"{degrees}°"
        # The arrow of the query points where its angle says, on a circle of one radius.
        x, y = _in_frame(drawing, "query-tip", "points", frame).split(" ")[0].split(",")
        tip = float(x) - 104, 136 - float(y)
        assert np.allclose(tip, 72 * query / np.sqrt(2), atol=0.06)
        # The marker lies on the line from the lowest price, at 60, to the highest, at 380.
        assert abs(float(_in_frame(drawing, "answer", "x", frame)) - 60
                   - 320 * (weights @ PRICES - 2) / 2) < 0.06  # fmt: skip
    assert len(drawing.labels) == 24 and drawing.alt.startswith("Query at 0°")


def test_turned_pair_frames_agree_entry_by_entry_and_by_the_angle() -> None:
    drawing = figures.turned_pair()
    pairs = [(a, b) for a in range(0, 360, 30) for b in range(0, 360, 30)]
    for frame, turned in enumerate(pairs):
        q, k = (
            n * np.array([np.cos(np.radians(a)), np.sin(np.radians(a))])
            for n, a in zip((2.0, 1.5), turned, strict=True)
        )
        product = _in_frame(drawing, "product", "text", frame).removeprefix("q·k = ")
        assert abs(float(product.replace("−", "-")) - q @ k) < 0.0051
        between = np.degrees(np.arccos(np.clip(q @ k / 3, -1, 1)))
        assert _in_frame(drawing, "title", "text", frame).endswith(f"θ = {between:.0f}°")
        assert _in_frame(drawing, "by-angle", "text", frame) == f"2 · 1.5 · cos {between:.0f}°"
        shadow = _in_frame(drawing, "shadow-length", "text", frame).removeprefix("shadow of k: ")
        assert abs(float(shadow.replace("−", "-")) - q @ k / 2) < 0.0051
        wide = float(_in_frame(drawing, "bar", "width", frame))
        assert abs(wide - 160 * abs(q @ k) / 3) < 0.051
        fill = _in_frame(drawing, "bar", "fill", frame)
        assert wide == 0 or fill == css_colour("blue" if q @ k > 0 else "orange")
        assert f"q·k = {product}." in drawing.labels[frame]
    assert len(drawing.labels) == len(pairs)
    assert drawing.controls[1].options[drawing.controls[1].start] == "60°"
    assert [row[0] for row in drawing.table[1:]] == [f"{a}°" for a in range(0, 181, 30)]
    assert drawing.table[4][1:] == ("0.00", "0.00")


def test_rotary_offset_keeps_the_score_when_both_move() -> None:
    drawing = figures.rotary_offset((0.0, -1.5), (1.0, -1.0), ("sat", "cat"))
    assert isinstance(drawing, figures.MovingDrawing)
    # One radian a position: the query, at −90°, and the key, at −45°, turn anticlockwise.
    scores = {o: 1.5 * 2**0.5 * np.cos(o - np.pi / 4) for o in range(1, 7)}
    places = [(u, o) for u in range(6) for o in range(1, 7)]
    assert len(drawing.labels) == len(places)
    for frame, (u, offset) in enumerate(places):
        shown = f"{scores[offset]:.2f}".replace("-", "−")
        assert drawing.labels[frame] == (
            f"cat at {u}, sat at {u + offset}: offset {offset}, score {shown}."
        )
        assert _in_frame(drawing, "score", "text", frame) == f"score q·k = {shown}"
        for part, angle, length in (
            ("q", u + offset - np.pi / 2, 1.0),
            ("k", u - np.pi / 4, 2**0.5 / 1.5),
        ):
            x, y = _in_frame(drawing, f"{part}-tip", "points", frame).split(" ")[0].split(",")
            tip = float(x) - 104, 186 - float(y)
            assert np.allclose(
                tip, 80 * length * np.array([np.cos(angle), np.sin(angle)]), atol=0.1
            )
        between = np.degrees(np.arccos(np.cos(offset - np.pi / 4)))
        assert _in_frame(drawing, "between", "text", frame) == f"angle between them {between:.0f}°"
        filled = [o for o in scores if _in_frame(drawing, f"bar-{o - 1}", "fill", frame) != "none"]
        assert filled == [offset]
        boxes = [float(_in_frame(drawing, f"{part}-word", "x", frame)) for part in "qk"]
        assert boxes == [16 + 34 * (place + 0.5) for place in (u + offset, u)]
    assert drawing.controls[0].start == 0 and drawing.controls[1].options == tuple("123456")
    assert [row[0] for row in drawing.table] == ["offset", *"123456"]


def test_temperature_explorer_shows_the_weights_of_every_temperature() -> None:
    scores, temperatures = np.array([0.0, 2.0, -1.0]), (0.5, 1.0, 4.0)
    drawing = DRAWINGS["temperature_explorer"]()
    assert isinstance(drawing, figures.MovingDrawing)
    for frame, temperature in enumerate(temperatures):
        exponentials = np.exp(scores / temperature)
        weights = exponentials / exponentials.sum()
        for j in range(3):
            tall = float(_in_frame(drawing, f"bar-{j}", "height", frame))
            assert abs(tall - 144 * weights[j]) < 0.051
            assert _in_frame(drawing, f"weight-{j}", "text", frame) == f"{weights[j]:.2f}"
            divided = _in_frame(drawing, f"score-{j}", "text", frame).replace("−", "-")
            assert float(divided) == round(scores[j] / temperature, 2)
        keys = np.exp(-(weights * np.log(weights)).sum())
        assert _in_frame(drawing, "keys", "text", frame) == f"effective number of keys {keys:.2f}"
        assert drawing.labels[frame].endswith(f"effective number of keys {keys:.2f}.")
    assert drawing.controls[0].options == ("1/2", "1", "4") and drawing.controls[0].start == 1
    assert drawing.alt.startswith("Temperature 1: weights p 0.11, q 0.84, r 0.04;")
    assert [row[0] for row in drawing.table] == ["τ", "1/2", "1", "4"]


def test_temperature_explorer_counts_one_key_for_the_lowest_temperature() -> None:
    drawing = figures.temperature_explorer([3.0, 1.0], ["p", "q"], powers=(-6, 0, 12))
    assert [row[-1] for row in drawing.table[1:]] == ["1.00", "1.44", "2.00"]


def test_bytes_explorer_moves_a_marker_along_each_curve() -> None:
    drawing = DRAWINGS["bytes_explorer"]()
    assert isinstance(drawing, figures.MovingDrawing)
    places = []
    for frame, length in enumerate(LENGTHS):
        assert _in_frame(drawing, "tokens", "text", frame) == f"{length:,} tokens"
        for index in range(2):
            moved = _in_frame(drawing, f"marker-{index}", "transform", frame)
            x, y = (float(part) for part in moved[len("translate(") : -1].split())
            assert x == float(_in_frame(drawing, "here", "x1", frame))
            places.append((x, y))
    # Axes are logarithmic: eight times the length is three doublings, a square twice as steep.
    (x_0, square_0), (_, straight_0), (x_1, _), _, (x_2, square_2), (_, straight_2) = places
    assert x_2 - x_0 == pytest.approx(3 * (x_1 - x_0), abs=0.05)
    assert square_0 - square_2 == pytest.approx(2 * (straight_0 - straight_2), abs=0.05)
    assert [_in_frame(drawing, "bytes-0", "text", frame) for frame in range(3)] == [
        "1.0 MB",
        "4.0 MB",
        "64 MB",
    ]
    assert drawing.labels[0] == "1,000 tokens: square 1.0 MB, straight 999 kB."
    assert drawing.alt.startswith("2,000 tokens: square 4.0 MB, straight 2.0 MB")
    assert [row[0] for row in drawing.table] == ["tokens", "1,000", "2,000", "8,000"]


def test_mask_explorer_ticks_what_each_mask_lets_through() -> None:
    drawing = figures.mask_explorer(3, (2, 4), (0, 2), start=("window", 4, 2))
    assert isinstance(drawing, figures.MovingDrawing)
    frame = 0
    for kind in drawing.controls[0].options:
        for n_keys, n in [(2, 0), (2, 2), (4, 0), (4, 2)]:
            expected = {
                "causal, top-left": masks.causal(3, n_keys),
                "causal, bottom-right": masks.causal(3, n_keys, align="bottom-right"),
                "window": masks.window(3, n_keys, n, 0),
                "right padding": np.tile(np.arange(n_keys) < n, (3, 1)),
                "causal, right padding": masks.causal(3, n_keys) & (np.arange(n_keys) < n),
                "causal, left padding": masks.causal(3, n_keys) & (np.arange(n_keys) >= n_keys - n),
            }[kind]
            ticks = [
                [_in_frame(drawing, f"cell-{i}-{j}", "opacity", frame) == "1" for j in range(4)]
                for i in range(3)
            ]
            assert np.array_equal(np.array(ticks)[:, :n_keys], expected)
            assert not np.array(ticks)[:, n_keys:].any()
            assert "".join(_in_frame(drawing, f"key-{j}", "opacity", frame) for j in range(4)) == (
                "1" * n_keys + "0" * (4 - n_keys)
            )
            empty = [str(i) for i in range(3) if not expected[i].any()]
            total, flagged = (
                _in_frame(drawing, name, "text", frame) for name in ("total", "empty")
            )
            assert total.startswith(f"{expected.sum()} of {3 * n_keys} pairs take part")
            assert flagged == f"empty rows: {', '.join(empty) or 'none'}"
            assert f"{total}; {flagged}" in drawing.labels[frame]
            (row,) = (
                row[6:8] for row in drawing.table if row[:2] == (kind, str(n_keys))
                if row[2] in ("any", str(n))
            )  # fmt: skip
            assert total == f"{row[0]} pairs take part, {row[1]}"
            assert drawing.labels[frame].startswith(f"{kind}: ")
            for i in range(3):
                count = str(expected[i].sum()) if expected[i].any() else "empty"
                assert _in_frame(drawing, f"count-{i}", "text", frame) == count
            frame += 1
    assert frame == len(drawing.labels) == 24 and "window" in drawing.alt
    assert len(drawing.table) == 1 + 2 * 2 + 4 * 4  # the size counts in four of the six kinds


def test_forms_explorer_shows_the_weights_of_every_form() -> None:
    drawing, (q, k) = DRAWINGS["forms_explorer"](), _formed()
    assert isinstance(drawing, figures.MovingDrawing)
    places, later = np.arange(5), np.triu(np.full((5, 5), -np.inf), 1)
    distance = places[:, None] - places
    s = q @ k.T / 8**0.5
    length = np.linalg.norm(q, axis=1)[:, None], np.linalg.norm(k, axis=1)
    normed = 8**0.5 * (q @ k.T) / (length[0] * length[1])
    expected = [
        *((f"queries × {n}", n * s, 0.0) for n in (1, 2, 4, 8, 16)),
        *((f"queries × {n}, then QK-norm", normed, 0.0) for n in (1, 2, 4, 8, 16)),
        *((f"soft cap, limit {n}", n * np.tanh(s / n), 0.0) for n in (50, 8, 4, 2, 1)),
        *((f"ALiBi, slope {m}", s - slope * distance, 0.0)
          for m, slope in (("0", 0), ("1/8", 0.125), ("1/4", 0.25), ("1/2", 0.5), ("1", 1))),
        *((f"window of {n} key{'s' * (n > 1)}", np.where(distance < n, s, -np.inf), 0.0)
          for n in (5, 4, 3, 2, 1)),
        *((f"sink, s = {m}", s, e)
          for m, e in (("−∞", 0), ("0", 1), ("1", np.e), ("2", np.e**2), ("4", np.e**4))),
    ]  # fmt: skip
    for frame, (title, scores, sink) in enumerate(expected):
        e = np.exp(scores + later)
        weights = np.column_stack([e, np.full(5, sink)]) / (e.sum(1, keepdims=True) + sink)
        assert _in_frame(drawing, "title", "text", frame) == title
        assert drawing.labels[frame].startswith(f"{title}. Query 4 in percent: key 0 ")
        assert drawing.table[1 + frame][0] == title
        for j in range(6):
            tall = float(_in_frame(drawing, f"bar-{j}", "height", frame))
            assert abs(tall - 96 * weights[4, j]) < 0.051
            assert float(drawing.table[1 + frame][1 + j]) == pytest.approx(
                100 * weights[4, j], abs=0.51
            )
            for i in range(5):
                if j <= i or j == 5:
                    shown = _in_frame(drawing, f"percent-{i}-{j}", "text", frame)
                    assert (shown == "·") == (weights[i, j] == 0)
                    assert abs(float(shown.replace("·", "0")) - 100 * weights[i, j]) < 0.51
    assert frame == len(drawing.labels) - 1 == 29


def test_forms_explorer_stays_small() -> None:
    draw = np.random.default_rng(18).standard_normal
    drawing = figures.forms_explorer(2 * draw((8, 16)), draw((8, 16)))
    assert len(drawing._repr_html_().encode()) < 60_000


def test_mask_explorer_stays_small() -> None:
    assert len(figures.mask_explorer()._repr_html_().encode()) < 60_000


@pytest.mark.parametrize(
    "name", [name for name, draw in DRAWINGS.items() if isinstance(draw(), figures.MovingDrawing)]
)
def test_a_moving_drawing_tells_briefly_what_a_move_has_changed(name: str) -> None:
    drawing = DRAWINGS[name]()
    assert isinstance(drawing, figures.MovingDrawing)
    told = [label.split("\n")[0] for label in drawing.labels]
    assert all(10 < len(words) <= 160 for words in told)
    sizes = [len(control.options) for control in drawing.controls]
    frames = np.array(told, dtype=object).reshape(sizes)
    slider = [control.kind for control in drawing.controls].index("slider")
    for along in np.moveaxis(frames, slider, -1).reshape(-1, sizes[slider]):
        assert len(set(along)) == sizes[slider]
    start = tuple(control.start for control in drawing.controls)
    first = int(np.ravel_multi_index(start, sizes))
    assert drawing.alt == moving.one_line(drawing.labels[first])
    assert f'aria-label="{escape(drawing.alt)}"' in drawing.svg
    assert all(label.count("\n") <= 1 for label in drawing.labels)


def test_what_changes_is_found_in_the_finished_frames() -> None:
    frame = '<g data-part="a" opacity="{}"><text data-part="b">{}</text><path d="M0"/></g>'
    found = moving.changes([frame.format(*values) for values in ((0, "x&lt;"), (1, ""), (0, "x"))])
    assert found == {"a": {"opacity": "010"}, "b": {"text": ["x<", "", "x"]}}
    with pytest.raises(ValueError, match="the same elements with the same attributes"):
        moving.changes([frame, frame.replace("<path", "<line")])
    with pytest.raises(ValueError, match="must have a data-part; got M0"):
        moving.changes([frame, frame.replace("M0", "M1")])


TURNED = {"features": ("", ""), "answer": "price"}
CONTROL = figures.Control("d_k", "d_k", ("4", "16"))
WORDS = "one two three four five"
MACHINE: dict[str, Any] = {"peak": 1e12, "bandwidth": 1e11}


def test_roofline_explorer_moves_each_marker_along_the_roof() -> None:
    drawing = DRAWINGS["roofline_explorer"]()
    assert isinstance(drawing, figures.MovingDrawing)
    places = {}
    for frame, block in enumerate((16, 64, 128)):
        assert _in_frame(drawing, "block", "text", frame) == f"blocks of {block} queries"
        for index in range(2):
            moved = _in_frame(drawing, f"marker-{index}", "transform", frame)
            places[frame, index] = tuple(map(float, moved[len("translate(") : -1].split()))
    # Left of the balance, 10, the roof rises like the intensity; right of it, it is flat.
    (x_1, y_1), (x_4, y_4), (x_100, y_100) = (places[frame, 1] for frame in range(3))
    (x_2, y_2), (x_3, y_3) = places[0, 0], places[2, 0]
    assert x_2 - x_1 == pytest.approx(x_4 - x_2, abs=0.05)  # logarithmic
    assert (y_1 - y_2) == pytest.approx(y_2 - y_4, abs=0.05)
    assert x_1 < x_2 < x_3 < x_4 < x_100 and y_1 > y_2 > y_3 > y_4 > y_100
    assert [_in_frame(drawing, "told-1", "text", frame) for frame in range(3)] == [
        "1 a byte, roof 4, memory",
        "4 a byte, roof 16, memory",
        "100 a byte, roof 40, products",
    ]
    assert drawing.alt.startswith("Blocks of 64 queries: slow 2 operations per byte, roof 10")
    assert "rises to 40" in drawing.alt
    assert [row[0] for row in drawing.table] == ["block", "16", "64", "128"]


def test_number_bits_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    drawing = DRAWINGS["number_bits"]()
    kinds = {"float32": torch.int32, "bfloat16": torch.int16, "float16": torch.int16}
    for frame, value in enumerate(BITS.values()):
        for column, (name, kind) in enumerate(kinds.items()):
            held = torch.tensor(value, dtype=torch.float64).to(getattr(torch, name))
            size = 8 * held.element_size()
            word = f"{held.view(kind).item() % 2**size:0{size}b}"
            bits = [_in_frame(drawing, f"{name}-{place}", "text", frame) for place in range(size)]
            assert "".join(bits) == word, (name, value)
            boxes = range(size)
            filled = [_in_frame(drawing, f"{name}-{n}-box", "opacity", frame) for n in boxes]
            assert "".join(filled) == word
            told = _in_frame(drawing, f"{name}-told", "text", frame)
            shown, off = drawing.table[frame + 1][1 + 2 * column : 3 + 2 * column]
            assert f"{name} {shown}, " in drawing.labels[frame]
            if held.isinf():
                assert off == "overflow" and told == f"too large: {shown} (overflow)"
                assert shown == ("∞" if value > 0 else "−∞")
            elif held == 0 and value:
                assert (shown, off, told) == ("0", "underflow", "too small: 0 (underflow)")
            else:
                assert abs(_number(shown) - held.item()) <= 1e-8 * abs(held.item())
                assert told.endswith(f" = {shown}, {'relative error ' * (off != 'exact')}{off}")
                factor, power = told.split(" = ")[0].split(" · 2")
                exact = _number(factor) * 2.0 ** int(power.translate(LOWERED))
                assert abs(exact - held.item()) <= 1e-8 * abs(held.item())
                error = abs(held.item() - value)
                assert (off == "exact") == (error == 0)
                assert error == 0 or abs(_number(off) * abs(value) / error - 1) < 0.06


LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


def _number(shown: str) -> float:
    """Return the number that is written as 6.5, 10⁻⁸ or 2.5·10⁻⁹."""
    factor, ten, power = shown.translate(LOWERED).partition("10-") if "⁻" in shown else (
        shown.translate(LOWERED), "", ""
    )  # fmt: skip
    if not ten:
        return float(factor)
    return float({"": "1", "-": "-1"}.get(factor, factor.rstrip("·"))) * 10.0 ** -int(power)


@pytest.mark.parametrize(
    "call",
    [
        lambda: figures.Drawing("<svg/>", "a chart"),
        lambda: figures.MovingDrawing(
            "<svg/>", WORDS, (CONTROL,), {"bar": {"y": ["1"]}}, ("a", "b"), (("d_k",),)
        ),
        lambda: figures.heatmap([1.0], name="w"),
        lambda: figures.heatmap(np.zeros((0, 2)), name="w"),
        lambda: figures.heatmap([[1.0]], name="w", rows=["a", "b"]),
        lambda: figures.matrix_equation("="),
        lambda: figures.head_weights(np.zeros((2, 3)), "abc"),
        lambda: figures.heads_diagram(7, 12, 5, 4, 5),
        lambda: figures.shared_heads(6, [4]),
        lambda: figures.which_head({}, [[1.0]], ["p"]),
        lambda: figures.which_head({"a": [[1.0]]}, [1.0], ["p"]),
        lambda: figures.which_head({"a": [[1.0]]}, [[1.0]], ["p", "q"]),
        lambda: figures.which_head({"a": [[1.5]]}, [[1.0]], ["p"]),
        lambda: figures.which_head({"a": [[1.0]], "b": [[1.0, 0.0]]}, [[1.0]], ["p"]),
        lambda: figures.compared([[1.0]], [[1.0, 2.0]], name="w"),
        lambda: figures.cosine_histograms({}),
        lambda: figures.cosine_histograms({4: [0.0, 2.0]}),
        lambda: figures.turned_pair((0.0, 1.0)),
        lambda: figures.turned_pair(step=45),
        lambda: figures.rotary_offset((0.0, 0.0), (1.0, -1.0), ("q", "k")),
        lambda: figures.rotary_offset((1.0, 0.0, 2.0), (1.0, -1.0), ("q", "k")),
        lambda: figures.rotary_offset((1.0, 0.0), (1.0, -1.0), ("q", "k"), n_offsets=7),
        lambda: figures.rotary_offset((1.0, 0.0), (1.0, -1.0), ("q", "k"), start=(0, 0)),
        lambda: figures.turned_query(DRINK_KEYS, PRICES[:2], DRINKS, **TURNED),
        lambda: figures.turned_query(DRINK_KEYS, np.ones(3), DRINKS, **TURNED),
        lambda: figures.turned_query(DRINK_KEYS, PRICES, DRINKS, **TURNED, step=25),
        lambda: figures.plane([[1, 2, 3]], [[1, 2]], ["a"]),
        lambda: figures.mask_explorer(start=("all", 5, 2)),
        lambda: figures.forms_explorer(np.ones((4, 2)), np.ones((4, 2))),
        lambda: figures.forms_explorer(np.ones((5, 2)), np.ones((5, 3))),
        lambda: figures.tile_walk(np.zeros((2, 3)), np.zeros(2)),
        lambda: figures.tile_walk([[1.0]], [1.0], 0),
        lambda: figures.word_in_context("bank", ["fish swim"], ["water"]),
        lambda: figures.word_in_context("bank", ["bank"], ["water"], start="2"),
        lambda: figures.bytes_explorer([2, 1], {"a": [1, 2]}, limits={}, start=2),
        lambda: figures.bytes_explorer([1, 2], {"a": [1, 2]}, limits={}, start=3),
        lambda: figures.bytes_explorer([1, 2], {}, limits={}, start=1),
        lambda: figures.bytes_explorer([1, 2], {"a": [0, 2]}, limits={}, start=1),
        lambda: figures.number_bits({"1": 1.0}, start="2"),
        lambda: figures.number_bits({"1": 1.0, "∞": np.inf}, start="1"),
        lambda: figures.cache_filling(2, {}),
        lambda: figures.cache_filling(2, {"a": [1]}),
        lambda: figures.cache_filling(2, {"a": [0, 2]}),
        lambda: figures.cached_numbers((4, 0, 2), (2, 3, 2), (5, 1)),
        lambda: figures.dealt_keys(9, 2),
        lambda: figures.dealt_keys(9, 1),
        lambda: figures.looking_back("a" * 17, {"a": np.eye(17)}, "a" * 17),
        lambda: figures.looking_back("ab", {"a": np.eye(3)}, "ab"),
        lambda: figures.looking_back("ab", {"a": np.eye(2)}, "a"),
        lambda: figures.head_explorer(["a"], np.ones((1, 1, 2, 2)) / 2),
        lambda: figures.head_explorer(["a"], np.ones((1, 1))),
        lambda: figures.head_explorer(["a"], np.ones((1, 1, 1, 1)), start=(0, 1, 0)),
        lambda: figures.head_explorer(["a" * 17], np.ones((1, 1, 1, 1))),
        lambda: figures.scaling_explorer((4, 16), start=5),
        lambda: figures.temperature_explorer([1.0], ["a"]),
        lambda: figures.temperature_explorer([1.0, np.inf], ["a", "b"]),
        lambda: figures.temperature_explorer([1.0, 2.0], ["a", "b"], powers=(1, 2)),
        lambda: figures.squares([1.0], name="z", rows="", columns=""),
        lambda: figures.squares([[1.5]], name="z", rows="", columns=""),
        lambda: figures.lines([1], {}, x_title="", y_title="", alt=WORDS),
        lambda: figures.lines([1, 2], {"a": [1]}, x_title="", y_title="", alt=WORDS),
        lambda: figures.bars(["p"], {"a": [1, 2]}, y_title="", alt=WORDS),
        lambda: figures.attention_stepper(np.ones((3, 2)), np.ones((2, 2)), np.ones((2, 1)), "ab"),
        lambda: figures.memory_levels({}),
        lambda: figures.roofline({}, peak=1.0, bandwidth=1.0, lower={}),
        lambda: figures.roofline({"none": 0.0}, peak=1.0, bandwidth=1.0, lower={}),
        lambda: figures.roofline_explorer([2], {"a": [1.0]}, **MACHINE, start=2),
        lambda: figures.roofline_explorer([1, 2], {"a": [1.0, 2.0]}, **MACHINE, start=3),
        lambda: figures.roofline_explorer([1, 2], {}, **MACHINE, start=1),
        lambda: figures.roofline_explorer([1, 2], {"a": [1.0]}, **MACHINE, start=1),
        lambda: figures.roofline_explorer([1, 2], {"a": [0.0, 1.0]}, **MACHINE, start=1),
        lambda: figures.hull([[0, 0], [4, 0]], [[0, 0], [4, 0]], ["a", "b"]),
        lambda: figures.backward_walk(1),
        lambda: figures.backward_walk(4),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"(must|one of|at least|needs).*(; got |\bat least one)"):
        call()


def test_stepper_shows_a_number_from_the_step_that_computes_it() -> None:
    drawing = _stepper()
    since = {"raw": 1, "score": 2, "exp": 3, "weight": 4, "share": 5}
    for name, first in since.items():
        for j in range(3):
            for frame in range(len(drawing.labels)):
                text = _in_frame(drawing, f"{name}-{j}", "text", frame)
                assert (text == "…") == (frame % 7 < first), (name, frame)


def test_tables_hold_the_numbers_of_the_package() -> None:
    """Beside those of the tables whose rows are held with their frames."""
    query, key = _projected()
    weights = softmax(query @ key.T / np.sqrt(2))
    assert [row[5] for row in _stepper().table[1:]] == [f"{weight:.3f}" for weight in weights.flat]
    drawing = DRAWINGS["temperature_explorer"]()
    assert isinstance(drawing, figures.MovingDrawing)
    for row, temperature in zip(drawing.table[1:], (0.5, 1.0, 4.0), strict=True):
        weights = softmax(np.array([0.0, 2.0, -1.0]) / temperature)
        assert row[1:4] == tuple(f"{weight:.2f}" for weight in weights)
    explorer = figures.scaling_explorer((4, 64), start=64, n_draws=50)
    for row, d_k in zip(explorer.table[1:], (4, 64), strict=True):
        assert row[1:] == tuple(
            f"{number:.2f}"
            for mean in experiments.scaling_rules(d_k, n_draws=50).values()
            for number in (mean.score_std, mean.largest, mean.entropy)
        )


def test_stepper_shows_the_numbers_of_the_package() -> None:
    drawing, example = _stepper(), examples.running()
    query, key = _projected()
    weights = softmax(query @ key.T / np.sqrt(2))
    output = weights @ (example.X @ example.W_V)
    for t in range(3):
        last = 7 * t + 6
        for j in range(3):
            assert _in_frame(drawing, f"weight-{j}", "text", last) == f"{weights[t, j]:.3f}"
            raw = f"{query[t] @ key[j]:.2f}".replace("-", "−").replace("−0.00", "0.00")
            assert _in_frame(drawing, f"raw-{j}", "text", last) == raw
        words = ", ".join(f"{entry:.2f}" for entry in output[t]).replace("-", "−")
        assert _in_frame(drawing, "output", "text", last) == f"o = ({words})"
        assert words in drawing.labels[last] and example.tokens[t] in drawing.labels[last]


def test_tile_walk_shows_the_states_of_the_keys_read_so_far() -> None:
    drawing = _tile_walk()
    steps = [  # each tile's queries and keys, row of tiles by row of tiles; the tails are ragged
        (rows, keys) for rows in ([0, 1], [2]) for keys in ([0, 1, 2], [3])
    ]
    frame = 0
    for kind in ("all keys", "causal"):
        part = masks.causal(3, 4) if kind == "causal" else np.ones((3, 4), dtype=bool)
        seen = np.zeros((3, 4), dtype=bool)
        for step in [None, *steps]:
            if step is not None:
                seen[np.ix_(*step)] = True
            read = seen & part
            for i in range(3):
                shown = [
                    _in_frame(drawing, f"{name}-{i}", "text", frame) for name in ("m", "ℓ", "õ")
                ]
                scores, values = WALKED[i, read[i]], WALKED_VALUE[read[i]]
                row_max = scores.max(initial=-np.inf)
                e = np.exp(scores - row_max)
                numbers = [float(x.replace("−∞", "-inf").replace("−", "-")) for x in shown]
                assert np.allclose(numbers, [row_max, e.sum(), e @ values], atol=0.0051)
                output = _in_frame(drawing, f"o-{i}", "text", frame)
                finished = np.array_equal(read[i], part[i])
                assert (output != "…") == finished
                if finished:
                    assert abs(float(output.replace("−", "-")) - e @ values / e.sum()) < 0.0051
            frame += 1
    assert frame == len(drawing.labels) == 10


def test_tile_walk_prints_no_scores_but_those_of_the_tile_at_work() -> None:
    drawing = _tile_walk()
    for frame, label in enumerate(drawing.labels):
        held = [
            (i, j)
            for i, j in np.ndindex(3, 4)
            if _in_frame(drawing, f"score-{i}-{j}", "text", frame)
        ]
        told = re.search(r"Scores held: (\d+)", label)
        assert len(held) == (int(told[1]) if told else 0)
        box = {name: float(values[frame]) for name, values in drawing.parts["here"].items()}
        assert (box["width"] == 0) == (frame % 5 == 0)
    # Causal, the tile of rows 0 and 1 at key 3: it lies in the future.
    assert "Skipped" in drawing.labels[7]
    assert drawing.parts["skip-0-1"]["opacity"] == "0000000111"
    assert drawing.parts["done-0-0"]["opacity"] == "0011100111"
    masked = [_in_frame(drawing, f"score-0-{j}", "text", 6) for j in range(3)]
    assert masked == ["1.0", "−∞", "−∞"]
    assert drawing.controls[1].start == 4 and drawing.alt == moving.one_line(drawing.labels[4])


def test_tile_walk_stays_small_and_lists_every_row_of_every_tile() -> None:
    drawing = figures.tile_walk(np.zeros((5, 5)), np.zeros(5))
    assert len(drawing._repr_html_().encode()) < 60_000
    assert len(drawing.table) == 1 + 2 * 3 * 5
    assert drawing.table[0] == ("mask", "tile", "query", "keys", "m", "ℓ", "õ", "o")
    skipped = [row for row in drawing.table if "skipped" in row]
    assert all(row[0] == "causal" for row in skipped) and len(skipped) == 2 * 2 + 2


def test_cache_filling_marks_what_each_call_computes() -> None:
    drawing, frame = _cache_filling(), 0
    for chunks in WAYS.values():
        ends = np.cumsum(chunks or (1, 1, 1, 1))
        n_seen = total_scores = total_keys = 0
        for step in range(5):  # the longest way has four calls
            here = 0 < step <= len(ends)
            end = int(ends[step - 1]) if here else n_seen
            made = 0 if chunks is None else n_seen  # without a cache, all is made anew
            mask = masks.causal(end - made, end, align="bottom-right")
            for i, j in np.ndindex(4, 4):
                asks = here and made <= i < end
                now = asks and j < end and mask[i - made, j]
                kinds = {
                    "now": now,
                    "masked": asks and j < end and not now,
                    "before": not asks and j <= i < n_seen,
                }
                for kind, wanted in kinds.items():
                    found = _in_frame(drawing, f"{kind}-{i}-{j}", "opacity", frame)
                    assert found == str(int(wanted)), (kind, i, j, frame)
            for j in range(4):
                found = _in_frame(drawing, f"now-key-{j}", "opacity", frame)
                assert found == str(int(here and made <= j < end))
                found = _in_frame(drawing, f"before-key-{j}", "opacity", frame)
                assert found == str(int(j < (made if here else n_seen)))
            counts = (int(mask.sum()), end - made) if here else (0, 0)
            total_scores, total_keys = total_scores + counts[0], total_keys + counts[1]
            for name, count in zip(
                ("scores", "made", "scores-so-far", "made-so-far"),
                (*counts, total_scores, total_keys),
                strict=True,
            ):
                assert _in_frame(drawing, name, "text", frame) == str(count)
            n_seen, frame = end, frame + 1
        assert total_scores == (4 * 5 * 6 / 6 if chunks is None else 4 * 5 / 2)
    assert frame == len(drawing.labels) == 15
    assert drawing.alt.startswith("in chunks, step 1: tokens 0 to 1. 2 queries meet 2 keys: 3 of 4")
    assert "step 3: all tokens are there. Nothing is left to do." in drawing.labels[13]


def test_cache_filling_stays_small_and_lists_every_call() -> None:
    drawing = figures.cache_filling(7, {"all": None, "one": [1] * 7, "two": [4, 1, 1, 1]})
    assert len(drawing._repr_html_().encode()) < 60_000
    assert len(drawing.table) == 1 + 7 + 7 + 4
    assert drawing.table[-1] == ("two", "4", "token 6", "7", "1", "28", "7")


def test_cached_numbers_draws_areas_to_scale_and_says_the_totals() -> None:
    drawing = figures.cached_numbers(*KEPT)
    bars = [e.attrib for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith("rect")]
    areas = [(8, 6), (8, 4), (2, 5), (2, 3), (1, 16), (1, 4)]  # heads and entries
    for bar, (heads, entries) in zip(bars, areas, strict=True):
        assert float(bar["height"]) == pytest.approx(heads * 190 / 8, abs=0.01)
        assert float(bar["width"]) == pytest.approx(entries * 390 / 20, abs=0.01)
    totals = {"8 × (6 + 4) = 80", "2 × (5 + 3) = 16", "1 × (16 + 4) = 20"}
    assert totals <= set(_texts(drawing))
    assert "one latent (MLA): 1 × (16 latent + 4 rotated keys) = 20." in drawing.alt


def test_dealt_keys_deals_out_all_keys_once() -> None:
    one, split = figures.dealt_keys(1200, 3).alt.split("In 3 pieces: ")
    assert re.findall(r"keys ([\d,]+) to ([\d,]+)", one) == [("0", "1,199")]
    assert one.count("waits") == 2 and "waits" not in split
    spans = re.findall(r"keys ([\d,]+) to ([\d,]+)", split)
    assert spans == [("0", "399"), ("400", "799"), ("800", "1,199")]


def test_word_in_context_shows_the_weights_and_the_cosines_of_its_output() -> None:
    drawing = DRAWINGS["word_in_context"]()
    assert isinstance(drawing, figures.MovingDrawing)
    bank, probes = words.vectors("bank")[0], words.vectors(PROBES)
    frame = 0
    for sentence in ("bank", *BANKS):
        tokens = sentence.split()
        x = words.vectors(sentence)
        for scale in (0, 384**-0.5, 1, 4):
            exponentials = np.exp(scale * x @ bank)
            weights = exponentials / exponentials.sum()
            output = sum(a * row for a, row in zip(weights, x, strict=True))
            cosines = probes @ output / np.sqrt(output @ output)
            for row in range(6):
                shown = [
                    _in_frame(drawing, f"{name}-{row}", "text", frame)
                    for name in ("token", "weight")
                ]
                bar = float(_in_frame(drawing, f"weight-bar-{row}", "width", frame))
                if row < len(tokens):
                    assert shown == [tokens[row], f"{weights[row]:.2f}"]
                    assert abs(bar - 90 * weights[row]) < 0.051
                else:
                    assert shown == ["", ""] and bar == 0
            near = [_in_frame(drawing, f"cosine-{row}", "text", frame) for row in range(3)]
            assert near == [f"{cosine:.2f}" for cosine in cosines]
            told = ", ".join(f"{p} {n}" for p, n in zip(PROBES, near, strict=True))
            assert f"cosine with {told}." in drawing.labels[frame]
            assert (
                "alone" in drawing.labels[frame]
                if sentence == "bank"
                else (f"“bank” in “{sentence}”" in drawing.labels[frame])
            )
            frame += 1
    assert frame == len(drawing.labels) == 16 and len(drawing.table) == 1 + 16


def test_tables_of_two_figures_on_one_page_have_two_names() -> None:
    stepper, context = DRAWINGS["attention_stepper"](), DRAWINGS["word_in_context"]()
    assert 'aria-label="All values of the figure"' in stepper._repr_html_()
    assert 'aria-label="All values of the word in its sentences"' in context._repr_html_()


def test_which_head_shows_one_heads_weights_and_what_all_heads_give() -> None:
    drawing = DRAWINGS["which_head"]()
    assert isinstance(drawing, figures.MovingDrawing)
    frame = 0
    for rows in LETTERS.values():
        for head in (0, 1, None):
            row = np.mean(HEADS, axis=0) if head is None else np.array(HEADS[head])
            for j, weight in enumerate(row):
                assert _in_frame(drawing, f"weight-{j}", "text", frame) == f"{weight:.2f}"
            for place in (0, 1):
                taken = row if head is None else np.array(HEADS[place])
                for index, value in enumerate(taken @ np.array(rows, dtype=float)):
                    part = f"found-{place}-{index}"
                    side = float(_in_frame(drawing, part, "width", frame))
                    assert side == pytest.approx(24 * abs(value) ** 0.5, abs=0.01)
                    filled = _in_frame(drawing, part, "fill", frame) != "none"
                    assert filled == (round(value, 2) > 0)
                shown = float(_in_frame(drawing, f"frame-{place}", "opacity", frame))
                assert shown == (head in (None, place))
            frame += 1


def test_word_in_context_draws_a_negative_cosine_to_the_left() -> None:
    drawing = figures.word_in_context("bank", ["the bank"], ["he", "rat"])
    found = words.vectors("he rat") @ words.vectors("bank")[0]
    for row, cosine in enumerate(found):
        bar = {k: float(_in_frame(drawing, f"cosine-bar-{row}", k, 0)) for k in ("x", "width")}
        assert abs(bar["width"] - abs(100 * cosine)) < 0.051
        assert abs(bar["x"] - 296 - min(0, 100 * cosine)) < 0.051


def test_handout_links_hold_each_printed_step_against_the_step_before_and_against_x() -> None:
    drawing, handout = DRAWINGS["handout_links"](), examples.published_identity()
    assert isinstance(drawing, figures.MovingDrawing)
    raw_scores, root = handout.X @ handout.X.T, np.sqrt(3)
    first = handout.first_row_weights[None]
    for frame, (printed, computed, digits) in enumerate(
        [
            (handout.raw_scores, np.full((5, 5), np.nan), 2),
            (handout.raw_scores, raw_scores, 2),
            (handout.scores, handout.raw_scores / root, 2),
            (handout.scores, raw_scores / root, 2),
            (first, softmax(handout.scores)[:1], 3),
            (first, softmax(raw_scores / root)[:1], 3),
        ]
    ):
        n_marked = 0
        for i, j in np.ndindex(5, 5):
            shown = [
                _in_frame(drawing, f"{name}-{i}-{j}", "text", frame)
                for name in ("printed", "computed")
            ]
            marked = _in_frame(drawing, f"frame-{i}-{j}", "opacity", frame) == "1"
            n_marked += marked
            if i >= len(printed):
                assert shown == ["", ""] and not marked
                continue
            assert shown[0] == f"{printed[i, j]:.{digits}f}"
            assert shown[1] == ("" if frame == 0 else f"{computed[i, j]:.{digits}f}")
            assert marked == (frame > 0 and shown[0] != shown[1])
        assert n_marked == [0, 15, 0, 15, 5, 5][frame]
        result = _in_frame(drawing, "result", "text", frame)
        assert result in drawing.labels[frame]
        assert result.startswith("nothing" if frame == 0 else f"{n_marked} of {printed.size}")
        assert result.endswith("printed sum 0.983") == (frame >= 4)
    assert len(drawing.labels) == 6 and len(drawing.table) == 1 + 3 * 25 + 2 * 5
    assert drawing.controls[0].start == 0
    assert sum(row[-1] == "yes" for row in drawing.table) == 40
    assert "row 1, column 3: printed 1.48, computed 1.27; row 1, column 4" in drawing.labels[1]


def test_a_chart_rounds_coordinates_and_not_the_numbers_that_it_prints() -> None:
    drawing = figures.lines([1, 2, 3], {"a": [0.2051, 0.2052, 0.2053]}, x_title="x", y_title="y",
                            alt="a line of three points")  # fmt: skip
    assert any(re.fullmatch(r"0\.205\d+", words) for words in _texts(drawing))


def test_bars_print_whole_numbers_without_decimals_and_a_true_minus() -> None:
    whole = figures.bars(["a", "b"], {"n": [8, -23]}, y_title="bits", alt="two bars of whole bits")
    assert {"8", "−23"} <= set(_texts(whole))
    mixed = figures.bars(["a", "b"], {"n": [8, -0.5]}, y_title="y", alt="two bars, one is a half")
    assert {"8.00", "−0.50"} <= set(_texts(mixed))


@pytest.mark.parametrize("loop", range(4))
def test_walk_backward_holds_what_its_loop_says(loop: int) -> None:
    """The walk is made again: a sum is read if it has begun, and written when its block goes."""
    drawing, n = figures.backward_walk(), 3
    assert isinstance(drawing, figures.MovingDrawing)
    keys_outside, causal = loop >= 2, loop % 2 == 1
    order = [(i, j) for i in range(n) for j in range(n)]
    if keys_outside:
        order.sort(key=lambda tile: tile[::-1])
    read = written = 0
    begun: set[str] = set()
    held: set[str] = set()

    def hold(blocks: set[str]) -> None:
        nonlocal read, written, held
        for block in held - blocks:
            written += {"query": 1, "key": 2}[block[:-1]]
        for block in blocks - held:
            read += 2 + {"query": 1, "key": 2}[block[:-1]] * (block in begun)
        held, begun_now = blocks, blocks - begun
        begun.update(begun_now)

    for frame, (i, j) in enumerate(order, start=(n**2 + 2) * loop + 1):
        skipped = causal and j > i
        if not skipped:
            hold({f"query{i}", f"key{j}"})
        for side, place in (("query", i), ("key", j)):
            for block in range(n):
                for box in (f"{side}-{block}-held", f"to-{side}-{block}-held"):
                    thick = _in_frame(drawing, box, "opacity", frame) == "1"
                    assert thick == (block == place and not skipped), (box, frame)
        assert ("Skipped" in drawing.labels[frame]) == skipped
        assert _in_frame(drawing, f"tile-{i}-{j}", "opacity", frame) == str(int(not skipped))
        if (frame - 1) % (n**2 + 2) % n == n - 1:
            hold(set())  # the block outside goes, and takes the other with it
    assert not held
    told = f"after the last tile. Blocks moved so far: {read} read, {written} written."
    assert told in drawing.labels[(n**2 + 2) * (loop + 1) - 1]
    if not causal:
        assert read + written == (4 * n**2 + 3 * n if keys_outside else 6 * n**2 + n)
    assert len(drawing._repr_html_().encode()) < 60_000


def test_the_timetable_of_a_ring_counts_as_the_package_does() -> None:
    """A tile has 10 by 10 scores; on the diagonal 55 of them, which the drawing calls a half."""
    drawing = figures.ring_timetable(4)
    for layout in ("contiguous", "zigzag"):
        rows = [row[1:] for row in drawing.table[1:] if row[0] == layout]
        counted = work(80, 4, True, layout)
        for step, rank, source, _, tiles, lasts in rows:
            diagonals = 2 if step == "0" else 0
            assert int(source) == (int(rank) - int(step)) % 4
            assert 100 * float(tiles) + 5 * diagonals == counted[int(rank)][int(step)]
            slowest = max(row[int(step)] for row in counted)
            assert 100 * float(lasts) + 5 * diagonals == slowest
        assert len(rows) == 16


def test_the_timetable_of_a_ring_shows_who_works_and_who_waits() -> None:
    drawing = figures.ring_timetable(4)
    last = {"contiguous": 3, "zigzag": 7}  # frames
    assert _in_frame(drawing, "word-0-3", "text", last["contiguous"]) == "waits"
    assert _in_frame(drawing, "word-3-3", "text", last["contiguous"]) == "3"
    assert _in_frame(drawing, "word-0-3", "text", last["zigzag"]) == "0"
    assert _in_frame(drawing, "device-7-0", "text", last["zigzag"]) == "0"
    assert _in_frame(drawing, "device-7-0", "text", last["contiguous"] - 1) == ""
    assert "time 14, of which the devices used 57%." in drawing.labels[last["contiguous"]]
    assert "Nothing to do: device 0, 1, 2." in drawing.labels[last["contiguous"]]
    assert "time 8, of which the devices used 100%." in drawing.labels[last["zigzag"]]
    for n_devices in (1, 5):
        with pytest.raises(ValueError, match=f"must be 2, 3 or 4; got {n_devices}"):
            figures.ring_timetable(n_devices)


def test_the_bytes_of_a_ring_are_three_blocks_and_all_but_one() -> None:
    words = DRAWINGS["ring_bytes"]().alt
    assert "held, ring from 8e+06 at 2 to 3e+06 at 8" in words  # two devices have two blocks
    assert "held, all-gather from 8e+06 at 2 to 8e+06 at 8" in words
    assert "held, tree from 4e+06 at 2 to 1e+06 at 8" in words
    assert "sent, ring from 4e+06 at 2 to 7e+06 at 8" in words
    assert "sent, tree from 2e+03 at 2 to 2e+03 at 8" in words
