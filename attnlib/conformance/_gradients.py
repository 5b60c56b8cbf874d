"""Cases of the topics gradients and mask gradients, for kernels on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attnlib._checks import HALF, Array, Shape
from attnlib.conformance._calls import (
    E_V,
    B,
    Call,
    Case,
    Draw,
    E,
    Given,
    H,
    L,
    Layout,
    S,
    drawn,
    heads,
    qkv,
    random_mask,
    shaped,
    with_mask,
)
from attnlib.conformance._dtypes import bad_removed_keys, with_bad_number
from attnlib.conformance._layouts import LAYOUTS, expanded
from attnlib.conformance._masks import MASK_SHAPES
from attnlib.conformance._shapes import EMPTY_AXES, LEADING, LENGTHS, TWO_EMPTY_ROWS, large_scores

EXPANDED = [(-4, -3, -2, -1), (-1,), (-4, -3), (-2,)]


def with_upstream(draw: Draw, layout: Layout | None = None, **more: Any) -> Draw:
    """Return the function that draws the same call, and a gradient of its output."""

    def drawing(dtype: str) -> Call:
        call = draw(dtype)
        shapes = [own.numbers.shape for own in call.given.values()]
        leading = [shape[:-2] for shape in shapes[:3]]
        if "enable_gqa" in call.options:
            leading = [leading[0], *((*shape[:-1], 1) for shape in leading[1:])]
        shape = (*np.broadcast_shapes(*leading), shapes[0][-2], shapes[2][-1])
        (upstream,) = drawn(shape, dtype=dtype, seed=11)
        return replace(call, upstream=Given(upstream, dtype, layout), **more)

    return drawing


def case(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
    """Return a case of the topic gradients, which only tensors have."""
    return Case("gradients", name, with_upstream(draw), needs, kinds=("torch",), **more)


def gradients() -> Iterator[Case]:
    """Yield the cases of the topic gradients."""
    for is_causal in (False, True):
        options: dict[str, Any] = {"is_causal": True} if is_causal else {}
        words, needs = ", causal" * is_causal, ("causal",) * is_causal
        batch: Shape
        for batch in ((), (B,), (B, H)):
            draw = shaped((*batch, L, E), (*batch, S, E), options=options)
            yield case(f"query {(*batch, L, E)}, key {(*batch, S, E)}{words}", draw, *needs)
        for n_queries, n_keys in (*product(LENGTHS, LENGTHS), (67, 71), (71, 67)):
            draw = heads(n_queries, n_keys, options)
            yield case(f"queries: {n_queries}, keys: {n_keys}{words}", draw, *needs)
        for query, key, value in LEADING:
            draw = shaped((*query, L, E), (*key, S, E), (*value, S, E_V), options)
            name = f"leading dimensions that broadcast gather: {query}, {key} and {value}{words}"
            yield case(name, draw, *needs)
        for scale in (0.0, -0.7, 2, 3.5):
            draw = heads(options={"scale": scale} | options)
            yield case(f"scale={scale}{words}", draw, *needs)
        for n_key_heads in (1, 2, 3, 6):
            shapes = (B, 6, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V)
            draw = shaped(*shapes, {"enable_gqa": True} | options)
            name = f"6 query heads, {n_key_heads} of key and value{words}"
            yield case(name, draw, *needs, "groups")
        for name, (batch, n_queries, n_keys, n_features, n_values) in EMPTY_AXES.items():
            query, key = (*batch, n_queries, n_features), (*batch, n_keys, n_features)
            draw = shaped(query, key, (*batch, n_keys, n_values), options)
            yield case(f"{name}{words}", draw, *needs, "empty")
    for sign, word in ((1, "above"), (-1, "below")):
        name = f"scores of ten thousand, all {word} 0"
        yield case(name, large_scores(sign), dtypes=("float32", "float64"))
    for where in ("query", "key", "value"):
        draw = with_bad_number(where, np.nan)
        yield case(f"NaN in one number of the {where} comes out", draw, "numbers")
    for bad in (np.nan, np.inf):
        name = f"{bad} in keys and values that are removed changes nothing"
        yield case(name, bad_removed_keys(bad), "masks", "numbers")
    yield from _masked()
    yield from _by_position()
    yield from _laid_out()


def _masked() -> Iterator[Case]:
    for shape in MASK_SHAPES:
        yield case(f"a boolean mask {shape}", with_mask(random_mask(shape)), "masks")
        (added,) = drawn(shape, seed=3)
        yield case(f"a floating mask {shape}", with_mask(added), "masks")
    for name, kept in (("two rows", TWO_EMPTY_ROWS), ("every row", TWO_EMPTY_ROWS & False)):
        draw = with_mask(kept)
        yield case(f"a boolean mask removes {name}: zeros", draw, "masks", "empty")
        draw = with_mask(np.where(kept, 0.0, -np.inf))
        yield case(f"a floating mask removes {name}: zeros", draw, "masks", "empty")


def _by_position() -> Iterator[Case]:
    bottom_right = {"causal_align": "bottom-right"}
    for n_queries, n_keys in ((1, 7), (5, 7), (67, 71)):
        draw = heads(n_queries, n_keys, {"is_causal": True} | bottom_right)
        name = f"causal at the bottom right, queries: {n_queries}, keys: {n_keys}"
        yield case(name, draw, "causal", "bottom-right")
    for window in ((0, 0), (2, 1), (None, 1), (1, None)):
        yield case(f"window={window}", heads(options={"window": window}), "windows")
        draw = heads(options={"window": window} | bottom_right)
        yield case(f"window={window}, bottom-right", draw, "windows", "bottom-right")
    draw = heads(67, 71, {"window": (20, 3)})
    yield case("window=(20, 3), queries: 67, keys: 71", draw, "windows")


def _laid_out() -> Iterator[Case]:
    def own(name: str, draw: Any, *needs: str) -> Case:
        return Case("gradients", name, draw, ("layouts", *needs), kinds=("torch",))

    for layout in LAYOUTS:
        words = layout.__name__.replace("_", " ")
        yield own(f"{words} inputs", with_upstream(_inputs(layout), watched=True))
        draw = with_upstream(shaped(), layout, watched=True)
        yield own(f"a gradient of the output that is {words}", draw)
        draw = with_upstream(shaped(options={"is_causal": True}), layout, watched=True)
        yield own(f"a gradient of the output that is {words}, causal", draw, "causal")
    for axes in EXPANDED:
        strides = tuple(int(n - 4 not in axes) for n in range(4))
        name = f"a gradient of the output that is expanded, with strides of 0 where {strides} is 0"
        yield own(name, _expanded(axes))


def _inputs(layout: Layout) -> Draw:
    return lambda dtype: Call(
        {name: own._replace(layout=layout) for name, own in qkv(dtype).items()}
    )


def _expanded(axes: tuple[int, ...]) -> Draw:
    draw = with_upstream(shaped(), watched=True)

    def lay(dtype: str) -> Call:
        call = draw(dtype)
        assert call.upstream is not None
        layout = expanded(*axes)
        return replace(call, upstream=Given(layout(call.upstream.numbers), dtype, layout))

    return lay


def mask_gradients() -> Iterator[Case]:
    """Yield the cases of the topic mask gradients."""

    def own(name: str, mask: Array, *needs: str, mask_dtype: str = "", **more: Any) -> Case:
        wanted = ("query", "key", "value", "attn_mask")
        draw = with_upstream(with_mask(mask, mask_dtype), wanted=wanted)
        return Case("mask gradients", name, draw, ("masks", *needs), kinds=("torch",), **more)

    for shape in MASK_SHAPES:
        (added,) = drawn(shape, seed=3)
        yield own(f"a floating mask {shape}", added)
        name = f"a float32 mask {shape} beside half precision"
        yield own(name, added, mask_dtype="float32", dtypes=HALF)
    (added,) = drawn((B, H, L, S), seed=3)
    removing = np.where(random_mask((B, H, L, S)), added, -np.inf)
    yield own("where -∞ removes the gradient is 0", removing)
    yield own("two rows are removed", np.where(TWO_EMPTY_ROWS, added, -np.inf), "empty")
