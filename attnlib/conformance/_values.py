"""Cases of the topics values and masks: the formula, and what takes part in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from attnlib._checks import HALF, Array, Shape
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
    qkv,
    rounded,
    shaped,
    some,
)

NOT_FLOAT16 = ("bfloat16", "float32", "float64")
LENGTHS = (1, 2, 7, 17)
SCALES = (0.0, -0.7, 2, 3.5, 40.0)
# Leading dimensions of query, key and value.
LEADING: list[tuple[Shape, Shape, Shape]] = [
    ((B, H), (H,), (H,)),
    ((H,), (B, H), (B, H)),
    ((B, 1), (1, H), (B, H)),
    ((B, H), (B, 1), (B, 1)),
    ((), (), (B, H)),
    ((H,), (1,), (B, 1)),
]
MASK_SHAPES: list[Shape] = [
    (S,), (1, S), (L, 1), (L, S), (H, L, S), (B, 1, 1, S), (B, H, L, S), (1, 1, 1, 1),
]  # fmt: skip


def values() -> Iterator[Case]:
    """Yield the cases of the topic values."""
    batch: Shape
    for batch in ((), (B,), (B, H)):
        shapes = (*batch, L, E), (*batch, S, E)
        yield Case("values", f"query {shapes[0]}, key {shapes[1]}", shaped(*shapes))
    for n_queries, n_keys in (*product(LENGTHS, LENGTHS), (131, 149)):
        ask = heads(n_queries, n_keys)
        yield Case("values", f"queries: {n_queries}, keys: {n_keys}", ask)
    for query, key, value in LEADING:
        ask = shaped((*query, L, E), (*key, S, E), (*value, S, E_V))
        name = f"leading dimensions that broadcast: {query}, {key} and {value}"
        yield Case("values", name, ask)
    yield Case("values", "head dimensions of 64 and 61", shaped((H, L, 64), (H, S, 64), (H, S, 61)))
    for scale in SCALES:
        yield Case("values", f"scale={scale}", heads(options={"scale": scale}))
    for sign, word in ((1, "above"), (-1, "below")):
        name = f"scores of ten thousand, all {word} 0"
        yield Case("values", name, large_scores(sign), dtypes=NOT_FLOAT16)


def large_scores(sign: float) -> Ask:
    """Return the function that draws a call whose scores are large and have one sign."""

    def ask(dtype: str) -> Asked:
        query, key, value = drawn((1, B, L, E), (1, B, S, E), (1, B, S, E))
        numbers = {"query": np.abs(query) * 100, "key": sign * np.abs(key) * 100, "value": value}
        given = {name: Given(rounded(n, dtype), dtype) for name, n in numbers.items()}
        return Asked(given, {"scale": 0.1})

    return ask


def with_mask(
    mask: Array, mask_dtype: str = "", query: Shape = (B, H, L, E), key: Shape = (B, H, S, E),
    value: Shape = (B, H, S, E),
) -> Ask:  # fmt: skip
    """Return the function that draws a call with this mask, of the inputs' dtype or of its own."""

    def ask(dtype: str) -> Asked:
        kind = "bool" if mask.dtype == np.bool_ else mask_dtype or dtype
        own = mask if kind == "bool" else rounded(mask, kind)
        return Asked(qkv(dtype, query, key, value) | {"attn_mask": Given(own, kind)})

    return ask


def masks() -> Iterator[Case]:
    """Yield the cases of the topic masks. Every row keeps a key: see the topic empty."""
    for shape in MASK_SHAPES:
        yield Case("masks", f"a boolean mask {shape}, True takes part", with_mask(some(shape)))
        (added,) = drawn(shape, seed=3)
        name = f"a floating mask {shape} is added to the scaled scores"
        yield Case("masks", name, with_mask(added))
        name = f"a float32 mask {shape} beside half precision"
        yield Case("masks", name, with_mask(added, "float32"), dtypes=HALF)
    removed = np.where(some((H, L, S)), drawn((H, L, S), seed=3)[0], -np.inf)
    yield Case("masks", "-∞ in a floating mask removes", with_mask(removed))
    hidden = some((L, S))
    hidden[:, -1] = False
    yield Case("masks", "the last key is removed for every query", with_mask(hidden))
    hidden = np.arange(S) >= np.minimum(np.arange(L), 3)[:, None]
    yield Case("masks", "the first keys are removed", with_mask(hidden))
    ask = with_mask(some((L, S)), value=(B, H, S, E_V))
    yield Case("masks", "a mask, and a value with features of its own", ask)
    ask = with_mask(some((B, 1, L, S)), "", (L, E), (S, E), (B, H, S, E_V))
    yield Case("masks", "a mask with the batch that only the value has", ask)
    part = np.arange(70) >= np.array([[0], [3], [40], [64], [69]])
    for low in (-1e9, -3e38):
        name = f"70 keys, of which {low:g} in a floating mask hides the first"
        yield Case("masks", name, _as_if_removed(part, low), dtypes=NOT_FLOAT16)


def _as_if_removed(part: Array, low: float) -> Ask:
    """Return the function that draws a call with a mask of 0 and `low`, as padding often has it."""
    key = (1, B, part.shape[-1], E)
    ask = with_mask(np.where(part, 0.0, low), "", (1, B, L, E), key, key)
    return lambda dtype: replace(ask(dtype), meant={"attn_mask": part})
