"""The attention functions of transformers, with the masks that its models make for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    causal_mask_function,
    eager_mask,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as with_soft_cap
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as with_sinks
from transformers.models.llama.modeling_llama import eager_attention_forward

from peers.adapter import Adapter, adapters, claim

ADAPTERS: list[Adapter] = []
DOCS = "https://huggingface.co/docs/transformers/attention_interface"


class Layer(nn.Module):
    """What a layer of a model says of itself to its attention."""

    def __init__(
        self, query: Tensor, key: Tensor, enable_gqa: bool, sinks: Tensor | None = None
    ) -> None:
        super().__init__()
        self.sinks = sinks
        self.num_key_value_groups = query.shape[1] // key.shape[1] if enable_gqa else 1
        self.eval()


def pattern(make: Any, query: Tensor, key: Tensor, is_causal: bool, align: str, window: Any) -> Any:
    """Return the mask that the library makes for causal attention and sliding windows."""
    left, right = window or (None, None)
    call: dict[str, Any] = {"batch_size": query.shape[0], "dtype": query.dtype}
    call |= {"q_length": query.shape[2], "kv_length": key.shape[2]}
    call["q_offset"] = (key.shape[2] - query.shape[2]) * (align == "bottom-right")
    claim(call["q_offset"] >= 0, "no query stands before the first key")
    if is_causal or right == 0:
        causal = causal_mask_function
        shape = causal if left is None else sliding_window_causal_mask_function(left + 1)
        local = None if left is None else left + 1
        return make(**call, mask_function=shape, local_size=local)
    claim(left == right, "a window is causal, or reaches as far to both sides")
    both = None if left is None else sliding_window_bidirectional_mask_function(left)
    return both and make(**call, mask_function=both, allow_is_causal_skip=False)


@adapters(ADAPTERS, "transformers, eager", "transformers", "torch", documentation=DOCS)
def eager(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Any = None, sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Any:
    """Ask the plain formula, as Llama and most models have it, which adds its mask.

    Gemma 2 has one with a soft cap, and GPT-OSS one with sinks.
    """
    claim(query.ndim == key.ndim == value.ndim == 4, "query, key and value have 4 axes")
    claim(scale is not None or query.shape[3], "a model has a head dimension of its own")
    claim(attn_mask is None or not (is_causal or window), "a mask takes the place of a pattern")
    mask = pattern(eager_mask, query, key, is_causal, causal_align, window)
    if attn_mask is not None:
        mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:  # as eager_mask does it
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype), torch.finfo(query.dtype).min)
    factor = query.shape[3] ** -0.5 if scale is None else scale
    layer = Layer(query, key, enable_gqa, sinks)
    own = eager_attention_forward if sinks is None else with_sinks
    more = {}
    if softcap is not None:
        own, more = with_soft_cap, {"softcap": softcap}
    return own(layer, query, key, value, mask, scaling=factor, **more)[0].transpose(1, 2)


@adapters(ADAPTERS, "transformers, sdpa", "transformers", "torch", documentation=DOCS)
def sdpa(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Any = None,
) -> Any:
    """Ask torch's scaled_dot_product_attention through the library."""
    claim(query.ndim == key.ndim == value.ndim == 4, "query, key and value have 4 axes")
    claim(attn_mask is None or not (is_causal or window), "a mask takes the place of a pattern")
    last = causal_align == "bottom-right" or query.shape[2] > 1 or key.shape[2] == 1
    claim(last or not is_causal, "one query is taken for the last")
    mask = pattern(sdpa_mask, query, key, is_causal, causal_align, window)
    if attn_mask is not None:
        mask = attn_mask[(None,) * (4 - attn_mask.ndim)]
    layer = Layer(query, key, enable_gqa)
    own: Any = {"scaling": scale, "is_causal": is_causal}
    return sdpa_attention_forward(layer, query, key, value, mask, **own)[0].transpose(1, 2)
