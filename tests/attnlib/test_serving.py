"""`attnlib.serving`: what it makes of every form is asked by test_cases; here are its own words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnlib import numpy_dense, serving, torch_dense

attention = numpy_dense.scaled_dot_product_attention
with_lse = torch_dense.scaled_dot_product_attention_with_lse
TOKENS = np.ones((2, 5, 3))
POOL = np.ones((4, 2, 1, 3))
QUERY = np.ones((2, 1, 1, 3))


def test_texts_give_outputs_and_log_sum_exps() -> None:
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.normal(size=(2, n, 3))) for n in (5, 7))
    output, lse = serving.over_documents(with_lse, x, y, y, [0, 2, 5], torch.tensor([0, 4, 7]))
    for rows, keys in ((slice(0, 2), slice(0, 4)), (slice(2, 5), slice(4, 7))):
        own, own_lse = with_lse(x[:, rows], y[:, keys], y[:, keys])
        assert torch.equal(output[:, rows], own) and torch.equal(lse[:, rows], own_lse)


@pytest.mark.parametrize(
    ("starts", "key_starts", "message"),
    [
        ([0, 2], None, r"starts must begin with 0, never fall, and end with 5.*\[0, 2\]"),
        ([1, 5], None, "starts must begin with 0"),
        ([0, 4, 3, 5], None, "starts must begin with 0, never fall"),
        ([5], None, "starts must begin with 0"),
        ([0, 2, 5], [0, 5], "starts and key_starts must be of as many texts; got 2 and 1"),
        ([0, 5], [0, 4], "key_starts must begin with 0"),
    ],
)
def test_places_of_texts_that_do_not_fit(starts: Any, key_starts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serving.over_documents(attention, TOKENS, TOKENS, TOKENS, starts, key_starts)


def test_other_keys_need_places_of_their_own() -> None:
    with pytest.raises(ValueError, match="key_starts must be given for 4 keys beside 5 queries"):
        serving.over_documents(attention, TOKENS, TOKENS[:, :4], TOKENS[:, :4], [0, 5])
    with pytest.raises(TypeError, match="starts must be a sequence of integers"):
        serving.over_documents(attention, TOKENS, TOKENS, TOKENS, 5)


@pytest.mark.parametrize(
    ("table", "lengths", "message"),
    [
        ([[0, 1]], [3, 4], "must be of as many sequences; got 2 sequences, 1 rows and 2 lengths"),
        ([[0, 1], [2, 3]], [3], "must be of as many sequences"),
        ([[0, 1], [2, 3]], [3, 5], "lengths must lie between 0 and 4, the slots; got 5"),
        ([[0, 4], [2, 3]], [3, 4], r"table must hold pages from 0 to 3; got \[0, 4\]"),
        ([[0, -1], [2, 3]], [3, 4], r"table must hold pages from 0 to 3; got \[0, -1\]"),
    ],
)
def test_pages_that_do_not_fit(table: Any, lengths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serving.over_pages(attention, QUERY, POOL, POOL, table, lengths)


def test_entries_behind_a_length_may_be_anything() -> None:
    found = serving.over_pages(attention, QUERY, POOL, POOL, [[0, 9], [-1, -1]], [2, 0])
    np.testing.assert_array_equal(found[:, 0, 0], [[1, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize("xp", [np.array, torch.tensor])
def test_a_sink_alone_takes_all_and_none_takes_nothing(xp: Any) -> None:
    output, lse = xp([[[3.0]], [[5.0]], [[0.0]]]), xp([[1.0], [1.0], [-np.inf]])
    found, whole = serving.with_sinks(output, lse, xp([-np.inf, np.log(np.e), 2.0]))
    assert np.round(np.asarray(found), 12).tolist() == [[[3.0]], [[2.5]], [[0.0]]]
    assert [round(float(x), 6) for x in whole[:, 0]] == [1.0, round(1 + np.log(2), 6), 2.0]
    # Added once or not at all: with no keys and no sink the row stays empty.
    found, whole = serving.with_sinks(output, lse, xp([0.0, 0.0, -np.inf]))
    assert found[2].tolist() == [[0.0]] and float(whole[2, 0]) == -np.inf


def test_sinks_are_one_for_each_head() -> None:
    output, lse = np.ones((2, 4, 3)), np.ones((2, 4))
    for sinks in (np.ones(3), np.ones((2, 1)), np.ones(())):
        with pytest.raises(ValueError, match="sinks must have shape"):
            serving.with_sinks(output, lse, sinks)


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan"), float("inf")])
def test_a_cap_is_a_finite_number_above_0(cap: float) -> None:
    with pytest.raises(ValueError, match="softcap must be a finite number above 0"):
        serving.with_soft_cap(attention, TOKENS, TOKENS, TOKENS, cap)


def test_a_cap_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="softcap must be a finite number above 0; got str"):
        serving.with_soft_cap(attention, TOKENS, TOKENS, TOKENS, "2")  # type: ignore[arg-type]


@pytest.mark.parametrize("on_tensors", [False, True])
def test_a_cap_bends_scores_before_the_mask(on_tensors: bool) -> None:
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(0, 2, (3, 5, 4)) for _ in range(3))
    bias = np.where(rng.random((5, 5)) < 0.7, rng.normal(size=(5, 5)), -np.inf)
    bias[:, 0] = 0.0
    capped = 2 * np.tanh(query @ key.mT / 2 / 2)  # 1/√4, and a cap of 2
    weights = np.exp(capped + bias)
    expected = weights / weights.sum(-1, keepdims=True) @ value
    given: list[Any] = [query, key, value, bias]
    form: Any = attention
    if on_tensors:
        given, form = [torch.tensor(x) for x in given], torch_dense.scaled_dot_product_attention
    found = serving.with_soft_cap(form, *given[:3], 2.0, attn_mask=given[3])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
