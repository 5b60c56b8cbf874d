"""What must hold for every input: laws of attention, on inputs drawn by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from tolerance import assert_close, forward_size

import attnlib
from attnlib.numpy_dense import softmax

Array = NDArray[Any]
Problem = tuple[Array, Array, Array]

FORMS = attnlib.implementations()
LENGTHS = st.integers(1, 7)
every_form = pytest.mark.parametrize("form", FORMS)


def filled(*shape: int) -> st.SearchStrategy[Array]:
    return arrays(np.float64, shape, elements=st.floats(-8, 8, width=32))


@st.composite
def problems(draw: st.DrawFn, *, square: bool = False) -> Problem:
    n_queries, n_keys, n_features, n_values = (draw(LENGTHS) for _ in range(4))
    n_keys = n_queries if square else n_keys
    return (
        draw(filled(2, n_queries, n_features)),
        draw(filled(2, n_keys, n_features)),
        draw(filled(2, n_keys, n_values)),
    )


def close(got: Array, expected: Array, problem: Problem) -> None:
    # Both sides are computed, so both may be off.
    assert_close(got, expected, dtype="float64", size=2 * forward_size(*problem))


@every_form
@given(problem=problems(), seed=st.integers(0, 99))
def test_the_order_of_the_keys_does_not_matter(form: str, problem: Problem, seed: int) -> None:
    query, key, value = problem
    order = np.random.default_rng(seed).permutation(key.shape[-2])
    shuffled = FORMS[form](query, key[:, order], value[:, order])
    close(shuffled, FORMS[form](query, key, value), problem)


@every_form
@given(problem=problems(), seed=st.integers(0, 99))
def test_queries_in_another_order_give_outputs_in_that_order(
    form: str, problem: Problem, seed: int
) -> None:
    query, key, value = problem
    order = np.random.default_rng(seed).permutation(query.shape[-2])
    close(FORMS[form](query[:, order], key, value), FORMS[form](*problem)[:, order], problem)


@every_form
@given(problem=problems())
def test_each_output_lies_between_the_values(form: str, problem: Problem) -> None:
    value = problem[2]
    output = FORMS[form](*problem)
    slack = np.finfo(np.float64).eps * forward_size(*problem)
    assert np.all(output >= value.min(axis=-2, keepdims=True) - slack)
    assert np.all(output <= value.max(axis=-2, keepdims=True) + slack)


@every_form
@given(problem=problems())
def test_output_is_linear_in_the_values(form: str, problem: Problem) -> None:
    query, key, value = problem
    doubled = FORMS[form](query, key, 2 * value + 1)
    close(doubled, 2 * FORMS[form](*problem) + 1, (query, key, 2 * np.abs(value) + 1))


@every_form
@given(problem=problems(square=True), data=st.data())
def test_the_past_does_not_see_the_future(form: str, problem: Problem, data: st.DataObject) -> None:
    query, key, value = problem
    now = data.draw(st.integers(0, key.shape[-2] - 1))
    before = FORMS[form](query, key, value, is_causal=True)
    key, value = key.copy(), value.copy()
    key[:, now:], value[:, now:] = 5 - key[:, now:], value[:, now:] + 100
    after = FORMS[form](query, key, value, is_causal=True)
    close(after[:, :now], before[:, :now], (query, key, value))


@every_form
@given(problem=problems(square=True), data=st.data())
def test_the_present_sees_itself(form: str, problem: Problem, data: st.DataObject) -> None:
    query, key, value = problem
    now = data.draw(st.integers(0, key.shape[-2] - 1))
    raised = value.copy()
    raised[:, now] += 100
    # At scale 0 all weights are equal, so that none is too small to show.
    before, after = (FORMS[form](query, key, v, None, 0.0, True, scale=0) for v in (value, raised))
    assert np.all(after[:, now:] - before[:, now:] > 1)
    np.testing.assert_array_equal(after[:, :now], before[:, :now])


@every_form
@given(problem=problems())
def test_each_entry_of_a_batch_is_computed_by_itself(form: str, problem: Problem) -> None:
    together = FORMS[form](*problem)
    for b in range(2):
        close(together[b], FORMS[form](*(a[b] for a in problem)), problem)


@every_form
@given(problem=problems())
def test_a_constant_on_a_row_of_scores_changes_nothing(form: str, problem: Problem) -> None:
    query, key, _ = problem
    row = np.linspace(-50, 50, query.shape[-2])[:, None]
    mask = np.broadcast_to(row, (query.shape[-2], key.shape[-2]))
    shifted = FORMS[form](*problem, mask)
    size = 2 * forward_size(*problem, mask)
    assert_close(shifted, FORMS[form](*problem), dtype="float64", size=size)


@every_form
@given(problem=problems())
def test_a_key_given_twice_is_the_same_as_log_two_on_its_score(form: str, problem: Problem) -> None:
    query, key, value = problem
    doubled = FORMS[form](
        query, np.concatenate([key, key[:, :1]], 1), np.concatenate([value, value[:, :1]], 1)
    )
    mask = np.zeros((1, key.shape[-2]))
    mask[0, 0] = np.log(2)
    close(FORMS[form](query, key, value, mask), doubled, problem)


@every_form
@given(problem=problems())
def test_float32_is_float64_with_fewer_digits(form: str, problem: Problem) -> None:
    exact = FORMS[form](*problem)  # the inputs were drawn so that float32 holds them
    rounded = FORMS[form](*(a.astype(np.float32) for a in problem))
    assert_close(rounded, exact, dtype="float32", size=forward_size(*problem))


@every_form
@given(problem=problems())
def test_layout_does_not_matter(form: str, problem: Problem) -> None:
    fortran = [np.asfortranarray(a) for a in problem]
    flipped = [np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1] for a in problem]
    for views in (fortran, flipped):
        close(FORMS[form](*views), FORMS[form](*problem), problem)


@given(scores=filled(3, 5), shift=st.floats(-1e4, 1e4))
def test_softmax_does_not_feel_a_shift(scores: Array, shift: float) -> None:
    # Adding the shift rounds the scores; that is all that may show.
    bound = np.finfo(np.float64).eps * (40 + 4 * abs(shift))
    assert np.abs(softmax(scores + shift) - softmax(scores)).max() <= bound


@given(scores=filled(3, 5))
def test_softmax_keeps_the_order(scores: Array) -> None:
    for row, weights in zip(scores, softmax(scores), strict=True):
        assert np.all(np.diff(weights[np.argsort(row)]) >= 0)
