"""Attention for one new token at a time: a cache of keys and values, and keys split in pieces.

The law by which pieces are merged is chapter 12's. Of its keys, a piece knows the largest score
m, the row sum ℓ and the output o, and pieces 1 … n become one:

    M   = max_i m_i
    w_i = exp(m_i - M) ℓ_i / Σ_j exp(m_j - M) ℓ_j
    o   = Σ_i w_i o_i
    lse = M + log Σ_j exp(m_j - M) ℓ_j
"""

from __future__ import annotations

from attnlib import _needs

_needs(__name__, "torch")

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlib._torch_door import checked_tensors, computing_dtype


def merge(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return attention over all keys, from the results of attention over disjoint pieces of them.

    A piece in which a row sees nothing has the output 0 and the log-sum-exp -∞, as every rung
    returns them, and changes nothing. The pieces are added from first to last, so that the same
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
    asked, device = outputs[0].dtype, outputs[0].device
    dtype = computing_dtype(asked)
    for (name, output), (called, lse) in zip(known.items(), sums.items(), strict=True):
        if lse.dtype != dtype or lse.device != device:
            wanted = f"{dtype} on {device}, as the outputs ask"
            raise TypeError(f"{called} must be {wanted}; got {lse.dtype} on {lse.device}")
        if output.shape != outputs[0].shape or lse.shape != output.shape[:-1] or not output.ndim:
            came = f"{name} {tuple(output.shape)}, {called} {tuple(lse.shape)}"
            wanted = f"each output {tuple(outputs[0].shape)} and each lse the same without d_v"
            raise ValueError(f"pieces must fit together, {wanted}; got {came}")
    shifts, parts = torch.stack(list(lses)), torch.stack(list(outputs)).to(dtype)
    output, lse = _merged(shifts, torch.ones_like(shifts), parts)  # exp(lse) = exp(m) ℓ, with ℓ = 1
    return output.to(asked), lse


def _merged(shifts: Tensor, row_sums: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return output (…, d_v) and log-sum-exp (…) of n pieces: m and ℓ (n, …), o (n, …, d_v).

    m and ℓ are kept apart, because in m + log ℓ a small ℓ is lost where m is large.
    """
    largest = shifts.detach().amax(0)
    empty = largest == -math.inf
    largest = largest.masked_fill(empty, 0)  # because -∞ - (-∞) is NaN
    sums = torch.exp(shifts - largest) * row_sums
    total = _added(sums).masked_fill(empty, 1)
    output = _added((sums / total)[..., None] * outputs)
    return output, (largest + total.log()).masked_fill(empty, -math.inf)


def _added(pieces: Tensor) -> Tensor:
    """Return the sum over the first axis, from first to last.

    The order in which `Tensor.sum` adds depends on the whole shape, and its last bits with it.
    """
    return functools.reduce(torch.add, pieces.unbind())
