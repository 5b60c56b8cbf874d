"""What every form of `attnlib.implementations()` promises beyond the cases of `test_cases`.

There the truth is the token-by-token form in float64. That form itself is held by hand-made
numbers in test_numpy_tokenwise, by sums in longdouble in test_fuzz, and by torch here.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import plain_torch
import pytest
from inputs import (
    E_V,
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

from attnlib import numpy_tokenwise

Array = NDArray[Any]


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
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": some((L, S))}])
def test_both_functions_give_one_output(rung: Rung, options: dict[str, Any]) -> None:
    arrays = drawn((H, L, E), (H, S, E), (H, S, E_V))
    output, lse = rung.with_lse(*arrays, **options)
    assert rung(*arrays, **options).tobytes() == output.tobytes()
    assert lse.shape == output.shape[:-1]


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
def test_the_lse_keeps_its_dtype_at_any_scale(rung: Rung) -> None:
    ones = np.ones((2, 3), np.float32)
    for scale in (0.0, 0.5, 1e39):
        _, lse = rung.with_lse(ones, ones, ones, scale=scale)
        assert lse.dtype == ("float64" if rung.name == "numpy_tokenwise" else "float32")


@on(RUNGS, dtypes=HALF)
@pytest.mark.parametrize("is_causal", [False, True])
def test_half_precision_is_float32_rounded(rung: Rung, is_causal: bool, dtype: str) -> None:
    arrays = drawn((B, H, L, E), (B, H, S, E), (B, H, S, E_V), dtype=dtype)
    output, lse = rung.with_lse(*arrays, is_causal=is_causal)
    wide, wide_lse = rung.with_lse(*(a.astype(np.float32) for a in arrays), is_causal=is_causal)
    assert_close(lse, wide_lse, dtype="float32", size=2 * lse_size(*arrays[:2]))
    if rung.rounds_once:
        np.testing.assert_array_equal(output, wide.astype(DTYPES[dtype]))


@on(RUNGS, dtypes=["float32", "float64"])
def test_the_mean_of_one_low_number_is_itself(rung: Rung, dtype: str) -> None:
    """It may lie within a thousandth of the lowest number; with NumPy it may be that number."""
    lowest = np.finfo(dtype).min * (0.999 if rung.on_tensors else 1)
    query, key = drawn((L, E), (S, E), dtype=dtype)
    value = np.full((S, 1), lowest, dtype)
    np.testing.assert_allclose(rung(query, key, value), lowest, rtol=1e-5)


@every_rung
def test_only_scores_of_minus_infinity_give_zeros(rung: Rung) -> None:
    query, key, value = drawn((L, E), (S, E), (S, E_V))
    query[1], key[:] = np.inf, -np.abs(key)
    output, lse = rung.with_lse(query, key, value)
    assert np.all(output[1] == 0) and lse[1] == -np.inf
    assert np.isfinite(output).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "scale": 0.9},
        {"attn_mask": some((H, L, S))},
        {"attn_mask": drawn((B, 1, 1, S))[0]},
        {"enable_gqa": True},
    ],
)
def test_torch_agrees_with_the_definition(options: dict[str, Any]) -> None:
    n_heads = 2 * H if "enable_gqa" in options else H
    query, key, value = drawn((B, n_heads, L, E), (B, H, S, E), (B, H, S, E_V))
    output = numpy_tokenwise.scaled_dot_product_attention(query, key, value, **options)
    size = forward_size(query, key, value, options.get("attn_mask"), options.get("scale"))
    assert_close(
        output, plain_torch.fused(query, key, value, **options), dtype="float64", size=size
    )


@on(rung for rung in RUNGS if not rung.on_tensors)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_signalling_nan_comes_out_and_warns_nobody(rung: Rung, place: int) -> None:
    arrays = drawn((2, 3), (2, 3), (2, 3), dtype="float32")
    arrays[place] = np.full((2, 3), 0x7F800001, dtype=np.uint32).view(np.float32)
    assert np.isnan(rung(*arrays)).all()


@on(rung for rung in RUNGS if not rung.on_tensors)
def test_arguments_are_described_once_in_each_docstring(rung: Rung) -> None:
    function = rung.function() if not rung.blocks else rung.function().func  # type: ignore[attr-defined]
    said = inspect.getdoc(function) or ""
    assert said.startswith("Return ")
    for section in ("Args:", "Shapes:", "Raises:", "Source:", "Example:"):
        assert said.count(f"\n{section}\n") == 1
    for name in ("query", "attn_mask", "scale", "causal_align", "window"):
        assert f"\n    {name}" in said
    assert said.index("Example:") > said.index("Raises:")
