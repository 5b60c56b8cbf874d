"""How most cases are made: their calls are drawn by shapes, with random masks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from attncheck._calls import E_V, Axes, B, Call, Case, Draw, E, Given, H, L, S, Setting, rounded
from attncheck._types import Array, Shape

Mask = Array | Callable[[Setting], Array]


def case(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
    """Return a case by its name, its draw and the topics that it needs; `_table` adds its own."""
    return Case("", name, draw, needs, **more)


def changed(draw: Draw, **fields: Any) -> Draw:
    """Return the function that draws the same call with other fields."""
    return lambda setting: replace(draw(setting), **fields)


def words(axes: Axes) -> str:
    """Return axes as a reader writes them.

    >>> words((5, E)), words((7,))
    ('(5, E)', '(7,)')
    """
    return f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"


def random_mask(shape: Shape) -> Callable[[Setting], Array]:
    """Return what draws a boolean mask that removes two keys of five; rows keep the first one."""

    def draw(setting: Setting) -> Array:
        mask: Array = np.random.default_rng([setting.seed, 3]).random(shape) < 0.6
        mask[..., 0] = True
        return mask

    return draw


def random_bias(shape: Shape, kept: Mask | None = None) -> Callable[[Setting], Array]:
    """Return what draws a floating mask, with -∞ where a boolean one removes."""

    def draw(setting: Setting) -> Array:
        (added,) = setting.drawn(shape, dtype="float64", salt=4)
        return added if kept is None else np.where(masked(kept, setting), added, -np.inf)

    return draw


def masked(mask: Mask, setting: Setting) -> Array:
    """Return a mask for a setting."""
    return mask(setting) if callable(mask) else mask


def inputs(setting: Setting, query: Array, key: Array, value: Array) -> dict[str, Given]:
    """Return numbers as query, key and value of the setting's dtype."""
    arrays = {"query": query, "key": key, "value": value}
    return {name: Given(numbers, setting.dtype) for name, numbers in arrays.items()}


def qkv(
    setting: Setting, query: Axes = (B, H, L, E), key: Axes = (B, H, S, E),
    value: Axes | None = None,
) -> dict[str, Given]:
    """Return query, key and value of these shapes; the value's last axis has its own length."""
    value = (*key[:-1], E_V) if value is None else value
    return inputs(setting, *setting.drawn(query, key, setting.value(value)))


def shaped(
    query: Axes = (B, H, L, E), key: Axes = (B, H, S, E), value: Axes | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Draw:
    """Return the function that draws a call of these shapes, with these options."""
    return lambda setting: Call(qkv(setting, query, key, value), dict(options))


def heads(
    n_queries: int = L, n_keys: int = S, options: Mapping[str, Any] = MappingProxyType({})
) -> Draw:
    """Return the function that draws a call as most kernels take it: batch, heads, one E."""
    query, key = (1, B, n_queries, E), (1, B, n_keys, E)
    return shaped(query, key, key, options)


def with_mask(
    mask: Mask, mask_dtype: str = "", query: Axes = (B, H, L, E), key: Axes = (B, H, S, E),
    value: Axes | None = None, options: Mapping[str, Any] = MappingProxyType({}),
) -> Draw:
    """Return the function that draws a call with this mask, of the inputs' dtype or of its own."""

    def draw(setting: Setting) -> Call:
        numbers = masked(mask, setting)
        kind = "bool" if numbers.dtype == np.bool_ else mask_dtype or setting.dtype
        own = numbers if kind == "bool" else rounded(numbers, kind)
        given = qkv(setting, query, key, key if value is None else value)
        return Call(given | {"attn_mask": Given(own, kind)}, dict(options))

    return draw
