"""What a call of an attention takes of memory: the tensors it makes, and those that stay.

`Watch` sees every operation of torch, so it is also what refuses torch's own attention.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Where torch has no kernel for a call, its attention is a few operations, of which _safe_softmax is
# used by nothing else.
TORCHS_OWN = re.compile(r"(aten\.)?\w*(attention|_safe_softmax)")


def numbers(tensor: torch.Tensor) -> int:
    """Return how many numbers the memory of a tensor holds; a view has that of another.

    >>> numbers(torch.zeros(3, 1).expand(3, 100))
    3
    """
    return tensor.untyped_storage().nbytes() // tensor.element_size()


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that is made, and refuses torch's own attention.

    An operator that is registered with torch, as `torch_blockwise` is, shows its results alone.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refused, self.largest, self.made = "", 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if TORCHS_OWN.match(str(func)):
            self.refused = str(func)
            raise RuntimeError(f"{func} is torch's own attention")
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and numbers(tensor) > self.largest:
                self.largest = numbers(tensor)
                self.made = f"{self.largest:,} in shape {tuple(tensor.shape)}, from {func}"
        return result


class Kept:
    """Calls an attention, and holds every tensor that stays for its backward."""

    def __init__(self, attention: Callable[..., Any]) -> None:
        self.attention = attention
        self.tensors: dict[int, torch.Tensor] = {}

    def __call__(self, *given: Any, **options: Any) -> Any:
        with saved_tensors_hooks(self.note, lambda tensor: tensor):
            output = self.attention(*given, **options)
        # An autograd function can keep tensors as attributes of its ctx, which no hook sees.
        nodes: set[Any] = {getattr(output, "grad_fn", None)}
        seen: set[Any] = {None}
        while nodes := nodes - seen:
            seen |= nodes
            for leaf in tree_leaves([getattr(node, "__dict__", {}) for node in nodes]):
                if isinstance(leaf, torch.Tensor):
                    self.note(leaf)
            nodes = {before for node in nodes for before, _ in node.next_functions}
        return output

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note a tensor; those in the same memory count once."""
        self.tensors[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    @property
    def numbers(self) -> int:
        """Return how many numbers stay."""
        return sum(map(numbers, self.tensors.values()))
