"""A ring between threads of one process, and the operator that deals a whole sequence out to it."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from attnlib._checks import Band
from attnlib._torch_operators import Operand, Operator, Results, placeholder, wide_results
from attnlib.torch_ring._shards import BALANCES, Plan, Span, layout, shard, unshard

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
    name: str,
    attend: Callable[..., tuple[Tensor, Tensor, Tensor]],
    differentiate: Callable[..., list[Tensor]],
) -> Operator:
    """Return attention as an operator that deals a whole sequence out to a ring of threads.

    `attend` and `differentiate` are what one device does, with its link, the plan and its shards.
    The operator's options are the number of devices and the index of the balance in BALANCES.
    """

    def forward(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, band: list[int],
        scale: float | None, group: int, options: list[int],
    ) -> Results:  # fmt: skip
        plan = _plan(query, key, band, scale, group, options)

        def device(link: ThreadLink) -> tuple[Tensor, Tensor, Tensor]:
            queries, keys = plan.queries[link.rank], plan.keys[link.rank]
            own = shard(query, queries), shard(key, keys), shard(value, keys)
            return attend(link, plan, *own, _rows(attn_mask, queries))

        o, m, log_ell = zip(*between_threads(device, options[0], query.device), strict=True)
        output = unshard(o, plan.queries)
        all_m, all_log_ell = (unshard(x, plan.queries, dim=-1) for x in (m, log_ell))
        lse = all_m + all_log_ell
        return Results(output, lse, all_m, all_log_ell.exp(), placeholder(query))

    def backward(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, output: Tensor,
        m: Tensor, ell: Tensor, lost: Tensor, d_output: Tensor, d_lse: Tensor,
        needed: list[bool], band: list[int], scale: float | None, group: int, options: list[int],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        plan = _plan(query, key, band, scale, group, options)

        def device(link: ThreadLink) -> list[Tensor]:
            queries, keys = plan.queries[link.rank], plan.keys[link.rank]
            own = shard(query, queries), shard(key, keys), shard(value, keys)
            of_rows = [shard(x, queries, dim=-1) for x in (m, ell, d_lse)]
            outputs = shard(output, queries), shard(d_output, queries)
            mask = _rows(attn_mask, queries)
            return differentiate(link, plan, *own, mask, *outputs, *of_rows, needed[3])

        shards = list(zip(*between_threads(device, options[0], query.device), strict=True))
        spans = plan.queries, plan.keys, plan.keys
        found = [unshard(x, own) for x, own in zip(shards, spans, strict=False)]
        if attn_mask is not None and needed[3]:
            has_rows = attn_mask.shape[-2] > 1
            found += [
                unshard(shards[3], plan.queries) if has_rows else torch.stack(shards[3]).sum(0)
            ]
        inputs = zip((query, key, value, attn_mask), needed, strict=True)
        return tuple(
            found[i].to(x.dtype) if need and x is not None else placeholder(query)
            for i, (x, need) in enumerate(inputs)
        )

    return Operator(name, forward, wide_results, backward)


def _plan(
    query: Tensor, key: Tensor, band: list[int], scale: float | None, group: int,
    options: list[int],
) -> Plan:  # fmt: skip
    n_devices, balance = options[0], BALANCES[options[1]]
    queries, keys = (layout(x.shape[-2], n_devices, balance) for x in (query, key))
    return Plan(queries, keys, Band.of(band), scale, group)


def _rows(mask: Operand, spans: list[Span]) -> Operand:
    """Return the rows of a mask that belong to some queries; a single row belongs to all."""
    return mask if mask is None or mask.shape[-2] == 1 else shard(mask, spans)
