"""The running example is what the chapters rely on; the published ones are as printed."""

from __future__ import annotations

import numpy as np
import pytest

from attnbook import examples
from attnlib.numpy_dense import (
    attention_scores,
    attention_weights,
    scaled_dot_product_attention,
    softmax,
)


def test_the_running_example_is_the_one_in_the_chapters() -> None:
    """Chapters and prose rest on these numbers; a change here is a change of the book."""
    tokens, X, W_Q, W_K, W_V = examples.running()
    assert tokens == ("the", "cat", "sat")
    assert X.tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0.5]]
    assert W_Q.tolist() == [[2, 0], [-1, 1], [0, -1], [0, -1]]
    assert W_K.tolist() == [[0, 1], [1, 0], [-1, 0], [0, -1]]
    assert W_V.tolist() == [[1, 0, 0], [0, 2, 0], [0, -1, 1], [0, 0, 1]]
    assert all(array.dtype == np.float64 for array in (X, W_Q, W_K, W_V))


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
    off = np.abs(example.raw_scores - X @ X.T)
    assert (off > 0.005 + 1e-9).sum() == 15 and off.max().round(2) == 0.21
    np.testing.assert_array_equal(example.raw_scores, example.raw_scores.T)
    # Its scaled scores follow from its raw scores, to the two decimals that are printed.
    assert np.abs(example.raw_scores / np.sqrt(3) - example.scores).max() <= 0.005
    # Its row of weights is no softmax of them, and its reading is reversed.
    row = example.first_row_weights
    assert row.sum().round(3) == 0.983
    from_printed = softmax(example.scores)[0].round(3)
    assert from_printed.tolist() == [0.187, 0.207, 0.209, 0.195, 0.201]
    weights = attention_weights(X, X)[0].round(3)
    assert weights.tolist() == [0.19, 0.21, 0.188, 0.208, 0.204]
    assert (row.argmax(), row.argmin()) == (weights.argmin(), 0)


def test_the_published_torch_session_is_right_to_one_unit_of_its_last_decimal() -> None:
    example = examples.published_torch_session()
    x = example.x
    inner, weights = attention_scores(x, x), attention_weights(x, x)
    output = scaled_dot_product_attention(x, x, x)
    for computed, printed in (
        (inner, example.inner),
        (weights, example.sfm),
        (output, example.output),
    ):
        assert computed.shape == printed.shape
        assert np.abs(computed.round(4) - printed).max() < 1.5e-4
