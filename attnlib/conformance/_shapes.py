"""Cases of the topics values, groups and empty: shapes, lengths and scales, down to length 0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from attnlib._checks import Shape
from attnlib.conformance._calls import (
    E_V,
    NOT_FLOAT16,
    B,
    Call,
    Case,
    Draw,
    E,
    Given,
    H,
    L,
    S,
    drawn,
    heads,
    qkv,
    random_mask,
    rounded,
    shaped,
    with_mask,
)

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
CAUSAL = {"is_causal": True}
GROUPED = {"enable_gqa": True}
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
# A mask that removes two rows.
TWO_EMPTY_ROWS = np.repeat(np.array([[True], [False], [True], [False], [True]]), S, axis=1)


def values() -> Iterator[Case]:
    """Yield the cases of the topic values."""
    batch: Shape
    for batch in ((), (B,), (B, H)):
        shapes = (*batch, L, E), (*batch, S, E)
        yield Case("values", f"query {shapes[0]}, key {shapes[1]}", shaped(*shapes))
    for n_queries, n_keys in (*product(LENGTHS, LENGTHS), (131, 149)):
        draw = heads(n_queries, n_keys)
        yield Case("values", f"queries: {n_queries}, keys: {n_keys}", draw)
    for query, key, value in LEADING:
        draw = shaped((*query, L, E), (*key, S, E), (*value, S, E_V))
        name = f"leading dimensions that broadcast: {query}, {key} and {value}"
        yield Case("values", name, draw)
    yield Case("values", "head dimensions of 64 and 61", shaped((H, L, 64), (H, S, 64), (H, S, 61)))
    for scale in SCALES:
        yield Case("values", f"scale={scale}", heads(options={"scale": scale}))
    for sign, word in ((1, "above"), (-1, "below")):
        name = f"scores of ten thousand, all {word} 0"
        yield Case("values", name, large_scores(sign), dtypes=NOT_FLOAT16)


def large_scores(sign: float) -> Draw:
    """Return the function that draws a call whose scores are large and have one sign."""

    def draw(dtype: str) -> Call:
        query, key, value = drawn((1, B, L, E), (1, B, S, E), (1, B, S, E))
        numbers = {"query": np.abs(query) * 100, "key": sign * np.abs(key) * 100, "value": value}
        given = {name: Given(rounded(n, dtype), dtype) for name, n in numbers.items()}
        return Call(given, {"scale": 0.1})

    return draw


def groups() -> Iterator[Case]:
    """Yield the cases of the topic groups."""
    for n_key_heads, is_causal in product((1, 2, 3, 6), (False, True)):
        options = GROUPED | (CAUSAL if is_causal else {})
        name = f"6 query heads, {n_key_heads} of key and value" + ", causal" * is_causal
        query, key, value = (B, 6, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V)
        one = (*value[:-1], E)
        needs = ("causal",) * is_causal
        yield Case("groups", name, shaped(query, one, one, options), needs)
        draw = shaped(query, key, value, options)
        yield Case("groups", f"{name}, one key for the batch", draw, needs)
        draw = shaped((6, L, E), (n_key_heads, S, E), options=options)
        yield Case("groups", f"{name}, without a batch", draw, needs)
    for n_key_heads, shape in product((1, 2, 6), ((6, 1, S), (6, L, S), (L, S), (S,))):
        name = f"6 query heads, {n_key_heads} of key and value, a mask {shape}"
        yield Case("groups", name, _grouped_with_mask(n_key_heads, shape), ("masks",))
    for n_key_heads in (1, 2, 5):
        draw = shaped((0, L, E), (n_key_heads, S, E), options=GROUPED)
        name = f"no query heads, {n_key_heads} of key and value"
        yield Case("groups", name, draw, ("empty",))


def _grouped_with_mask(n_key_heads: int, shape: Shape) -> Draw:
    def draw(dtype: str) -> Call:
        given = qkv(dtype, (6, L, E), (n_key_heads, S, E))
        return Call(given | {"attn_mask": Given(random_mask(shape), "bool")}, dict(GROUPED))

    return draw


def empty() -> Iterator[Case]:
    """Yield the cases of the topic empty."""
    masks = {
        "a boolean mask removes two rows": TWO_EMPTY_ROWS,
        "a boolean mask (L, 1) removes two rows": TWO_EMPTY_ROWS[:, :1],
        "a floating mask of -∞ removes two rows": np.where(TWO_EMPTY_ROWS, 0.0, -np.inf),
        "a boolean mask removes everything": np.zeros((L, S), dtype=bool),
        "a boolean mask (1, 1, 1, 1) removes everything": np.zeros((1, 1, 1, 1), dtype=bool),
        "a floating mask removes everything": np.full((L, S), -np.inf),
    }
    for name, mask in masks.items():
        yield Case("empty", name, with_mask(mask), ("masks",))
    for (name, axes), is_causal in product(EMPTY_AXES.items(), (False, True)):
        batch, n_queries, n_keys, n_features, n_values = axes
        query, key = (*batch, n_queries, n_features), (*batch, n_keys, n_features)
        options = CAUSAL if is_causal else {}
        draw = shaped(query, key, (*batch, n_keys, n_values), options)
        yield Case("empty", name + ", causal" * is_causal, draw, ("causal",) * is_causal)
    for n_queries, n_keys in ((7, 5), (17, 2)):
        draw = heads(n_queries, n_keys, CAUSAL | {"causal_align": "bottom-right"})
        name = f"causal at the bottom right, queries: {n_queries}, keys: {n_keys}"
        yield Case("empty", name, draw, ("bottom-right", "causal"))
    for align, n_queries, n_keys in (("top-left", 11, 3), ("bottom-right", 11, 3)):
        draw = heads(n_queries, n_keys, {"window": (2, 1), "causal_align": align})
        name = f"a window beyond the keys, {align}, queries: {n_queries}, keys: {n_keys}"
        yield Case("empty", name, draw, ("windows", "bottom-right"))
