"""Inputs at the edge of what is allowed: subclasses, huge numbers, no heads, signalling NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attnlib import implementations, masks, numpy_dense
from attnlib.numpy_blockwise import SoftmaxState

FORMS = [form for name, form in implementations().items() if name.startswith("numpy_")]
Form = Callable[..., np.ndarray[Any, Any]]


@pytest.fixture(params=FORMS, ids=lambda form: form.__module__.rpartition(".")[2])
def form(request: pytest.FixtureRequest) -> Form:
    return request.param  # type: ignore[no-any-return]


def inputs(*shapes: tuple[int, ...], dtype: str = "float64") -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", ["float64", "bool"])
def test_a_mask_of_a_subclass_counts_as_a_plain_array(
    form: Form, batch: tuple[int, ...], dtype: str
) -> None:
    query, key, value = inputs((*batch, 5, 3), (*batch, 7, 3), (*batch, 7, 2))
    mask = (np.arange(35.0).reshape(5, 7) % 4).astype(dtype)
    expected = form(query, key, value, mask)
    result = form(query, key, value, np.matrix(mask))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_signalling_nan_comes_out_and_warns_nobody(form: Form, place: int) -> None:
    arrays = inputs((2, 3), (2, 3), (2, 3), dtype="float32")
    arrays[place] = np.full((2, 3), 0x7F800001, dtype=np.uint32).view(np.float32)
    with np.errstate(all="raise"):
        assert np.isnan(form(*arrays)).all()


def test_half_precision_self_attention_is_rounded_once() -> None:
    X, W = np.full((2, 4), 300.0, np.float16), np.full((4, 1), 300.0, np.float16)
    ones = np.ones((4, 1), np.float16)  # the queries and keys, 360,000, are beyond float16
    result = numpy_dense.self_attention(X, W, W, ones, np.zeros((2, 2), np.float16))
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, [[1200.0], [1200.0]])


def test_a_half_precision_mask_counts_in_self_attention() -> None:
    X, W = inputs((3, 4), (4, 2), dtype="float16")
    mask = np.array([[0.0, -1.5, 2.0]], np.float16)
    wide, W_wide, bias = X.astype("f4"), W.astype("f4"), mask.astype("f4")
    expected = numpy_dense.self_attention(wide, W_wide, W_wide, W_wide, bias).astype("f2")
    np.testing.assert_array_equal(numpy_dense.self_attention(X, W, W, W, mask), expected)
    assert (expected != numpy_dense.self_attention(X, W, W, W)).any()


def test_nothing_asks_for_the_callers_error_state(form: Form) -> None:
    """Overflow and underflow are part of the arithmetic; nobody is warned, or stopped, by them."""
    for number in (300.0, 6e-8):
        X = np.full((2, 4), number, np.float16)
        value = np.array([[number], [0.0]], np.float16)  # 6e-8 / 2 is below every float16
        W = np.full((4, 1), number, np.float16)
        with np.errstate(all="raise"):
            form(X, X, value)
            numpy_dense.project(X, W)
            numpy_dense.attention_scores(X, X)
            numpy_dense.attention_weights(X, X)
            numpy_dense.softmax(np.array([0.0, -17.0], np.float16))
            numpy_dense.self_attention(X, W, W, W)
    huge = np.full((2, 2), 1e30, np.float32)
    with np.errstate(all="raise"):
        numpy_dense.attention_weights(huge, huge)
        state = SoftmaxState.empty((2,), 2, np.float32).update(huge, huge)
        state.merge(state.update(-huge, huge)).finish()
        SoftmaxState.empty((2,), 2).finish()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_self_attention_refuses_a_mask_whose_own_mask_would_be_lost(dtype: str) -> None:
    X, ones = np.ones((2, 4), dtype), np.ones((4, 1), dtype)
    masked = np.ma.array(np.zeros((2, 2), dtype), mask=np.eye(2))
    with pytest.raises(TypeError, match=r"attn_mask must be a numpy\.ndarray; got .*Masked"):
        numpy_dense.self_attention(X, ones, ones, ones, masked)


def test_softmax_of_one_score_is_an_array() -> None:
    result = numpy_dense.softmax(np.array([3.0]))
    assert isinstance(result, np.ndarray) and result.tolist() == [1.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_combined_masks_remove_only_what_one_of_them_removes(form: Form, dtype: str) -> None:
    lowest = np.full((1, 3), np.finfo(dtype).min, dtype)
    combined = masks.combine(lowest, lowest)
    assert np.isfinite(combined).all()
    query, key = np.ones((1, 1), combined.dtype), np.ones((3, 1), combined.dtype)
    value = np.array([[1.0], [2.0], [3.0]], combined.dtype)
    np.testing.assert_allclose(form(query, key, value, combined), [[2.0]], rtol=1e-6)
    if dtype != "float16":  # whose sum fits into float32
        np.testing.assert_array_equal(masks.combine(-lowest, -lowest), -lowest)


def test_padding_refuses_lengths_that_it_would_misread() -> None:
    with pytest.raises(TypeError, match="MaskedArray, whose mask would be lost"):
        masks.padding(np.ma.array([1, 2], mask=[0, 1]), 3)
    with pytest.raises(ValueError, match=r"one dimension, \(B,\); got \[1, \[2\]\]"):
        masks.padding([1, [2]], 3)  # type: ignore[list-item]
