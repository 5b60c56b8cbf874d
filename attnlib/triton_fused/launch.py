"""How the kernels of `triton_fused` are started: on which views, with which arguments."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from attnlib._checks import Band
from attnlib._torch_operators import Kept, Operands, OptTensor, Results, Upstream, near_overflow
from attnlib.triton_fused._backward import Rows, Wanted, compute_d
from attnlib.triton_fused._forward import Outputs
from attnlib.triton_fused._mask_backward import Shared
from attnlib.triton_fused._tiles import BOOLEAN, FLOATING, NO_MASK, Choices, Inputs, Sizes, View
from attnlib.triton_fused.tuning import (
    FORWARD,
    INTERPRETED,
    KEYS_BACKWARD,
    MASK_BACKWARD,
    QUERY_BACKWARD,
    WIDEST_SUMS,
    Case,
    architecture,
)

__all__ = [
    "INTERPRETED", "Band", "Kept", "Operands", "Results", "Upstream", "Wanted", "arguments",
    "attend", "differentiate",
]

DTYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


def _level(x: Tensor, batch: Sequence[int], group: int = 1) -> Tensor:
    """Expand the leading dimensions to (…, batch, heads): a view, with strides of 0."""
    heads = [batch[-1] // group] if batch else [1]
    return x.expand(*[1] * (2 - len(batch)), *batch[:-1], *heads, *x.shape[-2:])


def _walk(operands: list[OptTensor]) -> Iterator[list[Any]]:
    """Walk over the leading dimensions but the last two, which are the kernels' batch and heads.

    Two dimensions that lie in memory like one are taken as one.
    """
    first, _, *rest = next(x.shape for x in operands if x is not None)
    if len(rest) == 2:
        yield operands
        return
    try:
        pieces = [[x if x is None else x.view(-1, *x.shape[2:]) for x in operands]]
    except RuntimeError:  # some strides do not allow it
        pieces = [[x if x is None else x[i] for x in operands] for i in range(first)]
    for piece in pieces:
        yield from _walk(piece)


@contextlib.contextmanager
def _ready(device: torch.device) -> Iterator[None]:
    """Launch on this device; the interpreter computes with NumPy, which would warn of NaN and ∞."""
    there = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with np.errstate(all="ignore"), there:
        yield


def _padded(width: int) -> int:
    """Return the width of a tile: tl.dot takes powers of two from 16 on."""
    return max(16, int(triton.next_power_of_2(width)))


def _view(x: OptTensor) -> View | None:
    """Return a tensor with four dimensions as the kernels take it."""
    return None if x is None else View(x, x.stride())


def arguments(
    q: Tensor, k: Tensor, v: Tensor, mask: OptTensor, wide: torch.dtype, scale: float, band: Band,
    group: int, keeps: bool,
) -> dict[str, Any]:
    """Return what the three kernels have in common."""
    batch, n_heads, n_queries, width = q.shape
    n_keys, width_v = v.shape[2:]
    kind = NO_MASK
    if mask is not None:
        kind = BOOLEAN if mask.dtype == torch.bool else FLOATING
        mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    low, high = (  # a bound beyond the keys says the same as one that fits 32 bits
        max(-n_queries, min(bound, n_keys))
        for bound in (band.first - (band.left or 0), band.first + (band.right or 0))
    )
    span = 0 if band.left is None or band.right is None else max(0, high + 1 - low)
    of_mask = 0 if mask is None else mask.element_size()
    counts = (triton.next_power_of_2(n) for n in (n_queries, n_keys, batch * n_heads, span))
    length_q, length_k, heads, seen = counts
    in_float32 = wide == torch.float32
    return {
        "inputs": Inputs(_view(q), _view(k), _view(v), _view(mask)),
        # Triton passes Python's floats as float32, so that a scale in float64 lies in memory.
        "scale": scale if in_float32 else torch.full((1,), scale, dtype=wide, device=q.device),
        "sizes": Sizes(n_heads, n_queries, n_keys, low, high),
        "case": Case(length_q, length_k, heads, seen, of_mask, int(keeps), architecture()),
        "CHOICES": Choices(
            group, width, width_v, _padded(width), _padded(width_v), kind.value,
            band.left is not None, band.right is not None,
            DTYPES[q.dtype if in_float32 else wide], DTYPES[wide],
        ),
    }


def _level_all(operands: Operands, batch: Sequence[int]) -> list[OptTensor]:
    """Expand the operands' leading dimensions to those of the result."""
    query, key, value, mask, _, _, group, _ = operands
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], query.shape[-2], key.shape[-2])
    level = [_level(query, batch), _level(key, batch, group), _level(value, batch, group)]
    return [*level, None if mask is None else _level(mask, batch)]


def attend(operands: Operands, results: Results) -> None:
    """Fill the results. Of ell the logarithm in base 2 is stored; `lost` may have no numbers."""
    output, lse, m, log2_ell, lost = results
    batch, band, scale, group = output.shape[:-2], operands.band, operands.scale, operands.group
    levelled: list[OptTensor] = [
        *_level_all(operands, batch),
        _level(output, batch), _level(lost, batch) if lost.numel() else None,
        *(_level(x[..., None], batch) for x in (lse, m, log2_ell)),
    ]
    start, end = band.span(slice(0, operands.query.shape[-2]), operands.key.shape[-2])
    value, headroom = operands.value[..., start:end, :], None
    # float16 is added up in float32, with room enough. For others a number may be subtracted from
    # all exponents of 2. All weights are then smaller by one factor, which cancels in o / ell.
    if value.dtype != torch.float16 and (found := near_overflow(value, lse.dtype)) is not None:
        exponent = math.ceil(math.log2(2 * value.shape[-2]))
        headroom = torch.where(found[1], exponent, 0.0).to(lse.dtype)
    with _ready(operands.query.device):
        for q, k, v, mask, o, rounding, *sums in _walk(levelled):
            FORWARD(
                q.shape[0] * q.shape[1],
                **arguments(q, k, v, mask, lse.dtype, scale, band, group, rounding is not None),
                results=Outputs(_view(o), _view(rounding), *sums), headroom=headroom,
            )


def differentiate(
    operands: Operands, kept: Kept, upstream: Upstream, needed: Sequence[bool]
) -> list[OptTensor]:
    """Return the gradients that are needed, each with all leading dimensions of the result.

    That of the mask has the shape of the mask. It is in float32 (or float64), and so is a gradient
    that will be summed over leading dimensions or over shares of a group.
    """
    query, key, value, mask, band, _, group, _ = operands
    batch, wide, scale = kept.output.shape[:-2], kept.m.dtype, operands.scale
    level = _level_all(operands, batch)
    members = _members(level, group)
    gradients: list[OptTensor] = []
    for i, (x, y, need) in enumerate(zip((query, key, value), level, needed, strict=False)):
        assert y is not None
        shares = 1 if i == 0 else group // members
        alone = x.numel() == y.numel() and shares == 1
        shape = *y.shape[:-3], y.shape[-3] * shares, *y.shape[-2:]
        dtype = x.dtype if alone else wide
        gradients.append(torch.empty(shape, dtype=dtype, device=x.device) if need else None)
    d_mask = level_d_mask = None
    if needed[3] and mask is not None:
        d_mask = torch.zeros(mask.shape, dtype=wide, device=mask.device)
        level_d_mask = _level_all(operands._replace(mask=d_mask), batch)[3]
    # The kernels count numbers of a row one after the other; vmap may have expanded them.
    row_wise = [x.to(wide).contiguous() for x in (kept.m, kept.ell, upstream.lse)]
    row_wise.append(torch.empty_like(row_wise[0]))
    levelled: list[OptTensor] = [
        *level, _level(kept.output, batch),
        _level(kept.lost, batch) if kept.lost.numel() else None, _level(upstream.output, batch),
        *(_level(x[..., None], batch) for x in row_wise), *gradients, level_d_mask,
    ]
    with _ready(query.device):
        for q, k, v, mask, o, lost, d_o, *rows, d_q, d_k, d_v, d_m in _walk(levelled):
            m, log2_ell, d_lse, D = rows
            n_heads, n_queries = q.shape[1], q.shape[2]
            heads = q.shape[0] * n_heads
            rows_each = 16 if INTERPRETED and n_queries <= 64 else 64
            compute_d[(heads * -(-n_queries // rows_each),)](
                _view(o), _view(lost), _view(d_o), d_lse, D, n_heads, n_queries,
                v.shape[3], _padded(v.shape[3]), rows_each, enable_fp_fusion=True,
            )
            common = arguments(q, k, v, mask, wide, scale, band, group, lost is not None)
            common |= {"d_output": _view(d_o), "numbers": Rows(m, log2_ell, D)}
            if d_q is not None:
                QUERY_BACKWARD(heads, **common, d_query=_view(d_q))
            for wanted in _passes(Wanted(*needed[1:3]), common["CHOICES"]):
                KEYS_BACKWARD(
                    heads // members, **common, d_key=_view(d_k), d_value=_view(d_v),
                    WANTED=wanted, MEMBERS=members, WHOLE_Q=n_queries % 128 == 0,
                )
            if d_m is not None:
                _differentiate_mask(d_m, heads, common)
    if members < group:
        gradients[1:] = [
            x if x is None else x.unflatten(-3, (-1, group // members)).sum(-3)
            for x in gradients[1:]
        ]
    return [*gradients, d_mask]


def _differentiate_mask(d_mask: Tensor, heads: int, common: dict[str, Any]) -> None:
    """Add the gradient of a mask to its memory; dimensions that are broadcast have strides of 0."""
    shared = Shared(
        *(n > 1 and step == 0 for n, step in zip(d_mask.shape, d_mask.stride(), strict=True))
    )
    own = d_mask[tuple(slice(0, 1) if once else slice(None) for once in shared)]
    found = torch.empty_like(own)
    programs = (1 if shared.batches else d_mask.shape[0]) * (1 if shared.heads else d_mask.shape[1])
    MASK_BACKWARD(programs, **common, d_mask=_view(found), n_batches=d_mask.shape[0], SHARED=shared)
    own += found


def _members(level: Sequence[OptTensor], group: int) -> int:
    """Return how many query heads one program of `keys_backward` adds up.

    The whole group, unless there would be too few programs: then they share it.
    """
    key = level[1]
    assert key is not None
    programs = max(1, key.shape[:-2].numel() * -(-key.shape[-2] // 128))
    enough = 2 * processors(key.device)
    fitting = (n for n in range(group, 0, -1) if group % n == 0)
    return next((n for n in fitting if programs * group // n >= enough), 1)


def processors(device: torch.device) -> int:
    """Return how many programs run side by side at least."""
    if device.type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(device)  # pragma: no cover (needs a GPU)
    return int(properties.multi_processor_count)  # pragma: no cover (needs a GPU)


def _passes(wanted: Wanted, choices: Choices) -> list[Wanted]:
    """Return what is computed together: dK and dV of many features, one after the other."""
    passes = [wanted]
    if choices.BLOCK_E + choices.BLOCK_V > WIDEST_SUMS:
        passes = [wanted._replace(by_value=False), wanted._replace(by_key=False)]
    return [each for each in passes if any(each)]
