"""Every form of `attnlib.implementations()`, as functions from NumPy arrays to NumPy arrays.

A new form needs nothing here; what a form promises beyond the common contract is said by its
properties. bfloat16 is an array of ml_dtypes. A form on tensors appears once for each device, and
a form that works in blocks once for each choice of their sizes in BLOCKS.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnlib

Array = NDArray[Any]

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def tensor(array: Array, device: str = "cpu") -> torch.Tensor:
    """Return the array as a tensor, in memory of its own."""
    if array.dtype == DTYPES["bfloat16"]:
        return tensor(array.astype(np.float32), device).bfloat16()
    return torch.from_numpy(np.array(array)).to(device)


def array(result: torch.Tensor) -> Array:
    """Return the tensor as an array."""
    result = result.detach().cpu()
    if result.dtype == torch.bfloat16:
        return result.float().numpy().astype(DTYPES["bfloat16"])
    return result.numpy()


@dataclass(frozen=True)
class Implementation:
    """One implementation on one device."""

    name: str
    device: str = "cpu"
    blocks: tuple[tuple[str, Any], ...] = ()  # keywords that set the sizes of its blocks

    def __str__(self) -> str:
        device = [] if self.device == "cpu" else [self.device]
        return "-".join([self.name, *device, *(f"{name}={size}" for name, size in self.blocks)])

    @property
    def on_tensors(self) -> bool:
        """Whether it takes tensors, and so gives gradients; a NumPy form has values alone."""
        return "torch" in attnlib._MODULES[self.name]

    @property
    def kind(self) -> str:
        """What it takes, in the words of `attncheck`."""
        return "torch" if self.on_tensors else "numpy"

    @property
    def is_differentiated_by_autograd(self) -> bool:
        """Whether it is plain torch, and so has second derivatives and a forward mode.

        Asked for these, the others name a form that has them.
        """
        return self.name in ("torch_dense", "torch_decoding")

    @property
    def is_interpreted(self) -> bool:
        """Whether it is a GPU's kernel on the CPU, where a call takes a tenth of a second."""
        return self.name == "triton_fused" and self.device == "cpu"

    @property
    def takes_long(self) -> bool:
        """Whether a call takes many times that of another form: in an interpreter, or a ring."""
        return self.is_interpreted or self.name == "torch_ring"

    @property
    def drops(self) -> bool:
        """Whether it takes a dropout_p other than 0."""
        return self.name == "torch_dense"

    def function(self, name: str = "scaled_dot_product_attention") -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(importlib.import_module(f"attnlib.{self.name}"), name)
        return functools.partial(found, **dict(self.blocks)) if self.blocks else found

    def give(self, array: Array) -> Any:
        """Return what this form takes for an array."""
        return tensor(array, self.device) if self.on_tensors else array

    def take(self, result: Any) -> Array:
        """Return an array for what this form returned."""
        if not self.on_tensors:
            assert isinstance(result, np.ndarray)
            return result
        assert result.device.type == self.device
        return array(result)

    def _run(self, name: str, arguments: Any, options: dict[str, Any]) -> Any:
        def given(own: Any) -> Any:
            return self.give(own) if isinstance(own, np.ndarray) else own

        named = {key: given(option) for key, option in options.items()}
        with np.errstate(all="raise"):
            return self.function(name)(*map(given, arguments), **named)

    def __call__(self, *arguments: Any, **options: Any) -> Array:
        return self.take(self._run("scaled_dot_product_attention", arguments, options))

    def with_lse(self, *arguments: Any, **options: Any) -> tuple[Array, Array]:
        output, lse = self._run("scaled_dot_product_attention_with_lse", arguments, options)
        return self.take(output), self.take(lse)

    def gradients(
        self, query: Array, key: Array, value: Array, upstream: Array,
        attn_mask: Array | None = None, *,
        by: tuple[str, ...] = ("query", "key", "value", "attn_mask"), **options: Any,
    ) -> dict[str, Array]:
        """Return the gradient by each floating input, for a given gradient of the output."""
        arrays = {"query": query, "key": key, "value": value}
        arrays |= {} if attn_mask is None else {"attn_mask": attn_mask}
        own = {name: self.give(array) for name, array in arrays.items()}
        learn = [name for name in by if name in own and own[name].is_floating_point()]
        leaves = {name: own[name].requires_grad_() for name in learn}
        result = self.function()(**own, **options)
        found = torch.autograd.grad(result, tuple(leaves.values()), self.give(upstream))
        return {name: self.take(g) for name, g in zip(leaves, found, strict=True)}


# Beside its own choice, which is larger than most lengths in these tests.
BLOCKS: dict[str, list[dict[str, int]]] = {
    "numpy_blockwise": [{"block_size": size} for size in (1, 3)],
    "torch_ring": [{"n_devices": size} for size in (1, 3, 4)],
    "torch_blockwise": [
        {"block_size_q": rows, "block_size_k": keys} for rows, keys in ((3, 2), (3, 64))
    ],
    "torch_decoding": [{"block_size_k": size} for size in (1, 3)],
}


def devices(name: str) -> tuple[str, ...]:
    """Return the devices of a form. The kernel runs on a GPU, or in the interpreter on the CPU."""
    needs = attnlib._MODULES[name]
    return DEVICES[-1:] if "triton" in needs else DEVICES if "torch" in needs else ("cpu",)


IMPLEMENTATIONS = [
    Implementation(name, device, tuple(blocks.items()))
    for name in attnlib.implementations()
    for device in devices(name)
    for blocks in ({}, *BLOCKS.get(name, ()))
]
WITH_GRADIENTS = [form for form in IMPLEMENTATIONS if form.on_tensors]


def on(forms: Iterable[Implementation], *, dtypes: Iterable[Any] = ()) -> pytest.MarkDecorator:
    """Run a test on each of these implementations, and in each of these dtypes if it takes a dtype.

    In an interpreter a call takes a tenth of a second, and in a ring many calls make one. There a
    test runs in the first dtype alone, and `make slow` runs it. (`make test` asks such a form what
    test_cases asks, and its own tests.)
    """
    first, *others = [[dtype] for dtype in dtypes] or [[]]
    chosen = []
    for form in forms:
        marks = [pytest.mark.slow] if form.takes_long else []
        for dtype in (first, *([] if form.takes_long else others)):
            name = "-".join(map(str, (form, *dtype)))
            chosen.append(pytest.param(form, *dtype, marks=marks, id=name))
    return pytest.mark.parametrize("form,dtype" if first else "form", chosen)


every_implementation = on(IMPLEMENTATIONS)
every_form_with_gradients = on(WITH_GRADIENTS)
