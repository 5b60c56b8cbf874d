"""The steps of the matrix form, one by one, and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from implementations import IMPLEMENTATIONS, on
from inputs import drawn
from numpy.typing import NDArray

from attnlib import masks, numpy_tokenwise
from attnlib.numpy_blockwise import SoftmaxState
from attnlib.numpy_dense import (
    attention_scores,
    attention_weights,
    project,
    scaled_dot_product_attention,
    self_attention,
    softmax,
)

Array = NDArray[Any]
T, S, D_MODEL, D_K, D_V = 5, 7, 13, 3, 11


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_runs_along_one_axis(axis: int) -> None:
    (scores,) = drawn((3, 5, 7))
    exponentials = np.exp(scores)
    by_hand = exponentials / exponentials.sum(axis=axis, keepdims=True)
    scores.flags.writeable = False
    np.testing.assert_allclose(softmax(scores, axis), by_hand, rtol=1e-14)


def test_softmax_of_nothing_of_one_and_of_large_scores() -> None:
    rows = np.array([[-np.inf, -np.inf], [-np.inf, 3.0], [1e4, 1e4], [np.nan, -np.inf]])
    with np.errstate(all="raise"):
        weights = softmax(rows)
    np.testing.assert_array_equal(weights[:3], [[0, 0], [0, 1], [0.5, 0.5]])
    assert np.isnan(weights[3]).all()
    assert softmax(np.zeros((3, 0))).shape == (3, 0)
    one = softmax(np.array([3.0]))
    assert isinstance(one, np.ndarray) and one.tolist() == [1.0]


def test_removed_keys_have_the_weight_zero() -> None:
    query, key = drawn((T, D_K), (S, D_K))
    mask = np.random.default_rng(3).random((T, S)) < 0.5
    mask[2] = False
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        weights = attention_weights(query, key, given)
        assert np.all((weights > 0) == mask)
        np.testing.assert_allclose(weights.sum(axis=-1), mask.any(axis=-1), rtol=1e-14)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_steps_compose(scale: float | None) -> None:
    query, key, value = drawn((2, T, D_K), (2, S, D_K), (2, S, D_V))
    weights = softmax(attention_scores(query, key, scale=scale))
    np.testing.assert_array_equal(weights, attention_weights(query, key, scale=scale))
    output = scaled_dot_product_attention(query, key, value, scale=scale)
    np.testing.assert_array_equal(weights @ value, output)


@pytest.mark.parametrize(
    "options", [{"scale": 2.0}, {"is_causal": True}, {"attn_mask": masks.window(T, T, 2, 1)}]
)
def test_self_attention_is_the_definition_on_projections(options: dict[str, Any]) -> None:
    X, W_Q, W_K, W_V = drawn((2, T, D_MODEL), (D_MODEL, D_K), (D_MODEL, D_K), (D_MODEL, D_V))
    projected = [project(X, W) for W in (W_Q, W_K, W_V)]
    expected = numpy_tokenwise.scaled_dot_product_attention(*projected, **options)
    np.testing.assert_allclose(self_attention(X, W_Q, W_K, W_V, **options), expected, rtol=1e-10)


def test_half_precision_is_rounded_once() -> None:
    X, W = np.full((2, 4), 300.0, np.float16), np.full((4, 1), 300.0, np.float16)
    ones = np.ones((4, 1), np.float16)  # the queries and keys, 360,000, are beyond float16
    result = self_attention(X, W, W, ones, np.zeros((2, 2), np.float16))
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, [[1200.0], [1200.0]])
    X, W = drawn((3, 4), (4, 2), dtype="float16")
    mask = np.array([[0.0, -1.5, 2.0]], np.float16)
    for step, *given in (
        (project, X, W), (attention_scores, X, X), (attention_weights, X, X), (softmax, X),
        (self_attention, X, W, W, W, mask),
    ):
        wide = step(*(x.astype("f4") for x in given)).astype("f2")
        np.testing.assert_array_equal(step(*given), wide, strict=True)


def test_nothing_asks_for_the_callers_error_state() -> None:
    """Overflow and underflow are part of the arithmetic; nobody is warned, or stopped, by them."""
    huge = np.full((2, 2), 1e30, np.float32)
    with np.errstate(all="raise"):
        for number in (300.0, 6e-8):
            X, W = np.full((2, 4), number, np.float16), np.full((4, 1), number, np.float16)
            project(X, W)
            attention_scores(X, X)
            attention_weights(X, X)
            softmax(np.array([0.0, -17.0], np.float16))
            self_attention(X, W, W, W)
        attention_weights(huge, huge)
        state = SoftmaxState.empty((2,), 2, np.float32).update(huge, huge)
        state.merge(state.update(-huge, huge)).finish()
        SoftmaxState.empty((2,), 2).finish()


# -- both dense forms ------------------------------------------------------------------------------

DENSE = on(form for form in IMPLEMENTATIONS if form.name.endswith("_dense"))


def step(form: Any, name: str, *arrays: Array, **options: Any) -> Any:
    return form.take(form.function(name)(*map(form.give, arrays), **options))


@DENSE
def test_weights_of_grouped_heads(form: Any) -> None:
    query, key = drawn((2, 6, T, D_K), (2, 2, S, D_K))
    options: dict[str, Any] = {"is_causal": True, "causal_align": "bottom-right"}
    found = step(form, "attention_weights", query, key, enable_gqa=True, **options)
    for h in range(6):
        alone = step(form, "attention_weights", query[:, h], key[:, h // 3], **options)
        np.testing.assert_allclose(found[:, h], alone, rtol=1e-14)
    seen = masks.causal(T, S, align="bottom-right")
    assert np.all((found > 0) == seen)


@DENSE
def test_self_attention_of_grouped_heads(form: Any) -> None:
    X, W_Q, W_K, W_V = drawn((4, 1, T, 6), (6, 6, D_K), (2, 6, D_K), (2, 6, D_V))
    options: dict[str, Any] = {"window": (2, 0)}
    found = step(form, "self_attention", X, W_Q, W_K, W_V, enable_gqa=True, **options)
    assert found.shape == (4, 6, T, D_V)
    for h in range(6):
        matrices = W_Q[h], W_K[h // 3], W_V[h // 3]
        alone = step(form, "self_attention", X[:, 0], *matrices, **options)
        np.testing.assert_allclose(found[:, h], alone, rtol=1e-13)
    with pytest.raises(ValueError, match="heads"):
        step(form, "self_attention", X, W_Q, W_K, W_V)
    with pytest.raises(ValueError, match=r"^X .*W_K"):
        step(form, "self_attention", X, W_Q, W_K[0, :, 0], W_V)
