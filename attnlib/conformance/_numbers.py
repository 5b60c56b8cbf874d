"""Cases of the topics empty and numbers: nothing to attend to, NaN, and the largest numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnlib._checks import Array, Shape
from attnlib.conformance._case import (
    E_V,
    Ask,
    Asked,
    B,
    Case,
    E,
    Given,
    H,
    L,
    S,
    drawn,
    heads,
    rounded,
    shaped,
)
from attnlib.conformance._tolerance import forward_size
from attnlib.conformance._values import NOT_FLOAT16, with_mask

# Leading dimensions, L, S, E, E_v.
EMPTY_AXES: dict[str, tuple[Shape, int, int, int, int]] = {
    "no keys": ((B, H), L, 0, E, E_V),
    "no queries": ((B, H), 0, S, E, E_V),
    "no heads": ((B, 0), L, S, E, E_V),
    "a batch of 0": ((0, H), L, S, E, E_V),
    "no features of query and key": ((B, H), L, S, 0, E_V),
    "no features of the value": ((B, H), L, S, E, 0),
    "nothing at all": ((), 0, 0, 0, 0),
}
EMPTY_ROWS = np.array([False, True, False, True, False])


def empty() -> Iterator[Case]:
    """Yield the cases of the topic empty."""
    rows = np.repeat(~EMPTY_ROWS[:, None], S, axis=1)
    masks = {
        "a boolean mask removes two rows": rows,
        "a boolean mask (L, 1) removes two rows": rows[:, :1],
        "a floating mask of -∞ removes two rows": np.where(rows, 0.0, -np.inf),
        "a boolean mask removes everything": np.zeros((L, S), dtype=bool),
        "a boolean mask (1, 1, 1, 1) removes everything": np.zeros((1, 1, 1, 1), dtype=bool),
        "a floating mask removes everything": np.full((L, S), -np.inf),
    }
    for name, mask in masks.items():
        yield Case("empty", name, with_mask(mask), ("masks",))
    for (name, axes), is_causal in product(EMPTY_AXES.items(), (False, True)):
        batch, n_queries, n_keys, n_features, n_values = axes
        query, key = (*batch, n_queries, n_features), (*batch, n_keys, n_features)
        options = {"is_causal": True} if is_causal else {}
        ask = shaped(query, key, (*batch, n_keys, n_values), options)
        yield Case("empty", name + ", causal" * is_causal, ask, ("causal",) * is_causal)
    for n_queries, n_keys in ((7, 5), (17, 2)):
        ask = heads(n_queries, n_keys, {"is_causal": True, "causal_align": "bottom-right"})
        name = f"causal at the bottom right, queries: {n_queries}, keys: {n_keys}"
        yield Case("empty", name, ask, ("bottom-right", "causal"))
    for align, n_queries, n_keys in (("top-left", 11, 3), ("bottom-right", 11, 3)):
        ask = heads(n_queries, n_keys, {"window": (2, 1), "causal_align": align})
        name = f"a window beyond the keys, {align}, queries: {n_queries}, keys: {n_keys}"
        yield Case("empty", name, ask, ("windows", "bottom-right"))


def numbers() -> Iterator[Case]:
    """Yield the cases of the topic numbers."""
    for where in ("query", "key", "value"):
        for bad in (np.nan, np.inf):
            name = f"{bad} in one number of the {where} comes out where it takes part"
            yield Case("numbers", name, _spoilt(where, bad))
    for bad, additive in product((np.nan, np.inf, -np.inf), (False, True)):
        kind = "floating" if additive else "boolean"
        name = f"{bad} in keys and values that a {kind} mask removes changes nothing"
        yield Case("numbers", name, removed(bad, additive), ("masks",))
    name = "NaN in a key of the future changes nothing in the past"
    yield Case("numbers", name, _future, ("causal",))
    name = "NaN in a query row whose keys are all removed gives zeros"
    yield Case("numbers", name, _nan_in_an_empty_row, ("masks", "empty"))
    for way in ("is_causal", "a boolean mask", "a floating mask"):
        name = f"a key removed by {way} never wins, not even against scores of -1e12"
        needs = ("causal",) if way == "is_causal" else ("masks",)
        yield Case("numbers", name, _never_wins(way), needs, dtypes=NOT_FLOAT16)
    name = "scores of -3e38, all alike, give the mean of the values"
    yield Case("numbers", name, _alike, ("masks",), dtypes=NOT_FLOAT16)
    for score in (-3e38, -2.5e38, 2.5e38, 3e38):
        name = f"one key has the weight 1 for a score of {score:g}"
        yield Case("numbers", name, _one_key(score), dtypes=NOT_FLOAT16)
    for sign, word in ((1.0, "one sign"), (None, "either sign")):
        name = f"values near the largest number, of {word}, have a finite mean"
        yield Case("numbers", name, _near_the_largest(sign), dtypes=("float32", "float64"))


def alike(dtype: str) -> dict[str, Given]:
    """Return query, key and value as most kernels take them: batch, heads, one E for all."""
    return heads()(dtype).given


def _spoilt(where: str, bad: float) -> Ask:
    def ask(dtype: str) -> Asked:
        given = alike(dtype)
        given[where].numbers[0, 1, 3, 2] = bad
        return Asked(given)

    return ask


def removed(bad: float, additive: bool = False) -> Ask:
    """Return what asks that NaN or ∞ in removed keys and values changes nothing."""

    def ask(dtype: str) -> Asked:
        given = alike(dtype)
        clean = {name: own.numbers.copy() for name, own in given.items()}
        for name in ("key", "value"):
            given[name].numbers[..., [2, 6], :] = bad
        kept = np.ones((L, S), dtype=bool)
        kept[:, [2, 6]] = False
        mask = Given(np.where(kept, 0.0, -np.inf), dtype) if additive else Given(kept, "bool")
        return Asked(given | {"attn_mask": mask}, meant=clean)

    return ask


def _future(dtype: str) -> Asked:
    given = alike(dtype)
    given["key"].numbers[..., 3, :] = np.nan
    return Asked(given, {"is_causal": True})


def _nan_in_an_empty_row(dtype: str) -> Asked:
    given = alike(dtype)
    given["query"].numbers[..., 2, :] = np.nan
    kept = np.repeat(np.arange(L)[:, None] != 2, S, axis=1)
    return Asked(given | {"attn_mask": Given(kept, "bool")})


def _never_wins(way: str) -> Ask:
    def ask(dtype: str) -> Asked:
        query, key, value = drawn((1, B, L, 1), (1, B, L, 1), (1, B, L, 1), dtype=dtype)
        query[:], key[:] = rounded(np.array([1e6]), dtype), rounded(np.array([-1e6]), dtype)
        key[..., 3:, :] = 0
        given = _given(dtype, query, key, value)
        # All scores of a row are equal or out of reach, so that they bring no error.
        size = forward_size(np.zeros_like(query), key, value)
        if way == "is_causal":
            return Asked(given, {"is_causal": True}, size=size)
        part = np.tri(L, dtype=bool)
        floating = Given(np.where(part, 0.0, -np.inf), dtype)
        mask = Given(part, "bool") if way == "a boolean mask" else floating
        return Asked(given | {"attn_mask": mask}, size=size)

    return ask


def _given(dtype: str, query: Array, key: Array, value: Array) -> dict[str, Given]:
    arrays: dict[str, Any] = {"query": query, "key": key, "value": value}
    return {name: Given(array, dtype) for name, array in arrays.items()}


def _alike(dtype: str) -> Asked:
    given = alike(dtype)
    given["query"].numbers[:] = 0
    low = Given(rounded(np.full((L, S), -3e38), dtype), dtype)
    query, key, value = (own.numbers for own in given.values())
    size = forward_size(query, key, value)
    return Asked(given | {"attn_mask": low}, size=size)


def _one_key(score: float) -> Ask:
    def ask(dtype: str) -> Asked:
        query, one = rounded(np.full((1, 1, 1, 1), score), dtype), np.ones((1, 1, 1, 1))
        truth = 5 * one
        return Asked(_given(dtype, query, one, truth), {"scale": 1.0}, truth=truth, size=8.0)

    return ask


def _near_the_largest(sign: float | None) -> Ask:
    def ask(dtype: str) -> Asked:
        query, key, signs = drawn((1, B, L, E), (1, B, 19, E), (1, B, 19, E), dtype=dtype)
        signs = np.sign(signs) if sign is None else np.full_like(signs, sign)
        largest = rounded(np.array(0.999 * float(np.finfo(dtype).max)), dtype)
        return Asked(_given(dtype, query, key, largest * signs))

    return ask
