"""The definition, held by numbers that can be had in the head; test_cases asks it the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlib.numpy_tokenwise import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

LOG_3 = math.log(3)


def test_one_and_three_quarters() -> None:
    """Four features: q·k is 2 log 3 and the score log 3, which gives the weights 1/4 and 3/4."""
    query, key = np.ones((1, 4)), np.array([[0.0] * 4, [LOG_3 / 2] * 4])
    value = np.array([[4.0, 0.0], [8.0, 100.0]])
    output, lse = scaled_dot_product_attention_with_lse(query, key, value)
    np.testing.assert_allclose(output, [[7.0, 75.0]], rtol=1e-15)
    np.testing.assert_allclose(lse, [math.log(4)], rtol=1e-15)


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


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_is_found_wherever_it_stands(place: int) -> None:
    """Python's max would lose a NaN that does not come first."""
    key = np.array([[-np.inf], [-np.inf], [-np.inf]])
    key[place] = np.nan
    output, lse = scaled_dot_product_attention_with_lse(np.ones((1, 1)), key, np.ones((3, 1)))
    assert np.isnan(output).all()
    assert np.isnan(lse).all()


@pytest.mark.parametrize(("left", "right"), [(1, None), (None, 250)])
def test_bounds_may_be_integers_of_numpy(left: int | None, right: int | None) -> None:
    zeros, values = np.zeros((200, 1)), np.arange(200.0)[:, None]
    found = [
        scaled_dot_product_attention(
            zeros, zeros, values, window=(left and kind(left), right and kind(right))
        )
        for kind in (int, np.uint8)
    ]
    np.testing.assert_array_equal(*found)
