"""The scores of a ring, against those counted one by one, and its bytes by hand. The bytes that are
sent are counted in test_torch_ring_ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from attnbook.ring_costs import bytes_sent, work
from attnlib.torch_ring import Span, layout

SIZES = list(itertools.product((0, 1, 3, 5, 16, 23), (1, 2, 3, 7)))


def tokens(spans: Sequence[Span]) -> list[int]:
    return [token for start, stop in spans for token in range(start, stop)]


def pairs(n_tokens: int, n_devices: int, balance: str, is_causal: bool) -> list[list[int]]:
    """Count one by one: the queries and keys that meet on a device in a step."""
    spans = [tokens(own) for own in layout(n_tokens, n_devices, balance)]
    return [
        [
            sum(j <= i or not is_causal for i in spans[rank] for j in spans[rank - step])
            for step in range(n_devices)
        ]
        for rank in range(n_devices)
    ]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("balance", ["contiguous", "zigzag"])
def test_work_is_the_number_of_pairs_that_meet(balance: str, is_causal: bool) -> None:
    for n_tokens, n_devices in SIZES:
        wanted = pairs(n_tokens, n_devices, balance, is_causal)
        assert work(n_tokens, n_devices, is_causal, balance) == wanted


def test_every_device_sends_its_keys_round_and_their_gradients_home() -> None:
    """7 tokens are 3, 2 and 2; backward, the gradients go all the way."""
    assert [bytes_sent(layout(7, 3), rank, 10) for rank in range(3)] == [
        (50, 50 + 70), (50, 50 + 70), (40, 40 + 70),
    ]  # fmt: skip
    assert bytes_sent(layout(7, 1), 0, 10) == (0, 0)
