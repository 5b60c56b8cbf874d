"""What the interpreter cannot show: that Triton's compiler takes the kernels, and what it makes."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("triton", reason="triton is for Linux")

from attnbook.compiled import Code, Loop
from attnlib.triton_fused.tuning import MATRIX_UNITS, SHARED, Blocks
from benchmarks.kernel_report import CASES, Row, Setting, tiles

ROOT = Path(__file__).parents[2]


def report(tmp_path: Path, *options: object) -> list[Row]:
    """Return what the report finds, in a process without the interpreter."""
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.kernel_report", "--output", file, *options]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=580, cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    rows = []
    for (kernel, blocks, *setting), part, (*code, loops) in json.loads(file.read_text()):
        found = Code(*code, [Loop(*loop) for loop in loops])
        rows.append(Row(Setting(kernel, Blocks(*blocks), *setting), part, found))
    return rows


def products(row: Row) -> int:
    """Return the instructions that multiply: each takes 64 rows and 16 of what is summed over.

    Four warps share one.
    """
    blocks, width = row.setting.blocks, row.setting.width
    rows = blocks.keys if row.setting.kernel == "keys_backward" else blocks.queries
    summed_over = {
        "forward": width + blocks.keys,  # S, O
        "query_backward": 2 * width + blocks.keys,  # S, dP, dQ
        "keys_backward": width
        + ("dV" in row.part) * blocks.queries  # S, dV
        + ("dK" in row.part) * (width + blocks.queries),  # dP, dK
        "mask_backward": 2 * width,  # S, dP
    }
    return summed_over[row.setting.kernel] // 16 * rows // (16 * blocks.warps)


def hold(row: Row) -> None:
    """Hold a kernel against what its tile needs."""
    setting, code = row.setting, row.code
    blocks, arch, width = setting.blocks, setting.architecture, setting.width
    assert code.shared <= SHARED.get(arch, 64) * 1024
    n_scores = blocks.queries * blocks.keys // code.threads
    on_matrix_units = arch >= MATRIX_UNITS
    for loop in code.loops:
        # A power for each score, once. The forward brings its sums to a new maximum by some more.
        powers = loop.kinds["exponentials"]
        if setting.kernel == "forward":
            assert n_scores < powers <= (1.5 if on_matrix_units else 2) * n_scores
        else:
            assert powers == n_scores
        assert ("products" in loop.kinds) == on_matrix_units
    if on_matrix_units:
        # Of 255 registers 48, or 84 where 256 features leave little choice; most spill nothing.
        assert code.spilled <= (192 if width <= 128 else 336)
    if arch == 90 and (blocks.keys if "keys" in setting.kernel else blocks.queries) >= 64:
        for name, loop in zip(tiles(row), code.loops, strict=True):
            # Tiles arrive past the registers, 16 bytes in one copy.
            assert loop.kinds["products"] == products(row)
            stream = blocks.queries if "keys" in setting.kernel else blocks.keys
            assert loop.kinds["copies"] >= 2 * stream * width * 2 // 16 // code.threads
            if name == "masked" and setting.case == "causal":
                # One comparison a score, and one more where a NaN must not reach a gradient.
                times = 1 if setting.kernel == "forward" else 2
                assert loop.kinds["comparisons"] <= times * n_scores + 32


UNDERSTOOD = "the kernel is understood"
# A mask of one byte beside numbers of eight: Triton has failed there after it had understood.
IN_FLOAT64 = ("boolean mask", "float64")


def without_the_interpreter(wholly: str, sender: Connection) -> None:
    """Send for each kernel what becomes of its first choice; only one is compiled to the end.

    This runs in a fork, whose Triton is imported anew. A process of its own would import torch
    again, which takes longer than the compiler.
    """
    os.environ.pop("TRITON_INTERPRET", None)
    anew = "triton", "benchmarks", "attnlib.triton_fused", "attnbook.compiled"
    for name in list(sys.modules):
        # What is written in C stays: it cannot be imported twice.
        if f"{name}.".startswith(tuple(f"{x}." for x in anew)) and "._C" not in name:
            del sys.modules[name]
    report: Any = importlib.import_module("benchmarks.kernel_report")
    backend: Any = importlib.import_module("triton.backends.nvidia.compiler").CUDABackend
    understood = mock.patch.object(backend, "make_ttgir", side_effect=StopIteration(UNDERSTOOD))
    found: dict[object, Any] = {}
    settings = {k: report.Setting(k, report.offered(k, 90, 128)[0]) for k in report.KERNELS}
    smallest = report.Blocks(16, 16, 4, 1)
    settings[IN_FLOAT64] = report.Setting("forward", smallest, 90, 16, *IN_FLOAT64)
    for name, setting in settings.items():
        with contextlib.nullcontext() if name in (wholly, IN_FLOAT64) else understood:
            try:
                found[name] = report.compiled(setting)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    sender.send(found)
    sender.close()


def test_the_first_choices() -> None:
    """The first choice of each kernel, which has the largest tiles, on the newest architecture.

    The compiler looks at names, types and what must be constant, as the interpreter does not; the
    kernel that has most to compute is compiled to the end, and one in float64 under a mask. The
    weekly test below does so with all.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=without_the_interpreter, args=("keys_backward", sender))
    child.start()
    sender.close()
    found = receiver.recv()
    child.join()
    kernels = {"forward", "query_backward", "keys_backward", "mask_backward"}
    assert found.keys() == {*kernels, IN_FLOAT64}
    assert isinstance(found[IN_FLOAT64], list), found[IN_FLOAT64]
    rows = found.pop("keys_backward")
    for came in found.values():
        # What Triton finds in its cache comes whole.
        assert came == f"StopIteration: {UNDERSTOOD}" or isinstance(came, list), came
    assert isinstance(rows, list), rows
    [row] = rows
    hold(row)


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("arch", [75, 80, 90])
def test_every_choice_is_what_its_tile_needs(tmp_path: Path, arch: int, width: int) -> None:
    rows = report(tmp_path, "--architectures", arch, "--widths", width)
    for row in rows:
        hold(row)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != "causal"])
def test_every_kind_of_call_compiles(tmp_path: Path, case: str) -> None:
    """Masks, windows and alignments; of float64 the smallest choice."""
    options = ("--architectures", 90, "--widths", 16, "--first", 1, "--case", case)
    assert report(tmp_path, *options, "--dtype", "float64")
    options = ("--architectures", 90, "--widths", 128, "--first", 2, "--case", case)
    rows = report(tmp_path, *options)
    kernels = {"forward", "query_backward", "keys_backward", "mask_backward"}
    assert {row.setting.kernel for row in rows} == kernels
    n_loops = 3 if case in ("window", "left bound", "window and mask") else 2
    for row in rows:
        assert len(row.code.loops) == (1 if row.setting.kernel == "mask_backward" else n_loops)
        assert row.code.spilled <= 192
        assert row.code.shared <= SHARED[90] * 1024
