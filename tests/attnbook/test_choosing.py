"""What is stored of chapter 20 is what its program gives, and belongs together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnbook import choosing, copying
from tools.measure_choosing import WAYS


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


@pytest.mark.parametrize("way", [name for name in WAYS if " taught" not in name])
def test_what_needs_no_teaching_is_stored_as_it_is_computed(way: str, model: copying.Model) -> None:
    found = choosing.share_right(model, WAYS[way](model, 0))
    assert abs(found - choosing.table()[way][0]) < 0.005


@pytest.mark.parametrize("kind", [choosing.Indexer, choosing.Product])
def test_two_keys_are_chosen_and_none_of_the_future(kind: Any, model: copying.Model) -> None:
    X = model.enter(copying.kept[:5, :-1])
    for seen in choosing.taught(model, 0, 2, kind):
        assert not seen(X).triu(1).any()
        assert (seen(X).sum(-1) == torch.arange(1, 33).clamp(max=2)).all()


def test_the_table_as_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    table = choosing.table()
    assert list(table) == list(WAYS) and {len(row) for row in table.values()} == {10}
    choosing.show()
    _, *ranges = capsys.readouterr().out.splitlines()
    choosing.show(*range(10))
    head, *seeds = capsys.readouterr().out.splitlines()
    assert head.split() == ["seed", *map(str, range(10))] and len(ranges) == len(seeds) == 10
    shares = [f"{share:.2f}" for share in table["short: taught product"]]
    name = ["two:", "product,", "2", "numbers,", "taught"]
    assert ranges[-1].split() == [*name, "0.50-0.63"] and seeds[-1].split() == [*name, *shares]
