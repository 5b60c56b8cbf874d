"""Parameters of tests that need not be asked on each change."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """Return parameters that only `make slow` and a tenth of the changes ask.

    What they notice is noticed by the parameters beside them too, as far as we know.
    """
    return pytest.param(*values, marks=pytest.mark.slow)
