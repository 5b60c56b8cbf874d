"""Train the models of the page "Which program is learned?" below chapter 21, ten seeds of each.

This takes half an hour on one thread, and training differs in its last bits from one computer to
another. So the numbers are stored: `python -m tools.measure_learning 2026-11-26` writes them anew,
with the day.
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
    has_state = {"state": True, "softmax": False}
    hybrids = [
        (
            f"{d_k}: {first}, {second}",
            [partial(learning.Small, d_k, has_state[name]) for name in (first, second)],
            learning.skipping,
        )
        for d_k in (4, 8)
        for first in has_state
        for second in has_state
    ]
    found = {
        "measured": day,
        "kinds": trained(kinds, [200, 300, 500, 1_000]),
        "skips": trained(skips, [200, 300, 500, 1_000]),
        "hybrids": trained(hybrids, [500, 1_000, 2_000, 4_000]),
    }
    STORED.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
