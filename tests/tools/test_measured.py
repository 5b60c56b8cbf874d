"""What is stored is compared with what is measured anew, and a shifted row is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnbook import choosing, copying, learning, trained
from tools import measure_choosing, measure_copying, measure_heads, measured


def test_the_limit_is_two_hundredths_and_four_standard_errors() -> None:
    stored, error = np.array([0.4, 0.5, 0.6]), 4 * np.sqrt(2 * 0.01 / 3)
    assert not measured.means_apart(stored, stored + 0.0199 + error)
    [fault] = measured.means_apart(stored, stored + 0.0201 + error)
    assert fault == f"stored mean 0.500, new mean {0.5201 + error:.3f}, at most 0.347 apart"
    assert measured.means_apart(stored, stored * np.nan)


def test_other_shapes_and_names_are_refused() -> None:
    assert measured.means_apart([0.1, 0.2], [0.1, 0.2, 0.3]) == [
        "stored are (2,) numbers, new are (3,)"
    ]
    assert measured.numbers_apart({"a": 1}, {"b": 1}) == ["stored are ['a'], new are ['b']"]
    [fault] = measured.numbers_apart({"a": [1, 2]}, {"a": [1]})
    assert fault == "a: stored are (2,) numbers, new (1,)"


def test_a_number_of_many_that_is_not_close_is_named() -> None:
    stored = {"64": {"held": [0.5, 0.25]}, "spread": [2.0]}
    assert not measured.numbers_apart(stored, stored)
    new = {"64": {"held": [0.5, 0.35]}, "spread": [2.0]}
    assert measured.numbers_apart(stored, new) == ["64/held: stored 0.250, new 0.350"]


@pytest.fixture(autouse=True)
def settings_of_torch_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("set_num_threads", "set_flush_denormal"):
        monkeypatch.setattr(measured.torch, name, lambda _: None)


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, measured.Table]:
    path = tmp_path / "stored.json"
    rows: dict[str, Any] = {
        "sum": lambda: [0.9, 0.92, 0.91],
        "softmax": lambda: [0.5, 0.5, 0.4],
    }
    whole = {"": lambda: {"right": [0.25]}}
    return {
        "kinds": measured.in_json(path, "kinds", rows, at=[100]),
        "frames": measured.in_json(path, "frames", whole, measured.numbers_apart),
    }


def test_what_was_stored_is_found_again(
    tables: dict[str, measured.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured.main(tables, ["2026-11-27"]) == 0
    held = json.loads((tmp_path / "stored.json").read_text(encoding="utf-8"))
    assert held["kinds"] == {
        "at": [100],
        "found": {"sum": [0.9, 0.92, 0.91], "softmax": [0.5, 0.5, 0.4]},
    }
    assert held["frames"] == {"right": [0.25]}
    assert held["measured"]["kinds"]["day"] == "2026-11-27"
    assert set(held["measured"]["frames"]) == {"day", "python", "torch", "numpy"}
    capsys.readouterr()
    assert measured.main(tables, ["--compare"]) == 0
    rows = ["kinds: sum", "kinds: softmax", "frames"]
    assert capsys.readouterr().out.splitlines() == [f"{row}: as stored" for row in rows]


def test_a_shifted_row_is_named_and_the_others_are_not(
    tables: dict[str, measured.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured.main(tables, ["2026-11-27"])
    before = (tmp_path / "stored.json").read_bytes()
    capsys.readouterr()
    rows = {**tables["kinds"].rows, "sum": lambda: [0.8, 0.82, 0.81]}
    shifted = {"kinds": tables["kinds"]._replace(rows=rows)}
    assert measured.main(shifted, ["--only", "kinds"], writes=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kinds: sum: stored mean 0.910, new mean 0.810")
    assert lines[1:] == ["kinds: softmax: as stored"]
    assert measured.main(shifted, ["--compare", "--only", "kinds: softmax"]) == 0
    assert (tmp_path / "stored.json").read_bytes() == before


def test_only_one_table_is_written(tables: dict[str, measured.Table], tmp_path: Path) -> None:
    measured.main(tables, ["2026-11-26"])
    measured.main(tables, ["2026-11-27", "--only", "frames"])
    held = json.loads((tmp_path / "stored.json").read_text(encoding="utf-8"))["measured"]
    assert {name: about["day"] for name, about in held.items()} == {
        "kinds": "2026-11-26",
        "frames": "2026-11-27",
    }


def test_a_name_that_nothing_has_is_refused(tables: dict[str, measured.Table]) -> None:
    with pytest.raises(SystemExit, match=r"got 'kidns'. Tables: \['kinds', 'frames'\]"):
        measured.main(tables, ["--compare", "--only", "kidns"])


def test_every_stored_table_has_a_program_that_measures_it() -> None:
    everything = measured.everything()
    for module, stored in (("choosing", choosing.stored()), ("learning", learning.stored())):
        names = {name for name in stored if name != "measured"}
        assert {f"{module}, {name}" for name in names} <= set(everything)
        assert set(stored["measured"]) == names
        for name in names:
            rows = list(everything[f"{module}, {name}"].rows)
            assert rows == list(stored[name].get("found", {"": None}))
    assert list(everything["copying, ways"].rows) == list(copying.stored_ways())
    assert set(everything) >= {"copying, models", "heads, heads"}


def test_what_is_stored_agrees_with_itself_and_not_with_what_is_shifted() -> None:
    """The programs ask what they stored, in the form in which they measure it."""
    curves = copying.stored_curves()
    padded = np.array([curve + [np.nan] * (15 - len(curve)) for curve in curves])
    apart = measure_copying.models_apart
    assert not apart(curves, {"curves": padded})
    [_, fault] = apart(curves, {"curves": np.full((10, 15), 0.1)})
    assert fault.startswith("stored mean 0.8")
    heads = measure_heads.TABLES["heads"]
    shifted = {name: column * 1.2 for name, column in trained.rounded_heads().items()}
    assert heads.apart(heads.stored(""), shifted)
    frames = choosing.stored()["frames"]
    assert not measure_choosing.shares_apart(frames, frames)
    [fault] = measure_choosing.shares_apart(frames, {**frames, "last": 0.2})
    assert fault == "last: stored 0.760, new 0.200"
