"""Attention for a few new tokens at a time: a cache of keys and values, and keys split in pieces.

A language model makes one token after the other (decoding). The keys and values of the tokens
before do not change, so that a `KVCache` keeps them (the KV cache), and `attend` lets new tokens
see them and each other. The first call brings the whole prompt (prefill), and each later call one
token, or a few that were guessed (speculative decoding, with a rollback of the wrong ones).

One query is one row of products, however many keys there are, and keeps one core busy. Split keys
keep several cores busy (flash-decoding): a piece knows the largest score m, the row sum ℓ and the
output o of its own keys, and pieces 1 … n become one by chapter 12's law:

    M   = max_i m_i
    w_i = exp(m_i - M) ℓ_i / Σ_j exp(m_j - M) ℓ_j
    o   = Σ_i w_i o_i
    lse = M + log Σ_j exp(m_j - M) ℓ_j

This is `scaled_dot_product_attention` and `merge`. For a single new token `attend` has a shorter
way to the same output: all scores of one row are at hand, so it takes one softmax of them, and
splits the two products alone (`_step`). Merging the states of pieces takes 1.7 to 3.7 times as
long (benchmarks/README.md), because each state is many small steps.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

import functools
import math
import operator
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlib._checks import Options, Window, checked_band, checked_count, checked_scale
from attnlib._docstrings import TENSORS, document
from attnlib._tensors import (
    DenseCall,
    as_autocast_does,
    checked_tensors,
    computing_dtype,
    scaled_product,
)
from attnlib._torch_cache import Counts, KVCache, batches_of_rows, check_fits, checked_new_tokens

__all__ = [
    "KVCache", "attend", "merge", "scaled_dot_product_attention",
    "scaled_dot_product_attention_with_lse",
]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size_k: int | None = None,
) -> Tensor:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, from pieces of `block_size_k` keys (at least 1; 4096 where
    it is None), and a last one of those that are left. The size does not depend on the cores, the
    batch or the number of keys, so that the first keys always fall into the same pieces.

    A row in which no key takes part gives zeros, and zero gradients. NaN in what takes part gives
    NaN; in a key or value that no row may see, it changes nothing. Where some rows may see a NaN
    value, the others that see a key of its piece get NaN too, because 0 · NaN is NaN.

    Source:
        Dao, Haziza, Massa and Sizov 2023, "Flash-Decoding for long-context inference"; chapter 15.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window, block_size_k=block_size_k,
    )[0]


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size_k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    call = DenseCall((query, key, value), options)
    size = 4096 if block_size_k is None else checked_count("block_size_k", block_size_k, least=1)
    whole, left = call.n_keys // size, call.n_keys % size
    states = [_state(call, 0, whole, size)] if whole else []
    if left or not whole:
        states.append(_state(call, whole * size, 1, left))
    m, ell, o = (torch.cat(x, -2) for x in zip(*states, strict=True))
    return call.finish(*_merged(m, ell, o))


document(scaled_dot_product_attention, scaled_dot_product_attention_with_lse, TENSORS)


def _state(call: DenseCall, start: int, n: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return m and ℓ (…, L, n, 1), and o (…, L, n, d_v), of n pieces of keys side by side.

    All n are one product, whose heads and pieces torch deals out to the cores.
    """
    columns = slice(start, start + n * size)

    def cut(mask: Tensor) -> Tensor:
        """(…, L, S) → (…, n, L, size)"""
        mask = mask.expand(*mask.shape[:-1], call.n_keys)[..., columns]
        return mask.view(*mask.shape[:-1], n, size).transpose(-3, -2)

    key, value = (
        x[..., columns, :].view(*x.shape[:-2], n, size, x.shape[-1]) for x in (call.key, call.value)
    )
    scores = scaled_product(call.query[..., None, :, :], key, call.scale)
    scores, empty = call.masked(scores, cut)
    m = scores.detach().amax(-1, keepdim=True) if size else scores.sum(-1, keepdim=True)
    weights = torch.exp(scores - m)
    ell = weights.sum(-1, keepdim=True)
    o = torch.matmul(weights / ell, value)
    m, ell, o = (
        x.masked_fill(empty, nothing).transpose(-3, -2)
        for x, nothing in ((m, -math.inf), (ell, 0), (o, 0))
    )
    return m, ell, o


def _merged(m: Tensor, ell: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
    """Return o (…, d_v) and lse (…, 1) from n pieces: m and ℓ (…, n, 1), o (…, n, d_v).

    m and ℓ are kept apart, because in m + log ℓ a small ℓ is lost where m is large.
    """
    m_new = m.detach().amax(-2, keepdim=True)
    empty = m_new == -math.inf
    m_new = m_new.masked_fill(empty, 0)  # because -∞ - (-∞) is NaN
    ell = torch.exp(m - m_new) * ell
    total = _added(ell)[..., None, :].masked_fill(empty, 1)
    lse = (m_new + total.log()).masked_fill(empty, -math.inf)
    return _added(ell / total * o), lse[..., 0, :]


def _added(pieces: Tensor) -> Tensor:
    """Return the sum of n pieces (…, n, ·), added from first to last.

    The order in which `Tensor.sum` adds depends on the whole shape, and its last bits with it.
    """
    return functools.reduce(torch.add, pieces.unbind(-2))


def merge(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return attention over all keys, from the results of attention over disjoint pieces of them.

    A piece in which a row sees nothing has the output 0 and the log-sum-exp -∞, as from every
    implementation, and changes nothing. The pieces are added from first to last, so that the same
    pieces in the same order give the same bits.

    Args:
        outputs: the output of each piece, at least one; all of one dtype.
        lses: the log-sum-exp of each piece, float32 for half precision, else in the outputs' dtype.

    Returns:
        The output, in the outputs' dtype, and the log-sum-exp.

    Shapes:
        each output (…, d_v), each lse (…) → (…, d_v) and (…)

    Raises:
        TypeError, ValueError: for pieces that are no tensors, or do not fit together.

    Source:
        Milakov and Gimelshein 2018, section 3.1; chapter 12.

    Example:
        One key with the value 6, and two keys with the mean 3: all three have the mean 4.

        >>> one, two = torch.tensor([[6.0]]), torch.tensor([[3.0]])
        >>> output, lse = merge([one, two], [torch.tensor([1.0]).log(), torch.tensor([2.0]).log()])
        >>> output, lse.exp().round()
        (tensor([[4.]]), tensor([3.]))
    """
    if len(outputs) != len(lses) or not len(outputs):
        came = f"{len(outputs)} outputs and {len(lses)} lses"
        raise ValueError(f"outputs and lses must hold one tensor for each piece; got {came}")
    known = checked_tensors({f"outputs[{i}]": x for i, x in enumerate(outputs)})
    sums = checked_tensors({f"lses[{i}]": x for i, x in enumerate(lses)})
    out_dtype, device = outputs[0].dtype, outputs[0].device
    dtype = computing_dtype(out_dtype)
    for (name, output), (called, lse) in zip(known.items(), sums.items(), strict=True):
        if lse.dtype != dtype or lse.device != device:
            wanted = f"{dtype} on {device}, as the outputs ask"
            raise TypeError(f"{called} must be {wanted}; got {lse.dtype} on {lse.device}")
        if output.shape != outputs[0].shape or lse.shape != output.shape[:-1] or not output.ndim:
            came = f"{name} {tuple(output.shape)}, {called} {tuple(lse.shape)}"
            wanted = f"each output {tuple(outputs[0].shape)} and each lse the same without d_v"
            raise ValueError(f"pieces must fit together, {wanted}; got {came}")
    m = torch.stack(list(lses), -1)[..., None]  # with ℓ = 1, the log-sum-exp is m
    o = torch.stack(list(outputs), -2).to(dtype)
    output, lse = _merged(m, torch.ones_like(m), o)
    return output.to(out_dtype), lse[..., 0]


@as_autocast_does
def attend(
    query: Tensor, key: Tensor, value: Tensor, cache: KVCache, *, counts: Counts | None = None,
    scale: float | None = None, window: Window | None = None, block_size_k: int | None = None,
) -> Tensor:
    """Return the output of L new tokens, which see those in the cache, and join them there.

    Attention is causal, and aligned at the bottom right: the last new token stands at the last
    key. If the call fails, the cache is as it was before.

    Args:
        query, key, value: those of the new tokens. Heads come in groups where query has more:
            head h uses key head h // (H / H_kv), and no key is repeated in memory for that.
        cache: what the tokens before have left.
        counts: how many of the L tokens each row has, where rows are padded on the right to equal
            lengths; the output of padding is 0. None for all L.
        scale: as in `scaled_dot_product_attention`.
        window: (left, right), how many keys before its own position a token sees. Right is of no
            use, because a token sees none after it. None for all.
        block_size_k: the size of the pieces that keys are split in, head by head: use it where
            there are fewer heads than cores. The keys that are left over keep one core busy, so
            that many small pieces are better than one for each core. None does not split.

    Shapes:
        query (B, H, L, d_k), key (B, H_kv, L, d_k), value (B, H_kv, L, d_v) → (B, H, L, d_v)

    Raises:
        TypeError, ValueError: for what does not fit the cache, and for a row that gets full.
        RuntimeError: where gradients are asked for, which a cache does not keep.

    Source:
        Shazeer 2019 (arXiv 1911.02150), section 2.4; chapter 15.

    Example:
        All scores are 0, so that a token's output is the mean of the values so far.

        >>> cache, zero = KVCache(batch=1, n_kv_heads=1, capacity=8, d_k=1), torch.zeros(1, 1, 1, 1)
        >>> attend(zero, zero, torch.tensor([[[[6.0]]]]), cache).item()
        6.0
        >>> attend(zero, zero, torch.tensor([[[[2.0]]]]), cache).item()
        4.0
    """
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a KVCache; got {type(cache).__qualname__}")
    found = checked_new_tokens(cache, key, value, counts)
    batch, n_kv_heads, n_tokens, d_k = key.shape
    n_heads = query.shape[1] if isinstance(query, Tensor) and query.ndim == 4 else n_kv_heads
    check_fits("query", query, cache.key, (batch, n_heads, n_tokens, d_k))
    if n_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"query must have a multiple of {n_kv_heads} heads; got {n_heads}")
    scale = checked_scale(scale, d_k)
    if block_size_k is not None:
        checked_count("block_size_k", block_size_k, least=1)
    left = checked_band(0, 0, Options(is_causal=True, window=window)).left
    outputs = [
        _step(new, memory, start, scale, left, block_size_k)
        for start, memory, new in batches_of_rows(cache, found, query, key, value)
    ]
    # Last, so that no failure above changes what the cache holds.
    cache.lengths = tuple(map(operator.add, cache.lengths, found))
    if len(outputs) == 1 and found[0] == n_tokens:
        return outputs[0]
    return torch.cat([F.pad(x, (0, 0, 0, n_tokens - x.shape[2])) for x in outputs])


def _step(
    new: Sequence[Tensor], memory: tuple[Tensor, Tensor], start: int, scale: float,
    left: int | None, block_size_k: int | None,
) -> Tensor:
    """Write new tokens into memory, from the slot `start` on, and return what they see there."""
    (query, key, value), (keys, values) = new, memory
    batch, n_heads, n_queries, d_k = query.shape
    stop, first = start + n_queries, 0 if left is None else max(0, start - left)
    keys[:, :, start:stop], values[:, :, start:stop] = key, value
    keys, values = keys[:, :, first:stop], values[:, :, first:stop]
    n_kv_heads, n_keys, d_v = values.shape[1:]
    group = n_heads // n_kv_heads
    if n_queries == 1:  # no mask, and little beside two products
        q, k, v = query.reshape(-1, group, d_k), keys.flatten(0, 1), values.flatten(0, 1)
        wide = computing_dtype(query.dtype, scale)
        if query.dtype != wide:
            q, k, v = q.to(wide), k.to(wide), v.to(wide)
        if block_size_k is None:
            weights = torch.softmax(scaled_product(q, k, scale, torch.bmm), -1)
            output = torch.bmm(weights, v)
        else:  # one softmax of all scores of a head, so no state of a piece and no merge
            heads = []
            for own_query, own_keys, own_values in zip(q, k, v, strict=True):
                weights = torch.softmax(_scores(own_query, own_keys, scale, block_size_k), -1)
                heads.append(_mean(weights, own_values, block_size_k))
            output = torch.stack(heads)
        output = output.view(batch, n_heads, 1, d_v)
        return output if query.dtype == wide else output.to(query.dtype)
    causal = functools.partial(
        scaled_dot_product_attention, scale=scale, enable_gqa=True, causal_align="bottom-right",
        window=(left, 0), block_size_k=block_size_k or max(1, n_keys),
    )
    if block_size_k is None:
        return causal(query, keys, values)
    q = query.reshape(batch * n_kv_heads, group, n_queries, d_k)
    k, v = keys.flatten(0, 1), values.flatten(0, 1)
    heads = [causal(q[i], k[i : i + 1], v[i : i + 1]) for i in range(len(q))]
    return torch.stack(heads).view(batch, n_heads, n_queries, d_v)


def _scores(query: Tensor, key: Tensor, scale: float, size: int) -> Tensor:
    """Return scale · Q Kᵀ, (group, S). Torch deals out the pieces of one product to the cores."""
    n, left = divmod(len(key), size)
    if n and left:
        both = key[:-left], key[-left:]
        return torch.cat([_scores(query, keys, scale, size) for keys in both], -1)
    pieces = key.view(n or 1, -1, key.shape[-1])
    queries = query.expand(len(pieces), *query.shape)
    return scaled_product(queries, pieces, scale, torch.bmm).transpose(0, 1).flatten(1)


def _mean(weights: Tensor, value: Tensor, size: int) -> Tensor:
    """Return W V (group, d_v), where the pieces are added from first to last."""
    n, left = divmod(len(value), size)
    if n and left:
        whole = _mean(weights[:, :-left], value[:-left], size)
        return whole + _mean(weights[:, -left:], value[-left:], size)
    pieces = value.view(n or 1, -1, value.shape[-1])
    shares = weights.view(len(weights), len(pieces), -1).transpose(0, 1)
    added: Tensor = functools.reduce(torch.add, torch.bmm(shares, pieces))
    return added
