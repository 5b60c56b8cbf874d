"""What must hold for every input: laws of attention, on inputs drawn by hypothesis."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from rungs import Rung, every_rung, every_rung_with_gradients, every_rung_with_mask_gradients
from tolerance import assert_close, forward_size, gradient_sizes

from attnlib.numpy_dense import softmax

Array = NDArray[Any]
Problem = tuple[Array, Array, Array]

LENGTHS = st.integers(1, 7)


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


def given_to_rungs(**drawn: st.SearchStrategy[Any]) -> Callable[..., Callable[[Rung], None]]:
    """Hold a law for every rung: on a third of the profile's examples, on 8 if it is slow."""
    third = settings.default.max_examples // 3  # type: ignore[union-attr]

    def decorate(law: Callable[..., None]) -> Callable[[Rung], None]:
        many = settings(max_examples=third)(given(**drawn)(law))
        few = settings(max_examples=8)(given(**drawn)(law))

        def test(rung: Rung) -> None:
            (few if rung.is_interpreted else many)(rung=rung)

        test.__name__, test.__doc__ = law.__name__, law.__doc__
        return test

    return decorate


def test_examples_are_drawn_as_asked() -> None:
    # A package may load a profile of its own when it is imported, as torch.testing does.
    assert settings.get_current_profile_name() == os.environ.get("HYPOTHESIS_PROFILE", "steady")


def close(got: Array, expected: Array, problem: Problem) -> None:
    # Both sides are computed, so both may be off.
    assert_close(got, expected, dtype="float64", size=2 * forward_size(*problem))


@every_rung
@given_to_rungs(problem=problems(), seed=st.integers(0, 99))
def test_the_order_of_the_keys_does_not_matter(rung: Rung, problem: Problem, seed: int) -> None:
    query, key, value = problem
    order = np.random.default_rng(seed).permutation(key.shape[-2])
    shuffled = rung(query, key[:, order], value[:, order])
    close(shuffled, rung(query, key, value), problem)


@every_rung
@given_to_rungs(problem=problems(), seed=st.integers(0, 99))
def test_queries_in_another_order_give_outputs_in_that_order(
    rung: Rung, problem: Problem, seed: int
) -> None:
    query, key, value = problem
    order = np.random.default_rng(seed).permutation(query.shape[-2])
    close(rung(query[:, order], key, value), rung(*problem)[:, order], problem)


@every_rung
@given_to_rungs(problem=problems())
def test_each_output_lies_between_the_values(rung: Rung, problem: Problem) -> None:
    value = problem[2]
    output = rung(*problem)
    slack = np.finfo(np.float64).eps * forward_size(*problem)
    assert np.all(output >= value.min(axis=-2, keepdims=True) - slack)
    assert np.all(output <= value.max(axis=-2, keepdims=True) + slack)


@every_rung
@given_to_rungs(problem=problems())
def test_output_is_linear_in_the_values(rung: Rung, problem: Problem) -> None:
    query, key, value = problem
    doubled = rung(query, key, 2 * value + 1)
    close(doubled, 2 * rung(*problem) + 1, (query, key, 2 * np.abs(value) + 1))


@every_rung
@given_to_rungs(problem=problems(square=True), data=st.data())
def test_the_past_does_not_see_the_future(
    rung: Rung, problem: Problem, data: st.DataObject
) -> None:
    query, key, value = problem
    now = data.draw(st.integers(0, key.shape[-2] - 1))
    before = rung(query, key, value, is_causal=True)
    key, value = key.copy(), value.copy()
    key[:, now:], value[:, now:] = 5 - key[:, now:], value[:, now:] + 100
    after = rung(query, key, value, is_causal=True)
    close(after[:, :now], before[:, :now], (query, key, value))


@every_rung
@given_to_rungs(problem=problems(square=True), data=st.data())
def test_the_present_sees_itself(rung: Rung, problem: Problem, data: st.DataObject) -> None:
    query, key, value = problem
    now = data.draw(st.integers(0, key.shape[-2] - 1))
    raised = value.copy()
    raised[:, now] += 100
    # At scale 0 all weights are equal, so that none is too small to show.
    before, after = (rung(query, key, v, None, 0.0, True, scale=0) for v in (value, raised))
    assert np.all(after[:, now:] - before[:, now:] > 1)
    np.testing.assert_array_equal(after[:, :now], before[:, :now])


@every_rung
@given_to_rungs(problem=problems())
def test_each_entry_of_a_batch_is_computed_by_itself(rung: Rung, problem: Problem) -> None:
    together = rung(*problem)
    for b in range(2):
        close(together[b], rung(*(a[b] for a in problem)), problem)


@every_rung
@given_to_rungs(problem=problems())
def test_a_constant_on_a_row_of_scores_changes_nothing(rung: Rung, problem: Problem) -> None:
    query, key, _ = problem
    row = np.linspace(-50, 50, query.shape[-2])[:, None]
    mask = np.broadcast_to(row, (query.shape[-2], key.shape[-2]))
    shifted = rung(*problem, mask)
    size = 2 * forward_size(*problem, mask)
    assert_close(shifted, rung(*problem), dtype="float64", size=size)


@every_rung
@given_to_rungs(problem=problems())
def test_a_key_given_twice_is_the_same_as_log_two_on_its_score(
    rung: Rung, problem: Problem
) -> None:
    query, key, value = problem
    doubled = rung(
        query, np.concatenate([key, key[:, :1]], 1), np.concatenate([value, value[:, :1]], 1)
    )
    mask = np.zeros((1, key.shape[-2]))
    mask[0, 0] = np.log(2)
    close(rung(query, key, value, mask), doubled, problem)


@every_rung
@given_to_rungs(problem=problems())
def test_float32_is_float64_with_fewer_digits(rung: Rung, problem: Problem) -> None:
    exact = rung(*problem)  # the inputs were drawn so that float32 holds them
    rounded = rung(*(a.astype(np.float32) for a in problem))
    assert_close(rounded, exact, dtype="float32", size=forward_size(*problem))


@every_rung
@given_to_rungs(problem=problems())
def test_layout_does_not_matter(rung: Rung, problem: Problem) -> None:
    fortran = [np.asfortranarray(a) for a in problem]
    flipped = [np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1] for a in problem]
    for views in (fortran, flipped):
        close(rung(*views), rung(*problem), problem)


@every_rung
@given_to_rungs(problem=problems(), data=st.data())
def test_minus_infinity_on_a_key_is_the_key_left_out(
    rung: Rung, problem: Problem, data: st.DataObject
) -> None:
    query, key, value = problem
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(key[0]), max_size=len(key[0]))))
    masked = rung(query, key, value, np.where(kept, 0.0, -np.inf))
    close(masked, rung(query, key[:, kept], value[:, kept]), problem)


def upstream_for(problem: Problem) -> Array:
    """Return a gradient of the output whose entries all differ."""
    shape = (*problem[0].shape[:-1], problem[2].shape[-1])
    return np.linspace(-2, 3, int(np.prod(shape))).reshape(shape)


def close_gradients(got: dict[str, Array], expected: dict[str, Array], problem: Problem) -> None:
    sizes = gradient_sizes(*problem, upstream_for(problem))
    for name, gradient in got.items():
        assert_close(gradient, expected[name], dtype="float64", size=2 * sizes[name])


@every_rung_with_gradients
@given_to_rungs(problem=problems(), seed=st.integers(0, 99))
def test_gradients_move_with_their_rows(rung: Rung, problem: Problem, seed: int) -> None:
    (query, key, value), upstream = problem, upstream_for(problem)
    rng = np.random.default_rng(seed)
    rows, keys = rng.permutation(query.shape[-2]), rng.permutation(key.shape[-2])
    moved = rung.gradients(query[:, rows], key[:, keys], value[:, keys], upstream[:, rows])
    expected = rung.gradients(*problem, upstream)
    order = {"query": rows, "key": keys, "value": keys}
    expected = {name: gradient[:, order[name]] for name, gradient in expected.items()}
    close_gradients(moved, expected, problem)


@every_rung_with_gradients
@given_to_rungs(problem=problems(), data=st.data())
def test_the_future_gets_no_gradient(rung: Rung, problem: Problem, data: st.DataObject) -> None:
    now = data.draw(st.integers(0, problem[0].shape[-2] - 1))
    upstream = upstream_for(problem)
    upstream[:, now + 1 :] = 0
    found = rung.gradients(*problem, upstream, is_causal=True)
    for name in ("query", "key", "value"):
        assert np.all(found[name][:, now + 1 :] == 0)


@every_rung_with_gradients
@given_to_rungs(problem=problems())
def test_each_entry_of_a_batch_is_differentiated_by_itself(rung: Rung, problem: Problem) -> None:
    upstream = upstream_for(problem)
    together = rung.gradients(*problem, upstream)
    for b in range(2):
        alone = rung.gradients(*(a[b] for a in problem), upstream[b])
        close_gradients(alone, {name: g[b] for name, g in together.items()}, problem)


@every_rung_with_mask_gradients
@given_to_rungs(problem=problems())
def test_a_shift_of_the_scores_has_no_gradient(rung: Rung, problem: Problem) -> None:
    """A constant on a row of scores changes nothing, so in a row the mask's gradients cancel."""
    query, key, _ = problem
    upstream, mask = upstream_for(problem), np.zeros((2, query.shape[-2], key.shape[-2]))
    found = rung.gradients(*problem, upstream, mask)
    sums = found["attn_mask"].sum(axis=-1)
    size = key.shape[-2] * gradient_sizes(*problem, upstream, mask)["attn_mask"]
    assert_close(sums, np.zeros_like(sums), dtype="float64", size=size)


@every_rung_with_gradients
@given_to_rungs(problem=problems())
def test_gradients_of_values_add_up_to_those_of_the_outputs(rung: Rung, problem: Problem) -> None:
    """Each row's weights add up to one, so nothing of the upstream gradient is lost."""
    upstream = upstream_for(problem)
    found = rung.gradients(*problem, upstream)["value"].sum(axis=-2)
    size = problem[1].shape[-2] * gradient_sizes(*problem, upstream)["value"]
    assert_close(found, upstream.sum(axis=-2), dtype="float64", size=size)


@given(scores=filled(3, 5), shift=st.floats(-1e4, 1e4))
def test_softmax_does_not_feel_a_shift(scores: Array, shift: float) -> None:
    # Adding the shift rounds the scores; that is all that may show.
    bound = np.finfo(np.float64).eps * (40 + 4 * abs(shift))
    assert np.abs(softmax(scores + shift) - softmax(scores)).max() <= bound


@given(scores=filled(3, 5))
def test_softmax_keeps_the_order(scores: Array) -> None:
    for row, weights in zip(scores, softmax(scores), strict=True):
        assert np.all(np.diff(weights[np.argsort(row)]) >= 0)
