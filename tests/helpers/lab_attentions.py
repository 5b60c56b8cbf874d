"""A right answer to the lab, as a student can write it from chapters 5 to 13, without `attnlib`.

`with_mistake` gives the same code with one change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def blocks(n: int, size: int = 64) -> list[slice]:
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


class Tiles:
    """The tiles of scores of a call, whose query, key and value have one batch."""

    def __init__(self, query: Tensor, key: Tensor, mask: Any, is_causal: bool, scale: float):
        self.query, self.key, self.mask = query, key, mask
        self.is_causal, self.scale = is_causal, scale

    def columns(self, rows: slice) -> Iterator[slice]:
        for columns in blocks(self.key.shape[-2]):
            if not self.is_causal or columns.start < rows.stop:
                yield columns

    def allowed(self, rows: slice, columns: slice) -> Tensor:
        """Return which keys each query may see."""
        i, j = torch.arange(rows.start, rows.stop), torch.arange(columns.start, columns.stop)
        allowed = (
            j <= i[:, None] if self.is_causal else torch.ones(len(i), len(j), dtype=torch.bool)
        )
        if self.mask is not None:
            mask = self.mask[..., rows, columns]
            kept = mask if mask.dtype == torch.bool else mask != -torch.inf
            allowed = allowed & kept
        return allowed

    def scores(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """Return the scores after the mask, and which keys any query of the tile sees."""
        allowed = self.allowed(rows, columns)
        seen = allowed.any(-2)[..., None]
        key = torch.where(seen, self.key[..., columns, :], 0)
        scores = self.scale * (self.query[..., rows, :] @ key.mT)
        if self.mask is not None and self.mask.dtype != torch.bool:
            scores = scores + self.mask[..., rows, columns].to(scores.dtype)
        return torch.where(allowed, scores, -torch.inf), seen


def fold(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, and for each row the largest score and the sum of the powers."""
    tiles, found = Tiles(query, key, mask, is_causal, scale), []
    for rows in blocks(query.shape[-2]):
        q = query[..., rows, :]
        m = torch.full((*q.shape[:-1], 1), torch.finfo(q.dtype).min, dtype=q.dtype)
        ell = torch.zeros_like(m)
        o = q.new_zeros(*q.shape[:-1], value.shape[-1])
        for columns in tiles.columns(rows):
            s, seen = tiles.scores(rows, columns)
            m_new = torch.maximum(m, s.detach().amax(-1, keepdim=True))
            powers, before = (s - m_new).exp(), (m - m_new).exp() * ell
            ell = before + powers.sum(-1, keepdim=True)
            total = torch.where(ell == 0, 1, ell)
            # The output is a mean at each step, so that it does not overflow.
            o = before / total * o + powers / total @ torch.where(seen, value[..., columns, :], 0)
            m = m_new
        found.append((o, m, ell))
    if not found:
        found = [(query.new_zeros(*query.shape[:-1], n) for n in (value.shape[-1], 1, 1))]
    o, m, ell = (torch.cat(parts, dim=-2) for parts in zip(*found, strict=True))
    return o, m, ell


class Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query, key, value, mask, is_causal, scale):  # type: ignore[no-untyped-def]
        output, m, ell = fold(query, key, value, mask, is_causal, scale)
        ctx.save_for_backward(query, key, value, mask, output, m, ell)
        ctx.options = is_causal, scale
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_output: Tensor):  # type: ignore[no-untyped-def]
        query, key, value, mask, output, m, ell = ctx.saved_tensors
        tiles = Tiles(query, key, mask, *ctx.options)
        d_query, d_key, d_value = (torch.zeros_like(x) for x in (query, key, value))
        wants_mask = ctx.needs_input_grad[3]
        d_mask = mask.new_zeros(mask.shape) if wants_mask else None
        D = (d_output * output).sum(-1, keepdim=True)
        ell = torch.where(ell == 0, 1, ell)
        for rows in blocks(query.shape[-2]):
            g = d_output[..., rows, :]
            for columns in tiles.columns(rows):
                s, seen = tiles.scores(rows, columns)
                k, v = (torch.where(seen, x[..., columns, :], 0) for x in (key, value))
                weights = (s - m[..., rows, :]).exp() / ell[..., rows, :]
                d_scores = weights * (g @ v.mT - D[..., rows, :])
                d_value[..., columns, :] += weights.mT @ g
                d_query[..., rows, :] += tiles.scale * d_scores @ k
                d_key[..., columns, :] += tiles.scale * d_scores.mT @ query[..., rows, :]
                if wants_mask:
                    d_mask[..., rows, columns] += d_scores.to(mask.dtype)
        return d_query, d_key, d_value, d_mask, None, None


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(scale · Q Kᵀ + mask) V."""
    if scale is None:
        scale = max(1, query.shape[-1]) ** -0.5
    wide = torch.float32 if query.dtype in HALF else query.dtype
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    q, k, v = (x.to(wide).expand(*batch, *x.shape[-2:]) for x in (query, key, value))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*batch, query.shape[-2], key.shape[-2])
    return Blockwise.apply(q, k, v, attn_mask, is_causal, scale).to(query.dtype)


def with_mistake(old: str, new: str) -> Callable[..., Tensor]:
    """Return `attention`, where text that stands here once is another one."""
    source = Path(__file__).read_text(encoding="utf-8").partition("def with_mistake")[0]
    assert source.count(old) == 1, old
    names: dict[str, Any] = {"__name__": "mistaken"}
    exec(compile(source.replace(old, new), f"<{new}>", "exec"), names)
    function: Callable[..., Tensor] = names["attention"]
    return function
