"""How a suite decides: the largest error in units of what it allows, so that above 1 is noticed.

A rule takes the call, the output that is tried, and the suite's reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attncheck._types import Array
from attncheck.suites.attentions import Question, attention, by_key_head, rounded, seen

Rule = Callable[[Question, Array, Array], float]


def allclose(atol: float, rtol: float, share: float = 0.0) -> Rule:
    """Return the rule |got - right| ≤ atol + rtol |right|, for all entries but a share of them."""

    def rule(_: Question, got: Array, right: Array) -> float:
        errors = np.abs(got - right) / (atol + rtol * np.abs(right))
        return float((errors > 1).mean() / share if share else errors.max())

    return rule


def twice_the_peer(asked: Question, got: Array, right: Array) -> float:
    """Return the rule of FlashAttention: twice the error of plain attention in the same dtype."""
    exact, largest = _peer(asked)
    return float(np.abs(got - exact).max() / (2 * largest))


@lru_cache(maxsize=16)  # a suite puts all attentions to the same calls
def _peer(asked: Question) -> tuple[Array, float]:
    """Return the right output in float32, and the largest error of plain attention."""
    exact = attention(replace(asked, dtype="float32"))
    scores = rounded(asked.products, asked.dtype)
    scores = rounded(scores * np.float32(asked.factor), asked.dtype)
    scores[..., ~seen(asked)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = rounded(weights / weights.sum(axis=-1, keepdims=True), asked.dtype)
    peer = rounded(by_key_head(weights, asked.value), asked.dtype)
    return exact, float(np.abs(peer - exact).max())


def mean_square(bound: float) -> Rule:
    """Return the rule Σ (got - right)² ≤ bound · Σ got²."""

    def rule(_: Question, got: Array, right: Array) -> float:
        size = float((got**2).sum())
        return float(((got - right) ** 2).sum()) / (bound * size) if size else np.inf

    return rule


def digits(n: int) -> Rule:
    """Return the rule that both are equal when they are rounded to n digits."""

    def rule(_: Question, got: Array, right: Array) -> float:
        return 2 * float(np.abs(np.round(got * 10**n) - np.round(right * 10**n)).max())

    return rule
