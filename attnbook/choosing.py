"""Layers that read the keys that are chosen for them, and what is stored of trained models.

The page is chapter 20, which defines the indexer and the distance; a test holds both to be those of
the page, character by character. `tools/measure_choosing.py` has the other ways to choose keys, and
writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch
from torch import nn

from attnbook.copying import can_copy, kept, repeats
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
    (10, 10)
    """
    return stored()["table"]["found"]


def eight(way):
    """Return the row of this way, without the two models that do not copy with all keys."""
    copies = np.array(table()["all keys"]) > 0.5
    return np.array(table()[way])[copies]


def span(way):
    """Return the range of the eight models that copy.

    >>> span("all keys")
    '0.95-0.99'
    """
    return f"{eight(way).min():.2f}-{eight(way).max():.2f}"


# What a reader sees for the ways of the table.
LABELS = {
    "all keys": "all keys",
    "last 16 keys": "the last 16 keys",
    "two: exact scores": "two: exact scores",
    "two: SVD of inputs": "two: SVD, 8 numbers",
    "two: untaught indexer": "two: indexer, 8 numbers, untaught",
    "two: untaught product": "two: product, 8 numbers, untaught",
    "two: taught indexer": "two: indexer, 8 numbers, taught",
    "two: taught product": "two: product, 8 numbers, taught",
    "short: taught indexer": "two: indexer, 2 numbers, taught",
    "short: taught product": "two: product, 2 numbers, taught",
}


def show(*seeds):
    """Print the share of right guesses for each way: of these models, or the range of the eight."""
    head = "".join(f"   {seed} " for seed in seeds) or " right guesses"
    print(f"{'seed' if seeds else '':33}{head}".rstrip())
    for way, found in table().items():
        shares = " ".join(f"{found[seed]:.2f}" for seed in seeds) or f"   {span(way)}"
        print(f"{LABELS[way]:33} {shares}")


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


class Indexer(nn.Module):
    def __init__(self, d=64, n_heads=4, d_index=8):
        super().__init__()
        sizes = (n_heads * d_index, d_index, n_heads)
        W = [nn.Parameter(torch.randn(d, n) / d**0.5) for n in sizes]
        self.W_q, self.W_k, self.W_w = W
        # This factor changes no choice, only how unequal the shares below are.
        self.d_index, self.scale = d_index, sizes[0] ** -0.5

    def forward(self, X):
        q = (X @ self.W_q).unflatten(-1, (-1, self.d_index)).movedim(-2, -3)
        k = (X @ self.W_k).unsqueeze(-3)  # one for all heads
        w = (X @ self.W_w).mT.unsqueeze(-1)
        index = (w * torch.relu(q @ k.mT)).sum(-3) * self.scale
        return index.masked_fill(~past, -torch.inf)


class Product(nn.Module):
    """Scores from one short query and one short key: their product, as in attention itself."""

    def __init__(self, d=64, d_index=8):
        super().__init__()
        W = [nn.Parameter(torch.randn(d, d_index) / d**0.5) for _ in range(2)]
        self.W_q, self.W_k = W

    def forward(self, X):
        products = (X @ self.W_q) @ (X @ self.W_k).mT / self.W_q.shape[1] ** 0.5
        return products.masked_fill(~past, -torch.inf)


def distance(S, index, seen):
    A, P = (x.masked_fill(~seen, -1e9).log_softmax(-1) for x in (S, index))
    return (A.exp() * (A - P)).sum(-1).mean()


def teach(model, indexers, adam, rng, n_steps):
    """Train the indexers of a model on all keys that a query sees."""
    for _ in range(n_steps):
        X, loss = model.enter(torch.from_numpy(repeats(16, rng)[0][:, :-1])), 0
        for layer, indexer in zip(model.layers, indexers, strict=True):
            loss = loss + distance(scores(layer, X), indexer(X), past)
            X = attend(layer, X, past)
        adam.zero_grad()
        loss.backward()
        adam.step()


def taught(model, seed, n_steps=200, kind=Indexer):
    """Return for each layer of a model what chooses two keys: an indexer, taught in so many steps.

    The entries of the model are frozen.
    """
    model.requires_grad_(False)
    torch.manual_seed(100 + seed)
    indexers, rng = [kind(), kind()], np.random.default_rng(100 + seed)
    entries = [W for indexer in indexers for W in indexer.parameters()]
    teach(model, indexers, torch.optim.Adam(entries, 0.005, fused=True), rng, n_steps)
    return [lambda X, one=one: own_two(one(X)) for one in indexers]
