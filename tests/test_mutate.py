"""The tool that changes attnlib wherever mutmut would: what it changes, and what that does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mutmut", reason="mutmut is not installed")

from tools import mutate
from tools.changes import Change, Functions, changes, differing
from tools.processes import forked

TOKENWISE, CHECKS = "numpy_tokenwise", "_torch_door"


@cache
def made_in(module: str) -> list[Change]:
    """Every change of a module: seconds of work, so not before a test asks."""
    return list(changes(module))


def one(module: str, where: str, old: str, new: str) -> Change:
    (change,) = (c for c in made_in(module) if (c.where, c.old, c.new) == (where, old, new))
    return change


def test_each_change_is_one_change() -> None:
    text = Path("attnlib/numpy_tokenwise.py").read_text(encoding="utf-8")
    assert len({change.key for change in made_in(TOKENWISE)}) == len(made_in(TOKENWISE)) > 50
    for change in made_in(TOKENWISE):
        assert change.source != text
        assert change.old in "\n".join(line.strip() for line in text.split("\n"))
    found = one(TOKENWISE, "_dot", "total += a * b", "total += a / b")
    row = text.split("\n").index("        total += a * b") + 1
    assert (found.first, found.last) == (row, row)


def test_decorated_and_inner_functions_are_changed_too_and_messages_are_not() -> None:
    places = {change.where for change in made_in(CHECKS)}
    assert {"as_autocast_does.wrapped", "as_autocast_does.wrapped.cast"} <= places
    assert not any(change.old.startswith("raise ") for change in made_in(CHECKS))


def dot(change: Change) -> list[Any]:
    from attnlib.numpy_tokenwise import _dot

    made = Functions().change(change)
    return [made, _dot([2.0, 3.0], [4.0, 5.0])]


def wrapped(change: Change) -> list[Any]:
    from attnlib.torch_dense import project

    made = Functions().change(change)
    try:
        project(None, None)
    except Exception as error:
        return [made, type(error).__name__]
    return [made, "nothing"]


def in_a_fork(work: Any, change: Change) -> Any:
    ((_, result),) = forked([change], work, jobs=1, limit=60)
    return result


def test_a_change_takes_effect_in_functions_that_live() -> None:
    from attnlib import torch_dense

    assert torch_dense.project
    change = one(TOKENWISE, "_dot", "total += a * b", "total = a * b")
    assert in_a_fork(dot, change) == [True, 15.0]
    change = one(TOKENWISE, "_dot", "total += a * b", "total -= a * b")
    assert in_a_fork(dot, change) == [True, -23.0]
    # In a function that a decorator has made, which is another one for each function it wraps.
    where = "as_autocast_does.wrapped"
    old = 'device = tensors[0].device.type if tensors else "meta"'
    change = one(CHECKS, where, old, 'device = tensors[1].device.type if tensors else "meta"')
    assert in_a_fork(wrapped, change) == [True, "TypeError"]  # no tensors: as it was
    change = one(CHECKS, where, old, "device = None")
    assert in_a_fork(wrapped, change)[0] is True
    assert in_a_fork(wrapped, change)[1] != "nothing"


def test_what_runs_at_import_is_left_to_an_import() -> None:
    before = compile("LIMIT = 20\ndef f():\n    return LIMIT", "x", "exec")
    constant = compile("LIMIT = 21\ndef f():\n    return LIMIT", "x", "exec")
    default = compile("LIMIT = 20\ndef f(x=1):\n    return LIMIT", "x", "exec")
    body = compile("LIMIT = 20\n\n\ndef f():\n    return -LIMIT", "x", "exec")
    assert differing(before, constant) is None
    assert differing(before, default) is None
    assert [new.co_name for _, new in differing(before, body) or []] == ["f"]
    assert differing(before, before) == []


def weighted(change: Change) -> list[Any]:
    import numpy as np

    from attnlib import numpy_dense

    made = Functions().change(change)
    try:
        return [made, numpy_dense.attention_weights(*[np.ones((2, 2))] * 2).tolist()]
    except ValueError as error:
        return [made, str(error)]


def test_a_default_is_changed_in_functions_that_live() -> None:
    for old, new, found in [
        ("is_causal: bool = False", "is_causal: bool = True", "[[1.0, 0.0], [0.5, 0.5]]"),
        ("enable_gqa: bool = False", "enable_gqa: bool = True", "at least 3 dimensions"),
    ]:
        (change,) = (
            c
            for c in made_in("numpy_dense")
            if c.where == "attention_weights" and c.new == c.old.replace(old, new) != c.old
        )
        made, said = in_a_fork(weighted, change)
        assert made and found in str(said)


def test_cheap_tests_come_first_and_then_one_of_each_function() -> None:
    lines = {"masks": [5]}
    tests = {
        "a.py::one[x]": {"seconds": 0.3, "lines": lines},
        "a.py::one[y]": {"seconds": 0.1, "lines": lines},
        "a.py::one[z]": {"seconds": mutate.CHEAP, "lines": lines},
        "a.py::one[0]": {"seconds": 0.0, "lines": lines},
        "a.py::two": {"seconds": 0.2, "lines": lines},
        "a.py::slow": {"seconds": mutate.SLOW + 1, "lines": lines},
        "a.py::elsewhere": {"seconds": 0.0, "lines": {"masks": [7]}},
    }
    change = Change("masks", "f", "", "", 1, 4, 6, "")
    first = [f"a.py::{name}" for name in ("one[0]", "one[z]", "one[y]", "two", "one[x]")]
    assert mutate._chosen(change, tests, 10) == first
    assert mutate._chosen(change, tests, 0.35) == first[:4]
    unseen = change._replace(first=1, last=1)
    assert "a.py::elsewhere" in mutate._chosen(unseen, tests, 10)


def test_entries_of_what_no_test_can_notice() -> None:
    text = "# words\n[masks]\n\nbecause\nof this\n\nf.g\n- x\n- y\n+ z\n- x\n\nmodule\n- x\n+\n"
    one, two, three = mutate.read_equivalent(text)
    assert one == ("because of this", "masks", "f.g", "x\ny", "z")
    assert two == ("because of this", "masks", "f.g", "x", "")
    assert three == ("because of this", "masks", "", "x", "")
    for wrong in ("[masks]\n\nf\n- x\n+ y", "because\n\nf\n- x", "[a]\n\nwhy\n\n[b]\n\nf\n- x"):
        with pytest.raises(pytest.UsageError, match="not an entry"):
            mutate.read_equivalent(wrong)
    for entry in mutate.read_equivalent(mutate.EQUIVALENT.read_text(encoding="utf-8")):
        assert entry.module in mutate.MODULES
