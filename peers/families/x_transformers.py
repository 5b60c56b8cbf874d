"""The attention of x-transformers, which its layers call."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import Tensor
from x_transformers.attend import Attend

from peers.adapter import Adapter, adapters, claim

ADAPTERS: list[Adapter] = []
README = "https://github.com/lucidrains/x-transformers#readme"


@adapters(ADAPTERS, "x_transformers Attend", "x-transformers", "torch", documentation=README)
def attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", flash: bool = False,
) -> Any:  # fmt: skip
    """Ask the layer, which takes a boolean mask and a floating bias."""
    claim(query.ndim == key.ndim == value.ndim == 4, "query, key and value have 4 axes")
    claim(not 1 < key.shape[1] < query.shape[1], "query head h uses key head h mod H_kv")
    more = key.shape[2] - query.shape[2]
    claim(not is_causal or more >= 0, "no query stands before the first key")
    last = causal_align == "bottom-right" or more == 0
    claim(last or not is_causal, "the last query stands at the last key")
    masks = {}
    if attn_mask is not None:
        bias = attn_mask.is_floating_point()
        claim(flash or not bias or attn_mask.dtype == query.dtype, "a bias of the query's dtype")
        masks["attn_bias" if bias else "mask"] = attn_mask[(None,) * (4 - attn_mask.ndim)]
    ask = Attend(causal=is_causal, scale=scale, flash=flash)
    return ask(query, key, value, **masks)[0]


@adapters(
    ADAPTERS, "x_transformers Attend, flash=True", "x-transformers", "torch", documentation=README
)
@wraps(attend)
def attend_flash(**call: Any) -> Any:
    """Ask the layer that calls torch's scaled_dot_product_attention."""
    return attend(**call, flash=True)
