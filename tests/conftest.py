"""Settings that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Helpers such as tolerance.py lie beside the tests, and are no part of any package.
sys.path.insert(0, str(Path(__file__).parent))

# The same examples on every run, and no verdict that hangs on the speed of the machine.
settings.register_profile("steady", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-images",
        action="store_true",
        help="write the stored images of attnlib.figures anew; look at them before a commit",
    )


@pytest.fixture
def update_images(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-images"))
