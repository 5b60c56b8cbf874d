"""What a call costs: its operations and what is kept, counted, and its seconds, by the clock."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode


def operations(function: Callable[..., object], *args: Any, **options: Any) -> int:
    """Return the operations of the matrix products in a call, as torch counts them.

    A multiplication and an addition are one operation each. Tensors may be on the device `meta`.

    >>> operations(torch.matmul, torch.ones(2, 3), torch.ones(3, 5))
    60
    """
    with FlopCounterMode(display=False) as counter:
        function(*args, **options)
    return int(counter.get_total_flops())


def kept(form: Callable[..., object], *inputs: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Return the bytes and the shape of each tensor that a call keeps for its backward pass.

    Tensors in the same memory count once, with the shape that is kept last.

    Source:
        chapter 11, which builds it.

    >>> kept(torch.exp, torch.ones(2, 3, requires_grad=True))
    [(24, (2, 3))]
    """
    storages = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage()] = tuple(tensor.shape)
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        _output = form(*inputs)
    return [(storage.nbytes(), shape) for storage, shape in storages.items()]


def seconds(
    function: Callable[..., object], *args: Any, times: int = 3, threads: int | None = None
) -> float:
    """Return the shortest time of several equal calls, after one that is not timed.

    `threads` is how many threads torch uses meanwhile; None leaves its setting as it is. With one
    thread this is the time of the processor, to which other programs add nothing.

    Raises:
        ValueError: when times or threads are below 1.

    >>> seconds(sum, [1, 2]) > 0
    True
    """
    if times < 1 or (threads is not None and threads < 1):
        raise ValueError(f"times and threads must be at least 1; got {times} and {threads}")
    clock = thread_time if threads == 1 else perf_counter
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        function(*args)
        found = []
        for _ in range(times):
            start = clock()
            function(*args)
            found.append(clock() - start)
    finally:
        torch.set_num_threads(before)
    return min(found)
