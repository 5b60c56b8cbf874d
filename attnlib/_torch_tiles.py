"""What both passes of `torch_blockwise` share: the walk over heads, and a tile of scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnlib.torch_dense import _seen

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
        if along != rank - 1:
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
    No tile of all its heads has more than `room` scores.
    """

    def __init__(self, mask: Operand, is_causal: bool, scale: float, room: int) -> None:
        self.mask, self.is_causal, self.room = mask, is_causal, room
        self.unit, self.power = (math.log(2), torch.exp2) if mask is None else (1.0, torch.exp)
        # A large query times a large scale could be ∞ on the way.
        factor = scale / self.unit
        self.before, self.after = (factor, 1.0) if abs(factor) <= 1 else (1.0, factor)
        self.memory: dict[str, Tensor] = {}
        self.futures: dict[tuple[int, int, int], Tensor] = {}

    def shifted(self, query: Tensor, shift: Tensor) -> tuple[Tensor, bool]:
        """Give the queries with the shift as a column, and whether to subtract it afterwards.

        Inside the product a large shift costs digits: then the column holds zeros.
        """
        apart = self.mask is not None or shift.is_cuda or bool((shift.abs() > 1024).any())
        return with_column(query, 0 if apart else shift / -self.after), apart

    def buffer(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Give memory for a tile, the same one again and again: fresh memory is slow."""
        if name not in self.memory:
            self.memory[name] = like.new_empty(self.room)
        return self.memory[name][: math.prod(shape)].view(shape)

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
        if self.is_causal and rows.start + 1 < columns.stop:  # some row must not see some key
            first = max(columns.start, rows.start)
            self.hide(scores[..., first - columns.start :], rows.start - first)
        return scores

    def scores_and_values(
        self, query: Tensor, key: Tensor, value: Tensor, rows: slice, columns: slice
    ) -> tuple[Tensor, Tensor]:
        """Give the scores of a tile, and the values that they go with."""
        mask, part = self.part(rows, columns)
        scores = self.scores(query, _seen(key[:, columns], part), rows, columns, mask, part)
        return scores, _seen(value[:, columns], part)

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


def with_column(tensor: Tensor, column: float | Tensor) -> Tensor:
    """Add a column, which takes a number for each row into a product."""
    wide = tensor.new_empty((*tensor.shape[:-1], tensor.shape[-1] + 1))
    wide[..., :-1] = tensor
    wide[..., -1:] = column
    return wide
