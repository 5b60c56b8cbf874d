"""How a device of a ring hands tensors to the next one, when devices are processes.

A link is what a device knows of its ring: its `rank`, the `size` of the ring, and `pass_on`, which
sends tensors to the next rank and receives those of the rank before: of the same shapes and dtype,
with `length` in dimension -2. Sending starts at once, and `pass_on` returns a function that waits
for what arrives. A device computes between the two, so that the traffic hides behind the work. For
threads the link is in `_threads`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

SAID = 1024  # bytes in which a rank says what it was asked for


class ProcessLink:
    """A link between the processes of a group of torch.distributed."""

    def __init__(self, group: Any = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            how = "start the processes by torchrun, and call init_process_group first"
            raise RuntimeError(f"torch.distributed must be initialized; {how}")
        if hasattr(group, "get_group"):  # a DeviceMesh
            if group.ndim != 1:
                raise ValueError(f"group must be a mesh of one dimension; got {group.ndim}")
            group = group.get_group()
        if not (group is None or isinstance(group, dist.ProcessGroup)):
            came = type(group).__qualname__
            raise TypeError(f"group must be None, a ProcessGroup or a DeviceMesh; got {came}")
        self.group, self.rank = group, dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def pass_on(self, tensors: Sequence[Tensor], length: int) -> Callable[[], list[Tensor]]:
        """Send tensors on as one message, and return a function that waits for those that arrive.

        They go as a batch, because NCCL hangs where each of two ranks first sends and then
        receives. A message without numbers is not sent.
        """
        if self.size == 1:
            return lambda: list(tensors)
        outgoing = torch.cat([x.reshape(-1) for x in tensors])
        shapes = [(*x.shape[:-2], length, x.shape[-1]) for x in tensors]
        counts = [math.prod(shape) for shape in shapes]
        incoming = outgoing.new_empty(sum(counts))
        partners = (dist.isend, outgoing, self.rank + 1), (dist.irecv, incoming, self.rank - 1)
        messages = [
            dist.P2POp(way, message, self._global(rank % self.size), self.group)
            for way, message, rank in partners
            if message.numel()
        ]
        works = dist.batch_isend_irecv(messages) if messages else []

        def arrived() -> list[Tensor]:
            for work in works:
                work.wait()
            pieces = zip(torch.split(incoming, counts), shapes, strict=True)
            return [numbers.view(shape) for numbers, shape in pieces]

        return arrived

    def _global(self, rank: int) -> int:
        """Return the number that a rank of the group has among all processes."""
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def agree(self, said: str, device: torch.device) -> None:
        """Require that every rank says the same, by one small all-gather.

        Ranks that expect messages of different lengths would not get an error of Python: gloo
        aborts the process, and NCCL hangs.
        """
        text = said.encode()[:SAID]
        mine = torch.frombuffer(bytearray(text.ljust(SAID)), dtype=torch.uint8).to(device)
        gathered = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(gathered, mine, group=self.group)
        heard = [bytes(x.tolist()).decode(errors="replace").rstrip() for x in gathered]
        if len(set(heard)) > 1:
            came = "; ".join(f"rank {rank}: {words}" for rank, words in enumerate(heard))
            raise ValueError(f"ranks must agree on shapes, dtype and options; got {came}")
