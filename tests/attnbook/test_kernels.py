"""`attnbook.kernels` are the kernels of chapter 14."""

from __future__ import annotations

import inspect

import pytest

from tools import ROOT
from tools.notebooks import read

pytest.importorskip("triton", reason="triton is for Linux")

from attnbook import kernels

NAMES = ["place", "read", "write", "tile_scores", "update", "fused"]


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_that_of_the_chapter(name: str) -> None:
    cells = read(ROOT / "chapters" / "14_fused_kernel.ipynb")["cells"]
    source = inspect.getsource(getattr(kernels, name).fn).strip()
    assert sum(source in cell["source"] for cell in cells) == 1
