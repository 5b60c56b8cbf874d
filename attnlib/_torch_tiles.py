"""What makes `torch_blockwise` fast, and is not its mathematics.

The walk over heads, and a tile of scores. Each trick has its measured gain in
`benchmarks/README.md`: memory for a tile is taken once, heads that fit in the cache share one
product, the diagonal of a causal tile is hidden without a comparison, and powers are those of 2.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnlib._checks import Band, broadcast_shapes
from attnlib._tensors import zero_unseen
from attnlib._torch_operators import OptTensor, largest_magnitude


def heads(operands: Sequence[OptTensor], heads_at_once: int) -> Iterator[list[OptTensor]]:
    """Walk over the batch: views (heads, rows, columns) of all operands, some heads at a time.

    The first three are not broadcast among the heads of one step, because gradients are added up in
    views like theirs: each head needs its own memory.
    """
    batch = broadcast_shapes(*(x.shape[:-2] for x in operands if x is not None))
    rank = len(batch)
    level = [x if x is None else x[(None,) * (rank + 2 - x.ndim)] for x in operands]
    apart = [x for x in level[:3] if x is not None]
    free = [d for d in range(rank) if all(x.shape[d] == batch[d] for x in apart)]
    along = max(free, key=batch.__getitem__, default=None)
    if along is None:
        level = [x if x is None else x.unsqueeze(-3) for x in level]
        batch = (*batch, 1)
    else:
        if along != rank - 1:
            level = [x if x is None else x.movedim(along, -3) for x in level]
        batch = (*batch[:along], *batch[along + 1 :], batch[along])
    for index in itertools.product(*map(range, batch[:-1])):
        here = [
            x if x is None else x[tuple(i * (n > 1) for i, n in zip(index, x.shape, strict=False))]
            for x in level
        ]
        for first in range(0, batch[-1], heads_at_once):
            yield [
                x if x is None or len(x) < batch[-1] else x[first : first + heads_at_once]
                for x in here
            ]


def second_cache() -> int:
    """Return the bytes of a core's second cache (L2), at most 2 MiB; 1 MiB where nothing tells.

    Linux tells it. Some virtual machines say 0, and macOS and Windows do not know the question.
    """
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):
        found = 0
    return min(found, 2**21) if found > 0 else 2**20


def sizes(
    query: Tensor, key: Tensor, band: Band, dtype: torch.dtype, block_q: int, block_k: int
) -> tuple[int, int, int]:
    """Return the lengths of the blocks, chosen where they are 0, and how many heads to take.

    The scores of one tile take twice the second cache of a core. Each step goes through all of
    them, so larger tiles wait for memory; many small tiles wait for Python. A tile is about square.
    Under a causal mask or a window it has few queries, which waste less at the edges, and more
    keys. Small tiles come with as many heads as the caches of all cores hold, and there is at
    least one head for each core.
    """
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    cores, cache = torch.get_num_threads(), second_cache() // dtype.itemsize  # in scores
    least, room, tile = cores, cores * cache, 2 * cache
    cut_off = band.left is not None or band.right is not None
    if query.is_cuda:
        least, room, tile, cut_off = 1, 2**24, 2**20, False
    rows = (128 if n_queries <= 1024 else 256) if cut_off else 2 ** (tile.bit_length() // 2)
    block_q = min(block_q or rows, max(1, n_queries))
    block_k = min(block_k or tile // min(rows, block_q), max(1, n_keys))
    return block_q, block_k, max(least, room // (block_q * block_k))


def grouped(
    group: int, query: OptTensor, key: OptTensor, value: OptTensor, *others: OptTensor
) -> list[OptTensor]:
    """Return grouped heads with an axis of their own, along which keys and values broadcast."""
    if group == 1:
        return [query, key, value, *others]

    def split(x: OptTensor) -> OptTensor:
        if x is None or x.ndim < 3:
            return x
        *batch, n_heads, n_rows, n_columns = x.shape
        pair = (1, 1) if n_heads == 1 else (n_heads // group, group)
        return x.view(*batch, *pair, n_rows, n_columns)

    shared = (x if x is None else x.unsqueeze(-3) for x in (key, value))
    return [split(query), *shared, *map(split, others)]


class Tiles:
    """The tiles of scores of some heads.

    Scores are in units of `unit`, and `power` turns a difference of scores into a ratio of
    weights. On a CPU powers of 2 take half the time of powers of e, so the unit is log 2 there.
    It is 1 where a mask is added, which may hold the least number there is, where scores divided
    by log 2 would leave the range of the dtype, and where `natural` asks for it.

    No tile of all its heads has more than `room` scores.
    """

    def __init__(
        self, query: Tensor, key: Tensor, mask: OptTensor, band: Band, scale: float,
        dtype: torch.dtype, room: int, *, natural: bool = False,
    ) -> None:
        self.mask, self.band, self.scale = mask, band, scale
        self.dtype, self.room = dtype, room
        self.unit, self.power = 1.0, torch.exp
        if mask is None and query.device.type == "cpu" and not natural:
            start, stop = band.span(slice(0, query.shape[-2]), key.shape[-2])
            bound = abs(scale) * query.shape[-1] * largest_magnitude(query)
            bound *= largest_magnitude(key[..., start:stop, :])
            if not bound / math.log(2) > torch.finfo(dtype).max / 2:
                self.unit, self.power = math.log(2), torch.exp2
        # A large query times a large scale could be ∞ on the way.
        factor = scale / self.unit
        self.before, self.after = (factor, 1.0) if abs(factor) <= 1 else (1.0, factor)
        self.memory: dict[str, Tensor] = {}
        self.edges: dict[tuple[int, int, int, str], Tensor] = {}

    def seen(
        self, key: Tensor, value: Tensor, rows: slice, columns: slice
    ) -> tuple[Tensor, Tensor]:
        """Return a block of keys and its values, with zeros for those that no row may see."""
        allowed = self.allowed(rows, columns)
        if allowed is not None and not self.band.holds(rows, columns):
            queries, keys = (
                torch.arange(x.start, x.stop, device=key.device) for x in (rows, columns)
            )
            allowed = allowed & self.band.sees(queries[:, None], keys)
        return zero_unseen(key[:, columns], allowed), zero_unseen(value[:, columns], allowed)

    def allowed(self, rows: slice, columns: slice) -> OptTensor:
        """Return which keys of a tile the mask lets take part, None for all of them."""
        if self.mask is None:
            return None
        tile = cut(self.mask, rows, columns)
        return tile if tile.dtype == torch.bool else tile != -math.inf

    def scores(self, query: Tensor, key: Tensor, rows: slice, columns: slice) -> Tensor:
        """Return the scores of a tile after the mask, -∞ for what does not take part."""
        scores = self.product("scores", query, key)
        if self.after != 1:
            scores.mul_(self.after)
        if self.mask is not None:
            allowed = self.allowed(rows, columns)
            assert allowed is not None
            if self.mask.dtype != torch.bool:
                scores.add_(cut(self.mask, rows, columns))
            scores.masked_fill_(~allowed, -math.inf)
        if not self.band.holds(rows, columns):
            self.hide(scores, rows, columns)
        return scores

    def hide(self, scores: Tensor, rows: slice, columns: slice) -> None:
        """Put -∞ outside of the band, looking only at the columns that it cuts."""
        first, left, right = self.band
        if right is not None:
            after = rows.start + first + right + 1  # from here on some row sees nothing
            start = max(columns.start, after)
            if start < columns.stop:
                edge = scores[..., start - columns.start :]
                self.cut_off(edge, after - 1 - start, side="after")
        if left is not None:
            before = rows.stop - 1 + first - left  # up to here some row sees nothing
            stop = min(columns.stop, before)
            if columns.start < stop:
                edge = scores[..., : stop - columns.start]
                self.cut_off(edge, rows.start + first - left - columns.start, side="before")

    def cut_off(self, edge: Tensor, diagonal: int, side: str) -> None:
        """Put -∞ on one side of a diagonal: first 0, whatever was there, and then -∞ is added."""
        key, after = (*edge.shape[1:], diagonal, side), side == "after"
        if key not in self.edges:
            hidden = torch.full_like(edge[0], -math.inf)
            self.edges[key] = hidden.triu_(diagonal + 1) if after else hidden.tril_(diagonal - 1)
        (edge.tril_ if after else edge.triu_)(diagonal)
        edge.add_(self.edges[key])

    def product(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """Return left · rightᵀ in memory of this name: fresh memory for each tile is slow."""
        shape = len(left), left.shape[1], right.shape[1]
        if name not in self.memory:
            self.memory[name] = left.new_empty(self.room)
        memory = self.memory[name][: math.prod(shape)].view(shape)
        return torch.bmm(left, right.mT, out=memory)


def cut(mask: Tensor, rows: slice, columns: slice) -> Tensor:
    """Cut a tile out of what broadcasts to (…, L, S)."""
    rows = rows if mask.shape[-2] > 1 else slice(None)
    return mask[..., rows, columns if mask.shape[-1] > 1 else slice(None)]
