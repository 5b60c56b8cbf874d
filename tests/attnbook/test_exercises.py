"""The verdict on an answer: still to write, not yet and why, or right; nothing is changed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from attnbook.exercises import check, fingerprint

half = number = array = given_out = ...


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("half", "number", "array", "given_out"):
        monkeypatch.setitem(globals(), name, ...)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.removeprefix("Exercise 1: ").splitlines()


def head(n: int) -> float:
    raise NotImplementedError


def begun(n: int) -> float:
    if n < 5:
        return n / 2
    raise NotImplementedError


HALVES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing is there": ({}, ["still to write: half, number."]),
    "one of two is there": ({"number": 3}, ["still to write: half."]),
    "a head without a body": ({"half": head, "number": 3}, ["still to write: half."]),
    "a body that is begun": ({"half": begun, "number": 3}, ["still to write: half, number."]),
    "a part that does not hold": (
        {"half": lambda n: n / 2 if n < 5 else 2.5, "number": 3},
        ["not yet. This does not hold: half(n) == n / 2", "  half(n) is 2.5", "  n / 2 is 3.0"],
    ),
    "a wrong number": (
        {"half": lambda n: n / 2, "number": np.float64(4)},
        ["not yet. This does not hold: number == 3", "  number is 4.0"],
    ),
    "an error": (
        {"half": lambda n: {}[n], "number": 3},
        ["not yet. KeyError: 4", "  in: assert half(n) > 0 and half(n) == n / 2"],
    ),
    "right": ({"half": lambda n: n / 2, "number": 3}, ["right."]),
}


@pytest.mark.parametrize("case", HALVES)
def test_the_verdict_on_two_answers(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers, verdict = HALVES[case]
    globals().update(answers)

    @check("Exercise 1", "half", "number")
    def _() -> None:
        for n in (4, 6):
            assert half(n) > 0 and half(n) == n / 2  # type: ignore[operator]
        assert number == 3

    assert said(capsys) == verdict


def test_of_a_call_the_arguments_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    globals().update(half=round, array=np.array([1.0, 3.0]))

    @check("Exercise 1", "half", "array")
    def _() -> None:
        assert np.allclose(list(map(half, array)), [1.0, 2.0])  # type: ignore[arg-type]

    assert said(capsys) == [
        "not yet. This does not hold: np.allclose(list(map(half, array)), [1.0, 2.0])",
        "  list(map(half, array)) is [1, 3]",
    ]


def test_what_gives_another_value_the_second_time_is_shown_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    globals()["number"] = iter([3, 4])

    @check("Exercise 1", "number")
    def _() -> None:
        assert next(number) == 4  # type: ignore[call-overload]

    assert said(capsys) == ["not yet. This does not hold: next(number) == 4"]


def test_a_check_without_source_shows_the_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    source = '@check("Exercise 1", "number")\ndef _():\n    assert number == 3, "one less"'
    exec(source, {"check": check, "number": 4})
    assert said(capsys) == ["not yet. AssertionError: one less"]


def wrong(x: float) -> float:
    return x


TYPED: dict[str, Any] = {}
exec("def function(x):\n    return 2 * x", TYPED)  # its source is nowhere


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (wrong, "still to write: given_out."),
        (TYPED["function"], "right."),
        (lambda x: 2 * x, "right."),  # a line that is no statement
    ],
)
def test_code_that_is_handed_out_is_still_to_write_until_it_changes(
    answer: Any, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    globals()["given_out"] = answer

    @check("Exercise 1", "given_out", given={"given_out": fingerprint(inspect.getsource(wrong))})
    def _() -> None:
        assert given_out(2) == 4  # type: ignore[operator]

    assert said(capsys) == [verdict]


class Single:
    def __deepcopy__(self, memo: object) -> None:
        raise RuntimeError("there is only one")


def test_a_check_changes_no_answer_that_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    globals().update(array=np.zeros(2), number=Single())

    @check("Exercise 1", "array", "number")
    def _() -> None:
        array[0] += 1  # type: ignore[index]
        assert isinstance(number, Single) and array[0] == 1  # type: ignore[index]

    assert said(capsys) == ["right."] and not globals()["array"].any()
