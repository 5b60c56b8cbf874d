"""The experiments of chapters 03, 04, 11 and 21: formulas hold on samples."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from attnbook import experiments


def test_peak_is_what_is_held_at_one_moment() -> None:
    def two_then_one(n: int) -> np.ndarray:
        first, second = np.ones(n), np.ones(n)
        del first
        return second + 0

    # The tests' own threads hold a few kilobytes now and then, so the arrays have megabytes.
    peaks = [experiments.peak_bytes(two_then_one, n) for n in (100_000, 1_100_000)]
    assert peaks[1] - peaks[0] == pytest.approx(2 * 8 * 1_000_000, rel=0.01)


def test_loglog_slope_is_the_power_of_numbers_of_any_kind() -> None:
    x = np.array([2.0, 3.0, 5.0, 70.0])
    assert np.isclose(experiments.loglog_slope(x, 4 * x**-1.7), -1.7)
    ys = [Fraction(1, 2), Fraction(1), Fraction(2)]
    assert experiments.loglog_slope([1, 2, 4], ys) == pytest.approx(1)
    assert experiments.loglog_slope(ys, [4, 2, 1]) == pytest.approx(-1)


def test_entropy_share_runs_from_one_key_to_all() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert np.allclose(experiments.entropy_share(rows), [0.0, 1.0])
    assert not np.signbit(experiments.entropy_share(rows[0]))


@pytest.mark.parametrize("n_draws", [2, 30])
def test_a_rule_s_statistics_by_loops(n_draws: int) -> None:
    """One draw after the other, in the words of the docstring."""
    d_k, n_keys = 3, 2
    rng = np.random.default_rng([0, d_k])
    queries = rng.standard_normal((n_draws, d_k))
    keys = rng.standard_normal((n_draws, n_keys, d_k))
    upstream = rng.standard_normal((n_draws, n_keys))
    found = experiments.scaling_rules(d_k, n_keys=n_keys, n_draws=n_draws)
    n_tenth = max(1, n_draws // 10)
    for name, divisor in (("1", 1.0), ("sqrt(d_k)", 3**0.5), ("d_k", 3.0)):
        spread, entropies, largest, norms = [], [], [], []
        for q, ks, g in zip(queries, keys, upstream, strict=True):
            scores = [k @ q / divisor for k in ks]
            powers = [math.exp(score) for score in scores]
            a = [power / sum(powers) for power in powers]
            mean = sum(x * y for x, y in zip(a, g, strict=True))
            parts = [x * (y - mean) * k for x, y, k in zip(a, g, ks, strict=True)]
            norms.append(math.hypot(*sum(parts)) / divisor)
            entropies.append(-sum(x * math.log(x) for x in a) / math.log(n_keys))
            largest.append(max(a))
            spread += scores
        rule = found[name]
        assert rule.score_std == pytest.approx(np.std(spread))
        assert rule.entropy == pytest.approx(np.mean(entropies))
        assert rule.largest == pytest.approx(np.mean(largest))
        assert rule.gradient_mean == pytest.approx(np.mean(norms))
        assert rule.gradient_median == pytest.approx(np.median(norms))
        assert rule.gradient_tenth == pytest.approx(sum(sorted(norms)[-n_tenth:]) / sum(norms))
