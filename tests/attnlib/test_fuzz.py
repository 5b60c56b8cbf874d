"""Whole calls that nobody thought of: shapes that broadcast, masks and groups, sizes of blocks.

What is refused is in test_errors, and numbers that are not finite are in test_cases. With
HYPOTHESIS_PROFILE=long it draws other and many more examples than in `make test`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from claims import hold
from hypothesis import given, settings
from hypothesis import strategies as st
from implementations import DTYPES, IMPLEMENTATIONS, Implementation, on
from inputs import drawn
from parameters import slow
from tolerance import call_of

Shape = tuple[int, ...]
SIZES = st.sampled_from([1, 2, 3, 5, 7, 0])
BLOCKS = {  # what a form is asked for beside the common options
    "numpy_blockwise": {"block_size": [1, 2, 3, 100]},
    "torch_blockwise": {"block_size_q": [1, 2, 3, 100], "block_size_k": [1, 2, 3, 100]},
    "torch_decoding": {"block_size_k": [1, 2, 3, 100]},
    "torch_ring": {"n_devices": [1, 2, 3, 5], "balance": ["zigzag", "contiguous"]},
}


@st.composite
def part_of(draw: st.DrawFn, shape: Shape) -> Shape:
    """Return a shape that broadcasts to this one."""
    shape = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else n for n in shape)


@st.composite
def asked(draw: st.DrawFn, form: Implementation) -> tuple[Implementation, Any]:
    """Draw a call, and the form with sizes of blocks."""
    n_queries, n_keys, n_features, n_values = (draw(SIZES) for _ in range(4))
    batch = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2)))
    heads: tuple[Shape, Shape] = ((), ())
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        n_key_heads, group = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        heads = (n_key_heads * group,), (n_key_heads,)
        options["enable_gqa"] = True
    own = [draw(part_of(batch)) for _ in range(3)]
    shapes = [
        (*own[0], *heads[0], n_queries, n_features), (*own[1], *heads[1], n_keys, n_features),
        (*own[2], *heads[1], n_keys, n_values),
    ]
    dtype = draw(st.sampled_from(list(DTYPES)))
    masked = draw(st.sampled_from(["no", "causal", "boolean", "floating", "narrow"]))
    if masked == "causal":
        options["is_causal"] = True
    elif masked != "no":
        whole = (*np.broadcast_shapes(*own), *heads[0], n_queries, n_keys)
        shapes.append(draw(part_of(whole)) or (1,))
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.0, -0.7, 2, 0.3]))
    arrays = drawn(*shapes, dtype=dtype, seed=draw(st.integers(0, 2**16)))
    for mask in arrays[3:]:
        kept = mask > -0.5
        floating = np.where(kept, mask, np.asarray(-np.inf, mask.dtype))
        narrow = floating.astype("float32")
        arrays[3] = {"boolean": kept, "floating": floating, "narrow": narrow}[masked]
    sizes = {n: draw(st.sampled_from(values)) for n, values in BLOCKS.get(form.name, {}).items()}
    chosen = {name: size for name, size in sizes.items() if draw(st.booleans())}
    return replace(form, blocks=tuple(chosen.items())), call_of(*arrays, **options)


# Of the examples a third are drawn on each change; the others follow them. In an interpreter there
# are a twentieth.
@pytest.mark.parametrize("part", [3, slow(1)], ids=["a third", "all"])
@on(form for form in IMPLEMENTATIONS if not form.blocks)
def test_every_call_is_right(form: Implementation, part: int) -> None:
    n = 3 * settings.default.max_examples // part  # type: ignore[union-attr]

    @settings(max_examples=max(8, n // 20) if form.is_interpreted else n)
    @given(call=asked(form))
    def right(call: tuple[Implementation, Any]) -> None:
        hold(*call)

    right()
