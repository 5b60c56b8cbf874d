"""What `torch_ring` promises beyond the contract of all forms, in one process: see test_cases.

Real processes are in test_torch_ring_ranks. They run the same code, with another link.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from claims import hold
from implementations import Implementation
from inputs import drawn
from tolerance import call_of

from attnlib import torch_ring
from attnlib._checks import Band
from attnlib.torch_ring import (
    Span,
    layout,
    scaled_dot_product_attention,
    shard,
    unshard,
)
from attnlib.torch_ring._shards import Plan
from attnlib.torch_ring._threads import between_threads

BALANCES = ("contiguous", "zigzag")
SIZES = list(itertools.product((0, 1, 3, 5, 16, 23), (1, 2, 3, 7)))


# Who has what -------------------------------------------------------------------------------------


def tokens(spans: Sequence[Span]) -> list[int]:
    return [token for start, stop in spans for token in range(start, stop)]


@pytest.mark.parametrize("balance", BALANCES)
def test_a_layout_deals_out_each_token_once(balance: str) -> None:
    for n_tokens, n_devices in SIZES:
        spans = layout(n_tokens, n_devices, balance)
        assert len(spans) == n_devices
        assert sorted(itertools.chain.from_iterable(map(tokens, spans))) == list(range(n_tokens))
        lengths = [len(tokens(own)) for own in spans]
        assert max(lengths) - min(lengths) <= 1
        assert all(start < stop for own in spans for start, stop in own)


def test_contiguous_shards_follow_each_other_and_zigzag_goes_there_and_back() -> None:
    pieces = layout(7, 3, "contiguous")
    assert [tokens(own) for own in pieces] == [[0, 1, 2], [3, 4], [5, 6]]
    pieces = layout(12, 3)
    assert [tokens(own) for own in pieces] == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    x = torch.arange(24).view(12, 1, 2, 1)
    assert torch.equal(unshard([shard(x, own, 0) for own in pieces], pieces, 0), x)


def test_what_nobody_sees_is_not_computed() -> None:
    """Under a causal mask the first device computes nothing of the keys of the second."""
    spans = layout(8, 2, "contiguous")
    plan = Plan(spans, spans, Band(right=0))
    assert [len(list(plan.pieces(0, source))) for source in (0, 1)] == [1, 0]


# Results ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_tokens", "n_devices", "balance", "is_causal"),
    [
        (16, 4, "zigzag", True),
        (17, 4, "contiguous", True),
        (17, 2, "zigzag", False),
        (3, 4, "contiguous", True),  # the last device has no token
        (3, 2, "zigzag", False),
    ],
)
def test_any_number_of_devices_gives_the_same(
    n_tokens: int, n_devices: int, balance: str, is_causal: bool
) -> None:
    form = Implementation("torch_ring", "cpu", (("n_devices", n_devices), ("balance", balance)))
    arrays = drawn((2, 4, n_tokens, 5), (2, 2, n_tokens, 5), (2, 2, n_tokens, 3))
    hold(form, call_of(*arrays, is_causal=is_causal, enable_gqa=True))


@pytest.mark.parametrize("shape", [(1, 7), (5, 1)])
def test_the_gradient_of_a_mask_is_gathered_from_all_devices(shape: tuple[int, int]) -> None:
    form = Implementation("torch_ring", "cpu", (("n_devices", 3),))
    hold(form, call_of(*drawn((2, 5, 4), (2, 7, 4), (2, 7, 3), shape)))


def test_gradients_of_half_precision_are_added_up_in_float32() -> None:
    """Eight devices give 1 + 43/128 each: in bfloat16 the last bits would be lost on the way."""
    one = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    tokens = one.detach().expand(8, 1)
    output = scaled_dot_product_attention(tokens, tokens[:1], one, n_devices=8)
    output.backward(torch.full_like(output, 1 + 43 / 128))
    assert one.grad is not None and one.grad.item() == 10.6875


def test_an_error_in_one_thread_ends_all() -> None:
    def device(link: Any) -> Any:
        if link.rank == 2:
            raise MemoryError("no room on device 2")
        return link.pass_on([torch.ones(1)], 1)()[0]() if link.rank == 3 else link.pass_on([], 1)()

    with pytest.raises(MemoryError, match="device 2"):
        between_threads(device, 5, torch.device("cpu"))


# Errors -------------------------------------------------------------------------------------------

ONES = torch.ones(4, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layout(2.0, 2), TypeError, "n_tokens must be an integer; got 2.0"),
        (lambda: layout(-1, 2), ValueError, "n_tokens must be at least 0; got -1"),
        (lambda: layout(4, 0), ValueError, "n_devices must be at least 1; got 0"),
        (lambda: layout(4, 2, "even"), ValueError, "balance must be 'contiguous' or 'zigzag'; got"),
        (lambda: shard([1], [Span(0, 1)]), TypeError, "x must be a torch.Tensor; got list"),
        (lambda: shard(ONES, [Span(0, 5)]), ValueError, "must end within dimension -2; got 5"),
        (lambda: unshard([], []), ValueError, "one entry for each device; got 0 and 0"),
        (lambda: unshard([ONES], layout(4, 2)), ValueError, "each device; got 1 and 2"),
        (lambda: unshard([[1]], layout(1, 1)), TypeError, r"shards\[0\] must be a torch.Tensor"),
        (lambda: unshard([ONES], layout(5, 1)), ValueError, "must hold 5 tokens; got 4"),
        (
            lambda: scaled_dot_product_attention(ONES, ONES, ONES, n_devices=0),
            ValueError, "n_devices must be at least 1; got 0",
        ),
        (
            lambda: scaled_dot_product_attention(ONES, ONES, ONES, n_devices=1025),
            ValueError, "n_devices must be at most 1024; got 1025",
        ),
        (
            lambda: scaled_dot_product_attention(ONES, ONES, ONES, balance=1),
            ValueError, "balance must be 'contiguous' or 'zigzag'; got 1",
        ),
        (
            lambda: torch_ring.ring_attention(ONES, ONES, ONES, n_tokens=4),
            RuntimeError, "torch.distributed must be initialized; start the processes by torchrun",
        ),
    ],
)
def test_an_error_says_what_came(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
