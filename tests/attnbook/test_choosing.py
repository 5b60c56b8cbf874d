"""What is stored of chapter 20 is what its program gives, and belongs together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from attnbook import choosing, copying
from tools.measure_choosing import SHORT, WAYS, any_two


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


@pytest.mark.parametrize("way", [name for name in WAYS if name[:4] in ("all ", "last", "best")])
def test_what_needs_no_teaching_is_stored_as_it_is_computed(way: str, model: copying.Model) -> None:
    found = choosing.share_right(model, WAYS[way](model, 0))
    assert abs(found - choosing.table()[way][0]) < 0.005


@pytest.mark.parametrize("name", SHORT)
def test_keys_of_two_numbers_see_no_future(name: str, model: copying.Model) -> None:
    kind = partial(SHORT[name], d_index=2)
    choose = choosing.taught(model, 0, any_two, 2, kind)
    X = model.enter(copying.kept[:5, :-1])
    for seen in choose:
        assert not seen(X).triu(1).any()
        assert (seen(X).sum(-1) == torch.arange(1, 33).clamp(max=2)).all()
    assert [p.shape[1] for p in kind().parameters()] in ([8, 2, 4], [2, 2])


def test_the_rows_of_the_table_that_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    table = choosing.table()
    assert list(table) == list(WAYS) and {len(row) for row in table.values()} == {10}
    choosing.show("all", "2 numbers")
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["seed", "the", "eight", *map(str, range(10))] and len(lines) == 4
    shares = [f"{share:.2f}" for share in table["2 numbers: product"]]
    assert lines[-1].split() == ["2", "numbers:", "product", "0.50-0.63", *shares]
    choosing.compare("product", "indexer")
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["product", "indexer"] and len(lines) == 6
    assert lines[2].split() == ["any", "two", "0.74-0.94", "0.57-0.93"]
    assert lines[-1].split() == ["all,", "2", "numbers", "0.50-0.63", "0.63-0.95"]
