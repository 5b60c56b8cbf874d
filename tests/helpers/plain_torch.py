"""Attention by PyTorch: an independent peer, the truth of gradients, the measure of half precision.

In float64 `gradients` is what every form's gradient is held against; test_conformance_gradients
holds it against the equations of `attncheck`. In half precision the errors of `plain` and
`gradients` are what a form's own errors are measured by.
"""

from __future__ import annotations

from typing import Any

import torch
from implementations import array, tensor
from numpy.typing import NDArray

from attncheck._torch_backend import plain as plain_with_lse

Array = NDArray[Any]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the formula as anybody would write it, each step in the inputs' dtype, and the lse."""
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        heads = [h // group for h in range(query.shape[-3])]
        key, value = key[..., heads, :, :], value[..., heads, :, :]
    if is_causal:
        shape = query.shape[-2], key.shape[-2]
        attn_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    if scale is None:  # not by the package, whose own default is under test
        scale = query.shape[-1] ** -0.5 if query.shape[-1] else 1.0
    output, lse = plain_with_lse(query, key, value, attn_mask, scale)
    return output, lse.expand(output.shape[:-1])


def plain(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None, **options: Any
) -> Array:
    """Return `attention` on arrays."""
    mask = None if attn_mask is None else tensor(attn_mask)
    return array(attention(tensor(query), tensor(key), tensor(value), mask, **options)[0])


def gradients(
    query: Array,
    key: Array,
    value: Array,
    upstream: Array,
    attn_mask: Array | None = None,
    lse_upstream: Array | None = None,
    **options: Any,
) -> dict[str, Array]:
    """Return the gradient of `attention` by each floating input; see `Implementation.gradients`."""
    own = {"query": tensor(query), "key": tensor(key), "value": tensor(value)}
    mask = None if attn_mask is None else tensor(attn_mask)
    if mask is not None and mask.is_floating_point():
        own["attn_mask"] = mask
    for leaf in own.values():
        leaf.requires_grad_()
    output, lse = attention(own["query"], own["key"], own["value"], mask, **options)
    results, above = [output], [tensor(upstream)]
    if lse_upstream is not None:
        results.append(lse)
        above.append(tensor(lse_upstream).to(lse.dtype))
    found = torch.autograd.grad(results, tuple(own.values()), above)
    return {name: array(gradient) for name, gradient in zip(own, found, strict=True)}
