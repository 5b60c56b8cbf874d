"""Attention in one GPU kernel, forward and backward: chapter 12's loop where the numbers are.

A block of keys changes what is kept of each row. With unit = scale · log₂e (under a mask scores are
scaled first, and unit is log₂e):

    m_new   = max(m, max_j s_j)              weights_j = 2^(unit · (s_j - m_new))
    rescale = 2^(unit · (m - m_new))         ell       = rescale · ell + Σ_j weights_j
                                             o         = rescale · o + Σ_j weights_j v_j

A form of several operations sends scores to memory and back between two of them. Here a tile is
computed, turned into weights and used up on the chip (`_forward`, `_backward`, and `_mask_backward`
for a mask that learns; `_tiles` holds what they share, `launch` starts them, `tuning` chooses how
large a tile is). Queries, keys and values are read. Written are the output and three numbers a row:
the log-sum-exp, the largest score m and log₂ ell. In half precision a forward that will be
differentiated writes a second output, which holds what the first one lost when it was rounded.

Products take half precision in and add up in float32, which is what matrix units do. The weights
are rounded to the values' dtype before they meet them, as every flash kernel rounds them. float32
is float32, not TF32. float64, and a scale beyond float32, are computed in float64, slowly.

It runs on tensors of a GPU that Triton knows, and under Triton's interpreter (TRITON_INTERPRET=1 in
the environment before triton is imported) on the CPU, to be read, tested and stepped through.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")
needs(__name__, "triton")

import math

import torch
from torch import Tensor

from attnlib._checks import Options, Window
from attnlib._docstrings import TENSORS, document
from attnlib._tensors import Call, as_autocast_does, computing_dtype
from attnlib._torch_operators import Operands, Operator, Results, empty_results
from attnlib.triton_fused.launch import INTERPRETED, attend, differentiate

_LARGEST_WIDTH = 256


def available() -> bool:
    """Return whether there is something to run on: a GPU, or the interpreter."""
    return INTERPRETED or torch.cuda.is_available()


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> Tensor:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√d_k where it is None. Up to 256 features.

    Masks, empty rows and NaN are those of `torch_blockwise`, in tiles of the kernel's size. The
    products of queries and keys must stay within float32 before they are scaled. The same call
    gives the same bits. A floating mask has a gradient, in memory of its own shape, summed where
    the mask is broadcast. Tensors that are not on a GPU, where there is no interpreter, raise a
    ValueError; second derivatives a RuntimeError.

    Source:
        Dao 2023, algorithm 1; Tillet et al. 2019; chapter 14.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window,
    )[0]


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    call = Call((query, key, value), options)
    _check_that_it_runs(call.query, call.value)
    scale = call.scale_asked_for
    if scale is not None and scale <= 0:
        # In the kernel the scale is positive: it multiplies differences from the largest score.
        # The sign moves into the query, exactly; so does 0, and a NaN in the query stays one.
        call.query, call.scale_asked_for = (
            (call.query * 0, 1.0) if scale == 0 else (-call.query, -scale)
        )
    leaves = call.query, call.key, call.value, call.mask
    # What half precision loses is kept for the backward alone.
    keeps = call.query.element_size() < 4 and torch.is_grad_enabled()
    keeps = keeps and any(x is not None and x.requires_grad for x in leaves)
    results = _operator(call, [keeps])
    return call.finish(results.output, results.lse)


EXAMPLE = """
Example:
    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    >>> query, key = torch.zeros(1, 1, device=device), torch.ones(2, 1, device=device)
    >>> value = torch.tensor([[10.0], [20.0]], device=device)
    >>> scaled_dot_product_attention(query, key, value).item()
    15.0
"""
document(
    scaled_dot_product_attention, scaled_dot_product_attention_with_lse, TENSORS, example=EXAMPLE,
    example_of_lse="",
)


def _like(operands: Operands) -> Results:
    """Return the results' memory, with nothing in it."""
    dtype, scale, (keeps,) = operands.query.dtype, operands.scale_asked_for, operands.options
    # The dtype that sums are kept in must hold scale · log₂e.
    wide = computing_dtype(dtype, None if scale is None else scale / math.log(2))
    results = empty_results(operands, dtype, wide)
    return results._replace(lost=torch.empty_like(results.output)) if keeps else results


def _run_forward(operands: Operands) -> Results:
    """Return output, log-sum-exp, m and log₂ ell, and what the output lost when it was rounded."""
    results = _like(operands)
    attend(operands, results)
    return results


def _check_that_it_runs(query: Tensor, value: Tensor) -> None:
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


_operator = Operator("triton_fused", _run_forward, _like, differentiate)
