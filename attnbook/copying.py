"""The model and the training of chapter 17, and what is stored of ten trained models.

A test holds the functions to be those of the pages, character by character. Other pages ask the
stored models, so that a model is trained in one place:
`python -m tools.measure_copying 2026-11-27` trains them, and writes `data/copying.npz`, and what
becomes of other scales into `data/copying.json`. The entries are rounded to float16, and what is
said of the stored models is computed from the rounded entries.
"""

# mypy: ignore-errors

import json
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def repeats(n, rng, periods=range(8, 17)):
    p = rng.choice(periods, (n, 1))
    symbols = rng.permuted(np.tile(np.arange(24), (n, 1)), axis=1)
    return np.take_along_axis(symbols, np.arange(33) % p, axis=1), p


class Attention(nn.Module):
    def __init__(self, d, scale):
        super().__init__()
        W = [nn.Parameter(torch.randn(d, d) / d**0.5) for _ in range(4)]
        (self.W_Q, self.W_K, self.W_V, self.W_O), self.scale = W, scale

    def weights(self, Q, K):
        scores = (Q @ self.W_Q) @ (K @ self.W_K).mT * self.scale
        future = torch.ones(scores.shape[-2:]).triu(1).bool()
        return scores.masked_fill(future, -torch.inf).softmax(-1)

    def forward(self, Q, K, X):
        return self.weights(Q, K) @ (X @ self.W_V) @ self.W_O


class Model(nn.Module):
    def __init__(self, scale, n_layers=2, d=64):
        super().__init__()
        self.symbols, self.places = nn.Embedding(24, d), nn.Embedding(32, d)
        layers = (Attention(d, scale) for _ in range(n_layers))
        self.layers, self.out = nn.ModuleList(layers), nn.Linear(d, 24)

    def enter(self, tokens):
        return (self.symbols(tokens) + self.places.weight) / 2**0.5

    def forward(self, tokens, cut=None):
        start = X = self.enter(tokens)
        for layer in self.layers:
            Q, K = (start if cut == name else X for name in ["queries", "keys"])
            X = X + layer(Q, K, X)
        return self.out(X)


kept, p = repeats(256, np.random.default_rng(1))
kept, can_copy = torch.from_numpy(kept), torch.from_numpy(np.arange(32) >= p)


def share_right(model, cut=None):
    with torch.no_grad():
        guesses = model(kept[:, :-1], cut).argmax(-1)
    return (guesses == kept[:, 1:])[can_copy].float().mean().item()


def go_on(model, optimizer, rng, periods=range(8, 17)):
    for _ in range(20):
        texts = torch.from_numpy(repeats(32, rng, periods)[0])
        loss = F.cross_entropy(model(texts[:, :-1]).mT, texts[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(model, seed=0, periods=range(8, 17), adam=None):
    rng, right = np.random.default_rng(seed), []
    optimizer = adam or torch.optim.Adam(model.parameters(), 0.003, fused=True)
    while len(right) < 15 and max(right, default=0) < 0.95:
        go_on(model, optimizer, rng, periods)
        right.append(share_right(model))
    return right


def begin(seed, scale=1 / 8, n_layers=2):  # 1/8 is 1/√d_k
    torch.manual_seed(seed)
    return Model(scale, n_layers)


def steps(right):
    return 20 * len(right) if right[-1] >= 0.95 else "-"


def measured(model):
    """Return two mean weights of layer 1, and the shares of right guesses: whole and with two cuts.

    The weights are those on the token before (in the first period, which is copied later) and
    those on earlier tokens with the same symbol. The cuts are of layer 2's keys and its queries.

    >>> [model] = stored_models([0])
    >>> [round(float(share), 1) for share in measured(model)]
    [0.9, 0.0, 1.0, 0.1, 1.0]
    """
    t, j = np.mgrid[:32, :32]
    ago, again = t - j, t >= p[..., None]  # how far back; whether it repeats
    before, same = (ago == 1) & ~again, (ago > 0) & (ago % p[..., None] == 0)
    with torch.no_grad():
        X = model.enter(kept[:, :-1])
        first = model.layers[0].weights(X, X).numpy()
    shares = [(first * goal).sum() / goal.any(-1).sum() for goal in (before, same)]
    return shares + [share_right(model, cut) for cut in (None, "keys", "queries")]


@cache
def _stored_arrays():
    with (files("attnbook") / "data" / "copying.npz").open("rb") as file, np.load(file) as held:
        return dict(held)


def stored_models(seeds=range(10)):
    """Return the stored models of these seeds, from 0 to 9; each is a new copy.

    >>> [model] = stored_models([1])
    >>> share_right(model) > 0.95
    True
    """
    held, models = _stored_arrays(), []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):  # the random entries are replaced
            model = Model(held["scale"].item())
        row = held["seeds"].tolist().index(seed)
        entries = {name: torch.from_numpy(held[name][row]) for name in model.state_dict()}
        model.load_state_dict(entries)
        models.append(model)
    return models


def stored_curves():
    """Return what `train` returned for each of the stored models: the shares after 20, 40, … steps.

    >>> curves = stored_curves()
    >>> len(curves), steps(curves[0])
    (10, 200)
    """
    return [curve[np.isfinite(curve)].tolist() for curve in _stored_arrays()["curves"]]


def stored_on():
    """Return the day on which the stored models were trained."""
    return str(_stored_arrays()["day"])


def stored():
    """Return what `train` returned without the scale or with another one, and longer training.

    >>> sorted(stored())
    ['late', 'longer', 'measured', 'ways']
    >>> late = stored()["late"]["found"]["1/√d_k"]  # of each seed what `measured` returns, and more
    >>> [round(share, 2) for share in late[6][:3]]
    [0.05, 0.01, 1.0]
    """
    return json.loads((files("attnbook") / "data" / "copying.json").read_text(encoding="utf-8"))


def stored_ways():
    """Return the curves of ten seeds by way.

    >>> {way: len(curves) for way, curves in stored_ways().items()}
    {'none': 10, 'only the rate': 10, 'only the start': 10, '1/d_k': 10}
    """
    return stored()["ways"]["found"]
