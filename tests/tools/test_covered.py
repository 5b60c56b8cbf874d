"""The table of `make coverage`, and the exceptions that it grants."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tools import covered
from tools.covered import Count, counts, holes, percent, table
from tools.set_repository import ROOT


def report(**files: tuple[int, list[int], int, list[list[int]]]) -> dict[str, Any]:
    """Return what `coverage json` writes for files of so many lines and branches, some missing."""
    found = {}
    for name, (lines, missing_lines, branches, missing_branches) in files.items():
        found[f"{name.replace('__', '/')}.py"] = {
            "summary": {
                "num_statements": lines,
                "covered_lines": lines - len(missing_lines),
                "num_branches": branches,
                "covered_branches": branches - len(missing_branches),
            },
            "missing_lines": missing_lines,
            "missing_branches": missing_branches,
        }
    return {"files": found}


PLANE = (30, [7], 2, [])
WHOLE = report(
    attnlib__masks=(10, [], 4, []),
    attnbook__figures__plane=PLANE,
    attnbook__figures__order=(10, [], 0, []),
)
PART = report(attnlib__masks=(10, [3, 9], 4, [[8, 9]]), attnbook__figures__plane=PLANE)


def test_drawings_are_one_row() -> None:
    found = counts(WHOLE)
    assert found["attnbook/figures"] == Count(40, 39, 2, 2)
    assert found["attnlib/masks"] == Count(10, 10, 4, 4)


def test_a_hole_in_the_numerics_is_named_and_one_in_the_drawings_is_not() -> None:
    assert holes(counts(WHOLE)) == []
    assert holes(counts(PART)) == ["attnlib/masks.py: 3, 9, 8 → 9"]


def test_a_branch_alone_is_a_hole() -> None:
    branch = report(attnlib__masks=(10, [], 4, [[8, -5]]))
    assert holes(counts(branch)) == ["attnlib/masks.py: 8 → -5"]


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 0, "100 %"), (999, 1000, " 99 %"), (0, 3, "  0 %"), (3, 3, "100 %")],
)
def test_a_share_is_rounded_down(part: int, whole: int, shown: str) -> None:
    assert percent(part, whole) == shown


def test_the_table() -> None:
    rows = table(counts(WHOLE), counts(PART)).splitlines()
    assert [" ".join(row.split()) for row in rows[2:]] == [
        "attnlib/masks 100 % 100 % 80 % 75 %",
        "attnbook/figures 97 % 100 % 96 % 100 %",
        "all but figures 100 % 100 % 80 % 75 %",
        "all 98 % 100 % 92 % 83 %",
    ]


@pytest.mark.parametrize(("tests", "code"), [(WHOLE, 0), (PART, 1)])
def test_the_command_fails_where_there_is_a_hole(
    tests: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked = []

    def measured(name: str, module: list[str]) -> dict[str, Any]:
        asked.append((name, *module))
        return tests if name == "tests" else PART

    monkeypatch.setattr(covered, "measured", measured)
    assert covered.main(["-x"]) == code
    assert ("No unit test runs attnlib/masks.py: 3, 9" in capsys.readouterr().out) is bool(code)
    assert [name for name, *_ in asked] == ["tests", "notebooks"]
    assert asked[0][-1] == "-x" and "--ignore=tests/site" in asked[0]


def test_every_exception_says_why() -> None:
    for path in (p for name in covered.PACKAGES for p in (ROOT / name).rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "pragma: no" in line:
                assert re.search(r"# pragma: no (cover|branch) \([^()]{8,}\)$", line), (path, line)
