"""Masks, held by small pictures and by what attention does with them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from parameters import slow

from attnlib import masks

Array = NDArray[Any]
B = 2


def picture(mask: Array) -> list[str]:
    return ["".join("x" if seen else "." for seen in row) for row in mask]


def test_causal() -> None:
    assert picture(masks.causal(3)) == ["x..", "xx.", "xxx"]
    assert picture(masks.causal(4, 2, align="bottom-right")) == ["..", "..", "x.", "xx"]
    assert masks.causal(0, 3).shape == (0, 3)


def test_padding() -> None:
    mask = masks.padding([1, 3, 0, 5], 5, side="left")
    assert picture(mask[:, 0, 0]) == ["....x", "..xxx", ".....", "xxxxx"]
    long = masks.padding(np.array([200], np.uint8), 300, side="left")
    assert long.sum() == 200 and not long[..., :100].any()
    for side in ("right", "left"):
        assert masks.padding([], 3, side=side).shape == (0, 1, 1, 3)


def test_window() -> None:
    assert picture(masks.window(3, 3, None, 0)) == picture(masks.causal(3))
    assert picture(masks.window(2, 3, None, None)) == ["xxx", "xxx"]
    below = {"align": "bottom-right"}
    assert picture(masks.window(2, 5, 1, 0, **below)) == ["..xx.", "...xx"]
    assert picture(masks.window(3, 2, 0, 0, **below)) == ["..", "x.", ".x"]


def test_document() -> None:
    assert picture(masks.document([0, -1], [0, 0, -1])) == ["xx.", "..x"]
    mask = masks.document([[1, 1, 2], [1, 2, 2]], np.array([[2, 1], [3, 2]], np.uint8))
    assert mask.shape == (2, 1, 3, 2)
    assert picture(mask[1, 0]) == ["..", ".x", ".x"]
    assert masks.document([]).shape == (0, 0)
    assert masks.document(np.zeros((B, 0), int), np.zeros((B, 3), int)).shape == (B, 1, 0, 3)


def test_prefix() -> None:
    assert picture(masks.prefix(2, 4)) == ["xx..", "xx..", "xxx.", "xxxx"]
    assert picture(masks.prefix(1, 2, 4, align="bottom-right")) == ["xxx.", "xxxx"]
    assert masks.prefix(np.uint8(3), 3).all()
    mask = masks.prefix([0, 2], 3)
    assert mask.shape == (2, 1, 3, 3)
    assert picture(mask[1, 0]) == ["xx.", "xx.", "xxx"]
    assert masks.prefix([], 2, 3).shape == (0, 1, 2, 3)
    assert masks.prefix(3, 0, 3).shape == (0, 3)


def press_slopes(n: int) -> list[float]:
    """Return the slopes by the rule of the paper's authors, first term and ratio."""
    power = 2 ** math.floor(math.log2(n))
    ratio = 2 ** (-(2 ** -(math.log2(power) - 3)))
    slopes = [ratio ** (h + 1) for h in range(power)]
    return slopes if power == n else slopes + press_slopes(2 * power)[0::2][: n - power]


def test_alibi() -> None:
    for n_heads in range(1, 70):
        # What a head takes away for a distance of 1.
        slopes = -masks.alibi(n_heads, 2)[:, 1, 0]
        np.testing.assert_allclose(slopes, press_slopes(n_heads), rtol=2e-7)
    first = masks.alibi(5, 5, 7)
    last = masks.alibi(5, 5, 7, align="bottom-right")
    i, j, slope = np.arange(5)[:, None], np.arange(7), np.array(press_slopes(5))[:, None, None]
    assert first.dtype == np.float32
    np.testing.assert_allclose(first, -slope * abs(i - j), rtol=3e-7)
    np.testing.assert_allclose(last, -slope * abs(i + 2 - j), rtol=3e-7)
    assert not np.signbit(first[first == 0]).any()
    assert masks.alibi(5, 0, 3).shape == (5, 0, 3)


# -- masks together --------------------------------------------------------------------------------


def test_combine() -> None:
    mask = masks.combine(masks.causal(3), masks.window(3, 3, 1, 1), np.array([True, True, False]))
    assert mask.dtype == np.bool_
    assert picture(mask) == ["x..", "xx.", ".x."]
    bias = np.array([[0.5, 7.0, -np.inf], [1.5, 2.5, 3.5]])
    for some in ([masks.causal(2, 3), bias], [bias, masks.causal(2, 3)]):
        mask = masks.combine(*some, np.float32([[1], [2]]))
        np.testing.assert_array_equal(mask, [[1.5, -np.inf, -np.inf], [3.5, 4.5, -np.inf]])


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["bool", "float32"], "float32"),
        (["float32", "float64"], "float64"),
        (["float16"], "float32"),
        ([ml_dtypes.bfloat16, "float16"], "float32"),
    ],
)
def test_the_dtype_of_a_combined_mask(dtypes: list[Any], expected: str) -> None:
    assert masks.combine(*(np.ones((2, 3), dtype) for dtype in dtypes)).dtype == expected


def test_combining_neither_overflows_nor_lets_a_removed_key_back_in() -> None:
    low = np.full((1, 2), -60000, dtype=np.float16)
    np.testing.assert_array_equal(masks.combine(low, low), [[-120000, -120000]])
    with np.errstate(all="raise"):
        mask = masks.combine(np.array([[np.inf, np.nan]]), np.array([[-np.inf, -np.inf]]))
    np.testing.assert_array_equal(mask, [[-np.inf, -np.inf]])
    assert np.isnan(masks.combine(np.array([np.nan]), np.array([True]))).all()
    for dtype in ("float32", "float64"):
        lowest = np.array([np.finfo(dtype).min, -np.finfo(dtype).min], dtype)
        np.testing.assert_array_equal(masks.combine(lowest, lowest), lowest)


def test_combine_gives_new_memory_and_leaves_the_masks_alone() -> None:
    for mask in (masks.causal(3), np.zeros((3, 3))):
        before = mask.copy()
        combined = masks.combine(mask, masks.window(3, 3, 0, 0))
        assert not np.shares_memory(combined, mask)
        assert not np.shares_memory(masks.combine(mask), mask)
        np.testing.assert_array_equal(mask, before)
        same = torch.from_numpy(mask)
        assert masks.combine(same).data_ptr() != same.data_ptr()


def test_combine_takes_a_matrix_as_the_array_that_it_is() -> None:
    flat, deep = np.array([[0.5, 1.5]]), np.array([[[True], [False]], [[True], [True]]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix(flat)
    combined = masks.combine(matrix, deep)
    assert type(combined) is type(masks.combine(matrix)) is np.ndarray
    np.testing.assert_array_equal(combined, masks.combine(flat, deep))


# -- on tensors ------------------------------------------------------------------------------------


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


@settings(max_examples=20)
@given(n_queries=st.integers(0, 5), n_keys=st.integers(0, 5), seed=st.integers(0, 999))
def test_tensors_are_as_arrays(n_queries: int, n_keys: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    like = np.zeros(1)
    left, right = (None if n == 3 else int(n) for n in rng.integers(0, 4, 2))
    same(lambda x: masks.window(n_queries, n_keys, left, right, like=x), like)
    lengths = rng.integers(0, n_keys + 1, 3)
    for side in ("right", "left"):
        same(lambda x, side=side: masks.padding(x, n_keys, side=side), lengths)
    for align in ("top-left", "bottom-right"):
        same(lambda x, align=align: masks.causal(n_queries, n_keys, align=align, like=x), like)
        same(lambda x, align=align: masks.alibi(5, n_queries, n_keys, align=align, like=x), like)
        for some in (lengths, lengths[0, ...]):
            same(lambda x, align=align: masks.prefix(x, n_queries, n_keys, align=align), some)
    same(masks.document, rng.integers(0, 3, n_queries))
    same(masks.document, rng.integers(0, 3, (2, n_queries)), rng.integers(0, 3, (2, n_keys)))
    boolean = rng.random((n_queries, n_keys)) < 0.5
    additive = np.where(rng.random((2, 1, n_keys)) < 0.7, rng.normal(size=(2, 1, n_keys)), -np.inf)
    narrow = rng.normal(size=(n_keys,)).astype(np.float16)
    same(masks.combine, boolean)
    same(masks.combine, additive, boolean, narrow)
    same(masks.combine, narrow, narrow)


def test_integers_may_be_unsigned() -> None:
    for dtype in (torch.uint8, torch.uint16, torch.int16):
        ids, keys = torch.tensor([1, 3], dtype=dtype), torch.tensor([3, 3, 1], dtype=torch.int32)
        assert masks.padding(ids, 3)[:, 0, 0].tolist() == [[True, False, False], [True] * 3]
        assert masks.document(ids, keys).tolist() == [[False, False, True], [True, True, False]]
        assert masks.prefix(ids[1], 2, 3).all()
    high = np.array([2**64 - 1], np.uint64)
    assert not masks.document(high, np.array([-1])).any() and masks.document(high).all()


def test_masks_are_made_inside_vmap() -> None:
    lengths = torch.tensor([[0, 2], [3, 1]])
    many = torch.vmap(lambda x: masks.combine(masks.padding(x, 3), masks.causal(3, like=x)))
    one_by_one = [masks.combine(masks.padding(x, 3), masks.causal(3, like=x)) for x in lengths]
    assert torch.equal(many(lengths), torch.stack(one_by_one))
    ids = torch.tensor([[0, 0, 2], [3, 1, 3]])
    assert torch.equal(torch.vmap(masks.document)(ids), masks.document(ids)[:, 0])
    prefixes = torch.vmap(lambda x: masks.prefix(x, 3))(lengths[0])
    assert torch.equal(prefixes, masks.prefix(lengths[0], 3)[:, 0])
    biased = torch.vmap(lambda x: masks.alibi(5, 3, like=x) + x)(torch.zeros(2, 1))
    assert torch.equal(biased[1], masks.alibi(5, 3, like=ids))


@pytest.mark.parametrize("dynamic", [False, slow(True)])
def test_masks_are_made_inside_a_compiled_function(dynamic: bool) -> None:
    """Compiled for any length takes four times as long as for one."""

    def made(x: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        n_heads, n = x.shape[-3], x.shape[-2]
        return masks.combine(
            masks.alibi(n_heads, n, like=x),
            masks.causal(n, like=x),
            masks.window(n, n, left=2, right=0, like=x),
            masks.document(ids),
            masks.prefix(lengths, n),
            masks.padding(lengths + 1, n, side="left"),
        )

    compiled = torch.compile(made, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (5, 7) if dynamic else (5,):
        given = torch.zeros(2, 6, n, 3), torch.arange(2 * n).reshape(2, n) // 3, torch.arange(2)
        assert torch.equal(compiled(*given), made(*given))


def test_the_default_device_and_dtype_are_left_alone() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            mask = masks.alibi(3, 5, like=torch.zeros(1, device="cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert mask.device.type == "cpu" and mask.dtype == torch.float32
