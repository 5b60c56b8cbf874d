"""What `torch_dense` promises beyond the contract of all rungs: see test_conformance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib import numpy_dense, torch_dense
from attnlib.torch_dense import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

B, H, L, S, E, E_V = 2, 3, 5, 7, 4, 6
CASES = ["full", "causal", "boolean", "floating", "grouped"]


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


def kept() -> Tensor:
    """Return a mask with an empty row, and with a key that no row sees."""
    mask = torch.from_numpy(np.random.default_rng(3).random((L, S)) < 0.6)
    mask[2] = mask[:, 3] = False
    return mask


def case(name: str) -> tuple[list[Tensor], dict[str, Any]]:
    heads = 1 if name == "grouped" else H
    tensors = [drawn(B, H, L, E), drawn(B, heads, S, E), drawn(B, heads, S, E_V)]
    additive = torch.where(kept(), drawn(L, S), -math.inf)
    options: dict[str, Any] = {
        "full": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": kept()},
        "floating": {"attn_mask": additive},
        "grouped": {"attn_mask": kept(), "enable_gqa": True},
    }[name]
    return tensors, options


def both(name: str) -> tuple[list[Tensor], Callable[..., tuple[Tensor, Tensor]]]:
    """Return inputs, and a function of them whose results are finite."""
    tensors, options = case(name)

    def attend(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = scaled_dot_product_attention_with_lse(*tensors, **options)
        return output, lse.masked_fill(lse == -math.inf, 0)

    return tensors, attend


@pytest.mark.parametrize("name", CASES)
def test_the_steps_are_those_of_numpy_dense(name: str) -> None:
    (query, key, _), options = case(name)
    options.pop("enable_gqa", None)
    arrays = {k: v.numpy() if isinstance(v, Tensor) else v for k, v in options.items()}
    weights = torch_dense.attention_weights(query, key, **options, scale=0.7)
    truth = numpy_dense.attention_weights(query.numpy(), key.numpy(), **arrays, scale=0.7)
    np.testing.assert_allclose(weights.numpy(), truth, rtol=1e-12, atol=1e-15)
    scores = torch_dense.attention_scores(query, key, scale=-2.5)
    truth = numpy_dense.attention_scores(query.numpy(), key.numpy(), scale=-2.5)
    np.testing.assert_allclose(scores.numpy(), truth, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_steps_are_computed_wide_and_rounded_once(dtype: torch.dtype) -> None:
    X, W, key = (drawn(*shape, dtype=dtype) for shape in [(B, L, E), (E, 3), (B, S, E)])
    wide, W_wide, key_wide = X.float(), W.float(), key.float()
    for narrow, truth in [
        (torch_dense.project(X, W), torch_dense.project(wide, W_wide)),
        (torch_dense.attention_scores(X, key), torch_dense.attention_scores(wide, key_wide)),
        (torch_dense.attention_weights(X, key), torch_dense.attention_weights(wide, key_wide)),
        (torch_dense.softmax(X), torch_dense.softmax(wide)),
    ]:
        assert truth.dtype == torch.float32
        assert torch.equal(narrow, truth.to(dtype))


def test_a_large_scale_does_not_overflow_on_the_way() -> None:
    query, key = torch.full((1, 1), 3e38), torch.full((2, 1), 1e-38)
    scores = torch_dense.attention_scores(query, key, scale=1.5)
    torch.testing.assert_close(scores, torch.full((1, 2), 4.5))


def test_softmax() -> None:
    scores = drawn(B, L, S)
    scores[0, 1] = -math.inf
    before = scores.clone()
    for dim in (0, 1, -1):
        truth = numpy_dense.softmax(scores.numpy(), dim)
        np.testing.assert_allclose(torch_dense.softmax(scores, dim).numpy(), truth, rtol=1e-13)
    assert torch.equal(scores, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options", [{"is_causal": True, "scale": 0.3}, {"attn_mask": drawn(L, L, seed=9)}]
)
def test_self_attention(dtype: torch.dtype, options: dict[str, Any]) -> None:
    if "attn_mask" in options:
        options = {"attn_mask": options["attn_mask"].to(dtype)}
    X, W_Q, W_K, W_V = (
        drawn(*shape, seed=i, dtype=dtype)
        for i, shape in enumerate([(B, L, E), (E, 3), (E, 3), (E, 2)])
    )
    output = torch_dense.self_attention(X, W_Q, W_K, W_V, **options)
    wide = [x.float() for x in (X, W_Q, W_K, W_V)]
    query, key, value = (torch_dense.project(wide[0], W) for W in wide[1:])
    if "attn_mask" in options:
        options = {"attn_mask": options["attn_mask"].float()}
    truth = scaled_dot_product_attention(query, key, value, **options)
    assert torch.equal(output, truth.to(dtype))


def test_the_weights_pass_no_gradient_through_what_no_query_may_see() -> None:
    query, key, _ = (x.requires_grad_() for x in case("boolean")[0])
    spoilt = key.detach().clone()
    spoilt[..., 3, :] = math.nan
    found = []
    for keys in (key, spoilt.requires_grad_()):
        weights = torch_dense.attention_weights(query, keys, kept())
        found.append(torch.autograd.grad((weights * drawn(L, S)).sum(), (query, keys)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_vmap(name: str) -> None:
    tensors, options = case(name)

    def attend(*x: Tensor) -> Tensor:
        return scaled_dot_product_attention(*x, **options)

    torch.testing.assert_close(torch.vmap(attend)(*tensors), attend(*tensors))


@pytest.mark.parametrize("name", ["causal", "floating", "grouped"])
def test_compiled_whole(name: str) -> None:
    tensors, attend = both(name)
    leaves = [x.requires_grad_() for x in tensors]
    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    results = [f(*leaves) for f in (compiled, attend)]
    torch.testing.assert_close(*results)
    found = [torch.autograd.grad(o.sum() + lse.sum(), leaves) for o, lse in results]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", CASES)
def test_meta(name: str) -> None:
    tensors, options = case(name)
    there = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in options.items()}
    output, lse = scaled_dot_product_attention_with_lse(*(x.to("meta") for x in tensors), **there)
    assert output.shape == (B, H, L, E_V)
    assert lse.shape == (B, H, L)
    assert output.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_that_of_torch(dtype: torch.dtype) -> None:
    query, key, value = (x.float() for x in case("full")[0])
    with torch.autocast("cpu", dtype):
        output = scaled_dot_product_attention(query, key.bfloat16(), value)
        assert output.dtype == torch_attention(query, key.bfloat16(), value).dtype == dtype
        assert scaled_dot_product_attention(*case("full")[0]).dtype == torch.float64
        by_name = scaled_dot_product_attention(query=query, key=key.bfloat16(), value=value)
        assert torch.equal(by_name, output)
    truth = scaled_dot_product_attention(*(x.to(dtype) for x in (query, key.bfloat16(), value)))
    assert torch.equal(output, truth)


@pytest.mark.parametrize("name", ["full", "causal", "masked"])
@pytest.mark.parametrize("dropout_p", [0.3, 0.5])
def test_dropout_is_that_of_torch(name: str, dropout_p: float) -> None:
    """For one seed the same weights are dropped, forward and backward."""
    leaves = [x.requires_grad_() for x in case("full")[0]]
    options: dict[str, Any] = {
        "full": {}, "causal": {"is_causal": True}, "masked": {"attn_mask": drawn(L, S, seed=2)}
    }[name]  # fmt: skip
    without, lse = scaled_dot_product_attention_with_lse(*leaves, **options)
    options["dropout_p"] = dropout_p
    torch.manual_seed(1)
    with sdpa_kernel(SDPBackend.MATH):
        truth = torch_attention(*leaves, **options)
    torch.manual_seed(1)
    output = scaled_dot_product_attention(*leaves, **options)
    torch.testing.assert_close(output, truth)
    assert not torch.allclose(output, without)
    found = [torch.autograd.grad(x.sin().sum(), leaves) for x in (output, truth)]
    torch.testing.assert_close(*found)
    torch.manual_seed(1)
    again, same = scaled_dot_product_attention_with_lse(*leaves, **options)
    assert torch.equal(again, output) and torch.equal(same, lse)
    options["dropout_p"] = 1
    assert torch.all(scaled_dot_product_attention(*leaves, **options) == 0)
