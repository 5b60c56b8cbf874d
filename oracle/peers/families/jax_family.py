"""JAX's attention and that of Flax and Equinox, on a CPU."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

from peers.adapter import Adapter, adapters, claim

ADAPTERS: list[Adapter] = []
JAX = "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"
NNX = "https://flax.readthedocs.io/en/stable/api_reference/flax.nnx/nn/attention.html"
LINEN = "https://flax-linen.readthedocs.io/en/latest/api_reference/flax.linen/layers.html"
EQUINOX = "https://docs.kidger.site/equinox/api/nn/attention/"
NO_STRIDES = {"layouts": "arrays of JAX have no strides"}


def tokens_first(x: jax.Array) -> jax.Array:
    """Return (…, H, L, E) as (…, L, H, E), and back."""
    return jnp.swapaxes(x, -3, -2)


def broadcast(*leading: tuple[int, ...]) -> bool:
    """Return whether arrays with these leading dimensions must be broadcast to one another."""
    return len({*map(len, leading)}) > 1 or (len({*leading}) > 1 and 1 in chain(*leading))


def of_one_float(*arrays: Any) -> bool:
    """Return whether the arrays have the same floating dtype."""
    return len({x.dtype for x in arrays}) == 1 and jnp.issubdtype(arrays[0].dtype, jnp.floating)


def bias_and_mask(attn_mask: Any) -> dict[str, Any]:
    """Return the argument of JAX and of Flax that a mask of this dtype belongs to."""
    floating = attn_mask is not None and jnp.issubdtype(attn_mask.dtype, jnp.floating)
    return {"bias" if floating else "mask": attn_mask}


@adapters(
    ADAPTERS, "jax.nn.dot_product_attention", "jax", documentation=JAX, arrays="jax",
    without=NO_STRIDES,
)
def plain(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
    window: tuple[int | None, int | None] | None = None, return_lse: bool = False,
) -> Any:
    """Ask JAX, which groups heads wherever their numbers differ."""
    claim({query.ndim, key.ndim, value.ndim} <= {3, 4}, "shape (BTNH|TNH)")
    one = value.shape[-1] == query.shape[-1]
    claim(one, "the value should have the same shape as the key array")
    claim(None not in (window or ()), "local_window_size is int | tuple[int, int]")
    claim(attn_mask is None or not is_causal, "mask and is_causal are two arguments: both apply")
    same = query.shape[-3] == key.shape[-3]
    claim(enable_gqa or same, "heads are grouped wherever their numbers differ")
    found = jax.nn.dot_product_attention(
        *map(tokens_first, (query, key, value)), **bias_and_mask(attn_mask),
        is_causal=is_causal, scale=scale, local_window_size=window, return_residual=return_lse,
    )
    if return_lse:
        return tokens_first(found[0]), jnp.swapaxes(found[1], -2, -1)
    return tokens_first(found)


@adapters(
    ADAPTERS, "flax.nnx.dot_product_attention", "flax", "jax", documentation=NNX, arrays="jax",
    without=NO_STRIDES,
)
def of_nnx(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
    enable_gqa: bool = False,
) -> Any:
    """Ask Flax NNX, which passes the call on to JAX and groups heads as JAX does."""
    arrays = query, key, value
    claim(min(x.ndim for x in arrays) > 2, "shape [batch..., length, num_heads, depth]")
    claim(not broadcast(*(x.shape[:-3] for x in arrays)), "one batch... for query, key and value")
    claim(of_one_float(*arrays), "promote_dtype gives all the arrays one floating dtype")
    claim(attn_mask is None or attn_mask.dtype != int, "Flax has masks of numbers as well")
    claim(attn_mask is None or not is_causal, "mask and is_causal are two arguments: both apply")
    same = query.shape[-3] == key.shape[-3]
    claim(enable_gqa or same, "heads are grouped wherever their numbers differ")
    simple = attn_mask is None and not is_causal and not enable_gqa and min(query.size, value.size)
    one = query.shape[-1] == value.shape[-1]
    claim(one or simple, "another v_depth_per_head is asked for alone")
    masked = bias_and_mask(attn_mask)
    found = nnx.dot_product_attention(*map(tokens_first, arrays), **masked, is_causal=is_causal)
    return tokens_first(found)


@adapters(
    ADAPTERS, "flax.linen.dot_product_attention", "flax", "jax", documentation=LINEN, arrays="jax",
    without=NO_STRIDES,
)
def of_linen(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False
) -> Any:
    """Ask Flax Linen, with its mask for self-attention where is_causal asks for one."""
    arrays = query, key, value
    claim(min(x.ndim for x in arrays) > 2, "shape [batch..., length, num_heads, depth]")
    claim(not broadcast(*(x.shape[:-2] for x in arrays)), "one batch... and num_heads for all")
    claim(of_one_float(*arrays), "promote_dtype gives all the arrays one floating dtype")
    claim(attn_mask is None or attn_mask.dtype != int, "Flax has masks of numbers as well")
    if is_causal:
        claim(attn_mask is None, "combine_masks makes one mask of two")
        claim(query.shape[-2] == key.shape[-2], "make_causal_mask is for self-attention")
        attn_mask = linen.make_causal_mask(query[..., 0, :, 0], dtype=bool)
    masked = bias_and_mask(attn_mask)
    return tokens_first(linen.dot_product_attention(*map(tokens_first, arrays), **masked))


@adapters(
    ADAPTERS, "equinox.nn.MultiheadAttention", "equinox", "jax", documentation=EQUINOX,
    arrays="jax", without=NO_STRIDES,
)
def of_equinox(query: Any, key: Any, value: Any, attn_mask: Any = None) -> Any:
    """Ask Equinox's layer without its projections; jax.vmap is its way to have a batch."""
    arrays, n_heads = (query, key, value), query.shape[0] if query.ndim > 2 else 1
    claim(min(x.ndim for x in arrays) > 1, "a sequence has the shape (length, size)")
    claim(n_heads and not broadcast(*(x.shape[:-2] for x in arrays)), "one num_heads for all")
    claim(of_one_float(*arrays), "the projections give all the arrays one floating dtype")
    if attn_mask is not None:
        whole = attn_mask.ndim > 1 and 1 not in attn_mask.shape
        claim(whole, "a mask is ([num_heads,] q_seq, kv_seq)")
        claim(not jnp.issubdtype(attn_mask.dtype, jnp.floating), "no bias")
    if query.ndim > 3:
        own = 0 if attn_mask is not None and attn_mask.ndim > 3 else None
        return jax.vmap(of_equinox, (0, 0, 0, own))(*arrays, attn_mask)
    found = bare(n_heads)(*(joined(x, n_heads) for x in arrays), mask=attn_mask)
    apart = found.reshape(query.shape[-2], n_heads, value.shape[-1]).swapaxes(0, 1)
    return apart.reshape(*query.shape[:-1], value.shape[-1])


def joined(x: jax.Array, n_heads: int) -> jax.Array:
    """Return the heads of a token side by side, as Equinox's layer cuts them apart."""
    length, size = x.shape[-2:]
    return x.reshape(n_heads, length, size).swapaxes(0, 1).reshape(length, n_heads * size)


def bare(n_heads: int) -> eqx.nn.MultiheadAttention:
    """Return Equinox's layer with identities for its four projections."""
    layer = eqx.nn.MultiheadAttention(n_heads, n_heads, key=jax.random.key(0))
    names = "query_proj", "key_proj", "value_proj", "output_proj"
    where = attrgetter(*names)
    return eqx.tree_at(where, layer, (eqx.nn.Identity(),) * len(names))
