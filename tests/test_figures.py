"""Every drawing against its stored image, and its words, numbers and colours against its data.

An image is an SVG in `tests/images/`, compared to the letter: coordinates are rounded, so equal
data give equal text. `make images` writes the images anew; look at them before you commit them.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from attnlib import examples, experiments, figures
from attnlib.figures import moving
from attnlib.figures.drawing import COLOURS
from attnlib.figures.drawing import colour as css_colour

IMAGES = Path(__file__).parent / "images"
SIZES = (4, 16, 64)


def _samples() -> dict[int, np.ndarray]:
    return {d_k: experiments.dot_products(d_k, 500) for d_k in SIZES}


def _rules() -> dict[int, dict[str, experiments.RuleStatistics]]:
    return {d_k: experiments.scaling_rules(d_k, n_draws=50) for d_k in SIZES}


def _projected() -> tuple[np.ndarray, np.ndarray]:
    example = examples.running()
    return example.X @ example.W_Q, example.X @ example.W_K


DRAWINGS: dict[str, Callable[[], figures.Drawing]] = {
    "attention_steps": lambda: figures.attention_steps(3, 4, 2, 5),
    "bars": lambda: figures.bars(
        ["a", "b"], {"hard": [0.0, 1.0], "soft": [0.3, 0.7]}, y_title="weight", alt="a b c d e"
    ),
    "heatmap": lambda: figures.heatmap(
        [[1.0, -2.0, 0.0], [0.5, np.inf, np.nan]], name="scores", rows=["p", "q"]
    ),
    "lines": lambda: figures.lines(
        [1, 2, 4], {"one": [1, 2, 3], "two": [3, 2, 1]}, x_title="x", y_title="y", alt="a b c d e"
    ),
    "matrix_equation": lambda: figures.matrix_equation(
        ("X", [[1.0, -1.0]]), "·", ("W", [[2.0], [0.5]]), "=", ("Q", [[1.5]])
    ),
    "plane": lambda: figures.plane(*_projected(), examples.running().tokens),
    "rule_curves": lambda: figures.rule_curves(
        SIZES, _rules(), {"largest": "largest weight", "entropy": "entropy"}
    ),
    "rule_curves_log": lambda: figures.rule_curves(
        SIZES, _rules(), {"gradient_mean": "mean"}, log_y=True
    ),
    "scaling_explorer": lambda: figures.scaling_explorer((4, 16, 64), start=16, n_draws=50),
    "score_growth": lambda: figures.score_growth(SIZES, [2.1, 3.9, 8.0]),
    "score_histograms": lambda: figures.score_histograms(_samples()),
}
# The ladder says which modules are there, so its image changes with every new rung.
ALL = DRAWINGS | {"ladder": figures.ladder}


def _texts(drawing: figures.Drawing) -> list[str]:
    return [
        "".join(e.itertext()) for e in ET.fromstring(drawing.svg).iter() if e.tag.endswith("text")
    ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_the_stored_image(name: str, update_images: bool) -> None:
    image = IMAGES / f"{name}.svg"
    drawn = DRAWINGS[name]().plain_svg().replace("><", ">\n<") + "\n"
    if update_images:
        image.parent.mkdir(exist_ok=True)
        image.write_text(drawn, encoding="utf-8")
    assert drawn == image.read_text(encoding="utf-8"), f"{name} differs; look, then `make images`"


def test_every_public_drawing_has_an_image() -> None:
    functions = {name for name in figures.__all__ if name[0].islower()}
    assert functions == {name.removesuffix("_log") for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_drawing_is_complete_svg_with_words_and_theme_colours(name: str) -> None:
    drawing = ALL[name]()
    root = ET.fromstring(drawing.svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == drawing.alt and len(drawing.alt.split()) >= 5
    # No colour but the named ones, so that the dark theme reaches all of them.
    colours = set(re.findall(r"#[0-9a-f]{6}\b", drawing.svg))
    assert colours <= set(COLOURS.values())
    assert all(f"var(--attn-{n}, {c})" in drawing.svg for n, c in COLOURS.items() if c in colours)
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", drawing.svg), "a colour outside a variable"
    assert not re.search(
        r"\d\.\d{3,}", re.sub(r'(fill-opacity|aria-label)="[^"]*"', "", drawing.svg)
    )


@pytest.mark.parametrize("name", ALL)
def test_drawing_the_same_twice_gives_the_same_text(name: str) -> None:
    assert ALL[name]()._repr_html_() == ALL[name]()._repr_html_()


@pytest.mark.parametrize("name", ALL)
def test_ids_are_referred_to_and_no_reference_dangles(name: str) -> None:
    svg = ALL[name]().svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    references = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    assert len(ids) == len(set(ids))
    assert {a or b for a, b in references} == set(ids)


def test_ids_of_two_charts_do_not_meet_on_one_page() -> None:
    first, second = DRAWINGS["score_growth"]().svg, DRAWINGS["rule_curves"]().svg
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert ids[0] and ids[1] and not ids[0] & ids[1]


def test_drawing_leaves_the_readers_settings_alone() -> None:
    before = dict(mpl.rcParams)
    DRAWINGS["rule_curves"]()
    assert dict(mpl.rcParams) == before


def test_no_drawing_without_words() -> None:
    with pytest.raises(ValueError, match="at least five words, came 'a chart'"):
        figures.Drawing("<svg/>", "a chart")


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
    assert looks == [(css_colour("grid"), 1.0)] * 2 + [(css_colour("blue"), 0.0)]


def test_heatmap_shows_a_rounded_zero_without_a_sign() -> None:
    assert "0.00" in _texts(figures.heatmap([[-0.001]], name="raw"))


def test_heatmap_rows_are_queries_and_columns_are_keys() -> None:
    drawing = figures.heatmap(np.zeros((2, 3)), name="w", rows=["q0", "q1"], columns=list("abc"))
    texts = _texts(drawing)
    assert "query i asks" in texts and "w: key j answers" in texts
    assert texts.count("0.00") == 6 and {"q0", "q1", "a", "b", "c"} <= set(texts)


def test_matrix_equation_shows_names_shapes_and_signs() -> None:
    texts = _texts(DRAWINGS["matrix_equation"]())
    assert {"X", "1 × 2", "·", "W", "2 × 1", "=", "Q", "1 × 1", "−1.0", "1.5"} <= set(texts)


def test_steps_carry_the_shapes_that_they_are_given() -> None:
    texts = _texts(figures.attention_steps(3, 4, 2, 5))
    assert texts.count("3 × 2") == 2  # Q and K
    assert texts.count("3 × 3") == 2  # scores and weights
    assert texts.count("3 × 5") == 2  # V and the output
    assert texts.count("3 × 4") == 1  # X


def test_ladder_frames_what_is_there_and_says_what_is_to_come() -> None:
    ladder = figures.ladder()
    assert "numpy_dense, the same as matrices (chapter" in ladder.alt
    assert "torch_ring, the sequence split over devices (to come" in ladder.alt


def test_explorer_frames_hold_the_weights_and_the_means() -> None:
    drawing = figures.scaling_explorer((4, 64), start=64, n_draws=50)
    assert isinstance(drawing, figures.MovingDrawing)
    raw_scores = experiments.growing_scores((4, 64), seed=5)
    for frame, d_k in enumerate((4, 64)):
        means = experiments.scaling_rules(d_k, n_draws=50)
        for column, (rule, divisor) in enumerate(experiments.RULES.items()):
            bars = [drawing.parts[f"bar-{column}-{j}"]["height"][frame] for j in range(8)]
            exponentials = np.exp(raw_scores[frame] / divisor(d_k))
            expected = 140 * exponentials / exponentials.sum()
            assert np.allclose([float(bar) for bar in bars], expected, atol=0.051)
            shown = drawing.parts[f"largest-{column}"]["text"][frame]
            assert shown == f"largest weight {means[rule].largest:.2f}"
    assert [row[0] for row in drawing.table] == ["dₖ", "4", "64"]
    assert all(len(row) == 13 for row in drawing.table)


def test_moving_html_holds_one_slider_its_data_and_its_table() -> None:
    html = DRAWINGS["scaling_explorer"]()._repr_html_()
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html)[1])
    assert data["options"] == {"d_k": ["4", "16", "64"]}
    assert len(data["labels"]) == 3
    assert '<input type="range" name="d_k" min="0" max="2" step="1" value="1"' in html
    assert html.count("<tr>") == 4
    assert moving.stylesheet() in html and moving.script() in html
    drawn = set(re.findall(r'data-part="([^"]+)"', DRAWINGS["scaling_explorer"]().svg))
    assert drawn == set(data["parts"])


def test_moving_drawing_wants_one_value_a_frame() -> None:
    control = figures.Control("d_k", "d_k", ("4", "16"))
    with pytest.raises(ValueError, match=r"expected 2 values, one a frame; bar.y has 1"):
        figures.MovingDrawing(
            "<svg/>", "a b c d e", (control,), {"bar": {"y": ["1"]}}, ("a", "b"), (("d_k",),)
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.heatmap([1.0], name="w"), r"a matrix.*came shape \(1,\)"),
        (lambda: figures.heatmap(np.zeros((0, 2)), name="w"), r"came shape \(0, 2\)"),
        (lambda: figures.heatmap([[1.0]], name="w", rows=["a", "b"]), "expected 1 labels, came 2"),
        (lambda: figures.matrix_equation("="), "at least one"),
        (lambda: figures.score_histograms({}), "at least one sample"),
        (lambda: figures.score_histograms({4: np.zeros(3)}), "differ, came others at d_k = 4"),
        (lambda: figures.score_histograms({4: np.array([1.0, np.nan])}), "came others at d_k = 4"),
        (lambda: figures.plane([[1, 2, 3]], [[1, 2]], ["a"]), r"\(1, 2\), came \(1, 3\)"),
        (lambda: figures.scaling_explorer((4, 16), start=5), r"one of \(4, 16\), came 5"),
        (
            lambda: figures.lines([1], {}, x_title="", y_title="", alt="a b c d e"),
            "one to 3 series, came 0",
        ),
        (
            lambda: figures.lines([1, 2], {"a": [1]}, x_title="", y_title="", alt="a b c d e"),
            r"expected 2 values in 'a', came \(1,\)",
        ),
        (
            lambda: figures.bars(["p"], {"a": [1, 2]}, y_title="", alt="a b c d e"),
            r"expected 1 values in 'a', came \(2,\)",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
