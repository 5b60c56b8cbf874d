"""Attention as it should be, and as the usual mistakes would have it, for test_mistakes.

Everything here is a line or two of NumPy that uses nothing of attnlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]
Wrong = Iterable[tuple[str, Any]]


def close(left: Any, right: Any, rtol: float = 1e-9) -> bool:
    """Return whether two results are one. NaN is NaN, in the same places."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    same = left.shape == right.shape
    return same and bool(np.allclose(left, right, rtol=rtol, atol=1e-11, equal_nan=True))


def hold(who: object, got: Any, right: Any, wrong: Wrong, *, otherwise: str = "") -> None:
    """Refuse a result that is not right, and say which mistake it is the result of.

    `wrong` pairs mistakes in words with what they would give; on these inputs each must give
    something else than what is right. `otherwise` is what any other result is taken for.
    """
    wrong = list(wrong)
    for mistake, result in wrong:
        assert not close(result, right), f"these inputs do not show it when {mistake}"
    if close(got, right):
        return
    found = dict.fromkeys(mistake for mistake, result in wrong if close(got, result))
    words = " or ".join(found) or otherwise or "wrong, in a way that has no name here"
    pytest.fail(f"{who}: {words}", pytrace=False)


def drawn(*shapes: tuple[int, ...], seed: int = 5) -> list[Array]:
    """Return normal numbers."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


def scores(query: Array, key: Array) -> Array:
    """Return Q Kᵀ / √d_k."""
    products: Array = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    return products


def softmax(scores: Array, axis: int = -1) -> Array:
    """Return the weights; where there are only -∞ they are 0."""
    highest = np.maximum(scores.max(axis, keepdims=True), -1e300)
    powers = np.exp(scores - highest)
    weights: Array = powers / np.maximum(powers.sum(axis, keepdims=True), 1e-300)
    return weights


def log_sum_exp(scores: Array) -> Array:
    """Return log Σ exp(s) for each row."""
    highest = scores.max(-1)
    total: Array = highest + np.log(np.exp(scores - highest[..., None]).sum(-1))
    return total


def masked(scores: Array, part: Array) -> Array:
    """Return -∞ for the scores that take no part."""
    return np.where(part, scores, -np.inf)


def up_to(n_queries: int, n_keys: int, later: int = 0, block: int | None = None) -> Array:
    """Say which keys query i sees: those up to i + `later`, of its own block of keys if given."""
    i, j = np.arange(n_queries)[:, None], np.arange(n_keys)
    seen = j <= i + later
    return seen if block is None else seen & (j // block <= i // block)


def fold(
    scores: Array, value: Array, size: int, *, keep_sum: bool = False, keep_output: bool = False
) -> Array:
    """Return the output block by block; what is kept is not rescaled when the maximum grows."""
    blocks = [slice(start, start + size) for start in range(0, scores.shape[-1], size)]
    highest = np.full((*scores.shape[:-1], 1), -np.inf)
    total, output = np.zeros_like(highest), np.zeros((*scores.shape[:-1], value.shape[-1]))
    for block in blocks:
        grown = np.maximum(highest, scores[..., block].max(-1, keepdims=True))
        powers, shrink = np.exp(scores[..., block] - grown), np.exp(highest - grown)
        total = (1 if keep_sum else shrink) * total + powers.sum(-1, keepdims=True)
        output = (1 if keep_output else shrink) * output + powers @ value[..., block, :]
        highest = grown
    return output / total


def gradients(
    query: Array, key: Array, value: Array, upstream: Array, *, delta: bool = True,
    skip_keys: Sequence[int] | slice = (), skip_queries: Sequence[int] | slice = (),
    lse_upstream: Array | float = 0.0,
) -> dict[str, Array]:  # fmt: skip
    """Return dQ, dK, dV by chapter 13's equations.

    Without `delta` rowsum(dO ∘ O) is left out. The keys that dQ skips, and the queries that dK and
    dV skip, count for nothing.
    """
    factor = query.shape[-1] ** -0.5
    weights = softmax(scores(query, key))
    d_weights = upstream @ value.swapaxes(-1, -2)
    row = (upstream * (weights @ value)).sum(-1, keepdims=True) if delta else 0.0
    d_scores = weights * (d_weights - row + np.asarray(lse_upstream)[..., None])
    of_keys, of_queries = d_scores.copy(), d_scores.copy()
    of_keys[..., skip_keys] = 0
    of_queries[..., skip_queries, :] = 0
    seen = weights.copy()
    seen[..., skip_queries, :] = 0
    return {
        "query": factor * of_keys @ key,
        "key": factor * of_queries.swapaxes(-1, -2) @ query,
        "value": seen.swapaxes(-1, -2) @ upstream,
    }


def heads_apart(array: Array, heads: Sequence[int]) -> Array:
    """Return these heads, in this order."""
    return np.stack([array[..., head, :, :] for head in heads], axis=-3)


def overflowing(function: Callable[[], Array], shape: tuple[int, ...]) -> Array:
    """Return the result; NaN where Python's own exponential refuses a number."""
    try:
        return function()
    except OverflowError:
        return np.full(shape, np.nan)
