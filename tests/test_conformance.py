"""One semantics for all: every form that `attnlib.implementations()` lists, row by row.

The truth is the token-by-token form in float64, on the same rounded inputs. That form itself is
held by hand-made numbers in test_numpy_tokenwise, and by torch at the end of this file.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import plain_torch
import pytest
import torch
from numpy.typing import NDArray
from tolerance import HALF, assert_close, forward_size

import attnlib
from attnlib import masks, numpy_tokenwise

Array = NDArray[Any]

FORMS = attnlib.implementations()
DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
B, H, L, S, E, E_V = 2, 3, 5, 7, 13, 11  # different primes: no two axes can be taken for each other

pytestmark = pytest.mark.parametrize("form", FORMS)


def drawn(*shapes: tuple[int, ...], dtype: str = "float64", spread: float = 1.5) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.normal(0, spread, shape).astype(DTYPES[dtype]) for shape in shapes]


def inputs(batch: tuple[int, ...] = (B, H), dtype: str = "float64") -> list[Array]:
    return drawn((*batch, L, E), (*batch, S, E), (*batch, S, E_V), dtype=dtype)


def with_lse(form: str) -> Callable[..., tuple[Array, Array]]:
    module = importlib.import_module(f"attnlib.{form}")
    function: Callable[..., tuple[Array, Array]] = module.scaled_dot_product_attention_with_lse
    return function


def check(form: str, query: Array, key: Array, value: Array, **options: Any) -> Array:
    """Hold output and log-sum-exp against the truth, quietly, and leave the inputs as they are."""
    mask = options.get("attn_mask")
    given = [a for a in (query, key, value, mask) if a is not None]
    before = [a.copy() for a in given]
    with np.errstate(all="raise"):
        output = FORMS[form](query, key, value, **options)
        same, lse = with_lse(form)(query, key, value, **options)
    for array, copy in zip(given, before, strict=True):
        assert array.tobytes() == copy.tobytes(), "an input was modified"
    assert output.tobytes() == same.tobytes(), "the two functions differ"
    assert output.dtype == query.dtype
    assert lse.shape == output.shape[:-1]

    dtype = query.dtype.name
    wide = [a.astype(np.float64) for a in (query, key, value)]
    if mask is not None and mask.dtype != np.bool_:
        options["attn_mask"] = mask.astype(np.float64)
    truth, true_lse = numpy_tokenwise.scaled_dot_product_attention_with_lse(*wide, **options)
    size = forward_size(query, key, value, mask, options.get("scale"))
    if dtype in HALF:
        plain = {k: options[k] for k in ("is_causal", "scale") if k in options}
        peer = plain_torch.plain(query, key, value, mask, **plain)
        assert_close(output, truth, dtype=dtype, peer=peer)
    else:
        assert_close(output, truth, dtype=dtype, size=size)
    assert_close(lse, true_lse, dtype="float32" if dtype in HALF else dtype, size=size)
    return output


def test_the_signature_is_the_one_of_torch(form: str) -> None:
    for function in (FORMS[form], with_lse(form)):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == [
            "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
        ]  # fmt: skip
        assert [p.default for p in parameters.values()][3:] == [None, 0.0, False, None, False]
        assert parameters["scale"].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters["enable_gqa"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("batch", [(), (B,), (B, H)])
def test_dtypes_and_ranks(form: str, batch: tuple[int, ...], is_causal: bool, dtype: str) -> None:
    output = check(form, *inputs(batch, dtype), is_causal=is_causal)
    assert output.shape == (*batch, L, E_V)


@pytest.mark.parametrize("n_queries", [1, 2, 7, 17])
@pytest.mark.parametrize("n_keys", [1, 2, 7, 17])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths(form: str, n_queries: int, n_keys: int, is_causal: bool) -> None:
    check(form, *drawn((n_queries, E), (n_keys, E), (n_keys, E_V)), is_causal=is_causal)


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((B, H), (H,), (H,)),
        ((H,), (B, H), (B, H)),
        ((B, 1), (1, H), (B, H)),
        ((B, H), (B, 1), (B, 1)),
        ((), (), (B, H)),
        ((H,), (1,), (B, 1)),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_leading_dimensions_broadcast(
    form: str, query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], is_causal: bool
) -> None:
    arrays = drawn((*query, L, E), (*key, S, E), (*value, S, E_V))
    output = check(form, *arrays, is_causal=is_causal)
    assert output.shape == (*np.broadcast_shapes(query, key, value), L, E_V)


MASK_SHAPES = [(S,), (1, S), (L, 1), (L, S), (H, L, S), (B, 1, 1, S), (B, H, L, S), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", MASK_SHAPES)
def test_true_takes_part(form: str, shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(3).random(shape) < 0.6
    query, key, value = inputs()
    output = check(form, query, key, value, attn_mask=mask)
    for b, h, i in np.ndindex(B, H, L):  # the same by hand: leave the other keys out
        kept = np.broadcast_to(mask, (B, H, L, S))[b, h, i]
        alone = FORMS[form](query[b, h, i : i + 1], key[b, h, kept], value[b, h, kept])
        np.testing.assert_allclose(output[b, h, i], alone[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask_dtype", ["same", "float32"])
@pytest.mark.parametrize("shape", MASK_SHAPES)
def test_a_floating_mask_is_added_to_the_scaled_scores(
    form: str, shape: tuple[int, ...], mask_dtype: str, dtype: str
) -> None:
    mask = np.random.default_rng(3).normal(0, 2, shape)
    mask = mask.astype(DTYPES[dtype if mask_dtype == "same" else mask_dtype])
    check(form, *inputs(dtype=dtype), attn_mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_infinity_removes_as_false_does(form: str, dtype: str) -> None:
    kept = np.random.default_rng(3).random((H, L, S)) < 0.6
    kept[:, 2] = False
    additive = np.where(kept, 0, -np.inf).astype(DTYPES[dtype])
    query, key, value = inputs(dtype=dtype)
    boolean, floating = (FORMS[form](query, key, value, m) for m in (kept, additive))
    assert boolean.tobytes() == floating.tobytes()


def test_a_mask_may_have_the_batch_that_only_the_value_has(form: str) -> None:
    mask = np.random.default_rng(3).random((B, 1, L, S)) < 0.6
    check(form, *drawn((L, E), (S, E), (B, H, S, E_V)), attn_mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [0, 0.0, -0.7, 2, 3.5, np.float32(0.25), np.float64(-1.5)])
def test_any_finite_scale(form: str, scale: float, is_causal: bool, dtype: str) -> None:
    check(form, *inputs((), dtype), scale=scale, is_causal=is_causal)


def test_scale_zero_gives_the_mean_of_what_takes_part(form: str) -> None:
    query, key, value = inputs(())
    output = FORMS[form](query, key, value, is_causal=True, scale=0.0)
    for i in range(L):
        np.testing.assert_allclose(output[i], value[: i + 1].mean(axis=0), rtol=1e-13)


def test_causal_is_aligned_at_the_top_left(form: str) -> None:
    for n_queries, n_keys in ((L, S), (S, L)):
        query, key, value = drawn((n_queries, E), (n_keys, E), (n_keys, E_V))
        output = check(form, query, key, value, is_causal=True)
        mask = masks.causal(n_queries, n_keys)
        assert output.tobytes() == FORMS[form](query, key, value, mask).tobytes()
        np.testing.assert_allclose(output[0], value[0], rtol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("additive", [False, True])
def test_a_row_with_nothing_to_attend_to_gives_zeros(form: str, additive: bool, dtype: str) -> None:
    mask: Array = np.ones((L, S), dtype=bool)
    mask[1] = mask[3] = False
    if additive:
        mask = np.where(mask, 0, -np.inf).astype(np.float32)
    query, key, value = inputs(dtype=dtype)
    with np.errstate(all="raise"):
        output, lse = with_lse(form)(query, key, value, mask)
    empty = np.array([False, True, False, True, False])
    assert np.all(output[..., empty, :] == 0)
    assert np.all(lse[..., empty] == -np.inf)
    alone = with_lse(form)(query, key, value)
    assert output[..., ~empty, :].tobytes() == alone[0][..., ~empty, :].tobytes()
    assert lse[..., ~empty].tobytes() == alone[1][..., ~empty].tobytes()


@pytest.mark.parametrize(
    ("batch", "n_queries", "n_keys", "n_features", "n_values"),
    [
        ((B, H), L, 0, E, E_V),
        ((B, H), 0, S, E, E_V),
        ((B, 0), L, S, E, E_V),
        ((B, H), L, S, 0, E_V),
        ((B, H), L, S, E, 0),
        ((), 0, 0, 0, 0),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty_axes(
    form: str, batch: tuple[int, ...], n_queries: int, n_keys: int, n_features: int, n_values: int,
    is_causal: bool,
) -> None:  # fmt: skip
    query, key, value = drawn(
        (*batch, n_queries, n_features), (*batch, n_keys, n_features), (*batch, n_keys, n_values)
    )
    output = check(form, query, key, value, is_causal=is_causal)
    assert output.shape == (*batch, n_queries, n_values)
    if n_keys == 0:
        _, lse = with_lse(form)(query, key, value, is_causal=is_causal)
        assert np.all(output == 0)
        assert np.all(lse == -np.inf)
    if n_features == 0 and n_queries and not is_causal:
        mean = np.broadcast_to(value.mean(axis=-2, keepdims=True), output.shape)
        np.testing.assert_allclose(output, mean, rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_very_negative_scores_are_uniform(form: str, dtype: str) -> None:
    query, key, value = inputs((), dtype)
    mask = np.full((L, S), np.finfo(np.float32).min, dtype=np.float32)
    output = FORMS[form](np.zeros_like(query), key, value, mask)
    mean = np.broadcast_to(value.astype(np.float64).mean(axis=0), output.shape)
    peer = np.broadcast_to(plain_torch.array(plain_torch.tensor(value).mean(0)), output.shape)
    size = forward_size(np.zeros_like(query), key, value)
    assert_close(output, mean, dtype=dtype, size=size, peer=peer)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_scores_of_ten_thousand(form: str, sign: float, dtype: str) -> None:
    query, key, value = inputs((), "float64")
    query, key = np.abs(query) * 100, sign * np.abs(key) * 100  # all scores of one sign
    arrays = [a.astype(DTYPES[dtype]) for a in (query, key, value)]
    check(form, *arrays, scale=0.1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_beyond_float16_do_not_overflow(form: str, dtype: str) -> None:
    query, key = (np.full((1, E), x, dtype=DTYPES[dtype]) for x in (200.0, 300.0))
    output, lse = with_lse(form)(query, key, np.ones((1, E_V), dtype=DTYPES[dtype]), scale=1.0)
    assert np.all(output == 1)
    assert lse == E * 200 * 300  # above 65,504


@pytest.mark.parametrize(
    ("where", "spoilt"),
    [
        ("query", np.s_[1, 3]),  # the row that asks
        ("key", np.s_[1]),  # every row that this key answers
        ("value", np.s_[1, :, 2]),  # this feature in every row
    ],
)
def test_nan_comes_out_where_it_takes_part(form: str, where: str, spoilt: Any) -> None:
    arrays = dict(zip(("query", "key", "value"), inputs((H,)), strict=True))
    arrays[where][1, 3, 2] = np.nan
    nan = np.zeros((H, L, E_V), dtype=bool)
    nan[spoilt] = True
    np.testing.assert_array_equal(np.isnan(check(form, **arrays)), nan)


@pytest.mark.parametrize("last", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_not_finite_follows_the_definition(
    form: str, is_causal: bool, where: str, last: float
) -> None:
    arrays = dict(zip(("query", "key", "value"), inputs((H,)), strict=True))
    arrays[where][1, 2, 3] = last
    check(form, **arrays, is_causal=is_causal)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("additive", [False, True])
def test_what_is_removed_changes_nothing(form: str, additive: bool, bad: float) -> None:
    query, key, value = inputs()
    kept = np.ones((L, S), dtype=bool)
    kept[:, [2, 6]] = False
    mask: Array = np.where(kept, 0.0, -np.inf) if additive else kept
    clean = check(form, query, key, value, attn_mask=mask)
    key[..., [2, 6], :] = bad
    value[..., [2, 6], :] = bad
    dirty = check(form, query, key, value, attn_mask=mask)
    np.testing.assert_allclose(dirty, clean, rtol=1e-13, atol=1e-14)


def test_a_future_nan_does_not_reach_the_past(form: str) -> None:
    query, key, value = inputs((H,))
    clean = FORMS[form](query, key, value, is_causal=True)
    key[:, 3] = value[:, 3] = np.nan
    dirty = check(form, query, key, value, is_causal=True)
    np.testing.assert_allclose(dirty[:, :3], clean[:, :3], rtol=1e-13, atol=1e-14)
    assert np.isnan(dirty[:, 3:]).all()


def test_nan_in_an_empty_row_gives_zeros(form: str) -> None:
    query, key, value = inputs(())
    query[2] = np.nan
    output = check(form, query, key, value, attn_mask=np.arange(L)[:, None] != 2)
    assert np.all(output[2] == 0)


def test_nan_in_a_floating_mask_comes_out(form: str) -> None:
    mask = np.zeros((L, S))
    mask[2, 3] = np.nan
    mask[2, 4] = -np.inf
    output = check(form, *inputs(()), attn_mask=mask)
    np.testing.assert_array_equal(np.isnan(output).all(axis=-1), np.arange(L) == 2)


def test_only_scores_of_minus_infinity_give_zeros(form: str) -> None:
    query, key, value = inputs(())
    query[1], key[:] = np.inf, -np.abs(key)
    output = check(form, query, key, value)
    assert np.all(output[1] == 0)


@pytest.mark.parametrize("n_key_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_heads(form: str, is_causal: bool, n_key_heads: int) -> None:
    n_heads = 6
    query, key, value = drawn((B, n_heads, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V))
    output = check(form, query, key, value, is_causal=is_causal, enable_gqa=True)
    for h in range(n_heads):
        g = h // (n_heads // n_key_heads)
        alone = FORMS[form](query[:, h], key[:, g], value[:, g], is_causal=is_causal)
        np.testing.assert_allclose(output[:, h], alone, rtol=1e-12, atol=1e-13)


def test_grouped_heads_without_a_batch_and_with_a_mask(form: str) -> None:
    query, key, value = drawn((6, L, E), (2, S, E), (2, S, E_V))
    mask = np.random.default_rng(3).random((6, 1, S)) < 0.6
    check(form, query, key, value, attn_mask=mask, enable_gqa=True)


def transposed(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(-1, -3)).swapaxes(-1, -3)


def strided(array: Array) -> Array:
    holder = np.full((*array.shape[:-1], 3 * array.shape[-1]), np.nan, dtype=array.dtype)
    holder[..., ::3] = array
    return holder[..., ::3]


def backwards(array: Array) -> Array:
    return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:].view(np.uint8)
    view: Array = np.ndarray(array.shape, array.dtype, buffer=raw.data)
    view[...] = array
    return view


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [transposed, strided, backwards, read_only, unaligned])
def test_layout_does_not_matter(form: str, layout: Callable[[Array], Array], dtype: str) -> None:
    arrays = inputs(dtype=dtype)
    laid_out = [layout(array) for array in arrays]
    for array, view in zip(arrays, laid_out, strict=True):
        np.testing.assert_array_equal(view, array)
    check(form, *laid_out, attn_mask=layout(np.random.default_rng(3).random((B, H, L, S)) < 0.6))


def test_expanded_views(form: str) -> None:
    query, key, value = drawn((L, E), (1, E), (1, E_V))
    query = np.broadcast_to(query, (B, H, L, E))
    key, value = np.broadcast_to(key, (B, H, S, E)), np.broadcast_to(value, (B, H, S, E_V))
    assert query.strides[:2] == (0, 0)
    assert key.strides[:3] == (0, 0, 0)
    output = check(form, query, key, value, attn_mask=np.broadcast_to(np.True_, (B, H, L, S)))
    np.testing.assert_allclose(output, np.broadcast_to(value[0, 0, 0], output.shape), rtol=1e-14)


def test_the_result_is_nobody_elses_memory(form: str) -> None:
    query, key, value = inputs((H,))
    output, lse = with_lse(form)(query, key, value)
    for array in (output, lse):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, given) for given in (query, key, value))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.9])
def test_torch_agrees(form: str, scale: float | None, is_causal: bool) -> None:
    query, key, value = inputs()
    output = FORMS[form](query, key, value, is_causal=is_causal, scale=scale)
    peer = plain_torch.fused(query, key, value, is_causal=is_causal, scale=scale)
    size = forward_size(query, key, value, scale=scale)
    assert_close(output, peer, dtype="float64", size=size)


@pytest.mark.parametrize("shape", MASK_SHAPES[1:])
@pytest.mark.parametrize("additive", [False, True])
def test_torch_agrees_on_masks(form: str, additive: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    mask: Array = rng.normal(0, 2, shape) if additive else rng.random(shape) < 0.7
    query, key, value = inputs()
    output = FORMS[form](query, key, value, mask)
    size = forward_size(query, key, value, mask)
    assert_close(output, plain_torch.fused(query, key, value, mask), dtype="float64", size=size)


def test_torch_agrees_on_grouped_heads(form: str) -> None:
    query, key, value = drawn((B, 6, L, E), (B, 2, S, E), (B, 2, S, E_V))
    output = FORMS[form](query, key, value, enable_gqa=True)
    peer = plain_torch.fused(query, key, value, enable_gqa=True)
    assert_close(output, peer, dtype="float64", size=forward_size(query, key, value))


def test_torch_agrees_on_the_log_sum_exp(form: str) -> None:
    query, key, value = inputs()
    _, lse = with_lse(form)(query, key, value)
    scores = plain_torch.tensor(query) @ plain_torch.tensor(key).mT / E**0.5
    peer = torch.logsumexp(scores, dim=-1).numpy()
    assert_close(lse, peer, dtype="float64", size=forward_size(query, key, value))
