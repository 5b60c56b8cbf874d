"""Settings that all tests share."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pictures import without
from xdist.scheduler import LoadScopeScheduling

# The same examples on every run, and no verdict that hangs on the speed of the machine.
settings.register_profile("steady", derandomize=True, deadline=None, database=None, max_examples=60)
# To look for what these do not show (HYPOTHESIS_PROFILE=long): other examples each time, and many.
settings.register_profile("long", deadline=None, max_examples=1500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-images",
        action="store_true",
        help="write the stored images of attnbook.figures anew; look at them before a commit",
    )


@pytest.fixture
def update_images(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-images"))


@pytest.fixture
def compared_part(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return what leaves out of drawings what `--nbval-sanitize-with` leaves out of outputs."""
    file = request.config.getoption("nbval_sanitize_with", None)
    return functools.partial(without, Path(file) if file else None)


def given_to(item: pytest.Item) -> dict[str, Any]:
    """The values of a test's parameters, by name."""
    return getattr(getattr(item, "callspec", None), "params", {})


def repeated(items: list[pytest.Item]) -> set[pytest.Item]:
    """Find the tests that a rung in an interpreter can do without.

    There a call takes a tenth of a second. A table of cases and dtypes keeps one dtype for each
    case, in turn: every case is run and every dtype, not every pair. On a GPU all of them are.
    """
    tables: dict[Any, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        given = given_to(item)
        if "dtype" in given and getattr(given.get("rung"), "is_interpreted", False):
            case = repr({name: value for name, value in given.items() if name != "dtype"})
            tables[item.path, item.location[2].partition("[")[0]][case].append(item)
    left_out = set()
    for table in tables.values():
        for i, row in enumerate(table.values()):
            turn = min(len(table), len(row))
            # A step aside after each turn: no option of the cases meets the same dtype each time.
            left_out |= {item for j, item in enumerate(row) if (i + i // turn - j) % turn}
    return left_out


# What takes longest in an interpreter: there `make slow` has it.
SLOWLY_INTERPRETED = ("test_opinfo.py::", "test_properties.py::", "::test_gradcheck[")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is repeated, and mark as slow, before the marks are asked for."""
    for item in items:
        is_interpreted = getattr(given_to(item).get("rung"), "is_interpreted", False)
        if is_interpreted and any(name in item.nodeid for name in SLOWLY_INTERPRETED):
            item.add_marker(pytest.mark.slow)
    left_out = repeated(items)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


class Together(LoadScopeScheduling):
    """Keeps in one process what shares something: a notebook, a browser's pages, a function.

    xdist's own groups are lost under this pytest, in which a test's name cannot be changed.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        whole = file.endswith(".ipynb") or "/site/" in file
        return file if whole else f"{file}::{name.partition('[')[0]}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)
