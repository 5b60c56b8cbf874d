"""Cases of the topics masks, causal, bottom-right and windows: which keys a query may see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attncheck._calls import E_V, NOT_FLOAT16, B, Call, Case, Draw, E, Given, H, L, S, Setting
from attncheck._definition import allowed_keys
from attncheck._draws import case, changed, heads, qkv, random_bias, random_mask, shaped, with_mask
from attncheck._shapes import SCALES, TILES, of_shapes
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, HALF, Array, Shape

MASK_SHAPES: list[Shape] = [
    (S,), (1, S), (L, 1), (L, S), (H, L, S), (B, 1, 1, S), (B, 1, L, S), (B, H, L, S), (1, 1, 1, 1),
]
WINDOWS = [(0, 0), (2, 1), (None, 1), (3, None), (None, None), (20, 20), (1, 0), (70, 3)]


def masks() -> Iterator[Case]:
    """Yield the cases of the topic masks. Every row keeps a key: see the topic empty."""
    for shape in MASK_SHAPES:
        name = f"a boolean mask {shape}, True takes part"
        yield case(name, with_mask(random_mask(shape)), everywhere=True)
        added = random_bias(shape)
        name = f"a floating mask {shape} is added to the scaled scores"
        yield case(name, with_mask(added), everywhere=True)
        name = f"a float32 mask {shape} beside half precision"
        yield case(name, with_mask(added, "float32"), dtypes=HALF)
    removed = random_bias((H, L, S), random_mask((H, L, S)))
    yield case("-∞ in a floating mask removes", with_mask(removed), everywhere=True)
    yield case("the last key is removed for every query", with_mask(_without_the_last))
    hidden = np.arange(S) >= np.minimum(np.arange(L), 3)[:, None]
    yield case("the first keys are removed", with_mask(hidden))
    draw = with_mask(random_mask((L, S)), value=(B, H, S, E_V))
    yield case("a mask, and a value with features of its own", draw)
    draw = with_mask(random_mask((B, 1, L, S)), "", (L, E), (S, E), (B, H, S, E_V))
    yield case("a mask with the batch that only the value has", draw)
    allowed = np.arange(70) >= np.array([[0], [3], [40], [64], [69]])
    for low in (-1e9, -3e38):
        name = f"70 keys, of which {low:g} in a floating mask hides the first"
        yield case(name, _as_if_removed(allowed, low), dtypes=NOT_FLOAT16)
    # Tiles of 16 to 128 keys in which no query sees a key come before those in which one does.
    late = np.broadcast_to(np.arange(131) >= 129, (L, 131))
    for kind, mask in (("boolean", late), ("floating", np.where(late, 0.0, -np.inf))):
        draw = with_mask(mask, "", (1, B, L, E), (1, B, 131, E))
        name = f"131 keys, of which a {kind} mask removes the first 129"
        yield case(name, draw, everywhere=True)
    draw = with_mask(random_mask((B, 1, 8, 131)), "", (B, H, 8, E), (B, H, 131, E))
    yield case("a boolean mask beyond a tile", draw, everywhere=True)


def _without_the_last(setting: Setting) -> Array:
    hidden = random_mask((L, S))(setting)
    hidden[:, -1] = False
    return hidden


def _as_if_removed(allowed: Array, low: float) -> Draw:
    """Return the function that draws a call with a mask of 0 and `low`, as padding often has it."""
    key = (1, B, allowed.shape[-1], E)
    draw = with_mask(np.where(allowed, 0.0, low), "", (1, B, L, E), key, key)
    return changed(draw, meant={"attn_mask": allowed})


def causal() -> Iterator[Case]:
    """Yield the cases of the topic causal."""
    for name, draw, everywhere in of_shapes(CAUSAL, [(131, 149), (149, 131)], [*TILES, (70, 70)]):
        yield case(name, draw, everywhere=everywhere and name.startswith("queries"))
    for scale in SCALES:
        yield case(f"scale={scale}", heads(options=CAUSAL | {"scale": scale}))


def bottom_right() -> Iterator[Case]:
    """Yield the cases of the topic bottom-right."""
    options = CAUSAL | BOTTOM_RIGHT
    lengths = [(1, 1), (1, 7), (2, 7), (5, 7), (7, 7), (7, 17), (131, 149)]
    tiles = [(1, 70), (8, 70), (8, 131)]
    for n_queries, n_keys in lengths + tiles:
        draw = heads(n_queries, n_keys, options)
        name = f"queries: {n_queries}, keys: {n_keys}"
        yield case(name, draw, everywhere=(n_queries, n_keys) in tiles)
    yield case("head dimensions that differ", shaped(options=options))
    draw = shaped(options=BOTTOM_RIGHT)
    yield case("without is_causal an alignment changes nothing", draw)
    draw = shaped(options=CAUSAL | {"causal_align": "top-left"})
    yield case("top-left is what is_causal means without it", draw)
    draw = shaped((6, L, E), (2, S, E), options=options | GROUPED)
    yield case("6 query heads, 2 key heads", draw, "groups")


def windows() -> Iterator[Case]:
    """Yield the cases of the topic windows."""
    for align, is_causal, window in product(("top-left", "bottom-right"), (False, True), WINDOWS):
        needs = ("causal",) * is_causal + ("bottom-right",) * (align == "bottom-right")
        options: dict[str, Any] = {"window": window} | (CAUSAL if is_causal else {})
        options |= BOTTOM_RIGHT if align == "bottom-right" else {}
        said = ", ".join([f"window={window}", align, *["causal"] * is_causal])
        for n_queries, n_keys in ((5, 7), (7, 5), (1, 11), (11, 1), (79, 83)):
            allowed = allowed_keys(n_queries, n_keys, **options)
            # What gives empty rows is in the topic empty.
            if allowed is None or allowed.any(axis=-1).all():
                name = f"{said}, queries: {n_queries}, keys: {n_keys}"
                yield case(name, heads(n_queries, n_keys, options), *needs)
    draw = shaped((6, L, E), (2, S, E), options={"window": (2, 0)} | GROUPED)
    yield case("a window for 6 query heads and 2 key heads", draw, "groups")
    yield case("a window beside a boolean mask", _window_and_mask, "masks")
    for window in ((3, 0), (20, 3), (1, None)):
        draw = heads(70, 70, {"window": window})
        yield case(f"window={window}, 70 queries and keys", draw, everywhere=True)
    draw = heads(8, 131, {"window": (20, 0), **BOTTOM_RIGHT})
    name = "window=(20, 0), bottom-right, queries: 8, keys: 131"
    yield case(name, draw, "bottom-right", everywhere=True)


def _window_and_mask(setting: Setting) -> Call:
    mask = random_mask((B, H, L, S))(setting) | np.eye(L, S, dtype=bool)
    return Call(qkv(setting) | {"attn_mask": Given(mask, "bool")}, {"window": (2, 1)})
