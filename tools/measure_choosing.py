"""Train the indexers of chapter 20, and ask a trained model what its best keys hold.

Training differs in its last bits from one computer to another, and the trained model of chapter 19
is not on all of them. So the numbers are stored: `python -m tools.measure_choosing 2026-11-26`
writes them anew, with the day. The indexers learn from the stored models of chapter 17. The text
for chapter 19's model is the first 512 tokens of the Apache License, which lies in `attnbook/data`.
`tools/measured.py` says how `--compare` compares. The frames of the first figure are of one model,
so their shares may differ by 0.1.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from attnbook import choosing, copying
from tools import ROOT
from tools.measure_heads import heads
from tools.measured import in_json, main, numbers_apart

STORED = ROOT / "attnbook" / "data" / "choosing.json"
STEPS = (0, 50, 100, 200)
Choose = Callable[[Any], Any]  # takes what a layer reads, and returns the keys of each row


def frames(seed: int = 2) -> dict[str, Any]:
    """Return weights of layer 2 in percent, the keys that its indexer chooses, and shares."""
    [model] = copying.stored_models([seed])
    model.requires_grad_(False)
    torch.manual_seed(100 + seed)
    indexers = [choosing.Indexer(), choosing.Indexer()]
    parameters = [p for indexer in indexers for p in indexer.parameters()]
    adam, rng = torch.optim.Adam(parameters, 0.005, fused=True), np.random.default_rng(100 + seed)
    row = int(np.argmax(copying.p[:, 0] == 8))
    tokens = copying.kept[:, :-1]

    def right(n_keys: int, seen: Any = None) -> float:
        X = model.enter(tokens)
        for layer, indexer in zip(model.layers, indexers, strict=True):
            chosen = choosing.best(indexer(X), n_keys) if seen is None else seen
            X = choosing.attend(layer, X, chosen)
        found = model.out(X).argmax(-1) == copying.kept[:, 1:]
        return round(float(found[copying.can_copy].float().mean()), 2)

    X = model.enter(tokens[[row]])
    X = choosing.attend(model.layers[0], X, choosing.past)
    weights = choosing.scores(model.layers[1], X).softmax(-1)[0]
    last = right(2, choosing.past & ~choosing.past.tril(-16))
    found: dict[str, Any] = {
        "tokens": "".join("ABCDEFGHIJKLMNOPQRSTUVWX"[n] for n in tokens[row]),
        "weights": (100 * weights).round().int().tolist(),
        "dense": right(32), "last": last, "steps": STEPS, "chosen": [], "right": [],
    }
    for before, after in zip((0, *STEPS), STEPS, strict=False):
        choosing.teach(model, indexers, adam, rng, after - before)
        with torch.no_grad():
            seen = choosing.best(indexers[1](X)[0], 2)
            found["chosen"].append([np.flatnonzero(keys).tolist() for keys in seen])
            found["right"].append(right(2))
    return found


def minilm() -> dict[str, Any]:
    """Return means over the rows of each head, for its best 8 and its best 64 of 512 keys.

    `held` is their weight, `error` the length of what they lose as a share of the output, and
    `apart` the same without the mean of all values. `spread` is the standard deviation of a row of
    scores, `common` the length of the mean of all values as a share of their usual distance from
    it.
    """
    found: dict[str, Any] = {"spread": [], "common": []}
    of_heads = heads()
    scores = [query @ key.mT * query.shape[-1] ** -0.5 for query, key, _ in of_heads]
    found["spread"] = [round(float(row.std(dim=-1).mean()), 3) for row in scores]
    for score, (_, _, value) in zip(scores, of_heads, strict=True):
        weights, mean = score.softmax(dim=-1), value.mean(dim=0)
        apart = value - mean
        common = mean.norm() / apart.square().sum(dim=-1).mean().sqrt()
        found["common"].append(round(float(common), 3))
        for k in (8, 64):
            few = weights * choosing.best(weights, k)
            held = few.sum(dim=-1)
            change = weights - few / held[:, None]
            errors = {
                name: ((change @ v).norm(dim=-1) / (weights @ v).norm(dim=-1)).mean()
                for name, v in {"error": value, "apart": apart}.items()
            }
            for name, number in {"held": held.mean(), **errors}.items():
                found.setdefault(str(k), {}).setdefault(name, []).append(round(float(number), 3))
    return found


def shares_apart(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the shares of two sets of frames that differ by more than 0.1."""
    old, found = ({name: x[name] for name in ("dense", "last", "right")} for x in (stored, new))
    return numbers_apart(old, found, rtol=0, atol=0.1)


def last_16(_: Any) -> Any:
    """Return the last 16 keys of each row, whatever the scores."""
    return choosing.past & ~choosing.past.tril(-16)


def exact(layer: Any) -> Choose:
    """Return what chooses the two keys with the best scores of a layer."""
    return lambda X: choosing.own_two(choosing.scores(layer, X))


def _cut(left: Any, right: Any) -> Choose:
    """Return what chooses by products of the tokens' queries X @ left and their keys X @ right."""
    past = choosing.past
    return lambda X: choosing.own_two(((X @ left) @ (X @ right).mT).masked_fill(~past, -torch.inf))


def _root(X: Any) -> Any:
    """Return the square root of the mean of all x xᵀ, and its inverse."""
    squares, axes = torch.linalg.eigh(X.mT @ X / len(X))
    roots = squares.clamp(min=1e-12).sqrt()
    return (axes * roots) @ axes.mT, (axes / roots) @ axes.mT


def svd_of_inputs(model: Any, seed: int) -> list[Choose]:
    """Return for each layer what chooses by its scores from 8 numbers that fit its inputs best.

    The decomposition is of C_q^½ W_Q W_Kᵀ C_k^½, so that what is left out is small in the mean over
    the scores of 256 new texts. A mean of all keys shifts whole rows, and is left out of C_k.
    """
    texts = copying.repeats(256, np.random.default_rng(100 + seed))[0]
    X, found = model.enter(torch.from_numpy(texts[:, :-1])), []
    for layer in model.layers:
        rows = X.flatten(0, 1).double()
        (asks, back_q), (answers, back_k) = _root(rows), _root(rows - rows.mean(0))
        left, sizes, right = torch.linalg.svd(
            asks @ (layer.W_Q @ layer.W_K.mT).double() @ answers
        )
        cut = back_q @ (left[:, :8] * sizes[:8]), back_k @ right[:8].mT
        found.append(_cut(*(W.float() for W in cut)))
        X = choosing.attend(layer, X, choosing.past)
    return found


taught = choosing.taught
# The ways of the table: each takes a model and its seed, and returns what chooses in its layers.
WAYS: dict[str, Callable[[Any, int], Any]] = {
    "all keys": lambda model, seed: [choosing.every] * 2,
    "last 16 keys": lambda model, seed: [last_16] * 2,
    "two: exact scores": lambda model, seed: map(exact, model.layers),
    "two: SVD of inputs": svd_of_inputs,
    "two: untaught indexer": partial(taught, n_steps=0),
    "two: untaught product": partial(taught, n_steps=0, kind=choosing.Product),
    "two: taught indexer": taught,
    "two: taught product": partial(taught, kind=choosing.Product),
    "short: taught indexer": partial(taught, kind=partial(choosing.Indexer, d_index=2)),
    "short: taught product": partial(taught, kind=partial(choosing.Product, d_index=2)),
}


def shares(way: str) -> list[float]:
    """Return the shares of right guesses of ten models whose keys are chosen in this way."""
    found = []
    for seed, model in enumerate(copying.stored_models()):
        model.requires_grad_(False)
        found.append(round(choosing.share_right(model, WAYS[way](model, seed)), 4))
    return found


TABLES = {
    "frames": in_json(STORED, "frames", {"": frames}, shares_apart),
    "minilm": in_json(STORED, "minilm", {"": minilm}, numbers_apart),
    "table": in_json(STORED, "table", {way: partial(shares, way) for way in WAYS}),
}

if __name__ == "__main__":
    sys.exit(main(TABLES))
