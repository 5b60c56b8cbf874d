"""Cases of the topics causal, bottom-right, windows and groups: who attends to whom, by place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnlib._checks import Shape
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
    heads,
    qkv,
    shaped,
    some,
)
from attnlib.conformance._truth import seen
from attnlib.conformance._values import LEADING, LENGTHS, SCALES

WINDOWS = [(0, 0), (2, 1), (None, 1), (3, None), (None, None), (20, 20), (1, 0), (70, 3)]
CAUSAL = {"is_causal": True}
BOTTOM_RIGHT = {"causal_align": "bottom-right"}
GROUPED = {"enable_gqa": True}


def no_row_is_empty(n_queries: int, n_keys: int, options: dict[str, Any]) -> bool:
    """Return whether every query sees a key; what gives empty rows is for the topic empty."""
    part = seen(n_queries, n_keys, **options)
    return part is None or bool(part.any(axis=-1).all())


def causal() -> Iterator[Case]:
    """Yield the cases of the topic causal."""
    batch: Shape
    for batch in ((), (B,), (B, H)):
        shapes = (*batch, L, E), (*batch, S, E)
        name = f"query {shapes[0]}, key {shapes[1]}"
        yield Case("causal", name, shaped(*shapes, options=CAUSAL))
    for n_queries, n_keys in (*product(LENGTHS, LENGTHS), (131, 149), (149, 131)):
        ask = heads(n_queries, n_keys, CAUSAL)
        yield Case("causal", f"queries: {n_queries}, keys: {n_keys}", ask)
    for query, key, value in LEADING:
        ask = shaped((*query, L, E), (*key, S, E), (*value, S, E_V), CAUSAL)
        name = f"leading dimensions that broadcast: {query}, {key} and {value}"
        yield Case("causal", name, ask)
    for scale in SCALES:
        yield Case("causal", f"scale={scale}", heads(options=CAUSAL | {"scale": scale}))


def bottom_right() -> Iterator[Case]:
    """Yield the cases of the topic bottom-right."""
    options = CAUSAL | BOTTOM_RIGHT
    for n_queries, n_keys in ((1, 1), (1, 7), (2, 7), (5, 7), (7, 7), (7, 17), (131, 149)):
        ask = heads(n_queries, n_keys, options)
        yield Case("bottom-right", f"queries: {n_queries}, keys: {n_keys}", ask)
    yield Case("bottom-right", "head dimensions that differ", shaped(options=options))
    ask = shaped(options=BOTTOM_RIGHT)
    yield Case("bottom-right", "without is_causal an alignment changes nothing", ask)
    ask = shaped(options=CAUSAL | {"causal_align": "top-left"})
    yield Case("bottom-right", "top-left is what is_causal means without it", ask)
    ask = shaped((6, L, E), (2, S, E), options=options | GROUPED)
    yield Case("bottom-right", "6 query heads, 2 key heads", ask, ("groups",))


def windows() -> Iterator[Case]:
    """Yield the cases of the topic windows."""
    for align, is_causal, window in product(("top-left", "bottom-right"), (False, True), WINDOWS):
        needs = ("causal",) * is_causal + ("bottom-right",) * (align == "bottom-right")
        options: dict[str, Any] = {"window": window} | (CAUSAL if is_causal else {})
        options |= BOTTOM_RIGHT if align == "bottom-right" else {}
        for n_queries, n_keys in ((5, 7), (7, 5), (1, 11), (11, 1), (79, 83)):
            if not no_row_is_empty(n_queries, n_keys, options):
                continue
            words = [f"window={window}", align, *["causal"] * is_causal]
            name = f"{', '.join(words)}, queries: {n_queries}, keys: {n_keys}"
            yield Case("windows", name, heads(n_queries, n_keys, options), needs)
    ask = shaped((6, L, E), (2, S, E), options={"window": (2, 0)} | GROUPED)
    yield Case("windows", "a window for 6 query heads and 2 key heads", ask, ("groups",))
    yield Case("windows", "a window beside a boolean mask", _window_and_mask, ("masks",))


def _window_and_mask(dtype: str) -> Asked:
    mask = some((B, H, L, S)) | np.eye(L, S, dtype=bool)
    return Asked(qkv(dtype) | {"attn_mask": Given(mask, "bool")}, {"window": (2, 1)})


def groups() -> Iterator[Case]:
    """Yield the cases of the topic groups."""
    for n_key_heads, is_causal in product((1, 2, 3, 6), (False, True)):
        options = GROUPED | (CAUSAL if is_causal else {})
        name = f"6 query heads, {n_key_heads} of key and value" + ", causal" * is_causal
        query, key, value = (B, 6, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V)
        one = (*value[:-1], E)
        needs = ("causal",) * is_causal
        yield Case("groups", name, shaped(query, one, one, options), needs)
        ask = shaped(query, key, value, options)
        yield Case("groups", f"{name}, one key for the batch", ask, needs)
        ask = shaped((6, L, E), (n_key_heads, S, E), options=options)
        yield Case("groups", f"{name}, without a batch", ask, needs)
    for n_key_heads, shape in product((1, 2, 6), ((6, 1, S), (6, L, S), (L, S), (S,))):
        name = f"6 query heads, {n_key_heads} of key and value, a mask {shape}"
        yield Case("groups", name, _grouped_with_mask(n_key_heads, shape), ("masks",))
    for n_key_heads in (1, 2, 5):
        ask = shaped((0, L, E), (n_key_heads, S, E), options=GROUPED)
        name = f"no query heads, {n_key_heads} of key and value"
        yield Case("groups", name, ask, ("empty",))


def _grouped_with_mask(n_key_heads: int, shape: Shape) -> Ask:
    def ask(dtype: str) -> Asked:
        given = qkv(dtype, (6, L, E), (n_key_heads, S, E))
        return Asked(given | {"attn_mask": Given(some(shape), "bool")}, dict(GROUPED))

    return ask
