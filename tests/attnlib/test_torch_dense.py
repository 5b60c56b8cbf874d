"""What `torch_dense` promises beyond the contract of all forms: see test_conformance."""

from __future__ import annotations

import math
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

B, L, S, E = 2, 5, 7, 4


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape)).to(dtype)


def kept() -> Tensor:
    """Return a mask with an empty row, and with a key that no row sees."""
    mask = torch.from_numpy(np.random.default_rng(3).random((L, S)) < 0.6)
    mask[2] = mask[:, 3] = False
    return mask


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"attn_mask": torch.where(kept(), drawn(L, S), -math.inf)}],
    ids=["full", "causal", "floating"],
)
def test_scores_and_weights_are_those_of_numpy_dense(options: dict[str, Any]) -> None:
    query, key = drawn(B, L, E), drawn(B, S, E)
    scores = torch_dense.attention_scores(query, key, scale=-2.5)
    truth = numpy_dense.attention_scores(query.numpy(), key.numpy(), scale=-2.5)
    np.testing.assert_allclose(scores.numpy(), truth, rtol=1e-12, atol=1e-14)
    arrays = {k: v.numpy() if isinstance(v, Tensor) else v for k, v in options.items()}
    weights = torch_dense.attention_weights(query, key, **options, scale=0.7)
    truth = numpy_dense.attention_weights(query.numpy(), key.numpy(), **arrays, scale=0.7)
    np.testing.assert_allclose(weights.numpy(), truth, rtol=1e-12, atol=1e-15)


def test_the_steps_are_computed_wide_and_rounded_once() -> None:
    X, W, key = (drawn(*shape).bfloat16() for shape in [(B, L, E), (E, 3), (B, S, E)])
    wide, W_wide, key_wide = X.float(), W.float(), key.float()
    for narrow, truth in [
        (torch_dense.project(X, W), torch_dense.project(wide, W_wide)),
        (torch_dense.attention_scores(X, key), torch_dense.attention_scores(wide, key_wide)),
        (torch_dense.attention_weights(X, key), torch_dense.attention_weights(wide, key_wide)),
        (torch_dense.softmax(X), torch_dense.softmax(wide)),
    ]:
        assert truth.dtype == torch.float32
        assert torch.equal(narrow, truth.bfloat16())


def test_softmax() -> None:
    scores = drawn(B, L, S)
    scores[0, 1] = -math.inf
    before = scores.clone()
    for dim in (0, 1, -1):
        truth = numpy_dense.softmax(scores.numpy(), dim)
        np.testing.assert_allclose(torch_dense.softmax(scores, dim).numpy(), truth, rtol=1e-13)
    assert torch.equal(scores, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_self_attention(dtype: torch.dtype, masked: bool) -> None:
    X, *matrices = (
        drawn(*shape, seed=i, dtype=dtype)
        for i, shape in enumerate([(B, L, E), (E, 3), (E, 3), (E, 2)])
    )
    mask = drawn(L, L, seed=9, dtype=dtype) if masked else None
    options: dict[str, Any] = {} if masked else {"is_causal": True, "scale": 0.3, "window": (2, 0)}
    output = torch_dense.self_attention(X, *matrices, mask, **options)
    projected = [torch_dense.project(X.float(), W.float()) for W in matrices]
    mask = None if mask is None else mask.float()
    truth = scaled_dot_product_attention(*projected, mask, **options)
    assert torch.equal(output, truth.to(dtype))


def test_the_weights_pass_no_gradient_through_what_no_query_may_see() -> None:
    query, key = (drawn(B, n, E).requires_grad_() for n in (L, S))
    spoilt = key.detach().clone()
    spoilt[..., 3, :] = math.nan
    found = []
    for keys in (key, spoilt.requires_grad_()):
        weights = torch_dense.attention_weights(query, keys, kept())
        found.append(torch.autograd.grad((weights * drawn(L, S)).sum(), (query, keys)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("options", "dropout_p"),
    [({}, 0.3), ({"is_causal": True}, 0.5), ({"attn_mask": drawn(L, S, seed=2)}, 0.5)],
    ids=["full", "causal", "masked"],
)
def test_dropout_is_that_of_torch(options: dict[str, Any], dropout_p: float) -> None:
    """For one seed the same weights are dropped, forward and backward."""
    leaves = [drawn(B, 3, n, E).requires_grad_() for n in (L, S, S)]
    without, lse = scaled_dot_product_attention_with_lse(*leaves, **options)
    torch.manual_seed(1)
    with sdpa_kernel(SDPBackend.MATH):
        truth = torch_attention(*leaves, **options, dropout_p=dropout_p)
    torch.manual_seed(1)
    output = scaled_dot_product_attention(*leaves, **options, dropout_p=dropout_p)
    torch.testing.assert_close(output, truth)
    assert not torch.allclose(output, without)
    found = [torch.autograd.grad(x.sin().sum(), leaves) for x in (output, truth)]
    torch.testing.assert_close(*found)
    torch.manual_seed(1)
    again, same = scaled_dot_product_attention_with_lse(*leaves, **options, dropout_p=dropout_p)
    assert torch.equal(again, output) and torch.equal(same, lse)
    assert torch.all(scaled_dot_product_attention(*leaves, **options, dropout_p=1) == 0)
