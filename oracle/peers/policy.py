"""What IEEE arithmetic makes of the formula where the definition leaves something open.

A query with no key to see divides 0 by 0, and a removed value that is NaN is multiplied by a weight
of 0. Both give NaN when the formula is written down as it stands:

    S = scale · Q Kᵀ, capped    S = -∞ where the mask removes    P = softmax(S)    O = P V
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attncheck import Call, argument_gradients, problem

Array = NDArray[Any]


def _plain(call: Call, added: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the inputs and the output of the formula in float64, with NaN where it gives NaN."""
    *arrays, mask, scale, softcap, sinks = problem(replace(call, meant={}))
    names = ("query", "key", "value")
    leaves = {
        n: torch.from_numpy(x.copy()).requires_grad_() for n, x in zip(names, arrays, strict=True)
    }
    query, key, value = leaves.values()
    # Without features all scores are 0, whatever the scale.
    factor = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = query @ key.mT * factor
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        allowed = mask if mask.dtype == np.bool_ else mask != -np.inf
        floating = np.where(allowed, 0.0 if mask is allowed else mask, -np.inf)
        leaves["attn_mask"] = torch.from_numpy(floating).requires_grad_()
        if not added:
            scores = torch.where(torch.from_numpy(allowed), scores, 0)
        scores = scores + leaves["attn_mask"]
    if sinks is not None:
        column = torch.from_numpy(sinks)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], dim=-1)
    # torch.softmax of a row of -∞ is NaN, forward and backward.
    return leaves, torch.softmax(scores, dim=-1)[..., : key.shape[-2]] @ value


class Ieee:
    """Say where the formula, written down as it stands, gives NaN (`judge` asks this)."""

    def output(self, call: Call) -> Array:
        """Return the entries of the output that are NaN."""
        ways = [_plain(call, added)[1].isnan().numpy() for added in (False, True)]
        return np.asarray(ways[0] | ways[1])

    def gradients(self, call: Call) -> dict[str, Array]:
        """Return the entries of each gradient that are NaN."""
        assert call.upstream is not None
        upstream = torch.from_numpy(call.upstream.numbers)
        free: dict[str, Any] = {}
        for added in (False, True):
            leaves, output = _plain(call, added)
            found = torch.autograd.grad(output, tuple(leaves.values()), upstream)
            numbers = {n: g.numpy() for n, g in zip(leaves, found, strict=True)}
            for name, gradient in argument_gradients(call, numbers).items():
                free[name] = free.get(name, False) | np.isnan(gradient)
        return free
