"""The indexer of chapter 20, with its training, its controls, and what is stored of trained models.

A test holds the functions that the chapter shows to be those of the chapter, character by
character. `python -m tools.measure_choosing` writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch
from torch import nn

from attnbook import copying
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


class Indexer(nn.Module):
    def __init__(self, d=64, n_heads=4, d_index=8):
        super().__init__()
        sizes = (n_heads * d_index, d_index, n_heads)
        W = [nn.Parameter(torch.randn(d, n) / d**0.5) for n in sizes]
        self.W_q, self.W_k, self.W_w = W
        self.d_index, self.scale = d_index, sizes[0] ** -0.5

    def forward(self, X):
        q = (X @ self.W_q).unflatten(-1, (-1, self.d_index)).movedim(-2, -3)
        k = (X @ self.W_k).unsqueeze(-3)  # one for all heads
        w = (X @ self.W_w).mT.unsqueeze(-1)
        index = (w * torch.relu(q @ k.mT)).sum(-3) * self.scale
        return index.masked_fill(~past, -torch.inf)


def scores(layer, X):
    S = (X @ layer.W_Q) @ (X @ layer.W_K).mT * layer.scale
    return S.masked_fill(~past, -torch.inf)


def attend(layer, X, seen):
    A = scores(layer, X).masked_fill(~seen, -torch.inf).softmax(-1)
    return X + A @ (X @ layer.W_V) @ layer.W_O


def distance(S, index, seen):
    A, P = (x.masked_fill(~seen, -1e9).log_softmax(-1) for x in (S, index))
    return (A.exp() * (A - P)).sum(-1).mean()


def teach(model, indexers, adam, rng, n_steps, shown):
    for _ in range(n_steps):
        tokens = torch.from_numpy(copying.repeats(16, rng)[0][:, :-1])
        X, loss = model.enter(tokens), 0
        for layer, indexer in zip(model.layers, indexers, strict=True):
            S, index = scores(layer, X), indexer(X)
            loss = loss + distance(S, index, shown(index))
            X = attend(layer, X, past)
        adam.zero_grad()
        loss.backward()
        adam.step()


def own_two(index):
    return masks.best(index, 2)


def every(_):
    return past


def taught(model, seed, shown=None, n_steps=200, kind=Indexer):
    torch.manual_seed(100 + seed)
    indexers, rng = [kind(), kind()], np.random.default_rng(100 + seed)
    entries = [W for indexer in indexers for W in indexer.parameters()]
    adam = torch.optim.Adam(entries, 0.005, fused=True)
    teach(model, indexers, adam, rng, n_steps if shown else 0, shown)
    return [lambda X, one=one: own_two(one(X)) for one in indexers]


def any_two(index):
    """Return two keys of each row, whatever the scores."""
    return own_two(torch.rand_like(index).masked_fill(~past, -torch.inf))


def last_16(_):
    """Return the last 16 keys of each row, whatever the scores."""
    return past & ~past.tril(-16)


def exact(layer):
    """Return what chooses the two keys with the best scores of a layer."""
    return lambda X: own_two(scores(layer, X))


def svd(layer):
    """Return what chooses by the same scores from 8 numbers, by a singular value decomposition."""
    left, sizes, right = torch.linalg.svd(layer.W_Q @ layer.W_K.mT)
    A, B = left[:, :8] * sizes[:8], right[:8].mT
    return lambda X: own_two(((X @ A) @ (X @ B).mT).masked_fill(~past, -torch.inf))


class Product(nn.Module):
    """Scores from keys of 2 numbers, which a product compares."""

    def __init__(self):
        super().__init__()
        W = [nn.Parameter(torch.randn(64, 2) / 8) for _ in range(2)]
        self.W_q, self.W_k = W

    def forward(self, X):
        """Return the scores, (…, T, T)."""
        products = (X @ self.W_q) @ (X @ self.W_k).mT / 2**0.5
        return products.masked_fill(~past, -torch.inf)


def short_index():
    """Return an indexer with keys of 2 numbers."""
    return Indexer(d_index=2)


def share_right(model, choose):
    """Return the share of right guesses where each layer reads the keys that are chosen for it."""
    with torch.no_grad():
        X = model.enter(kept[:, :-1])
        for layer, seen in zip(model.layers, choose, strict=True):
            X = attend(layer, X, seen(X))
        guesses = model.out(X).argmax(-1)
    return (guesses == kept[:, 1:])[can_copy].float().mean().item()


# The ways of the table: each takes a model and its seed, and returns what chooses in its layers.
WAYS = {
    "all keys": lambda model, seed: [every] * 2,
    "exact": lambda model, seed: map(exact, model.layers),
    "last 16": lambda model, seed: [last_16] * 2,
    "SVD": lambda model, seed: map(svd, model.layers),
    "none": lambda model, seed: taught(model, seed),
    "all": lambda model, seed: taught(model, seed, every),
    "own": lambda model, seed: taught(model, seed, own_two),
    "any": lambda model, seed: taught(model, seed, any_two),
    "all, 50": lambda model, seed: taught(model, seed, every, 50),
    "own, 50": lambda model, seed: taught(model, seed, own_two, 50),
    "index": lambda model, seed: taught(model, seed, every, kind=short_index),
    "product": lambda model, seed: taught(model, seed, every, kind=Product),
}


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
