"""The models of two pages below chapter 21, and their stored results.

The pages are "Which program is learned?" and "A state and a softmax". A test holds the functions to
be those of the pages, character by character.
`python -m tools.measure_learning` writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.copying import Attention, begin, repeats, share_right


def stored():
    """Return what was measured once, with the day.

    >>> sorted(stored())
    ['deep', 'hybrids', 'kinds', 'measured', 'skips', 'sums']
    """
    return json.loads((files("attnbook") / "data" / "learning.json").read_text(encoding="utf-8"))


def measured(what):
    """Return one of the experiments: the steps, and by model an array of results.

    The axes are seeds, steps, and the three shares: right guesses, and after a skip what followed
    and what is due.

    >>> at, found = measured("kinds")
    >>> at, found["one layer, sum"].shape
    ([200, 300, 500, 1000], (10, 4, 3))
    """
    found = stored()[what]
    return found["at"], {name: np.array(rows) for name, rows in found["found"].items()}


def stored_sums():
    """Return of ten sums the share of right guesses, and after a skip what followed and is due.

    They are trained like the models of chapter 17, until they copy or for 300 steps.

    >>> stored_sums().shape
    (10, 3)
    """
    return np.array(stored()["sums"]["found"]["sum"])


def skipping(n, rng):
    texts, p = repeats(n, rng)
    c = rng.integers(p + 1, 32)  # the first token after the skip
    skip = rng.integers(1, p - 1)
    places = (np.arange(33) + skip * (np.arange(33) >= c)) % p
    due = np.take_along_axis(texts, c % p, axis=1)
    return np.take_along_axis(texts, places, axis=1), c, due


texts, c, due = skipping(512, np.random.default_rng(3))
follows = np.take_along_axis(texts, c + 1, axis=1)


def named(model):
    with torch.no_grad():
        guesses = model(torch.from_numpy(texts[:, :-1])).argmax(-1).numpy()
    guess = np.take_along_axis(guesses, c, axis=1)
    return [(guess == follows).mean(), (guess == due).mean()]


class Sum(Attention):
    def weights(self, Q, K):
        scores = (Q @ self.W_Q) @ (K @ self.W_K).mT * self.scale
        return scores.tril()


def begin_sum(seed):
    model = begin(seed)
    model.layers = nn.ModuleList(Sum(64, 1 / 64) for _ in range(2))
    return model


def softmax(S):
    future = torch.ones_like(S).triu(1).bool()
    return S.masked_fill(future, -torch.inf).softmax(-1)


def signed(S):
    future = torch.ones_like(S).triu(1).bool()
    both = [x.masked_fill(future, -torch.inf) for x in (S, -S)]
    up, down = torch.cat(both, dim=-1).softmax(-1).chunk(2, dim=-1)
    return up - down


def divided(A):
    return A / (A.abs().sum(-1, keepdim=True) + 1e-6)


KINDS = {
    "sum": lambda S: S.tril() / 8,
    "sum, divided": lambda S: divided(S.tril()),
    "softmax, signed": signed,
    "softmax": softmax,
    "ReLU": lambda S: S.relu().tril() / 8,
    "squares": lambda S: S.square().tril() / 64,
}


class Weighted(Attention):
    def __init__(self, kind):
        super().__init__(64, 1 / 8)
        self.kind = kind

    def weights(self, Q, K):
        return KINDS[self.kind]((Q @ self.W_Q) @ (K @ self.W_K).mT * self.scale)


class Small(nn.Module):
    def __init__(self, d_k, kind):
        super().__init__()
        W = [nn.Parameter(torch.randn(64, n) / 8) for n in (d_k, d_k, 64, 64)]
        self.W_Q, self.W_K, self.W_V, self.W_O = W
        if kind == "state":
            self.W_beta = nn.Parameter(torch.randn(64, 1) / 8)
        self.kind, self.scale = kind, d_k**-0.5

    def forward(self, Q, K, X):
        q, k, v = Q @ self.W_Q, K @ self.W_K, X @ self.W_V
        if self.kind == "softmax":
            return softmax(q @ k.mT * self.scale) @ v @ self.W_O
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        v = written(k, v, X @ self.W_beta) if self.kind == "state" else v
        return (q @ k.mT).tril() @ v @ self.W_O


def written(k, v, z):  # what the delta rule writes, for all tokens at once
    beta = torch.sigmoid(z)
    left = torch.eye(k.shape[-2]) + (beta * (k @ k.mT)).tril(-1)
    return torch.linalg.solve_triangular(left, beta * v, upper=False)


def begin_with(seed, layers):
    model = begin(seed)
    model.layers = nn.ModuleList(layer() for layer in layers)
    return model


def learn(model, draw, at, seed=0):
    rng, found = np.random.default_rng(100 + seed), []
    adam = torch.optim.Adam(model.parameters(), 0.003, fused=True)
    for step in range(1, at[-1] + 1):
        x = torch.from_numpy(draw(32, rng)[0])
        loss = F.cross_entropy(model(x[:, :-1]).mT, x[:, 1:])
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step in at:
            found.append([share_right(model), *named(model)])
    return found
