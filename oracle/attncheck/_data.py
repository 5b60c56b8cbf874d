"""Data of any shape: tensors within lists, dicts, data classes and modules, changed and drawn anew.

A reference may take whatever it likes. What is needed of its data is to copy them, to make them
float64, to shorten an axis, and to draw other numbers where the file draws some.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from attncheck._torch_backend import numbers_of
from attncheck._types import FLOATING

NARROW = (torch.float16, torch.bfloat16, torch.float32)


def mapped(thing: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return data whose tensors are changed, within lists, dicts, data classes and modules."""
    if isinstance(thing, torch.Tensor):
        return change(thing)
    if isinstance(thing, dict):
        return {name: mapped(own, change) for name, own in thing.items()}
    if isinstance(thing, (tuple, list)):
        parts = [mapped(own, change) for own in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if isinstance(thing, torch.nn.Module):
        module = copy.deepcopy(thing)
        for own in (*module.parameters(), *module.buffers()):
            own.data = change(own.data)
        return module
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        other = copy.copy(thing)
        for name, own in vars(thing).items():
            object.__setattr__(other, name, mapped(own, change))
        return other
    return thing


def tensors(thing: Any) -> list[torch.Tensor]:
    """Return all tensors of some data, in order."""
    found: list[torch.Tensor] = []

    def kept(x: torch.Tensor) -> torch.Tensor:
        found.append(x)
        return x

    mapped(thing, kept)
    return found


def copied(thing: Any) -> Any:
    """Return data whose tensors are copies."""
    return mapped(thing, torch.clone)


def in_float64(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


class InFloat64(TorchFunctionMode):
    """Compute in float64 what is written for narrower dtypes: `x.half()`, `dtype=torch.bfloat16`.

    >>> with InFloat64():
    ...     torch.ones(1, dtype=torch.bfloat16).half().dtype, torch.ones(1).dtype
    (torch.float64, torch.float64)
    """

    def __enter__(self) -> InFloat64:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self.before)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.float):
            return args[0].double()
        named = {name: wider(own) for name, own in (kwargs or {}).items()}
        return function(*map(wider, args), **named)


def wider(thing: Any) -> Any:
    """Return float64 in place of a narrower dtype, and anything else as it is."""
    return torch.float64 if isinstance(thing, torch.dtype) and thing in NARROW else thing


def lengths(data: Any) -> list[tuple[int, int]]:
    """Return the axes of the tensors and their lengths, the last axis of each tensor aside."""
    return sorted({(axis, n) for x in tensors(data) for axis, n in enumerate(x.shape[:-1])})


def shorter(data: Any, n: int, to: int, axis: int) -> Any:
    """Return data with this length in place of n along an axis."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        there = axis < x.ndim - 1 and x.shape[axis] == n
        return x.narrow(axis, 0, to).clone() if there else x

    return mapped(data, cut)


def redrawn(first: Any, second: Any, width: float, seed: int) -> Any:
    """Return data with normal numbers where two seeds gave other ones; None where that may not be.

    `width` is the standard deviation; 0 leaves the data as they are. Tensors that are the same for
    both seeds, and single numbers, stay. Weights, whose own deviation is below 0.1, keep it.
    Integers beside them, such as 8 bits of a quantised copy, may have been computed from others.
    """
    if not width:
        return first
    generator = torch.Generator().manual_seed(seed)
    pairs = list(zip(tensors(first), tensors(second), strict=True))
    drawn = [x.numel() > 1 and not torch.equal(x, y) for x, y in pairs]
    plain = [str(x.dtype)[6:] in FLOATING for x, _ in pairs]
    numbers = [x for (x, _), moves, own in zip(pairs, drawn, plain, strict=True) if moves and own]
    copies = len({(*x.shape, round(float(x.double().sum()), 2)) for x in numbers}) < len(numbers)
    if copies or any(moves and not own for moves, own in zip(drawn, plain, strict=True)):
        return None
    moving = iter(drawn)

    def draw(x: torch.Tensor) -> torch.Tensor:
        if not next(moving):
            return x
        own = float(x.double().std())
        normal = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return (normal * (width if own > 0.1 else own)).to(x.device, x.dtype)

    return mapped(first, draw)


def same(one: Any, other: Any) -> bool:
    """Return whether two data hold the same numbers."""
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(np.array_equal(numbers_of(x), numbers_of(y), equal_nan=True) for x, y in pairs)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed, and leave torch's own numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
