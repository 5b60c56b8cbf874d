"""Cases of the topics gradients and mask gradients, for kernels on tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncheck._calls import E_V, B, Call, Case, Draw, E, Given, H, L, Layout, S, Setting
from attncheck._draws import Mask, case, heads, random_bias, random_mask, shaped, with_mask
from attncheck._dtypes import bad_removed_keys, with_bad_number
from attncheck._layouts import LAYOUTS, expanded, heads_inside, laid_out, said, transposed
from attncheck._masks import MASK_SHAPES
from attncheck._shapes import EMPTY_AXES, LARGE_SCORES, TWO_EMPTY_ROWS, of_shapes, without_length
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, HALF

EXPANDED = [(-4, -3, -2, -1), (-1,), (-4, -3), (-2,)]


def with_upstream(draw: Draw, layout: Layout | None = None, **more: Any) -> Draw:
    """Return the function that draws the same call, and a gradient of its output.

    A layout with strides of 0 makes numbers of the gradient equal.
    """

    def drawing(setting: Setting) -> Call:
        call = draw(setting)
        shapes = [own.numbers.shape for own in call.given.values()]
        leading = [shape[:-2] for shape in shapes[:3]]
        if "enable_gqa" in call.options:
            leading = [leading[0], *((*shape[:-1], 1) for shape in leading[1:])]
        shape = (*np.broadcast_shapes(*leading), shapes[0][-2], shapes[2][-1])
        (upstream,) = setting.drawn(shape, salt=11)
        upstream = upstream if layout is None else layout(upstream)
        return replace(call, upstream=Given(upstream, setting.dtype, layout), **more)

    return drawing


def graded(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
    """Return a case that asks for gradients, which only tensors have."""
    return case(name, with_upstream(draw), *needs, kinds=("torch",), **more)


def gradients() -> Iterator[Case]:
    """Yield the cases of the topic gradients."""
    for is_causal in (False, True):
        options: dict[str, Any] = CAUSAL if is_causal else {}
        end, needs = ", causal" * is_causal, ("causal",) * is_causal
        for name, draw, everywhere in of_shapes(options, [(67, 71), (71, 67)]):
            name = f"{name.replace('broadcast', 'broadcast gather')}{end}"
            yield graded(name, draw, *needs, everywhere=everywhere)
        for scale in (0.0, -0.7, 2, 3.5):
            draw = heads(options={"scale": scale} | options)
            yield graded(f"scale={scale}{end}", draw, *needs)
        for n_key_heads in (1, 2, 3, 6):
            shapes = (B, 6, L, E), (1, n_key_heads, S, E), (B, n_key_heads, S, E_V)
            draw = shaped(*shapes, GROUPED | options)
            name = f"6 query heads, {n_key_heads} of key and value{end}"
            yield graded(name, draw, *needs, "groups")
        draw = shaped((B, 6, L, E), (B, 2, S, E), (B, 2, S, E), GROUPED | options)
        name = f"6 query heads, 2 of key and value in each batch{end}"
        yield graded(name, draw, *needs, "groups", everywhere=True)
        for name in EMPTY_AXES:
            draw, own_dims = without_length(name, options)
            yield graded(f"{name}{end}", draw, *needs, "empty", any_dims=own_dims)
    for name, draw in LARGE_SCORES.items():
        yield graded(name, draw, dtypes=("float32", "float64"))
    for where in ("query", "key", "value"):
        draw = with_bad_number(where, np.nan)
        yield graded(f"NaN in one number of the {where} comes out", draw, "numbers")
    for bad in (np.nan, np.inf):
        name = f"{bad} in keys and values that are removed changes nothing"
        yield graded(name, bad_removed_keys(bad), "masks", "numbers")
    yield from _masked()
    yield from _by_position()
    yield from _laid_out()


def _masked() -> Iterator[Case]:
    for shape in MASK_SHAPES:
        yield graded(f"a boolean mask {shape}", with_mask(random_mask(shape)), "masks")
        yield graded(f"a floating mask {shape}", with_mask(random_bias(shape)), "masks")
    for name, kept in (("two rows", TWO_EMPTY_ROWS), ("every row", TWO_EMPTY_ROWS & False)):
        draw = with_mask(kept)
        yield graded(f"a boolean mask removes {name}: zeros", draw, "masks", "empty")
        draw = with_mask(np.where(kept, 0.0, -np.inf))
        yield graded(f"a floating mask removes {name}: zeros", draw, "masks", "empty")


def _by_position() -> Iterator[Case]:
    for n_queries, n_keys in ((1, 7), (5, 7), (67, 71)):
        draw = heads(n_queries, n_keys, CAUSAL | BOTTOM_RIGHT)
        name = f"causal at the bottom right, queries: {n_queries}, keys: {n_keys}"
        yield graded(name, draw, "causal", "bottom-right")
    for window in ((0, 0), (2, 1), (None, 1), (1, None)):
        options: dict[str, Any] = {"window": window}
        yield graded(f"window={window}", heads(options=options), "windows")
        draw = heads(options=options | BOTTOM_RIGHT)
        yield graded(f"window={window}, bottom-right", draw, "windows", "bottom-right")
    draw = heads(67, 71, {"window": (20, 3)})
    yield graded("window=(20, 3), queries: 67, keys: 71", draw, "windows")
    draw = heads(70, 70, {"window": (20, 0)})
    yield graded("window=(20, 0), 70 queries and keys", draw, "windows", everywhere=True)


def _laid_out() -> Iterator[Case]:
    def own(name: str, draw: Draw, *needs: str, everywhere: bool = False) -> Case:
        return case(name, draw, "layouts", *needs, kinds=("torch",), everywhere=everywhere)

    for layout in LAYOUTS:
        everywhere = layout in (heads_inside, transposed)
        draw = with_upstream(laid_out(layout))
        yield own(f"{said(layout)} inputs", draw, everywhere=everywhere)
        for end, needs in (("", ()), (", causal", ("causal",))):
            draw = with_upstream(shaped(options=CAUSAL if end else {}), layout, watched=True)
            name = f"a gradient of the output that is {said(layout)}{end}"
            yield own(name, draw, *needs, everywhere=everywhere and not end)
    for axes in EXPANDED:
        strides = tuple(int(n - 4 not in axes) for n in range(4))
        name = f"a gradient of the output that is expanded, with strides of 0 where {strides} is 0"
        yield own(name, with_upstream(shaped(), expanded(*axes), watched=True))


def mask_gradients() -> Iterator[Case]:
    """Yield the cases of the topic mask gradients."""

    def own(name: str, mask: Mask, *needs: str, mask_dtype: str = "", **more: Any) -> Case:
        wanted = ("query", "key", "value", "attn_mask")
        draw = with_upstream(with_mask(mask, mask_dtype), wanted=wanted)
        return case(name, draw, "masks", *needs, kinds=("torch",), **more)

    for shape in MASK_SHAPES:
        added = random_bias(shape)
        yield own(f"a floating mask {shape}", added, everywhere=True)
        name = f"a float32 mask {shape} beside half precision"
        yield own(name, added, mask_dtype="float32", dtypes=HALF)
    removing = random_bias((B, H, L, S), random_mask((B, H, L, S)))
    yield own("where -∞ removes the gradient is 0", removing)
    yield own("two rows are removed", random_bias((B, H, L, S), TWO_EMPTY_ROWS), "empty")
