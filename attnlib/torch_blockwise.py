"""Attention in tiles, forward and backward: memory that grows with L + S, not with L · S.

Forward: a block of queries meets one block of keys after the other. It keeps each row's largest
score m, the sum ℓ of its weights and the output o, which is chapter 12's fold (`numpy_blockwise`):

    m' = max(m, max_j s_j)
    ℓ' = exp(m - m') ℓ + Σ_j exp(s_j - m')
    o' = exp(m - m') o + Σ_j exp(s_j - m') v_j

Backward: the weights P of a tile are recomputed from m and ℓ, the two terms of the log-sum-exp
m + log ℓ, so that nothing of the size of the scores is kept (chapter 13):

    P  = exp(S - m) / ℓ                  dV = Pᵀ dO
    D  = rowsum(dO ∘ O) - d(lse)         dS = P ∘ (dO Vᵀ - D)
    dQ = scale · dS K                    dK = scale · dSᵀ Q          d(mask) = dS

where d(lse) is the gradient of the log-sum-exp. The two terms are kept apart, because in their
sum ℓ is lost to rounding where m is as large as under a mask of -3e38. Half precision (float16,
bfloat16) is computed in float32 and rounded once, at the end. What makes the loops fast is in
`_torch_tiles`.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlib._checks import MAX_LENGTH, Band, Options, Window, blocks, check_flag, checked_count
from attnlib._docstrings import TENSORS, document
from attnlib._tensors import Call, as_autocast_does, checked_tensors, computing_dtype
from attnlib._torch_operators import (
    Kept,
    Operands,
    Operator,
    OptTensor,
    Results,
    Upstream,
    near_overflow,
    unrounded_results,
)
from attnlib._torch_tiles import Tiles, cut, grouped, heads, sizes


def _fold(
    tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, results: Sequence[Tensor],
    block_q: int, block_k: int,
) -> None:
    """Fill the results of some heads: o (G, L, d_v), and m and ell (G, L, 1)."""
    lowest = torch.finfo(key.dtype).min  # in place of -∞, because -∞ - (-∞) is NaN
    for rows in blocks(0, query.shape[1], block_q):
        q = query[:, rows].to(tiles.dtype) * tiles.before
        o, m, ell = (x[:, rows] for x in results)
        m.fill_(lowest)
        ell.zero_()
        for n_before, columns in enumerate(blocks(*tiles.band.span(rows, key.shape[1]), block_k)):
            k, v = tiles.seen(key, value, rows, columns)
            scores = tiles.scores(q, k, rows, columns)
            m_new = torch.maximum(m, scores.amax(-1, keepdim=True))
            weights = tiles.power(scores.sub_(m_new), out=scores)
            if n_before:  # the first block finds nothing to rescale
                rescale = tiles.power(m - m_new)
                ell.mul_(rescale)
                o.mul_(rescale)
            ell.add_(weights.sum(-1, keepdim=True))
            o.baddbmm_(weights, v, beta=min(n_before, 1))
            m.copy_(m_new)
        o.div_(ell)


def _differentiate(
    tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, output: Tensor, d_output: Tensor,
    m: Tensor, ell: Tensor, d_lse: Tensor, d_query: OptTensor, d_key: OptTensor, d_value: OptTensor,
    d_mask: OptTensor, block_q: int, block_k: int,
) -> None:
    """Add what some heads contribute to the gradients that are wanted."""
    for rows in blocks(0, query.shape[1], block_q):
        q, sums = query[:, rows].to(tiles.dtype) * tiles.before, ell[:, rows]
        D = (d_output[:, rows] * output[:, rows]).sum(-1, keepdim=True).sub_(d_lse[:, rows])
        # Divided by ℓ here, and not in P, which has more numbers. An empty row has ℓ = 0.
        d_o, D = ((x / sums).masked_fill_(sums == 0, 0) for x in (d_output[:, rows], D))
        for columns in blocks(*tiles.band.span(rows, key.shape[1]), block_k):
            k, v = tiles.seen(key, value, rows, columns)
            weights = tiles.scores(q, k, rows, columns).sub_(m[:, rows])
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


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size_q: int | None = None, block_size_k: int | None = None,
) -> Tensor:
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
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window, block_size_q=block_size_q,
        block_size_k=block_size_k,
    )[0]


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size_q: int | None = None, block_size_k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    call = Call((query, key, value), options)
    sizes = {"block_size_q": block_size_q, "block_size_k": block_size_k}
    # 0 is to be chosen. A block of MAX_LENGTH holds every sequence.
    lengths = [
        0 if size is None else min(checked_count(name, size, least=1), MAX_LENGTH)
        for name, size in sizes.items()
    ]
    results = _operator(call, [*lengths, 0])
    return call.finish(results.output, results.lse)


document(scaled_dot_product_attention, scaled_dot_product_attention_with_lse, TENSORS)


def block_sizes(query: Tensor, key: Tensor, *, is_causal: bool = False) -> tuple[int, int, int]:
    """Return what is chosen for a call: queries and keys of a block, heads computed at once.

    A window counts as a causal mask does.

    Example:
        >>> block_sizes(torch.zeros(100, 8), torch.zeros(5, 8))[:2]
        (100, 5)
    """
    checked_tensors({"query": query, "key": key})
    check_flag("is_causal", is_causal)
    band, dtype = Band(right=0 if is_causal else None), computing_dtype(query.dtype)
    return sizes(query, key, band, dtype, 0, 0)


def _forward(operands: Operands) -> Results:
    """Return output, log-sum-exp and its two terms, in the dtype that sums are kept in."""
    query, key, value, mask = operands[:4]
    results = unrounded_results(operands)
    output, lse, m, ell, _ = results
    tiles, lengths, heads_at_once = _tiles(operands, output.dtype)
    start, stop = tiles.band.span(slice(0, query.shape[-2]), key.shape[-2])
    near = near_overflow(value[..., start:stop, :], output.dtype)
    if near is not None:  # a power of 2 makes values so small that all of them can be added up
        bound, is_near = near
        power = 0.5 ** (2 * (stop - start)).bit_length()
        factor = torch.where(is_near, power, 1.0).to(output.dtype)
    of_rows = output, m[..., None], ell[..., None]
    level = grouped(operands.group, query, key, value, mask, *of_rows)
    with torch.autocast(query.device.type, enabled=False):
        for q, k, v, tiles.mask, *rows in heads(level, heads_at_once):
            assert k is not None and v is not None
            k, v = k.to(output.dtype), v.to(output.dtype)
            v = v if near is None else v * factor
            _fold(tiles, q, k, v, rows, *lengths)  # type: ignore[arg-type]
    if near is not None:  # what is infinite now has an infinite value that takes part
        mean = (output / factor).clamp_(-bound, bound)  # no mean of finite values is larger
        output.copy_(torch.where(output.isinf(), output, mean))
    empty = ell == 0
    if query.is_cuda or bool(empty.any()):
        output.masked_fill_(empty[..., None], 0)
    torch.add(ell.log(), m, alpha=tiles.unit, out=lse)
    return results


def _backward(
    operands: Operands, kept: Kept, upstream: Upstream, needed: list[bool]
) -> list[OptTensor]:
    """Return the gradients that are needed."""
    inputs, dtype, device = operands[:4], kept.output.dtype, operands.query.device
    gradients = [
        torch.zeros(x.shape, dtype=dtype, device=device) if x is not None and need else None
        for x, need in zip(inputs, needed, strict=True)
    ]
    tiles, lengths, heads_at_once = _tiles(operands, dtype)
    columns = (x[..., None] for x in (kept.m, kept.ell, upstream.lse))
    level = grouped(operands.group, *inputs, kept.output, upstream.output.to(dtype), *columns)
    sums = grouped(operands.group, *gradients)
    with torch.autocast(device.type, enabled=False):
        for q, k, v, tiles.mask, *rest in heads([*level, *sums], heads_at_once):
            assert k is not None and v is not None
            _differentiate(tiles, q, k.to(dtype), v.to(dtype), *rest, *lengths)  # type: ignore[arg-type]
    if gradients[0] is not None:
        gradients[0].mul_(tiles.scale)
    if gradients[1] is not None and tiles.before:  # its queries were scaled by `before`
        gradients[1].mul_(tiles.scale / tiles.before)
    return gradients


def _tiles(operands: Operands, dtype: torch.dtype) -> tuple[Tiles, list[int], int]:
    """Return the tiles, the lengths of their sides, and how many heads to take at once.

    The options are the lengths, 0 where they are to be chosen, and whether m is to be in units of
    1, so that calls on some of the keys can be merged.
    """
    query, key, _, mask, band, *_ = operands
    block_q, block_k, natural = operands.options
    *lengths, heads_at_once = sizes(query, key, band, dtype, block_q, block_k)
    room = heads_at_once * math.prod(lengths)
    tiles = Tiles(query, key, mask, band, operands.scale, dtype, room, natural=bool(natural))
    return tiles, lengths, heads_at_once


_operator = Operator("torch_blockwise", _forward, unrounded_results, _backward)
