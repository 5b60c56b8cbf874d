"""The attention of x-transformers, which its layers call."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import Tensor, nn
from x_transformers.attend import Attend

from peers.adapter import Adapter, adapters, claim

ADAPTERS: list[Adapter] = []
README = "https://github.com/lucidrains/x-transformers#readme"


@adapters(ADAPTERS, "x_transformers Attend", "x-transformers", "torch", documentation=README)
def attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", sinks: Tensor | None = None, softcap: float | None = None,
    flash: bool = False,
) -> Any:
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
    claim(not flash or (softcap is None and sinks is None), "without flash alone")
    own: dict[str, Any] = {}
    if softcap is not None:
        own = {"softclamp_logits": True, "logit_softclamp_value": softcap}
    if sinks is not None:
        own = {"head_learned_sink": True, "heads": len(sinks)}
    ask = Attend(causal=is_causal, scale=scale, flash=flash, **own)
    if sinks is not None:
        ask.head_attn_sink = nn.Parameter(sinks)
    return ask(query, key, value, **masks)[0]


@adapters(
    ADAPTERS, "x_transformers Attend, flash=True", "x-transformers", "torch", documentation=README
)
@wraps(attend)
def attend_flash(*inputs: Tensor, **options: Any) -> Any:
    """Ask the layer that calls torch's scaled_dot_product_attention."""
    return attend(*inputs, **options, flash=True)
