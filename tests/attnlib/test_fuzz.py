"""Input that nobody thought of: every call is right, or raises a ValueError or TypeError.

The tests say which of the two: `Call.refusals` and `definition` know what the contract says, and
share no line with attnlib. Whatever comes out, no input is changed, and a warning is an error.

With HYPOTHESIS_PROFILE=long it draws other and many more examples than in `make test`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import plain_torch
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inputs import backwards, heads_inside, read_only, shifted, strided, transposed, unaligned
from numpy.typing import NDArray
from rungs import DTYPES, RUNGS, Rung, array, on, tensor
from tolerance import HALF, assert_close, epsilon, forward_size, gradient_sizes, lse_size

from attnlib import masks, numpy_dense, positions, torch_dense
from attnlib.numpy_blockwise import SoftmaxState
from attnlib.torch_layers import MultiHeadSelfAttention, SelfAttention, merge_heads, split_heads

Array = NDArray[Any]
Shape = tuple[int, ...]
Refusals = set[type[Exception]]

INPUTS = ("query", "key", "value")
REFUSED = (ValueError, TypeError)


def examples(times: int, *, slow: bool = False) -> Any:
    """Draw this many times the examples of the profile; in an interpreter a twentieth of them."""
    n = times * settings.default.max_examples  # type: ignore[union-attr]
    return settings(max_examples=max(8, n // 20) if slow else n)


# -- what a call comes down to ---------------------------------------------------------------------


def definition(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, Array]:
    """Return output and log-sum-exp, with sums written out, in the widest floating numbers."""
    with np.errstate(all="ignore"):
        query, key, value = (np.asarray(x).astype(np.longdouble) for x in (query, key, value))
        attn_mask = None if attn_mask is None else np.asarray(attn_mask)
        if enable_gqa:
            group = query.shape[-3] // key.shape[-3]
            heads = np.arange(query.shape[-3]) // max(group, 1)
            key, value = key[..., heads, :, :], value[..., heads, :, :]
        if scale is None:
            scale = 1 / math.sqrt(query.shape[-1] or 1)
        scores = (query[..., :, None, :] * key[..., None, :, :]).sum(-1) * np.longdouble(
            float(scale)
        )
        part = np.ones(scores.shape[-2:], dtype=bool)
        if is_causal:
            part = np.tri(*part.shape, dtype=bool)
        elif attn_mask is not None and attn_mask.dtype == bool:
            part = attn_mask
        elif attn_mask is not None:
            part = attn_mask.astype(np.longdouble) != -np.inf
            scores = scores + attn_mask.astype(np.longdouble)
        scores = np.where(part, scores, -np.inf)
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


def is_flag(thing: object) -> bool:
    return isinstance(thing, (bool, np.bool_))


def is_true(thing: Any) -> bool:
    return is_flag(thing) and bool(thing)


def is_number(thing: object) -> bool:
    return isinstance(thing, (int, float, Fraction, np.integer, np.floating)) and not is_flag(thing)


def is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def described(thing: object) -> str:
    if not isinstance(thing, np.ndarray):
        return repr(thing)
    return f"<{type(thing).__name__} {thing.dtype} {thing.shape}, strides {thing.strides}>"


@dataclass(repr=False)
class Call:
    """The arguments of a call; query, key, value and attn_mask are arrays, or something else."""

    arrays: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    # What of the arrays is not itself an array of a NumPy or torch form.
    foreign: set[str] = field(default_factory=set)

    def __repr__(self) -> str:
        given = [f"{name}={described(x)}" for name, x in {**self.arrays, **self.options}.items()]
        return f"Call({', '.join(given)})"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))

    def refusals(self, rung: Rung) -> Refusals:
        """Return the errors that are right for this call; none if it has to work."""
        found: Refusals = set()
        options = self.options

        def refuse(error: type[Exception], when: bool) -> None:
            if when:
                found.add(error)

        for name in ("is_causal", "enable_gqa", "deterministic"):
            refuse(TypeError, not is_flag(options.get(name, False)))
        scale = options.get("scale")
        refuse(TypeError, scale is not None and not is_number(scale))
        refuse(ValueError, is_number(scale) and not is_finite(scale))
        dropout_p = options.get("dropout_p", 0.0)
        wide = is_number(dropout_p) or (is_flag(dropout_p) and not rung.drops)
        wide = wide and type(dropout_p) is not np.bool_
        refuse(TypeError, not wide)
        refuse(ValueError, wide and not 0 <= dropout_p <= (1 if rung.drops else 0))
        for name in ("block_size", "block_size_q", "block_size_k"):
            size = options.get(name, 1)
            if size is not None or name == "block_size":
                is_count = isinstance(size, (int, np.integer)) and not is_flag(size)
                refuse(TypeError, not is_count)
                refuse(ValueError, is_count and size < 1)
        n_devices = options.get("n_devices", 1)
        is_count = isinstance(n_devices, (int, np.integer)) and not is_flag(n_devices)
        refuse(TypeError, not is_count)
        refuse(ValueError, is_count and not 1 <= n_devices <= 1024)
        refuse(TypeError, bool(self.foreign))
        if self.foreign:
            return found

        arrays = self.arrays
        names = [arrays[name].dtype.name for name in INPUTS]
        refuse(TypeError, not set(names) <= set(DTYPES) or len(set(names)) > 1)
        shapes = [arrays[name].shape for name in INPUTS]
        mask = arrays.get("attn_mask")
        if mask is not None:
            refuse(TypeError, mask.dtype.name not in ("bool", "float32", names[0]))
            refuse(ValueError, is_true(options.get("is_causal")))
        gqa = is_true(options.get("enable_gqa"))
        if any(len(shape) < 2 + gqa for shape in shapes):
            return found | {ValueError}
        query, key, value = shapes
        refuse(ValueError, query[-1] != key[-1] or key[-2] != value[-2])
        batch: Shape | None
        if gqa:
            n_heads, n_key_heads = query[-3], key[-3]
            if not n_key_heads or n_heads % n_key_heads or value[-3] != n_key_heads:
                return found | {ValueError}
            batch = broadcasts(*(shape[:-3] for shape in shapes))
            batch = None if batch is None else (*batch, n_heads)
        else:
            batch = broadcasts(*(shape[:-2] for shape in shapes))
        if batch is None:
            return found | {ValueError}
        target = (*batch, query[-2], key[-2])
        refuse(ValueError, mask is not None and broadcasts(mask.shape, target) != target)
        return found

    def truth(self) -> tuple[Array, Array]:
        known = {name: self.options.get(name) for name in ("is_causal", "scale", "enable_gqa")}
        return definition(
            **self.arrays | {k: option for k, option in known.items() if option is not None}
        )


def contents(thing: Any) -> Any:
    """Return what must stay the same of an argument."""
    if isinstance(thing, np.ndarray):
        return thing.shape, thing.strides, thing.tobytes()
    if isinstance(thing, torch.Tensor):
        if thing.layout != torch.strided or thing.device.type == "meta":
            return thing.shape
        numbers = array(thing.resolve_neg())
        return thing.shape, thing.stride(), numbers.tobytes()
    return repr(thing)


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a call returns, or the ValueError or TypeError that it raises."""
    before = [contents(x) for x in (*arguments, *options.values())]
    result: Any
    try:
        with np.errstate(all="raise"):
            result = function(*arguments, **options)
    except REFUSED as error:
        result = error
    after = [contents(x) for x in (*arguments, *options.values())]
    assert after == before, "an input was modified"
    return result


def refused(result: Any, expected: Refusals) -> bool:
    """Hold that an error came, in words that say what came, exactly where one is expected."""
    if not expected:
        if isinstance(result, REFUSED):
            raise AssertionError(f"refused, and is right: {result}") from result
        return False
    assert isinstance(result, tuple(expected)), f"{expected} expected, {result!r} came"
    assert "got" in str(result), f"the message does not say what came: {result!r}"
    return True


# -- drawing ---------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 2, 3, 5, 7, 0])
WRONG: list[Any] = [
    None, True, 3, 2.5, 1j, "query", b"", [[1.0, 2.0]], ((1.0,),), {}, [], object(), Ellipsis,
    np.float64(1.0), np.bool_(True), slice(None), range(3), math.nan, len, np.ndarray, torch.Tensor,
]  # fmt: skip
FLAGS = [True, False, np.True_, np.False_, 0, 1, None, "True", [], np.ones(2, bool), 1.0]
SCALES = [
    0, 0.0, -0.0, -0.7, 2, 1e-3, 3.5, np.float32(0.25), np.float16(-0.5), np.int8(1),
    Fraction(1, 3), math.nan, math.inf, -math.inf, np.float32("inf"), 10**400, True, np.True_, "1",
    1j, [1.0], np.ones(()), np.ones(2), Decimal(1), torch.ones(()), object(),
]  # fmt: skip
DROPOUTS = [0, 0.0, -0.0, np.float32(0), False, None, "0", 1j, [0.0], math.nan, -0.5, 1.5, math.inf]
BLOCKS = [
    1, 2, 3, 4, 64, np.int8(2), 10**30, None, 0, -1, -(10**30), True, np.True_, 2.0, 2.5, "3",
    [1], math.nan,
]  # fmt: skip
FOREIGN_DTYPES = ["bool", "int8", "int64", "uint8", "uint64", "complex64", "complex128"]
ONLY_NUMPY_DTYPES = [
    "longdouble", "object", "U3", "S2", "datetime64[s]", "timedelta64[s]", "clongdouble", "f4,f4",
    ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip


def expanded(x: Array) -> Array:
    """Return the first entry of the first axis for all of them: a stride of 0."""
    return np.broadcast_to(x[:1], x.shape) if x.ndim and len(x) else x


def everywhere_one(x: Array) -> Array:
    return np.broadcast_to(x.reshape(-1)[:1].reshape(()), x.shape) if x.size else x


def swapped_bytes(x: Array) -> Array:
    return x.astype(x.dtype.newbyteorder()) if x.dtype.kind == "f" else x


def matrix(x: Array) -> Array:
    return x.view(np.matrix) if x.ndim == 2 and x.dtype.kind in "bf" else x


def plain(x: Array) -> Array:
    return x


# Each with the rank that it needs.
LAYOUTS: list[tuple[Callable[[Array], Array], int]] = [
    (plain, 0), (expanded, 1), (everywhere_one, 0), (transposed, 2), (heads_inside, 3),
    (strided, 1), (shifted, 0), (read_only, 0),
]  # fmt: skip
ONLY_NUMPY_HAS: list[tuple[Callable[[Array], Array], int]] = [
    (backwards, 2), (unaligned, 0), (swapped_bytes, 0), (matrix, 2),
]  # fmt: skip


def numbers(shape: Shape, dtype: Any, seed: int) -> Array:
    """Return normal numbers of standard deviation 1.5, or what comes nearest to them."""
    drawn = np.asarray(np.random.default_rng(seed).normal(0, 1.5, shape))
    dtype = DTYPES.get(str(dtype)) or np.dtype(dtype)
    if dtype.kind in "OUSMmV" and not hasattr(ml_dtypes, dtype.name):
        return np.zeros(shape, dtype)
    if dtype.kind in "bu":
        drawn = drawn > -0.5
    return np.asarray(drawn.astype(dtype))


@st.composite
def laid_out(draw: st.DrawFn, x: Array, on_tensors: bool) -> Array:
    layouts = LAYOUTS if on_tensors else LAYOUTS + ONLY_NUMPY_HAS
    layout = draw(st.sampled_from([layout for layout, rank in layouts if x.ndim >= rank]))
    return np.asanyarray(layout(x))


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


@st.composite
def calls(
    draw: st.DrawFn, on_tensors: bool, *, bend: bool = True, spoil: bool = False, more: Any = None
) -> Call:
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
    dtype = draw(
        st.sampled_from(["float64", "float32", "float16", "bfloat16"] if bend else ["float64"])
    )
    dtypes: dict[str, Any] = dict.fromkeys(INPUTS, dtype)
    masked = draw(st.sampled_from(["no", "causal", "boolean", "floating", "narrow"]))
    if masked == "causal":
        options["is_causal"] = True
    elif masked != "no":
        target = (*np.broadcast_shapes(*own), *heads[0], n_queries, n_keys)
        shapes["attn_mask"] = draw(part_of(target))
        dtypes["attn_mask"] = {"boolean": "bool", "floating": dtype, "narrow": "float32"}[masked]
    for name, good in (more or {}).items():
        if draw(st.booleans()):
            options[name] = draw(st.sampled_from(good))
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([0.0, -0.7, 2, 0.3]))

    foreign: dict[str, Any] = {}
    for _ in range(draw(st.sampled_from([0, 1, 1, 2])) if bend else 0):
        name = draw(st.sampled_from(sorted(shapes)))
        way = draw(st.sampled_from(["shape", "dtype", "kind", "option"]))
        if way == "shape":
            shapes[name] = draw(bent(shapes[name]))
        elif way == "dtype":
            known = [*DTYPES, *FOREIGN_DTYPES, *([] if on_tensors else ONLY_NUMPY_DTYPES)]
            dtypes[name] = draw(st.sampled_from(known))
        elif way == "kind":
            foreign[name] = draw(st.sampled_from([*WRONG, "masked", "other", "sparse"]))
        else:
            odd = odd_options(more or {})
            name = draw(st.sampled_from(sorted(odd)))
            options[name] = draw(st.sampled_from(odd[name]))

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
        call.arrays[name] = draw(laid_out(x, on_tensors))
    for name, thing in foreign.items():
        if isinstance(thing, str) and thing != "query":
            whole = np.ones((2, 3))
            other = whole if on_tensors else torch.ones(2, 3)
            thing = {
                "masked": np.ma.masked_array(whole, whole > 0),
                "other": other,
                "sparse": torch.ones(2, 3).to_sparse(),
            }[thing]
        call.arrays[name] = thing
        if not (name == "attn_mask" and thing is None):
            call.foreign.add(name)
    return call


def odd_options(more: dict[str, Any]) -> dict[str, list[Any]]:
    """Return good and bad values for every option."""
    odd = {"scale": SCALES, "is_causal": FLAGS, "enable_gqa": FLAGS, "dropout_p": DROPOUTS}
    return odd | {name: FLAGS if name == "deterministic" else BLOCKS for name in more}


def given_to(rung: Rung, call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments as the rung takes them."""
    arrays = {
        name: rung.give(x) if isinstance(x, np.ndarray) and name not in call.foreign else x
        for name, x in call.arrays.items()
    }
    return arrays, call.options


def more_options(rung: Rung) -> dict[str, Any]:
    """Return the options that the rung has beyond the common ones, with good values."""
    blocks: dict[str, list[Any]] = {
        "numpy_blockwise": ["block_size"],
        "torch_blockwise": ["block_size_q", "block_size_k"],
        "torch_decoding": ["block_size_k"],
    }.get(rung.name, [])  # type: ignore[assignment]
    more: dict[str, Any] = {name: [1, 2, 3, 100] for name in blocks}
    if rung.name == "torch_ring":
        more["n_devices"] = [1, 2, 3, 5]
    return more | ({"deterministic": [True, False]} if rung.name == "triton_fused" else {})


# -- attention -------------------------------------------------------------------------------------

# The sizes of blocks are drawn like everything else.
WHOLE = [rung for rung in RUNGS if not rung.blocks]
each_rung = on(WHOLE)
each_rung_with_gradients = on(rung for rung in WHOLE if rung.on_tensors)


@each_rung
def test_every_call_is_right_or_refused(rung: Rung) -> None:
    @examples(4, slow=rung.is_interpreted)
    @given(call=calls(rung.on_tensors, more=more_options(rung)))
    def right_or_refused(call: Call) -> None:
        arrays, options = given_to(rung, call)
        function = rung.function("scaled_dot_product_attention_with_lse")
        result = attempt(function, **arrays, **options)
        if refused(result, call.refusals(rung)):
            return
        hold(rung, call, *map(rung.take, result))

    right_or_refused()


@each_rung
def test_every_odd_option_and_kind_is_right_or_refused(rung: Rung) -> None:
    """Not drawn: each of them once."""
    good = {name: numbers((2, 3, 5), "float64", i) for i, name in enumerate(INPUTS)}
    function = rung.function("scaled_dot_product_attention_with_lse")
    odd = odd_options(more_options(rung))
    changes = [({name: x}, {}) for name in (*INPUTS, "attn_mask") for x in WRONG]
    changes += [({}, {name: option}) for name, options in odd.items() for option in options]
    for arrays, options in changes:
        call = Call({**good, **arrays}, options, {k for k, x in arrays.items() if x is not None})
        if arrays.get("attn_mask", 0) is not None:
            call.foreign |= set(arrays)
        given_arrays, _ = given_to(rung, call)
        result = attempt(function, **given_arrays, **options)
        if not refused(result, call.refusals(rung)):
            hold(rung, call, *map(rung.take, result))


def hold(rung: Rung, call: Call, output: Array, lse: Array) -> None:
    """Hold a result against the definition."""
    query, key, value = (call.arrays[name] for name in INPUTS)
    mask, scale = call.arrays.get("attn_mask"), call.options.get("scale")
    truth, true_lse = call.truth()
    dtype = query.dtype.name
    assert output.dtype.name == dtype
    if dtype in HALF:
        options = {k: call.options.get(k, False) for k in ("is_causal", "enable_gqa")}
        peer = plain_torch.plain(
            *map(native, (query, key, value)), None if mask is None else native(mask),
            scale=None if scale is None else float(scale),
            is_causal=bool(options["is_causal"]), enable_gqa=bool(options["enable_gqa"]),
        ) if truth.size else truth  # fmt: skip
        floor = (
            0.0
            if rung.rounds_once
            else epsilon(dtype) / 2 * np.abs(value.astype(float)).max(initial=0)
        )
        assert_close(output, truth, dtype=dtype, peer=peer, floor=floor)
    else:
        assert_close(output, truth, dtype=dtype, size=forward_size(query, key, value, mask, scale))
    sums = "float32" if dtype in HALF else dtype
    assert_close(lse, true_lse, dtype=sums, size=lse_size(query, key, mask, scale))


def native(x: Array) -> Array:
    return np.array(x, dtype=DTYPES.get(x.dtype.name, x.dtype))


@each_rung
def test_what_is_not_finite_comes_out_where_it_takes_part(rung: Rung) -> None:
    @examples(2, slow=rung.is_interpreted)
    @given(call=calls(rung.on_tensors, bend=False, spoil=True, more=more_options(rung)))
    def right(call: Call) -> None:
        arrays, options = given_to(rung, call)
        result = attempt(
            rung.function("scaled_dot_product_attention_with_lse"), **arrays, **options
        )
        assert not refused(result, call.refusals(rung))
        output, lse = map(rung.take, result)
        truth, true_lse = call.truth()
        query, key, value = (np.asarray(call.arrays[name]) for name in INPUTS)
        mask, scale = call.arrays.get("attn_mask"), options.get("scale")
        # Two cases that the contract leaves open: 0 · NaN of a value that other rows see, and a
        # value that is not finite in a row whose scores are all -∞ by themselves.
        spoilt = ~np.isfinite(value).all(axis=-2, keepdims=True)
        if options.get("enable_gqa"):
            spoilt = spoilt.any(axis=-3, keepdims=True)
        open_ = spoilt & (true_lse[..., None] == -np.inf) & (np.isnan(output) | (output == 0))
        if rung.multiplies_removed_values and (mask is not None or options.get("is_causal")):
            open_ |= spoilt & np.isnan(output)
        if rung.name == "torch_ring" and not (np.isfinite(query).all() and np.isfinite(key).all()):
            open_ |= spoilt  # where the scores of a part are all -∞, it leaves the part out
        output, truth = (np.where(open_, 0, x) for x in (output, truth))
        size = forward_size(query, key, value, mask, scale)
        assert_close(output, truth, dtype="float64", size=size)
        assert_close(lse, true_lse, dtype="float64", size=lse_size(query, key, mask, scale))

    right()


@each_rung_with_gradients
def test_gradients_are_right_for_every_shape_and_layout(rung: Rung) -> None:
    @examples(2, slow=rung.is_interpreted)
    @given(call=calls(True, bend=False, more=more_options(rung)), data=st.data())
    def right(call: Call, data: st.DataObject) -> None:
        truth, true_lse = call.truth()
        assume(truth.size)
        above = [
            data.draw(laid_out(numbers(x.shape, "float64", seed), True))
            for seed, x in enumerate((truth, true_lse))
        ]
        own = list(more_options(rung))
        plain_options = {k: x for k, x in call.options.items() if k not in own}
        arrays = [call.arrays.get(name) for name in (*INPUTS, "attn_mask")]
        query, key, value, mask = arrays
        assert query is not None and key is not None and value is not None
        found = rung.gradients(query, key, value, above[0], mask, above[1], **call.options)
        expected = plain_torch.gradients(
            query, key, value, above[0], mask, above[1], **plain_options
        )
        sizes = gradient_sizes(
            query, key, value, above[0], mask, above[1], call.options.get("scale")
        )
        assert found
        for name, gradient in found.items():
            assert_close(gradient, expected[name], dtype=gradient.dtype.name, size=sizes[name])

    right()


# -- the steps -------------------------------------------------------------------------------------

STEPS = pytest.mark.parametrize("steps", [numpy_dense, torch_dense], ids=["numpy", "torch"])
NO_RUNG = {numpy_dense: Rung("numpy_dense"), torch_dense: Rung("torch_dense")}


@st.composite
def some_arrays(draw: st.DrawFn, *shapes: Shape) -> list[Any]:
    """Draw arrays of one dtype; one of them may be bent."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    found: list[Any] = [numbers(shape, dtype, i) for i, shape in enumerate(shapes)]
    place = draw(st.integers(0, len(found) - 1))
    way = draw(st.sampled_from(["not", "shape", "dtype", "kind"]))
    if way == "shape":
        found[place] = numbers(draw(bent(shapes[place])), dtype, place)
    elif way == "dtype":
        other = draw(st.sampled_from([*DTYPES, *FOREIGN_DTYPES]))
        found[place] = numbers(shapes[place], other, place)
    elif way == "kind":
        found[place] = draw(st.sampled_from([x for x in WRONG if x is not None]))
    return [draw(laid_out(x, True)) if isinstance(x, np.ndarray) else x for x in found]


def refusals_of(*arrays: Any) -> Refusals:
    """Return the error that is right for what are not arrays of one floating dtype."""
    if not all(isinstance(x, np.ndarray) for x in arrays):
        return {TypeError}
    names = {x.dtype.name for x in arrays}
    return set() if names <= set(DTYPES) and len(names) == 1 else {TypeError}


def as_given(rung: Rung, *things: Any) -> list[Any]:
    return [rung.give(x) if isinstance(x, np.ndarray) else x for x in things]


@STEPS
def test_every_projection_is_right_or_refused(steps: Any) -> None:
    rung = NO_RUNG[steps]

    @examples(1)
    @given(st.data())
    def right_or_refused(data: st.DataObject) -> None:
        batch = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
        n, d_model, d = (data.draw(SIZES) for _ in range(3))
        X, W = data.draw(some_arrays((*batch, n, d_model), (d_model, d)))
        expected = refusals_of(X, W)
        if isinstance(X, np.ndarray) and isinstance(W, np.ndarray):
            fits = X.ndim > 1 and W.ndim == 2 and X.shape[-1] == W.shape[0]
            expected |= set() if fits else {ValueError}
        result = attempt(steps.project, *as_given(rung, X, W))
        if refused(result, expected):
            return
        wide = X.astype(float), W.astype(float)
        truth = (wide[0][..., None] * wide[1]).sum(-2)
        size = (d_model + 2) * (1 + np.abs(wide[0]).max(initial=0) * np.abs(wide[1]).sum())
        dtype = X.dtype.name
        peer = array(tensor(X) @ tensor(W)) if dtype in HALF else None
        assert_close(rung.take(result), truth, dtype=dtype, size=size, peer=peer)

    right_or_refused()


AXES = [-1, 0, 1, -2, 2, 3, np.int8(0), 10**30, None, True, 0.0, "0", (0,), []]


@STEPS
def test_every_softmax_is_right_or_refused(steps: Any) -> None:
    rung = NO_RUNG[steps]

    @examples(2)
    @given(data=st.data())
    def right_or_refused(data: st.DataObject) -> None:
        shape = tuple(data.draw(st.lists(SIZES, max_size=3)))
        (scores,) = data.draw(some_arrays(shape))
        axis = data.draw(
            st.sampled_from([-1, 0, 1, -2, 2, 3, 10**30, None, True, 0.0, "0", (0,), []])
        )
        expected = refusals_of(scores)
        is_axis = isinstance(axis, (int, np.integer)) and not isinstance(axis, bool)
        expected |= set() if is_axis else {TypeError}
        rank = max(1, scores.ndim) if isinstance(scores, np.ndarray) else 0
        if is_axis and rank and not -rank <= axis < rank:
            expected |= {ValueError}
        result = attempt(steps.softmax, *as_given(rung, scores), axis)
        if refused(result, expected):
            return
        wide = scores.astype(float)
        truth = np.exp(wide) / np.exp(wide).sum(axis, keepdims=True)
        dtype = scores.dtype.name
        size = 2 * (10 + scores.size) * (1 + np.abs(wide).max(initial=0))
        peer = truth.astype(scores.dtype) if dtype in HALF else None
        assert_close(rung.take(result), truth, dtype=dtype, size=size, peer=peer)

    right_or_refused()


@STEPS
def test_all_scores_and_weights_are_right_or_refused(steps: Any) -> None:
    rung = NO_RUNG[steps]

    @examples(2)
    @given(call=calls(rung.on_tensors))
    def right_or_refused(call: Call) -> None:
        known = {k: x for k, x in call.options.items() if k in ("is_causal", "scale")}
        query, key = call.arrays["query"], call.arrays["key"]
        foreign = call.foreign - {"value"}
        whole = Call({**call.arrays, "value": key}, known, foreign)
        arrays, _ = given_to(rung, whole)
        del arrays["value"]
        result = attempt(steps.attention_weights, **arrays, **known)
        if refused(result, whole.refusals(rung)):
            return
        # Values that pick out one key each make the output the weights.
        picks = np.eye(key.shape[-2])
        weights, _ = definition(**{**whole.arrays, "value": picks}, **known)
        dtype, mask, scale = query.dtype.name, whole.arrays.get("attn_mask"), known.get("scale")
        size = forward_size(query, key, picks, mask, scale)
        if dtype in HALF:  # float32, rounded
            assert_close(
                rung.take(result), weights, dtype=dtype, peer=weights, floor=2.0**-23 * size
            )
        else:
            assert_close(rung.take(result), weights, dtype=dtype, size=size)

        scores = steps.attention_scores(arrays["query"], arrays["key"], scale=scale)
        wide = [native(x).astype(float) for x in (query, key)]
        factor = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else float(scale)
        truth = factor * (wide[0][..., :, None, :] * wide[1][..., None, :, :]).sum(-1)
        size = lse_size(query, key, None, scale)
        floor = epsilon("float32") * size
        assert_close(rung.take(scores), truth, dtype=dtype, size=size, peer=truth, floor=floor)

    right_or_refused()


@given(st.data())
def test_a_state_is_updated_rightly_or_not_at_all(data: st.DataObject) -> None:
    n_rows, n_keys, n_values = (data.draw(SIZES) for _ in range(3))
    state = SoftmaxState.empty((n_rows,), n_values)
    scores, value = data.draw(some_arrays((n_rows, n_keys), (n_keys, n_values)))
    expected: Refusals = set()
    for x in (scores, value):
        expected |= refusals_of(x)
    if isinstance(scores, np.ndarray) and isinstance(value, np.ndarray):
        fits = min(scores.ndim, value.ndim) > 1 and scores.shape[-2] == n_rows
        fits = fits and value.shape[-2:] == (scores.shape[-1], n_values)
        fits = fits and broadcasts(scores.shape[:-2], value.shape[:-2]) is not None
        expected |= set() if fits else {ValueError}
    result = attempt(state.update, scores, value)
    if refused(result, expected):
        return
    output, _ = result.finish()
    wide = scores.astype(float), value.astype(float)
    weights = np.exp(wide[0])
    row_sum = weights.sum(-1, keepdims=True)
    truth = (weights[..., None] * wide[1][..., None, :, :]).sum(-2)
    truth = truth / np.where(row_sum == 0, 1, row_sum)
    size = (
        40
        * (1 + n_keys)
        * (1 + np.abs(wide[1]).max(initial=0))
        * (1 + np.abs(wide[0]).max(initial=0))
    )
    dtype = "float32" if "float64" not in (scores.dtype.name, value.dtype.name) else "float64"
    assert_close(output, truth, dtype=dtype, size=size)


# -- masks and positions ---------------------------------------------------------------------------

COUNTS = st.sampled_from([0, 1, 2, 3, 5, np.int8(4), -1, True, None, 2.0, "2", [3], math.nan, 1j])


def count_refusals(*counts: Any, least: int = 0) -> Refusals:
    found: Refusals = set()
    for count in counts:
        if not isinstance(count, (int, np.integer)) or is_flag(count):
            found.add(TypeError)
        elif count < least:
            found.add(ValueError)
    return found


LIKES = st.sampled_from([None, np.zeros(2), torch.zeros(2), torch.zeros(()), [1.0], 3, "x", len])


def like_refusals(like: object) -> Refusals:
    return set() if like is None or isinstance(like, (np.ndarray, torch.Tensor)) else {TypeError}


@given(
    n_queries=COUNTS, n_keys=COUNTS, left=COUNTS, right=COUNTS, like=LIKES,
    align=st.sampled_from(["top-left", "bottom-right", "top", None, 0, ["top-left"], np.zeros(2)]),
)  # fmt: skip
@examples(5)
def test_every_causal_mask_and_window_is_right_or_refused(
    n_queries: Any, n_keys: Any, left: Any, right: Any, like: Any, align: Any
) -> None:
    expected = count_refusals(n_queries, *([] if n_keys is None else [n_keys]))
    expected |= like_refusals(like)
    known = isinstance(align, str) and align in ("top-left", "bottom-right")
    result = attempt(masks.causal, n_queries, n_keys, align=align, like=like)
    if not refused(result, expected | (set() if known else {ValueError, TypeError})):
        n = n_queries if n_keys is None else n_keys
        shift = int(n) - int(n_queries) if align == "bottom-right" else 0
        assert isinstance(result, torch.Tensor) is isinstance(like, torch.Tensor)
        truth = [[j <= i + shift for j in range(n)] for i in range(n_queries)]
        assert result.tolist() == truth and tuple(result.shape) == (n_queries, n)

    bounds = [x for x in (left, right) if x is not None]
    expected = count_refusals(n_queries, n_keys, *bounds) | like_refusals(like)
    result = attempt(masks.window, n_queries, n_keys, left, right, like=like)
    if not refused(result, expected):
        before = 9 if left is None else int(left)
        after = 9 if right is None else int(right)
        truth = [[i - before <= j <= i + after for j in range(n_keys)] for i in range(n_queries)]
        assert result.tolist() == truth and tuple(result.shape) == (n_queries, n_keys)


LENGTHS = [
    [], [0], [1, 3], (2, 2, 0), range(3), np.array([1, 2], np.uint8), np.array([3], ">i4"),
    np.zeros((2, 0), int), np.zeros(0), 2, [4], [-1], [2**70], [1.0], [True], ["1"], [None], [[1]],
    [1, [2]], "12", b"12", {1: 2}, {1, 2}, None, object(), np.array(["1"]), np.array([1j]),
    np.array(1), torch.tensor([1, 2]), torch.tensor([1.0]), torch.tensor([True]), torch.tensor(1),
    torch.tensor([[1]]), torch.tensor([], dtype=torch.int8), np.ma.array([1, 2]), [torch.tensor(1)],
]  # fmt: skip


def length_refusals(lengths: Any, n_keys: int) -> Refusals:
    """Return the errors that are right for lengths; those of tensors are not looked at."""
    if isinstance(lengths, torch.Tensor):
        return (
            set()
            if lengths.ndim == 1 and lengths.dtype in (torch.int64, torch.int8)
            else {*REFUSED}
        )
    if isinstance(lengths, (list, tuple, range)):
        good = all(isinstance(n, int) and not is_flag(n) and 0 <= n <= n_keys for n in lengths)
        good = good or all(isinstance(n, torch.Tensor) and n <= n_keys for n in lengths)
        return set() if good else {*REFUSED}
    good = type(lengths) is np.ndarray and lengths.ndim == 1
    good = good and (not lengths.size or (lengths.dtype.kind in "iu" and lengths.max() <= n_keys))
    return set() if good else {*REFUSED}


SIDES = st.sampled_from(["right", "left", "right", "left", "front", None, 1, ["left"], np.ones(2)])
ALIGNS = st.sampled_from(["top-left", "bottom-right", "top-left", "bottom-right", "top", None, 0])


@given(lengths=st.sampled_from(LENGTHS), n_keys=COUNTS, side=SIDES)
@examples(5)
def test_every_padding_is_right_or_refused(lengths: Any, n_keys: Any, side: Any) -> None:
    expected = count_refusals(n_keys)
    expected |= set() if expected else length_refusals(lengths, n_keys)
    expected |= set() if isinstance(side, str) and side in ("right", "left") else {ValueError}
    result = attempt(masks.padding, lengths, n_keys, side=side)
    if refused(result, expected):
        return
    places = range(int(n_keys)) if side == "right" else range(int(n_keys))[::-1]
    truth = [[[[j < n for j in places]]] for n in map(int, lengths)]
    assert result.tolist() == truth
    assert tuple(result.shape) == (len(lengths), 1, 1, n_keys)


def number_of(lengths: Any) -> int | None:
    """Return the one length that this is, if it is one."""
    if isinstance(lengths, (np.ndarray, torch.Tensor)):
        if isinstance(lengths, np.ma.MaskedArray) or lengths.ndim:
            return None
        lengths = lengths.item()
    return lengths if isinstance(lengths, int) and not is_flag(lengths) else None


@given(lengths=st.sampled_from(LENGTHS), n_queries=COUNTS, n_keys=COUNTS, align=ALIGNS)
@examples(5)
def test_every_prefix_is_right_or_refused(
    lengths: Any, n_queries: Any, n_keys: Any, align: Any
) -> None:
    n = n_queries if n_keys is None else n_keys
    expected = count_refusals(n_queries, n)
    one = number_of(lengths)
    if not expected and one is None:
        expected |= length_refusals(lengths, n)
    elif not expected and not isinstance(lengths, torch.Tensor):
        expected |= set() if 0 <= one <= n else {ValueError}
    expected |= set() if align in ("top-left", "bottom-right") else {ValueError}
    result = attempt(masks.prefix, lengths, n_queries, n_keys, align=align)
    if refused(result, expected):
        return
    shift = int(n) - int(n_queries) if align == "bottom-right" else 0
    numbers_of = [one] if one is not None else [int(length) for length in lengths]
    truth = [
        [[[j < length or j <= i + shift for j in range(n)] for i in range(n_queries)]]
        for length in numbers_of
    ]
    assert isinstance(result, torch.Tensor) is isinstance(lengths, torch.Tensor)
    assert result.tolist() == (truth if one is None else truth[0][0])
    batch = () if one is not None else (len(lengths), 1)
    assert tuple(result.shape) == (*batch, n_queries, n)


@given(n_heads=COUNTS, n_queries=COUNTS, n_keys=COUNTS, align=ALIGNS, like=LIKES)
@examples(5)
def test_every_alibi_is_right_or_refused(
    n_heads: Any, n_queries: Any, n_keys: Any, align: Any, like: Any
) -> None:
    n = n_queries if n_keys is None else n_keys
    expected = count_refusals(n_heads, least=1) | count_refusals(n_queries, n)
    expected |= like_refusals(like)
    expected |= set() if align in ("top-left", "bottom-right") else {ValueError}
    result = attempt(masks.alibi, n_heads, n_queries, n_keys, align=align, like=like)
    if refused(result, expected):
        return
    slopes = {1: [8], 2: [4, 8], 3: [4, 8, 2], 4: [2, 4, 6, 8], 5: [2, 4, 6, 8, 1]}[int(n_heads)]
    shift = int(n) - int(n_queries) if align == "bottom-right" else 0
    truth = [
        [[-(0.5**s) * abs(i + shift - j) for j in range(n)] for i in range(n_queries)]
        for s in slopes
    ]
    assert isinstance(result, torch.Tensor) is isinstance(like, torch.Tensor)
    assert result.tolist() == truth and tuple(result.shape) == (n_heads, n_queries, n)
    assert str(result.dtype).endswith("float32")


@given(data=st.data(), on_tensors=st.booleans())
@examples(5)
def test_every_document_mask_is_right_or_refused(data: st.DataObject, on_tensors: bool) -> None:
    batch = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 0]), max_size=2)))
    expected: Refusals = {ValueError} if len(batch) > 1 else set()
    kinds = st.sampled_from(["int64", "int8", "uint8", "int32", "float32", "bool"])
    plain: list[Any] = []
    for seed in range(data.draw(st.sampled_from([1, 2]))):
        shape = (*batch, data.draw(SIZES))
        if data.draw(st.integers(0, 9)) == 0:
            shape = data.draw(bent(shape))
        dtype = data.draw(kinds)
        plain.append(np.random.default_rng(seed).integers(0, 3, shape).astype(dtype))
        typed = np.dtype(dtype).kind in "iu" or (not on_tensors and not plain[-1].size)
        expected |= set() if typed else {TypeError}
        expected |= set() if len(shape) in (1, 2) else {ValueError}
        expected |= set() if shape[:-1] == plain[0].shape[:-1] else {ValueError}
    handed = [torch.from_numpy(x) if on_tensors else x for x in plain]
    if data.draw(st.integers(0, 9)) == 0:
        stranger = plain[0] if on_tensors else torch.ones(2, dtype=torch.int64)
        other = data.draw(st.sampled_from([stranger, "ab", [None], object(), [[1], [2, 3]]]))
        handed, expected = [handed[0], other], {*REFUSED}
    result = attempt(masks.document, *handed)
    if refused(result, expected):
        return
    ids, key_ids = plain[0].astype(int), plain[-1].astype(int)
    truth = np.array(
        [[[q == k for k in keys] for q in row] for row, keys in zip(
            ids.reshape(-1, ids.shape[-1]), key_ids.reshape(-1, key_ids.shape[-1]), strict=True
        )], bool,
    ) if ids.size and key_ids.size else np.zeros(0, bool)  # fmt: skip
    assert isinstance(result, torch.Tensor) is on_tensors
    heads = (*ids.shape[:-1], 1) if ids.ndim == 2 else ()
    assert tuple(result.shape) == (*heads, ids.shape[-1], key_ids.shape[-1])
    np.testing.assert_array_equal(np.asarray(result).ravel(), truth.ravel())


@given(data=st.data())
@examples(3)
def test_every_combination_is_right_or_refused(data: st.DataObject) -> None:
    whole = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 0]), max_size=3)))
    on_tensors = data.draw(st.booleans())
    special = data.draw(st.sampled_from([None, -np.inf, np.nan, np.inf]))  # None: the lowest number
    given_masks: list[Any] = []
    expected: Refusals = set()
    for i in range(data.draw(st.sampled_from([2, 1, 3, 0]))):
        dtype = data.draw(st.sampled_from(["float32", "bool", *DTYPES, *DTYPES, "int64", "uint8"]))
        shape = data.draw(part_of(whole))
        if data.draw(st.integers(0, 9)) == 0:
            shape = data.draw(bent(shape))
        x = numbers(shape, dtype, i)
        if dtype in DTYPES:
            odd = ml_dtypes.finfo(DTYPES[dtype]).min if special is None else special
            x = np.where(np.random.default_rng(i).random(shape) < 0.5, np.asarray(odd, x.dtype), x)
        given_masks.append(data.draw(laid_out(x, on_tensors)))
        expected |= set() if dtype in ("bool", *DTYPES) else {TypeError}
    shapes = [x.shape for x in given_masks]
    plain = [np.asarray(x) for x in given_masks]  # np.matrix knows two dimensions only
    expected |= {ValueError} if broadcasts(*shapes) is None else set()
    handed = [tensor(x) if on_tensors else x for x in given_masks]
    if not handed or data.draw(st.integers(0, 9)) == 0:
        expected.add(TypeError)
        if handed:
            wrong = tensor(np.ones(2)) if not on_tensors else np.ones(2)
            handed.insert(
                data.draw(st.integers(0, len(handed))),
                data.draw(st.sampled_from([wrong, None, [True], "m"])),
            )
    result = attempt(masks.combine, *handed)
    if refused(result, expected):
        return
    got = array(result) if on_tensors else result
    floating = [x for x in plain if x.dtype.kind != "b"]
    kept = np.ones((), bool)
    for x in plain:
        kept = kept & (x if x.dtype.kind == "b" else x.astype(float) != -np.inf)
    kept = np.broadcast_to(kept, np.broadcast_shapes(*shapes))
    if not floating:
        assert got.dtype == bool
        np.testing.assert_array_equal(got, kept)
        return
    name = "float64" if "float64" in {x.dtype.name for x in floating} else "float32"
    assert got.dtype.name == name
    np.testing.assert_array_equal(got == -np.inf, ~kept)
    wide = [np.asarray(x).astype(np.longdouble) for x in floating]
    with np.errstate(all="ignore"):
        total = np.sum(np.broadcast_arrays(*wide), axis=0)
        finite = np.logical_and.reduce(np.broadcast_arrays(*map(np.isfinite, wide)))
        limits = np.finfo(name)
        total = np.where(finite, np.clip(total, limits.min, limits.max), total)
    truth, seen = np.where(kept, total, 0), np.where(kept, got, 0)
    size = np.sum(np.broadcast_arrays(*(np.where(np.isfinite(x), abs(x), 0) for x in wide)), axis=0)
    with np.errstate(all="ignore"):
        close = np.abs(seen - truth) <= 4 * epsilon(name) * size
    assert np.all(close | (seen == truth) | (np.isnan(seen) & np.isnan(truth)))


BASES = st.sampled_from(
    [
        10000.0,
        3,
        np.float32(7.5),
        Fraction(5, 2),
        0,
        -1.0,
        math.nan,
        math.inf,
        10**400,
        "7",
        True,
        None,
        1j,
    ]
)


def base_refusals(base: Any) -> Refusals:
    if not is_number(base):
        return {TypeError}
    return set() if is_finite(base) and base > 0 else {ValueError}


def angles(positions: Array, d: int, base: float) -> Array:
    """Return the angle of each position and pair, in float64 as attnlib has it."""
    exponents = np.array([2 * c / d for c in range(d // 2)])
    return positions.astype(np.float64)[:, None] * float(base) ** -exponents


@given(n_tokens=COUNTS, d_model=COUNTS, base=BASES, like=LIKES)
@examples(3)
def test_every_table_of_positions_is_right_or_refused(
    n_tokens: Any, d_model: Any, base: Any, like: Any
) -> None:
    expected = count_refusals(n_tokens, d_model) | base_refusals(base) | like_refusals(like)
    expected |= {ValueError} if isinstance(d_model, int) and d_model % 2 else set()
    result = attempt(positions.sinusoidal, n_tokens, d_model, base=base, like=like)
    if refused(result, expected):
        return
    assert isinstance(result, torch.Tensor) is isinstance(like, torch.Tensor)
    turns = angles(np.arange(n_tokens), int(d_model), base)
    truth = np.stack([np.sin(turns), np.cos(turns)], -1).reshape(n_tokens, d_model)
    np.testing.assert_allclose(np.asarray(result), truth, rtol=0, atol=1e-14)


PLACES = [
    "float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64", "U1",
    "object", "list", "wrong", "other", "none",
]  # fmt: skip


@given(
    data=st.data(), base=BASES, on_tensors=st.booleans(),
    interleaved=st.sampled_from([*[True, False] * 6, *FLAGS]),
)  # fmt: skip
@examples(5)
def test_every_turn_is_right_or_refused(
    data: st.DataObject, base: Any, on_tensors: bool, interleaved: Any
) -> None:
    batch = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    n, d = data.draw(SIZES), 2 * data.draw(st.integers(0, 3))
    (x,) = data.draw(some_arrays((*batch, n, d)))
    expected = base_refusals(base) | refusals_of(x)
    expected |= set() if is_flag(interleaved) else {TypeError}
    kind = data.draw(st.sampled_from(PLACES))
    shape = data.draw(bent((n,))) if data.draw(st.integers(0, 5)) == 0 else (n,)
    places: Any = np.abs(numbers(shape, "float64", 5)) * 3
    turned_by = places
    if kind == "none":
        places, turned_by, shape = None, np.arange(n), (n,)
    elif kind == "list":
        places = places.tolist()
        shape = np.shape(places)  # a list of no rows does not say how long they were
    elif kind == "wrong":
        places = data.draw(st.sampled_from(["ab", 1.5, object(), ["a"], [None], [[1], 2], {1: 2}]))
        expected |= {*REFUSED}
    elif kind == "other":
        places = torch.tensor(places) if not on_tensors else places
    else:
        places = turned_by = numbers(shape, kind, 5)
        bad = kind in ("bool", "complex64", "U1", "object")
        expected |= {*REFUSED} if bad else set()
        places = tensor(places) if on_tensors and kind not in ("U1", "object") else places
    if isinstance(x, np.ndarray):
        good = x.ndim > 1 and x.shape[-1] % 2 == 0 and (kind == "none" or shape == x.shape[-2:-1])
        expected |= set() if good else {ValueError}
        turned_by = np.arange(x.shape[-2]) if kind == "none" and x.ndim > 1 else turned_by
    given_x = tensor(x) if on_tensors and isinstance(x, np.ndarray) else x
    result = attempt(positions.rotary, given_x, places, base=base, interleaved=interleaved)
    if refused(result, expected):
        return
    got = array(result) if on_tensors else result
    assert got.dtype == x.dtype
    turns = angles(np.asarray(turned_by), x.shape[-1], base)
    wide = x.astype(np.complex128 if not x.size else np.float64)
    d = x.shape[-1]
    first, second = (
        (slice(0, d, 2), slice(1, d, 2))
        if is_true(interleaved)
        else (slice(d // 2), slice(d // 2, d))
    )
    pairs = (wide[..., first] + 1j * wide[..., second]) * np.exp(1j * turns)
    truth = np.zeros(x.shape)
    truth[..., first], truth[..., second] = pairs.real, pairs.imag
    size = 20 * (1 + np.abs(wide).max(initial=0))
    floor = epsilon("float32") * size
    assert_close(got, truth, dtype=x.dtype.name, size=size, peer=truth, floor=floor)


# -- layers ----------------------------------------------------------------------------------------

WIDTHS = st.sampled_from([4, 1, 2, 6, 8, 0, -2, None, 2.0, True, "4", np.int64(4)])


def width_refusals(*widths: Any) -> Refusals:
    return count_refusals(*widths, least=1)


@given(
    d_model=WIDTHS, d_k=WIDTHS, d_v=WIDTHS, n_heads=WIDTHS, n_kv_heads=WIDTHS, limit=WIDTHS,
    bias=st.sampled_from(FLAGS), is_causal=st.sampled_from([False, True]),
    kind=st.sampled_from([None, "sinusoidal", "learned", "rotary", "alibi", 1, ["rotary"]]),
)  # fmt: skip
@examples(3)
def test_every_layer_is_made_or_refused(
    d_model: Any, d_k: Any, d_v: Any, n_heads: Any, n_kv_heads: Any, limit: Any, bias: Any,
    is_causal: bool, kind: Any,
) -> None:  # fmt: skip
    flags: Refusals = set() if is_flag(bias) else {TypeError}
    limits: Refusals = set() if limit is None else width_refusals(limit)
    sizes = [d_model if d is None else d for d in (d_k, d_v)]
    options = {"bias": bias, "is_causal": is_causal, "max_seq_len": limit}
    result = attempt(SelfAttention, d_model, d_k, d_v, **options)
    if not refused(result, flags | limits | width_refusals(d_model, *sizes)):
        assert result(torch.zeros(1, d_model)).shape == (1, sizes[1])

    n_kv = n_heads if n_kv_heads is None else n_kv_heads
    expected = flags | limits | width_refusals(d_model, n_heads, n_kv)
    known = kind is None or (isinstance(kind, str) and kind in ("sinusoidal", "learned", "rotary"))
    if not known:
        expected |= {*REFUSED}
    elif not expected:
        fits = d_model % n_heads == 0 and n_heads % n_kv == 0
        fits = fits and not (kind == "learned" and limit is None)
        fits = fits and not (kind == "sinusoidal" and d_model % 2)
        fits = fits and not (kind == "rotary" and d_model // n_heads % 2)
        expected |= set() if fits else {ValueError}
    result = attempt(
        MultiHeadSelfAttention, d_model, n_heads, n_kv_heads=n_kv_heads, positions=kind, **options
    )
    if not refused(result, expected):
        assert result(torch.zeros(1, d_model)).shape == (1, d_model)


HEADS = MultiHeadSelfAttention(4, 2, is_causal=False, max_seq_len=5).double()
ONE_HEAD = SelfAttention(4, 3, 2, is_causal=False, max_seq_len=5).double()


@given(data=st.data(), is_causal=st.booleans())
@examples(3)
def test_every_call_of_a_layer_is_right_or_refused(data: st.DataObject, is_causal: bool) -> None:
    batch = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    n = data.draw(SIZES)
    (X,) = data.draw(some_arrays((*batch, n, 4)))
    if isinstance(X, np.ndarray) and X.dtype.name in DTYPES and data.draw(st.integers(0, 4)):
        X = X.astype(np.float64)
    expected = refusals_of(X)
    if isinstance(X, np.ndarray):
        expected |= set() if X.dtype == np.float64 else {TypeError}
        fits = X.ndim > 1 and X.shape[-1] == 4 and X.shape[-2] <= 5
        expected |= set() if fits else {ValueError}
        batch, n = (X.shape[:-2], X.shape[-2]) if fits else (batch, n)
    for layer, heads in ((ONE_HEAD, ()), (HEADS, (2,))):
        faults = set(expected)
        layer.is_causal = is_causal
        mask: Any = None
        if data.draw(st.booleans()):
            shape = data.draw(part_of((*batch, *heads, n, n)))
            shape = data.draw(bent(shape)) if data.draw(st.integers(0, 3)) == 0 else shape
            dtype = data.draw(st.sampled_from(["bool", "float64", "float32", "float16", "int64"]))
            mask = numbers(shape, dtype, 3)
            faults |= set() if dtype in ("bool", "float64", "float32") else {TypeError}
            target = (*batch, *heads, n, n)
            faults |= set() if broadcasts(shape, target) == target else {ValueError}
        lengths: Any = data.draw(st.sampled_from([None, None, [n] * sum(batch[:1]), *LENGTHS]))
        if lengths is not None:
            fits = not (wrong := length_refusals(lengths, n)) and (len(lengths),) == batch
            faults |= wrong or (set() if fits else {*REFUSED})
        things = as_given(Rung("torch_dense"), X, mask)
        result = attempt(layer, *things, lengths=lengths)
        if refused(result, faults):
            continue
        part = np.ones((*batch, *heads, n, n), bool)
        added = np.zeros(())
        if is_causal:
            part = part & np.tri(n, dtype=bool)
        if lengths is not None:
            ends = np.asarray([int(m) for m in lengths]).reshape(*batch, *[1] * len(heads), 1, 1)
            part = part & (np.arange(n) < ends)
        if mask is not None and mask.dtype == bool:
            part = part & mask
        elif mask is not None:
            added = mask.astype(float)
        wide = {name: array(p.detach()) for name, p in layer.named_parameters()}
        query, key, value = (X @ wide[f"W_{W}.weight"].T for W in "QKV")
        if heads:
            query, key, value = (
                x.reshape(*batch, n, 2, 2).swapaxes(-2, -3) for x in (query, key, value)
            )
        floating = np.where(part, added, -np.inf)
        truth, _ = definition(query, key, value, floating)
        size = forward_size(query, key, value, floating)
        if heads:
            truth = truth.swapaxes(-2, -3).reshape(*batch, n, 4) @ wide["W_O.weight"].T
            size *= 4 * (1 + np.abs(wide["W_O.weight"]).max())
        assert_close(array(result), truth, dtype="float64", size=2 * size)


@given(data=st.data(), n_heads=WIDTHS)
def test_heads_are_split_and_merged_or_refused(data: st.DataObject, n_heads: Any) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([4, 0, 1, 2, 3]), max_size=3)))
    x = data.draw(st.sampled_from([*WRONG, *[numbers(shape, "float64", 1)] * len(WRONG)]))
    expected = width_refusals(n_heads)
    good = isinstance(x, np.ndarray)
    if not good:
        expected |= {TypeError}
    elif x.ndim < 2 or (not expected and x.shape[-1] % n_heads):
        expected |= {ValueError}
    given_x = tensor(x) if good else x
    result = attempt(split_heads, given_x, n_heads)
    if not refused(result, expected):
        assert result.shape == (*shape[:-2], n_heads, shape[-2], shape[-1] // n_heads)
        assert torch.equal(attempt(merge_heads, result), given_x)
    merged = attempt(merge_heads, given_x)
    refused(merged, set() if good and x.ndim > 2 else {ValueError} if good else {TypeError})
