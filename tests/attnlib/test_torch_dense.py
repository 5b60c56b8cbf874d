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

from attnlib import masks, numpy_dense, torch_dense
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
    with pytest.raises(ValueError, match=r"\bdim must lie between -3 and 2 for shape .*; got 3"):
        torch_dense.softmax(scores, 3)


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


def test_a_mask_may_want_a_gradient() -> None:
    tensors, _ = case("full")
    mask = drawn(H, 1, S).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: scaled_dot_product_attention(*tensors, m), (mask,))
    mask = torch.where(kept(), 0.0, -math.inf).double().requires_grad_()
    (gradient,) = torch.autograd.grad(scaled_dot_product_attention(*tensors, mask).sum(), mask)
    assert torch.all(gradient[~kept()] == 0)


@pytest.mark.parametrize("name", ["boolean", "floating"])
def test_an_empty_row_has_no_gradient(name: str) -> None:
    tensors, attend = both(name)
    leaves = [x.requires_grad_() for x in tensors]
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        output, lse = attend(*leaves)
        grads = torch.autograd.grad([output[..., 2, :], lse[..., 2]], leaves, [
            torch.ones_like(output[..., 2, :]), torch.ones_like(lse[..., 2])
        ])  # fmt: skip
    assert all(torch.all(g == 0) for g in grads)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["boolean", "floating", "grouped"])
def test_a_key_that_no_query_may_see_is_not_read(name: str, bad: float) -> None:
    tensors, options = case(name)
    clean = [x.clone().requires_grad_() for x in tensors]
    dirty = [x.clone() for x in tensors]
    dirty[1][..., 3, :] = dirty[2][..., 3, :] = bad
    dirty = [x.requires_grad_() for x in dirty]
    outputs = [scaled_dot_product_attention(*x, **options) for x in (clean, dirty)]
    assert torch.equal(*outputs)
    found = [torch.autograd.grad(o.sum(), x) for o, x in zip(outputs, (clean, dirty), strict=True)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


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


def test_a_future_nan() -> None:
    """What the docstring says: the past is safe from a key, and not from a value."""
    query, key, value = drawn(L, E), drawn(L, E), drawn(L, E_V)
    clean = scaled_dot_product_attention(query, key, value, is_causal=True)
    key[3] = math.nan
    with_key = scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.equal(with_key[:3], clean[:3])
    assert with_key[3:].isnan().all()
    value[3, 1] = math.nan
    with_value = scaled_dot_product_attention(query, key, value, is_causal=True)
    assert with_value[:, 1].isnan().all()
    assert torch.equal(with_value[:3, 2:], clean[:3, 2:])


@pytest.mark.parametrize("name", CASES)
def test_vmap(name: str) -> None:
    tensors, options = case(name)

    def attend(*x: Tensor) -> Tensor:
        return scaled_dot_product_attention(*x, **options)

    torch.testing.assert_close(torch.vmap(attend)(*tensors), attend(*tensors))


def test_vmap_over_masks_alone() -> None:
    tensors, _ = case("full")
    many = torch.from_numpy(np.random.default_rng(3).random((4, L, S)) < 0.5)
    for some in (many, torch.where(many, 0.0, -math.inf)):
        got = torch.vmap(lambda m: scaled_dot_product_attention(*tensors, m))(some)
        one_by_one = [scaled_dot_product_attention(*tensors, m) for m in some]
        torch.testing.assert_close(got, torch.stack(one_by_one))


@pytest.mark.parametrize("name", CASES)
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


def test_dropout_is_that_of_torch() -> None:
    tensors, _ = case("full")
    torch.manual_seed(1)
    output = scaled_dot_product_attention(*tensors, dropout_p=0.3)
    torch.manual_seed(1)
    with sdpa_kernel(SDPBackend.MATH):
        truth = torch_attention(*tensors, dropout_p=0.3)
    torch.testing.assert_close(output, truth)
    assert not torch.allclose(output, scaled_dot_product_attention(*tensors))
    torch.manual_seed(1)
    output, lse = scaled_dot_product_attention_with_lse(*tensors, dropout_p=0.3)
    torch.testing.assert_close(output, truth)
    assert torch.equal(lse, scaled_dot_product_attention_with_lse(*tensors)[1])
    assert torch.all(scaled_dot_product_attention(*tensors, dropout_p=1) == 0)
    for bad in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match="dropout_p must lie between 0 and 1; got"):
            scaled_dot_product_attention(*tensors, dropout_p=bad)
    with pytest.raises(TypeError, match="dropout_p must be a real number; got str"):
        scaled_dot_product_attention(*tensors, dropout_p="0")  # type: ignore[arg-type]


def test_what_is_no_dense_tensor_is_refused() -> None:
    query, key, value = (x[0, 0] for x in case("full")[0])
    for name, bad, message in [
        ("array", query.numpy(), r"query must be a torch.Tensor; got numpy.ndarray \(use a NumPy"),
        ("list", [[1.0]], r"query must be a torch.Tensor; got list \(convert it with"),
        ("sparse", query.to_sparse(), "query must be a dense tensor; got layout sparse_coo"),
    ]:
        with pytest.raises(TypeError, match=message):
            scaled_dot_product_attention(bad, key, value)  # type: ignore[arg-type]
        assert name
    with pytest.raises(ValueError, match="must be on one device; got query cpu, key meta"):
        scaled_dot_product_attention(query, key.to("meta"), value)
    with pytest.raises(ValueError, match="query, attn_mask must be on one device"):
        scaled_dot_product_attention(query, key, value, masks.causal(L, S, like=key).to("meta"))
    with pytest.raises(ValueError, match=r"W_K \(d_model, d\); got X \(5, 4\), W_K \(5, 4\)"):
        torch_dense.self_attention(query, query.mT[:, :4], query, query)
    X, W = drawn(L, E, dtype=torch.bfloat16), drawn(E, 3, dtype=torch.bfloat16)
    for mask, message in [
        ([[0.0]], "attn_mask must be a torch.Tensor; got list"),
        (torch.zeros(L, L, dtype=torch.float16), "attn_mask .*; got float16"),
    ]:
        with pytest.raises(TypeError, match=message):
            torch_dense.self_attention(X, W, W, W, mask)  # type: ignore[arg-type]


def test_combined_masks_compile_for_many_lengths() -> None:
    def joined(X: Tensor) -> Tensor:
        n_tokens = X.shape[-2]
        window = masks.window(n_tokens, n_tokens, left=2, right=0, like=X)
        return masks.combine(masks.causal(n_tokens, like=X), window)

    torch.compiler.reset()
    compiled = torch.compile(joined, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_tokens in (5, 7, 11):
        X = torch.zeros(2, n_tokens, 3)
        assert torch.equal(compiled(X), joined(X))
