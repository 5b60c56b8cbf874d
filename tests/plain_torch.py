"""Attention by PyTorch: an independent peer, and the measure of half precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

Array = NDArray[Any]


def tensor(array: Array) -> torch.Tensor:
    """Give the same numbers as a tensor of the same dtype."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.tensor(array.astype(np.float32)).to(torch.bfloat16)
    return torch.tensor(np.ascontiguousarray(array))


def array(result: torch.Tensor) -> Array:
    """Give the same numbers as an array; bfloat16 as float32."""
    return (result.float() if result.dtype == torch.bfloat16 else result).numpy()


def fused(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None, **o: Any
) -> Array:
    """Give torch's own attention, pinned to its MATH backend."""
    mask = None if attn_mask is None else tensor(attn_mask)
    with sdpa_kernel(SDPBackend.MATH):
        return array(
            functional.scaled_dot_product_attention(
                tensor(query), tensor(key), tensor(value), mask, **o
            )
        )


def plain(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Give the formula as anybody would write it in torch, every step in the inputs' dtype."""
    q, k, v = tensor(query), tensor(key), tensor(value)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = np.tri(q.shape[-2], k.shape[-2], dtype=np.bool_)
    if attn_mask is not None and attn_mask.dtype == np.bool_:
        scores = scores.masked_fill(~tensor(attn_mask), float("-inf"))
    elif attn_mask is not None:
        scores = scores + tensor(attn_mask).to(scores.dtype)
    return array(torch.softmax(scores, dim=-1) @ v)
