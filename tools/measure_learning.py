"""Train the models of a page below chapter 17 and of one below chapter 21, ten seeds of each.

The pages are "Which program is learned?" and "A state and a softmax". This takes more than an
hour on one thread, and training differs in its last bits from one computer to another. So the
numbers are stored: `python -m tools.measure_learning 2026-11-26` writes them anew, with the day.
`tools/measured.py` says how `--compare` compares; each mean of each row counts, at all its steps.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from attnbook import copying
from tools import ROOT
from tools.measured import Table, in_json, main, program

SUMS = program(
    "17_programs", "skipping", "texts", "follows", "named", "softmax", "signed", "KINDS",
    "Weighted", "begin_with", "learn",
)
STATES = program("21_hybrids", "written", "mix", "Small", "convolve", "Convolved")
STORED = ROOT / "attnbook" / "data" / "learning.json"
SEEDS = range(10)
Layer = Callable[[], torch.nn.Module]
Row = Callable[[], Any]


def trained(layers: Sequence[Layer], draw: Callable[..., Any], at: list[int]) -> Any:
    """Return the three shares of a model at these steps, for each seed."""
    rows = [SUMS.learn(SUMS.begin_with(seed, layers), draw, at, seed) for seed in SEEDS]
    return np.round(rows, 3).tolist()


def table(name: str, at: list[int], models: dict[str, tuple[list[Layer], Any]]) -> Table:
    """Return the table of models that are asked at these steps."""
    rows = {model: partial(trained, *how, at) for model, how in models.items()}
    return in_json(STORED, name, rows, at=at)


def alike(kind: str, n: int) -> list[Layer]:
    """Return n layers with weights of a kind."""
    return [partial(SUMS.Weighted, kind) for _ in range(n)]


def group(place: str, names: Sequence[str], d_k: int = 4) -> tuple[str, tuple[list[Layer], Any]]:
    """Return the name, the layers, and the texts of a model. A state has d_k rows.

    A short convolution stands in this place of each layer but a last softmax, or in none.
    """
    layers: list[Layer] = [partial(STATES.Convolved, d_k, name, place) for name in names]
    if place == "none":
        layers = [partial(STATES.Small, d_k, name) for name in names]
    elif len(names) > 1 and names[-1] == "softmax":
        layers[-1] = partial(STATES.Small, d_k, "softmax")
    return f"{place}: {', '.join(names)}", (layers, SUMS.skipping)


def silu_alone() -> torch.nn.Module:
    """Return a state of `group` whose convolution takes the token itself: the SiLU is left."""
    layer: torch.nn.Module = STATES.Convolved(4, "state", "after")
    layer.get_parameter("taps").requires_grad_(False).copy_(torch.eye(4)[3:].T)
    return layer


NUMBERS = {1: "one layer", 2: "two layers"}
KINDS = {
    f"{number}, {kind}": (alike(kind, n), copying.repeats)
    for n, number in NUMBERS.items()
    for kind in SUMS.KINDS
}
PAIRS = ["state", "state"], ["state", "softmax"]
FOURS = ["state"] * 3 + ["softmax"], ["state"] * 4, ["softmax"] * 4, ["softmax"] + ["state"] * 3
TABLES = {
    "kinds": table("kinds", [200, 300, 500, 1_000], KINDS),
    "skips": table("skips", [200, 300, 500, 1_000], {"sum": (alike("sum", 2), SUMS.skipping)}),
    "two": table("two", [500, 1_000, 2_000, 4_000], dict(map(partial(group, "none"), PAIRS))),
    "deep": table("deep", [500, 1_000, 2_000, 4_000], dict(map(partial(group, "none"), FOURS))),
    "16 rows": table(
        "16 rows", [500, 1_000], dict(map(partial(group, "none", d_k=16), FOURS[:3]))
    ),
    "two, convolved": table(
        "two, convolved", [500, 1_000, 2_000, 4_000],
        dict([*map(partial(group, "after"), PAIRS), group("before", ["softmax"])]),
    ),
    "deep, convolved": table(
        "deep, convolved", [500, 1_000, 2_000, 4_000],
        dict(map(partial(group, "after"), reversed(FOURS[:2]))),
    ),
    "SiLU": table(
        "SiLU", [500, 1_000, 2_000, 4_000],
        {"SiLU: state, state": ([silu_alone, silu_alone], SUMS.skipping)},
    ),
}

if __name__ == "__main__":
    sys.exit(main(TABLES))
