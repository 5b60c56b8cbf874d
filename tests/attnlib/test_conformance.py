"""What every form of `attnlib.implementations()` promises beyond the cases of `test_cases`.

The truth is the token-by-token form in float64, on the same rounded inputs. That form itself is
held by hand-made numbers in test_numpy_tokenwise, and by torch at the end of this file.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from inputs import (
    E_V,
    MASK_SHAPES,
    B,
    E,
    H,
    L,
    S,
    drawn,
    some,
)
from numpy.typing import NDArray
from rungs import DTYPES, RUNGS, Rung, every_rung, on
from tolerance import HALF, assert_close, forward_size, lse_size

from attnlib import masks, numpy_tokenwise

Array = NDArray[Any]


def inputs(batch: tuple[int, ...] = (B, H), dtype: str = "float64") -> list[Array]:
    return drawn((*batch, L, E), (*batch, S, E), (*batch, S, E_V), dtype=dtype)


def check(rung: Rung, query: Array, key: Array, value: Array, **options: Any) -> Array:
    """Hold output and log-sum-exp against the truth."""
    output = rung(query, key, value, **options)
    same, lse = rung.with_lse(query, key, value, **options)
    assert output.tobytes() == same.tobytes(), "the two functions differ"
    assert output.dtype == query.dtype
    assert lse.shape == output.shape[:-1]
    assert lse.dtype.name in (
        "float64",
        "float32" if query.dtype.name in HALF else query.dtype.name,
    )

    dtype, mask, scale = query.dtype.name, options.pop("attn_mask", None), options.get("scale")
    wide = [a.astype(np.float64) for a in (query, key, value)]
    wide_mask = mask if mask is None or mask.dtype == np.bool_ else mask.astype(np.float64)
    truth, true_lse = numpy_tokenwise.scaled_dot_product_attention_with_lse(
        *wide, wide_mask, **options
    )
    if dtype in HALF:
        peer = plain_torch.plain(query, key, value, mask, **options)
        assert_close(output, truth, dtype=dtype, peer=peer)
    else:
        size = forward_size(query, key, value, mask, scale)
        assert_close(output, truth, dtype=dtype, size=size)
    sums = "float32" if dtype in HALF else dtype
    assert_close(lse, true_lse, dtype=sums, size=lse_size(query, key, mask, scale))
    return output


@every_rung
def test_the_signature_is_the_one_of_torch(rung: Rung) -> None:
    for suffix in ("", "_with_lse"):
        function = rung.function(f"scaled_dot_product_attention{suffix}")
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:8] == [
            "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
        ]  # fmt: skip
        assert [p.default for p in parameters.values()][3:8] == [None, 0.0, False, None, False]
        for name, parameter in list(parameters.items())[6:]:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            known = name in ("scale", "enable_gqa", "causal_align", "window", "deterministic")
            assert known or name.startswith("block_size") or name in ("n_devices", "balance")


@every_rung
@pytest.mark.parametrize("shape", [(H, L, S), (B, 1, 1, S)])
def test_true_takes_part(rung: Rung, shape: tuple[int, ...]) -> None:
    mask = some(shape)
    query, key, value = inputs()
    output = check(rung, query, key, value, attn_mask=mask)
    for b, h, i in np.ndindex(B, H, L):  # the same by hand: leave the other keys out
        kept = np.broadcast_to(mask, (B, H, L, S))[b, h, i]
        alone = rung(query[b, h, i : i + 1], key[b, h, kept], value[b, h, kept])
        np.testing.assert_allclose(output[b, h, i], alone[0], rtol=1e-12, atol=1e-13)


@on(RUNGS, dtypes=DTYPES)
def test_minus_infinity_removes_as_false_does(rung: Rung, dtype: str) -> None:
    kept = some((H, L, S))
    kept[:, 2] = False
    additive = np.where(kept, 0, -np.inf).astype(DTYPES[dtype])
    arrays = inputs(dtype=dtype)
    boolean, floating = (check(rung, *arrays, attn_mask=m) for m in (kept, additive))
    np.testing.assert_array_equal(boolean, floating)


@on(RUNGS, dtypes=["bfloat16", "float64"])
@pytest.mark.parametrize("scale", [0, np.float32(0.25), np.float64(-1.5)])
def test_a_scale_of_another_type(rung: Rung, scale: float, dtype: str) -> None:
    check(rung, *inputs((), dtype), scale=scale, is_causal=True)


@on(RUNGS, dtypes=["float16", "float32"])
@pytest.mark.parametrize("scale", [1e39, -1e39, 1e300])
def test_a_scale_beyond_the_dtype_is_no_nan(rung: Rung, dtype: str, scale: float) -> None:
    query = np.array([[0.0], [1.0]], dtype)
    key, value = np.array([[1.0], [2.0], [2.0]], dtype), np.array([[0.0], [3.0], [5.0]], dtype)
    # The query 0 sees all keys alike; the other picks the largest keys, or the smallest.
    expected = np.array([[8 / 3], [4.0 if scale > 0 else 0.0]])
    size = forward_size(query, key, value, scale=1.0)
    peer = expected.astype(dtype)
    assert_close(rung(query, key, value, scale=scale), expected, dtype=dtype, size=size, peer=peer)


@every_rung
@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e38), ("float64", -1e308)])
def test_a_large_scale_does_not_overflow_on_the_way(rung: Rung, dtype: str, scale: float) -> None:
    """q · scale is beyond the dtype, and the score is not."""
    query, value = np.array([[10.0]], dtype), np.array([[3.0], [5.0]], dtype)
    key = np.array([[0.0], [1e7 / scale]], dtype)
    np.testing.assert_array_equal(rung(query, key, value, scale=scale), [[5.0]])


@every_rung
def test_a_tiny_scale_does_not_vanish_on_the_way(rung: Rung) -> None:
    """The scale is 0 in float32, the product of query and key ∞; the score is neither."""
    query, key = np.array([[1e25]], "float32"), np.array([[1e25], [-1e25]], "float32")
    output = rung(query, key, np.array([[1.0], [2.0]], "float32"), scale=1e-50)
    np.testing.assert_allclose(output, [[1 + 1 / (1 + np.e**2)]], rtol=1e-6)


@every_rung
def test_causal_is_aligned_at_the_top_left(rung: Rung) -> None:
    for n_queries, n_keys in ((L, S), (S, L)):
        query, key, value = drawn((n_queries, E), (n_keys, E), (n_keys, E_V))
        output = check(rung, query, key, value, is_causal=True)
        size = 2 * forward_size(query, key, value)
        masked = rung(query, key, value, masks.causal(n_queries, n_keys))
        assert_close(output, masked, dtype="float64", size=size)
        np.testing.assert_allclose(output[0], value[0], rtol=1e-15)


@on(RUNGS, dtypes=DTYPES)
@pytest.mark.parametrize("additive", [False, True])
def test_an_empty_row_gives_zeros(rung: Rung, additive: bool, dtype: str) -> None:
    empty = np.array([False, True, False, True, False])
    mask: Array = np.broadcast_to(~empty[:, None], (L, S))
    if additive:
        mask = np.where(mask, 0, -np.inf).astype(np.float32)
    arrays = inputs(dtype=dtype)
    output = check(rung, *arrays, attn_mask=mask)
    _, lse = rung.with_lse(*arrays, mask)
    assert np.all(output[..., empty, :] == 0)
    assert np.all(lse[..., empty] == -np.inf)
    assert np.all(output[..., ~empty, :] != 0)
    assert np.isfinite(lse[..., ~empty]).all()


@on(RUNGS, dtypes=DTYPES)
def test_equal_very_negative_scores_are_uniform(rung: Rung, dtype: str) -> None:
    query, key, value = inputs((), dtype)
    mask = np.full((L, S), np.finfo(np.float32).min, dtype=np.float32)
    output = rung(np.zeros_like(query), key, value, mask)
    mean = np.broadcast_to(value.astype(np.float64).mean(axis=0), output.shape)
    alike = np.zeros_like(query)
    peer = plain_torch.plain(alike, key, value)  # without the mask, which float16 cannot hold
    assert_close(output, mean, dtype=dtype, size=forward_size(alike, key, value), peer=peer)


@every_rung
def test_the_lse_keeps_its_dtype_at_any_scale(rung: Rung) -> None:
    ones = np.ones((2, 3), np.float32)
    for scale in (0.0, 0.5, 1e39):
        _, lse = rung.with_lse(ones, ones, ones, scale=scale)
        assert lse.dtype == ("float64" if rung.name == "numpy_tokenwise" else "float32")


@every_rung
@pytest.mark.parametrize("low", [-1e4, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("scale", [None, 1.3, 49.0])
def test_keys_below_a_finite_mask_leave_the_others_as_they_are(
    rung: Rung, low: float, scale: float | None
) -> None:
    """As the padding on the left of a batch: whole blocks of it, before the first token."""
    query, key, value = drawn((L, E), (70, E), (70, E_V), dtype="float32")
    hidden = np.arange(70) < np.array([[0], [3], [40], [64], [69]])
    mask = np.where(hidden, low, 0).astype(np.float32)
    truth, true_lse = numpy_tokenwise.scaled_dot_product_attention_with_lse(
        *(a.astype(np.float64) for a in (query, key, value)), ~hidden, scale=scale
    )
    output, lse = rung.with_lse(query, key, value, mask, scale=scale)
    size = forward_size(query, key, value, None, scale)
    assert_close(output, truth, dtype="float32", size=size)
    assert_close(lse, true_lse, dtype="float32", size=lse_size(query, key, None, scale))
    mask[:] = low  # all alike: as if there were none
    output = rung(np.zeros_like(query), key, value, mask, scale=scale)
    mean = np.broadcast_to(value.mean(axis=0, dtype=np.float64), output.shape)
    assert_close(output, mean, dtype="float32", size=forward_size(np.zeros_like(query), key, value))


def without_future(way: str, n_queries: int, n_keys: int, dtype: Any = np.float64) -> Any:
    """Return the option that removes the future, in one of three ways."""
    part = masks.causal(n_queries, n_keys)
    floating = np.where(part, 0, -np.inf).astype(dtype)
    return {
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": part},
        "floating": {"attn_mask": floating},
    }[way]


@on(RUNGS, dtypes=HALF)
@pytest.mark.parametrize("is_causal", [False, True])
def test_half_precision_is_float32_rounded(rung: Rung, is_causal: bool, dtype: str) -> None:
    arrays = inputs(dtype=dtype)
    output, lse = rung.with_lse(*arrays, is_causal=is_causal)
    wide, wide_lse = rung.with_lse(*(a.astype(np.float32) for a in arrays), is_causal=is_causal)
    assert_close(lse, wide_lse, dtype="float32", size=2 * lse_size(*arrays[:2]))
    if rung.rounds_once:
        np.testing.assert_array_equal(output, wide.astype(DTYPES[dtype]))


@every_rung
@pytest.mark.parametrize("last", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_not_finite_follows_the_definition(
    rung: Rung, is_causal: bool, where: str, last: float
) -> None:
    arrays = dict(zip(("query", "key", "value"), inputs((H,)), strict=True))
    arrays[where][1, 2, 3] = last
    if not (is_causal and where == "value" and rung.multiplies_removed_values):
        check(rung, **arrays, is_causal=is_causal)
        return
    output = rung(**arrays, is_causal=True)  # 0 · NaN and 0 · ∞ are NaN, in rows 0 and 1
    assert np.isnan(output[1, :2, 3]).all() or rung.name == "torch_ring"  # if they have one part
    finite = np.isfinite(output)
    finite[1, :, 3] |= ~np.isfinite(output[1, :, 3])
    assert finite.all()
    np.testing.assert_array_equal(output[1, 2:, 3], np.full(L - 2, last))


@every_rung
@pytest.mark.parametrize("way", ["causal", "boolean", "floating"])
def test_a_future_nan_does_not_reach_the_past(rung: Rung, way: str) -> None:
    query, key, value = inputs((H,))
    options = without_future(way, L, S)
    clean = rung(query, key, value, **options)
    key[:, 3] = np.nan
    if not rung.multiplies_removed_values:
        value[:, 3] = np.nan
    dirty = check(rung, query, key, value, **options)
    np.testing.assert_allclose(dirty[:, :3], clean[:, :3], rtol=1e-13, atol=1e-14)
    assert np.isnan(dirty[:, 3:]).all()


@every_rung
def test_nan_in_a_floating_mask_comes_out(rung: Rung) -> None:
    mask = np.zeros((L, S))
    mask[2, 3] = np.nan
    mask[2, 4] = -np.inf
    output = check(rung, *inputs(()), attn_mask=mask)
    np.testing.assert_array_equal(np.isnan(output).all(axis=-1), np.arange(L) == 2)


@every_rung
def test_only_scores_of_minus_infinity_give_zeros(rung: Rung) -> None:
    query, key, value = inputs(())
    query[1], key[:] = np.inf, -np.abs(key)
    output = check(rung, query, key, value)
    assert np.all(output[1] == 0)


@every_rung
@pytest.mark.parametrize("n_key_heads", [2, 6])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_heads(rung: Rung, is_causal: bool, n_key_heads: int) -> None:
    n_heads = 6
    query, key, value = drawn((B, n_heads, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V))
    output = check(rung, query, key, value, is_causal=is_causal, enable_gqa=True)
    for h in range(n_heads):
        g = h // (n_heads // n_key_heads)
        alone = rung(query[:, h], key[:, g], value[:, g], is_causal=is_causal)
        np.testing.assert_allclose(output[:, h], alone, rtol=1e-12, atol=1e-13)


@every_rung
def test_the_result_is_nobody_elses_memory(rung: Rung) -> None:
    query, key, value = inputs((H,))
    output, lse = rung.with_lse(query, key, value)
    for array in (output, lse):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, given) for given in (query, key, value))


@every_rung
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.9])
def test_torch_agrees(rung: Rung, scale: float | None, is_causal: bool) -> None:
    query, key, value = inputs()
    output = rung(query, key, value, is_causal=is_causal, scale=scale)
    peer = plain_torch.fused(query, key, value, is_causal=is_causal, scale=scale)
    size = forward_size(query, key, value, scale=scale)
    assert_close(output, peer, dtype="float64", size=size)


@every_rung
@pytest.mark.parametrize("shape", MASK_SHAPES[1:])
@pytest.mark.parametrize("additive", [False, True])
def test_torch_agrees_on_masks(rung: Rung, additive: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    mask: Array = rng.normal(0, 2, shape) if additive else rng.random(shape) < 0.7
    query, key, value = inputs()
    output = rung(query, key, value, mask)
    size = forward_size(query, key, value, mask)
    assert_close(output, plain_torch.fused(query, key, value, mask), dtype="float64", size=size)


@every_rung
def test_torch_agrees_on_grouped_heads(rung: Rung) -> None:
    query, key, value = drawn((B, 6, L, E), (B, 2, S, E), (B, 2, S, E_V))
    output = rung(query, key, value, enable_gqa=True)
    peer = plain_torch.fused(query, key, value, enable_gqa=True)
    assert_close(output, peer, dtype="float64", size=forward_size(query, key, value))


@every_rung
def test_torch_agrees_on_the_log_sum_exp(rung: Rung) -> None:
    query, key, value = inputs()
    _, lse = rung.with_lse(query, key, value)
    scores = plain_torch.tensor(query) @ plain_torch.tensor(key).mT / E**0.5
    peer = torch.logsumexp(scores, dim=-1).numpy()
    assert_close(lse, peer, dtype="float64", size=forward_size(query, key, value))
