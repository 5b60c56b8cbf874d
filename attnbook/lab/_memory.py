"""What a call of an attention takes of memory: the tensors it makes, and those that stay.

`Watch` sees every operation of torch, so it is also what refuses torch's own attention, and
`torch.utils.checkpoint`. `Kept` counts what autograd holds.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint
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

    Attributes:
        inputs: The sizes of the inputs; a tensor that is as large as one of them is not noted.
        checkpoints: Whether torch.utils.checkpoint may be used.
        refused: What was refused, in words.
        largest, made: The size of the largest tensor, and what it is.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs: set[int] = set()
        self.checkpoints, self.refused, self.largest, self.made = True, "", 0, ""

    def __enter__(self) -> Any:
        self._patches = ExitStack()
        if not self.checkpoints:
            for owner, name in ((checkpoint._checkpoint_hook, "__init__"),
                                (checkpoint.CheckpointFunction, "forward")):
                self._patches.enter_context(mock.patch.object(owner, name, self._no_checkpoint))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        self._patches.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _no_checkpoint(self, *_: Any, **__: Any) -> None:
        self.refused = "torch.utils.checkpoint"
        raise RuntimeError("torch.utils.checkpoint computes again what this stage asks for")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if TORCHS_OWN.match(str(func)):
            self.refused = "torch's own attention"
            raise RuntimeError(f"{func} is torch's own attention")
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            n = numbers(tensor) if isinstance(tensor, torch.Tensor) else 0
            if n > self.largest and n not in self.inputs:
                self.largest = n
                self.made = f"{n:,} in shape {tuple(tensor.shape)}, from {func}"
        return result


class Held:
    """A tensor that autograd keeps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Kept(saved_tensors_hooks):
    """Calls an attention, and counts the numbers that autograd keeps at a time.

    Those of a graph that a backward builds count too, until it lets them go.
    """

    def __init__(self, attention: Callable[..., Any]) -> None:
        super().__init__(self.pack, lambda held: held.tensor)
        self.attention = attention
        self.users: Counter[int] = Counter()
        self.now = self.most = 0
        self.attributes: list[torch.Tensor] = []

    def __call__(self, *given: Any, **options: Any) -> Any:
        output = self.attention(*given, **options)
        # An autograd function can keep tensors as attributes of its ctx, which no hook sees.
        nodes: set[Any] = {getattr(output, "grad_fn", None)}
        seen: set[Any] = {None}
        while nodes := nodes - seen:
            seen |= nodes
            for leaf in tree_leaves([getattr(node, "__dict__", {}) for node in nodes]):
                if isinstance(leaf, torch.Tensor):
                    self.note(leaf)
                    self.attributes.append(leaf)  # its memory is not given to another one
            nodes = {before for node in nodes for before, _ in node.next_functions}
        return output

    def pack(self, tensor: torch.Tensor) -> Held:
        """Note a tensor until autograd lets it go."""
        held, place, n = Held(tensor), self.note(tensor), numbers(tensor)
        weakref.finalize(held, self.let_go, place, n)
        return held

    def note(self, tensor: torch.Tensor) -> int:
        """Count a tensor; those in the same memory count once."""
        place = tensor.untyped_storage().data_ptr()
        self.now += 0 if self.users[place] else numbers(tensor)
        self.users[place] += 1
        self.most = max(self.most, self.now)
        return place

    def let_go(self, place: int, n: int) -> None:
        """Count a tensor no more."""
        self.users[place] -= 1
        self.now -= 0 if self.users[place] else n
