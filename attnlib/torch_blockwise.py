"""Attention in tiles, forward and backward: memory that grows with L + S, not with L · S.

Forward: a block of queries meets one block of keys after the other. It keeps each row's largest
score m, the row sum ℓ and the output o, which is chapter 12's fold (`numpy_blockwise`):

    m' = max(m, max_j s_j)
    ℓ' = exp(m - m') ℓ + Σ_j exp(s_j - m')
    o' = exp(m - m') o + Σ_j exp(s_j - m') v_j

Backward: the weights P of a tile are recomputed from m and ℓ, the two parts of the log-sum-exp
m + log ℓ, so that nothing of the size of the scores is kept (chapter 13):

    P  = exp(S - m) / ℓ                  dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - d(lse)         dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q          d(mask) = dS

where d(lse) is the gradient of the log-sum-exp. The two parts are kept apart, because in their
sum ℓ is lost to rounding where m is as large as under a mask of -3e38. Half precision (float16,
bfloat16) is computed in float32 and rounded once, at the end. What makes the loops fast is in
`_torch_tiles`.
"""

from __future__ import annotations

from attnlib import _needs

_needs(__name__, "torch")

import math

import torch
from torch import Tensor

from attnlib._checks import FARTHEST, Band, blocks, checked_count, checked_scale
from attnlib._torch_door import Call, attention
from attnlib._torch_operators import (
    Four,
    Operand,
    Operator,
    Results,
    headroom_of,
    placeholder,
    wide_results_like,
)
from attnlib._torch_tiles import Tiles, cut, grouped, heads, sizes


def _attend(
    tiles: Tiles, headroom: Operand, query: Tensor, key: Tensor, value: Tensor, output: Tensor,
    shift: Tensor, row_sum: Tensor, block_q: int, block_k: int,
) -> None:  # fmt: skip
    """Fill output (G, L, d_v), shift and row_sum (G, L, 1) of some heads."""
    lowest = torch.finfo(output.dtype).min  # in place of -∞, because -∞ - (-∞) is NaN
    for rows in blocks(0, query.shape[1], block_q):
        q = tiles.queries(query[:, rows])
        m, ell, o = shift[:, rows].fill_(lowest), row_sum[:, rows].zero_(), output[:, rows]
        for place, columns in enumerate(tiles.columns(rows, key.shape[1], block_k)):
            k, v = tiles.seen(key, value, rows, columns)
            scores = tiles.scores(q, k, rows, columns)
            m_new = torch.maximum(m, scores.amax(-1, keepdim=True))
            weights = scores.sub_(m_new if headroom is None else m_new + headroom)
            tiles.power(weights, out=weights)
            if place:  # the first block finds nothing to rescale
                shrink = tiles.power(m - m_new)
                ell.mul_(shrink)
                o.mul_(shrink)
            ell.add_(weights.sum(-1, keepdim=True))
            o.baddbmm_(weights, v, beta=min(place, 1))
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
        for columns in tiles.columns(rows, key.shape[1], block_k):
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


@attention()  # makes the public signature, that of torch
def scaled_dot_product_attention(
    call: Call, *, block_size_q: int | None = None, block_size_k: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√d_k where it is None, in tiles of
    `block_size_q` queries by `block_size_k` keys (at least 1). Where they are None they are chosen
    from the shapes, the number of threads and the second cache of the processor. They change the
    result by rounding only.

    A row in which no key takes part gives zeros, and zero gradients. NaN in what takes part gives
    NaN. In a key or value that no row of its tile may see, it changes nothing; tiles that
    `is_causal` and `window` leave out are not computed at all. In one that some rows of the tile
    see, the others of the tile see a NaN value as well, as in torch (0 · NaN), but not a NaN key;
    gradients mix the rows and are NaN in both cases.

    The same call gives the same bits. The last bits of a row may depend on what is computed beside
    it, because torch chooses its products by the whole shape. There are first derivatives alone,
    and second ones raise a RuntimeError: `torch_dense` has more.

    Source:
        Dao et al. 2022, algorithms 1 and 4; chapters 12 and 13.

    Example:
        >>> keys, values = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0]])
        >>> scaled_dot_product_attention(torch.tensor([[0.0]]), keys, values, block_size_k=1)
        tensor([[15.]])
    """
    sizes = {"block_size_q": block_size_q, "block_size_k": block_size_k}
    # 0 is to be chosen. A block of FARTHEST holds every sequence.
    options = [
        0 if size is None else min(checked_count(name, size, least=1), FARTHEST)
        for name, size in sizes.items()
    ]
    results = _operator(call, [*options, 0])
    return results.output, results.lse


scaled_dot_product_attention_with_lse = scaled_dot_product_attention.with_lse


def _forward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, band: list[int],
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return output, log-sum-exp and its two parts, in the dtype that sums are kept in."""
    results = wide_results_like(query, key, value, attn_mask, band, scale, group, options)
    output, lse, shift, row_sum, _ = results
    if not lse.numel() or not key.shape[-2]:
        for tensor, number in zip(results[:4], (0, -math.inf, 0, 0), strict=True):
            tensor.fill_(number)
        return results
    operands: list[Operand] = [
        query, key, value, attn_mask, output, shift[..., None], row_sum[..., None],
    ]  # fmt: skip
    if group > 1:
        operands = grouped(group, *operands)
    tiles, lengths, together = _tiles(query, key, attn_mask, band, scale, output.dtype, options)
    start, stop = tiles.band.span(slice(0, query.shape[-2]), key.shape[-2])
    headroom = headroom_of(value[..., start:stop, :], output.dtype, tiles.unit)
    with torch.autocast(query.device.type, enabled=False):
        for q, k, v, tiles.mask, *rest in heads(_batch(operands), operands, together):
            assert k is not None and v is not None
            k, v = k.to(output.dtype), v.to(output.dtype)
            _attend(tiles, headroom, q, k, v, *rest, *lengths)  # type: ignore[arg-type]
    empty = row_sum == 0
    if query.is_cuda or bool(empty.any()):
        output.masked_fill_(empty[..., None], 0)
    torch.add(row_sum.log(), shift, alpha=tiles.unit, out=lse)
    return results


def _backward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor, shift: Tensor,
    row_sum: Tensor, lost: Tensor, d_output: Tensor, d_lse: Tensor, needed: list[bool],
    band: list[int], scale: float | None, group: int, options: list[int],
) -> Four:  # fmt: skip
    """Return the gradients that are needed."""
    inputs, dtype = (query, key, value, attn_mask), output.dtype
    gradients = [
        torch.zeros(x.shape, dtype=dtype, device=x.device) if x is not None and need else None
        for x, need in zip(inputs, needed, strict=True)
    ]
    tiles, lengths, together = _tiles(query, key, attn_mask, band, scale, dtype, options)
    if shift.numel() and key.shape[-2]:
        columns = (x[..., None] for x in (shift, row_sum, d_lse))
        operands: list[Operand] = [*inputs, output, d_output.to(dtype), *columns]
        sums: list[Operand] = [*gradients]
        if group > 1:
            operands, sums = grouped(group, *operands), grouped(group, *sums)
        with torch.autocast(query.device.type, enabled=False):
            for q, k, v, tiles.mask, *rest in heads(_batch(operands), [*operands, *sums], together):
                assert k is not None and v is not None
                _differentiate(tiles, q, k.to(dtype), v.to(dtype), *rest, *lengths)  # type: ignore[arg-type]
    if gradients[0] is not None:
        gradients[0].mul_(tiles.scale)
    if gradients[1] is not None and tiles.before:  # its queries were scaled by `before`
        gradients[1].mul_(tiles.scale / tiles.before)
    first, second, third, fourth = (
        placeholder(query) if x is None or sum_ is None else sum_.to(x.dtype)
        for sum_, x in zip(gradients, inputs, strict=True)
    )
    return first, second, third, fourth


def _tiles(
    query: Tensor, key: Tensor, mask: Operand, band: list[int], scale: float | None,
    dtype: torch.dtype, options: list[int],
) -> tuple[Tiles, list[int], int]:  # fmt: skip
    """Return the tiles, the lengths of their sides, and how many heads come together.

    The options are the lengths, 0 where they are to be chosen, and whether m is to be in units of
    1, so that calls on parts of the keys can be merged.
    """
    limits, factor = Band.of(band), checked_scale(scale, query.shape[-1])
    *lengths, together = sizes(query, key, limits, dtype, *options[:2])
    room = together * math.prod(lengths)
    tiles = Tiles(query, key, mask, limits, factor, dtype, room, natural=bool(options[2]))
    return tiles, lengths, together


def _batch(operands: list[Operand]) -> torch.Size:
    output = operands[4]
    assert output is not None
    return output.shape[:-2]


_operator = Operator("torch_blockwise", _forward, wide_results_like, _backward)
