"""torch's own implementations, on a CPU."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from peers.adapter import Adapter, adapters

ADAPTERS: list[Adapter] = []
SDPA = "https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.scaled_dot_product_attention.html"


@adapters(ADAPTERS, "F.scaled_dot_product_attention", "torch", documentation=SDPA)
def default(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Ask torch's choice, which on a CPU is its own flash kernel where it can run."""
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


@adapters(ADAPTERS, "F.scaled_dot_product_attention, MATH", "torch", documentation=SDPA)
@wraps(default)
def math(**call: Any) -> Tensor:
    """Ask torch's plain formula."""
    with sdpa_kernel(SDPBackend.MATH):
        return default(**call)
