"""Train the indexer of chapter 20's first figure, and ask a trained model what its best keys hold.

Training differs in its last bits from one computer to another, and the trained model of chapter 19
is not on all of them. So the numbers are stored: `python -m tools.measure_choosing 2026-11-26`
writes them anew, with the day. The text is the first 512 tokens of the Apache License, which lies
in `attnbook/data`.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

from attnbook import choosing, copying
from attnlib import masks
from tools import ROOT
from tools.measure_heads import heads

STORED = ROOT / "attnbook" / "data" / "choosing.json"
STEPS = (0, 50, 100, 200)


def frames(seed: int = 2) -> dict[str, Any]:
    """Return weights of layer 2 in percent, the keys that its indexer chooses, and shares."""
    model = copying.begin(seed)
    copying.train(model, seed)
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
            X = choosing.attend(layer, X, masks.best(indexer(X), n_keys) if seen is None else seen)
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
    }  # fmt: skip
    for before, after in zip((0, *STEPS), STEPS, strict=False):
        choosing.teach(model, indexers, adam, rng, after - before, lambda _: choosing.past)
        with torch.no_grad():
            seen = masks.best(indexers[1](X)[0], 2)
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
        held = [(by_block * masks.best(way, 64 // size)).sum(dim=-1).mean() for way in ways]
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
        held = (layer * masks.best(layer.sum(dim=0), 64)).sum(dim=-1).mean(dim=-1)
        found["shared"] += [round(float(share), 3) for share in held]
    found["blocks"] = {str(size): _held_by_blocks(of_heads, size) for size in (16, 64)}
    for score, (_, _, value) in zip(scores, of_heads, strict=True):
        weights = score.softmax(dim=-1)
        farthest, apart = torch.cdist(value, value).max(), value - value.mean(dim=0)
        for k in (8, 64):
            few = weights * masks.best(weights, k)
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


def main() -> None:
    """Measure and store."""
    [day] = sys.argv[1:]
    torch.set_num_threads(1)
    found = {"measured": day, "frames": frames(), "minilm": minilm()}
    STORED.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
