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


def documents(starts: Any, key_starts: Any = None, n_keys: int = 5) -> Any:
    keys = TOKENS[:, :n_keys]
    return serving.over_documents(attention, TOKENS, keys, keys, starts, key_starts)


def pages(table: Any, lengths: Any) -> Any:
    return serving.over_pages(attention, QUERY, POOL, POOL, table, lengths)


def sinks(own: Any) -> Any:
    return serving.with_sinks(np.ones((2, 4, 3)), np.ones((2, 4)), own)


def cap(softcap: Any) -> Any:
    return serving.with_soft_cap(attention, TOKENS, TOKENS, TOKENS, softcap)


@pytest.mark.parametrize(
    ("call", "given", "error", "message"),
    [
        (documents, ([0, 2],), ValueError,
         r"starts must begin with 0, never fall, and end with 5.*\[0, 2\]"),
        *((documents, (starts,), ValueError, "starts must begin with 0, never fall")
          for starts in ([1, 5], [0, 4, 3, 5], [5])),
        (documents, (5,), TypeError, "starts must be a sequence of integers"),
        (documents, ([0, 2, 5], [0, 5]), ValueError, "be of as many texts; got 2 and 1"),
        (documents, ([0, 5], [0, 4]), ValueError, "key_starts must begin with 0"),
        (documents, ([0, 5], None, 4), ValueError,
         "key_starts must be given for 4 keys beside 5 queries"),
        (pages, ([[0, 1]], [3, 4]), ValueError, "got 2 sequences, 1 rows and 2 lengths"),
        (pages, ([[0, 1], [2, 3]], [3]), ValueError, "must be of as many sequences"),
        (pages, ([[0, 1], [2, 3]], [3, 5]), ValueError,
         "lengths must lie between 0 and 4, the slots; got 5"),
        *((pages, ([row, [2, 3]], [3, 4]), ValueError, "table must hold pages from 0 to 3; got")
          for row in ([0, 4], [0, -1])),
        *((sinks, (own,), ValueError, "sinks must have shape") for own in
          (np.ones(3), np.ones((2, 1)), np.ones(()))),
        *((cap, (own,), ValueError, "softcap must be a finite number above 0") for own in
          (0.0, float("nan"), float("inf"))),
        (cap, ("2",), TypeError, "softcap must be a finite number above 0; got str"),
    ],
)
def test_what_is_refused(call: Any, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(*given)


def test_entries_behind_a_length_may_be_anything() -> None:
    found = pages([[0, 9], [-1, -1]], [2, 0])
    np.testing.assert_array_equal(found[:, 0, 0], [[1, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize("xp", [np.array, torch.tensor])
def test_a_sink_alone_takes_all_and_none_takes_nothing(xp: Any) -> None:
    output, lse = xp([[[3.0]], [[5.0]], [[0.0]]]), xp([[1.0], [1.0], [-np.inf]])
    found, whole = serving.with_sinks(output, lse, xp([-np.inf, 1.0, 2.0]))
    np.testing.assert_allclose(found[:, 0, 0], [3.0, 2.5, 0.0])
    np.testing.assert_allclose(whole[:, 0], [1.0, 1 + np.log(2), 2.0])
    # With no keys and no sink the row stays empty.
    found, whole = serving.with_sinks(output, lse, xp([0.0, 0.0, -np.inf]))
    assert found[2].tolist() == [[0.0]] and float(whole[2, 0]) == -np.inf


def test_a_cap_bends_scores_before_the_mask() -> None:
    """Scores of 100 and 0 become 1 and 0; the mask adds 1 to the other one."""
    key, value = np.array([[100.0], [0.0]]), np.array([[1.0], [0.0]])
    mask = np.array([[0.0, 1.0]])
    found = serving.with_soft_cap(attention, np.ones((1, 1)), key, value, 1.0, attn_mask=mask)
    np.testing.assert_allclose(found, [[0.5]])
