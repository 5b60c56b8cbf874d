"""What IEEE arithmetic makes of the formula where the definition leaves something open.

A query with no key to see divides 0 by 0, and a removed value that is NaN is multiplied by a weight
of 0. Both give NaN when the formula is written down as it stands:

    S = scale · Q Kᵀ    S = -∞ where the mask removes    P = softmax(S)    O = P V
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attnlib._checks import Array, checked_scale
from attnlib.conformance import Asked
from attnlib.conformance._truth import of_arguments, problem


def _plain(asked: Asked, added: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the inputs and the output of the formula in float64, with NaN where it gives NaN."""
    *arrays, mask, scale = problem(replace(asked, meant={}))
    names = ("query", "key", "value")
    leaves = {
        n: torch.from_numpy(x.copy()).requires_grad_() for n, x in zip(names, arrays, strict=True)
    }
    query, key, value = leaves.values()
    scores = query @ key.mT * checked_scale(scale, query.shape[-1])
    if mask is not None:
        part = mask if mask.dtype == np.bool_ else mask != -np.inf
        floating = np.where(part, 0.0 if mask is part else mask, -np.inf)
        leaves["attn_mask"] = torch.from_numpy(floating).requires_grad_()
        if not added:
            scores = torch.where(torch.from_numpy(part), scores, 0)
        scores = scores + leaves["attn_mask"]
    # torch.softmax of a row of -∞ is NaN, forward and backward.
    return leaves, torch.softmax(scores, dim=-1) @ value


class Ieee:
    """Say where the formula, written down as it stands, gives NaN (`judge` asks this)."""

    def output(self, asked: Asked) -> Array:
        """Return the entries of the output that are NaN."""
        ways = [_plain(asked, added)[1].isnan().numpy() for added in (False, True)]
        return np.asarray(ways[0] | ways[1])

    def gradients(self, asked: Asked) -> dict[str, Array]:
        """Return the entries of each gradient that are NaN."""
        assert asked.upstream is not None
        upstream = torch.from_numpy(asked.upstream.numbers)
        free: dict[str, Any] = {}
        for added in (False, True):
            leaves, output = _plain(asked, added)
            found = torch.autograd.grad(output, tuple(leaves.values()), upstream)
            numbers = {n: g.numpy() for n, g in zip(leaves, found, strict=True)}
            for name, gradient in of_arguments(asked, numbers).items():
                free[name] = free.get(name, False) | np.isnan(gradient)
        return free
