"""Attention in one GPU kernel, forward and backward: chapter 12's loop where the numbers are.

Every other form sends tiles of scores to memory and back between two operations. Here a tile is
computed, turned into weights and used up on the chip (`_forward`, `_backward`; `_tiles` holds what
they share, `_launch` starts them). Queries, keys and values are read. Written are the output and
three numbers a row: the log-sum-exp, the largest score and the logarithm of the row sum. In half
precision a forward that will be differentiated writes a second output, which holds what the first
one lost when it was rounded.

Products take half precision in and add up in float32, which is what matrix units do. The weights
are rounded to the values' dtype before they meet them, as every flash kernel rounds them. float32
is float32, not TF32. float64, and a scale beyond float32, are computed in float64, slowly.

It runs on tensors of a GPU that Triton knows, and under Triton's interpreter (TRITON_INTERPRET=1 in
the environment before triton is imported) on the CPU, to be read, tested and stepped through.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnlib._checks import Band, broadcast_shapes, check_flag, check_no_dropout, checked_scale
from attnlib._torch_checks import as_autocast_does, torch_call
from attnlib._torch_operators import Four, Operand, Operator, Results, placeholder
from attnlib.torch_blockwise import _computing
from attnlib.triton_fused._launch import (
    INTERPRETED,
    Kept,
    Operands,
    Upstream,
    attend,
    differentiate,
)

_LARGEST_WIDTH = 256


def available() -> bool:
    """Return whether there is something to run on: a GPU, or the interpreter."""
    return INTERPRETED or torch.cuda.is_available()


def _like(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return the results' memory, with nothing in it."""
    _, keeps = options
    own = 2 if group == 1 else 3
    batch = broadcast_shapes(*(tuple(x.shape[:-own]) for x in (query, key, value)))
    shape = (*batch, *query.shape[len(query.shape) - own : -1])
    dtype = _wide(query.dtype, scale)
    output = query.new_empty((*shape, value.shape[-1]))
    lse, shift, log_sum = (query.new_empty(shape, dtype=dtype) for _ in range(3))
    lost = torch.empty_like(output) if keeps else placeholder(query)
    return Results(output, lse, shift, log_sum, lost)


def _run_forward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, is_causal: bool,
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return output, log-sum-exp, its parts m and log₂ ℓ, and what the output's rounding lost."""
    results = _like(query, key, value, attn_mask, is_causal, scale, group, options)
    if results.lse.numel() and key.shape[-2]:
        attend(
            Operands(query, key, value, attn_mask), results,
            checked_scale(scale, query.shape[-1]), Band(0, None, 0 if is_causal else None), group,
        )  # fmt: skip
    else:
        for tensor, number in zip(results, (0, -math.inf, 0, math.inf, 0), strict=True):
            tensor.fill_(number)
    return results


def _run_backward(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor, shift: Tensor,
    log_sum: Tensor, lost: Tensor, d_output: Tensor, d_lse: Tensor, needed: list[bool],
    is_causal: bool, scale: float | None, group: int, options: list[int],
) -> Four:  # fmt: skip
    """Return the gradients that are needed; there is none for a mask."""
    inputs = (query, key, value)
    deterministic, _ = options
    if shift.numel() and key.shape[-2]:
        gradients = differentiate(
            Operands(query, key, value, attn_mask), Kept(output, lost, shift, log_sum),
            Upstream(d_output, d_lse), needed, checked_scale(scale, query.shape[-1]),
            Band(0, None, 0 if is_causal else None), group, bool(deterministic),
        )  # fmt: skip
    else:
        gradients = [torch.zeros_like(x) for x in inputs]
    first, second, third = (
        sums.sum_to_size(x.shape).to(x.dtype).contiguous()
        if need and sums is not None
        else placeholder(query)
        for x, sums, need in zip(inputs, gradients, needed[:3], strict=True)
    )
    return first, second, third, placeholder(query)


_operator = Operator("triton_fused", _run_forward, _like, _run_backward)


def _wide(dtype: torch.dtype, scale: float | None) -> torch.dtype:
    """Return the dtype that sums are kept in, which must hold scale · log₂e."""
    return _computing(dtype, None if scale is None else scale / math.log(2))


def _check_that_it_runs(query: Tensor, value: Tensor, attn_mask: Operand) -> None:
    """Refuse what the kernels cannot do, and say who can."""
    kind = query.device.type
    if kind not in (("cpu", "cuda", "meta") if INTERPRETED else ("cuda", "meta")):
        raise ValueError(
            f"triton_fused needs tensors on a GPU (cuda); got {kind}. For the CPU there are "
            "torch_blockwise, and Triton's interpreter: set TRITON_INTERPRET=1 before triton is "
            "imported"
        )
    for name, tensor in (("query", query), ("value", value)):
        if tensor.shape[-1] > _LARGEST_WIDTH:
            raise ValueError(
                f"triton_fused takes up to {_LARGEST_WIDTH} features (torch_blockwise takes more); "
                f"got {name} {tuple(tensor.shape)}"
            )
    if attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "triton_fused has no gradient for attn_mask; torch_blockwise has one (or detach it)"
        )


@as_autocast_does
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
    deterministic: bool = True,
) -> Tensor:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    Masks, empty rows and NaN are those of `torch_blockwise`, in tiles of the kernel's size. The
    products of queries and keys must stay within float32 before they are scaled. The same call
    gives the same bits; with `deterministic=False` the backward is faster, and the last bits of
    the query's gradient may change from call to call.

    Shapes: query (…, H, L, E), key (…, H, S, E), value (…, H, S, E_v) → (…, H, L, E_v), with E and
        E_v up to 256. The leading dimensions broadcast, and there may be none. attn_mask broadcasts
        to (…, H, L, S). With `enable_gqa` key and value have H_kv heads; head h uses key head
        h // (H / H_kv).
    Raises: TypeError, ValueError as `torch_blockwise`; ValueError for tensors that are not on a GPU
        (see above), for more than 256 features and for a mask that requires a gradient.
        RuntimeError where second derivatives are asked for.
    Source: Dao 2023, algorithm 1; Tillet et al. 2019; chapter 14.

    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    >>> query, key = torch.zeros(1, 1, device=device), torch.ones(2, 1, device=device)
    >>> value = torch.tensor([[10.0], [20.0]], device=device)
    >>> scaled_dot_product_attention(query, key, value).item()
    15.0
    """
    output, _ = scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        deterministic=deterministic,
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
    deterministic: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials.

    lse_i = log Σ_j exp(s_ij), with gradients; -∞ for a row in which no key takes part.

    Shapes: as `scaled_dot_product_attention`, and lse (…, H, L): in float32 for half precision,
    else in query's dtype.
    """
    tensors = {"query": query, "key": key, "value": value}
    call = torch_call(tensors, attn_mask, 0.0, is_causal, scale, enable_gqa)
    check_no_dropout(dropout_p)
    check_flag("deterministic", deterministic)
    _check_that_it_runs(query, value, attn_mask)
    if call.group == 0:  # no query heads, so no use for key heads
        key, value = key[..., :0, :, :], value[..., :0, :, :]
    if attn_mask is not None and attn_mask.ndim < 2:
        attn_mask = attn_mask.reshape(1, -1)
    factor = None if scale is None else call.scale
    if factor is not None and factor <= 0:
        # In the kernel the scale is positive: it multiplies differences from the largest score.
        # The sign moves into the query, exactly; so does 0, and a NaN in the query stays one.
        query, factor = (query * 0, 1.0) if factor == 0 else (-query, -factor)
    leaves = query, key, value
    # What half precision loses is kept for the backward alone.
    keeps = query.element_size() < 4 and torch.is_grad_enabled()
    keeps = keeps and any(x.requires_grad for x in leaves)
    results = _operator(
        *leaves, attn_mask, bool(is_causal), factor, call.group or 1, [deterministic, keeps]
    )
    return results.output, results.lse.to(_computing(query.dtype, None))
