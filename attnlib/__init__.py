"""Scaled dot-product attention, in eight implementations.

Each computes the same thing, softmax(Q Kᵀ / √d_k) V, and is held against the first:

    numpy_tokenwise   the definition: explicit loops, one query at a time
    numpy_dense       the matrix form, and each of its steps as a function
    torch_dense       the same on tensors: any device, gradients (needs torch)
    numpy_blockwise   one block of keys at a time, in memory that grows with L + S
    torch_blockwise   the same on tensors, forward and backward
    triton_fused      the same in one GPU kernel (needs triton, and a GPU or Triton's interpreter)
    torch_decoding    new tokens beside a cache, and keys split in pieces that are merged
    torch_ring        the sequence spread over devices: a ring of processes, or of threads

`implementations()` returns those that can run here. Beside them stand `masks` (who may attend to
whom), `positions` (where a token stands in the sequence), `serving` (texts in a row, pages, sinks)
and `torch_layers`. NumPy alone is needed, and torch by what computes on tensors.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "implementations", "needs"]

# Each module with an implementation, and the packages that it needs. A new one is a new row.
_MODULES: dict[str, tuple[str, ...]] = {
    "numpy_tokenwise": ("numpy",),
    "numpy_dense": ("numpy",),
    "torch_dense": ("numpy", "torch"),
    "numpy_blockwise": ("numpy",),
    "torch_blockwise": ("numpy", "torch"),
    "triton_fused": ("numpy", "torch", "triton"),
    "torch_decoding": ("numpy", "torch"),
    "torch_ring": ("numpy", "torch"),
}
# The extra that brings a package: pip install "attnlib[figures]".
_EXTRAS = {"torch": "torch", "triton": "triton", "matplotlib": "figures", "transformers": "models"}


def implementations() -> dict[str, Callable[..., Any]]:
    """Return the attention functions that can run here, by name, from the definition on.

    One whose packages are not installed is left out, and so is one that says, by a function
    `available`, that nothing here can run it. Modules are imported by this call, not by
    `import attnlib`.

    >>> list(implementations())[:2]
    ['numpy_tokenwise', 'numpy_dense']
    """
    modules = {
        name: importlib.import_module(f"attnlib.{name}")
        for name, packages in _MODULES.items()
        if all(importlib.util.find_spec(package) for package in packages)
    }
    return {
        name: module.scaled_dot_product_attention
        for name, module in modules.items()
        if getattr(module, "available", lambda: True)()
    }


def needs(module: str, package: str) -> None:
    """Import a package for a module. Where it is missing, the error says which extra brings it."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        what = f"{module} needs {package}, which is not installed"
        how = f'pip install "attnlib[{_EXTRAS[package]}]"'
        raise ModuleNotFoundError(f"{what}: {how}", name=package) from error
