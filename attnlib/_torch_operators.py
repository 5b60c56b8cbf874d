"""Attention as an operator of torch, for implementations with their own forward and backward.

An operator is opaque. torch.compile calls it and does not trace its loops, and fake tensors know
the shapes of its results without running it. The transforms of torch.func (`grad`, `jacrev`,
`vmap`) do not take the gradients of an operator, so they get the same as an autograd function.

The results are `Results`: the output, the log-sum-exp, and what the backward needs of each row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlib._checks import Band, broadcast_shapes, checked_scale
from attnlib._tensors import Call, computing_dtype

OptTensor = Tensor | None


class Operands(NamedTuple):
    """What a forward starts from. The leading dimensions of the tensors broadcast."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: OptTensor  # broadcasts to (…, L, S)
    band: Band = Band()
    scale_asked_for: float | None = None
    group: int = 1  # query heads that share one key head
    options: Sequence[int] = ()  # what they mean, the implementation alone knows

    @property
    def scale(self) -> float:
        """The factor on the scores."""
        return checked_scale(self.scale_asked_for, self.query.shape[-1])

    @property
    def has_scores(self) -> bool:
        """Whether there is a query and a key."""
        return all(x.shape[:-1].numel() for x in self[:3])


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


class Kept(NamedTuple):
    """What of the results the backward needs."""

    output: Tensor
    m: Tensor
    ell: Tensor
    lost: Tensor


class Upstream(NamedTuple):
    """The gradients by what the forward returned."""

    output: Tensor
    lse: Tensor


_FORWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, SymInt[] band, float? scale, "
    "int group, int[] options) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor output, Tensor m, "
    "Tensor ell, Tensor lost, Tensor d_output, Tensor d_lse, bool[] needed, SymInt[] band, "
    "float? scale, int group, int[] options) -> (Tensor, Tensor, Tensor, Tensor)"
)


def not_computed(like: Tensor) -> Tensor:
    """Return what stands for a result that nobody asked for: an operator cannot return None."""
    return like.new_empty(0)


def empty_results(operands: Operands, output: torch.dtype, sums: torch.dtype) -> Results:
    """Return the memory of results in these two dtypes, with nothing in it."""
    query, key, value, *_ = operands
    own = 2 if operands.group == 1 else 3  # the heads of grouped queries do not broadcast
    batch = broadcast_shapes(*(tuple(x.shape[:-own]) for x in (query, key, value)))
    shape = (*batch, *query.shape[len(query.shape) - own : -1])
    whole = query.new_empty((*shape, value.shape[-1]), dtype=output)
    lse, m, ell = (query.new_empty(shape, dtype=sums) for _ in range(3))
    return Results(whole, lse, m, ell, not_computed(query))


def unrounded_results(operands: Operands) -> Results:
    """Return memory for results in the dtype that sums are kept in, with nothing in it."""
    dtype = computing_dtype(operands.query.dtype, operands.scale_asked_for)
    return empty_results(operands, dtype, dtype)


def largest_magnitude(x: Tensor) -> float:
    """Return the largest absolute value, 0 for none, NaN if there is one."""
    if not x.numel():
        return 0.0
    low, high = torch.aminmax(x)
    return max(-float(low), float(high))


def near_overflow(value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """Return the largest finite value, and whether a sum of S such values may be infinite.

    None says that it cannot be. A sum of S values is made before it is divided by ℓ, so values
    within a factor 2 S of the dtype's largest number need headroom. On a GPU the answer is never
    None, because to decide would be to wait for the GPU.
    """
    limit = torch.finfo(dtype).max / (2 * max(1, value.shape[-2]))  # a band may leave no key
    if not value.numel() or (value.device.type == "cpu" and largest_magnitude(value) <= limit):
        return None
    bound = value.abs().nan_to_num(nan=0.0, posinf=0.0).amax().to(dtype)
    return bound, bound > limit


class Operator:
    """Attention with a forward and a backward of its own, as torch knows it.

    `attend(operands)` returns `Results`, and `like(operands)` returns their memory with nothing in
    it. `differentiate(operands, kept, upstream, needed)` returns the gradients by query, key, value
    and mask, in any floating dtype and any shape that its operand broadcasts to, or None. Neither
    is called where there is no query or no key.
    """

    def __init__(
        self, name: str, attend: Callable[[Operands], Results],
        like: Callable[[Operands], Results],
        differentiate: Callable[[Operands, Kept, Upstream, list[bool]], Sequence[OptTensor]],
    ) -> None:
        self.name = name

        def run_forward(*given: Any) -> Results:
            operands = _operands(*given)
            if operands.has_scores:
                return attend(operands)
            results = like(operands)
            for tensor, number in zip(results, (0, -math.inf, 0, 0, 0), strict=True):
                tensor.fill_(number)
            return results

        def run_backward(*given: Any) -> tuple[Tensor, ...]:
            operands, needed = _operands(*given[:4], *given[11:]), given[10]
            if not operands.has_scores:
                return tuple(x.zero_() for x in _gradients_like(*given))
            found = differentiate(operands, Kept(*given[4:8]), Upstream(*given[8:10]), needed)
            return tuple(
                sums.sum_to_size(x.shape).to(x.dtype).contiguous()
                if need and x is not None and sums is not None
                else not_computed(operands.query)
                for x, sums, need in zip(operands[:4], found, needed, strict=True)
            )

        define: Any = functools.partial(torch.library.custom_op, mutates_args=())
        self.forward = define(f"attnlib::{name}", run_forward, schema=_FORWARD)
        self.forward.register_fake(lambda *given: like(_operands(*given)))
        self.forward.register_vmap(self._batched_forward)
        self.backward = define(f"attnlib::{name}_backward", run_backward, schema=_BACKWARD)
        self.backward.register_fake(_gradients_like)
        self.backward.register_vmap(self._batched_backward)
        self.forward.register_autograd(self._gradients, setup_context=_remember)
        backward = _function(
            forward=self.backward, setup_context=lambda *_: None, backward=self._refuse("second")
        )
        self.function = _function(
            forward=self.forward, setup_context=_remember, jvp=self._refuse("forward-mode"),
            backward=functools.partial(self.gradients, backward),
        )

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
    ) -> tuple[OptTensor, ...]:
        """Return one gradient for each argument of the forward."""
        needed = list(ctx.needs_input_grad[:4])
        options = ctx.band, ctx.scale, ctx.group, ctx.options
        found = backward(*ctx.saved_tensors, d_output, d_lse, needed, *options)
        return *(x if n else None for x, n in zip(found, needed, strict=True)), *[None] * 4

    def _gradients(self, ctx: Any, *upstream: Any) -> tuple[OptTensor, ...]:
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


def _operands(
    query: Tensor, key: Tensor, value: Tensor, mask: OptTensor, band: list[int],
    scale: float | None, group: int, options: list[int],
) -> Operands:
    """Return what the schema says as operands."""
    return Operands(query, key, value, mask, Band.of(band), scale, group, options)


def _gradients_like(*given: Any) -> tuple[Tensor, ...]:
    """Return memory for the gradients that are needed, with nothing in it."""
    return tuple(
        x.new_empty(x.shape) if x is not None and need else not_computed(given[0])
        for x, need in zip(given[:4], given[10], strict=True)
    )


def _in_front(info: Any, in_dims: tuple[int | None, ...], tensors: Any) -> list[OptTensor]:
    """Return tensors with the mapped dimension as their first one. No numbers stay none."""

    def moved(x: OptTensor, dim: int | None) -> OptTensor:
        if x is None or dim is not None:
            return None if x is None else x.movedim(dim or 0, 0)
        return x if x.shape == (0,) else x.expand(info.batch_size, *x.shape)

    return [moved(x, dim) for x, dim in zip(tensors, in_dims, strict=False)]


def _aligned(tensors: list[OptTensor]) -> list[OptTensor]:
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
