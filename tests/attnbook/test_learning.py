"""What is stored of two pages is what their programs give."""

from __future__ import annotations

import pytest
import torch

from attnbook import learning
from tools.measure_learning import STATES, SUMS


@pytest.mark.parametrize("kind", SUMS.KINDS)
def test_no_kind_sees_the_future(kind: str) -> None:
    weights = SUMS.KINDS[kind](torch.randn(2, 7, 7))
    assert weights.triu(1).count_nonzero() == 0 and weights.isfinite().all()
    assert (weights < 0).any() == ("sum" in kind or "signed" in kind)


@pytest.mark.parametrize("place", ["", "after", "before"])
@pytest.mark.parametrize("kind", ["state", "softmax", "sum"])
def test_no_small_layer_sees_the_future(kind: str, place: str) -> None:
    torch.manual_seed(0)
    layer = STATES.Convolved(4, kind, place) if place else STATES.Small(4, kind)
    X = torch.randn(1, 7, 64)
    other = torch.cat([X[:, :4], torch.randn(1, 3, 64)], dim=1)
    one, two = (layer(x, x, x) for x in (X, other))
    assert torch.allclose(one[:, :4], two[:, :4], atol=1e-5)
    assert one.isfinite().all() and not torch.allclose(one[:, 4:], two[:, 4:], atol=0.1)


def test_the_stored_sums_copy_and_share_their_guesses_after_a_skip() -> None:
    found = learning.stored_sums()
    assert found.shape == (10, 3) and found[:, 0].min() > 0.9
    assert (found[:, 1:].sum(axis=1) < 1).all()


def test_a_sum_is_a_kind_of_weights_with_its_own_scale() -> None:
    [layer, _] = SUMS.begin_sum(0).layers
    Q, K = torch.randn(2, 5, 64)
    scores = (Q @ layer.W_Q) @ (K @ layer.W_K).mT / 8
    assert torch.allclose(layer.weights(Q, K), SUMS.KINDS["sum"](scores), atol=1e-6)
