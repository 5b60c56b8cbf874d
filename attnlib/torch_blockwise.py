"""Attention in tiles, forward and backward: memory that grows with T, not with T².

Forward: a block of queries meets one block of keys after the other. It keeps each row's largest
score m, the row sum ℓ and the output o, which is chapter 12's fold (`numpy_blockwise`):

    m' = max(m, max_j s_j)    ℓ' = exp(m - m') ℓ + Σ_j exp(s_j - m')    o' likewise, with v_j

Backward: the weights of a tile are recomputed from m and ℓ, the two parts of the log-sum-exp
L = m + log ℓ, so that nothing of the size of the scores is kept (chapter 13):

    P  = exp(S - m) / ℓ                  dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - dL             dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q          dM = dS

The parts are kept apart because their sum forgets ℓ where m is large, as under a mask of the
least finite number. Half precision (float16, bfloat16) is computed in float32, and rounded once,
at the end. What makes the loops fast is in `_torch_tiles`.
"""

from __future__ import annotations

from attnlib import _needs

_needs(__name__, "torch")

import math
import sys
from typing import Any

import torch
from torch import Tensor

from attnlib._checks import (
    beyond,
    blocks,
    broadcast_shapes,
    check_no_dropout,
    checked_count,
    checked_scale,
)
from attnlib._torch_checks import as_autocast_does, torch_call
from attnlib._torch_operators import Four, Operand, Operator, Results, placeholder
from attnlib._torch_tiles import Tiles, cut, heads, largest, sizes
from attnlib.torch_dense import HALF


def _attend(
    tiles: Tiles, headroom: Operand, query: Tensor, key: Tensor, value: Tensor, output: Tensor,
    shift: Tensor, row_sum: Tensor, block_q: int, block_k: int,
) -> None:  # fmt: skip
    """Fill output (G, L, E_v), shift and row_sum (G, L, 1) of some heads."""
    lowest = torch.finfo(output.dtype).min  # in place of -∞, because -∞ - (-∞) is NaN
    for rows in blocks(0, query.shape[1], block_q):
        q = tiles.queries(query[:, rows])
        m, ell, o = shift[:, rows].fill_(lowest), row_sum[:, rows].zero_(), output[:, rows]
        for columns in blocks(0, tiles.end(rows, key.shape[1]), block_k):
            k, v = tiles.seen(key, value, rows, columns)
            scores = tiles.scores(q, k, rows, columns)
            m_new = torch.maximum(m, scores.amax(-1, keepdim=True))
            weights = scores.sub_(m_new if headroom is None else m_new + headroom)
            tiles.power(weights, out=weights)
            if columns.start:  # the first block finds nothing to rescale
                shrink = tiles.power(m - m_new)
                ell.mul_(shrink)
                o.mul_(shrink)
            ell.add_(weights.sum(-1, keepdim=True))
            o.baddbmm_(weights, v, beta=min(columns.start, 1))
            m.copy_(m_new)
        o.div_(ell)
        if headroom is not None:
            m.add_(headroom)


def _differentiate(
    tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, output: Tensor, d_output: Tensor,
    shift: Tensor, row_sum: Tensor, d_lse: Tensor, d_query: Operand, d_key: Operand,
    d_value: Operand, d_mask: Operand, block_q: int, block_k: int,
) -> None:  # fmt: skip
    """Add what some heads contribute to the gradients that are wanted."""
    for rows in blocks(0, query.shape[1], block_q):
        q, m, ell = tiles.queries(query[:, rows]), shift[:, rows], row_sum[:, rows]
        D = (d_output[:, rows] * output[:, rows]).sum(-1, keepdim=True).sub_(d_lse[:, rows])
        # Divided by ℓ here, and not in P, which has more numbers. An empty row has ℓ = 0.
        d_o, D = ((x / ell).masked_fill_(ell == 0, 0) for x in (d_output[:, rows], D))
        for columns in blocks(0, tiles.end(rows, key.shape[1]), block_k):
            k, v = tiles.seen(key, value, rows, columns)
            weights = tiles.scores(q, k, rows, columns).sub_(m)
            tiles.power(weights, out=weights)
            if d_value is not None:
                d_value[:, columns].baddbmm_(weights.mT, d_o)
            if d_query is None and d_key is None and d_mask is None:
                continue
            d_scores = weights.mul_(tiles.product("d_weights", d_o, v).sub_(D))
            if d_mask is not None:
                gathered = cut(d_mask, rows, columns)
                gathered.add_(d_scores.sum_to_size(gathered.shape))
            if d_query is not None:
                d_query[:, rows].baddbmm_(d_scores, k)
            if d_key is not None:
                d_key[:, columns].baddbmm_(d_scores.mT, q)


def _computing(dtype: torch.dtype, scale: float | None) -> torch.dtype:
    """Return the dtype that sums are kept in."""
    wide = torch.float32 if dtype in HALF else dtype
    return torch.float64 if scale and beyond(scale, torch.finfo(wide)) else wide


def _headroom(value: Tensor, dtype: torch.dtype, unit: float) -> Operand:
    """Return what to subtract from all exponents, so that S values can be added up in this dtype.

    All weights are then smaller by one factor, which cancels in o / ℓ. None stands for 0, which
    it is unless values lie within a factor 2 S of the largest number. On a GPU it is always a
    tensor, because to decide would be to wait for the GPU.
    """
    n_keys = value.shape[-2]
    limit = torch.finfo(dtype).max / (2 * n_keys)
    room = math.ceil(math.log(2 * n_keys) / unit)
    if value.device.type == "cpu" and not largest(value) > limit:
        return None
    return torch.where(value.abs().amax() > limit, room, 0.0).to(dtype)


def _grouped(
    group: int, query: Operand, key: Operand, value: Operand, *others: Operand
) -> list[Operand]:
    """Return grouped heads with an axis of their own, along which keys and values broadcast."""

    def split(x: Operand) -> Operand:
        if x is None or x.ndim < 3:
            return x
        *batch, n_heads, n_rows, n_columns = x.shape
        pair = (1, 1) if n_heads == 1 else (n_heads // group, group)
        return x.view(*batch, *pair, n_rows, n_columns)

    shared = (x if x is None else x.unsqueeze(-3) for x in (key, value))
    return [split(query), *shared, *map(split, others)]


def _batch(operands: list[Operand]) -> torch.Size:
    output = operands[4]
    assert output is not None
    return output.shape[:-2]


def _like(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return the results' memory, with nothing in it."""
    own = 2 if group == 1 else 3
    batch = broadcast_shapes(*(tuple(x.shape[:-own]) for x in (query, key, value)))
    shape = (*batch, *query.shape[len(query.shape) - own : -1])
    dtype = _computing(query.dtype, scale)
    output = query.new_empty((*shape, value.shape[-1]), dtype=dtype)
    lse, shift, row_sum = (query.new_empty(shape, dtype=dtype) for _ in range(3))
    return Results(output, lse, shift, row_sum, placeholder(query))


def _forward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return output, log-sum-exp and its two parts, in the dtype that sums are kept in."""
    results = _like(query, key, value, attn_mask, is_causal, scale, group, options)
    output, lse, shift, row_sum, _ = results
    if not lse.numel() or not key.shape[-2]:
        for tensor, number in zip(results[:4], (0, -math.inf, 0, 0), strict=True):
            tensor.fill_(number)
        return results
    operands: list[Operand] = [
        query, key, value, attn_mask, output, shift[..., None], row_sum[..., None],
    ]  # fmt: skip
    if group > 1:
        operands = _grouped(group, *operands)
    *lengths, together = sizes(query, key, is_causal, *_blocks_asked_for(options))
    factor, dtype = checked_scale(scale, query.shape[-1]), output.dtype
    tiles = Tiles(query, key, attn_mask, is_causal, factor, dtype, together * math.prod(lengths))
    end = tiles.end(slice(0, query.shape[-2]), key.shape[-2])
    headroom = _headroom(value[..., :end, :], dtype, tiles.unit)
    with torch.autocast(query.device.type, enabled=False):
        for q, k, v, tiles.mask, *rest in heads(_batch(operands), operands, together):
            assert k is not None and v is not None
            _attend(tiles, headroom, q, k.to(dtype), v.to(dtype), *rest, *lengths)  # type: ignore[arg-type]
    empty = row_sum == 0
    if query.is_cuda or bool(empty.any()):
        output.masked_fill_(empty[..., None], 0)
    torch.add(row_sum.log(), shift, alpha=tiles.unit, out=lse)
    return results


def _backward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor, shift: Tensor,
    row_sum: Tensor, lost: Tensor, d_output: Tensor, d_lse: Tensor, needed: list[bool],
    is_causal: bool, scale: float | None, group: int, options: list[int],
) -> Four:  # fmt: skip
    """Return the gradients that are needed."""
    inputs = (query, key, value, attn_mask)
    dtype = output.dtype
    gradients = [
        torch.zeros(x.shape, dtype=dtype, device=x.device) if x is not None and need else None
        for x, need in zip(inputs, needed, strict=True)
    ]
    factor = checked_scale(scale, query.shape[-1])
    *lengths, together = sizes(query, key, is_causal, *_blocks_asked_for(options))
    tiles = Tiles(query, key, attn_mask, is_causal, factor, dtype, together * math.prod(lengths))
    if shift.numel() and key.shape[-2]:
        columns = (x[..., None] for x in (shift, row_sum, d_lse))
        operands: list[Operand] = [*inputs, output, d_output.to(dtype), *columns]
        sums: list[Operand] = [*gradients]
        if group > 1:
            operands, sums = _grouped(group, *operands), _grouped(group, *sums)
        with torch.autocast(query.device.type, enabled=False):
            for q, k, v, tiles.mask, *rest in heads(_batch(operands), [*operands, *sums], together):
                assert k is not None and v is not None
                _differentiate(tiles, q, k.to(dtype), v.to(dtype), *rest, *lengths)  # type: ignore[arg-type]
    if gradients[0] is not None:
        gradients[0].mul_(factor)
    if gradients[1] is not None and tiles.before:  # its queries were scaled by `before`
        gradients[1].mul_(factor / tiles.before)
    first, second, third, fourth = (
        placeholder(query) if x is None or sum_ is None else sum_.to(x.dtype)
        for sum_, x in zip(gradients, inputs, strict=True)
    )
    return first, second, third, fourth


_operator = Operator("torch_blockwise", _forward, _like, _backward)


def _blocks_asked_for(options: list[int]) -> tuple[int | None, int | None]:
    """Return the lengths of the blocks, None for those that are to be chosen."""
    block_q, block_k = options
    return block_q or None, block_k or None


def _checked_block(name: str, size: Any) -> int:
    """Return the length of a block, 0 where it is to be chosen."""
    # The operator takes 64 bits; a block that long holds every sequence.
    return 0 if size is None else min(checked_count(name, size, least=1), sys.maxsize)


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

    The same call gives the same bits. The last bits of a row may depend on what is computed beside
    it, because torch chooses its products by the whole shape. There are first derivatives alone:
    `torch_dense` has more. The sizes of the blocks are chosen from the shapes where they are None.
    They change the result by rounding only.

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
    results = _operator(
        query, key, value, attn_mask, bool(is_causal), factor, call.group or 1, [block_q, block_k]
    )
    return results.output.to(query.dtype), results.lse.to(_computing(query.dtype, None))
