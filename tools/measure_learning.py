"""Train the models of two pages below chapter 21, ten seeds of each.

The pages are "Which program is learned?" and "A state and a softmax". This takes an hour and a half
on one thread, and training differs in its last bits from one computer to another. So the numbers
are stored: `python -m tools.measure_learning 2026-11-26` writes them anew, with the day.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from attnbook import copying, learning
from tools import ROOT

STORED = ROOT / "attnbook" / "data" / "learning.json"
N_SEEDS = 10
Layer = Callable[[], torch.nn.Module]


def trained(
    models: Iterable[tuple[str, Sequence[Layer], Callable[..., Any]]], at: list[int]
) -> dict[str, Any]:
    """Return the three shares of each model by name, at these steps, for each seed."""
    found = {}
    for name, layers, draw in models:
        rows = [
            learning.learn(learning.begin_with(seed, layers), draw, at, seed)
            for seed in range(N_SEEDS)
        ]
        found[name] = np.round(rows, 3).tolist()
        print(name, np.round(np.mean(rows, axis=0), 2).tolist(), flush=True)
    return {"at": at, "found": found}


def hybrid(d_k: int, names: Sequence[str]) -> tuple[str, list[Layer], Callable[..., Any]]:
    """Return the name, the layers, and the texts of a model with layers of both kinds."""
    layers: list[Layer] = [partial(learning.Small, d_k, name) for name in names]
    return f"{d_k}: {', '.join(names)}", layers, learning.skipping


def main() -> None:
    """Measure and store."""
    [day] = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    numbers = {1: "one layer", 2: "two layers"}
    kinds = [
        (f"{numbers[n]}, {kind}", n * [partial(learning.Weighted, kind)], copying.repeats)
        for n in numbers
        for kind in learning.KINDS
    ]
    skips = [
        (kind, 2 * [partial(learning.Weighted, kind)], learning.skipping)
        for kind in ("sum", "softmax")
    ]
    pairs = [(one, other) for one in ("state", "softmax") for other in ("state", "softmax")]
    hybrids = [hybrid(d_k, layers) for d_k in (4, 8) for layers in pairs]
    hybrids.insert(len(pairs), hybrid(4, ("softmax", "sum")))
    fours = ["state"] * 3 + ["softmax"], ["state"] * 4, ["softmax"] * 4, ["softmax"] + ["state"] * 3
    found = {
        "measured": day,
        "kinds": trained(kinds, [200, 300, 500, 1_000]),
        "skips": trained(skips, [200, 300, 500, 1_000]),
        "hybrids": trained(hybrids, [500, 1_000, 2_000, 4_000]),
        "deep": trained([hybrid(4, layers) for layers in fours], [500, 1_000, 2_000, 4_000]),
    }
    STORED.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
