"""The laws of the softmax state, and what the blockwise form promises beyond the common contract.

A state is compared by its maximum, to the bit, and by what it finishes to. Scores are handed over
as they are, so that their bounds are those of attention without features and with a mask.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from inputs import drawn
from numpy.typing import NDArray
from tolerance import assert_close, forward_size, lse_size

from attnlib import numpy_tokenwise
from attnlib.numpy_blockwise import (
    SoftmaxState,
    scaled_dot_product_attention,
    scaled_dot_product_attention_with_lse,
)

Array = NDArray[Any]
Block = tuple[Array, Array]  # scores (L, B) and value (B, E_v)

# Multiples of 1/8, so that a shift by another one rounds nothing.
EIGHTHS = st.integers(-400, 400).map(lambda n: n / 8)
SCORES = EIGHTHS | st.just(-math.inf)


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    """Return blocks of scores and values, of one to four keys, for the same rows."""
    n_rows, n_features = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    scores = SCORES | st.sampled_from([math.nan, math.inf]) if draw(st.booleans()) else SCORES
    return [
        (
            draw(arrays(np.float64, (n_rows, n_keys), elements=scores)),
            draw(arrays(np.float64, (n_keys, n_features), elements=EIGHTHS)),
        )
        for n_keys in draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    ]


def state_of(*blocks: Block) -> SoftmaxState:
    scores, value = blocks[0]
    empty = SoftmaxState.empty(scores.shape[:-1], value.shape[-1])
    return functools.reduce(lambda state, block: state.update(*block), blocks, empty)


def assert_same_bits(got: SoftmaxState, expected: SoftmaxState) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_right(state: SoftmaxState, *blocks: Block) -> None:
    """Hold a state against the definition on all the keys that it saw."""
    scores = np.concatenate([scores for scores, _ in blocks], axis=-1)
    value = np.concatenate([value for _, value in blocks])
    # The call that has these scores: no features, and a mask that is added.
    query, key = np.zeros((len(scores), 0)), np.zeros((len(value), 0))
    attend = numpy_tokenwise.scaled_dot_product_attention_with_lse
    truth, true_lse = attend(query, key, value, scores)
    output, lse = state.finish()
    np.testing.assert_array_equal(state.m, scores.max(-1))
    assert_close(output, truth, dtype="float64", size=forward_size(query, key, value, scores))
    assert_close(lse, true_lse, dtype="float64", size=lse_size(query, key, attn_mask=scores))


# -- the state -------------------------------------------------------------------------------------


@given(found=blocks(), data=st.data())
def test_states_may_be_merged_in_any_tree(found: list[Block], data: st.DataObject) -> None:
    """The empty state is the identity, and NaN and ∞ are never lost."""
    states = [state_of(block) for block in found]
    empty = SoftmaxState.empty(states[0].m.shape, states[0].o.shape[-1])
    for merged in (states[0].merge(empty), empty.merge(states[0])):
        assert_same_bits(merged, states[0])
    while len(states) > 1:
        one = states.pop(data.draw(st.integers(0, len(states) - 1)))
        two = states.pop(data.draw(st.integers(0, len(states) - 1)))
        assert_same_bits(one.merge(two), two.merge(one))
        states.append(one.merge(two))
    assert_right(states[0], *found)
    assert_right(state_of(*found), *found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_saw_nothing_gives_zeros(dtype: str) -> None:
    empty = SoftmaxState.empty((2, 5), 3, dtype)
    removed, nan = np.full((2, 5, 4), -np.inf, dtype), np.full((4, 3), np.nan, dtype)
    with np.errstate(all="raise"):
        for state in (empty.update(removed[..., :0], nan[:0]), empty.update(removed, nan)):
            assert_same_bits(state.merge(empty), empty)
            output, lse = state.finish()
            assert np.all(output == 0) and np.all(lse == -np.inf)
            assert {a.dtype for a in (*state, output, lse)} == {np.dtype(dtype)}


def test_half_precision_is_added_up_in_float32() -> None:
    n_keys = 4097  # float16 has none between 4096 and 4100
    scores, ones = np.zeros((1, n_keys), np.float16), np.ones((n_keys, 1), np.float16)
    state = SoftmaxState.empty((1,), 1, np.float16).update(scores, ones)
    assert state.ell.item() == state.o.item() == n_keys


def test_an_update_leaves_the_state_before_it_alone() -> None:
    first, second = ((scores, value) for scores, value in [drawn((3, 4), (4, 2))] * 2)
    state = state_of(first)
    before = [array.tobytes() for array in state]
    for array in (*state, *first):
        array.flags.writeable = False
    state.update(*second).finish()
    state.merge(state_of(second)).finish()
    state.finish()[0][:] = 7
    assert [array.tobytes() for array in state] == before


@pytest.mark.parametrize(
    ("scores", "value", "error", "came"),
    [
        ([[1.0]], np.ones((1, 2)), TypeError, "scores .* list"),
        (np.ones((3, 1)), np.ones((1, 2), bool), TypeError, "value .* bool"),
        *(
            (np.ones(scores), np.ones(value), ValueError, re.escape(f"{scores}, value {value}"))
            for scores, value in [
                ((1, 4), (4, 2)), ((3, 4), (5, 2)), ((3, 4), (4, 1)), ((3, 2), (2,)), ((), ()),
            ]
        ),
    ],
)
def test_a_block_that_does_not_fit(
    scores: Any, value: Any, error: type[Exception], came: str
) -> None:
    with pytest.raises(error, match=f"got .*{came}" if error is ValueError else came):
        SoftmaxState.empty((3,), 2).update(scores, value)


def test_states_that_do_not_fit() -> None:
    for n_rows, n_features in ((1, 2), (3, 1)):
        one, two = SoftmaxState.empty((3,), 2), SoftmaxState.empty((n_rows,), n_features)
        with pytest.raises(ValueError, match=rf"got \(3, 2\) and \({n_rows}, {n_features}\)"):
            one.merge(two)


# -- attention in tiles ----------------------------------------------------------------------------


def tiles(monkeypatch: pytest.MonkeyPatch, n_keys: int, **options: Any) -> list[tuple[int, int]]:
    """Return the shape of each tile that a call on 10 queries computes."""
    found: list[tuple[int, int]] = []
    update = SoftmaxState.update

    def counted(state: SoftmaxState, scores: Array, *rest: Any) -> SoftmaxState:
        found.append(scores.shape)
        return update(state, scores, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxState, "update", counted)
        query, key = drawn((10, 2), (n_keys, 2))
        scaled_dot_product_attention(query, key, key, **options)
    return found


def test_tiles_outside_of_the_band_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, n_keys in itertools.product((3, np.uint64(11)), (6, 13)):
        found = tiles(monkeypatch, n_keys, block_size=size)
        assert sum(rows * keys for rows, keys in found) == 10 * n_keys
    causal = functools.partial(tiles, monkeypatch, is_causal=True)
    square = [(4, 4), (4, 4), (4, 4), (2, 4), (2, 4), (2, 2)]
    assert causal(10, block_size=4) == causal(13, block_size=4) == square
    assert causal(6, block_size=4) == [(4, 4), (4, 4), (4, 2), (2, 4), (2, 2)]
    # The tile on the diagonal, and the one before it.
    assert len(tiles(monkeypatch, 10, window=(2, 0), block_size=2)) == 5 + 4


def working_memory(*arrays: Array, **options: Any) -> int:
    """Return the bytes at the peak, over those of the result."""
    tracemalloc.start()
    try:
        results = scaled_dot_product_attention_with_lse(*arrays, **options)
        return tracemalloc.get_traced_memory()[1] - sum(array.nbytes for array in results)
    finally:
        tracemalloc.stop()


def test_working_memory_does_not_grow_with_the_lengths() -> None:
    """Beside its result the form holds some tiles, and no part of it is as large as (L, S)."""
    n, tile = 2048, 128 * 128 * 4
    tokens = drawn((n, 4), (n, 4), (n, 4), dtype="float32")
    assert working_memory(*tokens, is_causal=True) < 8 * tile
    # Half precision is widened once: query, key, value and output in float32.
    half = working_memory(*(x.astype("float16") for x in tokens))
    assert half < 8 * tile + 1.1 * 4 * n * (4 * 4 + 1)
    for dtype in ("bool", "float32"):  # a mask is not expanded, or copied
        assert working_memory(*tokens, np.ones((1, n), dtype)) < 12 * tile
    query, key = drawn((64, 16, 8), (1, 4096, 8))  # a key head is not copied for each of 64 heads
    assert working_memory(query, key, key, enable_gqa=True, block_size=16) < 8 * key.nbytes
