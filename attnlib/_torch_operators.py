"""Attention as an operator of torch, for implementations with their own forward and backward.

An operator is opaque. torch.compile calls it and does not trace its loops, and fake tensors know
the shapes of its results without running it. The transforms of torch.func (`grad`, `jacrev`,
`vmap`) do not take the gradients of an operator, so they get the same as an autograd function.

The results are `Results`: the output, the log-sum-exp, and what the backward needs of each row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlib._checks import broadcast_shapes
from attnlib._tensors import Call, computing_dtype

Operand = Tensor | None


class Results(NamedTuple):
    """What a forward returns.

    Shapes:
        output (…, L, d_v); lse, m and ell (…, L); lost (…, L, d_v), or no numbers.
    """

    output: Tensor
    lse: Tensor
    m: Tensor  # a row's largest score, in the unit of the implementation
    ell: Tensor  # its sum of weights before division; triton_fused keeps log₂ of it here
    lost: Tensor  # what the output lost when it was rounded


_FORWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, SymInt[] band, float? scale, "
    "int group, int[] options) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor output, Tensor m, "
    "Tensor ell, Tensor lost, Tensor d_output, Tensor d_lse, bool[] needed, SymInt[] band, "
    "float? scale, int group, int[] options) -> (Tensor, Tensor, Tensor, Tensor)"
)


def placeholder(like: Tensor) -> Tensor:
    """Return what stands for a result that nobody asked for: an operator cannot return None."""
    return like.new_empty(0)


def results_like(
    query: Tensor, key: Tensor, value: Tensor, group: int, output: torch.dtype, sums: torch.dtype
) -> Results:
    """Return the memory of results in these two dtypes, with nothing in it."""
    own = 2 if group == 1 else 3  # the heads of grouped queries do not broadcast
    batch = broadcast_shapes(*(tuple(x.shape[:-own]) for x in (query, key, value)))
    shape = (*batch, *query.shape[len(query.shape) - own : -1])
    whole = query.new_empty((*shape, value.shape[-1]), dtype=output)
    lse, m, ell = (query.new_empty(shape, dtype=sums) for _ in range(3))
    return Results(whole, lse, m, ell, placeholder(query))


def wide_results(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, band: list[int],
    scale: float | None, group: int, options: list[int],
) -> Results:  # fmt: skip
    """Return memory for results in the dtype that sums are kept in, with nothing in it."""
    dtype = computing_dtype(query.dtype, scale)
    return results_like(query, key, value, group, dtype, dtype)


def _gradients_like(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Operand, *rest: Any
) -> tuple[Tensor, ...]:
    needed = rest[6]
    return tuple(
        x.new_empty(x.shape) if x is not None and need else placeholder(query)
        for x, need in zip((query, key, value, attn_mask), needed, strict=True)
    )


def largest(x: Tensor) -> float:
    """Return the largest absolute value, 0 for none, NaN if there is one."""
    if not x.numel():
        return 0.0
    low, high = torch.aminmax(x)
    return max(-float(low), float(high))


class Operator:
    """Attention with a forward and a backward of its own, as torch knows it.

    `attend(query, key, value, attn_mask, band, scale, group, options)` returns `Results`, and
    `like`, with the same arguments, returns their memory with nothing in it. `differentiate`
    returns the gradients by query, key, value and mask, and a `placeholder` for those that are
    not needed. `band` are the `numbers` of a Band; `options` are integers that mean something to
    the implementation alone.
    """

    def __init__(
        self, name: str, attend: Callable[..., Results], like: Callable[..., Results],
        differentiate: Callable[..., tuple[Tensor, ...]],
    ) -> None:  # fmt: skip
        self.name = name
        define: Any = functools.partial(torch.library.custom_op, mutates_args=())
        self.forward = define(f"attnlib::{name}", attend, schema=_FORWARD)
        self.forward.register_fake(like)
        self.forward.register_vmap(self._batched_forward)
        self.backward = define(f"attnlib::{name}_backward", differentiate, schema=_BACKWARD)
        self.backward.register_fake(_gradients_like)
        self.backward.register_vmap(self._batched_backward)
        self.forward.register_autograd(self._gradients, setup_context=_remember)
        backward = _function(
            forward=self.backward, setup_context=lambda *_: None, backward=self._refuse("second")
        )
        self.function = _function(
            forward=self.forward, setup_context=_remember, jvp=self._refuse("forward-mode"),
            backward=functools.partial(self.gradients, backward),
        )  # fmt: skip

    def __call__(self, call: Call, options: list[int]) -> Results:
        """Run the forward, and let autograd know the backward."""
        operands = call.query, call.key, call.value, call.mask
        known = call.band.numbers(), call.scale_asked_for, call.group, options
        transformed = (
            not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
        )
        return Results(*(self.function if transformed else self.forward)(*operands, *known))

    def refusal(self, kind: str) -> RuntimeError:
        """Return the error for derivatives that there are not."""
        return RuntimeError(
            f"{self.name} has no {kind} derivatives{' (create_graph=True)' * (kind == 'second')}; "
            "torch_dense has them"
        )

    def _refuse(self, kind: str) -> Callable[..., Any]:
        def refuse(*_: Any) -> Any:
            raise self.refusal(kind)

        return refuse

    def gradients(
        self, backward: Any, ctx: Any, d_output: Tensor, d_lse: Tensor, *_: Any
    ) -> tuple[Operand, ...]:
        """Return one gradient for each argument of the forward."""
        needed = list(ctx.needs_input_grad[:4])
        options = ctx.band, ctx.scale, ctx.group, ctx.options
        found = backward(*ctx.saved_tensors, d_output, d_lse, needed, *options)
        return *(x if n else None for x, n in zip(found, needed, strict=True)), *[None] * 4

    def _gradients(self, ctx: Any, *upstream: Any) -> tuple[Operand, ...]:
        if torch.is_grad_enabled():
            raise self.refusal("second")
        return self.gradients(self.backward, ctx, *upstream)

    def _batched_forward(
        self, info: Any, in_dims: tuple[Any, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """Run the forward under torch.vmap: the mapped dimension becomes a leading one."""
        inputs = _aligned(_in_front(info, in_dims, arguments[:4]))
        results = self.forward(*inputs, *arguments[4:])
        return results, tuple(None if x.shape == (0,) else 0 for x in results)

    def _batched_backward(
        self, info: Any, in_dims: tuple[Any, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """Run the backward under torch.vmap. Each sample has gradients of its own."""
        tensors = _in_front(info, in_dims, arguments[:10])
        needed = arguments[10]
        found = self.backward(*_aligned(tensors[:4]), *tensors[4:], *arguments[10:])
        gradients = tuple(
            x.reshape(given.shape) if need and given is not None else x
            for x, given, need in zip(found, tensors, needed, strict=False)
        )
        return gradients, tuple(0 if need else None for need in needed)


def _in_front(info: Any, in_dims: tuple[int | None, ...], tensors: Any) -> list[Operand]:
    """Return tensors with the mapped dimension as their first one. A placeholder stays one."""

    def moved(x: Operand, dim: int | None) -> Operand:
        if x is None or dim is not None:
            return None if x is None else x.movedim(dim or 0, 0)
        return x if x.shape == (0,) else x.expand(info.batch_size, *x.shape)

    return [moved(x, dim) for x, dim in zip(tensors, in_dims, strict=False)]


def _aligned(tensors: list[Operand]) -> list[Operand]:
    """Return all tensors in one rank, so that their first dimensions meet in broadcasting."""
    rank = max(x.ndim for x in tensors if x is not None)
    return [x if x is None else x[:, *(None,) * (rank - x.ndim)] for x in tensors]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep what the backward needs; the output and the log-sum-exp alone have gradients."""
    *tensors, ctx.band, ctx.scale, ctx.group, ctx.options = inputs
    result, _, *of_rows = output
    ctx.mark_non_differentiable(*of_rows)
    ctx.save_for_backward(*tensors, result, *of_rows)


def _function(**methods: Callable[..., Any]) -> Any:
    """Return an autograd function of these methods, for the transforms of torch.func.

    They ask for a `setup_context`, which the gradients of an operator do not have.
    """
    static = {name: staticmethod(method) for name, method in methods.items()}
    kind: Any = type("Attention", (torch.autograd.Function,), static | {"generate_vmap_rule": True})
    return kind.apply
