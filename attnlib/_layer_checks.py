"""What the layers of `torch_layers` ask of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from attnlib import masks
from attnlib._checks import check_flag, check_mask, checked_count, checked_counts, dtype_name
from attnlib._torch_cache import KVCache
from attnlib._torch_door import check_devices, check_tensor

Lengths = Sequence[int] | Tensor
Positions = Literal["sinusoidal", "learned", "rotary"]


def check_settings(bias: object, is_causal: object, max_seq_len: object, **sizes: object) -> None:
    """Require flags that are flags, and sizes that are integers ≥ 1; max_seq_len may be None."""
    check_flag("bias", bias)
    check_flag("is_causal", is_causal)
    limit = {} if max_seq_len is None else {"max_seq_len": max_seq_len}
    for name, size in (sizes | limit).items():
        checked_count(name, size, least=1)


def check_axes(x: Tensor, *axes: str) -> None:
    """Require a tensor that has these axes at its end."""
    check_tensor("x", x)
    if x.ndim < len(axes):
        raise ValueError(f"x must be (…, {', '.join(axes)}); got {tuple(x.shape)}")


def check_heads(d_model: int, n_heads: int, n_kv_heads: int = 1) -> None:
    """Require heads of equal size, in groups of equal size."""
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model; got {n_heads} and {d_model}")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads; got {n_kv_heads} and {n_heads}")


def check_positions(positions: object, max_seq_len: int | None, d_model: int, d_head: int) -> None:
    """Require a known kind of positions, and what this kind needs."""
    kinds = get_args(Positions)
    if positions is not None and positions not in kinds:
        raise ValueError(f"positions must be None or one of {', '.join(kinds)}; got {positions!r}")
    if positions == "learned" and max_seq_len is None:
        raise ValueError("max_seq_len must be given for learned positions; got None")
    if positions == "sinusoidal" and d_model % 2:
        raise ValueError(f"d_model must be even for sinusoidal positions; got {d_model}")
    if positions == "rotary" and d_head % 2:
        raise ValueError(f"d_model / n_heads must be even for rotary positions; got {d_head}")


def check_tokens(X: Tensor, W: Tensor, max_seq_len: int | None) -> None:
    """Require tokens X (…, T, d_model) that the weights W (d, d_model) can take."""
    check_tensor("X", X)
    if X.ndim < 2 or X.shape[-1] != W.shape[-1]:
        raise ValueError(f"X must be (…, T, d_model = {W.shape[-1]}); got {tuple(X.shape)}")
    if X.device != W.device:
        raise ValueError(f"X must be on the device of the weights, {W.device}; got {X.device}")
    device = X.device.type
    # Under autocast the projections choose the dtype themselves, except for float64.
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if X.dtype != W.dtype and not (casts and torch.float64 not in (X.dtype, W.dtype)):
        came = dtype_name(X)
        raise TypeError(f"X must have the dtype of the weights, {dtype_name(W)}; got {came}")
    if max_seq_len is not None and X.shape[-2] > max_seq_len:
        wanted = f"at most max_seq_len = {max_seq_len} tokens (none is cut off here)"
        raise ValueError(f"X must have {wanted}; got {X.shape[-2]}")


def joined_mask(
    X: Tensor, attn_mask: Tensor | None, lengths: Lengths | None, is_causal: bool, *heads: int
) -> dict[str, Any]:
    """Return the attn_mask and the is_causal that together remove what all three remove."""
    *batch, n_tokens, _ = X.shape
    parts = []
    if attn_mask is not None:
        check_tensor("attn_mask", attn_mask)
        check_devices({"X": X, "attn_mask": attn_mask})
        shape, target = tuple(attn_mask.shape), (*batch, *heads, n_tokens, n_tokens)
        check_mask(shape, dtype_name(attn_mask), query_dtype=dtype_name(X), target=target)
        parts.append(attn_mask)
    if lengths is not None:
        padding = torch.as_tensor(masks.padding(lengths, n_tokens), device=X.device)
        if X.ndim != 3 or len(padding) != len(X):
            wanted = "hold one length for each sequence of X (B, T, d_model)"
            came = f"{len(padding)} lengths and X {tuple(X.shape)}"
            raise ValueError(f"lengths must {wanted}; got {came}")
        parts.append(padding if heads else padding[:, 0])  # (B, 1, 1, T) or (B, 1, T)
    if not parts:
        return {"is_causal": is_causal}
    if is_causal:
        parts.append(masks.causal(n_tokens, like=X))
    return {"attn_mask": parts[0] if len(parts) == 1 else masks.combine(*parts)}


def check_cache(
    cache: object, X: Tensor, attn_mask: object, lengths: Lengths | None, is_causal: bool,
    max_seq_len: int | None,
) -> None:  # fmt: skip
    """Require a cache that the tokens X can continue, without one past max_seq_len."""
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a torch_decoding.KVCache; got {type(cache).__qualname__}")
    if not is_causal:
        raise ValueError("cache must be given to a layer with is_causal=True; got False")
    if attn_mask is not None:
        raise ValueError("attn_mask must be None beside a cache, which is causal; got a mask")
    if X.ndim != 3 or len(X) != len(cache.lengths):
        wanted = f"(B, T, d_model) with B = {len(cache.lengths)}, as the cache"
        raise ValueError(f"X must be {wanted}; got {tuple(X.shape)}")
    counts: Sequence[int] = (X.shape[1],) * len(X)
    if lengths is not None:
        counts = checked_counts("lengths", lengths, counts)
    for row, (length, count) in enumerate(zip(cache.lengths, counts, strict=True)):
        if max_seq_len is not None and length + count > max_seq_len:
            wanted = f"continue a sequence to at most max_seq_len = {max_seq_len} tokens"
            raise ValueError(f"X must {wanted}; got {length} + {count} in row {row}")


def check_torch(mha: object) -> None:
    """Require a torch layer that computes what MultiHeadSelfAttention can compute."""
    if not isinstance(mha, nn.MultiheadAttention):
        raise TypeError(f"mha must be a torch.nn.MultiheadAttention; got {type(mha).__name__}")
    if not (size := mha.embed_dim) == mha.kdim == mha.vdim:
        came = f"{mha.kdim} and {mha.vdim}"
        raise ValueError(f"mha must have kdim and vdim equal to embed_dim = {size}; got {came}")
    if mha.bias_k is not None or mha.add_zero_attn:
        raise ValueError("mha must have neither add_bias_kv nor add_zero_attn")
    if mha.dropout and mha.training:
        came = f"dropout {mha.dropout} in training mode"
        raise ValueError(f"mha must be in eval mode, because nothing is dropped here; got {came}")
