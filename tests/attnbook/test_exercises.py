"""The verdict on an answer: still to write, not yet and why, or right; nothing is changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from operator import mul

import numpy as np
import pytest

from attnbook.exercises import check, fingerprint

half = double = number = given_out = changed = array = ...


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("half", "double", "number", "given_out", "array"):
        monkeypatch.setitem(globals(), name, ...)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.rstrip("\n")


def halves(capsys: pytest.CaptureFixture[str]) -> str:
    @check("Exercise 1", "half", "number")
    def _() -> None:
        for n in (4, 6):
            assert half(n) > 0 and half(n) == n / 2  # type: ignore[operator]
        assert number == 3

    return said(capsys)


def test_what_is_not_defined_is_still_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert halves(capsys) == "Exercise 1: still to write: half, number."
    globals()["number"] = 3
    assert halves(capsys) == "Exercise 1: still to write: half."


def test_a_head_without_a_body_is_still_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    def head(n: int) -> float:
        raise NotImplementedError

    def begun(n: int) -> float:
        if n < 5:
            return n / 2
        raise NotImplementedError

    globals().update(half=head, number=3)
    assert halves(capsys) == "Exercise 1: still to write: half."
    globals().update(half=begun)
    assert halves(capsys) == "Exercise 1: still to write: half, number."


def test_a_wrong_answer_shows_the_part_that_fails_and_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    globals().update(half=lambda n: n / 2 if n < 5 else 2.5, number=3)
    assert halves(capsys).splitlines() == [
        "Exercise 1: not yet. This does not hold: half(n) == n / 2",
        "  half(n) is 2.5",
        "  n / 2 is 3.0",
    ]
    globals().update(half=lambda n: n / 2, number=np.float64(4))
    assert halves(capsys).splitlines() == [
        "Exercise 1: not yet. This does not hold: number == 3",
        "  number is 4.0",
    ]


def test_of_a_call_the_arguments_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    globals().update(half=round, array=np.array([1.0, 3.0]))

    @check("Exercise 1", "half", "array")
    def _() -> None:
        assert np.allclose(list(map(half, array)), [1.0, 2.0])  # type: ignore[arg-type]

    assert said(capsys).splitlines() == [
        "Exercise 1: not yet. This does not hold: np.allclose(list(map(half, array)), [1.0, 2.0])",
        "  list(map(half, array)) is [1, 3]",
    ]


def test_what_gives_another_value_the_second_time_is_shown_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    globals()["number"] = iter([3, 4])

    @check("Exercise 1", "number")
    def _() -> None:
        assert next(number) == 4  # type: ignore[call-overload]

    assert said(capsys) == "Exercise 1: not yet. This does not hold: next(number) == 4"


def test_a_check_without_source_shows_the_error_alone(capsys: pytest.CaptureFixture[str]) -> None:
    source = '@check("Exercise 1", "number")\ndef _():\n    assert number == 3, "one less"'
    exec(source, {"check": check, "number": 4})
    assert said(capsys) == "Exercise 1: not yet. AssertionError: one less"


def test_an_error_is_shown_with_the_statement(capsys: pytest.CaptureFixture[str]) -> None:
    globals().update(half=lambda n: "a" + n, number=3)
    first, second = halves(capsys).splitlines()
    assert first.startswith("Exercise 1: not yet. TypeError: ")
    assert second == "  in: assert half(n) > 0 and half(n) == n / 2"


def test_a_right_answer_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    globals().update(half=lambda n: n / 2, number=3)
    assert halves(capsys) == "Exercise 1: right."


def test_code_that_is_handed_out_is_still_to_write_until_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def given_out(x: float) -> float:
        return x  # wrong

    def mended(x: float) -> float:
        return 2 * x

    code = fingerprint(inspect.getsource(given_out))
    for function, verdict in [(given_out, "still to write: given_out."), (mended, "right.")]:
        globals()["given_out"] = function

        @check("Exercise 2", "given_out", given={"given_out": code})
        def _() -> None:
            assert globals()["given_out"](2) == 4

        assert said(capsys) == f"Exercise 2: {verdict}"


TYPED: dict[str, Callable[[float], float]] = {}
exec("def function(x):\n    return 2 * x", TYPED)  # its source is nowhere
ANSWERS = {
    "typed at a prompt": TYPED["function"],
    "a part of a dictionary": lambda x: 2 * x,  # its line is no statement
    "not written in Python": partial(mul, 2),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_whose_code_cannot_be_read_is_not_what_was_handed_out(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    globals()["given_out"] = ANSWERS[kind]

    @check("Exercise 2", "given_out", given={"given_out": fingerprint("")})
    def _() -> None:
        assert given_out(2) == 4  # type: ignore[operator]

    assert said(capsys) == "Exercise 2: right."


def test_a_check_changes_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """It looks at copies, so doing nothing gives the same verdict the second time."""
    globals()["array"] = np.zeros(2)
    for _n in range(2):

        @check("Exercise 3", "array")
        def _() -> None:
            array[0] += 1  # type: ignore[index]
            assert array[0] == 2  # type: ignore[index]

        assert said(capsys).startswith("Exercise 3: not yet.")
    assert not globals()["array"].any()


def test_what_cannot_be_copied_is_looked_at_itself(capsys: pytest.CaptureFixture[str]) -> None:
    class Single:
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("there is only one")

    globals()["number"] = Single()

    @check("Exercise 4", "number")
    def _() -> None:
        assert isinstance(number, Single)

    assert said(capsys) == "Exercise 4: right."
