"""The kernels of chapter 14 compute in `attnbook.kernels` what they compute there."""

from __future__ import annotations

import math

import pytest
from implementations import array, devices, tensor
from inputs import drawn
from tolerance import assert_close, forward_size, lse_size

import attnlib
from attnlib import numpy_dense

pytest.importorskip("triton", reason="triton is for Linux")

from attnbook import kernels


@pytest.mark.skipif(
    "triton_fused" not in attnlib.implementations(), reason="neither a GPU nor the interpreter"
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_kernels_of_the_module_find_each_other(is_causal: bool) -> None:
    """The chapter has other imports. Two programs read two tiles of keys, and no size is whole."""
    [device] = devices("triton_fused")
    n_queries, n_keys, d_k, d_v = 19, 29, 5, 7
    arrays = drawn((n_queries, d_k), (n_keys, d_k), (n_keys, d_v), dtype="float32")
    query, key, value = (tensor(x, device) for x in arrays)
    output, lse = query.new_full((n_queries, d_v), math.nan), query.new_full((n_queries,), math.nan)
    sizes = n_queries, n_keys, d_k, d_v, math.log2(math.e) / math.sqrt(d_k), is_causal
    kernels.fused[(2,)](query, key, value, output, lse, *sizes, 16, 16, 16, 16)
    exact = [x.astype("float64") for x in arrays]
    right, right_lse = numpy_dense.scaled_dot_product_attention_with_lse(
        *exact, is_causal=is_causal
    )
    size = forward_size(*arrays, is_causal=is_causal)
    assert_close(array(output), right, dtype="float32", size=size)
    size = lse_size(*arrays[:2], is_causal=is_causal)
    assert_close(array(lse), right_lse, dtype="float32", size=size)
