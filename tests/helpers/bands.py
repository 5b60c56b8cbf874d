"""Calls of the kernels of `triton_fused` themselves, with a band of keys for each query."""

from __future__ import annotations

import math

import torch
from implementations import devices, tensor
from inputs import drawn
from torch import Tensor

from attnlib._checks import Band
from attnlib._torch_operators import Results
from attnlib.triton_fused.launch import Kept, Operands, Upstream, attend, differentiate

[DEVICE] = devices("triton_fused")
E, E_V, SCALE = 5, 3, 0.7


def operands(n_queries: int, n_keys: int, group: int = 1) -> Operands:
    """Return inputs with as many query heads as share one key head."""
    shapes = (1, group, n_queries, E), (1, 1, n_keys, E), (1, 1, n_keys, E_V)
    return Operands(*(tensor(x, DEVICE) for x in drawn(*shapes)), None)


def run(given: Operands, band: Band) -> list[Tensor]:
    """Return the output, the log-sum-exp and all gradients, of a floating mask too."""
    query = given.query
    group, shape = query.shape[1], query.shape[:-1]
    output, lost = query.new_empty(*shape, E_V), query.new_empty(0)
    lse, shift, log2_sum = (query.new_empty(shape) for _ in range(3))
    given = given._replace(band=band, scale_asked_for=SCALE, group=group, options=[0])
    attend(given, Results(output, lse, shift, log2_sum, lost))
    needed = [True] * 3 + [given.mask is not None and given.mask.is_floating_point()]
    kept = Kept(output, shift, log2_sum, lost)
    gradients = differentiate(given, kept, upstream(output, lse), needed)
    return [output, lse, *(x for x in gradients if x is not None)]


def upstream(output: Tensor, lse: Tensor) -> Upstream:
    """Return gradients from above; that of an empty row's log-sum-exp means nothing, and is 0."""
    above = [tensor(x, DEVICE).to(lse) for x in drawn(output.shape, lse.shape, seed=9)]
    return Upstream(above[0], torch.where(lse == -math.inf, 0.0, above[1]))


def seen(n_queries: int, n_keys: int, band: Band) -> Tensor:
    """Return the band as a boolean mask."""
    place, key = torch.arange(n_queries)[:, None] + band.first, torch.arange(n_keys)
    left, right = (math.inf if bound is None else bound for bound in band[1:])
    return ((key >= place - left) & (key <= place + right)).to(DEVICE)
