"""torch's own implementations, on a CPU."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from peers.adapter import Adapter, adapters, claim
from peers.shapes import fits, stretched

ADAPTERS: list[Adapter] = []
DOCS = "https://docs.pytorch.org/docs/2.13/generated/"
SDPA = DOCS + "torch.nn.functional.scaled_dot_product_attention.html"
FLEX = "https://docs.pytorch.org/docs/2.13/nn.attention.flex_attention.html"
MULTI_HEAD = DOCS + "torch.nn.MultiheadAttention.html"

# One kernel for all lengths. Without fullgraph, torch would go back to eager after eight of them.
torch._dynamo.config.recompile_limit = 1000
COMPILED = torch.compile(flex_attention, dynamic=True, fullgraph=True)


@adapters(ADAPTERS, "F.scaled_dot_product_attention", "torch", documentation=SDPA)
def default(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left",
) -> Any:
    """Ask torch's choice, which on a CPU is its own flash kernel where it can run."""
    axes = max(query.ndim, key.ndim)
    claim(attn_mask is None or value.ndim <= axes, "a mask broadcasts to the weights, (…, L, S)")
    if is_causal and causal_align == "bottom-right":
        attn_mask, is_causal = causal_lower_right(query.shape[-2], key.shape[-2]), False
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


@adapters(ADAPTERS, "F.scaled_dot_product_attention, MATH", "torch", documentation=SDPA)
@wraps(default)
def math(*inputs: Tensor, **options: Any) -> Any:
    """Ask torch's plain formula."""
    with sdpa_kernel(SDPBackend.MATH):
        return default(*inputs, **options)


# With dynamic=True these masks do not compile, and a kernel for each of them takes too long.
NO_MASKS = {"masks": "not asked: each mask is compiled anew"}


def functions(
    mask: Tensor | None, shape: Any, is_causal: bool, align: str, window: Any, cap: float | None
) -> tuple[Any, Any]:
    """Return what changes a score, and what says which keys a query sees, for flex_attention."""
    change = None if cap is None else _capped(cap)
    if mask is not None and mask.dtype != torch.bool:
        change, mask = _added(mask, change), None
    if mask is None and not is_causal and window is None:
        return change, None
    left, right = (sum(shape) if width is None else width for width in window or (None, None))
    first = (shape[-1] - shape[-2]) * (align == "bottom-right")
    sees = _seen(mask, first - left, first + (0 if is_causal else right))
    n_batches, n_heads, n_queries, n_keys = shape
    return change, create_block_mask(sees, n_batches, n_heads, n_queries, n_keys, device="cpu")


def _capped(cap: float) -> Any:
    # A second number fails to compile; in a tensor it is no other function.
    most = torch.tensor(cap)
    return lambda score, batch, head, query, key: most * torch.tanh(score / most)


def _added(mask: Tensor, before: Any) -> Any:
    def added(score: Tensor, *places: Tensor) -> Tensor:
        score = score if before is None else before(score, *places)
        return score + mask[places]

    return added


def _seen(mask: Tensor | None, first: int, last: int) -> Any:
    # Numbers in tensors, so that another number is not another function to compile.
    near, far = torch.tensor(first), torch.tensor(last)

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        around = (key >= query + near) & (key <= query + far)
        return around if mask is None else around & mask[batch, head, query, key]

    return seen


@adapters(ADAPTERS, "flex_attention", "torch", documentation=FLEX, gradients=False)
def flex(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Any = None, softcap: float | None = None,
    return_lse: bool = False, implementation: Any = flex_attention,
) -> Any:
    """Ask flex_attention, whose masks are functions of the positions of a query and a key."""
    claim(query.ndim == key.ndim == value.ndim == 4, "query, key and value have 4 axes")
    batches, heads = ([x.shape[axis] for x in (query, key, value)] for axis in (0, 1))
    claim(not stretched(*batches) and (enable_gqa or not stretched(*heads)), "no broadcasting")
    one_dtype = query.dtype == key.dtype == value.dtype
    claim(one_dtype or implementation is COMPILED, "key and value may have another dtype")
    shape = (*query.shape[:3], key.shape[2])
    if attn_mask is not None:
        claim(not is_causal and fits(attn_mask.shape, shape), "a mask is a function of places")
        claim(attn_mask.dtype != torch.int64, "a mask is a function of places")
        attn_mask = attn_mask.expand(shape)
    changes = functions(attn_mask, shape, is_causal, causal_align, window, softcap)
    more = {"return_aux": AuxRequest(lse=True)} if return_lse else {}
    found = implementation(query, key, value, *changes, scale=scale, enable_gqa=enable_gqa, **more)
    return (found[0], found[1].lse) if return_lse else found


@adapters(
    ADAPTERS, "torch.compile(flex_attention)", "torch", documentation=FLEX, gradients=False,
    without=NO_MASKS,
)
@wraps(flex)
def compiled(*inputs: Tensor, **options: Any) -> Any:
    """Ask the kernel that torch.compile makes of flex_attention."""
    dtypes = {x.dtype for x in inputs}
    claim(dtypes != {torch.float64}, "float32, float16 and bfloat16 alone")
    claim(not options.get("return_lse"), "no log-sum-exp on a CPU")
    return flex(*inputs, **options, implementation=COMPILED)


def layer(width: int, n_heads: int, dtype: torch.dtype) -> nn.MultiheadAttention:
    """Return the layer with projections that leave everything as it is."""
    plain = nn.MultiheadAttention(width, n_heads, bias=False, batch_first=True, dtype=dtype)
    plain.requires_grad_(False)
    plain.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
    plain.out_proj.weight.copy_(torch.eye(width))
    return plain


def removed(mask: Tensor | None, whole: tuple[int, ...], is_causal: bool) -> dict[str, Any]:
    """Return a mask as the layer takes it, where True removes."""
    claim(not is_causal or mask is None, "is_causal says that attn_mask is the causal mask")
    if is_causal:
        return {"attn_mask": torch.ones(whole[-2:]).triu(1).bool(), "is_causal": True}
    if mask is None:
        return {}
    own, padding = tuple(mask.shape), (*whole[:-3], 1, 1, whole[-1])
    claim(own in (whole, padding) or (len(own) == 2 and 1 not in own), "masks do not broadcast")
    mask = ~mask if mask.dtype == torch.bool else mask
    if own == padding:
        return {"key_padding_mask": mask[..., 0, 0, :]}
    return {"attn_mask": mask if len(own) == 2 else mask.flatten(0, 1)}


@adapters(ADAPTERS, "nn.MultiheadAttention", "torch", documentation=MULTI_HEAD)
def multi_head(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, need_weights: bool = True,
) -> Any:
    """Ask the layer, which has its heads side by side: (B, L, H E)."""
    ranks = {x.ndim for x in (query, key, value)}
    claim(len(ranks) == 1 or 1 in ranks, "one batch, and the same heads, for all")
    claim(query.shape[-1] == value.shape[-1], "one head dimension for all")
    claim(all(x.isfinite().all() for x in (query, key, value)), "projections mix the heads")
    n_heads = query.shape[-3] if query.ndim > 2 else 1
    call = [x.transpose(-3, -2).flatten(-2) if x.ndim > 2 else x for x in (query, key, value)]
    claim(n_heads and query.shape[-1], "embed_dim and num_heads are greater than 0")
    own = attn_mask is None or not attn_mask.is_floating_point() or attn_mask.dtype == query.dtype
    claim(own or not need_weights, "a floating mask has the dtype of the query")
    masks = removed(attn_mask, (*query.shape[:-1], key.shape[-2]), is_causal)
    ask = layer(call[0].shape[-1], n_heads, query.dtype)
    result = ask(*call, need_weights=need_weights, **masks)[0]
    return result.unflatten(-1, (n_heads, -1)).transpose(-3, -2) if query.ndim > 2 else result


@adapters(ADAPTERS, "nn.MultiheadAttention, need_weights=False", "torch", documentation=MULTI_HEAD)
@wraps(multi_head)
def multi_head_without_weights(*inputs: Tensor, **options: Any) -> Any:
    """Ask the layer for the output alone, which it takes from scaled_dot_product_attention."""
    return multi_head(*inputs, **options, need_weights=False)
