"""Masks, held by small pictures and by what attention does with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

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
    assert picture(masks.padding([1, 3, 0], 3)[:, 0, 0]) == ["x..", "xxx", "..."]
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
    assert not masks.document(np.array([2**64 - 1], np.uint64), np.array([-1])).any()
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


def test_alibi_does_not_take_the_default_dtype_of_torch() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert masks.alibi(3, 5, like=torch.zeros(1)).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


# -- masks together --------------------------------------------------------------------------------


def test_combine() -> None:
    mask = masks.combine(masks.causal(3), masks.window(3, 3, 1, 1), np.array([True, True, False]))
    assert mask.dtype == np.bool_
    assert picture(mask) == ["x..", "xx.", ".x."]
    bias = np.array([[0.5, 7.0, -np.inf], [1.5, 2.5, 3.5]])
    for some in ([masks.causal(2, 3), bias], [bias, masks.causal(2, 3)]):
        mask = masks.combine(*some, np.float32([[1], [2]]))
        assert mask.dtype == np.float64
        np.testing.assert_array_equal(mask, [[1.5, -np.inf, -np.inf], [3.5, 4.5, -np.inf]])
    for dtypes in (["bool", "float32"], ["float16"], [ml_dtypes.bfloat16, "float16"]):
        assert masks.combine(*(np.ones((2, 3), dtype) for dtype in dtypes)).dtype == np.float32


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


def test_combine_gives_new_memory() -> None:
    for mask in (masks.causal(3), np.zeros((3, 3))):
        assert not np.shares_memory(masks.combine(mask), mask)
        same = torch.from_numpy(mask)
        assert masks.combine(same).data_ptr() != same.data_ptr()


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


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 3), (3, 5), (0, 2)])
def test_tensors_are_as_arrays(n_queries: int, n_keys: int) -> None:
    rng, like = np.random.default_rng(n_queries), np.zeros(1)
    lengths = rng.integers(0, n_keys + 1, 3).astype(np.uint8)
    for ends in ((1, 0), (None, 2), (0, None)):
        same(lambda x, ends=ends: masks.window(n_queries, n_keys, *ends, like=x), like)
    for side in ("right", "left"):
        same(lambda x, side=side: masks.padding(x, n_keys, side=side), lengths)
    for align in ("top-left", "bottom-right"):
        same(lambda x, align=align: masks.causal(n_queries, n_keys, align=align, like=x), like)
        same(lambda x, align=align: masks.alibi(5, n_queries, n_keys, align=align, like=x), like)
        for some in (lengths, lengths[0, ...]):
            same(lambda x, align=align: masks.prefix(x, n_queries, n_keys, align=align), some)
    ids = rng.integers(0, 3, (2, n_queries)), rng.integers(0, 3, (2, n_keys)).astype(np.int16)
    same(masks.document, ids[0][0])
    same(masks.document, *ids)
    boolean, narrow = rng.random((n_queries, n_keys)) < 0.5, rng.normal(size=n_keys).astype("f2")
    added = np.where(rng.random((2, 1, n_keys)) < 0.7, rng.normal(size=(2, 1, n_keys)), -np.inf)
    for given in ((boolean,), (added, boolean, narrow), (narrow, narrow)):
        same(masks.combine, *given)


def test_masks_are_made_inside_a_compiled_function() -> None:
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

    compiled = torch.compile(made, fullgraph=True, backend="aot_eager", dynamic=False)
    given = torch.zeros(2, 6, 5, 3), torch.arange(10).reshape(2, 5) // 3, torch.arange(2)
    assert torch.equal(compiled(*given), made(*given))
