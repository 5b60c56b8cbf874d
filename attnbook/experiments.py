"""The measured experiments of the course: what the scale does, what is held, and how it grows.

Functions return numbers, and what is drawn at random takes a seed; `attnbook.figures` draws.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib.numpy_dense import softmax

Array = NDArray[np.float64]

# The three rules that chapter 03 compares, named by what q·k is divided by.
RULES: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {"1": lambda d_k: 1.0, "sqrt(d_k)": lambda d_k: d_k**0.5, "d_k": lambda d_k: float(d_k)}
)


def peak_bytes(form: Callable[..., Any], *inputs: Any) -> int:
    """Return the most bytes that a call of `form` on the inputs holds at one moment.

    Python's tracemalloc counts, so memory that NumPy takes is seen, and torch's is not. What exists
    before the call, such as the inputs, does not count. A first call, not counted, loads what is
    loaded only once.

    Source:
        chapter 11.

    >>> peak_bytes(np.ones, 1000) // 1000
    8
    """
    form(*inputs)
    tracemalloc.start()
    try:
        form(*inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def loglog_slope(x: ArrayLike, y: ArrayLike) -> float:
    """Return the slope of the straight line through (log x, log y): the power p in y ≈ c·xᵖ.

    Shapes:
        x and y (n,), n at least 2, positive.

    >>> round(loglog_slope([1, 10, 100], [2, 20, 200]), 12)
    1.0
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def entropy_share(weights: Array) -> Array:
    """Return the entropy of each row of weights over that of equal weights: 0 one key, 1 all alike.

    −Σ a log a / log n.

    Shapes:
        weights (…, n), n at least 2, returns (…).

    >>> entropy_share(np.array([0.5, 0.5, 0.0, 0.0])).item()
    0.5
    """
    positive = np.where(weights > 0, weights, 1.0)
    # 0 - Σ rather than -Σ, so that no row has the entropy -0.
    return np.asarray((0 - np.sum(weights * np.log(positive), axis=-1)) / np.log(weights.shape[-1]))


class RuleStatistics(NamedTuple):
    """What one rule does at one d_k; every entry is dimensionless.

    score_std: standard deviation of the scaled scores. entropy: mean entropy as a share of log n.
    largest: mean largest weight of a row.
    gradient_mean, gradient_median: over the draws, of ‖∂loss/∂q‖. gradient_tenth: the share of the
    summed norms that comes from the largest tenth of the draws (0.1 where all are alike).
    """

    score_std: float
    entropy: float
    largest: float
    gradient_mean: float
    gradient_median: float
    gradient_tenth: float


def scaling_rules(
    d_k: int, *, n_keys: int = 8, n_draws: int = 4_000, seed: int = 0
) -> dict[str, RuleStatistics]:
    """Return what each of the three rules makes of the same random queries and keys.

    A draw is one query and n_keys keys with standard normal entries. The loss is Σ_j g_j a_j, with
    a standard normal g: the linear loss seen by the weights, g_j standing for u·v_j. Then
    ∂loss/∂q = c Σ_j a_j (g_j − Σ_l a_l g_l) k_j for scores c q·k_j.

    Source:
        chapters 03 and 04.

    >>> rules = scaling_rules(64, n_draws=100)
    >>> rules["1"].largest > rules["sqrt(d_k)"].largest > rules["d_k"].largest
    True
    """
    rng = np.random.default_rng([seed, d_k])
    query = rng.standard_normal((n_draws, d_k))
    keys = rng.standard_normal((n_draws, n_keys, d_k))
    upstream = rng.standard_normal((n_draws, n_keys))
    raw_scores = np.einsum("dc,djc->dj", query, keys)
    statistics = {}
    for name, divisor in RULES.items():
        scale = 1.0 / divisor(d_k)
        weights = softmax(scale * raw_scores)
        mean_upstream = np.sum(weights * upstream, axis=-1, keepdims=True)
        score_gradient = weights * (upstream - mean_upstream)
        gradient = np.linalg.norm(scale * np.einsum("dj,djc->dc", score_gradient, keys), axis=-1)
        largest_tenth = np.sort(gradient)[-max(1, n_draws // 10) :]
        statistics[name] = RuleStatistics(
            score_std=float(np.std(scale * raw_scores)),
            entropy=float(np.mean(entropy_share(weights))),
            largest=float(np.mean(np.max(weights, axis=-1))),
            gradient_mean=float(np.mean(gradient)),
            gradient_median=float(np.median(gradient)),
            gradient_tenth=float(np.sum(largest_tenth) / np.sum(gradient)),
        )
    return statistics


def growing_scores(d_ks: Sequence[int], *, n_keys: int = 8, seed: int = 0) -> Array:
    """Raw scores of one query against n_keys keys, as the vectors grow to each d_k of the list.

    The vectors keep their first entries as they grow, so each key's score is one random walk,
    seen after d_k steps: r_j(d_k) = Σ_{c ≤ d_k} q_c k_jc.

    Shapes:
        returns (len(d_ks), n_keys).

    >>> growing_scores([4, 16]).shape
    (2, 8)
    """
    rng = np.random.default_rng(seed)
    query = rng.standard_normal(max(d_ks))
    keys = rng.standard_normal((n_keys, max(d_ks)))
    walks = np.cumsum(query * keys, axis=1)
    return np.asarray(walks[:, np.asarray(d_ks) - 1].T)


def recall_similarities(
    counts: Sequence[int], d_k: int = 64, d_v: int = 48, *, n_draws: int = 32, seed: int = 0
) -> dict[str, list[Array]]:
    """Return how near three memories come when each pair is read back by its key, by the count.

    Keys and values are random vectors of length 1. After so many pairs, every key asks: a softmax
    over all keys (of length √d_k, as those with entries of variance 1 are), the sum of all kᵀv, and
    a state whose value for a key is replaced before each write. A similarity is the cosine of the
    angle between the answer and the value, the mean over draws.

    Shapes:
        returns for each memory one array (n,) for each n of the counts, the oldest pair first.

    >>> found = recall_similarities([2, 4], 16, n_draws=1)
    >>> list(found), found["sum"][1].shape
    (['sum', 'replace', 'softmax'], (4,))
    """
    rng = np.random.default_rng(seed)
    keys, values = (rng.standard_normal((n_draws, max(counts), d)) for d in (d_k, d_v))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    values /= np.linalg.norm(values, axis=-1, keepdims=True)
    states = {"sum": np.zeros((n_draws, d_k, d_v)), "replace": np.zeros((n_draws, d_k, d_v))}
    found: dict[str, list[Array]] = {name: [] for name in (*states, "softmax")}
    for n in range(1, max(counts) + 1):
        k, v = keys[:, n - 1, :, None], values[:, n - 1, None]
        states["sum"] += k * v
        states["replace"] += k * (v - k.swapaxes(1, 2) @ states["replace"])
        if n not in counts:
            continue
        asked, wanted = keys[:, :n], values[:, :n]
        read = {name: asked @ state for name, state in states.items()}
        read["softmax"] = softmax(d_k**0.5 * asked @ asked.swapaxes(1, 2)) @ wanted
        for name, answers in read.items():
            lengths = np.linalg.norm(answers, axis=-1)
            found[name].append(((answers * wanted).sum(axis=-1) / lengths).mean(axis=0))
    return found
