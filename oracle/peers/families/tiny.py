"""tinygrad, whose tensors are compiled for the CPU with clang."""

from __future__ import annotations

from tinygrad import Device, Tensor
from tinygrad.helpers import DEV

from peers.adapter import Adapter, adapters, claim

ADAPTERS: list[Adapter] = []
TENSOR = "https://docs.tinygrad.org/tensor/ops/#tinygrad.Tensor.scaled_dot_product_attention"

# A graphics processor is not used. Where there is no clang, this raises before the first case.
DEV.value = Device["CPU"].device


@adapters(
    ADAPTERS, "tinygrad scaled_dot_product_attention", "tinygrad", documentation=TENSOR,
    arrays="tinygrad", without={"layouts": "a tensor has no strides"},
)
def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, enable_gqa: bool = False,
) -> Tensor:
    """Ask tinygrad."""
    claim(query.dtype == key.dtype == value.dtype, "operations promote dtypes")
    claim(1 not in (query.ndim, key.ndim, value.ndim), "a vector is multiplied as matmul does it")
    claim(query.shape[-1], "divides by the root of the number of features")
    return query.scaled_dot_product_attention(
        key, value, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa
    )
