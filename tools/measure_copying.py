"""Train the ten models of chapter 17, and ten models without its scale or with another one.

`python -m tools.measure_copying 2026-11-27` stores the models in `attnbook/data/copying.npz` and
what becomes of the other scales in `copying.json`, with the day. Chapters 17 and 20 ask the stored
models, and so do the pages "What the scale does to training", "Another scale" and "Which program is
learned?". The training of the stored models is the control of the other scales. `tools/measured.py`
says how `--compare` compares; of a curve count its length and its last share.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnbook import copying
from tools import ROOT
from tools.measured import Table, in_json, main, means_apart, program, when

DATA = ROOT / "attnbook" / "data"
SEEDS = range(10)
SCALE = 1 / 8
without_scale = program("17_scale", "without_scale").without_scale
named = program("17_programs", "skipping", "texts", "follows", "named").named
MOST = 15  # numbers of a curve, of 20 steps each
Curve = list[float]


def models() -> dict[str, Any]:
    """Train the models, and return their entries as float16 and their curves."""
    trained = [copying.begin(seed, SCALE) for seed in SEEDS]
    curves = [copying.train(model, seed) for seed, model in zip(SEEDS, trained, strict=True)]
    states = [model.state_dict() for model in trained]
    entries = {
        name: np.array([state[name].numpy().astype(np.float16) for state in states])
        for name in states[0]
    }
    padded = [curve + [np.nan] * (MOST - len(curve)) for curve in curves]
    return {**entries, "curves": np.array(padded)}


def write_models(found: dict[str, Any], day: str) -> None:
    """Write the models, and when and how they were trained."""
    about: dict[str, Any] = {"seeds": list(SEEDS), "scale": SCALE, **when(day)}
    np.savez_compressed(DATA / "copying.npz", **found[""], **about)


def way(name: str) -> list[Curve]:
    """Return the curves of ten models that are trained without the scale, or with 1/d_k."""
    factors = {"none": (1, 1), "only the rate": (1, 1 / 8), "only the start": (8**-0.5, 1)}
    curves = []
    for seed in SEEDS:
        if name == "1/d_k":
            model, adam = copying.begin(seed, 1 / 64), None
        else:
            model, adam = without_scale(seed, *factors[name])
        curves.append(np.round(copying.train(model, seed, adam=adam), 5).tolist())
    return curves


def going_on(seed: int, scale: float) -> Iterator[Any]:
    """Train a new model without an end, and return it after each 20 steps."""
    model, rng = copying.begin(seed, scale), np.random.default_rng(seed)
    adam = torch.optim.Adam(model.parameters(), 0.003, fused=True)
    while True:
        copying.go_on(model, adam, rng)
        yield model


def longer() -> list[Curve]:
    """Return the shares of ten models without the scale after 300, 600, … 3,000 steps."""
    return [
        [round(copying.share_right(model), 5)
         for model in islice(going_on(seed, 1.0), MOST - 1, 10 * MOST, MOST)]
        for seed in SEEDS
    ]


def late() -> list[list[float]]:
    """Return what ten models have learned after 1,000 steps: `measured`, and what `named` names."""
    models = (next(islice(going_on(seed, SCALE), 49, None)) for seed in SEEDS)
    return [
        [round(float(share), 3) for share in [*copying.measured(model), *named(model)]]
        for model in models
    ]


def ends(curves: list[Curve]) -> NDArray[np.float64]:
    """Return of each curve the part of the 300 steps that it took, and its last share.

    >>> ends([[0.1, 0.2, 0.96], [0.1] * 15]).round(2).tolist()
    [[0.2, 0.96], [1.0, 0.1]]
    """
    return np.array([(len(curve) / MOST, curve[-1]) for curve in curves])


def ends_apart(stored: list[Curve], new: list[Curve]) -> list[str]:
    """Return where the ends of the curves differ by more than they may."""
    return means_apart(ends(stored), ends(new))


def models_apart(stored: list[Curve], new: dict[str, Any]) -> list[str]:
    """Return where new models end their training apart from the stored ones."""
    return ends_apart(stored, [curve[np.isfinite(curve)].tolist() for curve in new["curves"]])


WAYS = {name: partial(way, name) for name in ("none", "only the rate", "only the start", "1/d_k")}
TABLES = {
    "models": Table({"": models}, lambda _: copying.stored_curves(), write_models, models_apart),
    "ways": in_json(DATA / "copying.json", "ways", WAYS, ends_apart),
    "longer": in_json(DATA / "copying.json", "longer", {"none": longer}),
    "late": in_json(DATA / "copying.json", "late", {"1/√d_k": late}),
}

if __name__ == "__main__":
    sys.exit(main(TABLES))
