"""`attnbook.copying` is the program of chapter 17."""

from __future__ import annotations

import inspect

import pytest

from attnbook import copying
from tools import ROOT
from tools.notebooks import read

NAMES = ["repeats", "Attention", "Model", "share_right", "go_on", "train", "begin", "steps"]


@pytest.mark.parametrize("name", NAMES)
def test_the_function_is_that_of_the_chapter(name: str) -> None:
    cells = read(ROOT / "chapters" / "17_training.ipynb")["cells"]
    source = inspect.getsource(getattr(copying, name)).strip()
    assert sum(source in cell["source"] for cell in cells) == 1
