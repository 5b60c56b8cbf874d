"""A ring between threads of one process, and the operator that deals a whole sequence out to it."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from attnlib._torch_operators import (
    Kept,
    Operands,
    Operator,
    OptTensor,
    Results,
    Upstream,
    not_computed,
    unrounded_results,
)
from attnlib.torch_ring._shards import BALANCES, Plan, layout, shard, unshard

T = TypeVar("T")


class ThreadLink:
    """A link between the threads of one process. An error goes round the ring and ends all."""

    def __init__(self, rank: int, boxes: Sequence[queue.SimpleQueue[Any]]) -> None:
        self.rank, self.size = rank, len(boxes)
        self.inbox, self.outbox = boxes[rank], boxes[(rank + 1) % len(boxes)]

    def pass_on(self, tensors: Sequence[Tensor], length: int) -> Callable[[], list[Tensor]]:
        """Hand tensors on as they are: nobody changes them."""
        self.outbox.put(list(tensors))
        return self._arrived

    def _arrived(self) -> list[Tensor]:
        came = self.inbox.get()
        if isinstance(came, BaseException):
            raise came
        return cast("list[Tensor]", came)


def between_threads(
    function: Callable[[ThreadLink], T], size: int, device: torch.device
) -> list[T]:
    """Run a function in a ring of threads, and return what each of them returned."""
    boxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size)]
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def run(rank: int) -> T:
        link = ThreadLink(rank, boxes)
        # What torch remembers for a thread, a new thread does not know.
        with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            try:
                return function(link)
            except BaseException as error:
                link.outbox.put(error)
                raise

    if size == 1:
        return [run(0)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def operator(
    attend: Callable[..., tuple[Tensor, Tensor, Tensor]], differentiate: Callable[..., list[Tensor]]
) -> Operator:
    """Return attention as an operator that deals a whole sequence out to a ring of threads.

    `attend` and `differentiate` are what one device does, with its link, the plan and its shards.
    The operator's options are the number of devices and the index of the balance in BALANCES.
    """

    def forward(operands: Operands) -> Results:
        plan, ring = _plan(operands), (operands.options[0], operands.query.device)

        def device(link: ThreadLink) -> tuple[Tensor, Tensor, Tensor]:
            return attend(link, plan, *_own(operands, plan, link.rank))

        o, m, log_ell = zip(*between_threads(device, *ring), strict=True)
        output = unshard(o, plan.queries)
        all_m, all_log_ell = (unshard(x, plan.queries, dim=-1) for x in (m, log_ell))
        lse = all_m + all_log_ell
        return Results(output, lse, all_m, all_log_ell.exp(), not_computed(operands.query))

    def backward(
        operands: Operands, kept: Kept, upstream: Upstream, needed: list[bool]
    ) -> list[OptTensor]:
        plan, ring = _plan(operands), (operands.options[0], operands.query.device)

        def device(link: ThreadLink) -> list[Tensor]:
            queries = plan.queries[link.rank]
            outputs = shard(kept.output, queries), shard(upstream.output, queries)
            of_rows = [shard(x, queries, dim=-1) for x in (kept.m, kept.ell, upstream.lse)]
            own = _own(operands, plan, link.rank)
            return differentiate(link, plan, *own, *outputs, *of_rows, needed[3])

        shards = list(zip(*between_threads(device, *ring), strict=True))
        spans = plan.queries, plan.keys, plan.keys
        found: list[OptTensor] = [unshard(x, own) for x, own in zip(shards, spans, strict=False)]
        if len(shards) == 3:
            return [*found, None]
        has_rows = operands.mask is not None and operands.mask.shape[-2] > 1
        of_mask = unshard(shards[3], plan.queries) if has_rows else torch.stack(shards[3]).sum(0)
        return [*found, of_mask]

    return Operator("torch_ring", forward, unrounded_results, backward)


def _plan(operands: Operands) -> Plan:
    query, key, _, _, band, scale, group, (n_devices, balance) = operands
    queries, keys = (layout(x.shape[-2], n_devices, BALANCES[balance]) for x in (query, key))
    return Plan(queries, keys, band, scale, group)


def _own(operands: Operands, plan: Plan, rank: int) -> tuple[Tensor, Tensor, Tensor, OptTensor]:
    """Return a device's shards of query, key and value, and the rows of the mask for its queries.

    A single row of a mask belongs to all queries.
    """
    (query, key, value, mask), (queries, keys) = operands[:4], (plan.queries[rank], plan.keys[rank])
    if mask is not None and mask.shape[-2] > 1:
        mask = shard(mask, queries)
    return shard(query, queries), shard(key, keys), shard(value, keys), mask
