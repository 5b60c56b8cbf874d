"""What must hold before any module is imported, in the tests or in doctests."""

from __future__ import annotations

import importlib.util
import os

import torch

# Without a GPU Triton's kernels run in its interpreter. Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# There is no Triton but for Linux.
if importlib.util.find_spec("triton") is None:
    kernels = ("attnlib/triton_fused/*", "tests/attnlib/test_triton_*.py", "chapters/14_*")
    collect_ignore_glob = list(kernels)
