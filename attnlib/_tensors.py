"""What every call on tensors has in common: a call is checked and prepared here.

A `Call` has passed all checks, and a `DenseCall` is prepared for products of whole matrices. An
implementation computes output and log-sum-exp from it, and `finish` restores the caller's dtype
and, after a `DenseCall`, the heads. `as_autocast_does` does what `torch.autocast` asks for.

Nothing here looks at the numbers to decide what to do, so that every call can be differentiated,
compiled, batched by `torch.vmap` and run on the meta device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from attnlib._checks import CheckedCall, Options, check_dtypes, dtype_name, out_of_range

P = ParamSpec("P")
R = TypeVar("R")
HALF = (torch.float16, torch.bfloat16)


def check_tensor(name: str, tensor: object) -> Tensor:
    """Require a dense tensor, and return it."""
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
    return tensor


def checked_tensors(tensors: Mapping[str, object]) -> dict[str, Tensor]:
    """Return the tensors, which must be dense and share one floating dtype and one device."""
    known = {name: check_tensor(name, tensor) for name, tensor in tensors.items()}
    check_dtypes({name: dtype_name(tensor) for name, tensor in known.items()})
    check_devices(known)
    return known


def check_devices(tensors: Mapping[str, Tensor]) -> None:
    """Require one device for all."""
    if len({tensor.device for tensor in tensors.values()}) > 1:
        came = ", ".join(f"{name} {tensor.device}" for name, tensor in tensors.items())
        raise ValueError(f"{', '.join(tensors)} must be on one device; got {came}")


# A compiler takes the answer as it is: that of torch 2.11 cannot look into the question.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_autocast(device: str) -> bool:
    """Return whether torch has autocast for a kind of device."""
    return torch.amp.is_autocast_available(device)


def as_autocast_does(function: Callable[P, R]) -> Callable[P, R]:
    """Treat a function as torch.autocast treats torch's own attention.

    Where autocast is on, every floating tensor but float64 is cast to autocast's dtype, the mask
    too. The function itself then runs without autocast, which would undo its float32 sums.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        device = tensors[0].device.type if tensors else "meta"
        if not (has_autocast(device) and torch.is_autocast_enabled(device)):
            return function(*args, **kwargs)
        dtype = torch.get_autocast_dtype(device)

        def cast(x: object) -> object:
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64:
                return x
            return x.to(dtype)

        with torch.autocast(device, enabled=False):
            return function(*map(cast, args), **{k: cast(x) for k, x in kwargs.items()})  # type: ignore[arg-type]

    return wrapped


def computing_dtype(dtype: torch.dtype, scale: float | None = None) -> torch.dtype:
    """Return the dtype that sums are kept in; it has to hold the scale too."""
    wide = torch.float32 if dtype in HALF else dtype
    return torch.float64 if scale and out_of_range(scale, torch.finfo(wide)) else wide


def zero_unseen(tensor: Tensor, allowed: Tensor | None) -> Tensor:
    """Return keys or values with zeros for those that no query may see: 0 · NaN is NaN.

    `allowed` says which keys each query may see, None for all.
    """
    return tensor if allowed is None else tensor.masked_fill(~allowed.any(-2)[..., None], 0)


class Call(CheckedCall):
    """A call whose arguments have been checked.

    query (…, H, L, d_k), key (…, H_kv, S, d_k) and value (…, H_kv, S, d_v) are the caller's
    tensors; mask is None or has two dimensions and more.
    """

    def __init__(self, inputs: Sequence[object], options: Options, *, drops: bool = False) -> None:
        """Check query and key, and the value unless scores or weights alone are computed."""
        known = checked_tensors(dict(zip(("query", "key", "value"), inputs, strict=False)))
        self.mask: Tensor | None = options.attn_mask
        if self.mask is not None:
            check_tensor("attn_mask", self.mask)
            check_devices({"query": known["query"], "attn_mask": self.mask})
        super().__init__(known, self.mask, options, drops)
        if self.mask is not None and self.mask.ndim < 2:
            self.mask = self.mask.reshape(1, -1)
        # None is handed on, because an operator computes 1/√d_k from shapes that it sees itself.
        self.scale_asked_for = None if options.scale is None else self.scale
        self.dropout_p: float = options.dropout_p
        if self.group == 0:  # no query heads, so no use for key heads
            self.key, self.value = self.key[..., :0, :, :], self.value[..., :0, :, :]
            self.group = 1

    def finish(self, output: Tensor, lse: Tensor | None) -> tuple[Tensor, Any]:
        """Return output and log-sum-exp in the shape and the dtype that the caller expects."""
        if lse is not None:
            lse = lse.to(computing_dtype(self.out_dtype))
        return output.to(self.out_dtype), lse


class DenseCall(Call):
    """A call prepared for products of whole matrices.

    query, key and value have the dtype to compute in. Query heads that share a key head are one
    list of rows, (…, H_kv, group · L, d_k), and those of the mask follow them. Keys and values that
    no query may see are zeros.
    """

    def __init__(self, inputs: Sequence[object], options: Options, *, drops: bool = False) -> None:
        super().__init__(inputs, options, drops=drops)
        if self.mask is not None and self.group > 1:
            self.mask = self._folded(self.mask.expand(*self.batch, self.n_queries, self.n_keys))
        self.allowed = self._allowed()
        # Where the last query sees every key, as under is_causal, no key is without a query.
        last = slice(self.n_queries - 1, self.n_queries)
        if self.mask is not None or not self.band.holds(last, slice(0, self.n_keys)):
            self.key = zero_unseen(self.key, self.allowed)
            self.value = zero_unseen(self.value, self.allowed)
        dtype = computing_dtype(self.out_dtype, self.scale)
        self.query = self._folded(self.query).to(dtype)
        self.key, self.value = self.key.to(dtype), self.value.to(dtype)

    def _folded(self, rows: Tensor) -> Tensor:
        """Return (…, H, L, ·) as (…, H_kv, group · L, ·)."""
        if self.group == 1:
            return rows
        *batch, heads, length, features = rows.shape
        return rows.reshape(*batch, heads // self.group, self.group * length, features)

    def _unfolded(self, rows: Tensor) -> Tensor:
        """Return (…, H_kv, group · L, ·) as (…, H, L, ·)."""
        if self.group == 1:
            return rows
        *batch, heads, length, features = rows.shape
        return rows.reshape(*batch, heads * self.group, length // self.group, features)

    def _allowed(self) -> Tensor | None:
        """Return which keys each query may see, None for all."""
        allowed = None
        if self.mask is not None:
            allowed = self.mask if self.mask.dtype == torch.bool else self.mask != -math.inf
        if self.band.left is not None or self.band.right is not None:
            device = self.query.device
            queries, keys = (torch.arange(n, device=device) for n in (self.n_queries, self.n_keys))
            near = self.band.sees(queries[:, None], keys).repeat(self.group, 1)
            allowed = near if allowed is None else allowed & near
        return allowed

    def masked(
        self, scores: Tensor, cut: Callable[[Tensor], Tensor] = lambda mask: mask
    ) -> tuple[Tensor, Tensor]:
        """Return the scores after the mask, and which rows are empty. The given scores may change.

        The score of a key that does not take part is replaced by -∞, so that nothing of it is
        left, NaN included. In an empty row all scores are 0. Where the scores are a part of all
        scores, `cut` returns the same part of a mask.
        """
        mask, allowed = (None if x is None else cut(x) for x in (self.mask, self.allowed))
        if mask is not None and mask.dtype == torch.bool:
            assert allowed is not None
            scores = scores.masked_fill(~allowed, -math.inf)
        elif allowed is not None:
            if mask is not None:
                scores = scores + mask.to(scores.dtype)
            fill(scores, ~allowed, -math.inf)
        return scores, empty_rows(scores)

    def finish(self, output: Tensor, lse: Tensor | None) -> tuple[Tensor, Any]:
        """Return output and log-sum-exp in the shape and the dtype that the caller expects."""
        output = self._unfolded(output)
        if lse is not None:  # a value may have batch dimensions that the scores do not have
            lse = self._unfolded(lse)[..., 0].expand(output.shape[:-1]).contiguous()
        return super().finish(output, lse)


def scaled_product(
    query: Tensor, key: Tensor, scale: float,
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    """Return scale · Q Kᵀ, without ∞ on the way where the result is finite."""
    if abs(scale) > 1:  # a large query times a large scale could be ∞
        return product(query, key.mT) * scale
    return product(query * scale, key.mT)  # L d_k products with the scale, not L S


def fill(scores: Tensor, where: Tensor, number: float) -> None:
    """Overwrite scores in place, unseen by autograd.

    The weight of such a score is 0, or its whole row is replaced by zeros later, so that its
    gradient is 0 without help. Recorded, each fill would cost the backward a pass over L S numbers.
    """
    scores.detach().masked_fill_(where, number)


def empty_rows(scores: Tensor, dim: int = -1) -> Tensor:
    """Return which rows hold -∞ alone, with `dim` kept, and overwrite their scores by 0.

    The softmax of such a row would be NaN, in the gradient too.
    """
    if scores.numel():
        empty = scores.detach().amax(dim, keepdim=True) == -math.inf
    else:
        empty = (scores == -math.inf).all(dim, keepdim=True)
    fill(scores, empty, 0)
    return empty
