"""What the interpreter cannot show: that Triton's compiler takes the kernels, and what it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is for Linux")

ROOT = Path(__file__).parents[2]
COMPILE = ROOT / "tests" / "helpers" / "compiled_kernels.py"
CASES = [
    "causal", "causal, atomic additions", "bottom-right", "window", "left bound", "boolean mask",
    "floating mask", "window and mask",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_for_hopper(case: str) -> None:
    """Products run on the matrix units, tiles arrive in copies of 16 bytes, registers suffice."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, COMPILE, case], capture_output=True, text=True,
        timeout=300, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    expected = {"forward", "row_sums", "query_backward", "keys_backward"}
    assert {row["kernel"] for row in rows} == expected - (
        {"query_backward"} if "atomic" in case else set()
    )
    n_loops = 3 if case in ("window", "left bound", "window and mask") else 2
    for row in rows:
        if row["kernel"] == "row_sums":
            assert row["loads of 16 bytes"] >= 24
            continue
        # Two products of 8 steps of 16 features in each loop, or more.
        assert row["wgmma"] >= 16 * n_loops
        assert row["copies of 16 bytes"] >= 16 * n_loops
        assert row["spilled"] <= (128 if "mask" not in case else 320)
