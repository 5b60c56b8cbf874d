"""What is stored of chapter 17 is what its program, `attnbook.copying`, learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnbook import copying
from tools.measure_copying import ends


def test_a_stored_model_is_a_copy_and_draws_nothing() -> None:
    state = torch.random.get_rng_state()
    one, other = copying.stored_models([2, 2])
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        one.out.bias += 1
    assert not torch.equal(one.out.bias, other.out.bias)


def test_the_stored_models_do_what_their_training_ended_with() -> None:
    """The entries were rounded after training, so a few of 5,000 guesses may differ."""
    for model, curve in zip(copying.stored_models(), copying.stored_curves(), strict=True):
        assert abs(copying.share_right(model) - curve[-1]) < 0.002
        assert 1 <= len(curve) <= 15 and (curve[-1] >= 0.95) == (max(curve) >= 0.95)


def test_a_short_training_is_stored_as_it_is_run() -> None:
    """The last digits depend on the computer, so the shares may differ a little."""
    model, rng, right = copying.begin(0), np.random.default_rng(0), []
    adam = torch.optim.Adam(model.parameters(), 0.003, fused=True)
    for _ in range(4):
        copying.go_on(model, adam, rng)
        right.append(copying.share_right(model))
    assert np.abs(np.array(right) - copying.stored_curves()[0][:4]).max() < 0.02


def test_a_training_ends_at_95_percent_or_after_300_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "go_on", lambda *_: None)
    shares = iter([0.1, 0.96] + [0.3] * 15)
    monkeypatch.setattr(copying, "share_right", lambda _: next(shares))
    learned, failed = (copying.train(torch.nn.Linear(1, 1)) for _ in range(2))
    assert [copying.steps(curve) for curve in (learned, failed)] == [40, "-"]
    assert ends([learned, failed]).tolist() == [[2 / 15, 0.96], [1, 0.3]]


def test_ten_seeds_of_each_way_are_stored() -> None:
    for curves in copying.stored_ways().values():
        assert len(curves) == 10 and all(1 <= len(curve) <= 15 for curve in curves)
    assert copying.stored()["measured"]["ways"]["day"] >= copying.stored_on()
