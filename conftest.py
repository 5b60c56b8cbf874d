"""What must hold before any module is imported, in the tests or in doctests."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from attnbook import trained

# What a run costs, and what it may cost: tests/helpers/costs.py.
pytest_plugins = ["costs", "kernels"]

# Without a GPU Triton's kernels run in its interpreter. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# These import libraries that are in no environment but their own.
collect_ignore_glob = ["peers/families/*", "peers/reproductions/*"]

# There is no Triton but for Linux.
if importlib.util.find_spec("triton") is None:
    kernels = ("attnlib/triton_fused/*", "tests/attnlib/test_triton_*.py", "chapters/14_*")
    collect_ignore_glob += kernels


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip chapter 19 and its page where the model is neither installed nor to be fetched."""
    cells = [item for item in items if item.path.match("chapters/19_*.ipynb")]
    if cells and (reason := trained.missing()):
        for cell in cells:
            cell.add_marker(pytest.mark.skip(reason=reason))
