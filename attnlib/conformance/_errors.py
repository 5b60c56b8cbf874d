"""Cases of the topic errors: invalid calls, which a kernel must refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attnlib._checks import Shape
from attnlib.conformance._calls import E_V, B, Call, Case, E, Given, H, L, S, qkv, random_mask

SHAPES: dict[str, tuple[Shape, Shape, Shape]] = {
    "query and key have other head dimensions": ((1, H, L, E), (1, H, S, E + 1), (1, H, S, E)),
    "the value is shorter than the key": ((1, H, L, E), (1, H, S, E), (1, H, S - 1, E)),
    "the value is longer than the key": ((1, H, L, E), (1, H, S, E), (1, H, S + 1, E)),
    "the value has one token, the key has more": ((1, H, L, E), (1, H, S, E), (1, H, 1, E)),
    "lengths that differ, without a batch": ((L, E), (S, E), (S + 1, E_V)),
    "batches that do not broadcast": ((B, H, L, E), (B + 1, H, S, E), (B + 1, H, S, E_V)),
    "heads that do not broadcast, without enable_gqa": ((6, L, E), (2, S, E), (2, S, E_V)),
    "a query of rank 1": ((E,), (S, E), (S, E_V)),
    "a key of rank 1": ((L, E), (E,), (S, E_V)),
    "a value of rank 1": ((L, E), (S, E), (S,)),
}
GROUPS: dict[str, tuple[Shape, Shape, Shape]] = {
    "4 key heads for 6 query heads": ((6, L, E), (4, S, E), (4, S, E_V)),
    "other numbers of heads in key and value": ((6, L, E), (3, S, E), (2, S, E_V)),
    "more key heads than query heads": ((2, L, E), (6, S, E), (6, S, E_V)),
}
MASKS: dict[str, Shape] = {
    "a mask with a key too many": (L, S + 1),
    "a mask with a query too few": (L - 1, S),
    "a mask for other heads": (H + 1, L, S),
    "a mask with a batch that query, key and value lack": (3, B, H, L, S),
}


def errors() -> Iterator[Case]:
    """Yield the cases of the topic errors."""
    for name, shapes in SHAPES.items():
        yield _refused(name, _shaped(shapes))
    for name, shapes in GROUPS.items():
        yield _refused(name, _shaped(shapes), "groups", enable_gqa=True)
    for name, shape in MASKS.items():
        yield _refused(name, _masked(shape), "masks")
    yield _refused("a mask of integers", _masked((L, S), "int64"), "masks")
    name = "a mask and is_causal together"
    yield _refused(name, _masked((L, S)), "masks", "causal", is_causal=True)
    yield _refused("inputs of integers", _of_another_dtype("int64", "query", "key", "value"))
    for argument in ("query", "key", "value"):
        name = f"a {argument} of another dtype than the others"
        yield _refused(name, _of_another_dtype("", argument))
    for scale in (float("nan"), float("inf")):
        yield _refused(f"scale={scale}", qkv, scale=scale)


DrawGiven = Callable[[str], dict[str, Given]]


def _refused(name: str, draw_given: DrawGiven, *needs: str, **options: Any) -> Case:
    return Case("errors", name, lambda dtype: Call(draw_given(dtype), options, refused=True), needs)


def _shaped(shapes: tuple[Shape, Shape, Shape]) -> DrawGiven:
    return lambda dtype: qkv(dtype, *shapes)


def _masked(shape: Shape, mask_dtype: str = "bool") -> DrawGiven:
    shapes = (B, H, L, E), (B, H, S, E), (B, H, S, E)
    return lambda dtype: qkv(dtype, *shapes) | {"attn_mask": Given(random_mask(shape), mask_dtype)}


def _of_another_dtype(other: str, *names: str) -> DrawGiven:
    """Return the function that draws a call in which these arguments have another dtype."""

    def draw_given(dtype: str) -> dict[str, Given]:
        kind = other or ("float32" if dtype == "float64" else "float64")
        given = qkv(dtype)
        return given | {name: Given(np.round(given[name].numbers), kind) for name in names}

    return draw_given
