"""`attnbook.choosing` is the program of chapter 20, and what is stored belongs together."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from attnbook import choosing
from tools import ROOT
from tools.notebooks import read


@pytest.mark.parametrize("name", ["Indexer", "scores", "attend", "distance", "teach"])
def test_the_function_is_that_of_the_chapter(name: str) -> None:
    cells = read(ROOT / "chapters" / "20_choosing_keys.ipynb")["cells"]
    source = inspect.getsource(getattr(choosing, name)).strip()
    assert sum(source in cell["source"] for cell in cells) == 1


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
