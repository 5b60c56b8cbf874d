"""The matrix form of attention on tensors: any device and floating dtype, with gradients.

The steps are those of `numpy_dense`, under the same names, with its shapes, errors and sources.
Half precision (float16, bfloat16) is computed in float32 and rounded once, at the end. Everything
can be differentiated (twice, and in forward mode), compiled, batched by `torch.vmap` and run on
the meta device. Under `torch.autocast` inputs are cast as for torch's own attention.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

import math
from typing import Any

import torch
from torch import Tensor

from attnlib._checks import Options, Window, check_axis, upcast, wide_tokens
from attnlib._docstrings import TENSORS, document
from attnlib._tensors import (
    DenseCall,
    as_autocast_does,
    checked_tensors,
    empty_rows,
    scaled_product,
)


@as_autocast_does
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> Tensor:
    """Return softmax(scale · Q Kᵀ + mask) V: for each query a weighted mean of the values.

    A row in which no key takes part gives zeros, and zero gradients. NaN in what takes part gives
    NaN; in a key or value that no row may see, it changes nothing. Where some rows may see a NaN
    value, the others get NaN too, as in torch, because 0 · NaN is NaN.

    Source:
        Vaswani et al. 2017, equation 1; chapter 10.
    """
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    return _attend(query, key, value, options)[0]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, options: Options, wants_lse: bool = False
) -> tuple[Tensor, Any]:
    """Return the output, and the log-sum-exp if it is wanted."""
    call = DenseCall((query, key, value), options, drops=True)
    scores, empty = call.masked(scaled_product(call.query, call.key, call.scale))
    weights = torch.softmax(scores, -1)
    if call.dropout_p:
        weights = torch.dropout(weights, call.dropout_p, train=True)
    output = torch.matmul(weights, call.value).masked_fill(empty, 0)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True) if wants_lse else None
    if lse is not None:  # where a score is +∞ the weights are NaN; torch says ∞ for the sum
        lse = lse.masked_fill(lse == math.inf, math.nan).masked_fill(empty, -math.inf)
    return call.finish(output, lse)


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    return _attend(query, key, value, options, wants_lse=True)


document(
    scaled_dot_product_attention, scaled_dot_product_attention_with_lse, TENSORS,
    dropout="The chance of each weight to be put to 0; the others are divided by 1 - dropout_p.",
    dropped="dropout_p outside 0 … 1",
)


@as_autocast_does
def project(X: Tensor, W: Tensor) -> Tensor:
    """Return X W: each token (row) of X, mapped by the same matrix.

    Example:
        >>> project(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [10.0, 1.0]]))
        tensor([[21.,  2.]])
    """
    tokens, W = wide_tokens(checked_tensors({"X": X, "W": W}))
    return torch.matmul(tokens, W).to(X.dtype)


@as_autocast_does
def attention_scores(query: Tensor, key: Tensor, *, scale: float | None = None) -> Tensor:
    """Return the scaled scores S = scale · Q Kᵀ: row i holds query i against all keys.

    Example:
        >>> keys = torch.tensor([[3.0, 4.0], [5.0, 6.0]])
        >>> attention_scores(torch.tensor([[1.0, 2.0]]), keys, scale=1.0)
        tensor([[11., 17.]])
    """
    call = DenseCall((query, key), Options(scale=scale))
    return scaled_product(call.query, call.key, call.scale).to(call.out_dtype)


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Return positive weights that add up to 1 along `dim`: exp(s_j) / Σ_j exp(s_j).

    Only -∞ along `dim`: nothing takes part, and all weights are 0. NaN stays NaN.

    Example:
        >>> softmax(torch.tensor([7.0, 7.0]))
        tensor([0.5000, 0.5000])
    """
    checked_tensors({"scores": scores})
    check_axis("dim", dim, tuple(scores.shape))
    wide = upcast(scores).clone()
    empty = empty_rows(wide, dim)
    return torch.softmax(wide, dim).masked_fill(empty, 0).to(scores.dtype)


@as_autocast_does
def attention_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False, causal_align: str = "top-left",
    window: Window | None = None,
) -> Tensor:
    """Return the weights A = softmax(S + mask): row i says how much query i takes from each key.

    Example:
        >>> attention_weights(torch.zeros(2, 1), torch.zeros(2, 1), is_causal=True)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])
    """
    options = Options(attn_mask, 0.0, is_causal, scale, enable_gqa, causal_align, window)
    call = DenseCall((query, key), options)
    scores, empty = call.masked(scaled_product(call.query, call.key, call.scale))
    return call.finish(torch.softmax(scores, -1).masked_fill(empty, 0), None)[0]


@as_autocast_does
def self_attention(
    X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, attn_mask: Tensor | None = None,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Window | None = None,
) -> Tensor:
    """Return, for each token of X, what it takes from all: softmax(Q Kᵀ / √d_k) V, Q = X W_Q ….

    Example:
        >>> self_attention(torch.tensor([[1.0], [3.0]]), *torch.tensor([[[0.0]], [[0.0]], [[1.0]]]))
        tensor([[2.],
                [2.]])
    """
    given = checked_tensors({"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V})
    tokens, *matrices = wide_tokens(given, heads=True)
    query, key, value = (torch.matmul(tokens, W) for W in matrices)
    if isinstance(attn_mask, Tensor) and attn_mask.dtype == X.dtype:
        attn_mask = upcast(attn_mask)
    return scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window,
    ).to(X.dtype)
