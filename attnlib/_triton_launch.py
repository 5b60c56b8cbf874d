"""How the kernels of `triton_fused` are started: which views, which blocks, how many programs."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from attnlib import _needs

_needs("attnlib.triton_fused", "triton")

import contextlib
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from attnlib._checks import Band
from attnlib._torch_operators import Operand
from attnlib._triton_backward import keys_backward, query_backward, row_sums
from attnlib._triton_kernels import BOOLEAN, FLOATING, NO_MASK, forward

INTERPRETED: bool = triton.knobs.runtime.interpret

DTYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


class Blocks(NamedTuple):
    """One configuration of a kernel."""

    queries: int
    keys: int
    warps: int
    stages: int  # tiles on their way at a time


# From the largest to the smallest, which always fits. Products of half precision on the matrix
# units take 64 rows of the program's own block and more.
QUERY_BLOCKS = [
    Blocks(128, 128, 8, 3),
    Blocks(128, 128, 8, 2),
    Blocks(128, 64, 8, 3),
    Blocks(128, 64, 4, 3),
    Blocks(64, 64, 8, 2),
    Blocks(32, 32, 8, 1),
    Blocks(16, 16, 4, 1),
]
KEY_BLOCKS = [
    Blocks(64, 128, 8, 2),
    Blocks(32, 128, 8, 2),
    Blocks(64, 64, 8, 2),
    Blocks(64, 64, 4, 3),
    Blocks(32, 64, 8, 2),
    Blocks(32, 32, 8, 1),
    Blocks(16, 16, 4, 1),
]


SHORTEST_TUNED = 512


def fits(blocks: Blocks, own: int, streams: int, sums: int, size: int) -> bool:
    """Whether a program has room on the chip, with numbers of `size` bytes.

    Shared memory, 227 KiB, holds its own block, `own` numbers, and the tiles on their way, each
    `streams` numbers. Registers hold the sums and two tiles of scores: 255 for a thread, of which
    addresses take some 60. Products wider than half precision are made of single multiplications
    whose factors lie in registers too, which small blocks alone can afford.
    """
    n_scores = blocks.queries * blocks.keys
    if size > 2 and (n_scores > 32 * 32 or size * (own + streams) > 64 * 1024):
        return False
    shared = size * (own + blocks.stages * streams)
    return shared <= 227 * 1024 and sums + 2 * n_scores <= 192 * 32 * blocks.warps


class Kernel:
    """A kernel with its configurations; Triton times them, and remembers the fastest.

    It times them anew for everything that changes the code: what is compiled in, the dtypes, and
    the lengths in powers of two. Under the interpreter there is nothing to time.
    """

    def __init__(self, function: Any, blocks: list[Blocks], by_keys: bool) -> None:
        self.function, self.blocks, self.by_keys = function, blocks, by_keys
        compiled_in = [
            name
            for name, parameter in inspect.signature(function.fn).parameters.items()
            if "constexpr" in str(parameter.annotation) and name not in ("BLOCK_Q", "BLOCK_K")
        ]
        self.key = [*compiled_in, "length_q", "length_k"]
        self.tuned = triton.autotune(
            [self.config(b) for b in blocks],
            key=self.key,
            prune_configs_by={"early_config_prune": self._prune},
            pre_hook=_start_at_zero,
        )(function)

    @staticmethod
    def config(blocks: Blocks) -> triton.Config:
        sizes = {"BLOCK_Q": blocks.queries, "BLOCK_K": blocks.keys}
        return triton.Config(sizes, num_warps=blocks.warps, num_stages=blocks.stages)

    def fitting(self, arguments: dict[str, Any]) -> list[Blocks]:
        """Give the configurations that have room."""
        E, E_V = arguments["BLOCK_E"], arguments["BLOCK_V"]
        size = arguments["DTYPE"].primitive_bitwidth // 8
        found = []
        for b in self.blocks:
            if self.by_keys:
                room = b.keys * (E + E_V), b.queries * (E + E_V), b.keys * (E + E_V)
            else:
                own = E if "OUT" in arguments else E + E_V  # the backward has dO beside Q
                room = b.queries * own, b.keys * (E + E_V), b.queries * max(E, E_V)
            if fits(b, *room, size):
                found.append(b)
        return found or self.blocks[-1:]

    def _prune(self, configs: object, named: object, **arguments: Any) -> list[triton.Config]:
        return [self.config(b) for b in self.fitting(arguments)]

    def chosen(self, arguments: dict[str, Any]) -> Blocks | None:
        """Give the blocks to take without timing, if any.

        To compile and time them all takes seconds, which short lengths never give back.
        """
        longest = max(arguments["length_q"], arguments["length_k"])
        if INTERPRETED:
            size = 16 if longest <= 64 else 64
            return Blocks(size, size, 4, 1)
        if longest < SHORTEST_TUNED:
            return next(b for b in self.fitting(arguments) if b.queries * b.keys <= 64 * 64)
        return None

    def __call__(self, heads: int, **arguments: Any) -> None:
        """Start one program for each block of each head."""
        n_rows = arguments["n_keys" if self.by_keys else "n_queries"]

        def grid(given: dict[str, Any]) -> tuple[int]:
            return (heads * -(-n_rows // given["BLOCK_K" if self.by_keys else "BLOCK_Q"]),)

        blocks = self.chosen(arguments)
        if blocks is None:
            self.tuned[grid](**arguments, enable_fp_fusion=True)
        else:
            options = self.config(blocks).all_kwargs()
            self.function[grid](**arguments, **options, enable_fp_fusion=True)


def _start_at_zero(arguments: dict[str, Any], reset_only: bool = False) -> None:
    """Undo what a timed call scattered."""
    if arguments.get("SCATTER"):
        arguments["D_Q"].zero_()


FORWARD = Kernel(forward, QUERY_BLOCKS, by_keys=False)
QUERY_BACKWARD = Kernel(query_backward, QUERY_BLOCKS, by_keys=False)
KEYS_BACKWARD = Kernel(keys_backward, KEY_BLOCKS, by_keys=True)


def _level(x: Tensor, batch: Sequence[int], group: int = 1) -> Tensor:
    """Expand the leading dimensions to (…, batch, heads): a view, with strides of 0."""
    heads = [batch[-1] // group] if batch else [1]
    return x.expand(*[1] * (2 - len(batch)), *batch[:-1], *heads, *x.shape[-2:])


def _walk(operands: list[Operand]) -> Iterator[list[Any]]:
    """Walk over the leading dimensions but the last two, which are the kernels' batch and heads.

    Two dimensions that lie in memory like one are taken as one.
    """
    first, _, *rest = next(x.shape for x in operands if x is not None)
    if len(rest) == 2:
        yield operands
        return
    try:
        parts = [[x if x is None else x.view(-1, *x.shape[2:]) for x in operands]]
    except RuntimeError:  # some strides do not allow it
        parts = [[x if x is None else x[i] for x in operands] for i in range(first)]
    for part in parts:
        yield from _walk(part)


@contextlib.contextmanager
def _ready(device: torch.device) -> Iterator[None]:
    """Launch on this device; the interpreter computes with NumPy, which would warn of NaN and ∞."""
    with np.errstate(all="ignore"):
        if device.type == "cuda":
            with torch.cuda.device(device):
                yield
        else:
            yield


def _padded(width: int) -> int:
    """Give the width of a tile: tl.dot takes powers of two from 16 on."""
    return max(16, int(triton.next_power_of_2(width)))


def _arguments(
    q: Tensor, k: Tensor, v: Tensor, mask: Operand, dtype: torch.dtype, scale: float,
    is_causal: bool, group: int,
) -> dict[str, Any]:  # fmt: skip
    """Give what the three kernels have in common."""
    n_heads, n_queries, n_keys = q.shape[1], q.shape[2], k.shape[2]
    kind = NO_MASK
    if mask is not None:
        kind = BOOLEAN if mask.dtype == torch.bool else FLOATING
        mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    half = dtype == torch.float32
    return {
        "Q": q, "K": k, "V": v, "mask": mask,
        "q_strides": q.stride(), "k_strides": k.stride(), "v_strides": v.stride(),
        "mask_strides": (0, 0, 0, 0) if mask is None else mask.stride(),
        # As a number it would come as float32.
        "scale": scale if half else torch.full((1,), scale, dtype=dtype, device=q.device),
        "n_heads": n_heads, "n_queries": n_queries, "n_keys": n_keys,
        "length_q": triton.next_power_of_2(n_queries), "length_k": triton.next_power_of_2(n_keys),
        "GROUP": group, "E": q.shape[3], "E_V": v.shape[3],
        "BLOCK_E": _padded(q.shape[3]), "BLOCK_V": _padded(v.shape[3]),
        "IS_CAUSAL": is_causal, "MASK": kind.value,
        "DTYPE": DTYPES[q.dtype if half else dtype],
    }  # fmt: skip


def _headroom(value: Tensor, dtype: torch.dtype) -> Operand:
    """Return the power of 2 by which all weights must be smaller, so that S values add up to less
    than the largest number: 0, unless values lie within a factor 2 S of it.

    It stays on the device. float16 is added up in float32, which has room enough.
    """
    if value.dtype == torch.float16:
        return None
    n_keys = value.shape[-2]
    limit, room = torch.finfo(dtype).max / (2 * n_keys), math.ceil(math.log2(2 * n_keys))
    largest = value.abs().amax() if value.numel() else value.new_zeros(())
    return torch.where(largest > limit, room, 0).to(dtype)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Operand, output: Tensor, lost: Operand,
    lse: Tensor, shift: Tensor, log_sum: Tensor, scale: float, band: Band, group: int,
) -> None:  # fmt: skip
    """Fill output (…, L, E_v), what its rounding lost, the log-sum-exp and its parts (…, L)."""
    is_causal = band.right is not None
    batch = output.shape[:-2]
    if mask is not None:
        mask = _level(mask.expand(*mask.shape[:-2], query.shape[-2], key.shape[-2]), batch)
    operands: list[Operand] = [
        _level(query, batch), _level(key, batch, group), _level(value, batch, group), mask,
        *(x if x is None else _level(x, batch) for x in (output, lost)),
        *(_level(x[..., None], batch) for x in (lse, shift, log_sum)),
    ]  # fmt: skip
    end = min(query.shape[-2], key.shape[-2]) if is_causal else key.shape[-2]
    headroom = _headroom(value[..., :end, :], lse.dtype)
    with _ready(query.device):
        for q, k, v, m, o, lost, *sums in _walk(operands):
            FORWARD(
                q.shape[0] * q.shape[1],
                **_arguments(q, k, v, m, lse.dtype, scale, is_causal, group),
                **dict(zip(("LSE", "SHIFT", "LOG_SUM"), sums, strict=True)),
                OUT=o, LOST=lost, o_strides=o.stride(), KEEPS=lost is not None, HEADROOM=headroom,
            )  # fmt: skip


def differentiate(
    query: Tensor, key: Tensor, value: Tensor, mask: Operand, output: Tensor, lost: Operand,
    shift: Tensor, log_sum: Tensor, d_output: Tensor, d_lse: Tensor, needed: Sequence[bool],
    scale: float, band: Band, group: int, deterministic: bool,
) -> list[Operand]:  # fmt: skip
    """Give the gradients that are needed, each with all leading dimensions of the result.

    A gradient that will be summed over some of them, and dQ by atomic additions, is kept wide.
    """
    is_causal = band.right is not None
    batch, wide = output.shape[:-2], shift.dtype
    if mask is not None:
        mask = _level(mask.expand(*mask.shape[:-2], query.shape[-2], key.shape[-2]), batch)
    level = [_level(query, batch), _level(key, batch, group), _level(value, batch, group)]
    by_keys = needed[1] or needed[2] or not deterministic
    gradients: list[Operand] = []
    for x, y, need in zip((query, key, value), level, (needed[0], by_keys, by_keys), strict=True):
        alone = x.numel() == y.numel() and (deterministic or x is not query)
        empty = torch.zeros if x is query and not deterministic else torch.empty
        dtype = x.dtype if alone else wide
        gradients.append(empty(y.shape, dtype=dtype, device=x.device) if need else None)
    # The kernels count numbers of a row one after the other; vmap may have expanded them.
    row_wise = [x.to(wide).contiguous() for x in (shift, log_sum, d_lse)]
    row_wise.append(torch.empty_like(row_wise[0]))
    operands: list[Operand] = [
        *level, mask, _level(output, batch), None if lost is None else _level(lost, batch),
        _level(d_output, batch),
        *(_level(x[..., None], batch) for x in row_wise), *gradients,
    ]  # fmt: skip
    with _ready(query.device):
        for q, k, v, m, o, lost, d_o, *rows, d_q, d_k, d_v in _walk(operands):
            shift, log_sum, d_lse, delta = rows
            heads, n_heads, n_queries = q.shape[0] * q.shape[1], q.shape[1], q.shape[2]
            rows_each = 16 if INTERPRETED and n_queries <= 64 else 64
            row_sums[(heads * -(-n_queries // rows_each),)](
                o, lost, d_o, d_lse, delta, o.stride(), d_o.stride(), n_heads, n_queries,
                v.shape[3], _padded(v.shape[3]), rows_each, enable_fp_fusion=True,
            )  # fmt: skip
            common = _arguments(q, k, v, m, wide, scale, is_causal, group)
            common |= {"D_O": d_o, "d_o_strides": d_o.stride(), "SHIFT": shift}
            common |= {"LOG_SUM": log_sum, "DELTA": delta, "D_Q": d_q}
            common["d_q_strides"] = (0, 0, 0, 0) if d_q is None else d_q.stride()
            if d_q is not None and deterministic:
                QUERY_BACKWARD(heads, **common)
            if by_keys:
                KEYS_BACKWARD(
                    heads // group, **common, D_K=d_k, D_V=d_v,
                    d_k_strides=d_k.stride(), d_v_strides=d_v.stride(),
                    WHOLE_Q=n_queries % 128 == 0, SCATTER=d_q is not None and not deterministic,
                )  # fmt: skip
    return gradients
