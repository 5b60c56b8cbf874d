"""The indexer of chapter 20, with its training, and what is stored of two trained models.

A test holds the functions to be those of the chapter, character by character.
`python -m tools.measure_choosing` writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch
from torch import nn

from attnbook import copying
from attnlib import masks

past = masks.causal(32, like=torch.zeros(1))


def stored():
    """Return what was measured once: the frames of the chapter's first figure, and MiniLM.

    >>> sorted(stored())
    ['frames', 'measured', 'minilm']
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
