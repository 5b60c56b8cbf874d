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
from tools.measured import in_json, main, numbers_apart, program

STORED = ROOT / "attnbook" / "data" / "choosing.json"
STEPS = (0, 50, 100, 200)
PAGE = program("20_choosing_keys", "past", "Indexer", "distance", "teach", "taught")
taught = PAGE.taught
Choose = Callable[[Any], Any]  # takes what a layer reads, and returns the keys of each row


def frames(seed: int = 2) -> dict[str, Any]:
    """Return weights of layer 2 in percent, the keys that its indexer chooses, and shares."""
    [model] = copying.stored_models([seed])
    model.requires_grad_(False)
    torch.manual_seed(100 + seed)
    indexers = [PAGE.Indexer(), PAGE.Indexer()]
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
        PAGE.teach(model, indexers, adam, rng, after - before, lambda _: choosing.past)
        with torch.no_grad():
            seen = choosing.best(indexers[1](X)[0], 2)
            found["chosen"].append([np.flatnonzero(keys).tolist() for keys in seen])
            found["right"].append(right(2))
    return found


def _held_by_blocks(of_heads: Any, size: int) -> list[float]:
    """Return what 64 keys hold in blocks that means, bounds and weights choose, mean of heads."""
    shares = []
    for query, key, _ in of_heads:
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        by_block = weights.unflatten(-1, (-1, size)).sum(dim=-1)
        blocks = key.unflatten(0, (-1, size))
        low, high = blocks.amin(dim=1), blocks.amax(dim=1)
        by_bound = query.clamp(min=0) @ high.mT + query.clamp(max=0) @ low.mT
        ways = query @ blocks.mean(dim=1).mT, by_bound, by_block
        held = [(by_block * choosing.best(way, 64 // size)).sum(dim=-1).mean() for way in ways]
        shares.append([float(share) for share in held])
    return [round(float(share), 3) for share in np.mean(shares, axis=0)]


def minilm() -> dict[str, Any]:
    """Return means over the rows of each head, for its best 8 and its best 64 of 512 keys.

    `held` is their weight, `error` the length of what they lose as a share of the output, `apart`
    the same without the mean of all values, and `bound` the largest share of the chapter's bound
    that is lost. `spread` is the standard deviation of a row of scores, and `shared` what 64 keys
    hold that are chosen once for all 12 heads of a layer, by the sum of their weights. `blocks` has
    for blocks of 16 and of 64 keys what 64 keys hold, if the mean of a block chooses it, if an
    upper bound of its scores does, and if its weight does.
    """
    found: dict[str, Any] = {"spread": [], "shared": []}
    of_heads, n_heads = heads(), 12
    scores = [query @ key.mT * query.shape[-1] ** -0.5 for query, key, _ in of_heads]
    found["spread"] = [round(float(row.std(dim=-1).mean()), 3) for row in scores]
    for start in range(0, len(scores), n_heads):
        layer = torch.stack(scores[start : start + n_heads]).softmax(dim=-1)
        held = (layer * choosing.best(layer.sum(dim=0), 64)).sum(dim=-1).mean(dim=-1)
        found["shared"] += [round(float(share), 3) for share in held]
    found["blocks"] = {str(size): _held_by_blocks(of_heads, size) for size in (16, 64)}
    for score, (_, _, value) in zip(scores, of_heads, strict=True):
        weights = score.softmax(dim=-1)
        farthest, apart = torch.cdist(value, value).max(), value - value.mean(dim=0)
        for k in (8, 64):
            few = weights * choosing.best(weights, k)
            held = few.sum(dim=-1)
            change = weights - few / held[:, None]
            lost = (change @ value).norm(dim=-1)
            left = (1 - held).clamp(min=1e-9)  # of nothing, nothing is lost
            row = {
                "held": held.mean(),
                "error": (lost / (weights @ value).norm(dim=-1)).mean(),
                "apart": ((change @ apart).norm(dim=-1) / (weights @ apart).norm(dim=-1)).mean(),
                "bound": (lost / (left * farthest)).max(),
            }
            for name, number in row.items():
                found.setdefault(str(k), {}).setdefault(name, []).append(round(float(number), 3))
    return found


def shares_apart(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the shares of two sets of frames that differ by more than 0.1."""
    old, found = ({name: x[name] for name in ("dense", "last", "right")} for x in (stored, new))
    return numbers_apart(old, found, rtol=0, atol=0.1)


def any_two(index: Any) -> Any:
    """Return two keys of each row, whatever the scores."""
    return choosing.own_two(torch.rand_like(index).masked_fill(~choosing.past, -torch.inf))


def last_16(_: Any) -> Any:
    """Return the last 16 keys of each row, whatever the scores."""
    return choosing.past & ~choosing.past.tril(-16)


def exact(layer: Any) -> Choose:
    """Return what chooses the two keys with the best scores of a layer."""
    return lambda X: choosing.own_two(choosing.scores(layer, X))


def svd(layer: Any) -> Choose:
    """Return what chooses by the same scores from 8 numbers, by a singular value decomposition."""
    left, sizes, right = torch.linalg.svd(layer.W_Q @ layer.W_K.mT)
    A, B = left[:, :8] * sizes[:8], right[:8].mT
    past = choosing.past
    return lambda X: choosing.own_two(((X @ A) @ (X @ B).mT).masked_fill(~past, -torch.inf))


class Product(torch.nn.Module):
    """Scores from keys of 2 numbers, which a product compares."""

    def __init__(self) -> None:
        super().__init__()
        W = [torch.nn.Parameter(torch.randn(64, 2) / 8) for _ in range(2)]
        self.W_q, self.W_k = W

    def forward(self, X: Any) -> Any:
        """Return the scores, (…, T, T)."""
        products = (X @ self.W_q) @ (X @ self.W_k).mT / 2**0.5
        return products.masked_fill(~choosing.past, -torch.inf)


def short_index() -> Any:
    """Return an indexer with keys of 2 numbers."""
    return PAGE.Indexer(d_index=2)


# The ways of the table: each takes a model and its seed, and returns what chooses in its layers.
WAYS: dict[str, Callable[[Any, int], Any]] = {
    "all keys": lambda model, seed: [choosing.every] * 2,
    "exact": lambda model, seed: map(exact, model.layers),
    "last 16": lambda model, seed: [last_16] * 2,
    "SVD": lambda model, seed: map(svd, model.layers),
    "none": lambda model, seed: taught(model, seed),
    "all": lambda model, seed: taught(model, seed, choosing.every),
    "own": lambda model, seed: taught(model, seed, choosing.own_two),
    "any": lambda model, seed: taught(model, seed, any_two),
    "all, 50": lambda model, seed: taught(model, seed, choosing.every, 50),
    "own, 50": lambda model, seed: taught(model, seed, choosing.own_two, 50),
    "index": lambda model, seed: taught(model, seed, choosing.every, kind=short_index),
    "product": lambda model, seed: taught(model, seed, choosing.every, kind=Product),
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
