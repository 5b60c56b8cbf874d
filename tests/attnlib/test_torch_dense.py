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


STEPS: list[tuple[str, list[Tensor], dict[str, Any]]] = [
    ("project", [drawn(B, L, E), drawn(E, 3)], {}),
    ("attention_scores", [drawn(B, L, E), drawn(B, S, E)], {"scale": -2.5}),
    ("attention_weights", [drawn(B, L, E), drawn(B, S, E)], {"is_causal": True, "scale": 0.7}),
    ("attention_weights", [drawn(B, L, E), drawn(B, S, E), kept()], {}),
    ("self_attention", [drawn(B, L, E), *(drawn(E, n, seed=n) for n in (3, 3, 2))],
     {"is_causal": True, "scale": 0.3, "window": (2, 0)}),
    ("self_attention", [drawn(B, L, E), *(drawn(E, 3, seed=n) for n in (3, 4, 5)), drawn(L, L)],
     {}),
    *(("softmax", [torch.where(kept(), drawn(L, S), -math.inf)], {"axis": n}) for n in (0, -1)),
]


@pytest.mark.parametrize(("name", "tensors", "options"), STEPS)
def test_a_step_is_that_of_numpy_dense(
    name: str, tensors: list[Tensor], options: dict[str, Any]
) -> None:
    """Half precision is computed wide, and rounded once."""
    own = {"dim" if key == "axis" else key: option for key, option in options.items()}
    step, before = getattr(torch_dense, name), [x.clone() for x in tensors]
    truth = getattr(numpy_dense, name)(*(x.numpy() for x in tensors), **options)
    np.testing.assert_allclose(step(*tensors, **own).numpy(), truth, rtol=1e-12, atol=1e-14)
    assert all(map(torch.equal, tensors, before))
    half = [x if x.dtype == torch.bool else x.bfloat16() for x in tensors]
    wide = [x if x.dtype == torch.bool else x.float() for x in half]
    assert torch.equal(step(*half, **own), step(*wide, **own).bfloat16())


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


@pytest.mark.parametrize("options", [{"is_causal": True}, {"attn_mask": drawn(L, S, seed=2)}])
def test_dropout_is_that_of_torch(options: dict[str, Any]) -> None:
    """For one seed the same weights are dropped, forward and backward."""
    leaves = [drawn(B, 3, n, E).requires_grad_() for n in (L, S, S)]
    without, lse = scaled_dot_product_attention_with_lse(*leaves, **options)
    torch.manual_seed(1)
    with sdpa_kernel(SDPBackend.MATH):
        truth = torch_attention(*leaves, **options, dropout_p=0.3)
    torch.manual_seed(1)
    output = scaled_dot_product_attention(*leaves, **options, dropout_p=0.3)
    torch.testing.assert_close(output, truth)
    assert not torch.allclose(output, without)
    found = [torch.autograd.grad(x.sin().sum(), leaves) for x in (output, truth)]
    torch.testing.assert_close(*found)
    torch.manual_seed(1)
    again, same = scaled_dot_product_attention_with_lse(*leaves, **options, dropout_p=0.3)
    assert torch.equal(again, output) and torch.equal(same, lse)
    assert torch.all(scaled_dot_product_attention(*leaves, **options, dropout_p=1) == 0)
