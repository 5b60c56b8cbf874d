"""Cases of the topic layouts: how arrays lie in memory, and whose memory a result has.

Each layout is a function that returns an equal array that lies otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncheck._calls import E_V, B, Call, Case, Draw, E, Given, H, L, Layout, S, Setting
from attncheck._draws import case, changed, heads, qkv, random_bias, random_mask, shaped, with_mask
from attncheck._types import CAUSAL, Array


def heads_inside(array: Array) -> Array:
    """(…, H, L, E), in memory (…, L, H, E): what splitting a projection into heads gives."""
    return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)


def transposed(array: Array) -> Array:
    """(…, L, E), in memory (…, E, L)."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def strided(array: Array) -> Array:
    """Every third number of a longer array."""
    holder = np.full((*array.shape[:-1], 3 * array.shape[-1]), 1, dtype=array.dtype)
    holder[..., ::3] = array
    view: Array = holder[..., ::3]
    return view


def shifted(array: Array) -> Array:
    """The second half of a longer array: it does not begin where its memory begins."""
    holder = np.full((2, *array.shape), 1, dtype=array.dtype)
    holder[1] = array
    second: Array = holder[1]
    return second


def read_only(array: Array) -> Array:
    """An array that refuses to be written to."""
    array = array.copy()
    array.flags.writeable = False
    return array


def backwards(array: Array) -> Array:
    """The last two axes run backwards through memory: strides below 0, as only NumPy has them."""
    view: Array = np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    return view


def unaligned(array: Array) -> Array:
    """An array that begins at an odd byte, as only NumPy has it."""
    raw = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:]
    view: Array = np.ndarray(array.shape, array.dtype, buffer=raw.data)
    view[...] = array
    return view


def expanded(*axes: int) -> Layout:
    """Return the layout that has stride 0 along these axes, where all numbers must be equal."""

    def expanded(array: Array) -> Array:
        first = tuple(
            slice(1) if n - array.ndim in axes else slice(None) for n in range(array.ndim)
        )
        return np.broadcast_to(array[first].copy(), array.shape)

    return expanded


LAYOUTS: list[Layout] = [heads_inside, transposed, strided, shifted, read_only]
ONLY_NUMPY_HAS: list[Layout] = [backwards, unaligned]


def said(layout: Layout | None) -> str:
    """Return a layout in words."""
    return "contiguous" if layout is None else layout.__name__.replace("_", " ")


def layouts() -> Iterator[Case]:
    """Yield the cases of the topic layouts."""
    yield case("contiguous inputs", laid_out(None), everywhere=True)
    yield case("one key, whose value is the result", changed(heads(L, 1), watched=True))
    draw = changed(shaped(options=CAUSAL), watched=True)
    yield case("contiguous inputs, causal", draw, "causal")
    for layout in (None, *LAYOUTS, *ONLY_NUMPY_HAS):
        name = f"{said(layout)} inputs"
        kinds = ("numpy",) if layout in ONLY_NUMPY_HAS else ("numpy", "torch")
        if layout is not None:
            everywhere = layout in (heads_inside, transposed)
            yield case(name, laid_out(layout), kinds=kinds, everywhere=everywhere)
        for mask_kind, drawing in (("boolean", random_mask), ("floating", random_bias)):
            draw = laid_out(layout, drawing((B, H, L, S)))
            yield case(f"{name} and a {mask_kind} mask", draw, "masks", kinds=kinds)
    yield case("expanded inputs, with strides of 0", _expanded)
    yield case("an expanded mask", _expanded_mask, "masks")


def laid_out(layout: Layout | None, mask: Any = None) -> Draw:
    """Return the function that draws a call whose arguments lie so, and which is looked at."""
    draw = shaped() if mask is None else with_mask(mask)

    def lay(setting: Setting) -> Call:
        call = draw(setting)
        given = {name: own._replace(layout=layout) for name, own in call.given.items()}
        return replace(call, given=given, watched=True)

    return lay


def _expanded(setting: Setting) -> Call:
    """The query is alike for all heads, the key for all tokens, the value in all features."""
    query, key, value = setting.drawn((L, E), (1, E), (S, 1))
    given = {}
    for name, few, axes, alike in (
        ("query", query, (B, H, L, E), (-4, -3)),
        ("key", key, (B, H, S, E), (-4, -3, -2)),
        ("value", value, (B, H, S, E_V), (-4, -3, -1)),
    ):
        numbers = np.broadcast_to(few, setting.shape(axes))
        given[name] = Given(numbers, setting.dtype, expanded(*alike))
    return Call(given, watched=True)


def _expanded_mask(setting: Setting) -> Call:
    mask = np.broadcast_to(random_mask((S,))(setting), (B, H, L, S))
    own = Given(mask, "bool", expanded(-4, -3, -2))
    return Call(qkv(setting) | {"attn_mask": own}, watched=True)
