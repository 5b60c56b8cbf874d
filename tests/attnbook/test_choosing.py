"""What is stored of chapter 20 is what its program gives, and belongs together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnbook import choosing, copying
from tools import measure_choosing
from tools.measure_choosing import PAGE, WAYS, Product, any_two, short_index


@pytest.fixture(scope="module")
def model() -> copying.Model:
    """Return the first stored model, frozen."""
    [first] = copying.stored_models([0])
    return first.requires_grad_(False)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_the_best_keys_of_a_row(kind: Any) -> None:
    scores = kind([[3.0, 1.0, 2.0, 3.0, 3.0], [-np.inf, np.nan, 0.0, -np.inf, -1.0]])
    places = [np.flatnonzero(row).tolist() for k in (0, 2, 9) for row in choosing.best(scores, k)]
    # Of equal scores that of the earlier key; never -∞ and NaN.
    assert places == [[], [], [0, 3], [2, 4], [0, 1, 2, 3, 4], [2, 4]]


def test_the_keys_of_the_chosen_blocks() -> None:
    chosen = np.array([[True, False, True], [False, True, False]])
    seen = choosing.blocks(chosen, 3, 7)
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0, 1, 2, 6], [3, 4, 5]]


@pytest.mark.parametrize("way", ["all keys", "exact", "last 16", "SVD", "none"])
def test_what_needs_no_teaching_is_stored_as_it_is_computed(way: str, model: copying.Model) -> None:
    found = choosing.share_right(model, WAYS[way](model, 0))
    assert abs(found - choosing.table()[way][0]) < 0.005


@pytest.mark.parametrize("way", ["all, 50", "own, 50"])
def test_a_short_teaching_is_stored_as_it_is_run(way: str, model: copying.Model) -> None:
    """The last digits depend on the computer, so the share of right guesses may differ a little."""
    found = choosing.share_right(model, WAYS[way](model, 0))
    assert abs(found - choosing.table()[way][0]) < 0.1


def test_each_way_teaches_what_its_name_says(
    model: copying.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def taught(model: copying.Model, seed: int, shown: Any = None, *more: Any, **kind: Any) -> None:
        asked.append((shown, more, kind))

    monkeypatch.setattr(measure_choosing, "taught", taught)
    for way in list(WAYS)[4:]:
        WAYS[way](model, 0)
    every, own = choosing.every, choosing.own_two
    kinds = [{"kind": kind} for kind in (short_index, Product)]
    assert asked[:4] == [(shown, (), {}) for shown in (None, every, own, any_two)]
    assert asked[4:] == [
        *((shown, (50,), {}) for shown in (every, own)),
        *((every, (), kind) for kind in kinds),
    ]


@pytest.mark.parametrize("kind", [short_index, Product])
def test_keys_of_two_numbers_see_no_future(kind: Any, model: copying.Model) -> None:
    choose = PAGE.taught(model, 0, any_two, 2, kind)
    X = model.enter(copying.kept[:5, :-1])
    for seen in choose:
        assert not seen(X).triu(1).any()
        assert (seen(X).sum(-1) == torch.arange(1, 33).clamp(max=2)).all()
    assert [p.shape[1] for p in kind().parameters()] in ([8, 2, 4], [2, 2])


def test_the_table_has_a_row_for_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    table = choosing.table()
    assert list(table) == list(WAYS) and {len(row) for row in table.values()} == {10}
    choosing.show(table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13
    assert lines[2].split() == ["0"] + [f"{row[0]:.2f}" for row in table.values()]


def test_the_stored_frames_are_those_of_a_causal_row_with_two_keys() -> None:
    frames = choosing.stored()["frames"]
    weights = np.array(frames["weights"])
    assert weights.shape == (32, 32) and not np.triu(weights, 1).any()
    assert abs(weights.sum(axis=1) - 100).max() <= 5  # each was rounded
    assert len(frames["steps"]) == len(frames["chosen"]) == len(frames["right"])
    for queries in frames["chosen"]:
        assert [len(keys) for keys in queries] == [min(i + 1, 2) for i in range(32)]
        assert all(max(keys) <= i for i, keys in enumerate(queries))
    assert frames["right"][0] < 0.2 < frames["last"] < frames["right"][-1] - 0.1


def test_the_heads_of_the_trained_model_lose_less_with_more_keys() -> None:
    few, many = (choosing.stored()["minilm"][k] for k in ("8", "64"))
    for name, sign in {"held": 1, "error": -1}.items():
        less, more = sign * np.array(few[name]), sign * np.array(many[name])
        assert less.shape == more.shape == (72,) and less.mean() < more.mean()
    assert (np.array(few["held"]) < many["held"]).all() and max(many["held"]) <= 1
    assert min(few["bound"]) > 0 and max(few["bound"] + many["bound"]) < 1


def test_the_heads_have_their_spread_and_what_one_choice_for_a_layer_holds() -> None:
    found = choosing.stored()["minilm"]
    spread, shared = np.array(found["spread"]), np.array(found["shared"])
    assert spread.shape == shared.shape == (72,) and spread.min() > 0
    assert (shared <= np.array(found["64"]["held"]) + 1e-3).all()
    assert np.mean(found["64"]["apart"]) > np.mean(found["64"]["error"])
    for mean, bound, best in found["blocks"].values():
        assert 64 / 512 < min(mean, bound) <= max(mean, bound) < best < np.mean(found["64"]["held"])
