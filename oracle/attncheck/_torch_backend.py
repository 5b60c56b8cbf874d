"""The backend for tensors, and plain attention on tensors, which half precision is measured by."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from attncheck._backends import Backend, stored
from attncheck._calls import Call, Given, WrongResultError
from attncheck._definition import argument_gradients, problem
from attncheck._tolerance import finite
from attncheck._types import Array, scale_of


class TorchBackend(Backend):
    """Gives tensors on a device, and takes a tensor back."""

    def __init__(self, device: str = "cpu") -> None:
        try:
            self.device = torch.empty(0, device=device).device
        except (RuntimeError, AssertionError) as error:
            why = str(error).strip().partition("\n")[0]
            words = f"device must be one that torch has here; got {device!r} ({why})"
            raise ValueError(words) from error

    def give(self, given: Given) -> torch.Tensor:
        """Return the argument as a tensor of its dtype and layout, strides and all."""
        own = stored(given.numbers, given.dtype)
        return self.held(own if given.layout is None else given.layout(own), given.dtype)

    def held(self, own: Array, dtype: str) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            view = torch.from_numpy(own)
        view = view.view(torch.bfloat16) if dtype == "bfloat16" else view
        if self.device.type == "cpu" or not view.numel():
            return view.to(self.device)
        # A plain copy to a device would drop gaps and strides of 0.
        extent = 1 + sum((n - 1) * s for n, s in zip(view.shape, view.stride(), strict=True))
        whole = view.as_strided((extent,), (1,)).to(self.device)
        return whole.as_strided(view.shape, view.stride())

    @contextlib.contextmanager
    def poisoned(self) -> Iterator[None]:
        """Fill what is allocated with NaN, so that what a kernel leaves unwritten is seen."""
        before = torch.get_deterministic_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_deterministic_debug_mode("warn")
            try:
                yield
            finally:
                torch.set_deterministic_debug_mode(before)

    def bits(self, own: torch.Tensor) -> bytes:
        return self.take(own)[0].tobytes()

    def take(self, result: Any) -> tuple[Array, str]:
        name = self._dtype(result)
        return numbers_of(result), name

    def packed(self, result: Any) -> tuple[Array, str]:
        name = self._dtype(result)
        own = result.detach().cpu().contiguous().resolve_conj().resolve_neg()
        return (own.view(torch.int16) if name == "bfloat16" else own).numpy(), name

    def _dtype(self, result: Any) -> str:
        """Return the name of the dtype of a result, which must be a tensor on the device."""
        # An object may say that its class is another one; its type is what it is.
        if not issubclass(type(result), torch.Tensor):
            raise WrongResultError(f"expected a torch.Tensor, got {type(result).__qualname__}")
        if result.device != self.device:
            raise WrongResultError(
                f"expected a result on {self.device}, got one on {result.device}"
            )
        return str(result.dtype).removeprefix("torch.")

    def shares(self, result: torch.Tensor, own: torch.Tensor) -> bool:
        addresses = [x.untyped_storage().data_ptr() for x in (result, own)]
        return addresses[0] == addresses[1] != 0

    def gradients(
        self, attention: Any, own: dict[str, torch.Tensor], upstream: torch.Tensor,
        wanted: tuple[str, ...],
    ) -> dict[str, torch.Tensor]:
        leaves = [own[name].requires_grad_() for name in wanted]
        found = torch.autograd.grad(attention(**own), leaves, upstream)
        return dict(zip(wanted, found, strict=True))

    def peer(self, call: Call) -> Array:
        tensors, options = _tensors(call)
        return numbers_of(plain(**tensors, **options)[0])

    def peer_gradients(self, call: Call) -> dict[str, Array]:
        assert call.upstream is not None
        tensors, options = _tensors(call)
        leaves = {name: x for name, x in tensors.items() if x.is_floating_point()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        results, given = plain(**tensors, **options), [call.upstream]
        if call.lse_upstream is not None:
            given.append(call.lse_upstream._replace(dtype=call.given["query"].dtype))
        above = [TorchBackend().give(own) for own in given]
        found = torch.autograd.grad(results[: len(above)], tuple(leaves.values()), above)
        wide = dict(zip(leaves, map(numbers_of, found), strict=True))
        return argument_gradients(call, wide)


def numbers_of(tensor: torch.Tensor) -> Array:
    """Return a tensor's numbers in float64."""
    numbers: Array = tensor.detach().cpu().to(torch.float64).numpy()
    return numbers


def _tensors(call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call without its keywords, as tensors on the CPU, and its scale and the like."""
    query, key, value, mask, scale, softcap, sinks = problem(call)
    dtype = call.given["query"].dtype
    arrays = {"query": query, "key": key, "value": value}
    given = {name: Given(finite(array), dtype) for name, array in arrays.items()}
    if mask is not None:
        kind = "bool" if mask.dtype == np.bool_ else call.given["attn_mask"].dtype
        given["attn_mask"] = Given(mask, kind)
    if sinks is not None:
        given["sinks"] = Given(sinks, dtype)
    options: dict[str, Any] = {"scale": scale, "softcap": softcap}
    return {name: TorchBackend().give(own) for name, own in given.items()}, options


def plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, scale: float | None = None,
    softcap: float | None = None, sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the formula as anybody would write it, every step in the inputs' dtype, and the lse.

    The weights of a row without keys are put in after the softmax, so that its gradients are 0.
    """
    scores = query @ key.transpose(-1, -2) * scale_of(scale, query.shape[-1])
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if attn_mask is not None:
        allowed = attn_mask
        if attn_mask.dtype != torch.bool:
            allowed = attn_mask != -math.inf
            scores = scores + attn_mask.to(scores.dtype)
        scores = torch.where(allowed, scores, torch.full_like(scores, -math.inf))
    empty = (scores == -math.inf).all(dim=-1, keepdim=True)
    scores = scores.masked_fill(empty, 0)
    if sinks is not None:
        column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[-2]]
    lse = torch.logsumexp(scores, dim=-1).masked_fill(empty[..., 0], -math.inf)
    return weights.masked_fill(empty, 0) @ value, lse
