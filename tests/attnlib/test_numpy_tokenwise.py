"""The definition, held by numbers that can be had in the head."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnlib.numpy_tokenwise import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

LOG_3 = math.log(3)


def test_one_and_three_quarters() -> None:
    """Scores 0 and log 3 give the weights 1/4 and 3/4."""
    query, key = np.array([[1.0]]), np.array([[0.0], [LOG_3]])
    value = np.array([[4.0, 0.0], [8.0, 100.0]])
    output, lse = scaled_dot_product_attention_with_lse(query, key, value)
    np.testing.assert_allclose(output, [[7.0, 75.0]], rtol=1e-15)
    np.testing.assert_allclose(lse, [math.log(4)], rtol=1e-15)


def test_the_default_scale_is_one_over_the_root_of_the_features() -> None:
    """E = 4: q·k is 2 log 3 and the score log 3."""
    query, key = np.ones((1, 4)), np.array([[0.0] * 4, [LOG_3 / 2] * 4])
    value = np.array([[4.0], [8.0]])
    output = scaled_dot_product_attention(query, key, value)
    np.testing.assert_allclose(output, [[7.0]], rtol=1e-15)
    unscaled = scaled_dot_product_attention(query, key, value, scale=1.0)
    np.testing.assert_allclose(unscaled, [[7.6]], rtol=1e-15)  # weights 1/10 and 9/10


def test_what_each_query_sees() -> None:
    """All scores are 0: an output is the mean of the values that are seen."""
    zeros, value = np.zeros((3, 4)), np.array([[2.0], [4.0], [9.0]])
    causal = scaled_dot_product_attention(zeros, zeros, value, is_causal=True)
    np.testing.assert_allclose(causal, [[2.0], [3.0], [5.0]], rtol=1e-15)
    mask = np.array([[True, False, False], [False, True, True], [False, False, False]])
    output = scaled_dot_product_attention(zeros, zeros, value, mask)
    np.testing.assert_array_equal(output, [[2.0], [6.5], [0.0]])
    added = np.array([0.0, LOG_3, -np.inf])  # after scaling
    output = scaled_dot_product_attention(zeros, zeros, value, added)
    np.testing.assert_allclose(output, [[3.5]] * 3, rtol=1e-15)


def test_four_heads_share_two_key_heads() -> None:
    """Heads 0 and 1 use key head 0, heads 2 and 3 use key head 1."""
    value = np.array([[[1.0]], [[2.0]]])
    output = scaled_dot_product_attention(
        np.zeros((4, 1, 1)), np.zeros((2, 1, 1)), value, enable_gqa=True
    )
    assert output.ravel().tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_is_found_wherever_it_stands(place: int) -> None:
    """Python's max would lose a NaN that does not come first."""
    key = np.array([[-np.inf], [-np.inf], [-np.inf]])
    key[place] = np.nan
    output, lse = scaled_dot_product_attention_with_lse(np.ones((1, 1)), key, np.ones((3, 1)))
    assert np.isnan(output).all()
    assert np.isnan(lse).all()


def test_the_log_sum_exp_is_float64_for_every_dtype() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        zeros = np.zeros((1, 1), dtype=dtype)
        output, lse = scaled_dot_product_attention_with_lse(zeros, zeros, zeros)
        assert output.dtype == dtype
        assert lse.dtype == np.float64


@pytest.mark.parametrize("window", [(1, None), (None, 250), (3, None)])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_bounds_may_be_integers_of_numpy(window: tuple[int | None, int | None], kind: Any) -> None:
    same = tuple(None if n is None else kind(min(n, np.iinfo(kind).max)) for n in window)
    plain = tuple(None if n is None else int(n) for n in same)
    zeros, values = np.zeros((200, 1)), np.arange(200.0)[:, None]
    found = scaled_dot_product_attention(zeros, zeros, values, window=same)
    expected = scaled_dot_product_attention(zeros, zeros, values, window=plain)
    np.testing.assert_array_equal(found, expected)
