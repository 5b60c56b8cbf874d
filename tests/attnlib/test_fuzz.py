"""Whole calls that nobody thought of: each is right, or raises a ValueError or a TypeError.

`Call.refusals` knows which shapes and dtypes the contract takes, `definition` what comes out; both
share no line with attnlib. Whatever comes out, a warning is an error. Odd options, and things that
are no arrays, are in test_errors; layouts in memory, and inputs that stay, in test_cases.

With HYPOTHESIS_PROFILE=long it draws other and many more examples than in `make test`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plain_torch
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from implementations import DTYPES, IMPLEMENTATIONS, Implementation, on
from numpy.typing import NDArray
from parameters import slow
from tolerance import HALF, assert_close, epsilon, forward_size, gradient_sizes, lse_size

Array = NDArray[Any]
Shape = tuple[int, ...]
Refusals = set[type[Exception]]

INPUTS = ("query", "key", "value")
COMMON = ("is_causal", "scale", "enable_gqa")
REFUSED = (ValueError, TypeError)


# Of the examples a third are drawn on each change; the others follow them.
in_parts = pytest.mark.parametrize("part", [3, slow(1)], ids=["a third", "all"])


def examples(times: int, part: int, interpreted: bool) -> Any:
    """Draw this many times the examples of the profile; in an interpreter a twentieth of them."""
    n = times * settings.default.max_examples // part  # type: ignore[union-attr]
    return settings(max_examples=max(8, n // 20) if interpreted else n)


# -- what a call comes down to ---------------------------------------------------------------------


def definition(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    removed_by_score: bool = False,
) -> tuple[Array, Array]:
    """Return output and log-sum-exp, with sums written out, in the widest floating numbers.

    A key that no mask removes takes part even with a score of -∞, so that a NaN or ∞ of its value
    comes out; if `removed_by_score`, it does not.
    """
    with np.errstate(all="ignore"):
        query, key, value = (np.asarray(x).astype(np.longdouble) for x in (query, key, value))
        attn_mask = None if attn_mask is None else np.asarray(attn_mask)
        if enable_gqa:
            group = query.shape[-3] // key.shape[-3]
            heads = np.arange(query.shape[-3]) // max(group, 1)
            key, value = key[..., heads, :, :], value[..., heads, :, :]
        if scale is None:
            scale = 1 / math.sqrt(query.shape[-1] or 1)
        scores = (query[..., :, None, :] * key[..., None, :, :]).sum(-1) * np.longdouble(scale)
        part = np.ones(scores.shape[-2:], dtype=bool)
        if is_causal:
            part = np.tri(*part.shape, dtype=bool)
        elif attn_mask is not None and attn_mask.dtype == bool:
            part = attn_mask
        elif attn_mask is not None:
            part = attn_mask.astype(np.longdouble) != -np.inf
            scores = scores + attn_mask.astype(np.longdouble)
        scores = np.where(part, scores, -np.inf)
        if removed_by_score:
            part = scores != -np.inf
        row_max = scores.max(-1, initial=-np.inf, keepdims=True)
        weights = np.exp(scores - np.where(row_max == -np.inf, 0, row_max))
        row_sum = weights.sum(-1, keepdims=True)
        terms = np.where(part[..., None], weights[..., None] * value[..., None, :, :], 0)
        output = terms.sum(-2) / np.where(row_sum == 0, 1, row_sum)
        lse = (row_max + np.log(row_sum))[..., 0]
    return output.astype(np.float64), np.broadcast_to(lse, output.shape[:-1]).astype(np.float64)


def broadcasts(*shapes: Shape) -> Shape | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


@dataclass(repr=False)
class Call:
    """The arrays of a call, and its options."""

    arrays: dict[str, Array]
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        given = [f"{k}=<{x.dtype} {x.shape}>" for k, x in self.arrays.items()]
        return f"Call({', '.join(given)}, {self.options})"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))

    def refusals(self) -> Refusals:
        """Return the errors that are right for this call; none if it has to work."""
        found: Refusals = set()

        def refuse(error: type[Exception], when: bool) -> None:
            if when:
                found.add(error)

        names = [self.arrays[name].dtype.name for name in INPUTS]
        refuse(TypeError, not set(names) <= set(DTYPES) or len(set(names)) > 1)
        query, key, value = (self.arrays[name].shape for name in INPUTS)
        mask = self.arrays.get("attn_mask")
        if mask is not None:
            refuse(TypeError, mask.dtype.name not in ("bool", "float32", names[0]))
            refuse(ValueError, "is_causal" in self.options)
        gqa = "enable_gqa" in self.options
        if any(len(shape) < 2 + gqa for shape in (query, key, value)):
            return found | {ValueError}
        refuse(ValueError, query[-1] != key[-1] or key[-2] != value[-2])
        heads: Shape = ()
        if gqa:
            heads = query[-3:-2]
            fits = key[-3] and query[-3] % key[-3] == 0 and value[-3] == key[-3]
            refuse(ValueError, not fits)
        batch = broadcasts(*(shape[: -2 - gqa] for shape in (query, key, value)))
        if batch is None:
            return found | {ValueError}
        target = (*batch, *heads, query[-2], key[-2])
        refuse(ValueError, mask is not None and broadcasts(mask.shape, target) != target)
        return found

    def truth(self, **how: bool) -> tuple[Array, Array]:
        known = {k: self.options[k] for k in COMMON if k in self.options}
        return definition(**self.arrays, **known, **how)


def attempt(form: Implementation, call: Call) -> tuple[Array, Array] | Exception:
    """Return output and log-sum-exp, or the ValueError or TypeError that came."""
    try:
        return form.with_lse(**call.arrays, **call.options)
    except REFUSED as error:
        return error


# -- drawing ---------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 2, 3, 5, 7, 0])
FOREIGN_DTYPES = ["bool", "int64", "uint8", "complex64"]


def numbers(shape: Shape, dtype: str, seed: int) -> Array:
    """Return normal numbers of standard deviation 1.5, or what comes nearest to them."""
    drawn = np.random.default_rng(seed).normal(0, 1.5, shape)
    if dtype in ("bool", "uint8"):
        drawn = np.asarray(drawn > -0.5)
    return np.asarray(np.asarray(drawn).astype(DTYPES.get(dtype, dtype)))


@st.composite
def part_of(draw: st.DrawFn, shape: Shape) -> Shape:
    """Return a shape that broadcasts to this one."""
    shape = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else n for n in shape)


@st.composite
def bent(draw: st.DrawFn, shape: Shape) -> Shape:
    """Return another shape: an axis longer, shorter, more, less, moved, or no axis at all."""
    way = draw(st.sampled_from(["resize", "drop", "add", "swap", "none"]))
    if way == "none" or not shape:
        return ()
    place = draw(st.integers(0, len(shape) - 1))
    before, size, after = shape[:place], shape[place], shape[place + 1 :]
    if way == "drop":
        return (*before, *after)
    if way == "swap":
        return (*after, size, *before)
    return (*before, draw(SIZES), *([] if way == "resize" else [size]), *after)


def more_options(form: Implementation) -> dict[str, list[Any]]:
    """Return the options that the form has beyond the common ones, with good values."""
    sizes = [1, 2, 3, 100]
    return {
        "numpy_blockwise": {"block_size": sizes},
        "torch_blockwise": {"block_size_q": sizes, "block_size_k": sizes},
        "torch_decoding": {"block_size_k": sizes},
        "torch_ring": {"n_devices": [1, 2, 3, 5], "balance": ["zigzag", "contiguous"]},
    }.get(form.name, {})


@st.composite
def calls(draw: st.DrawFn, form: Implementation, *, bend: bool = True, spoil: bool = False) -> Call:
    """Draw a call that is right, and bend it up to twice, or spoil some of its numbers."""
    n_queries, n_keys, n_features, n_values = (draw(SIZES) for _ in range(4))
    batch = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2)))
    heads: tuple[Shape, Shape] = ((), ())
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        n_key_heads, group = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        heads = (n_key_heads * group,), (n_key_heads,)
        options["enable_gqa"] = True
    own = [draw(part_of(batch)) for _ in INPUTS]
    shapes = {
        "query": (*own[0], *heads[0], n_queries, n_features),
        "key": (*own[1], *heads[1], n_keys, n_features),
        "value": (*own[2], *heads[1], n_keys, n_values),
    }
    dtype = draw(st.sampled_from(list(DTYPES) if bend else ["float64"]))
    dtypes: dict[str, Any] = dict.fromkeys(INPUTS, dtype)
    masked = draw(st.sampled_from(["no", "causal", "boolean", "floating", "narrow"]))
    if masked == "causal":
        options["is_causal"] = True
    elif masked != "no":
        shapes["attn_mask"] = draw(
            part_of((*np.broadcast_shapes(*own), *heads[0], n_queries, n_keys))
        )
        dtypes["attn_mask"] = {"boolean": "bool", "floating": dtype, "narrow": "float32"}[masked]
    for name, values in (more_options(form) | {"scale": [0.0, -0.7, 2, 0.3]}).items():
        if draw(st.booleans()):
            options[name] = draw(st.sampled_from(values))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2])) if bend else 0):
        name = draw(st.sampled_from(sorted(shapes)))
        if draw(st.booleans()):
            shapes[name] = draw(bent(shapes[name]))
        else:
            dtypes[name] = draw(st.sampled_from([*DTYPES, *FOREIGN_DTYPES]))

    call = Call({}, options)
    seed = draw(st.integers(0, 2**16))
    for i, (name, shape) in enumerate(shapes.items()):
        x = numbers(shape, dtypes[name], seed + i)
        if name == "attn_mask" and x.dtype.name in DTYPES:
            removed = np.random.default_rng(seed + 9).random(shape) < 0.3
            x = np.where(removed, np.asarray(-np.inf, x.dtype), x)
        if spoil and x.size and x.dtype.kind == "f":
            for place in draw(st.lists(st.integers(0, x.size - 1), max_size=2)):
                x.reshape(-1)[place] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        call.arrays[name] = x
    return call


# -- attention -------------------------------------------------------------------------------------

# The sizes of blocks are drawn like everything else.
WHOLE = [form for form in IMPLEMENTATIONS if not form.blocks]
each_form = on(WHOLE)
each_form_with_gradients = on(form for form in WHOLE if form.on_tensors)


@in_parts
@each_form
def test_every_call_is_right_or_refused(form: Implementation, part: int) -> None:
    @examples(3, part, form.is_interpreted)
    @given(call=calls(form))
    def right_or_refused(call: Call) -> None:
        result, expected = attempt(form, call), call.refusals()
        if expected:
            assert isinstance(result, tuple(expected)), f"{expected} expected, {result!r} came"
            assert "got" in str(result), f"the message does not say what came: {result!r}"
        else:
            assert isinstance(result, tuple), f"refused, and is right: {result!r}"
            hold(form, call, *result)

    right_or_refused()


def hold(form: Implementation, call: Call, output: Array, lse: Array) -> None:
    """Hold a result against the definition."""
    query, key, value = (call.arrays[name] for name in INPUTS)
    mask = call.arrays.get("attn_mask")
    truth, true_lse = call.truth()
    dtype = query.dtype.name
    sums = "float32" if dtype in HALF else dtype
    assert output.dtype.name == dtype
    peer, floor = truth, 0.0
    if dtype in HALF:
        known = {k: call.options[k] for k in COMMON if k in call.options}
        peer = plain_torch.plain(query, key, value, mask, **known) if truth.size else truth
        if not form.rounds_once:
            floor = epsilon(dtype) / 2 * np.abs(value.astype(float)).max(initial=0)
    size = forward_size(query, key, value, mask, **call.options)
    assert_close(output, truth, dtype=dtype, size=size, peer=peer, floor=floor)
    assert_close(lse, true_lse, dtype=sums, size=lse_size(query, key, mask, **call.options))


@in_parts
@each_form
def test_what_is_not_finite_comes_out_where_it_takes_part(form: Implementation, part: int) -> None:
    @examples(1, part, form.is_interpreted)
    @given(call=calls(form, bend=False, spoil=True))
    def right(call: Call) -> None:
        result = attempt(form, call)
        assert isinstance(result, tuple), f"refused, and is right: {result!r}"
        output, lse = result
        truth, true_lse = call.truth()
        query, key, value = (call.arrays[name] for name in INPUTS)
        mask, options = call.arrays.get("attn_mask"), call.options
        # Two things that the contract leaves open: whether a key with a score of -∞ takes part, and
        # 0 · NaN of a value that only other rows see.
        truth = np.where(
            np.isnan(truth) & ~np.isnan(output), call.truth(removed_by_score=True)[0], truth
        )
        spoilt = ~np.isfinite(value).all(axis=-2, keepdims=True)
        if options.get("enable_gqa"):
            spoilt = spoilt.any(axis=-3, keepdims=True)
        if form.multiplies_removed_values and (mask is not None or options.get("is_causal")):
            output, truth = (np.where(spoilt & np.isnan(output), 0, x) for x in (output, truth))
        if form.name == "torch_ring" and not (np.isfinite(query).all() and np.isfinite(key).all()):
            # Where all scores of a part are -∞, the ring leaves the part out.
            output, truth = (np.where(spoilt, 0, x) for x in (output, truth))
        size = forward_size(query, key, value, mask, **options)
        assert_close(output, truth, dtype="float64", size=size)
        assert_close(lse, true_lse, dtype="float64", size=lse_size(query, key, mask, **options))

    right()


@in_parts
@each_form_with_gradients
def test_gradients_are_right_for_every_shape(form: Implementation, part: int) -> None:
    @examples(1, part, form.is_interpreted)
    @given(call=calls(form, bend=False))
    def right(call: Call) -> None:
        truth, true_lse = call.truth()
        assume(truth.size)
        above = [numbers(x.shape, "float64", seed) for seed, x in enumerate((truth, true_lse))]
        query, key, value = (call.arrays[name] for name in INPUTS)
        arrays = query, key, value, above[0], call.arrays.get("attn_mask"), above[1]
        found = form.gradients(*arrays, **call.options)
        known = {k: call.options[k] for k in COMMON if k in call.options}
        expected = plain_torch.gradients(*arrays, **known)
        sizes = gradient_sizes(*arrays, **call.options)
        assert found
        for name, gradient in found.items():
            assert_close(gradient, expected[name], dtype=gradient.dtype.name, size=sizes[name])

    right()
