"""Argument checks of the forms on tensors, and what they do under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from numbers import Real
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from attnlib._checks import Call, check_dtypes, checked_call, dtype_name

P = ParamSpec("P")
R = TypeVar("R")


def check_tensor(name: str, tensor: object) -> None:
    """Require a dense tensor."""
    if not isinstance(tensor, Tensor):
        kind = type(tensor)
        came = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        numpy = kind.__module__.partition(".")[0] == "numpy"
        hint = "use a NumPy form for arrays" if numpy else "convert it with torch.as_tensor"
        raise TypeError(f"{name} must be a torch.Tensor; got {came} ({hint})")
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        came = "a nested tensor" if tensor.is_nested else f"layout {layout}"
        raise TypeError(f"{name} must be a dense tensor; got {came}")


def check_tensors(tensors: Mapping[str, object]) -> dict[str, Tensor]:
    """Require dense tensors of one floating dtype on one device."""
    known: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        check_tensor(name, tensor)
        assert isinstance(tensor, Tensor)
        known[name] = tensor
    check_dtypes({name: dtype_name(tensor) for name, tensor in known.items()})
    check_devices(known)
    return known


def check_devices(tensors: Mapping[str, Tensor]) -> None:
    """Require one device for all."""
    if len({tensor.device for tensor in tensors.values()}) > 1:
        came = ", ".join(f"{name} {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"{', '.join(tensors)} must be on one device; got {came}")


def check_dropout(dropout_p: object) -> None:
    """Require a probability."""
    if isinstance(dropout_p, bool) or not isinstance(dropout_p, Real):
        came = f"{type(dropout_p).__name__} {dropout_p!r}"
        raise TypeError(f"dropout_p must be a real number; got {came}")
    if not 0 <= float(dropout_p) <= 1:
        raise ValueError(f"dropout_p must lie between 0 and 1; got {dropout_p!r}")


def torch_call(
    tensors: Mapping[str, object],
    attn_mask: object = None,
    dropout_p: object = 0.0,
    is_causal: object = False,
    scale: object = None,
    enable_gqa: object = False,
    causal_align: object = "top-left",
    window: object = None,
) -> Call:
    """Check a call on tensors; `tensors` maps query, key and perhaps value to them."""
    known = check_tensors(tensors)
    check_dropout(dropout_p)
    mask = None
    if attn_mask is not None:
        check_tensor("attn_mask", attn_mask)
        assert isinstance(attn_mask, Tensor)
        check_devices({"query": known["query"], "attn_mask": attn_mask})
        mask = tuple(attn_mask.shape), dtype_name(attn_mask)
    shapes = {name: tuple(tensor.shape) for name, tensor in known.items()}
    dtype = dtype_name(known["query"])
    return checked_call(shapes, dtype, mask, is_causal, scale, enable_gqa, causal_align, window)


def as_autocast_does(function: Callable[P, R]) -> Callable[P, R]:
    """Treat a function as torch.autocast treats torch's own attention.

    Where autocast is on, every floating tensor but float64 is cast to autocast's dtype, the mask
    too. The function itself then runs without autocast, which would undo its float32 sums.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        device = tensors[0].device.type if tensors else "meta"
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return function(*args, **kwargs)
        dtype = torch.get_autocast_dtype(device)

        def cast(x: object) -> object:
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64:
                return x
            return x.to(dtype)

        with torch.autocast(device, enabled=False):
            return function(*map(cast, args), **{k: cast(x) for k, x in kwargs.items()})  # type: ignore[arg-type]

    return wrapped
