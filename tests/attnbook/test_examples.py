"""The running example is what the chapters rely on. Chapter 6 holds the published ones."""

from __future__ import annotations

import numpy as np
import pytest

from attnbook import examples


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
