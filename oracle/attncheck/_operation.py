"""What a definition of flashinfer-bench describes, called as our cases need it.

Rows of a batch become texts in a row, or sequences with pages of their own; heads that a definition
fixes are filled up; a function that fills its outputs is given some.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from attncheck._comparison import OVERWRITTEN
from attncheck._types import scale_of

# What inputs of attention are called in a definition.
NAMES = {
    "query": ("q",), "key": ("k", "k_cache"), "value": ("v", "v_cache"),
    "q_starts": ("qo_indptr",), "k_starts": ("kv_indptr", "seq_indptr"),
    "indices": ("kv_indices",), "last": ("kv_last_page_len", "last_page_len"),
    "scale": ("sm_scale",),
}
OURS = {theirs: ours for ours, names in NAMES.items() for theirs in names}


@dataclass
class Operation:
    """What a definition describes, computed by one function of it, for calls as we draw them."""

    definition: Mapping[str, Any]
    function: Callable[..., Any]
    last: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    def constant(self, ours: str, place: int) -> int | None:
        """Return the length of an input's axis; None where it varies."""
        inputs, axes = self.definition["inputs"], self.definition["axes"]
        shape = next(inputs[name]["shape"] for name in NAMES[ours] if name in inputs)
        return axes[shape[place]].get("value") if len(shape) >= -place else None

    @property
    def head_dims(self) -> tuple[int, int]:
        return self.constant("query", -1) or 128, self.constant("value", -1) or 128

    @property
    def heads(self) -> tuple[int, int] | None:
        """Return the heads of query and key; None where they vary."""
        query, key = self.constant("query", -2), self.constant("key", -2)
        return None if query is None or key is None else (query, key)

    @property
    def page(self) -> int:
        return self.constant("key", -3) or 16

    @property
    def dtype(self) -> str:
        return str(self.definition["inputs"]["q"]["dtype"])

    # Calls with other arguments than the definition has.

    def dense(
        self, query: Any, key: Any, value: Any, scale: float | None = None, is_causal: bool = False
    ) -> Any:
        """Return the output for axes BSHD, where each row is a text, or pages of its own."""
        return self._dense(query, key, value, scale)[0]

    def with_lse(
        self, query: Any, key: Any, value: Any, scale: float | None = None, is_causal: bool = False
    ) -> Any:
        return tuple(self._dense(query, key, value, scale)[:2])

    def _dense(self, query: Any, key: Any, value: Any, scale: float | None) -> list[Any]:
        (n_rows, n_queries), n_keys = query.shape[:2], key.shape[1]
        if "kv_indices" not in self.definition["inputs"]:
            places = [starts([n] * n_rows, query.device) for n in (n_queries, n_keys)]
            query, key, value = (x.flatten(0, 1) for x in (query, key, value))
            found = self.run(query, key, value, places[0], places[1], scale)
            return [x.unflatten(0, (n_rows, n_queries)) for x in found]
        n_pages = -(-n_keys // self.page)
        more = (0, 0, 0, 0, 0, n_pages * self.page - n_keys)  # nothing reads behind a length
        key, value = (
            torch.nn.functional.pad(x, more, value=math.nan).reshape(-1, self.page, *x.shape[2:])
            for x in (key, value)
        )
        table = torch.arange(n_rows * n_pages, device=query.device).reshape(n_rows, n_pages)
        lengths = torch.full((n_rows,), n_keys, device=query.device)
        return self._paged(query, key, value, table, lengths, scale)

    def texts(
        self, query: Any, key: Any, value: Any, *, q_starts: Any, k_starts: Any,
        scale: float | None = None, is_causal: bool = False,
    ) -> Any:
        return self.run(query, key, value, q_starts, k_starts, scale)[0]

    def paged(
        self, query: Any, key: Any, value: Any, *, table: Any, lengths: Any,
        scale: float | None = None, is_causal: bool = False,
    ) -> Any:
        return self._paged(query, key, value, table, lengths, scale)[0]

    def _paged(
        self, query: Any, key: Any, value: Any, table: Any, lengths: Any, scale: float | None
    ) -> list[Any]:
        rows, n_queries = query.shape[:2], query.shape[1]
        if "qo_indptr" not in self.definition["inputs"]:  # each query is a sequence of its own
            table, lengths = (x.repeat_interleave(n_queries, 0) for x in (table, lengths))
        used = (lengths + self.page - 1) // self.page
        indices = table[torch.arange(table.shape[1], device=table.device) < used[:, None]].int()
        q_starts = starts([n_queries] * rows[0], query.device)
        k_starts = starts(used.tolist(), query.device)
        last = ((lengths - 1) % self.page + 1).int()
        found = self.run(
            query.flatten(0, 1), key, value, q_starts, k_starts, scale, indices, last
        )
        return [x.unflatten(0, rows) for x in found]

    def run(
        self, query: Any, key: Any, value: Any, q_starts: Any, k_starts: Any,
        scale: float | None, indices: Any = None, last: Any = None,
    ) -> list[Any]:
        """Return the outputs, in as many calls as the heads need; heads are the last axis but one.

        Where a definition fixes its heads, each key head stands in its place with its query heads
        in the places of its group. The other places hold the same numbers moved on by one feature.
        """
        n_heads, n_key_heads = query.shape[-2], key.shape[-2]
        heads, most = self.heads or (n_heads, n_key_heads), n_heads // n_key_heads
        if heads == (n_heads, n_key_heads):
            arrays: list[Any] = [(query, key, value, slice(None))]
        else:
            arrays = []
            for first in range(0, n_key_heads, heads[1]):
                keys = range(min(heads[1], n_key_heads - first))
                own = slice(first * most, (first + len(keys)) * most)
                places = [k * (heads[0] // heads[1]) + i for k in keys for i in range(most)]
                wide = [
                    among(x[..., first : first + len(keys), :], heads[1], list(keys))
                    for x in (key, value)
                ]
                arrays.append((among(query[..., own, :], heads[0], places), *wide, places))
        found = []
        for q, k, v, places in arrays:
            given = {"query": q, "key": k, "value": v, "q_starts": q_starts, "k_starts": k_starts}
            given |= {"indices": indices, "last": last, "scale": scale_of(scale, q.shape[-1])}
            came = self.called([given[OURS[name]] for name in self.definition["inputs"]])
            found.append([x[:, places] for x in came])
        whole = len(found) == 1
        return found[0] if whole else [torch.cat(parts, 1) for parts in zip(*found, strict=True)]

    def called(self, inputs: list[Any]) -> list[Any]:
        """Return the outputs of the function, which returns them or fills them."""
        outputs, places = self.definition["outputs"], inspect.signature(self.function).parameters
        if len(places) == len(inputs) + len(outputs):
            sizes = {name: own.get("value") for name, own in self.definition["axes"].items()}
            for own, x in zip(self.definition["inputs"].values(), inputs, strict=True):
                sizes |= dict(zip(own["shape"] or (), getattr(x, "shape", ()), strict=False))
            device = next(x.device for x in inputs if isinstance(x, torch.Tensor))
            found = [
                torch.full(
                    [sizes[axis] for axis in own["shape"]], math.nan,
                    dtype=getattr(torch, own["dtype"]), device=device,
                )
                for own in outputs.values()
            ]
            self.function(*inputs, *found)
        elif len(places) == len(inputs):
            came = self.function(*inputs)
            found = [came[name] for name in outputs] if isinstance(came, dict) else (
                list(came) if isinstance(came, (tuple, list)) else [came])
        else:
            takes, has = ", ".join(places), ", ".join(self.definition["inputs"])
            raise TypeError(f"expected a function of {has}, and of the outputs or not; got {takes}")
        kept, copies = self.last
        if any(not torch.equal(x, y) for x, y in zip(kept, copies, strict=True)):
            raise AssertionError(OVERWRITTEN)
        self.last = found, [x.clone() for x in found]
        return found


def starts(lengths: list[int], device: Any) -> Any:
    """Return where texts of these lengths begin, and where the last one ends."""
    zero = torch.zeros(1, dtype=torch.int32)
    return torch.cat([zero, torch.tensor(lengths).cumsum(0, dtype=torch.int32)]).to(device)


def among(x: torch.Tensor, n: int, places: list[int]) -> torch.Tensor:
    """Return n heads, of axes (..., H, D), with these ones in their places.

    >>> among(torch.tensor([[1.0, 2.0]]), 3, [1]).tolist()
    [[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]]
    """
    found = x[..., torch.arange(n) % x.shape[-2], :].roll(1, -1)
    found[..., places, :] = x
    return found
