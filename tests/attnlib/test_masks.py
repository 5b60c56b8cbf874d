"""Masks, held by small pictures and by what attention does with them."""

from __future__ import annotations

import math
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


def test_padding_on_the_left() -> None:
    mask = masks.padding([1, 3, 0, 5], 5, side="left")
    assert mask.shape == (4, 1, 1, 5)
    assert picture(mask[:, 0, 0]) == ["....x", "..xxx", ".....", "xxxxx"]
    long = masks.padding(np.array([200], np.uint8), 300, side="left")
    assert long.sum() == 200 and not long[..., :100].any()
    lengths = [0, 4, S]
    mirrored = masks.padding(lengths, S)[..., ::-1]
    np.testing.assert_array_equal(masks.padding(lengths, S, side="left"), mirrored)
    np.testing.assert_array_equal(
        masks.padding(lengths, S, side="right"), masks.padding(lengths, S)
    )
    assert masks.padding([], 3, side="left").shape == (0, 1, 1, 3)


def test_left_padding_is_as_if_the_padding_were_not_there() -> None:
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(B, H, n, 11)) for n in (L, S, S))
    lengths = [4, 7]
    output = scaled_dot_product_attention(query, key, value, masks.padding(lengths, S, side="left"))
    for b, length in enumerate(lengths):
        first = S - length
        short = scaled_dot_product_attention(query[b], key[b, :, first:], value[b, :, first:])
        np.testing.assert_allclose(output[b], short, rtol=1e-12)


def test_window() -> None:
    assert picture(masks.window(4, 5, 1, 1)) == ["xx...", "xxx..", ".xxx.", "..xxx"]
    assert picture(masks.window(3, 4, 0, 2)) == ["xxx.", ".xxx", "..xx"]
    assert picture(masks.window(3, 3, None, 0)) == picture(masks.causal(3))
    assert picture(masks.window(2, 3, None, None)) == ["xxx", "xxx"]
    below = {"align": "bottom-right"}
    assert picture(masks.window(2, 5, 1, 0, **below)) == ["..xx.", "...xx"]
    assert picture(masks.window(3, 2, 0, 0, **below)) == ["..", "x.", ".x"]
    assert picture(masks.window(3, 5, None, 0, **below)) == picture(masks.causal(3, 5, **below))


def test_document() -> None:
    assert picture(masks.document([7, 7, 8])) == ["xx.", "xx.", "..x"]
    assert picture(masks.document([1, 2, 1])) == ["x.x", ".x.", "x.x"]
    assert picture(masks.document([0, -1], [0, 0, -1])) == ["xx.", "..x"]
    mask = masks.document([[1, 1, 2], [1, 2, 2]], np.array([[2, 1], [3, 2]], np.uint8))
    assert mask.shape == (2, 1, 3, 2)
    assert picture(mask[0, 0]) == [".x", ".x", "x."]
    assert picture(mask[1, 0]) == ["..", ".x", ".x"]
    assert masks.document([]).shape == (0, 0)
    assert masks.document(np.zeros((B, 0), int), np.zeros((B, 3), int)).shape == (B, 1, 0, 3)


@given(seed=st.integers(0, 999))
def test_document_by_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for n_queries, n_keys in ((5, 7), (7, 3), (11, 11)):
        ids, key_ids = rng.integers(-2, 3, (B, n_queries)), rng.integers(-2, 3, (B, n_keys))
        mask = masks.document(ids, key_ids)
        assert mask.shape == (B, 1, n_queries, n_keys) and mask.dtype == bool
        for b, i, j in np.ndindex(B, n_queries, n_keys):
            assert mask[b, 0, i, j] == (ids[b, i] == key_ids[b, j])
        np.testing.assert_array_equal(masks.document(ids[0], key_ids[0]), mask[0, 0])
        np.testing.assert_array_equal(masks.document(ids), masks.document(ids, ids))


def test_packed_documents_are_as_if_each_were_alone() -> None:
    query, key, value = np.random.default_rng(1).normal(size=(3, B, H, S, 11))
    mask = masks.combine(masks.document([[0] * 3 + [1] * 4] * B), masks.causal(S))
    packed = scaled_dot_product_attention(query, key, value, mask)
    for part in (slice(0, 3), slice(3, 7)):
        alone = scaled_dot_product_attention(
            *(x[..., part, :] for x in (query, key, value)), is_causal=True
        )
        np.testing.assert_allclose(packed[..., part, :], alone, rtol=1e-12)


def test_prefix() -> None:
    assert picture(masks.prefix(2, 4)) == ["xx..", "xx..", "xxx.", "xxxx"]
    assert picture(masks.prefix(1, 2, 4)) == ["x...", "xx.."]
    assert picture(masks.prefix(3, 2, 4)) == ["xxx.", "xxx."]
    assert picture(masks.prefix(1, 2, 4, align="bottom-right")) == ["xxx.", "xxxx"]
    assert picture(masks.prefix(1, 4, 2, align="bottom-right")) == ["x.", "x.", "x.", "xx"]
    assert picture(masks.prefix(0, 3)) == picture(masks.causal(3))
    assert masks.prefix(np.uint8(3), 3).all() and masks.prefix(3, 3).all()
    mask = masks.prefix([0, 2], 3)
    assert mask.shape == (2, 1, 3, 3)
    assert picture(mask[1, 0]) == ["xx.", "xx.", "xxx"]
    assert masks.prefix([], 2, 3).shape == (0, 1, 2, 3)
    assert masks.prefix(3, 0, 3).shape == (0, 3)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 7), (7, 5), (1, 11), (3, 3)])
def test_prefix_by_loops(n_queries: int, n_keys: int) -> None:
    lengths = list(range(n_keys + 1))
    many = masks.prefix(lengths, n_queries, n_keys)
    later = masks.prefix(lengths, n_queries, n_keys, align="bottom-right")
    for length in lengths:
        single = masks.prefix(length, n_queries, n_keys)
        assert single.shape == (n_queries, n_keys)
        for i, j in np.ndindex(n_queries, n_keys):
            assert single[i, j] == many[length, 0, i, j] == (j < length or j <= i)
            assert later[length, 0, i, j] == (j < length or j <= i + n_keys - n_queries)


def press_slopes(n: int) -> list[float]:
    """Return the slopes by the rule of the paper's authors, first term and ratio."""
    power = 2 ** math.floor(math.log2(n))
    ratio = 2 ** (-(2 ** -(math.log2(power) - 3)))
    slopes = [ratio ** (h + 1) for h in range(power)]
    return slopes if power == n else slopes + press_slopes(2 * power)[0::2][: n - power]


def slopes(n_heads: int) -> Array:
    """Return what a head takes away for a distance of 1."""
    return -masks.alibi(n_heads, 2)[:, 1, 0]


def test_alibi_slopes() -> None:
    assert slopes(1).tolist() == [2**-8]
    assert slopes(2).tolist() == [2**-4, 2**-8]
    assert slopes(3).tolist() == [2**-4, 2**-8, 2**-2]  # of 4 heads: 2^-2, 2^-4, 2^-6, 2^-8
    assert slopes(6).tolist() == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    np.testing.assert_allclose(slopes(16), [2 ** (-h / 2) for h in range(1, 17)], rtol=1e-7)
    for n_heads in range(1, 70):
        assert len(slopes(n_heads)) == n_heads
        np.testing.assert_allclose(slopes(n_heads), press_slopes(n_heads), rtol=2e-7)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 7), (7, 5), (1, 11), (3, 3), (0, 3)])
@pytest.mark.parametrize("n_heads", [1, 2, 5, 8])
def test_alibi_by_loops(n_heads: int, n_queries: int, n_keys: int) -> None:
    first = masks.alibi(n_heads, n_queries, n_keys)
    last = masks.alibi(n_heads, n_queries, n_keys, align="bottom-right")
    assert first.shape == (n_heads, n_queries, n_keys) and first.dtype == np.float32
    for h, i, j in np.ndindex(*first.shape):
        slope = press_slopes(n_heads)[h]
        assert first[h, i, j] == pytest.approx(-slope * abs(i - j), rel=3e-7)
        assert last[h, i, j] == pytest.approx(-slope * abs(i + n_keys - n_queries - j), rel=3e-7)
    assert not np.signbit(first[first == 0]).any()


def test_alibi_beside_a_causal_mask_is_that_of_the_paper() -> None:
    n = 11
    mask = masks.combine(masks.alibi(8, n), masks.causal(n))
    for h, i, j in np.ndindex(8, n, n):
        # Row i of the paper's figure 3 is m · [-i, …, -1, 0], counted from 0.
        assert mask[h, i, j] == (2.0 ** -(h + 1) * [*range(-i, 1)][j] if j <= i else -np.inf)
    query, key, value = np.random.default_rng(1).normal(size=(3, B, 8, n, 5))
    ours = scaled_dot_product_attention(query, key, value, mask)
    # The authors' code adds slope · j to all rows alike: the softmax does not see the difference.
    theirs = np.array(press_slopes(8))[:, None, None] * np.arange(n)
    theirs = masks.combine(np.broadcast_to(theirs, (8, n, n)), masks.causal(n))
    np.testing.assert_allclose(
        ours, scaled_dot_product_attention(query, key, value, theirs), rtol=1e-10
    )


def test_a_step_of_decoding_is_the_last_row() -> None:
    full = masks.alibi(5, S)
    np.testing.assert_array_equal(masks.alibi(5, 2, S, align="bottom-right"), full[:, -2:])
    whole = masks.prefix(3, S)
    np.testing.assert_array_equal(masks.prefix(3, 2, S, align="bottom-right"), whole[-2:])


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_attention_takes_alibi_beside_any_dtype(name: str) -> None:
    query = np.ones((B, H, L, 2), name)
    assert scaled_dot_product_attention(query, query, query, masks.alibi(H, L)).dtype == name


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
        (lambda: masks.padding([1], 7, side="front"), ValueError,
         "side must be 'right' or 'left'; got 'front'"),
        (lambda: masks.padding([1], 7, side=None), ValueError, "'left'; got None"),
        (lambda: masks.padding([1, [2]], 7), ValueError,
         "lengths must have one dimension, (B,); got [1, [2]]"),
        (lambda: masks.padding(np.ma.array([1]), 7), TypeError,
         "lengths must be integers; got a MaskedArray, whose mask would be lost"),
        (lambda: masks.document(3), ValueError,
         "ids must have shape (L,) or (B, L); got shape ()"),
        (lambda: masks.document(np.zeros((2, 3, 5), int)), ValueError, "got shape (2, 3, 5)"),
        (lambda: masks.document([[1], [2, 3]]), ValueError, "(B, L); got [[1], [2, 3]]"),
        (lambda: masks.document([0.0, 1.0]), TypeError,
         "ids must be integers; got dtype float64"),
        (lambda: masks.document([True]), TypeError, "ids must be integers; got dtype bool"),
        (lambda: masks.document([1, 2], [1.0]), TypeError,
         "key_ids must be integers; got dtype float64"),
        (lambda: masks.document([1, 2], [[1]]), ValueError,
         "key_ids must have shape (S,) beside ids (2,); got shape (1, 1)"),
        (lambda: masks.document([[1, 2]], [1]), ValueError,
         "key_ids must have shape (1, S) beside ids (1, 2); got shape (1,)"),
        (lambda: masks.document([[1], [2]], [[1, 2, 3]]), ValueError,
         "key_ids must have shape (2, S) beside ids (2, 1); got shape (1, 3)"),
        (lambda: masks.prefix(4, 3), ValueError,
         "lengths must lie between 0 and n_keys = 3; got 4"),
        (lambda: masks.prefix([0, -1], 3), ValueError, "got [0, -1]"),
        (lambda: masks.prefix([[1]], 3), ValueError,
         "lengths must be one integer or have one dimension, (B,); got shape (1, 1)"),
        (lambda: masks.prefix(True, 3), TypeError, "lengths must be integers; got dtype bool"),
        (lambda: masks.prefix(1.0, 3), TypeError, "got dtype float64"),
        (lambda: masks.prefix(1, -3), ValueError, "n_queries must be at least 0; got -3"),
        (lambda: masks.prefix(1, 3, 2.0), TypeError, "n_keys must be an integer; got 2.0"),
        (lambda: masks.prefix(1, 3, align="left"), ValueError, "'bottom-right'; got 'left'"),
        (lambda: masks.alibi(0, 3), ValueError, "n_heads must be at least 1; got 0"),
        (lambda: masks.alibi(2.0, 3), TypeError, "n_heads must be an integer; got 2.0"),
        (lambda: masks.alibi(2, True), TypeError, "n_queries must be an integer; got True"),
        (lambda: masks.alibi(2, 3, -1), ValueError, "n_keys must be at least 0; got -1"),
        (lambda: masks.alibi(2, 3, align="top"), ValueError, "'bottom-right'; got 'top'"),
        (lambda: masks.alibi(2, 3, like="cpu"), TypeError,
         "like must be an array or a tensor; got str"),
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
    lengths = rng.integers(0, n_keys + 1, 3)
    for side in ("right", "left"):
        same(lambda x, side=side: masks.padding(x, n_keys, side=side), lengths)
    for align in ("top-left", "bottom-right"):
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
        (lambda: masks.alibi(2, 3, like=torch.float32), TypeError,
         "like must be an array or a tensor; got dtype"),
        (lambda: masks.prefix(torch.ones(2), 3), TypeError,
         "lengths must be integers; got dtype float32"),
        (lambda: masks.prefix(mask.int(), 3), ValueError,
         "lengths must be one integer or have one dimension, (B,); got shape (2, 2)"),
        (lambda: masks.document(mask), TypeError, "ids must be integers; got dtype bool"),
        (lambda: masks.document(torch.tensor([])), TypeError, "got dtype float32"),
        (lambda: masks.document(torch.tensor(1)), ValueError,
         "ids must have shape (L,) or (B, L); got shape ()"),
        (lambda: masks.document(torch.tensor([1]), [1]), TypeError,
         "key_ids must be a tensor, as ids is; got list"),
        (lambda: masks.document(np.array([1]), torch.tensor([1])), TypeError,
         "key_ids must be no tensor, because ids is none; got Tensor"),
        (lambda: masks.document(torch.tensor([1]), torch.tensor([1], device="meta")), ValueError,
         "key_ids must be on the device of ids, cpu; got meta"),
        (lambda: masks.padding(torch.ones(2), 3), TypeError,
         "lengths must be integers; got dtype float32"),
        (lambda: masks.padding(mask, 3), ValueError,
         "lengths must have one dimension, (B,); got shape (2, 2)"),
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


def test_ids_and_prefixes_may_be_unsigned() -> None:
    for dtype in (torch.uint8, torch.uint16, torch.int16):
        ids, keys = torch.tensor([1, 3], dtype=dtype), torch.tensor([3, 3, 1], dtype=torch.int32)
        assert masks.document(ids, keys).tolist() == [[False, False, True], [True, True, False]]
        assert masks.prefix(ids[1], 2, 3).all()
    high = np.array([2**64 - 1], np.uint64)
    assert not masks.document(high, np.array([-1])).any() and masks.document(high).all()


def test_new_masks_are_made_inside_vmap() -> None:
    ids = torch.tensor([[0, 0, 2], [3, 1, 3]])
    many = torch.vmap(masks.document)(ids)
    assert torch.equal(many, masks.document(ids)[:, 0])
    lengths = torch.tensor([0, 2, 3])
    prefixes = torch.vmap(lambda x: masks.prefix(x, 3))(lengths)
    assert torch.equal(prefixes, masks.prefix(lengths, 3)[:, 0])
    left = torch.vmap(lambda x: masks.padding(x, 3, side="left"))(lengths[None])
    assert torch.equal(left[0], masks.padding(lengths, 3, side="left"))
    biased = torch.vmap(lambda x: masks.alibi(5, 3, like=x) + x)(torch.zeros(2, 1))
    assert torch.equal(biased[1], masks.alibi(5, 3, like=ids))


@pytest.mark.parametrize("dynamic", [False, True])
def test_masks_are_made_inside_a_compiled_function(dynamic: bool) -> None:
    def made(x: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        n_heads, n = x.shape[-3], x.shape[-2]
        return masks.combine(
            masks.alibi(n_heads, n, like=x),
            masks.document(ids),
            masks.prefix(lengths, n),
            masks.padding(lengths + 1, n, side="left"),
        )

    compiled = torch.compile(made, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (5, 7):
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
