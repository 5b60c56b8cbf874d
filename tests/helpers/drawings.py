"""Every function of `attnbook.figures` with something to draw, and what a drawing shows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from attnbook import atlas, examples, experiments, figures

SIZES = (4, 16, 64)

WALKED = np.array([[1.0, 0.0, 2.5, -1.0], [-2.0, -0.5, 0.0, 3.0], [0.5, 0.5, 1.5, 2.0]])
WALKED_VALUE = np.array([1.0, 3.0, -2.0, 4.0])

# The largest score rises at the keys 2 and 4.
ARRIVING, ARRIVING_VALUE = (
    np.array([0.5, -1.0, 2.0, 2.0, 3.5]),
    np.array([2.0, 1.0, -1.0, 3.0, 0.0]),
)

TOKENS = 4096, 64
MEMORIES = {
    "cache": figures.Level(8e6, "8 MB", "tiles", 12e12),
    "memory": figures.Level(9e9, "9 GB", "Q, K, V", 2e12),
}

DRINKS = ["herb tea", "juice", "coffee"]
DRINK_KEYS = np.array([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])
PRICES = np.array([2.0, 4.0, 3.0])

KEPT = (8, 6, 4), (2, 5, 3), (16, 4)
WAYS = {"one by one": (1, 1, 1, 1), "in chunks": (2, 1, 1), "two calls": (1, 3)}

BANKS = {
    "fish swim near the bank": "water",
    "the bank approved the loan": "money",
    "the boat reached the river bank": "water",
}

# Exact, rounded (257 and 259 lie halfway between two numbers of bfloat16), too small, too large.
BITS = {"−6.5": -6.5, "0": 0.0, "10⁻⁸": 1e-8, "10⁻⁵": 1e-5, "6.5": 6.5, "257": 257.0}
BITS |= {"259": 259.0, "65,519": 65519.0, "90,000": 9e4, "10³⁹": 1e39, "−10³⁹": -1e39}

PEOPLE = {"Ann": [1.0, -1.0], "Bo": [1.0, 1.0]}
LETTERS = [("Ann", "Bo"), ("Bo", "Ann")]
HEADS = [[0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]

LENGTHS = [512, 2000, 8000]
SIZES_IN_BYTES = {"square": [n**2 for n in LENGTHS], "straight": [99 * n for n in LENGTHS]}

BACK = {"one": np.eye(3), "two": np.array([[0, 0, 0], [1, 0, 0], [0.25, 0.5, 0.25]])}

# A query of 16 sees two keys: at first its own and the one before, then keys 0 and 1.
CHOSEN = [[list(range(max(0, i - 1), i + 1)) for i in range(16)],
          [list(range(min(i + 1, 2))) for i in range(16)]]

RECALLED = {
    "sum": [np.full(n, 1 / n) for n in (2, 4, 6)],
    "softmax": [np.arange(n) / 5 for n in (2, 4, 6)],
}

SHIFTS = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, -0.5, 0.0], [0.0, 0.5, 0.0, 1.0]])


def rules() -> dict[int, dict[str, experiments.RuleStatistics]]:
    return {d_k: experiments.scaling_rules(d_k, n_draws=50) for d_k in SIZES}


def sampled() -> dict[int, np.ndarray]:
    """Return scores of 300 pairs for each d_k."""
    pairs = np.random.default_rng(0).standard_normal((2, 300, max(SIZES)))
    return {d_k: pairs[:, :, :d_k].prod(axis=0).sum(axis=1) for d_k in SIZES}


def projected() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, K and V of the running example."""
    example = examples.running()
    return example.X @ example.W_Q, example.X @ example.W_K, example.X @ example.W_V


def factors() -> tuple[Any, ...]:
    """Return the running example's scores as the product of queries and keys."""
    (query, key, _), tokens = projected(), examples.running().tokens
    named = ("Q", query, tokens, ["first", "second"]), "·", ("Kᵀ", key.T, None, tokens)
    return *named, "=", ("R", query @ key.T)


def matrix_product() -> figures.MovingDrawing:
    drawing = figures.matrix_equation(*factors(), digits=2, start=(0, 1))
    assert isinstance(drawing, figures.MovingDrawing)
    return drawing


def formed() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(18).standard_normal
    return 2 * draw((5, 8)), draw((5, 8))


def cosines() -> dict[int, np.ndarray]:
    q, k = np.random.default_rng(0).standard_normal((2, 400, 64))
    return {2: np.cos(np.arange(400)), 64: (q * k).sum(axis=1) / 64}


def head_weights_of_two() -> np.ndarray:
    """Return the weights of two layers with two heads in two sentences."""
    mixed = [[1, 0, 0], [0.75, 0.25, 0], [0.5, 0.496, 0.004]]
    one = np.array([[mixed, np.eye(3)], [np.ones((3, 3)) / 3, np.eye(3)[[1, 2, 0]]]])
    return np.stack([one, one[::-1, :, :, ::-1]])


def head_explorer() -> figures.MovingDrawing:
    sentences = {"one": ["[CLS]", "a", "because"], "other": ["[CLS]", "a", "so"]}
    return figures.head_explorer(
        sentences, head_weights_of_two(), looks=("a", "[CLS]"), start=(1, 0)
    )


STILL: dict[str, Callable[[], figures.Drawing]] = {
    "angles_reached": lambda: figures.angles_reached(
        {"as it was": [1.0, 0.02, 0.01], "slower": [0.5, 0.0125, 0.005]}, 100, 200, (0, 1, 2)
    ),
    "bars": lambda: figures.bars(
        ["a", "b"], {"hard": [0.0, 1.0], "soft": [0.3, 0.7]}, y_title="weight", alt="a b c d e"
    ),
    "block": figures.block,
    "block_tables": lambda: figures.block_tables({"A": [3, 0], "B": [2]}, [4, 1], 5, 2),
    "cached_numbers": lambda: figures.cached_numbers(*KEPT),
    "chosen_entries": lambda: figures.chosen_entries(32, 4, 6, [1, 4, 6]),
    "cosine_histograms": lambda: figures.cosine_histograms(cosines()),
    "head_weights": lambda: figures.head_weights(
        {"p?": [0.2, 0.8, 0], "q?": [0, 0.4, 0.6]}, "pqr", np.arange(24).reshape(3, 8) / 8
    ),
    "heatmap": lambda: figures.heatmap(
        [[1.0, -2.0, 0.0], [0.5, np.inf, np.nan]], name="scores", rows=["p", "q"]
    ),
    "layer_today": figures.layer_today,
    "hull": lambda: figures.hull(
        [[0, 0], [4, 0], [0, 2], [1, 0.5]], [[1, 1], [2, 0.5], [0.5, 0.5], [1, 0.5]], list("abcd")
    ),
    "layer_card": lambda: figures.layer_card(atlas.card(atlas.stored()[-6])),
    "layer_marks": figures.layer_marks,
    "leaves_chart": lambda: figures.leaves_chart(list(map(atlas.card, atlas.stored()[:6]))),
    "lines": lambda: figures.lines(
        [1, 2, 4], {"one": [1, 2, 3], "two": [3, 2, 1]}, x_title="x", y_title="y", alt="a b c d e"
    ),
    "matching_keys": lambda: figures.matching_keys(
        sampled(), {d_k: 2 * d_k**0.5 + scores for d_k, scores in sampled().items()}
    ),
    "matrix_equation": lambda: figures.matrix_equation(
        ("X", [[1.0, -1.0, 0.5]], ["p"], {"pair": 2, "one": 1}), "→", ("Q", [[1.5]])
    ),
    "numbers_moved": lambda: figures.numbers_moved(
        [16, 64, 256],
        {"level": [4e6] * 3, "falling": [4e6, 2e6, 1e6], "bound": [1e6, 9e5, 4e5]},
        crossing=16,
        chip="a chip",
    ),
    "owned_tiles": lambda: figures.owned_tiles(128, (32, 16), row=64, start=48),
    "picture_asked": lambda: figures.picture_asked(
        [["", "red"], ["green", ""]], ["red", "blue"],
        [[[0, 1], [0, 0]], [[0.25, 0.25], [0.25, 0.25]]], [[0, 1], [0.5, 0.5]],
    ),
    "plane": lambda: figures.plane(*projected()[:2], examples.running().tokens),
    "time_computing": lambda: figures.time_computing(
        {"slow": 1.0, "half": 5.0, "fast": 100.0}, peak=40e12, bandwidth=4e12
    ),
    "row_slots": lambda: figures.row_slots([3, 1], [3, 2], 5),
    "rulers": lambda: figures.rulers(
        {"halves": ([0, 0.5, 1], [0.7]), "powers": ([0, 1, 2, 4], [])}
    ),
    "rule_curves": lambda: figures.rule_curves(
        [4, 16, 64],
        {"mean": {"1": [1, 2, 3], "sqrt(d_k)": [1, 1, 1], "d_k": [1, 0.5, 0.2]},
         "median": {"1": [1, 0.1, 0.01], "sqrt(d_k)": [1, 1, 1], "d_k": [1, 0.5, 0.2]}},
    ),
    "score_growth": lambda: figures.score_growth(sampled()),
    "sheet_costs": figures.sheet_costs,
    "sheet_heads": figures.sheet_heads,
    "sheet_masks": figures.sheet_masks,
    "sheet_merge": figures.sheet_merge,
    "sheet_output": figures.sheet_output,
    "sheet_scores": figures.sheet_scores,
    "state_blocks": figures.state_blocks,
    "three_divisors": figures.three_divisors,
    "suites": lambda: figures.suites({
        "one": {"mean": "passes", "zeros": "noticed"},
        "another": {"mean": "at the bound", "zeros": "not asked"},
    }),
    "weight_held": lambda: figures.weight_held(
        [0.5, 1.5, 3], {8: [0.2, 0.6, 0.95], 64: [0.1, 0.3, 0.8]}
    ),
}

MOVING: dict[str, Callable[[], figures.MovingDrawing]] = {
    "attention_stepper": lambda: figures.attention_stepper(
        *projected(), examples.running().tokens, start=1
    ),
    "attention_steps": lambda: figures.attention_steps(
        *examples.running()[1:], examples.running().tokens
    ),
    "backward_walk": lambda: figures.backward_walk(),
    "bytes_explorer": lambda: figures.bytes_explorer(
        LENGTHS, SIZES_IN_BYTES, limits={"a disk": 3e5}, start=2000, of="here"
    ),
    "cache_filling": lambda: figures.cache_filling(4, WAYS, start=(1, 1)),
    "chosen_keys": lambda: figures.chosen_keys(
        np.tri(16) / np.arange(1, 17)[:, None],
        CHOSEN,
        [0, 40],
        [0.25, 0.75],
        {"all keys": 1.0},
        first=8,
    ),
    "clock_hands": lambda: figures.clock_hands(7, 10, start=4),
    "eight_bits": figures.eight_bits,
    "first_screen": lambda: figures.first_screen(),
    "forms_explorer": lambda: figures.forms_explorer(*formed()),
    "handout_links": lambda: figures.handout_links(examples.published_identity()),
    "head_explorer": head_explorer,
    "heads_diagram": lambda: figures.heads_diagram(7, 12, 3, 4, 5),
    "looking_back": lambda: figures.looking_back("abc", BACK, ["", "a", "b"], start=2),
    "matrix_product": matrix_product,
    "mask_explorer": lambda: figures.mask_explorer(
        4, (0, 2), start=("causal, two documents", 2)
    ),
    "memory_levels": lambda: figures.memory_levels(MEMORIES, *TOKENS),
    "number_bits": lambda: figures.number_bits(BITS, start="6.5"),
    "online_row": lambda: figures.online_row(ARRIVING, ARRIVING_VALUE),
    "permuted": lambda: figures.permuted(
        *examples.running()[1:], examples.running().tokens, SHIFTS, start=(1, 2, 0)
    ),
    "recall_explorer": lambda: figures.recall_explorer((2, 4, 6), RECALLED, d_k=2, step=2),
    "ring_timetable": lambda: figures.ring_timetable(3),
    "roofline_explorer": lambda: figures.roofline_explorer(
        [16, 64, 128],
        {"slow": [2.0, 2.5, 3.0], "fast": [1.0, 4.0, 100.0]},
        peak=40e12,
        bandwidth=4e12,
        start=64,
    ),
    "rotary_offset": lambda: figures.rotary_offset(
        (0.0, -1.5), (1.0, -1.0), ("sat", "cat"), start=(1, 1)
    ),
    "scaling_explorer": lambda: figures.scaling_explorer(SIZES, start=16, n_draws=50),
    "state_layer": lambda: figures.state_layer(),
    "temperature_explorer": lambda: figures.temperature_explorer(
        [0.0, 2.0, -1.0], ["p", "q", "r"], powers=(-1, 0, 2)
    ),
    "tile_walk": lambda: figures.tile_walk(WALKED, WALKED_VALUE, 2, 3),
    "turned_pair": lambda: figures.turned_pair(),
    "turned_query": lambda: figures.turned_query(
        DRINK_KEYS, PRICES, DRINKS, features=("hot", "caffeine"), answer="price"
    ),
    "which_head": lambda: figures.which_head(PEOPLE, LETTERS[0], HEADS),
    "word_in_context": lambda: figures.word_in_context(BANKS),
}

DRAWINGS = STILL | MOVING


@cache
def drawn(name: str) -> figures.Drawing:
    """Return a drawing, which is made once for all tests."""
    return DRAWINGS[name]()


def moving(name: str) -> figures.MovingDrawing:
    """Return a drawing that moves, which is made once for all tests."""
    drawing = drawn(name)
    assert isinstance(drawing, figures.MovingDrawing)
    return drawing


def texts(drawing: figures.Drawing) -> list[str]:
    """Return the words that stand in a drawing."""
    elements = ET.fromstring(drawing.svg).iter()
    return ["".join(element.itertext()) for element in elements if element.tag.endswith("text")]


Parts = dict[str, dict[str, str]]


def frames(drawing: figures.MovingDrawing) -> list[Parts]:
    """Return the parts of each frame by name, each with its attributes and its text."""
    named = [e for e in ET.fromstring(drawing.svg).iter() if "data-part" in e.attrib]
    first = {e.attrib["data-part"]: {**e.attrib, "text": e.text or ""} for e in named}
    assert len(first) == len(named), "two parts have one name"
    found = []
    for frame in range(len(drawing.labels)):
        changed: Parts = {
            part: {key: values[frame] for key, values in attributes.items()}
            for part, attributes in drawing.parts.items()
        }
        found.append({part: look | changed.get(part, {}) for part, look in first.items()})
    return found


AS_ASCII = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-") | {ord("∞"): "inf"}


def number(shown: str) -> float:
    """Return the number that a drawing writes as −6.5, −∞, 10⁻⁸ or 2.5·10⁻⁹."""
    return float(shown.replace("·10⁻", "e⁻").replace("10⁻", "1e⁻").translate(AS_ASCII))
