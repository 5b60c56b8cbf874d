"""What ranks run in the tests of rings. A function that a rank calls stands in a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from attnbook import ring_steps
from attnlib.torch_ring import layout, ring_attention, ring_attention_with_lse, shard

Case = tuple[int, str, dict[str, Any]]  # number of tokens, balance, options


def problem(n_tokens: int) -> list[Tensor]:
    """Return query, key, value and upstream of grouped heads, the same in every process."""
    generator = torch.Generator().manual_seed(n_tokens)
    shapes = ((4, 5), (2, 5), (2, 3), (4, 3))
    return [torch.randn(2, heads, n_tokens, n, generator=generator) for heads, n in shapes]


def results(case: Case, group: Any = None) -> list[Tensor]:
    """Return output, log-sum-exp and gradients of this rank."""
    n_tokens, balance, options = case
    rank, size = dist.get_rank(), dist.get_world_size()
    spans = layout(n_tokens, size, balance)[rank]
    *leaves, above = (shard(x, spans).requires_grad_() for x in problem(n_tokens))
    output, lse = ring_attention_with_lse(
        *leaves, n_tokens=n_tokens, balance=balance, enable_gqa=True, group=group, **options
    )
    above = above.detach()
    found = torch.autograd.grad((output, lse), leaves, (above, above[..., 0]))
    return [x.detach() for x in (output, lse, *found)]


def results_of(cases: list[Case]) -> list[list[Tensor]]:
    return [results(case) for case in cases]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the bytes that this rank sends."""
    sent, batch = [0], dist.batch_isend_irecv

    def counting(messages: list[Any]) -> list[Any]:
        sent[0] += sum(x.tensor.nbytes for x in messages if x.op is dist.isend)
        return batch(messages)

    with mock.patch.object(dist, "batch_isend_irecv", counting):
        yield sent


def bytes_of(cases: list[Case]) -> list[tuple[int, int]]:
    """Return the bytes that this rank sends in each case, forward, and forward and backward."""
    found = []
    for case in cases:
        n_tokens, balance, _ = case
        spans = layout(n_tokens, dist.get_world_size(), balance)[dist.get_rank()]
        with counted() as forward, torch.no_grad():
            leaves = [shard(x, spans) for x in problem(n_tokens)[:3]]
            ring_attention(*leaves, n_tokens=n_tokens, balance=balance, enable_gqa=True)
        with counted() as both:
            results(case)
        found.append((forward[0], both[0] - forward[0]))
    return found


def results_and_bytes_of(
    cases: list[Case], counted: list[Case]
) -> tuple[list[list[Tensor]], list[tuple[int, int]]]:
    """Return both: a start of ranks takes longer than what they compute."""
    return results_of(cases), bytes_of(counted)


def groups_of(case: Case) -> list[Any]:
    """Return results in a mesh, and what is refused: a mesh of two dimensions, another's group."""
    size = dist.get_world_size()
    found: list[Any] = [results(case, init_device_mesh("cpu", (size,)))]
    others = dist.new_group([(dist.get_rank() + 1) % size], use_local_synchronization=False)
    everyone = dist.new_group(list(range(size)))
    found.append(results(case, everyone))
    for group in (init_device_mesh("cpu", (1, size)), "gloo", others):
        try:
            results(case, group)
        except (TypeError, ValueError) as error:
            found.append(str(error))
    return found


def disagree() -> list[str]:
    """Return the errors of calls: rank 1 asks for something else; in the last one all do."""
    x, rank, found = torch.ones(3, 2), dist.get_rank(), []
    ours: list[tuple[Tensor, dict[str, Any]]] = [
        (x, {"n_tokens": 6}),
        (x.clone().requires_grad_(), {"n_tokens": 6}),
        (torch.ones(3, 4), {"n_tokens": 6}),
        (torch.ones(4, 2), {"n_tokens": 6}),
        (x.double(), {"n_tokens": 6}),
        (x, {"n_tokens": 6, "is_causal": True}),
        (x, {"n_tokens": 6, "scale": 2.0}),
        (x, {"n_tokens": 6, "balance": "contiguous"}),
        (x, {"n_tokens": 6.0}),
        ([1.0], {"n_tokens": 6}),  # type: ignore[list-item]
        (x, everyone := {"n_tokens": -1}),
    ]
    for given, options in ours:
        try:
            if rank == 1 or options == everyone:
                ring_attention(given, given, given, **options)
            else:
                ring_attention(x, x, x, n_tokens=6)
            found.append("")
        except (TypeError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def alone(case: Case) -> tuple[list[Tensor], str]:
    """Return results, and the error for a gradient of a gradient."""
    x = torch.ones(3, 2, requires_grad=True)
    output = ring_attention(x, x, x, n_tokens=3 * dist.get_world_size())
    try:
        torch.autograd.grad(output.sum(), x, create_graph=True)
    except RuntimeError as error:
        return results(case), str(error)
    return results(case), ""


def loses_a_rank() -> None:
    """Compute with a rank that has left."""
    x = torch.ones(4, 2)
    if dist.get_rank() != 1:
        ring_attention(x, x, x, n_tokens=4 * dist.get_world_size())


def by_steps(query: Tensor, kv: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Return output and log-sum-exp of this rank by the steps of chapter 16, and what it sent."""
    own = (ring_steps.own_chunks(x, ring_steps.zigzag) for x in (query, kv))
    output, lse = ring_steps.ring(*own, partial(ring_steps.causal, ring_steps.zigzag))
    return output, lse, ring_steps.sent
