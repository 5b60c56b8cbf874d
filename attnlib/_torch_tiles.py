"""What both passes of `torch_blockwise` share: the walk over heads, and a tile of scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Operand = Tensor | None


def heads(
    batch: Sequence[int], operands: Sequence[Operand], together: int
) -> Iterator[list[Operand]]:
    """Walk over the batch: views (heads, rows, columns) of all operands, some heads at a time.

    Operands broadcast to the batch. The first three are not broadcast among heads that come
    together, so that what these gather (a gradient) never lies in one place.
    """
    rank = len(batch)
    level = [x if x is None else x[(None,) * (rank + 2 - x.ndim)] for x in operands]
    apart = [x for x in level[:3] if x is not None]
    free = [d for d in range(rank) if all(x.shape[d] == batch[d] for x in apart)]
    along = max(free, key=batch.__getitem__, default=None)
    if along is None:
        level = [x if x is None else x.unsqueeze(-3) for x in level]
        batch = (*batch, 1)
    else:
        level = [x if x is None else x.movedim(along, -3) for x in level]
        batch = (*batch[:along], *batch[along + 1 :], batch[along])
    for place in itertools.product(*map(range, batch[:-1])):
        here = [
            x if x is None else x[tuple(i * (n > 1) for i, n in zip(place, x.shape, strict=False))]
            for x in level
        ]
        for first in range(0, batch[-1], together):
            yield [
                x if x is None or len(x) < batch[-1] else x[first : first + together] for x in here
            ]


class Tiles:
    """The tiles of some heads.

    Powers of 2 take half the time of powers of e, so without a mask scores are in units of log 2.
    A mask may hold the least number there is, which must not become -∞.
    """

    def __init__(self, mask: Operand, is_causal: bool, scale: float) -> None:
        self.mask, self.is_causal = mask, is_causal
        self.unit, self.power = (math.log(2), torch.exp2) if mask is None else (1.0, torch.exp)
        # A large query times a large scale could be ∞ on the way.
        factor = scale / self.unit
        self.before, self.after = (factor, 1.0) if abs(factor) <= 1 else (1.0, factor)
        self.memory: dict[str, Tensor] = {}
        self.futures: dict[tuple[int, int, int], Tensor] = {}

    def apart(self, shift: Tensor) -> bool:
        """Whether to subtract the shift after the product: inside, a large one costs digits."""
        return self.mask is not None or shift.is_cuda or bool((shift.abs() > 1024).any())

    def buffer(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Give memory for a tile, the same one again and again."""
        size = math.prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = like.new_empty(size)
        return self.memory[name][:size].view(shape)

    def end(self, rows: slice, n_keys: int) -> int:
        """Give where the keys end that some of these rows may see."""
        return min(rows.stop, n_keys) if self.is_causal else n_keys

    def part(self, rows: slice, columns: slice) -> tuple[Operand, Operand]:
        """Give the tile's mask, and which keys take part (None: all of them)."""
        if self.mask is None:
            return None, None
        tile = cut(self.mask, rows, columns)
        return tile, tile if tile.dtype == torch.bool else tile != -math.inf

    def scores(
        self, query: Tensor, key: Tensor, rows: slice, columns: slice, mask: Operand, part: Operand
    ) -> Tensor:
        """Give the scores of a tile, after the mask."""
        scores = self.buffer("scores", query, len(query), query.shape[1], key.shape[1])
        torch.bmm(query, key.mT, out=scores)
        if self.after != 1:
            scores.mul_(self.after)
        if part is not None:
            assert mask is not None
            if mask.dtype != torch.bool:
                scores.add_(mask)
            scores.masked_fill_(~part, -math.inf)
        first = max(columns.start, rows.start + 1)  # the first key that some row must not see
        if self.is_causal and first < columns.stop:
            self.hide(scores[..., first - columns.start :], rows.start - first)
        return scores

    def hide(self, scores: Tensor, diagonal: int) -> None:
        """Put -∞ above the diagonal: first 0, of whatever was there, then the sum with -∞."""
        key = (*scores.shape[1:], diagonal)
        if key not in self.futures:
            self.futures[key] = torch.full_like(scores[0], -math.inf).triu_(diagonal + 1)
        scores.tril_(diagonal).add_(self.futures[key])


def cut(mask: Tensor, rows: slice, columns: slice) -> Tensor:
    """Cut a tile out of what broadcasts to (G, L, S)."""
    everything = slice(None)
    return mask[
        :, rows if mask.shape[1] > 1 else everything, columns if mask.shape[2] > 1 else everything
    ]


def with_column(tensor: Tensor, column: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Add a column, which takes a number for each row into a product."""
    wide = torch.empty(
        (*tensor.shape[:-1], tensor.shape[-1] + 1), dtype=dtype, device=tensor.device
    )
    wide[..., :-1] = tensor
    wide[..., -1:] = column
    return wide
