"""The steps of the matrix form, one by one, and together."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from attnbook import examples
from attnlib import masks, numpy_tokenwise
from attnlib.numpy_dense import (
    attention_scores,
    attention_weights,
    project,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
    self_attention,
    softmax,
)

Array = NDArray[Any]
T, D_MODEL, D_K, D_V = 5, 7, 3, 11
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.normal(0, 1.5, shape) for shape in shapes]


def test_project_maps_each_token_by_itself() -> None:
    X, W = drawn((2, T, D_MODEL), (D_MODEL, D_K))
    projected = project(X, W)
    assert projected.shape == (2, T, D_K)
    for b, t in np.ndindex(2, T):
        np.testing.assert_allclose(projected[b, t], W.T @ X[b, t], rtol=1e-13)


@pytest.mark.parametrize("scale", [None, 1.0, -0.3])
def test_row_asks_and_column_answers(scale: float | None) -> None:
    query, key = drawn((2, T, D_K), (2, 7, D_K))
    scores = attention_scores(query, key, scale=scale)
    factor = 1 / math.sqrt(3) if scale is None else scale
    for b, i, j in np.ndindex(2, T, 7):
        expected = factor * sum(query[b, i, c] * key[b, j, c] for c in range(D_K))
        assert scores[b, i, j] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_softmax_runs_along_one_axis(axis: int) -> None:
    (scores,) = drawn((3, 5, 7))
    weights = softmax(scores, axis)
    np.testing.assert_allclose(weights.sum(axis=axis), 1, rtol=1e-14)
    exponentials = np.exp(scores)
    by_hand = exponentials / exponentials.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(weights, by_hand, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_softmax_survives_large_scores(shift: float, dtype: Any) -> None:
    weights = softmax(np.array([shift, shift], dtype=dtype))
    assert weights.dtype == dtype
    assert weights.tolist() == [0.5, 0.5]


def test_softmax_of_nothing() -> None:
    rows = np.array([[-np.inf, -np.inf], [-np.inf, 3.0], [np.nan, 1.0], [np.nan, -np.inf]])
    with np.errstate(all="raise"):
        weights = softmax(rows)
    np.testing.assert_array_equal(weights[:2], [[0, 0], [0, 1]])
    assert np.isnan(weights[2:]).all(axis=-1).all()
    assert softmax(np.zeros((3, 0))).shape == (3, 0)


def test_softmax_names_an_axis_that_is_not_there() -> None:
    with pytest.raises(
        ValueError, match=r"axis must lie between -2 and 1 for shape \(2, 3\); got 2"
    ):
        softmax(np.zeros((2, 3)), axis=2)


def test_rows_of_weights_add_up_to_one() -> None:
    query, key = drawn((2, T, D_K), (2, 7, D_K))
    for options in ({}, {"is_causal": True}, {"attn_mask": masks.window(T, 7, 1, 2)}):
        weights = attention_weights(query, key, **options)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-14)
        assert np.all(weights >= 0)


def test_removed_keys_have_the_weight_zero() -> None:
    query, key = drawn((T, D_K), (7, D_K))
    mask = np.random.default_rng(3).random((T, 7)) < 0.5
    mask[2] = False
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        weights = attention_weights(query, key, given)
        assert np.all((weights > 0) == mask)
        assert np.all(weights[2] == 0)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_steps_compose(scale: float | None) -> None:
    query, key, value = drawn((2, T, D_K), (2, 7, D_K), (2, 7, D_V))
    weights = softmax(attention_scores(query, key, scale=scale))
    np.testing.assert_array_equal(weights, attention_weights(query, key, scale=scale))
    output = scaled_dot_product_attention(query, key, value, scale=scale)
    np.testing.assert_array_equal(weights @ value, output)


@pytest.mark.parametrize("is_causal", [False, True])
def test_self_attention_is_the_definition_on_projections(is_causal: bool) -> None:
    X, W_Q, W_K, W_V = drawn((2, T, D_MODEL), (D_MODEL, D_K), (D_MODEL, D_K), (D_MODEL, D_V))
    output = self_attention(X, W_Q, W_K, W_V, is_causal=is_causal)
    expected = numpy_tokenwise.scaled_dot_product_attention(
        X @ W_Q, X @ W_K, X @ W_V, is_causal=is_causal
    )
    assert output.shape == (2, T, D_V)
    np.testing.assert_allclose(output, expected, rtol=1e-11)


def test_self_attention_takes_a_mask_and_a_scale() -> None:
    _, X, W_Q, W_K, W_V = examples.running()
    mask = masks.causal(3)
    masked = self_attention(X, W_Q, W_K, W_V, mask, scale=2.0)
    expected = numpy_tokenwise.scaled_dot_product_attention(
        X @ W_Q, X @ W_K, X @ W_V, mask, scale=2.0
    )
    np.testing.assert_allclose(masked, expected, rtol=1e-13)
    np.testing.assert_array_equal(masked, self_attention(X, W_Q, W_K, W_V, None, True, scale=2.0))


def test_the_scale_is_by_d_k_and_not_by_d_model() -> None:
    X, W_Q, W_K, W_V = drawn((T, D_MODEL), (D_MODEL, D_K), (D_MODEL, D_K), (D_MODEL, D_V))
    output = self_attention(X, W_Q, W_K, W_V)
    for wrong in (1.0, D_K, D_MODEL, math.sqrt(D_MODEL)):
        other = self_attention(X, W_Q, W_K, W_V, scale=1 / wrong)
        assert np.abs(output - other).max() > 0.1
    same = self_attention(X, W_Q, W_K, W_V, scale=1 / math.sqrt(D_K))
    np.testing.assert_allclose(output, same, rtol=1e-13)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precision_is_rounded_once(dtype: np.dtype[Any]) -> None:
    """Each step gives its inputs' dtype; attention in one piece does not round in between."""
    query, key, value = (a.astype(dtype) for a in drawn((T, D_K), (7, D_K), (7, D_V)))
    for step in (attention_scores(query, key), attention_weights(query, key)):
        assert step.dtype == dtype
    assert project(query, key.T.copy()).dtype == dtype
    wide = [a.astype(np.float32) for a in (query, key, value)]
    output, lse = scaled_dot_product_attention_with_lse(query, key, value)
    exact, exact_lse = scaled_dot_product_attention_with_lse(*wide)
    assert output.tobytes() == exact.astype(dtype).tobytes()
    assert lse.dtype == np.float32
    assert lse.tobytes() == exact_lse.tobytes()


def test_the_log_sum_exp_has_the_dtype_of_the_query() -> None:
    for dtype in (np.float32, np.float64):
        query, key, value = (a.astype(dtype) for a in drawn((T, D_K), (7, D_K), (7, D_V)))
        assert scaled_dot_product_attention_with_lse(query, key, value)[1].dtype == dtype


def test_steps_leave_their_inputs_alone() -> None:
    query, key = drawn((T, D_K), (7, D_K))
    for array in (query, key):
        array.flags.writeable = False
    mask = np.where(masks.causal(T, 7), 0.5, -np.inf)
    mask.flags.writeable = False
    project(query, key.T)
    softmax(query)
    attention_weights(query, key, mask)
