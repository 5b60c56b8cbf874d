"""The laws of the softmax state, and what the blockwise form promises beyond the common contract.

A state is compared by its maximum, to the bit, and by what it finishes to. Scores are handed over
as they are, so that their bounds are those of attention without features and with a mask.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from tolerance import assert_close, forward_size, lse_size

import attnlib
from attnlib import numpy_blockwise, numpy_dense, numpy_tokenwise
from attnlib._checks import Band
from attnlib.numpy_blockwise import (
    SoftmaxState,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

Array = NDArray[Any]
Block = tuple[Array, Array]  # scores (L, B) and value (B, E_v)

L, S, E, E_V = 37, 41, 13, 11  # primes, a little more than a block of 32
SIZES = [1, 2, 3, 32, S - 1, S, S + 1, 1000]

# Multiples of 1/8, so that a shift by another one rounds nothing.
EIGHTHS = st.integers(-400, 400).map(lambda n: n / 8)
SCORES = EIGHTHS | st.just(-math.inf)
ONE = st.just(1)


@st.composite
def blocks(draw: st.DrawFn, *, count: st.SearchStrategy[int] = ONE) -> list[Block]:
    """Return blocks of scores and values, of one to four keys, for the same rows."""
    n_rows, n_features, n_blocks = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(count)
    return [
        (
            draw(arrays(np.float64, (n_rows, n_keys), elements=SCORES)),
            draw(arrays(np.float64, (n_keys, n_features), elements=EIGHTHS)),
        )
        for n_keys in (draw(st.integers(1, 4)) for _ in range(n_blocks))
    ]


def empty_for(block: Block) -> SoftmaxState:
    scores, value = block
    return SoftmaxState.empty(scores.shape[:-1], value.shape[-1])


def state_of(*blocks: Block) -> SoftmaxState:
    return functools.reduce(lambda state, block: state.update(*block), blocks, empty_for(blocks[0]))


def joined(blocks: list[Block]) -> Block:
    scores, values = zip(*blocks, strict=True)
    return np.concatenate(scores, axis=-1), np.concatenate(values, axis=-2)


def as_attention(block: Block) -> dict[str, Array]:
    """Return the call that has these scores: no features, and a mask that is added."""
    scores, value = block
    n_queries, n_keys = scores.shape[-2:]
    return {
        "query": np.zeros((n_queries, 0)),
        "key": np.zeros((n_keys, 0)),
        "value": value,
        "attn_mask": scores,
    }


def assert_same_bits(got: SoftmaxState, expected: SoftmaxState) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_finished(
    got: tuple[Array, Array], expected: tuple[Array, Array], block: Block, sides: int = 2
) -> None:
    call = as_attention(block)
    size = lse_size(call["query"], call["key"], call["attn_mask"])
    assert_close(got[0], expected[0], dtype="float64", size=sides * forward_size(**call))
    assert_close(got[1], expected[1], dtype="float64", size=sides * size)


def assert_same_state(got: SoftmaxState, expected: SoftmaxState, block: Block) -> None:
    """Hold one computed state against another; `block` has all the keys that they saw."""
    np.testing.assert_array_equal(got.row_max, expected.row_max)
    assert_finished(got.finish(), expected.finish(), block)


@given(found=blocks())
def test_a_state_is_maximum_sum_and_weighted_sum(found: list[Block]) -> None:
    [(scores, value)] = found
    state = state_of((scores, value))
    for i, row in enumerate(scores):
        seen = row[row > -math.inf]
        exponentials = [math.exp(score - max(seen)) for score in seen]
        row_sum = math.fsum(exponentials)
        assert state.row_max[i] == max(seen, default=-math.inf)
        size = lse_size(np.zeros((1, 0)), np.zeros((row.size, 0)), row) * (1 + row_sum)
        truth = np.array([row_sum])
        assert_close(state.row_sum[i : i + 1], truth, dtype="float64", size=size)
        for c in range(value.shape[-1]):
            parts = zip(exponentials, value[row > -math.inf, c], strict=True)
            truth = np.array([math.fsum(weight * v for weight, v in parts)])
            bound = size * (1 + np.abs(value).max())
            assert_close(state.output[i, c : c + 1], truth, dtype="float64", size=bound)


@given(found=blocks())
def test_the_empty_state_is_the_identity(found: list[Block]) -> None:
    empty, state = empty_for(found[0]), state_of(*found)
    for merged in (state.merge(empty), empty.merge(state)):
        assert_same_bits(merged, state)
    assert_same_bits(empty.merge(empty), empty)


@given(found=blocks(count=st.just(2)))
def test_merging_is_commutative(found: list[Block]) -> None:
    one, two = (state_of(block) for block in found)
    assert_same_bits(one.merge(two), two.merge(one))


@given(found=blocks(), data=st.data())
def test_keys_may_be_cut_anywhere_and_taken_in_any_order(
    found: list[Block], data: st.DataObject
) -> None:
    [(scores, value)] = found
    n_keys = scores.shape[-1]
    order = np.array(data.draw(st.permutations(range(n_keys))))
    cuts = data.draw(st.sets(st.integers(1, n_keys - 1))) if n_keys > 1 else set()
    pieces = [
        (scores[:, order[start:stop]], value[order[start:stop]])
        for start, stop in itertools.pairwise([0, *sorted(cuts), n_keys])
    ]
    assert_same_state(state_of(*pieces), state_of((scores, value)), (scores, value))


@given(found=blocks(count=st.integers(1, 6)), data=st.data())
def test_states_may_be_merged_in_any_tree(found: list[Block], data: st.DataObject) -> None:
    states = [state_of(block) for block in found]
    while len(states) > 1:
        one = states.pop(data.draw(st.integers(0, len(states) - 1)))
        two = states.pop(data.draw(st.integers(0, len(states) - 1)))
        states.append(one.merge(two))
    block = joined(found)
    assert_same_state(states[0], state_of(block), block)
    truth = numpy_tokenwise.scaled_dot_product_attention_with_lse(**as_attention(block))
    assert_finished(states[0].finish(), truth, block, sides=1)


@given(found=blocks(count=st.integers(1, 4)), data=st.data())
def test_nan_and_infinity_are_never_lost(found: list[Block], data: st.DataObject) -> None:
    bad = data.draw(st.sampled_from([math.nan, math.inf]))
    scores, _ = data.draw(st.sampled_from(found))
    row, column = (data.draw(st.integers(0, n - 1)) for n in scores.shape)
    scores[row, column] = bad
    for state in (state_of(*found), functools.reduce(SoftmaxState.merge, map(state_of, found))):
        output, lse = state.finish()
        np.testing.assert_equal(state.row_max[row], bad)
        np.testing.assert_array_equal(np.isnan(lse), np.arange(len(lse)) == row)
        np.testing.assert_array_equal(np.isnan(output).all(-1), np.arange(len(lse)) == row)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_saw_nothing_gives_zeros(dtype: str) -> None:
    empty = SoftmaxState.empty((2, L), E_V, dtype)
    removed = np.full((2, L, 3), -np.inf, dtype)
    nan = np.full((3, E_V), np.nan, dtype)
    with np.errstate(all="raise"):
        for state in (
            empty,
            empty.merge(empty),
            empty.update(removed[..., :0], nan[:0]),
            empty.update(removed, np.zeros_like(nan)),
            empty.update(removed, nan),
            empty.update(removed, nan).merge(empty).update(removed, nan),
        ):
            assert_same_bits(state, empty)
            output, lse = state.finish()
            np.testing.assert_array_equal(output, np.zeros((2, L, E_V)))
            np.testing.assert_array_equal(lse, np.full((2, L), -np.inf))
            assert {a.dtype for a in (*state, output, lse)} == {np.dtype(dtype)}


def test_an_update_leaves_the_state_before_it_alone() -> None:
    rng = np.random.default_rng(5)
    first, second = ((rng.normal(size=(3, 4)), rng.normal(size=(4, 2))) for _ in range(2))
    state = state_of(first)
    before = [array.tobytes() for array in state]
    for array in (*state, *first, *second):
        array.flags.writeable = False
    state.update(*second).finish()
    state.merge(state_of(second)).finish()
    state.finish()[0][:] = 7
    assert [array.tobytes() for array in state] == before


@pytest.mark.parametrize("step", [1e4, -1e4, 1e-3, 0.0])
def test_a_walk_of_the_maximum(step: float) -> None:
    """Scores 0, step, 2 step, …: the maximum rises with each key, falls behind, or stays."""
    n_keys = 50
    scores, value = step * np.arange(n_keys)[None], np.arange(1.0, n_keys + 1)[:, None]
    one_by_one = [(scores[:, j : j + 1], value[j : j + 1]) for j in range(n_keys)]
    truth = numpy_tokenwise.scaled_dot_product_attention_with_lse(**as_attention((scores, value)))
    assert_finished(state_of(*one_by_one).finish(), truth, (scores, value), sides=1)
    if step == 1e4:
        assert truth[0].item() == n_keys


def test_half_precision_is_kept_in_float32() -> None:
    n_keys = 5000  # in float16 a sum of ones ends at 2048, in bfloat16 at 256
    for dtype in (np.float16, ml_dtypes.bfloat16):
        state = SoftmaxState.empty((1,), 1, dtype)
        for _ in range(n_keys // 100):
            state = state.update(np.zeros((1, 100), dtype), np.ones((100, 1), dtype))
        assert state.row_sum.dtype == state.output.dtype == np.float32
        assert state.row_sum.item() == state.output.item() == n_keys


@pytest.mark.parametrize(
    ("scores", "value", "error", "came"),
    [
        ([[1.0]], np.ones((1, 2)), TypeError, "scores .* list"),
        (np.ones((3, 1)), 1.0, TypeError, "value .* float"),
        (np.ones((3, 1), int), np.ones((1, 2)), TypeError, "scores .* int64"),
        (np.ones((3, 1)), np.ones((1, 2), bool), TypeError, "value .* bool"),
        *(
            (np.ones(scores), np.ones(value), ValueError, re.escape(f"{scores}, value {value}"))
            for scores, value in [
                ((1, 4), (4, 2)), ((3, 4), (5, 2)), ((3, 4), (1, 2)), ((3, 4), (4, 1)),
                ((3,), (3, 2)), ((3, 2), (2,)), ((), ()),
            ]
        ),
    ],
)  # fmt: skip
def test_a_block_that_does_not_fit(
    scores: Any, value: Any, error: type[Exception], came: str
) -> None:
    with pytest.raises(error, match=f"got .*{came}" if error is ValueError else came):
        SoftmaxState.empty((3,), 2).update(scores, value)


@pytest.mark.parametrize(("n_rows", "n_features"), [(1, 2), (3, 1), (4, 2)])
def test_states_that_do_not_fit(n_rows: int, n_features: int) -> None:
    one, two = SoftmaxState.empty((3,), 2), SoftmaxState.empty((n_rows,), n_features)
    with pytest.raises(ValueError, match=rf"got \(3, 2\) and \({n_rows}, {n_features}\)"):
        one.merge(two)


def drawn(*shapes: tuple[int, ...], dtype: str = "float64") -> list[Array]:
    rng = np.random.default_rng(17)
    return [rng.normal(0, 1.5, shape).astype(dtype) for shape in shapes]


def kept(*shape: int) -> Array:
    mask: Array = np.random.default_rng(3).random(shape) < 0.6
    mask[..., : shape[-2] // 3, :] &= np.arange(shape[-1]) >= 32  # nothing in the first blocks
    return mask


OPTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal, negative scale": {"is_causal": True, "scale": -0.7},
    "boolean": {"attn_mask": kept(L, S)},
    "floating (H, 1, S)": {"attn_mask": drawn((2, 1, S), dtype="float32")[0]},
    "floating with -∞": {"attn_mask": np.where(kept(2, L, S), np.float32(1.5), -np.inf)},
}


@functools.cache
def truth_for(options: str, dtype: str) -> tuple[list[Array], tuple[Array, Array]]:
    arrays = drawn((2, L, E), (S, E), (S, E_V), dtype=dtype)
    wide = [array.astype(np.float64) for array in arrays]
    return arrays, numpy_tokenwise.scaled_dot_product_attention_with_lse(*wide, **OPTIONS[options])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_the_block_size_changes_no_result(size: int, options: str, dtype: str) -> None:
    arrays, truth = truth_for(options, dtype)
    given = OPTIONS[options]
    output, lse = scaled_dot_product_attention_with_lse(*arrays, **given, block_size=size)
    mask, scale = given.get("attn_mask"), given.get("scale")
    assert_close(output, truth[0], dtype=dtype, size=forward_size(*arrays, mask, scale))
    assert_close(lse, truth[1], dtype=dtype, size=lse_size(*arrays[:2], mask, scale))


def tiles(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[tuple[int, int]]:
    """Return the shape of each tile that a call on 10 queries and `n_keys` keys computes."""
    found: list[tuple[int, int]] = []
    update = SoftmaxState.update

    def counted(state: SoftmaxState, scores: Array, *rest: Any) -> SoftmaxState:
        found.append(scores.shape)
        return update(state, scores, *rest)

    n_keys = options.pop("n_keys")
    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxState, "update", counted)
        scaled_dot_product_attention(*drawn((10, 2), (n_keys, 2), (n_keys, 2)), **options)
    return found


def test_each_key_is_met_once_by_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, n_keys in itertools.product((1, 3, 5, 10, 11), (1, 6, 10, 13)):
        found = tiles(monkeypatch, n_keys=n_keys, block_size=size)
        assert sum(rows * keys for rows, keys in found) == 10 * n_keys
        assert max(rows for rows, _ in found) == min(size, 10)
        assert max(keys for _, keys in found) == min(size, n_keys)


def test_a_band_says_where_keys_begin_and_end() -> None:
    band = Band(first=2, left=1, right=0)
    assert band.span(slice(0, 3), 9) == (1, 5)
    assert band.span(slice(8, 9), 9) == (9, 9)
    assert Band(first=-3, right=0).span(slice(0, 2), 9) == (0, 0)
    assert Band().span(slice(4, 5), 9) == (0, 9)
    assert band.holds(slice(1, 2), slice(2, 4))
    assert not band.holds(slice(1, 2), slice(2, 5))
    assert not band.holds(slice(1, 2), slice(1, 4))


def test_tiles_outside_of_the_band_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    causal = functools.partial(tiles, monkeypatch, is_causal=True)
    square = [(4, 4), (4, 4), (4, 4), (2, 4), (2, 4), (2, 2)]
    assert causal(n_keys=10, block_size=4) == square
    assert causal(n_keys=13, block_size=4) == square
    assert causal(n_keys=6, block_size=4) == [(4, 4), (4, 4), (4, 2), (2, 4), (2, 2)]
    assert causal(n_keys=13, block_size=1) == [(1, 1)] * 55
    assert causal(n_keys=13, block_size=99) == [(10, 10)]
    # The tile on the diagonal, and the one before it.
    assert len(tiles(monkeypatch, n_keys=10, window=(2, 0), block_size=2)) == 5 + 4


PROTECTED = """
import ctypes, mmap, sys
import numpy as np
from attnlib import {module} as form
memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
keys = np.frombuffer(memory, np.float64).reshape(-1, 8)  # the second half is out of bounds
query = np.ones((len(keys) // 2, 8))
no_access, page = 0, ctypes.c_void_p(keys.ctypes.data + mmap.PAGESIZE)
assert ctypes.CDLL(None).mprotect(page, ctypes.c_size_t(mmap.PAGESIZE), no_access) == 0
for options in ({options}):
    output = form.scaled_dot_product_attention(query, keys, keys, is_causal=True, **options)
    assert output.shape == query.shape and not output.any()
print("never read")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is of POSIX")
@pytest.mark.parametrize(
    ("module", "options", "survives"),
    [
        ("numpy_blockwise", "{}, {'block_size': 48}, {'block_size': 10**6}", True),
        ("numpy_dense", "{},", False),  # so the guard does guard
    ],
)
def test_keys_that_no_query_may_see_are_never_read(
    module: str, options: str, survives: bool
) -> None:
    """Their memory may not be touched: whoever does is ended by the operating system."""
    done = subprocess.run(
        [sys.executable, "-c", PROTECTED.format(module=module, options=options)],
        cwd=Path(attnlib.__path__[0]).parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode == 0, done.stdout) == (survives, "never read\n" * survives)
    assert survives or done.returncode < 0, done.stderr  # ended by a signal


def working_memory(
    form: Callable[..., Any], n: int, *rest: Any, dtype: str = "float32", **options: Any
) -> int:
    """Return the bytes at the peak, over those of the result, for n queries and n keys."""
    query, key, value = drawn((n, 4), (n, 4), (n, 4), dtype=dtype)
    tracemalloc.start()
    try:
        results = form(query, key, value, *rest, **options)
        return tracemalloc.get_traced_memory()[1] - sum(array.nbytes for array in results)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_causal", [False, True])
def test_working_memory_does_not_grow_with_the_lengths(is_causal: bool) -> None:
    """Beside its result the blockwise form holds some tiles; the matrix form some (L, S)."""
    blockwise, dense = (
        [working_memory(form, n, is_causal=is_causal) for n in (512, 2048)]
        for form in (
            scaled_dot_product_attention_with_lse,
            numpy_dense.scaled_dot_product_attention_with_lse,
        )
    )
    tile = 128 * 128 * np.dtype(np.float32).itemsize
    assert blockwise[1] < 1.1 * blockwise[0]
    assert blockwise[1] < 8 * tile
    assert dense[1] > 15 * dense[0]
    # Half precision is widened once: query, key, value and output in float32.
    half = working_memory(scaled_dot_product_attention_with_lse, 2048, dtype="float16")
    assert half < blockwise[1] + 1.1 * 4 * 2048 * (4 * 4 + 1)


@pytest.mark.parametrize("shape", [(2048,), (1, 2048), (2048, 1), (2048, 2048)])
@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_masks_are_not_expanded(shape: tuple[int, ...], dtype: str) -> None:
    mask = np.ones(shape, dtype)
    without = working_memory(scaled_dot_product_attention_with_lse, 2048)
    assert working_memory(scaled_dot_product_attention_with_lse, 2048, mask) < 2 * without


def test_grouped_heads_are_not_copied_out() -> None:
    query, key = drawn((64, 16, 8), (1, 4096, 8))
    tracemalloc.start()
    scaled_dot_product_attention(query, key, key, enable_gqa=True, block_size=16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * key.nbytes / 8


def test_a_block_size_may_be_any_kind_of_integer() -> None:
    arrays = drawn((5, 3), (7, 3), (7, 2))
    for size in (np.int8(3), np.uint64(3)):
        np.testing.assert_array_equal(
            scaled_dot_product_attention(*arrays, block_size=size),
            scaled_dot_product_attention(*arrays, block_size=3),
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_are_kept_in_the_dtype_of_the_scores(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    kept = set()
    update = SoftmaxState.update

    def noted(self: SoftmaxState, *given: Any) -> SoftmaxState:
        kept.update(x.dtype.name for x in self)
        return update(self, *given)

    monkeypatch.setattr(SoftmaxState, "update", noted)
    ones = np.ones((5, 3), dtype)
    numpy_blockwise.scaled_dot_product_attention(ones, ones, ones, block_size=2)
    assert kept == {"float64" if dtype == "float64" else "float32"}
