"""Cases of the topics layouts and dtypes: how numbers lie in memory, and their precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnlib._checks import HALF
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
    Layout,
    S,
    drawn,
    heads,
    qkv,
    shaped,
    some,
)
from attnlib.conformance._layouts import LAYOUTS, ONLY_NUMPY_HAS, expanded
from attnlib.conformance._values import with_mask


def layouts() -> Iterator[Case]:
    """Yield the cases of the topic layouts."""
    yield Case("layouts", "contiguous inputs", _laid_out(None))
    yield Case("layouts", "one key, whose value is the result", _watched(heads(L, 1)))
    ask = _watched(shaped(options={"is_causal": True}))
    yield Case("layouts", "contiguous inputs, causal", ask, ("causal",))
    for layout in (None, *LAYOUTS, *ONLY_NUMPY_HAS):
        name = f"{_words(layout)} inputs"
        kinds = ("numpy",) if layout in ONLY_NUMPY_HAS else ("numpy", "torch")
        if layout is not None:
            yield Case("layouts", name, _laid_out(layout), kinds=kinds)
        for additive in (False, True):
            ask = _laid_out(layout, _mask(additive))
            named = f"{name} and a {'floating' if additive else 'boolean'} mask"
            yield Case("layouts", named, ask, ("masks",), kinds=kinds)
    yield Case("layouts", "expanded inputs, with strides of 0", _expanded)
    yield Case("layouts", "an expanded mask", _expanded_mask, ("masks",))


def _words(layout: Layout | None) -> str:
    return "contiguous" if layout is None else layout.__name__.replace("_", " ")


def _mask(additive: bool) -> Any:
    return drawn((B, H, L, S), seed=3)[0] if additive else some((B, H, L, S))


def _watched(ask: Ask) -> Ask:
    """Return the function that draws the same call, whose inputs and memory are looked at."""
    return lambda dtype: replace(ask(dtype), watched=True)


def _laid_out(layout: Layout | None, mask: Any = None) -> Ask:
    ask = _watched(shaped() if mask is None else with_mask(mask))

    def lay(dtype: str) -> Asked:
        asked = ask(dtype)
        given = {name: own._replace(layout=layout) for name, own in asked.given.items()}
        return replace(asked, given=given)

    return lay


def _expanded(dtype: str) -> Asked:
    """The query is alike for all heads, the key for all tokens, the value in all features."""
    query, key, value = drawn((L, E), (1, E), (S, 1), dtype=dtype)
    given = {
        "query": Given(np.broadcast_to(query, (B, H, L, E)), dtype, expanded(-4, -3)),
        "key": Given(np.broadcast_to(key, (B, H, S, E)), dtype, expanded(-4, -3, -2)),
        "value": Given(np.broadcast_to(value, (B, H, S, E_V)), dtype, expanded(-4, -3, -1)),
    }
    return Asked(given, watched=True)


def _expanded_mask(dtype: str) -> Asked:
    mask = Given(np.broadcast_to(some((S,)), (B, H, L, S)), "bool", expanded(-4, -3, -2))
    return Asked(qkv(dtype) | {"attn_mask": mask}, watched=True)


def dtypes() -> Iterator[Case]:
    """Yield the cases of the topic dtypes, which is asked in every dtype unless told otherwise."""
    yield Case("dtypes", "a batch of heads", shaped())
    yield Case("dtypes", "causal", shaped(options={"is_causal": True}), ("causal",))
    yield Case("dtypes", "a boolean mask", with_mask(some((B, H, L, S))), ("masks",))
    (added,) = drawn((B, H, L, S), seed=3)
    yield Case("dtypes", "a floating mask", with_mask(added), ("masks",))
    name = "a float32 mask beside half precision"
    yield Case("dtypes", name, with_mask(added, "float32"), ("masks",), dtypes=HALF)
    ask = shaped((6, L, E), (2, S, E), options={"enable_gqa": True})
    yield Case("dtypes", "6 query heads, 2 key heads", ask, ("groups",))
    yield Case("dtypes", "one head dimension for all", heads())
    yield Case("dtypes", "scale=-0.7", heads(options={"scale": -0.7}))
    yield Case("dtypes", "131 queries and 149 keys", heads(131, 149))
    name = "a score of 780,000, beyond the largest float16"
    yield Case("dtypes", name, _beyond_float16)
    name = "4,096 equal weights add up in float32"
    yield Case("dtypes", name, _many_equal_weights, dtypes=HALF)


def _beyond_float16(dtype: str) -> Asked:
    query, key, value = (
        np.full((1, 1, 1, E), 200.0),
        np.full((1, 1, 1, E), 300.0),
        np.ones((1, 1, 1, E)),
    )
    given = {
        name: Given(x, dtype)
        for name, x in zip(("query", "key", "value"), (query, key, value), strict=True)
    }
    return Asked(given, {"scale": 1.0}, truth=value, peer=value, size=8.0)


def _many_equal_weights(dtype: str) -> Asked:
    """In half precision a sum of small terms stops growing, at 256 or at 2,048 times a term.

    The number of keys is a power of 2, so that half precision can hold the weights: a kernel that
    rounds them, and adds them up in float32, is right to the last bit.
    """
    n_keys = 4096
    value = np.repeat([0.0, 1.0], n_keys // 2)[None, None, :, None] * np.ones(3)
    given = {
        "query": Given(np.zeros((1, 1, 1, 3)), dtype),
        "key": Given(np.ones((1, 1, n_keys, 3)), dtype),
        "value": Given(value, dtype),
    }
    half = np.full((1, 1, 1, 3), 0.5)
    return Asked(given, truth=half, peer=half)
