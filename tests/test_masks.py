"""Masks, held by small pictures and by what attention does with them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnlib import masks
from attnlib.numpy_dense import scaled_dot_product_attention

Array = NDArray[Any]
B, H, L, S = 2, 3, 5, 7


def picture(mask: Array) -> list[str]:
    return ["".join("x" if seen else "." for seen in row) for row in mask]


def test_causal() -> None:
    assert picture(masks.causal(3)) == ["x..", "xx.", "xxx"]
    assert picture(masks.causal(2, 4)) == ["x...", "xx.."]
    assert picture(masks.causal(4, 2)) == ["x.", "xx", "xx", "xx"]
    assert picture(masks.causal(2, 4, align="bottom-right")) == ["xxx.", "xxxx"]
    assert picture(masks.causal(4, 2, align="bottom-right")) == ["..", "..", "x.", "xx"]
    assert masks.causal(0, 3).shape == (0, 3)


def test_causal_is_what_is_causal_means() -> None:
    query, key, value = np.random.default_rng(1).normal(size=(3, B, H, L, L))
    masked = scaled_dot_product_attention(query, key, value, masks.causal(L))
    flagged = scaled_dot_product_attention(query, key, value, is_causal=True)
    assert masked.tobytes() == flagged.tobytes()


def test_bottom_right_is_the_end_of_a_longer_causal_mask() -> None:
    np.testing.assert_array_equal(masks.causal(L, S, align="bottom-right"), masks.causal(S)[-L:])


def test_padding_is_as_if_the_padding_were_not_there() -> None:
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(B, H, n, 11)) for n in (L, S, S))
    lengths = [4, 7]
    mask = masks.padding(lengths, S)
    assert mask.shape == (B, 1, 1, S)
    output = scaled_dot_product_attention(query, key, value, mask)
    for b, length in enumerate(lengths):
        short = scaled_dot_product_attention(query[b], key[b, :, :length], value[b, :, :length])
        np.testing.assert_allclose(output[b], short, rtol=1e-12)


def test_padding_takes_arrays_and_the_ends_of_the_range() -> None:
    mask = masks.padding(np.array([0, 3], dtype=np.uint8), 3)
    assert picture(mask[:, 0, 0]) == ["...", "xxx"]
    assert masks.padding([], 3).shape == (0, 1, 1, 3)


def test_padding_is_refused_where_the_axis_of_heads_is_missing() -> None:
    arrays = np.ones((3, B, L, L))
    with pytest.raises(ValueError, match="attn_mask must broadcast"):
        scaled_dot_product_attention(*arrays, masks.padding([1, 2], L))
    scaled_dot_product_attention(*arrays, masks.padding([1, 2], L)[:, 0])


def test_window() -> None:
    assert picture(masks.window(4, 5, 1, 1)) == ["xx...", "xxx..", ".xxx.", "..xxx"]
    assert picture(masks.window(3, 4, 0, 2)) == ["xxx.", ".xxx", "..xx"]
    assert picture(masks.window(3, 3, None, 0)) == picture(masks.causal(3))
    assert picture(masks.window(2, 3, None, None)) == ["xxx", "xxx"]
    below = {"align": "bottom-right"}
    assert picture(masks.window(2, 5, 1, 0, **below)) == ["..xx.", "...xx"]
    assert picture(masks.window(3, 2, 0, 0, **below)) == ["..", "x.", ".x"]
    assert picture(masks.window(3, 5, None, 0, **below)) == picture(masks.causal(3, 5, **below))


def test_combine_booleans() -> None:
    mask = masks.combine(masks.causal(3), masks.window(3, 3, 1, 1), np.array([True, True, False]))
    assert mask.dtype == np.bool_
    assert picture(mask) == ["x..", "xx.", ".x."]


def test_combine_with_a_floating_mask() -> None:
    bias = np.array([[0.5, 7.0, -np.inf], [1.5, 2.5, 3.5]])
    mask = masks.combine(masks.causal(2, 3), bias, np.float32([[1], [2]]))
    np.testing.assert_array_equal(mask, [[1.5, -np.inf, -np.inf], [3.5, 4.5, -np.inf]])


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["bool", "float32"], "float32"),
        (["float32", "float64"], "float64"),
        (["float16"], "float32"),
        (["bfloat16", "float16"], "float32"),
    ],
)
def test_the_dtype_of_a_combined_mask(dtypes: list[str], expected: str) -> None:
    named = {"bfloat16": ml_dtypes.bfloat16}
    given = [np.ones((2, 3), dtype=named.get(name, name)) for name in dtypes]
    assert masks.combine(*given).dtype == expected


def test_combining_neither_overflows_nor_lets_a_removed_key_back_in() -> None:
    low = np.full((1, 2), -60000, dtype=np.float16)
    np.testing.assert_array_equal(masks.combine(low, low), [[-120000, -120000]])
    with np.errstate(all="raise"):
        mask = masks.combine(np.array([[np.inf, np.nan]]), np.array([[-np.inf, -np.inf]]))
    np.testing.assert_array_equal(mask, [[-np.inf, -np.inf]])
    assert np.isnan(masks.combine(np.array([np.nan]), np.array([True]))).all()


def test_combine_gives_new_memory_and_leaves_the_masks_alone() -> None:
    for mask in (masks.causal(3), np.zeros((3, 3))):
        before = mask.copy()
        combined = masks.combine(mask, masks.window(3, 3, 0, 0))
        assert not np.shares_memory(combined, mask)
        assert not np.shares_memory(masks.combine(mask), mask)
        np.testing.assert_array_equal(mask, before)


def test_combine_takes_a_matrix_as_the_array_that_it_is() -> None:
    flat, deep = np.array([[0.5, 1.5]]), np.array([[[True], [False]], [[True], [True]]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix(flat)
    for some in ((matrix,), (matrix, deep), (deep, matrix)):
        combined = masks.combine(*some)
        assert type(combined) is np.ndarray
        as_arrays = [flat if mask is matrix else mask for mask in some]
        np.testing.assert_array_equal(combined, masks.combine(*as_arrays))


@given(seed=st.integers(0, 999), additive=st.booleans())
def test_combine_does_not_depend_on_the_order(seed: int, additive: bool) -> None:
    rng = np.random.default_rng(seed)
    some: list[Array] = [rng.random(shape) < 0.6 for shape in ((L, S), (H, 1, S), (L, 1))]
    if additive:  # powers of two: their sums are exact
        some[1] = np.where(some[1], 2.0 ** rng.integers(-3, 4, some[1].shape), -np.inf)
    forwards, backwards = masks.combine(*some), masks.combine(*some[::-1])
    np.testing.assert_array_equal(forwards, backwards)
    nested = masks.combine(masks.combine(*some[:2]), some[2])
    np.testing.assert_array_equal(forwards, nested)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: masks.causal(-1), ValueError, "n_queries must be at least 0; got -1"),
        (lambda: masks.causal(2, 2.0), TypeError, "n_keys must be an integer; got 2.0"),
        (lambda: masks.causal(True), TypeError, "n_queries must be an integer; got True"),
        (lambda: masks.causal(2, align="left"), ValueError,
         "align must be 'top-left' or 'bottom-right'; got 'left'"),
        (lambda: masks.padding([1, 8], 7), ValueError,
         "lengths must lie between 0 and n_keys = 7; got [1, 8]"),
        (lambda: masks.padding([-1], 7), ValueError, "got [-1]"),
        (lambda: masks.padding([[1]], 7), ValueError,
         "lengths must have one dimension, (B,); got shape (1, 1)"),
        (lambda: masks.causal(2, align=["top-left"]), ValueError,
         "align must be 'top-left' or 'bottom-right'; got ['top-left']"),
        (lambda: masks.causal(2, align=np.zeros(2)), ValueError, "got array([0., 0.])"),
        (lambda: masks.padding(3, 7), ValueError, "got shape ()"),
        (lambda: masks.padding([1.5], 7), TypeError, "lengths must be integers; got dtype float64"),
        (lambda: masks.padding([True], 7), TypeError, "got dtype bool"),
        (lambda: masks.window(2, 2, -1, 0), ValueError, "left must be at least 0; got -1"),
        (lambda: masks.window(2, 2, 0, "1"), TypeError, "right must be an integer; got '1'"),
        (lambda: masks.window(2, 2, 0, 0, align="top"), ValueError, "'bottom-right'; got 'top'"),
        (lambda: masks.combine(), TypeError, "combine needs at least one mask; got none"),
        (lambda: masks.combine([True]), TypeError, "mask 0 must be a numpy.ndarray; got list"),
        (lambda: masks.combine(np.ones(2, dtype=bool), np.ones(2, dtype=int)), TypeError,
         "mask 1 must be boolean or floating; got dtype int64"),
        (lambda: masks.combine(masks.causal(2), masks.causal(3)), ValueError,
         "masks must have shapes that broadcast; got (2, 2), (3, 3)"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def same(call: Callable[..., Any], *arrays: Array) -> None:
    """Hold the tensors of a call against the arrays of the same call."""
    expected = call(*arrays)
    got = call(*map(torch.from_numpy, arrays))
    assert isinstance(got, torch.Tensor)
    assert got.numpy().dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected)
    there = call(*(torch.from_numpy(array).to("meta") for array in arrays))
    assert there.device.type == "meta"
    assert there.shape == got.shape


@given(n_queries=st.integers(0, 5), n_keys=st.integers(0, 5), seed=st.integers(0, 999))
def test_tensors_are_as_arrays(n_queries: int, n_keys: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    like = np.zeros(1)
    left, right = (None if n == 3 else int(n) for n in rng.integers(0, 4, 2))
    for align in ("top-left", "bottom-right"):
        same(lambda x, align=align: masks.causal(n_queries, n_keys, align=align, like=x), like)
    same(lambda x: masks.window(n_queries, n_keys, left, right, like=x), like)
    same(lambda x: masks.padding(x, n_keys), rng.integers(0, n_keys + 1, 3))
    boolean = rng.random((n_queries, n_keys)) < 0.5
    additive = np.where(rng.random((2, 1, n_keys)) < 0.7, rng.normal(size=(2, 1, n_keys)), -np.inf)
    narrow = rng.normal(size=(n_keys,)).astype(np.float16)
    same(masks.combine, boolean)
    same(masks.combine, additive, boolean, narrow)
    same(masks.combine, narrow, narrow)


def test_errors_on_tensors() -> None:
    mask = torch.ones(2, 2, dtype=torch.bool)
    for call, error, message in [
        (lambda: masks.combine(mask, np.ones(2, dtype=bool)), TypeError,
         "masks must be all arrays or all tensors; got mask 1, ndarray"),
        (lambda: masks.combine(mask, mask.int()), TypeError,
         "mask 1 must be boolean or floating; got dtype int32"),
        (lambda: masks.combine(mask, mask.to("meta")), ValueError,
         "masks must be on one device; got cpu, meta"),
        (lambda: masks.causal(2, like=[1]), TypeError,
         "like must be an array or a tensor; got list"),
        (lambda: masks.padding(torch.ones(2), 3), TypeError,
         "lengths must be integers; got dtype float32"),
        (lambda: masks.padding(mask, 3), ValueError,
         "lengths must have one dimension, (B,); got (2, 2)"),
    ]:  # fmt: skip
        with pytest.raises(error, match=re.escape(message)):
            call()


def test_combining_tensors_gives_new_memory() -> None:
    mask = masks.causal(3, like=torch.ones(1))
    assert masks.combine(mask).data_ptr() != mask.data_ptr()


def test_masks_are_made_inside_vmap() -> None:
    lengths = torch.tensor([[0, 2], [3, 1]])
    many = torch.vmap(lambda x: masks.combine(masks.padding(x, 3), masks.causal(3, like=x)))
    one_by_one = [masks.combine(masks.padding(x, 3), masks.causal(3, like=x)) for x in lengths]
    assert torch.equal(many(lengths), torch.stack(one_by_one))


def test_padding_takes_unsigned_lengths() -> None:
    for dtype in (torch.uint8, torch.uint16, torch.int16):
        mask = masks.padding(torch.tensor([1, 3], dtype=dtype), 3)
        assert mask[:, 0, 0].tolist() == [[True, False, False], [True, True, True]]
