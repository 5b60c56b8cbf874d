"""Cases of the topics values, groups and empty: shapes, lengths and scales, down to length 0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attncheck._calls import E_V, NOT_FLOAT16, B, Call, Case, Draw, E, H, L, S, Setting, rounded
from attncheck._draws import case, heads, inputs, random_mask, shaped, with_mask, words
from attncheck._tolerance import forward_size
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, Array, Problem, Shape

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
# Leading dimensions, L, S, E, E_v.
EMPTY_AXES: dict[str, tuple[Shape, int, int, int | str, int | str]] = {
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


# Few queries take a path of their own in many kernels, and a last tile is seldom whole.
TILES = [(1, 70), (8, 70), (8, 131), (70, 33)]
MANY = 65_537  # more than the 65,535 blocks that a GPU takes along the second axis of a grid


def of_shapes(
    options: dict[str, Any], long: list[tuple[int, int]], tiles: list[tuple[int, int]] = TILES
) -> Iterator[tuple[str, Draw, bool]]:
    """Yield calls of all kinds of shapes: a name, a draw, and whether for each head dimension.

    Axes come first, then lengths, `long` ones and `tiles` after the short ones, and at the end
    leading dimensions that broadcast.
    """
    batch: Shape
    for batch in ((), (B,), (B, H)):
        query_axes, key_axes = (*batch, L, E), (*batch, S, E)
        name = f"query {words(query_axes)}, key {words(key_axes)}"
        yield name, shaped(query_axes, key_axes, options=options), len(batch) == 2
    for n_queries, n_keys in (*product(LENGTHS, LENGTHS), *long, *tiles):
        name = f"queries: {n_queries}, keys: {n_keys}"
        yield name, heads(n_queries, n_keys, options), (n_queries, n_keys) in tiles
    for query, key, value in LEADING:
        name = f"leading dimensions that broadcast: {query}, {key} and {value}"
        yield name, shaped((*query, L, E), (*key, S, E), (*value, S, E_V), options), False


def values() -> Iterator[Case]:
    """Yield the cases of the topic values."""
    for name, draw, everywhere in of_shapes({}, [(131, 149)]):
        yield case(name, draw, everywhere=everywhere)
    draw = shaped((H, L, 64), (H, S, 64), (H, S, 61))
    yield case("head dimensions of 64 and 61", draw, any_dims=True)
    for scale in SCALES:
        yield case(f"scale={scale}", heads(options={"scale": scale}))
    for name, draw in LARGE_SCORES.items():
        yield case(name, draw, dtypes=NOT_FLOAT16)
    yield case(f"a batch of {MANY:,}", _many)


def large_scores(sign: float) -> Draw:
    """Return the function that draws a call whose scores are large and have one sign."""

    def draw(setting: Setting) -> Call:
        shapes = (1, B, L, E), (1, B, S, E), setting.value((1, B, S, E))
        query, key, value = setting.drawn(*shapes)
        query, key = np.abs(query) * 100, sign * np.abs(key) * 100
        rows = (rounded(numbers, setting.dtype) for numbers in (query, key, value))
        return Call(inputs(setting, *rows), {"scale": 1.3 / setting.head_dims[0]})

    return draw


LARGE_SCORES = {
    f"scores of ten thousand, all {word} 0": large_scores(sign)
    for sign, word in ((1, "above"), (-1, "below"))
}


def _many(setting: Setting) -> Call:
    """Two keys for one query, so often that a kernel which counts in 16 bits runs out of them.

    All sequences but the last are alike, and the truth is that of two.
    """
    query, key, value = setting.drawn((2, 1, 1, E), (2, 1, 2, E), (2, 1, 2, E_V))
    scores = query @ key.mT / np.sqrt(setting.head_dims[0])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    truth = powers / powers.sum(axis=-1, keepdims=True) @ value

    def repeated(array: Array) -> Array:
        return np.concatenate([np.repeat(array[:1], MANY - 1, axis=0), array[1:]])

    given = inputs(setting, *map(repeated, (query, key, value)))
    size = float(forward_size(Problem(query, key, value)).max())
    return Call(given, truth=repeated(truth), size=size)


def groups() -> Iterator[Case]:
    """Yield the cases of the topic groups."""
    for n_key_heads, is_causal in product((1, 2, 3, 6), (False, True)):
        options, needs = GROUPED | (CAUSAL if is_causal else {}), ("causal",) * is_causal
        name = f"6 query heads, {n_key_heads} of key and value" + ", causal" * is_causal
        query, key, value = (B, 6, L, E), (B, n_key_heads, S, E), (B, n_key_heads, S, E_V)
        yield case(name, shaped(query, key, key, options), *needs, everywhere=n_key_heads == 2)
        draw = shaped(query, (1, *key[1:]), value, options)
        yield case(f"{name}, one key for the batch", draw, *needs)
        draw = shaped(query[1:], key[1:], options=options)
        yield case(f"{name}, without a batch", draw, *needs)
    for n_key_heads, shape in product((1, 2, 6), ((6, 1, S), (6, L, S), (L, S), (S,))):
        name = f"6 query heads, {n_key_heads} of key and value, a mask {shape}"
        draw = with_mask(random_mask(shape), "", (6, L, E), (n_key_heads, S, E), options=GROUPED)
        yield case(name, draw, "masks")
    for n_key_heads in (1, 2, 5):
        draw = shaped((0, L, E), (n_key_heads, S, E), options=GROUPED)
        yield case(f"no query heads, {n_key_heads} of key and value", draw, "empty")


def without_length(name: str, options: dict[str, Any]) -> tuple[Draw, bool]:
    """Return a call of `EMPTY_AXES` by its name, and whether it has its own head dimensions."""
    batch, n_queries, n_keys, n_features, n_values = EMPTY_AXES[name]
    query, key = (*batch, n_queries, n_features), (*batch, n_keys, n_features)
    draw = shaped(query, key, (*batch, n_keys, n_values), options)
    return draw, n_features == 0 or n_values == 0


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
        yield case(name, with_mask(mask), "masks")
    for name, is_causal in product(EMPTY_AXES, (False, True)):
        draw, own_dims = without_length(name, CAUSAL if is_causal else {})
        needs = ("causal",) * is_causal
        yield case(name + ", causal" * is_causal, draw, *needs, any_dims=own_dims)
    for n_queries, n_keys in ((7, 5), (17, 2)):
        draw = heads(n_queries, n_keys, CAUSAL | BOTTOM_RIGHT)
        name = f"causal at the bottom right, queries: {n_queries}, keys: {n_keys}"
        yield case(name, draw, "bottom-right", "causal")
    for align in ("top-left", "bottom-right"):
        draw = heads(11, 3, {"window": (2, 1), "causal_align": align})
        name = f"a window beyond the keys, {align}, queries: 11, keys: 3"
        yield case(name, draw, "windows", "bottom-right")
