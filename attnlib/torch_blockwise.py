"""Attention in tiles, forward and backward: memory that grows with T, not with T².

Forward: a block of queries meets one block of keys after the other, and keeps a shift m near each
row's largest score, the row sum ℓ and the output (`numpy_blockwise` has this fold in the open).
Backward: from m and ℓ, the two parts of the log-sum-exp L = m + log ℓ, the weights of a tile are
had again, so that nothing of the size of the scores is kept:

    P  = exp(S - L)                      dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - dL             dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q          dM = dS

The parts are kept apart because their sum forgets ℓ where m is large, as under a mask of the
least finite number. Half precision (float16, bfloat16) is computed in float32, and rounded once,
at the end. Both passes are operators of their own, which torch.compile takes as they are.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor

from attnlib._checks import (
    beyond,
    broadcast_shapes,
    check_no_dropout,
    checked_count,
    checked_scale,
)
from attnlib._torch_checks import as_autocast_does, torch_call
from attnlib._torch_tiles import Operand, Tiles, cut, heads, with_column
from attnlib.numpy_blockwise import _blocks
from attnlib.torch_dense import HALF, _seen

# A power of the largest score may grow to 2²⁰ before its row is scaled down.
_LARGEST = 20.0


def _attend(
    tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, output: Tensor, shift: Tensor,
    row_sum: Tensor, block_q: int, block_k: int,
) -> None:  # fmt: skip
    """Fill output (G, L, E_v), shift and row_sum (G, L, 1) of some heads.

    A row's scores are taken relative to `shift`, at first the largest score of its first block.
    Where more blocks follow, the last column of query and key brings it into the product, and it
    moves only where it must.
    """
    dtype = output.dtype
    end = tiles.end(slice(0, query.shape[1]), key.shape[1])
    query = query.to(dtype) * tiles.before
    key, value = key[:, :end].to(dtype), value[:, :end].to(dtype)
    longer = with_column(key, 1) if end > block_k else key
    for rows in _blocks(query.shape[1], block_q):
        own, total, here, sums = (x[:, rows] for x in (query, output, shift, row_sum))
        first, *others = _blocks(tiles.end(rows, end), block_k)
        scores, values = tiles.scores_and_values(own, key, value, rows, first)
        torch.amax(scores, -1, keepdim=True, out=here)
        limit = torch.where(here == -math.inf, here, _LARGEST) if others else here
        here.nan_to_num_(math.nan, math.inf, 0)  # a row that has seen no key: subtract 0, not -∞
        tiles.power(scores.sub_(here), out=scores)
        torch.sum(scores, -1, keepdim=True, out=sums)
        torch.bmm(scores, values, out=total)
        if others:
            own, apart = tiles.shifted(own, here)
        for columns in others:
            scores, values = tiles.scores_and_values(own, longer, value, rows, columns)
            highest = scores.amax(-1, keepdim=True)
            beyond = (highest - here if apart else highest) > limit
            if query.is_cuda or bool(beyond.any()):
                # Where the shift is apart, the scores are as they came: relative to the least
                # finite number, which some masks hold, all of them would be one number.
                there = highest if apart else highest + here
                there = torch.where(limit == -math.inf, there, torch.maximum(here, there))
                there.masked_fill_(there == -math.inf, 0)
                step = there - here
                scores.sub_(there if apart else step)
                shrink = tiles.power(-step.clamp(min=0))
                sums.mul_(shrink)
                total.mul_(shrink)
                here.copy_(there)
                limit.masked_fill_(beyond, _LARGEST)
                own, apart = tiles.shifted(own[..., :-1], here)
            elif apart:
                scores.sub_(here)
            tiles.power(scores, out=scores)
            sums.add_(scores.sum(-1, keepdim=True))
            total.baddbmm_(scores, values)
        total.div_(sums)
    empty = row_sum == 0
    if query.is_cuda or bool(empty.any()):
        output.masked_fill_(empty, 0)


def _differentiate(
    tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, output: Tensor, d_output: Tensor,
    shift: Tensor, row_sum: Tensor, d_lse: Tensor, d_query: Operand, d_key: Operand,
    d_value: Operand, d_mask: Operand, block_q: int, block_k: int,
) -> None:  # fmt: skip
    """Add to the gradients of some heads what they have for them."""
    dtype = output.dtype
    end = tiles.end(slice(0, query.shape[1]), key.shape[1])
    key, value = (with_column(x[:, :end].to(dtype), 1) for x in (key, value))
    for rows in _blocks(query.shape[1], block_q):
        here, sums = shift[:, rows], row_sum[:, rows]
        own = query[:, rows].to(dtype) * tiles.before
        shifted, apart = tiles.shifted(own, here)
        delta = (d_output[:, rows] * output[:, rows]).sum(-1, keepdim=True).sub_(d_lse[:, rows])
        upstream = with_column(d_output[:, rows].to(dtype), -delta)
        upstream = upstream.div_(sums).masked_fill_(sums == 0, 0)  # not the weights: they are more
        above = upstream[..., :-1].contiguous()
        for columns in _blocks(tiles.end(rows, key.shape[1]), block_k):
            mask, part = tiles.part(rows, columns)
            keys, values = _seen(key[:, columns], part), _seen(value[:, columns], part)
            weights = tiles.scores(shifted, keys, rows, columns, mask, part)
            if apart:
                weights.sub_(here)
            tiles.power(weights, out=weights)
            if d_value is not None:
                d_value[:, columns].baddbmm_(weights.mT, above)
            if d_query is None and d_key is None and d_mask is None:
                continue
            d_weights = tiles.buffer("d_weights", own, *weights.shape)
            d_scores = weights.mul_(torch.bmm(upstream, values.mT, out=d_weights))
            if d_mask is not None:
                gathered = cut(d_mask, rows, columns)
                gathered.add_(d_scores.sum_to_size(gathered.shape))
            if d_query is not None:
                d_query[:, rows].baddbmm_(d_scores, keys[..., :-1])
            if d_key is not None:
                d_key[:, columns].baddbmm_(d_scores.mT, own)


def _computing(dtype: torch.dtype, scale: float | None) -> torch.dtype:
    """Give the dtype that sums are kept in."""
    wide = torch.float32 if dtype in HALF else dtype
    return torch.float64 if scale and beyond(scale, torch.finfo(wide)) else wide


def _sizes(
    query: Tensor, key: Tensor, is_causal: bool, block_q: int | None, block_k: int | None
) -> tuple[int, int, int]:
    """Give the lengths of the blocks, and how many heads to take together.

    Heads together give every core tiles of its own. Few queries waste less at the diagonal of a
    causal mask, and then many keys make up for it; each row's first block costs less than others.
    """
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    if query.is_cuda:
        chosen, room, least = (1024, 1024), 2**24, 1
    else:
        causal = (128 if n_queries <= 1024 else 256, 8192)
        chosen, room, least = causal if is_causal else (1024, 1024), 2**19, torch.get_num_threads()
    block_q = min(block_q or chosen[0], max(1, n_queries))
    block_k = min(block_k or chosen[1], max(1, n_keys))
    return block_q, block_k, max(least, room // (block_q * block_k))


def _grouped(
    group: int, query: Operand, key: Operand, value: Operand, *others: Operand
) -> list[Operand]:
    """Give grouped heads an axis of their own, along which keys and values broadcast."""

    def split(x: Operand) -> Operand:
        if x is None or x.ndim < 3:
            return x
        *batch, n_heads, n_rows, n_columns = x.shape
        pair = (1, 1) if n_heads == 1 else (n_heads // group, group)
        return x.view(*batch, *pair, n_rows, n_columns)

    shared = (x if x is None else x.unsqueeze(-3) for x in (key, value))
    return [split(query), *shared, *map(split, others)]


_FORWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale, "
    "int group, int? block_q, int? block_k) -> (Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor output, Tensor shift, "
    "Tensor row_sum, Tensor d_output, Tensor d_lse, bool[] needed, bool is_causal, float? scale, "
    "int group, int? block_q, int? block_k) -> (Tensor, Tensor, Tensor, Tensor)"
)
Four = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("attnlib::blockwise", mutates_args=(), schema=_FORWARD)
def _forward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, block_q: int | None, block_k: int | None,
) -> Four:  # fmt: skip
    """Give output, log-sum-exp and its two parts, in the dtype that sums are kept in."""
    output, lse, shift, row_sum = _like(query, key, value, attn_mask, is_causal, scale, group)
    if not lse.numel() or not key.shape[-2]:
        return output.zero_(), lse.fill_(-math.inf), shift.zero_(), row_sum.zero_()
    operands: list[Operand] = [
        query, key, value, attn_mask, output, shift[..., None], row_sum[..., None],
    ]  # fmt: skip
    if group > 1:
        operands = _grouped(group, *operands)
    *sizes, together = _sizes(query, key, is_causal, block_q, block_k)
    factor = checked_scale(scale, query.shape[-1])
    tiles = Tiles(attn_mask, is_causal, factor, together * math.prod(sizes))
    with torch.autocast(query.device.type, enabled=False):
        for q, k, v, tiles.mask, *results in heads(_batch(operands), operands, together):
            _attend(tiles, q, k, v, *results, *sizes)  # type: ignore[arg-type]
    return output, torch.add(row_sum.log(), shift, alpha=tiles.unit, out=lse), shift, row_sum


@torch.library.custom_op("attnlib::blockwise_backward", mutates_args=(), schema=_BACKWARD)
def _backward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor, shift: Tensor,
    row_sum: Tensor, d_output: Tensor, d_lse: Tensor, needed: list[bool], is_causal: bool,
    scale: float | None, group: int, block_q: int | None, block_k: int | None,
) -> Four:  # fmt: skip
    """Give the gradients that are needed, and something empty for the others."""
    inputs = (query, key, value, attn_mask)
    gradients = [
        torch.zeros(x.shape, dtype=output.dtype, device=x.device)
        if x is not None and need
        else None
        for x, need in zip(inputs, needed, strict=True)
    ]
    factor = checked_scale(scale, query.shape[-1])
    *sizes, together = _sizes(query, key, is_causal, block_q, block_k)
    tiles = Tiles(attn_mask, is_causal, factor, together * math.prod(sizes))
    if shift.numel() and key.shape[-2]:
        columns = (x[..., None] for x in (shift, row_sum, d_lse))
        operands: list[Operand] = [*inputs, output, d_output, *columns]
        sums: list[Operand] = [*gradients]
        if group > 1:
            operands, sums = _grouped(group, *operands), _grouped(group, *sums)
        with torch.autocast(query.device.type, enabled=False):
            for q, k, v, tiles.mask, *rest in heads(_batch(operands), [*operands, *sums], together):
                _differentiate(tiles, q, k, v, *rest, *sizes)  # type: ignore[arg-type]
    if gradients[0] is not None:
        gradients[0].mul_(factor)
    if gradients[1] is not None and tiles.before:  # its queries were scaled by `before`
        gradients[1].mul_(factor / tiles.before)
    first, second, third, fourth = (
        query.new_empty(0) if x is None or sum_ is None else sum_.to(x.dtype)
        for sum_, x in zip(gradients, inputs, strict=True)
    )
    return first, second, third, fourth


def _batch(operands: list[Operand]) -> torch.Size:
    output = operands[4]
    assert output is not None
    return output.shape[:-2]


@_forward.register_fake
def _like(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, *_: object,
) -> Four:  # fmt: skip
    """Give the results' memory, with nothing in it."""
    own = 2 if group == 1 else 3
    batch = broadcast_shapes(*(tuple(x.shape[:-own]) for x in (query, key, value)))
    shape = (*batch, *query.shape[len(query.shape) - own : -1])
    dtype = _computing(query.dtype, scale)
    output = query.new_empty((*shape, value.shape[-1]), dtype=dtype)
    lse, shift, row_sum = (query.new_empty(shape, dtype=dtype) for _ in range(3))
    return output, lse, shift, row_sum


@_backward.register_fake
def _gradients_like(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor, shift: Tensor,
    row_sum: Tensor, d_output: Tensor, d_lse: Tensor, needed: list[bool], *_: object,
) -> Four:  # fmt: skip
    first, second, third, fourth = (
        x.new_empty(x.shape) if x is not None and need else query.new_empty(0)
        for x, need in zip((query, key, value, attn_mask), needed, strict=True)
    )
    return first, second, third, fourth


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    *tensors, ctx.is_causal, ctx.scale, ctx.group, ctx.block_q, ctx.block_k = inputs
    result, _, shift, row_sum = output
    ctx.save_for_backward(*tensors, result, shift, row_sum)


def _gradients(ctx: Any, d_output: Tensor, d_lse: Tensor, *_: object) -> tuple[Operand, ...]:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "torch_blockwise has no second derivatives (create_graph=True); torch_dense has them"
        )
    needed = list(ctx.needs_input_grad[:4])
    options = ctx.is_causal, ctx.scale, ctx.group, ctx.block_q, ctx.block_k
    found = _backward(*ctx.saved_tensors, d_output, d_lse, needed, *options)
    return *(x if need else None for x, need in zip(found, needed, strict=True)), *[None] * 5


_forward.register_autograd(_gradients, setup_context=_remember)


def _checked_block(name: str, size: Any) -> int | None:
    """Give the length of a block; None where it is to be chosen."""
    # The operators take 64 bits; a block that long holds every sequence.
    return None if size is None else min(checked_count(name, size, least=1), sys.maxsize)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    block_size_q: int | None = None,
    block_size_k: int | None = None,
) -> Tensor:
    """Give the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    A key takes part in a query's row if the mask there is True, or a float other than -∞, and,
    with `is_causal`, if j ≤ i. A row in which no key takes part gives zeros, and zero gradients.
    NaN in what takes part gives NaN. In a key or value that no row of its tile may see, it changes
    nothing: with `is_causal`, tiles of the future are not computed at all. In one that some rows
    of the tile see, the others of the tile see a NaN value as well, as in torch (0 · NaN), but
    not a NaN key; gradients mix the rows and are NaN in both cases.

    The same call gives the same bits. There are first derivatives alone: `torch_dense` has more.
    The sizes of the blocks are chosen from the shapes where they are None. They change the result
    by rounding only.

    Shapes: query (…, H, L, E), key (…, H, S, E), value (…, H, S, E_v) → (…, H, L, E_v). The
        leading dimensions broadcast, and there may be none. attn_mask broadcasts to (…, H, L, S).
        With `enable_gqa` key and value have H_kv heads; head h uses key head h // (H / H_kv).
    Raises: TypeError, ValueError as `torch_dense`, for dropout_p other than 0.0 as well, and for
        blocks shorter than 1. RuntimeError where second derivatives are asked for.
    Source: Dao et al. 2022, algorithms 1 and 4; chapters 12 and 13.

    >>> keys, values = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0]])
    >>> scaled_dot_product_attention(torch.tensor([[0.0]]), keys, values, block_size_k=1)
    tensor([[15.]])
    """
    output, _ = scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        block_size_q=block_size_q, block_size_k=block_size_k,
    )  # fmt: skip
    return output


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    block_size_q: int | None = None,
    block_size_k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Give the attention output, and the natural log of each row's sum of exponentials.

    lse_i = log Σ_j exp(s_ij), with gradients; -∞ for a row in which no key takes part.

    Shapes: as `scaled_dot_product_attention`, and lse (…, H, L): in float32 for half precision,
    else in query's dtype.

    >>> q, k, v = torch.zeros(1, 1), torch.zeros(4, 1), torch.zeros(4, 1)
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> lse.exp()
    tensor([4.])
    """
    tensors = {"query": query, "key": key, "value": value}
    call = torch_call(tensors, attn_mask, 0.0, is_causal, scale, enable_gqa)
    check_no_dropout(dropout_p)
    block_q = _checked_block("block_size_q", block_size_q)
    block_k = _checked_block("block_size_k", block_size_k)
    if call.group == 0:  # no query heads, so no use for key heads
        key, value = key[..., :0, :, :], value[..., :0, :, :]
    if attn_mask is not None and attn_mask.ndim < 2:
        attn_mask = attn_mask.reshape(1, -1)
    factor = None if scale is None else call.scale
    output, lse, _, _ = _forward(
        query, key, value, attn_mask, bool(is_causal), factor, call.group or 1, block_q, block_k
    )
    return output.to(query.dtype), lse.to(_computing(query.dtype, None))
