"""What `attnbook` has of a chapter's program is the chapter's, letter by letter."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tools import ROOT
from tools.notebooks import read

PROGRAMS = {
    ("14_fused_kernel", "kernels"): "place read write tile_scores update fused",
    ("16_many_devices", "ring_steps"): "pass_on merge ring zigzag split own_chunks causal",
    ("17_training", "copying"): "repeats Attention Model share_right go_on train",
    ("17_programs", "learning"): "softmax",
    ("20_choosing_keys", "choosing"): "Indexer distance",
}


@pytest.mark.parametrize(("chapter", "module"), PROGRAMS)
def test_a_function_is_that_of_the_chapter(chapter: str, module: str) -> None:
    if module == "kernels":
        pytest.importorskip("triton", reason="triton is for Linux")
    own = importlib.import_module(f"attnbook.{module}")
    cells = [cell["source"] for cell in read(ROOT / "chapters" / f"{chapter}.ipynb")["cells"]]
    for name in PROGRAMS[chapter, module].split():
        function = getattr(own, name)
        source = inspect.getsource(getattr(function, "fn", function)).strip()
        # Cells have the formatter's layout, but for signatures of a kernel.
        assert sum(source in cell.replace("  # fmt: skip", "") for cell in cells) == 1, name
