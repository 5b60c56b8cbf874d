"""What `torch_ring` promises beyond the contract of all rungs, in one process: see test_cases.

Real processes are in test_torch_ring_ranks. They run the same code, with another link.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from mistakes import drawn, gradients, hold, log_sum_exp, masked, scores, softmax, up_to
from torch import Tensor

from attnlib import torch_dense, torch_ring
from attnlib._checks import Band
from attnlib.torch_ring import (
    Span,
    bytes_sent,
    layout,
    run,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
    shard,
    unshard,
    work,
)
from attnlib.torch_ring._shards import Plan
from attnlib.torch_ring._threads import between_threads

BALANCES = ("contiguous", "zigzag")
SIZES = list(itertools.product((0, 1, 2, 3, 5, 16, 64, 67), (1, 2, 3, 4, 7)))


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


@pytest.mark.parametrize("balance", BALANCES)
def test_shards_become_the_whole_again(balance: str) -> None:
    x = torch.arange(67 * 3 * 2.0).reshape(67, 3, 2)
    for n_devices, dim in itertools.product((1, 2, 4, 70), (0, -3)):
        spans = layout(67, n_devices, balance)
        shards = [shard(x, own, dim) for own in spans]
        assert [tokens(own) for own in spans] == [(s[:, 0, 0] / 6).tolist() for s in shards]
        assert torch.equal(unshard(shards, spans, dim), x)
    nothing = unshard([x[:0], x[:0]], layout(0, 2, balance), 0)
    assert nothing.shape == (0, 3, 2)


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
@pytest.mark.parametrize("balance", BALANCES)
def test_work_is_the_number_of_pairs_that_meet(balance: str, is_causal: bool) -> None:
    for n_tokens, n_devices in SIZES:
        wanted = pairs(n_tokens, n_devices, balance, is_causal)
        assert work(n_tokens, n_devices, is_causal, balance) == wanted


@pytest.mark.parametrize("n_devices", [2, 3, 4, 8])
def test_work_in_closed_form(n_devices: int) -> None:
    c = 5
    n_own, n_tokens = 2 * c, 2 * c * n_devices
    zigzag = [2 * c * c + c, *[2 * c * c] * (n_devices - 1)]
    assert work(n_tokens, n_devices) == [zigzag] * n_devices
    contiguous = [sum(steps) for steps in work(n_tokens, n_devices, balance="contiguous")]
    mean = sum(contiguous) / n_devices
    ratio = (n_own * (2 * n_devices - 1) + 1) / (n_own * n_devices + 1)  # → 2 - 1/P
    assert math.isclose(max(contiguous) / mean, ratio)


class Visits:
    """The link of one device whose shards of other devices are at hand; it counts messages."""

    def __init__(self, rank: int, shards: list[list[Tensor]]) -> None:
        self.rank, self.size, self.shards, self.step = rank, len(shards), shards, 0
        self.sent = 0

    def pass_on(self, tensors: list[Tensor], length: int) -> Callable[[], list[Tensor]]:
        self.sent += sum(x.nbytes for x in tensors)
        shards = self.shards[(self.rank - self.step - 1) % self.size]
        assert {x.shape[-2] for x in shards} == {length}

        def arrived() -> list[Tensor]:
            self.step += 1
            return shards

        return arrived


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("balance", BALANCES)
def test_devices_compute_and_send_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, balance: str, is_causal: bool
) -> None:
    operator, link = torch.ops.attnlib.torch_blockwise, None
    counts: list[list[int]] = []

    def counting(
        query: Tensor, key: Tensor, value: Tensor, mask: Any, band: Any, *rest: Any
    ) -> Any:
        rows, columns = (torch.arange(x.shape[-2]) for x in (query, key))
        seen = torch.as_tensor(Band.of(band).sees(rows[:, None], columns))
        counts[-1][link.step] += int(seen.expand(len(rows), len(columns)).sum())
        return operator(query, key, value, mask, band, *rest)

    monkeypatch.setattr(torch.ops.attnlib, "torch_blockwise", counting)
    for n_tokens, n_devices in [(12, 3), (7, 2), (13, 4), (3, 4)]:
        spans = layout(n_tokens, n_devices, balance)
        query, key, value = (torch.ones(2, n_tokens, n) for n in (4, 4, 3))
        shards = [[shard(x, own) for x in (key, value)] for own in spans]
        plan = Plan(spans, spans, Band(right=0 if is_causal else None))
        counts.clear()
        for rank, own in enumerate(spans):
            link = Visits(rank, shards)
            counts.append([0] * n_devices)
            torch_ring._attend(link, plan, shard(query, own), *shards[rank], None)
            assert link.sent == bytes_sent(spans, rank, 2 * (4 + 3) * 4)[0]
        assert counts == work(n_tokens, n_devices, is_causal, balance)


def test_bytes_in_closed_form() -> None:
    n_tokens, numbers = 48, 3 * 2 * (5 + 7)  # B · H_kv · (d_k + d_v)
    for n_devices in (1, 2, 3, 4):
        for rank in range(n_devices):
            found = bytes_sent(layout(n_tokens, n_devices), rank, 4 * numbers)
            of_shard = n_tokens // n_devices * numbers * 4
            wanted = (n_devices - 1) * of_shard, (2 * n_devices - 1) * of_shard
            assert found == (wanted if n_devices > 1 else (0, 0))


# Results ------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


def results(attend: Any, n_tokens: int, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """Return output, log-sum-exp and gradients of grouped heads."""
    shapes = (2, 4, n_tokens, 5), (2, 2, n_tokens, 5), (2, 2, n_tokens, 3)
    drawn = [normal(*x, dtype=torch.bfloat16, seed=i) for i, x in enumerate(shapes)]
    leaves = [x.to(dtype).requires_grad_() for x in drawn]
    output, lse = attend(*leaves, enable_gqa=True, **options)
    above = normal(*output.shape, seed=7).to(output), normal(*lse.shape, seed=8).to(lse)
    return [output, lse, *torch.autograd.grad((output, lse), leaves, above)]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("n_tokens", [64, 67, 5, 3, 2])
def test_any_number_of_devices_gives_the_same(n_tokens: int, balance: str, is_causal: bool) -> None:
    dense = torch_dense.scaled_dot_product_attention_with_lse
    wanted = results(dense, n_tokens, torch.float64, is_causal=is_causal)
    for n_devices in (2, 4):
        options = {"n_devices": n_devices, "balance": balance, "is_causal": is_causal}
        ring = scaled_dot_product_attention_with_lse
        found = results(ring, n_tokens, torch.float64, **options)
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


def test_gradients_of_half_precision_are_added_up_in_float32() -> None:
    """The sums of four devices are as close to the truth as those of one."""
    dense = torch_dense.scaled_dot_product_attention_with_lse
    ring = scaled_dot_product_attention_with_lse
    truth = results(dense, 64, torch.float64)
    errors = []
    for n_devices in (1, 4):
        found = results(ring, 64, torch.bfloat16, n_devices=n_devices)
        assert {x.dtype for x in found} == {torch.bfloat16, torch.float32}
        pairs = zip(found, truth, strict=True)
        errors.append([float((x - y).detach().abs().mean()) for x, y in pairs])
    assert all(four <= 1.1 * one for one, four in zip(*errors, strict=True)), errors


def test_two_runs_give_the_same_bits() -> None:
    ring = scaled_dot_product_attention_with_lse
    first, second = (results(ring, 67, torch.float32, n_devices=4) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("rows", [1, 5])
def test_the_gradient_of_a_mask_is_gathered_from_all_devices(rows: int, columns: int) -> None:
    query, key, value = normal(2, 5, 4), normal(2, 7, 4, seed=2), normal(2, 7, 3, seed=3)
    found = []
    for attend, options in (
        (scaled_dot_product_attention, {"n_devices": 3}),
        (torch_dense.scaled_dot_product_attention, {}),
    ):
        mask = normal(rows, columns, seed=4).requires_grad_()
        output = attend(query, key, value, mask, **options)
        found += torch.autograd.grad(output, mask, normal(2, 5, 3, seed=5))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mask", [None, "floating"])
def test_the_operators_keep_the_rules_of_torch(mask: str | None) -> None:
    tensors = normal(2, 4, 5, 4), normal(2, 2, 7, 4), normal(2, 2, 7, 6)
    given = normal(5, 7) if mask else None
    inputs = (*tensors, given, Band(right=None if mask else 0).numbers(), None, 2, [2, 1])
    operator = torch_ring._operator
    torch.library.opcheck(operator.forward, inputs)
    output, lse, *of_rows = operator.forward(*inputs)
    rest = (output, *of_rows, output, lse, [True, False, True, bool(mask)], *inputs[4:])
    torch.library.opcheck(operator.backward, (*inputs[:4], *rest))


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
        (lambda: work(4, 2, is_causal=1), TypeError, "is_causal must be True or False; got 1"),
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
            RuntimeError, "torch.distributed must be initialized; call it in",
        ),
        (lambda: run("max", 2), TypeError, "function must be callable; got 'max'"),
        (lambda: run(lambda: 1, 2), TypeError, "function must stand in a module that can be"),
        (lambda: run(max, 0), ValueError, "size must be at least 1; got 0"),
        (lambda: run(max, 2, limit=0), ValueError, "limit must be positive and finite; got 0"),
        (lambda: run(max, 2, limit="1"), TypeError, "limit must be a real number of seconds; got"),
        (lambda: run(max, 2, limit=math.nan), ValueError, "limit must be positive and finite; got"),
    ],
)  # fmt: skip
def test_an_error_says_what_came(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# Mistakes that people make, by name: see test_mistakes --------------------------------------------


def in_a_ring(*arrays: Any, upstream: Any = None, **options: Any) -> Any:
    """Return the output of arrays, or their gradients where there is an upstream."""
    leaves = [torch.from_numpy(x).requires_grad_() for x in arrays]
    output = scaled_dot_product_attention(*leaves, **options)
    if upstream is None:
        return output.detach().numpy()
    return [g.numpy() for g in torch.autograd.grad(output, leaves, torch.from_numpy(upstream))]


def within(spans: Sequence[Sequence[Span]]) -> Any:
    """Return for each token its place in its span."""
    places = {
        token: token - span.start for own in spans for span in own for token in tokens([span])
    }
    return np.array([places[token] for token in sorted(places)])


@pytest.mark.parametrize("balance", BALANCES)
def test_a_query_sees_what_the_whole_sequence_lets_it_see(balance: str) -> None:
    n, n_devices = 12, 3
    query, key, value = drawn((n, 3), (n, 3), (n, 2))
    s, spans = scores(query, key), layout(n, n_devices, balance)
    place = within(spans)
    moved = np.zeros((n, n), bool)
    for rank, step in itertools.product(range(n_devices), repeat=2):
        here, taken_for = (tokens(spans[(rank + i * step) % n_devices]) for i in (-1, 1))
        for i, (j, other) in itertools.product(
            tokens(spans[rank]), zip(here, taken_for, strict=True)
        ):
            moved[i, j] = other <= i
    wrong = [
        ("the mask is that of the spans, not of the sequence", place <= place[:, None]),
        ("keys are taken for those of another device", moved),
        ("the future is seen", np.ones((n, n), bool)),
    ]
    got = in_a_ring(query, key, value, is_causal=True, n_devices=n_devices, balance=balance)
    right = softmax(masked(s, up_to(n, n))) @ value
    hold("torch_ring", got, right, [(w, softmax(masked(s, part)) @ value) for w, part in wrong])


def test_without_a_mask_zigzag_is_only_another_order() -> None:
    query, key, value = drawn((12, 3), (12, 3), (12, 2))
    s = scores(query, key)
    wrong = [("zigzag is taken for a causal mask", softmax(masked(s, up_to(12, 12))) @ value)]
    hold("torch_ring", in_a_ring(query, key, value, n_devices=3), softmax(s) @ value, wrong)


@pytest.mark.parametrize("balance", BALANCES)
def test_uneven_shards_have_all_tokens(balance: str) -> None:
    n, n_devices = 11, 2
    query, key, value = drawn((n, 3), (n, 3), (n, 2))
    pieces = n_devices if balance == "contiguous" else 2 * n_devices
    few = slice(0, n // pieces * pieces)
    less = softmax(scores(query[few], key[few])) @ value[few]
    got = in_a_ring(query, key, value, n_devices=n_devices, balance=balance)
    right = softmax(scores(query, key)) @ value
    hold("torch_ring", got, right, [("the last tokens belong to nobody", less)])


def folded(parts: list[Any], values: list[Any], log: Any = np.log, shifted: bool = True) -> Any:
    """Return the output of rows whose parts are merged as the ring does it, or with a mistake."""
    o, m, log_ell = 0.0, np.full((len(parts[0]), 1), -1e300), np.full((len(parts[0]), 1), -np.inf)
    for s, v in zip(parts, values, strict=True):
        m_part = s.max(-1, keepdims=True)
        M = np.maximum(m, m_part)
        sums = (
            np.exp(log_ell + m - M),
            np.exp(log(np.exp(s - m_part).sum(-1, keepdims=True)) + shifted * (m_part - M)),
        )
        o = (sums[0] * o + sums[1] * (softmax(s) @ v)) / (sums[0] + sums[1])
        m, log_ell = M, np.log(sums[0] + sums[1])
    return o


def test_parts_are_merged_by_the_weights_of_their_rows() -> None:
    n = 6
    query, key, value = drawn((n, 3), (n, 3), (n, 2))
    s, halves = 3 * scores(query, key), (slice(0, 3), slice(3, 6))

    def merged(**mistake: Any) -> Any:
        rows = []
        for rank in (0, 1):
            order = [halves[rank], halves[1 - rank]]
            parts = [s[halves[rank], columns] for columns in order]
            rows.append(folded(parts, [value[columns] for columns in order], **mistake))
        return np.concatenate(rows)

    wrong = [
        ("row sums are merged in base 2", merged(log=np.log2)),
        ("a part is merged without its maximum", merged(shifted=False)),
    ]
    got = in_a_ring(query, key, value, scale=3 * 3**-0.5, balance="contiguous")
    assert np.allclose(merged(), softmax(s) @ value)
    hold("torch_ring", got, softmax(s) @ value, wrong)


def contributions(query: Any, key: Any, value: Any, upstream: Any, spans: Any, stale: bool) -> Any:
    """Return what a device gives to dQ of its queries, and to dK and dV of a device's keys."""
    n, factor = len(spans), query.shape[-1] ** -0.5
    lse = log_sum_exp(scores(query, key))[:, None]
    D = (upstream * (softmax(scores(query, key)) @ value)).sum(-1, keepdims=True)
    found = {}
    for rank, source in itertools.product(range(n), repeat=2):
        i, j = tokens(spans[rank]), tokens(spans[rank if stale else source])
        weights = np.exp(scores(query[i], key[j]) - lse[i])
        d_scores = weights * (upstream[i] @ value[j].T - D[i])
        found[rank, source] = (
            factor * d_scores @ key[j], factor * d_scores.T @ query[i], weights.T @ upstream[i],
        )  # fmt: skip
    return found


def test_the_backward_goes_round_with_the_right_keys_and_comes_home() -> None:
    n, n_devices = 12, 3
    query, key, value, upstream = drawn((n, 3), (n, 3), (n, 2), (n, 2))
    spans, ranks = layout(n, n_devices, "contiguous"), range(n_devices)
    arrays = query, key, value, upstream
    fresh, stale = (contributions(*arrays, spans, stale=x) for x in (False, True))

    def d_key(found: Any, of: Callable[[int], int], ranks_of: Callable[[int], Any]) -> Any:
        home = [sum(found[rank, of(own)][1] for rank in ranks_of(own)) for own in ranks]
        return np.concatenate(home)

    right = gradients(*arrays)
    assert np.allclose(d_key(fresh, lambda own: own, lambda own: ranks), right["key"])
    got = in_a_ring(query, key, value, upstream=upstream, n_devices=n_devices, balance="contiguous")
    last = [
        ("each device uses its own keys in every step", d_key(stale, lambda r: r, lambda r: ranks)),
        (
            "what the devices before added up is lost",
            d_key(fresh, lambda own: own, lambda own: [(own - 1) % n_devices]),
        ),
        (
            "the gradients of keys do not come home",
            d_key(fresh, lambda own: (own + 1) % n_devices, lambda own: ranks),
        ),
    ]
    hold("torch_ring", got[1], right["key"], last)
    d_query = np.concatenate([sum(stale[rank, source][0] for source in ranks) for rank in ranks])
    hold("torch_ring", got[0], right["query"], [(last[0][0], d_query)])
    hold("torch_ring", got[2], right["value"], [])
