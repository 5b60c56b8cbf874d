"""Settings that all tests share, and what must hold before any module is imported."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from pictures import without
from xdist.scheduler import LoadScopeScheduling

from attnbook import trained
from tools import tenth

# What a run costs, and what it may cost: tests/helpers/costs.py.
pytest_plugins = ["costs", "kernels"]

# Without a GPU Triton's kernels run in its interpreter. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# These import libraries that are in no environment but their own, or what lies beside them.
collect_ignore_glob = [
    "oracle/peers/families/*", "oracle/peers/reproductions/*", "oracle/tests/hands/contest/*",
]

# There is no Triton but for Linux.
if importlib.util.find_spec("triton") is None:
    kernels = ("attnlib/triton_fused/*", "tests/attnlib/test_triton_*.py", "chapters/14_*")
    collect_ignore_glob += kernels


# The same examples on every run, and no verdict that hangs on the speed of the machine.
settings.register_profile("steady", derandomize=True, deadline=None, database=None, max_examples=60)
# To look for what these do not show (HYPOTHESIS_PROFILE=long): other examples each time, and many.
settings.register_profile("long", deadline=None, max_examples=1500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(autouse=True)
def same_numbers_each_run() -> None:
    """Seed torch, which otherwise begins each process with other numbers, also in drawn weights."""
    torch.manual_seed(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-images",
        action="store_true",
        help="write the stored images of attnbook.figures anew; look at them before a commit",
    )
    parser.addoption(
        "--tenth",
        type=int,
        choices=tenth.TENTHS,
        help="of the tests, only those of this tenth (`python -m tools.tenth` says which is due)",
    )


@pytest.fixture
def update_images(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-images"))


@pytest.fixture
def compared_part(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return what leaves out of drawings what `--nbval-sanitize-with` leaves out of outputs."""
    file = request.config.getoption("nbval_sanitize_with", None)
    return functools.partial(without, Path(file) if file else None)


class Together(LoadScopeScheduling):
    """Keeps in one process what shares something: a notebook, a browser's pages, a server of ranks,
    a function.

    xdist's own groups are lost under this pytest, in which a test's name cannot be changed.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        whole = file.endswith((".ipynb", "_ranks.py")) or "/site/" in file
        return file if whole else f"{file}::{name.partition('[')[0]}"


# What takes longest comes first, so that no core is left alone with it at the end.
LONG = (
    "/site/",
    "test_cases.py",
    "test_faulty_",
    "chapters/19_r",
    "chapters/08_",
    "chapters/09_o",
    ".ipynb",
    "_ranks.py",
)


def skip_without_the_model(items: list[pytest.Item]) -> None:
    """Skip chapter 19 and its page where the model is neither installed nor to be fetched."""
    cells = [item for item in items if item.path.match("chapters/19_*.ipynb")]
    if cells and (reason := trained.missing()):
        for cell in cells:
            cell.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_without_the_model(items)
    if (due := config.getoption("--tenth")) is not None:
        config.hook.pytest_deselected(items=[i for i in items if tenth.of(i.nodeid) != due])
        items[:] = [item for item in items if tenth.of(item.nodeid) == due]
    items.sort(key=lambda item: [part in item.nodeid for part in (*LONG, "")].index(True))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)
