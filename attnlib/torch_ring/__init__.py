"""Attention over a sequence that is spread over devices: ring attention, forward and backward.

Each device keeps its own queries, and keys and values go round the ring: in step s, device r holds
those of device r - s. From these it computes a piece of its output: o', with the largest score m'
and the sum ℓ' of each row. It merges the piece with what it has (chapter 12's law):

    M = max(m, m')     a = exp(m - M) ℓ     a' = exp(m' - M) ℓ'     o = (a o + a' o') / (a + a')

and goes on with M for m and a + a' for ℓ.

Backward, keys and values go round once more. From the m and ℓ of whole rows a device recomputes
the weights of the piece that it holds, as chapter 13 does for a tile, and adds this piece of dK
and dV to the sums that came from the device before. The sums travel one step behind their keys,
and the last step brings them home.

Under a causal mask late queries see more keys than early ones. Therefore each device has two pieces
of the sequence, one from the front and one from the back (`balance="zigzag"`). Striped attention
gives each device every P-th token for the same reason (chapter 16).

`ring_attention` is the ring between processes, such as `torchrun` starts; by one small all-gather
its ranks first agree on what they compute. It is what others call sequence parallelism or context
parallelism. `scaled_dot_product_attention` is the same ring between threads of one process.

The ring is for many queries. To decode one new token, an all-reduce or a tree that merges outputs
and log-sum-exps sends far less: keys and values stay where they are.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from attnlib import torch_blockwise  # noqa: F401 (its operators compute a piece)
from attnlib._checks import Options, Window, checked_count, upcast
from attnlib._docstrings import TENSORS, document
from attnlib._tensors import Call, as_autocast_does, computing_dtype
from attnlib._torch_operators import Operands, OptTensor, not_computed, unrounded_results
from attnlib._torch_tiles import cut
from attnlib.torch_decoding import merge
from attnlib.torch_ring._links import ProcessLink
from attnlib.torch_ring._shards import BALANCES, Plan, Span, check_balance, layout, shard, unshard
from attnlib.torch_ring._threads import ThreadLink, operator

__all__ = [
    "Span", "layout", "ring_attention", "ring_attention_with_lse", "scaled_dot_product_attention",
    "scaled_dot_product_attention_with_lse", "shard", "unshard",
]

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Group: TypeAlias = "ProcessGroup | DeviceMesh | None"
Link = ProcessLink | ThreadLink
MOST_THREADS = 1024
OWN_TILES = [0, 0, 1]  # torch_blockwise chooses its tiles, and computes with e^x, not with 2^x


def _pass_forward(
    link: Link, plan: Plan, query: Tensor, key: Tensor, value: Tensor, mask: OptTensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, m and log ℓ of the queries of one device."""
    operands = Operands(query, key, value, None, plan.band, plan.scale, plan.group)
    o, log_ell, m, *_ = unrounded_results(operands)
    # Nothing has been seen yet. The least number stands for -∞, because -∞ - (-∞) is NaN.
    o, m, log_ell = o.zero_(), m.fill_(torch.finfo(m.dtype).min), log_ell.fill_(-math.inf)
    held = [key, value]
    for step in range(link.size):
        source, is_last = link.rank - step, step + 1 == link.size
        arrived = None if is_last else link.pass_on(held, plan.n_keys(source - 1))
        for rows, columns, positions, band in plan.pieces(link.rank, source, mask is not None):
            k, v = (x[..., columns, :] for x in held)
            tile = None if mask is None else cut(mask, rows, positions)
            o_piece, _, m_piece, ell_piece, _ = torch.ops.attnlib.torch_blockwise(
                query[..., rows, :], k, v, tile, band.numbers(), plan.scale, plan.group, OWN_TILES
            )
            M = torch.maximum(m[..., rows], m_piece)
            logs = [log_ell[..., rows] + (m[..., rows] - M), ell_piece.log() + (m_piece - M)]
            o[..., rows, :], log_ell[..., rows] = merge([o[..., rows, :], o_piece], logs)
            m[..., rows] = M
        held = arrived() if arrived else held
    return o, m, log_ell


def _pass_backward(
    link: Link, plan: Plan, query: Tensor, key: Tensor, value: Tensor, mask: OptTensor, o: Tensor,
    d_o: Tensor, m: Tensor, ell: Tensor, d_lse: Tensor, mask_needed: bool = False,
) -> list[Tensor]:
    """Return the gradients of one device's query, key and value, and of its mask if needed.

    Those of half precision are added up in float32.
    """
    query, mask = upcast(query), mask if mask is None else upcast(mask)
    d_query = query.new_zeros(query.shape)
    d_mask = mask.new_zeros(mask.shape) if mask_needed and mask is not None else None
    held, returned = [key, value], None
    for step in range(link.size):
        source, is_last = link.rank - step, step + 1 == link.size
        arrived = None if is_last else link.pass_on(held, plan.n_keys(source - 1))
        wide = [upcast(x) for x in held]
        d_key, d_value = (x.new_zeros(x.shape) for x in wide)
        for rows, columns, positions, band in plan.pieces(link.rank, source, mask is not None):
            k, v = (x[..., columns, :] for x in wide)
            tile = None if mask is None else cut(mask, rows, positions)
            dq, dk, dv, d_tile = torch.ops.attnlib.torch_blockwise_backward(
                query[..., rows, :], k, v, tile, o[..., rows, :],
                m[..., rows], ell[..., rows], not_computed(query), d_o[..., rows, :],
                d_lse[..., rows], [True, True, True, mask_needed], band.numbers(), plan.scale,
                plan.group, OWN_TILES,
            )
            d_query[..., rows, :] += dq
            d_key[..., columns, :] += dk
            d_value[..., columns, :] += dv
            if d_mask is not None:
                cut(d_mask, rows, positions).add_(d_tile)
        if returned:  # what the devices before have added up for these keys
            d_key, d_value = map(torch.add, returned(), (d_key, d_value))
        returned = link.pass_on([d_key, d_value], plan.n_keys(source - 1))
        held = arrived() if arrived else held
    assert returned
    return [d_query, *returned(), *([] if d_mask is None else [d_mask])]


# Between processes --------------------------------------------------------------------------------


def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, *, n_tokens: int,
    scale: float | None = None, enable_gqa: bool = False, balance: str = "zigzag",
    group: Group = None,
) -> Tensor:
    """Return this rank's shard of the attention output; every rank of the group calls it.

    A rank gives its shards of query, key and value, as `layout(n_tokens, size, balance)` deals
    them out: `shard(x, spans[rank])`. The ranks first tell each other shapes, dtype and options,
    and raise a ValueError if these differ. Then keys and values go round. Whoever calls backward
    on one rank calls it on all.

    Messages are those of the group's backend: gloo between CPUs, NCCL between GPUs.

    Args:
        query, key, value: Shards of one floating dtype. The leading dimensions broadcast.
        is_causal, scale, enable_gqa: As in `scaled_dot_product_attention`, for the whole sequence.
        n_tokens: The length of the whole sequence.
        balance: "zigzag" or "contiguous", as in `layout`.
        group: A ProcessGroup, or a DeviceMesh of one dimension; all processes where it is None.

    Shapes:
        query (…, H, L, d_k), key (…, H_kv, L, d_k), value (…, H_kv, L, d_v) → (…, H, L, d_v), with
        the L tokens of this rank

    Raises:
        RuntimeError: torch.distributed is not initialized; or another rank is gone.
        TypeError, ValueError: as in every implementation; and shards that are not those of
            `layout`, an unknown balance, ranks that do not ask for the same.

    Source:
        Liu et al. 2023, ring attention; chapter 16.

    Example:
        Two ranks would each print one row. Here is one:

        >>> import tempfile, torch.distributed as dist
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     meeting = f"file://{folder}/meeting"
        ...     dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
        ...     values = torch.tensor([[10.0], [20.0]])
        ...     ring_attention(torch.zeros(2, 1), torch.zeros(2, 1), values, True, n_tokens=2)
        ...     dist.destroy_process_group()
        tensor([[10.],
                [15.]])
    """
    return ring_attention_with_lse(
        query, key, value, is_causal, n_tokens=n_tokens, scale=scale, enable_gqa=enable_gqa,
        balance=balance, group=group,
    )[0]


@as_autocast_does
def ring_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, *, n_tokens: int,
    scale: float | None = None, enable_gqa: bool = False, balance: str = "zigzag",
    group: Group = None,
) -> tuple[Tensor, Tensor]:
    """Return what `ring_attention` does, and the log-sum-exp of each row, (…, H, L)."""
    link = ProcessLink(group)
    tensors = {"query": query, "key": key, "value": value}
    try:
        options = Options(is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
        call = Call((query, key, value), options)
        spans = layout(n_tokens, link.size, balance)
        n_own = sum(stop - start for start, stop in spans[link.rank])
        if {call.n_queries, call.n_keys} != {n_own}:
            came = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
            of = f"of {n_tokens} tokens, {balance}"
            raise ValueError(f"rank {link.rank} must have {n_own} {of}; got {came}")
    except (TypeError, ValueError) as error:
        link.agree(
            f"{type(error).__name__}: {error}",
            query.device if isinstance(query, Tensor) else torch.device("cpu"),
        )
        raise
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in tensors.values())
    asked = f"{query.dtype} {n_tokens=} {is_causal=} {scale=} {enable_gqa=} {balance=}"
    sizes = {name: [*map(str, (*x.shape[:-2], "L", x.shape[-1]))] for name, x in tensors.items()}
    shapes = ", ".join(f"{name} ({', '.join(own)})" for name, own in sizes.items())
    link.agree(f"{shapes} {asked} gradients={learns}", query.device)
    plan = Plan(spans, spans, call.band, call.scale_asked_for, call.group)
    output, lse = _BetweenProcesses.apply(  # type: ignore[no-untyped-call, unused-ignore]
        call.query, call.key, call.value, link, plan
    )
    return output, lse.to(computing_dtype(query.dtype))


class _BetweenProcesses(torch.autograd.Function):
    """The ring as autograd knows it: the backward is a ring too."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, link: Link, plan: Plan
    ) -> tuple[Tensor, Tensor]:
        o, m, log_ell = _pass_forward(link, plan, query, key, value, None)
        ctx.link, ctx.plan = link, plan
        ctx.save_for_backward(query, key, value, o, m, log_ell.exp())
        return o.to(query.dtype), m + log_ell

    @staticmethod
    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[OptTensor, ...]:
        if torch.is_grad_enabled():
            raise _operator.refusal("second")
        query, key, value, o, m, ell = ctx.saved_tensors
        found = _pass_backward(ctx.link, ctx.plan, query, key, value, None, o, d_o, m, ell, d_lse)
        return *(x.to(query.dtype) for x in found), None, None


# Between threads ----------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    n_devices: int = 2, balance: str = "zigzag",
) -> Tensor:
    """Return the attention output, computed by a ring of `n_devices` threads in this process.

    O = softmax(scale · Q Kᵀ + mask) V. Queries and keys are dealt out to the threads as `layout`
    says; the mask stays with the queries. The number of devices (at least 1) and the balance change
    the result by rounding only. The same ring between processes, `ring_attention`, gives the same
    bits where both compute with the same number of threads to a device.

    A row in which no key takes part gives zeros, and zero gradients. NaN in what takes part gives
    NaN. What is said of NaN elsewhere in `torch_blockwise` holds here too. There are first
    derivatives alone, and second ones raise a RuntimeError: `torch_dense` has more.

    Source:
        Liu et al. 2023; chapter 16.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window, n_devices=n_devices, balance=balance,
    )[0]


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    n_devices: int = 2, balance: str = "zigzag",
) -> tuple[Tensor, Tensor]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    call = Call((query, key, value), options)
    check_balance(balance)
    n_devices = checked_count("n_devices", n_devices, least=1)
    if n_devices > MOST_THREADS:
        raise ValueError(f"n_devices must be at most {MOST_THREADS}; got {n_devices}")
    results = _operator(call, [n_devices, BALANCES.index(balance)])
    return call.finish(results.output, results.lse)


document(scaled_dot_product_attention, scaled_dot_product_attention_with_lse, TENSORS)


_operator = operator(_pass_forward, _pass_backward)
