"""What is stored of two pages is what their programs give."""

from __future__ import annotations

import pytest
import torch

from tools.measure_learning import STATES, SUMS


@pytest.mark.parametrize("kind", SUMS.KINDS)
def test_no_kind_sees_the_future(kind: str) -> None:
    weights = SUMS.KINDS[kind](torch.randn(2, 7, 7))
    assert weights.triu(1).count_nonzero() == 0 and weights.isfinite().all()
    assert (weights < 0).any() == (kind in ("sum", "softmax, signed"))


@pytest.mark.parametrize("place", ["", "after", "before"])
@pytest.mark.parametrize("kind", ["state", "softmax"])
def test_no_small_layer_sees_the_future(kind: str, place: str) -> None:
    torch.manual_seed(0)
    layer = STATES.Convolved(4, kind, place) if place else STATES.Small(4, kind)
    X = torch.randn(1, 7, 64)
    other = torch.cat([X[:, :4], torch.randn(1, 3, 64)], dim=1)
    one, two = (layer(x, x, x) for x in (X, other))
    assert torch.allclose(one[:, :4], two[:, :4], atol=1e-5)
    assert one.isfinite().all() and not torch.allclose(one[:, 4:], two[:, 4:], atol=0.1)
