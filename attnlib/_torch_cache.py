"""The memory of decoding: what `torch_decoding` keeps of the tokens before."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlib._checks import FLOATING, checked_count, checked_counts, checked_integers, dtype_name
from attnlib._tensors import check_tensor

Counts = Sequence[int] | Tensor


class KVCache:
    """Hold the keys and values of all tokens so far (the KV cache), for a batch of sequences.

    Memory for `capacity` tokens is set aside once. Row b uses its first lengths[b] slots, and what
    stands behind them is never read.

    Args:
        batch: B, the number of sequences.
        n_kv_heads: H_kv, the number of key heads.
        capacity: the largest number of tokens of a sequence.
        d_k, d_v: the features of a key and of a value; d_v is d_k where None.
        dtype, device: those of the keys and values.

    Attributes:
        key, value: (B, H_kv, capacity, d_k) and (B, H_kv, capacity, d_v).
        lengths: the number of tokens of each row, B integers on the host.

    Raises:
        TypeError, ValueError: for sizes that are no integers ≥ 1, or a dtype that is not floating.

    Example:
        Two sequences, of which only the first one gets a second token.

        >>> cache = KVCache(batch=2, n_kv_heads=1, capacity=4, d_k=3)
        >>> cache.append(torch.zeros(2, 1, 1, 3), torch.zeros(2, 1, 1, 3))
        >>> cache.append(torch.zeros(2, 1, 1, 3), torch.zeros(2, 1, 1, 3), counts=[1, 0])
        >>> cache.lengths, cache.capacity, cache.n_bytes
        ((2, 1), 4, 192)
    """

    def __init__(
        self, batch: int, n_kv_heads: int, capacity: int, d_k: int, d_v: int | None = None, *,
        dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
    ) -> None:
        d_v = d_k if d_v is None else d_v
        sizes = {"batch": batch, "n_kv_heads": n_kv_heads, "capacity": capacity, "d_k": d_k}
        for name, size in (sizes | {"d_v": d_v}).items():
            checked_count(name, size, least=1)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype must be a torch.dtype; got {dtype!r}")
        if str(dtype).removeprefix("torch.") not in FLOATING:
            raise TypeError(f"dtype must be one of {', '.join(FLOATING)}; got {dtype}")
        kind: dict[str, Any] = {"dtype": dtype, "device": device}
        self.key = torch.empty(batch, n_kv_heads, capacity, d_k, **kind)
        self.value = torch.empty(batch, n_kv_heads, capacity, d_v, **kind)
        self.lengths = (0,) * batch

    @property
    def capacity(self) -> int:
        """The largest number of tokens of a sequence."""
        return self.key.shape[2]

    @property
    def n_bytes(self) -> int:
        """The bytes of memory that B · H_kv · capacity · (d_k + d_v) numbers take."""
        return self.key.nbytes + self.value.nbytes

    def append(self, key: Tensor, value: Tensor, *, counts: Counts | None = None) -> None:
        """Add L tokens to each row, or the first counts[b] of them to row b: all or nothing.

        Shapes:
            key (B, H_kv, L, d_k), value (B, H_kv, L, d_v)

        Raises:
            TypeError, ValueError: for what does not fit the cache, and for a row that gets full.
            RuntimeError: where gradients are asked for, which a cache does not keep.
        """
        found = checked_new_tokens(self, key, value, counts)
        for start, memory, new in batches_of_rows(self, found, key, value):
            for slots, tokens in zip(memory, new, strict=True):
                slots[:, :, start : start + tokens.shape[2]] = tokens
        self.lengths = tuple(map(operator.add, self.lengths, found))

    def truncate(self, lengths: Counts) -> None:
        """Take back the last tokens of each row, so that row b has lengths[b] tokens left.

        This is the rollback of speculative decoding: it takes back the tokens that were guessed
        wrong, row by row.

        Raises:
            TypeError, ValueError: for lengths that do not hold one integer for each row, from 0 to
                the row's present length.
        """
        self.lengths = checked_counts("lengths", lengths, self.lengths)

    def select(self, rows: Counts) -> KVCache:
        """Return a cache of its own that holds copies of these rows, in this order.

        A row may be left out or occur several times, as beams do.

        Raises:
            TypeError, ValueError: for rows that are not integers from 0 to B - 1, or none.
        """
        rows = checked_integers("rows", rows)
        checked_counts("rows", rows, [len(self.lengths) - 1] * len(rows))
        (_, n_kv_heads, capacity, d_k), d_v = self.key.shape, self.value.shape[-1]
        kind: dict[str, Any] = {"dtype": self.key.dtype, "device": self.key.device}
        chosen = KVCache(len(rows), n_kv_heads, capacity, d_k, d_v, **kind)
        for new, old in enumerate(rows):
            n = self.lengths[old]
            chosen.key[new, :, :n], chosen.value[new, :, :n] = (
                x[old, :, :n] for x in (self.key, self.value)
            )
        chosen.lengths = tuple(self.lengths[row] for row in rows)
        return chosen


def checked_new_tokens(
    cache: KVCache, key: Tensor, value: Tensor, counts: Counts | None
) -> tuple[int, ...]:
    """Return how many of the L tokens each row gets, once it is sure that they fit."""
    n_tokens = key.shape[-2] if isinstance(key, Tensor) and key.ndim > 1 else 0
    for name, x, memory in (("key", key, cache.key), ("value", value, cache.value)):
        batch, heads, _, d = memory.shape
        check_fits(name, x, memory, (batch, heads, n_tokens, d))
    found = (n_tokens,) * len(cache.lengths)
    if counts is not None:
        found = checked_counts("counts", counts, found)
    for row, (length, count) in enumerate(zip(cache.lengths, found, strict=True)):
        if length + count > cache.capacity:
            wanted = f"a row must have at most capacity = {cache.capacity} tokens"
            raise ValueError(f"{wanted}; got {length} + {count} in row {row}")
    return found


def batches_of_rows(
    cache: KVCache, counts: Sequence[int], *new: Tensor
) -> Iterator[tuple[int, tuple[Tensor, Tensor], Sequence[Tensor]]]:
    """Yield rows that can be taken together: all that are equally long, or else one by one.

    With them come their length, the memory for their keys and values, and their new tokens without
    padding.
    """
    if len({*cache.lengths}) == 1 and min(counts) == new[0].shape[2]:
        yield cache.lengths[0], (cache.key, cache.value), new
        return
    for row, (length, count) in enumerate(zip(cache.lengths, counts, strict=True)):
        one = slice(row, row + 1)
        yield length, (cache.key[one], cache.value[one]), [x[one, :, :count] for x in new]


def check_fits(name: str, x: object, memory: Tensor, shape: tuple[int, ...]) -> None:
    """Require a tensor of this shape that can be written into the memory of a cache."""
    x = check_tensor(name, x)
    if x.dtype != memory.dtype:
        wanted = f"the dtype of the cache, {dtype_name(memory)}"
        raise TypeError(f"{name} must have {wanted}; got {dtype_name(x)}")
    if x.device != memory.device:
        wanted = f"on the device of the cache, {memory.device}"
        raise ValueError(f"{name} must be {wanted}; got {x.device}")
    if x.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {tuple(x.shape)}")
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} must not require gradients, because a cache keeps none: "
            "call it under torch.no_grad() or torch.inference_mode()"
        )
