"""A function of a notebook reaches every rank with all that it uses."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from attnbook.ranks import on_ranks
from attnbook.ranks.notebook import _Pickler

NOTEBOOK = """
import math
import torch.distributed as dist

noted = []
offset = 10


def note(x, twice=False, *, thrice=False):
    noted.append(x)
    return x


def root(x):
    note(x)
    return math.sqrt(x) + dist.get_rank() + offset + len(noted)


def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


def in_a_class():
    class Shifted:
        by = offset

    return Shifted.by


def summed(n):
    return sum(factorial(i) for i in range(n))


def applied(function, x):
    return function(x)


def around(x):
    def inside():
        return x

    return inside
"""


@pytest.fixture
def notebook() -> dict[str, Any]:
    """Return the names of a notebook, whose module is __main__."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, names)
    return names


def test_a_function_of_a_notebook_runs_on_each_rank(notebook: dict[str, Any]) -> None:
    assert on_ranks(2, notebook["root"], 9) == [14.0, 15.0]
    assert notebook["noted"] == []  # a rank notes in its own copy


def test_a_class_within_a_function_may_use_what_stands_around(notebook: dict[str, Any]) -> None:
    assert on_ranks(1, notebook["in_a_class"]) == [10]


def test_functions_may_use_themselves_and_come_as_arguments(notebook: dict[str, Any]) -> None:
    assert on_ranks(1, notebook["applied"], notebook["summed"], 4) == [1 + 1 + 2 + 6]


def test_what_arrives_is_the_function(notebook: dict[str, Any], tmp_path: Any) -> None:
    """In this process, where what a rank does can be watched."""
    with (tmp_path / "written").open("wb") as file:
        _Pickler(file).dump((notebook["note"], notebook["applied"]))
    note, applied = pickle.loads((tmp_path / "written").read_bytes())
    assert applied(note, 5) == 5
    assert note.__globals__["noted"] == [5] and notebook["noted"] == []
    assert note.__defaults__ == (False,) and note.__kwdefaults__ == {"thrice": False}


def test_a_function_of_a_module_is_left_to_pickle() -> None:
    assert on_ranks(2, max, 3, 4) == [4, 4]


def test_no_rank_runs_a_file_that_a_notebook_has_by_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Triton's interpreter leaves its own `__file__` in the notebook that has a kernel."""
    main = sys.modules["__main__"]
    (tmp_path / "fails.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(main, "__file__", str(tmp_path / "fails.py"), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    assert on_ranks(2, max, 3, 4) == [4, 4]
    assert main.__file__ == str(tmp_path / "fails.py")


def test_variables_of_a_function_around_it_are_refused(notebook: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"inside must use no variable .* around it; got x"):
        on_ranks(1, notebook["around"](1))
