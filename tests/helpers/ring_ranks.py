"""What ranks run in the tests of `torch_ring`. A function that a rank calls stands in a module."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attnlib.torch_ring import layout, ring_attention, shard


def own_shards(problem: list[Tensor], spans: list[Any]) -> list[Tensor]:
    """Return this rank's shards of query, key, value and the gradient of the output."""
    return [shard(x, spans[dist.get_rank()]).requires_grad_() for x in problem]


def all_results(problem: list[Tensor], balance: str, options: dict[str, Any]) -> list[Tensor]:
    """Return output, log-sum-exp and gradients of this rank."""
    n_tokens = problem[0].shape[-2]
    *leaves, above = own_shards(problem, layout(n_tokens, dist.get_world_size(), balance))
    results = ring_attention(*leaves, n_tokens=n_tokens, balance=balance, with_lse=True, **options)
    upstream = above.detach(), above.detach()[..., 0]
    gradients = torch.autograd.grad(results, leaves, upstream)
    return [x.detach() for x in (*results, *gradients)]


def fails(how: str) -> int:
    """Do the same on all ranks, but for rank 1, which fails while the others wait for it."""
    x = torch.ones(4, 2)
    if dist.get_rank() == 1:
        match how:
            case "raises":
                raise KeyError("no such thing")
            case "exits":
                os._exit(3)
            case "leaves":
                sys.exit("tired of it")
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "returns":
                return 0
            case "hangs":
                time.sleep(600)
            case "has other shapes":
                x = torch.ones(4, 3)
            case "has other tokens":
                x = torch.ones(5, 2)
            case "calls another collective":
                dist.all_reduce(torch.ones(10_000))
    ring_attention(x, x, x, n_tokens=4 * dist.get_world_size())
    return 1
