"""What a call costs: its operations, and what it keeps for its backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage()] = tuple(tensor.shape)
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        _output = form(*inputs)
    return [(storage.nbytes(), shape) for storage, shape in storages.items()]
