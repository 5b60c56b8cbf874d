"""Who has which tokens of a sequence that is spread over devices.

A device has some spans of the sequence, and its shard is these spans one after the other. The
module `torch_ring` exports what is public here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlib._checks import Band, checked_count
from attnlib._tensors import check_tensor

BALANCES = ("contiguous", "zigzag")


class Span(NamedTuple):
    """Consecutive tokens: those from `start` to `stop` - 1."""

    start: int
    stop: int


def layout(n_tokens: int, n_devices: int, balance: str = "zigzag") -> list[list[Span]]:
    """Return which tokens each device has: a list of spans for each device.

    Lengths differ by at most one token. With more devices than tokens some lists are empty.

    Args:
        n_tokens: The length of the sequence.
        n_devices: How many devices there are, at least one.
        balance: "contiguous" cuts the sequence into one piece for each device. "zigzag" cuts it
            into two for each device, and device r has piece r from the front and from the back, so
            that all devices have the same work under a causal mask.

    Source:
        Brandon et al. 2023 on the balance; zigzag is that of Llama 3 (2024), section 3.3.2.

    Example:
        >>> layout(8, 2)[0]
        [Span(start=0, stop=2), Span(start=6, stop=8)]
        >>> layout(8, 2, "contiguous")
        [[Span(start=0, stop=4)], [Span(start=4, stop=8)]]
    """
    n_tokens = checked_count("n_tokens", n_tokens)
    n_devices = checked_count("n_devices", n_devices, least=1)
    check_balance(balance)
    n_pieces = n_devices if balance == "contiguous" else 2 * n_devices
    size, longer = divmod(n_tokens, n_pieces)
    cuts = [piece * size + min(piece, longer) for piece in range(n_pieces + 1)]
    pieces = [Span(*ends) for ends in itertools.pairwise(cuts)]
    front, back = pieces[:n_devices], pieces[n_devices:]  # there is a back in zigzag alone
    dealt = zip(front, reversed(back), strict=True) if back else zip(front, strict=True)
    return [[span for span in own if span.start < span.stop] for own in dealt]


def check_balance(balance: object) -> None:
    if balance not in BALANCES:
        raise ValueError(f"balance must be 'contiguous' or 'zigzag'; got {balance!r}")


def shard(x: Tensor, spans: Sequence[Span], dim: int = -2) -> Tensor:
    """Return the tokens of one device: these spans of x, one after the other.

    Example:
        >>> shard(torch.arange(8), layout(8, 2)[0], dim=0)
        tensor([0, 1, 6, 7])
    """
    check_tensor("x", x)
    stop = max((span.stop for span in spans), default=0)
    if stop > x.shape[dim]:
        raise ValueError(f"spans must end within dimension {dim}; got {stop} in {tuple(x.shape)}")
    pieces = [x.narrow(dim, start, stop - start) for start, stop in spans]
    return torch.cat(pieces, dim) if pieces else x.narrow(dim, 0, 0)


def unshard(shards: Sequence[Tensor], spans: Sequence[Sequence[Span]], dim: int = -2) -> Tensor:
    """Return the whole sequence, from the shards of all devices and the layout that made them.

    Example:
        >>> x, spans = torch.arange(8), layout(8, 2)
        >>> unshard([shard(x, own, dim=0) for own in spans], spans, dim=0)
        tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """
    pieces: list[tuple[Span, Tensor]] = []
    if len(shards) != len(spans) or not len(shards):
        came = f"{len(shards)} and {len(spans)}"
        raise ValueError(f"shards and spans must have one entry for each device; got {came}")
    for rank, (x, own) in enumerate(zip(shards, spans, strict=True)):
        check_tensor(f"shards[{rank}]", x)
        lengths = [stop - start for start, stop in own]
        if x.shape[dim] != sum(lengths):
            came = f"{x.shape[dim]} in dimension {dim} of {tuple(x.shape)}"
            raise ValueError(f"shards[{rank}] must hold {sum(lengths)} tokens; got {came}")
        pieces += zip(own, torch.split(x, lengths, dim), strict=True)
    pieces.sort(key=lambda piece: piece[0])
    return torch.cat([x for _, x in pieces] or [shards[0]], dim)


class Plan(NamedTuple):
    """Who has which queries and keys, and what a query sees: the same on all devices."""

    queries: list[list[Span]]
    keys: list[list[Span]]
    band: Band
    scale: float | None = None
    group: int = 1

    def n_keys(self, rank: int) -> int:
        """Return how many keys a device has; ranks are counted round the ring."""
        return _count(self.keys[rank % len(self.keys)])

    def pieces(
        self, rank: int, source: int, masked: bool = False
    ) -> Iterator[tuple[slice, slice, slice, Band]]:
        """Yield what the queries of `rank` see of the keys of `source`, span by span.

        Each time: rows of its shard of queries, columns of the shard of keys, the positions of
        these keys in the whole sequence, and the band between these rows and columns. Where
        positions do not matter, for want of a band and a mask, both shards come as a whole.
        """
        first, left, right = self.band
        queries, keys = self.queries[rank], self.keys[source % len(self.keys)]
        if left is None and right is None and not masked:
            queries, keys = ([Span(0, _count(own))] for own in (queries, keys))
        for rows, q in _within_shard(queries):
            for columns, k in _within_shard(keys):
                band = Band(first + q.start - k.start, left, right)
                start, stop = band.span(slice(0, q.stop - q.start), k.stop - k.start)
                if start < stop:
                    yield rows, columns, slice(*k), band


def _count(spans: Sequence[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def _within_shard(spans: Sequence[Span]) -> Iterator[tuple[slice, Span]]:
    """Yield spans, with their positions in the shard."""
    end = 0
    for span in spans:
        start, end = end, end + span.stop - span.start
        yield slice(start, end), span
