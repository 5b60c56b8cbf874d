"""`attnbook.ring_steps` are the functions of chapter 16."""

from __future__ import annotations

import inspect

import pytest

from attnbook import ring_steps
from tools import ROOT
from tools.notebooks import read

NAMES = ["pass_on", "merge", "ring", "zigzag", "split", "own_chunks", "causal"]


@pytest.mark.parametrize("name", NAMES)
def test_the_function_is_that_of_the_chapter(name: str) -> None:
    cells = read(ROOT / "chapters" / "16_many_devices.ipynb")["cells"]
    source = inspect.getsource(getattr(ring_steps, name)).strip()
    assert sum(source in cell["source"] for cell in cells) == 1
