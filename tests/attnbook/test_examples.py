"""The running example is what the chapters rely on; the published ones are as printed."""

from __future__ import annotations

import numpy as np
import pytest

from attnbook import examples
from attnlib.numpy_dense import (
    attention_scores,
    attention_weights,
    scaled_dot_product_attention,
    self_attention,
    softmax,
)


def projected() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q, K and V of the running example."""
    _, X, W_Q, W_K, W_V = examples.running()
    return X @ W_Q, X @ W_K, X @ W_V


def test_the_running_example_is_the_one_in_the_chapters() -> None:
    """Every chapter prints its numbers; a change here is a change of the book."""
    tokens, X, W_Q, W_K, W_V = examples.running()
    assert tokens == ("the", "cat", "sat")
    assert X.tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0.5]]
    assert W_Q.tolist() == [[2, 0], [-1, 1], [0, -1], [0, -1]]
    assert W_K.tolist() == [[0, 1], [1, 0], [-1, 0], [0, -1]]
    assert W_V.tolist() == [[1, 0, 0], [0, 2, 0], [0, -1, 1], [0, 0, 1]]
    assert all(array.dtype == np.float64 for array in (X, W_Q, W_K, W_V))


def test_everything_can_be_had_in_the_head() -> None:
    (_, X, *parameters), (query, key, value) = examples.running(), projected()
    for array in (X, *parameters, query, key, value):
        np.testing.assert_array_equal(2 * array, np.round(2 * array))
        assert np.abs(array).max() <= 2
    assert np.linalg.matrix_rank(X) == 3
    assert np.linalg.matrix_rank(query) == np.linalg.matrix_rank(key) == 2
    assert np.linalg.matrix_rank(np.diff(value, axis=0)) == 2  # the values span a triangle


def test_each_token_looks_at_another_one_and_no_row_is_like_another() -> None:
    query, key, _ = projected()
    raw_scores = attention_scores(query, key, scale=1.0)
    assert len(np.unique(raw_scores)) >= 8 and raw_scores.min() < 0
    assert np.abs(raw_scores - raw_scores.T).max() > 1
    weights = attention_weights(query, key)
    assert weights.argmax(axis=1).tolist() == [1, 2, 1]  # the → cat, cat → sat, sat → cat
    assert 0.03 < weights.min() < weights.max() < 0.97
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(weights[i] - weights[j]).max() > 0.1
    ranked = np.sort(weights, axis=1)
    assert np.all(ranked[:, 2] - ranked[:, 1] > 0.1)


@pytest.mark.parametrize("divisor", [1.0, 2.0, 4.0, 2.0**1.5])
def test_a_wrong_scale_shows(divisor: float) -> None:
    """1, d_k, d_model, or √d_model with another factor: none can pass for √d_k."""
    _, *matrices = examples.running()
    right, wrong = self_attention(*matrices), self_attention(*matrices, scale=1 / divisor)
    assert np.abs(right - wrong).max() > 0.1


def test_the_wrong_axis_shows() -> None:
    query, key, _ = projected()
    scores = attention_scores(query, key)
    assert np.abs(softmax(scores, axis=0) - softmax(scores)).max() > 0.2
    assert np.abs(softmax(scores, axis=0).sum(axis=1) - 1).max() > 0.03


@pytest.mark.parametrize(
    "make", [examples.running, examples.published_identity, examples.published_torch_session]
)
def test_nobody_can_change_an_example_for_somebody_else(make: object) -> None:
    assert callable(make)
    first, second = make(), make()
    for mine, theirs in zip(first, second, strict=True):
        if isinstance(mine, np.ndarray):
            assert not np.shares_memory(mine, theirs)
            mine[...] = 99.0
            assert np.all(theirs != 99.0)
    with pytest.raises(AttributeError):
        first.X = None


def test_the_published_identity_example_is_wrong_where_the_errata_say() -> None:
    example = examples.published_identity()
    X = example.X
    for W in (example.W_Q, example.W_K, example.W_V):
        np.testing.assert_array_equal(W, np.eye(3))
    raw_scores = X @ X.T
    wrong = np.abs(example.raw_scores - raw_scores) > 0.005 + 1e-9
    assert wrong.sum() == 15
    assert np.abs(example.raw_scores - raw_scores).max().round(2) == 0.21
    np.testing.assert_array_equal(example.raw_scores, example.raw_scores.T)

    # Its scaled scores follow from its raw scores, to the two decimals that are printed.
    assert np.abs(example.raw_scores / np.sqrt(3) - example.scores).max() <= 0.005


def test_the_published_row_of_weights_is_no_softmax_and_its_reading_is_reversed() -> None:
    example = examples.published_identity()
    assert example.first_row_weights.sum().round(3) == 0.983
    assert example.first_row_sum == 1.0
    from_printed = softmax(example.scores)[0]
    assert np.abs(from_printed - example.first_row_weights).max() > 0.001
    assert from_printed.round(3).tolist() == [0.187, 0.207, 0.209, 0.195, 0.201]

    assert int(example.first_row_weights.argmax()) == 2
    assert int(example.first_row_weights.argmin()) == 0
    weights = attention_weights(example.X, example.X)[0]
    assert weights.round(3).tolist() == [0.19, 0.21, 0.188, 0.208, 0.204]
    assert int(weights.argmax()) == 1
    assert int(weights.argmin()) == 2


def test_the_published_torch_session_is_right_to_one_unit_of_its_last_decimal() -> None:
    example = examples.published_torch_session()
    x = example.x
    inner, weights = attention_scores(x, x), attention_weights(x, x)
    output = scaled_dot_product_attention(x, x, x)
    for computed, printed in (
        (inner, example.inner),
        (weights, example.sfm),
        (weights.sum(axis=1), example.sfm_sum),
        (output, example.output),
    ):
        assert computed.shape == printed.shape
        assert np.abs(computed.round(4) - printed).max() < 1.5e-4


def test_the_published_examples_have_the_titles_of_their_documents() -> None:
    assert examples.published_identity().title == "Self-Attention Computation Process"
    assert examples.published_torch_session().title == "Self-Attention"
