"""Cases of the topic errors: invalid calls, which a kernel must refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attncheck._calls import E_V, Axes, B, Call, Case, E, Given, H, L, S, Setting
from attncheck._draws import case, qkv, random_mask
from attncheck._types import CAUSAL, GROUPED, Shape

Shapes = tuple[Axes, Axes, Axes]
RIGHT: Shapes = (1, H, L, E), (1, H, S, E), (1, H, S, E)
WITHOUT_BATCH: Shapes = (L, E), (S, E), (S, E_V)
SHARED: Shapes = (6, L, E), (2, S, E), (2, S, E)
# What is wrong, and the shapes that are right.
SHAPES: dict[str, tuple[Shapes, Shapes]] = {
    "query and key have other head dimensions": (
        ((1, H, L, E), (1, H, S, "2E"), (1, H, S, E)), RIGHT),
    "the value is shorter than the key": (((1, H, L, E), (1, H, S, E), (1, H, S - 1, E)), RIGHT),
    "the value is longer than the key": (((1, H, L, E), (1, H, S, E), (1, H, S + 1, E)), RIGHT),
    "the value has one token, the key has more": (
        ((1, H, L, E), (1, H, S, E), (1, H, 1, E)), RIGHT),
    "lengths that differ, without a batch": (((L, E), (S, E), (S + 1, E_V)), WITHOUT_BATCH),
    "batches that do not broadcast": (
        ((B, H, L, E), (B + 1, H, S, E), (B + 1, H, S, E)),
        ((B, H, L, E), (B, H, S, E), (B, H, S, E))),
    "heads that do not broadcast, without enable_gqa": (
        ((6, L, E), (2, S, E), (2, S, E)), ((6, L, E), (6, S, E), (6, S, E))),
    "a query of rank 1": (((E,), (S, E), (S, E_V)), WITHOUT_BATCH),
    "a key of rank 1": (((L, E), (E,), (S, E_V)), WITHOUT_BATCH),
    "a value of rank 1": (((L, E), (S, E), (S,)), WITHOUT_BATCH),
}
OTHER_GROUPS: dict[str, Shapes] = {
    "4 key heads for 6 query heads": ((6, L, E), (4, S, E), (4, S, E)),
    "other numbers of heads in key and value": ((6, L, E), (3, S, E), (2, S, E)),
    "more key heads than query heads": ((2, L, E), (6, S, E), (6, S, E)),
}
MASKS: dict[str, Shape] = {
    "a mask with a key too many": (L, S + 1),
    "a mask with a query too few": (L - 1, S),
    "a mask for other heads": (H + 1, L, S),
    "a mask with a batch that query, key and value lack": (3, B, H, L, S),
}
DrawGiven = Callable[[Setting], dict[str, Given]]


def errors() -> Iterator[Case]:
    """Yield the cases of the topic errors.

    Each has a neighbour, the same call with one thing put right: a refusal counts only beside a
    neighbour that is accepted.
    """
    for name, (wrong, right) in SHAPES.items():
        yield _refused(name, _shaped(wrong), _shaped(right))
    for name, wrong in OTHER_GROUPS.items():
        draws = _shaped(wrong), _shaped(SHARED)
        yield _refused(name, *draws, "groups", options=GROUPED, right=GROUPED)
    masked = _masked((L, S))
    for name, shape in MASKS.items():
        yield _refused(name, _masked(shape), masked, "masks")
    yield _refused("a mask of integers", _masked((L, S), "int64"), masked, "masks")
    name = "a mask and is_causal together"
    yield _refused(name, masked, masked, "masks", "causal", options=CAUSAL)
    yield _refused("inputs of integers", _of_another_dtype("int64", "query", "key", "value"), qkv)
    for argument in ("query", "key", "value"):
        name = f"a {argument} of another dtype than the others"
        yield _refused(name, _of_another_dtype("", argument), qkv)
    for scale in (float("nan"), float("inf")):
        yield _refused(f"scale={scale}", qkv, qkv, options={"scale": scale}, right={"scale": 0.5})


def _refused(
    name: str, draw: DrawGiven, neighbour: DrawGiven, *needs: str,
    options: dict[str, Any] | None = None, right: dict[str, Any] | None = None,
) -> Case:
    def both(setting: Setting) -> Call:
        accepted = Call(neighbour(setting), right or {})
        return Call(draw(setting), options or {}, neighbour=accepted)

    return case(name, both, *needs)


def _shaped(shapes: Shapes) -> DrawGiven:
    return lambda setting: qkv(setting, *shapes)


def _masked(shape: Shape, mask_dtype: str = "bool") -> DrawGiven:
    shapes = (B, H, L, E), (B, H, S, E), (B, H, S, E)
    return lambda setting: (
        qkv(setting, *shapes) | {"attn_mask": Given(random_mask(shape)(setting), mask_dtype)}
    )


def _of_another_dtype(other: str, *names: str) -> DrawGiven:
    """Return the function that draws a call in which these arguments have another dtype."""

    def draw_given(setting: Setting) -> dict[str, Given]:
        kind = other or ("float32" if setting.dtype == "float64" else "float64")
        given = qkv(setting)
        return given | {name: Given(np.round(given[name].numbers), kind) for name in names}

    return draw_given
