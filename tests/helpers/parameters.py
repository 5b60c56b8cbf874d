"""Parameters of tests that need not be asked on each change."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: object) -> Any:
    """Return parameters that only `make slow` and a tenth of the changes ask.

    What they notice is noticed by the parameters beside them too, as far as we know.
    """
    return pytest.param(*values, marks=pytest.mark.slow)


# The rules that `torch.library.opcheck` asks of an operator. The last one compiles, which takes
# longest; on each change test_conformance and test_triton_fused compile the operators.
RULES = "test_schema", "test_autograd_registration", "test_faketensor"
ALL_RULES = *RULES, "test_aot_dispatch_dynamic"
