"""Layers that read the keys that are chosen for them, and what is stored of trained models.

The page is chapter 20, which defines the indexer and its training. `tools/measure_choosing.py` has
the other ways to choose keys, and writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch

from attnbook.copying import can_copy, kept
from attnlib import masks

past = masks.causal(32, like=torch.zeros(1))


def stored():
    """Return what was measured once: the frames of the first figure, MiniLM, and the table.

    >>> sorted(stored())
    ['frames', 'measured', 'minilm', 'table']
    """
    return json.loads((files("attnbook") / "data" / "choosing.json").read_text(encoding="utf-8"))


def frames():
    """Return what `figures.chosen_keys` draws: the frames that are stored.

    >>> frames()["steps"]
    [0, 50, 100, 200]
    """
    found = stored()["frames"]
    weights = np.array(found["weights"]) / 100
    others = {"all keys": found["dense"], "the last 16 keys": found["last"]}
    same = {name: found[name] for name in ("chosen", "steps", "right")}
    return {"weights": weights, "others": others, "first": 8, **same}


def table():
    """Return the shares of right guesses of ten models, by the way in which keys are chosen.

    >>> len(table()), len(table()["all keys"])
    (12, 10)
    """
    return stored()["table"]["found"]


def scores(layer, X):
    S = (X @ layer.W_Q) @ (X @ layer.W_K).mT * layer.scale
    return S.masked_fill(~past, -torch.inf)


def attend(layer, X, seen):
    A = scores(layer, X).masked_fill(~seen, -torch.inf).softmax(-1)
    return X + A @ (X @ layer.W_V) @ layer.W_O


def best(scores, k):
    """Return the boolean mask in which each query sees the k keys with its highest scores.

    Masks belong into the scores, before the choice: a key whose score is -∞ (or NaN) is never
    chosen, and a row with fewer other keys has fewer than k. Of equal scores that of the earlier
    key is chosen, in contrast to `torch.topk`, which leaves this open. Arrays or tensors.

    Source: DeepSeek-AI 2025 (arXiv 2512.02556), section 2.1.

    >>> best(np.array([[2.0, 5.0, 3.0], [2.0, 2.0, -np.inf]]), 1).astype(int)
    array([[0, 1, 0],
           [1, 0, 0]])
    """
    tensors = torch.is_tensor(scores)
    xp, stable = (torch, {"stable": True}) if tensors else (np, {"kind": "stable"})
    there = scores > -np.inf  # NaN is not
    order = xp.argsort(xp.where(there, -scores, np.inf), **stable)
    return (xp.argsort(order) < k) & there  # a key's place in the order is its rank


def blocks(chosen, size, n_keys):
    """Return the boolean mask in which a query sees all keys of its chosen blocks.

    Block b has the keys b · size to (b + 1) · size - 1; the last one may be shorter.

    Source: Yuan et al. 2025 (arXiv 2502.11089), section 3.3.

    >>> blocks(np.array([[True, False], [False, True]]), 2, 3).astype(int)
    array([[1, 1, 0],
           [0, 0, 1]])
    """
    return chosen[..., np.arange(n_keys) // size]


def own_two(index):
    return best(index, 2)


def every(_):
    return past


def share_right(model, choose):
    """Return the share of right guesses where each layer reads the keys that are chosen for it."""
    with torch.no_grad():
        X = model.enter(kept[:, :-1])
        for layer, seen in zip(model.layers, choose, strict=True):
            X = attend(layer, X, seen(X))
        guesses = model.out(X).argmax(-1)
    return (guesses == kept[:, 1:])[can_copy].float().mean().item()


def show(table):
    """Print the table of all models, and when it was measured."""
    print(" " * 31 + "taught for 200 steps    50 steps    2 numbers")
    print("seed   all exact   16  SVD  none  all  own  any", end="  ")
    print(" all  own  index product")
    for seed, row in enumerate(zip(*table.values(), strict=True)):
        parts = row[:4], row[4:8], row[8:10], row[10:]
        text = (" ".join(f"{n:4.2f}" for n in part) for part in parts)
        print(f"{seed:4}", *text, sep="  ")
    print("measured on", stored()["measured"]["table"]["day"])
