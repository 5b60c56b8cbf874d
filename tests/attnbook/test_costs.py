"""The counter counts what a formula says, and the clock takes the shortest call."""

from __future__ import annotations

import pytest
import torch

from attnbook import costs
from attnlib.torch_dense import scaled_dot_product_attention


def test_operations_of_attention_are_those_of_its_two_products() -> None:
    query, key, value = (torch.empty(3, n, d, device="meta") for n, d in ((5, 7), (11, 7), (11, 2)))
    found = costs.operations(scaled_dot_product_attention, query, key, value, is_causal=True)
    assert found == 2 * 3 * 5 * 11 * (7 + 2)


@pytest.mark.parametrize(("threads", "clock"), [(1, "thread_time"), (2, "perf_counter")])
def test_seconds_are_those_of_the_shortest_call_after_the_first(
    monkeypatch: pytest.MonkeyPatch, threads: int, clock: str
) -> None:
    now, called = [0.0], []

    def work(*args: object) -> None:
        called.append((args, torch.get_num_threads()))
        now[0] += {1: 0.5, 2: 7.0, 3: 3.0, 4: 5.0}[len(called)]

    monkeypatch.setattr(costs, clock, lambda: now[0])
    before = torch.get_num_threads()
    assert costs.seconds(work, "a", times=3, threads=threads) == 3.0
    assert called == [(("a",), threads)] * 4
    assert torch.get_num_threads() == before


def test_the_number_of_threads_is_set_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        costs.seconds(lambda: 1 / 0, threads=before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("wrong", [{"times": 0}, {"threads": 0}])
def test_seconds_of_no_call_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1; got"):
        costs.seconds(print, **wrong)
