"""What the compiler makes of the kernels of `triton_fused`, as a table; it needs no GPU.

    python -m benchmarks.kernel_report [--architectures 75 80 90] [--widths 64 128 256]
        [--kernels NAME ...] [--case NAME] [--dtype float16] [--first N] [--output FILE]

A row is one kernel with one choice of blocks that is offered on that architecture:
registers of a thread, bytes of a thread that spill into memory, KiB of shared memory, and for each
main loop the instructions of a thread by kind. `whole` tiles are compared with nothing; `masked`
ones lie on the diagonal or at an end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attnbook.compiled import Code, gpu, read
from attnlib.triton_fused import launch, tuning
from attnlib.triton_fused.launch import Band, Kept, Operands, Results, Upstream, Wanted
from attnlib.triton_fused.tuning import Blocks

ARCHITECTURES, WIDTHS = (75, 80, 90), (64, 128, 256)
KERNELS = {
    "forward": tuning.FORWARD,
    "query_backward": tuning.QUERY_BACKWARD,
    "keys_backward": tuning.KEYS_BACKWARD,
    "mask_backward": tuning.MASK_BACKWARD,
}
# The band, and the dtype of the mask.
CASES: dict[str, tuple[Band, str]] = {
    "full": (Band(), ""),
    "causal": (Band(0, None, 0), ""),
    "bottom-right": (Band(-24, None, 0), ""),
    "window": (Band(0, 256, 0), ""),
    "left bound": (Band(3, 100, None), ""),
    "boolean mask": (Band(), "bool"),
    "floating mask": (Band(), "float16"),
    "window and mask": (Band(0, 256, 0), "bool"),
}
KINDS = ["products", "exponentials", "fused", "sums", "factors", "maxima", "comparisons"]
KINDS += ["selections", "conversions", "copies", "shared memory", "spills", "other"]


class Setting(NamedTuple):
    """One kernel as it is compiled."""

    kernel: str
    blocks: Blocks
    architecture: int = 90
    width: int = 128
    case: str = "causal"
    dtype: str = "float16"


class Row(NamedTuple):
    """What a kernel is made of: `part` says which gradients it computes, if it has a choice."""

    setting: Setting
    part: str
    code: Code


def offered(
    kernel: str, architecture: int, width: int, case: str = "causal", dtype: str = "float16"
) -> list[Blocks]:
    """Return the choices of blocks for this many features."""
    mask_dtype = dtype if kernel == "mask_backward" else CASES[case][1]
    mask_bytes = getattr(torch, mask_dtype).itemsize if mask_dtype else 0
    q = torch.empty(1, 1, 1, width, dtype=getattr(torch, dtype))
    wide = torch.promote_types(q.dtype, torch.float32)
    with gpu(architecture):
        given = launch.arguments(q, q, q, None, wide, 1.0, Band(), 1, False)
    return KERNELS[kernel].fitting(given["CHOICES"], architecture, mask_bytes)


def compiled(setting: Setting) -> list[Row]:
    """Compile a kernel as it is started for 4 heads of 1,024 tokens."""
    from triton.runtime.jit import JITFunction

    band, mask_dtype = CASES[setting.case]
    dtype, rows = getattr(torch, setting.dtype), []
    query, key, value, output, lost = (
        torch.zeros(1, 4, 1024, setting.width, dtype=dtype) for _ in range(5)
    )
    wide = torch.promote_types(dtype, torch.float32)
    lse, m, log2_ell = (torch.zeros(1, 4, 1024, dtype=wide) for _ in range(3))
    mask_dtype = setting.dtype if setting.kernel == "mask_backward" else mask_dtype
    mask = torch.ones(1024, 1024, dtype=getattr(torch, mask_dtype)) if mask_dtype else None
    operands = Operands(query, key, value, mask, band, 0.1, 1, [0])
    kept, upstream = Kept(output, m, log2_ell, lost), Upstream(output, lse)
    run, choose = JITFunction.run, tuning.Kernel.chosen

    def compile_only(function: Any, *arguments: Any, grid: Any, warmup: bool, **given: Any) -> None:
        if function.fn.__name__ == setting.kernel:
            kernel = run(function, *arguments, grid=grid, warmup=True, **given)
            wanted = given.get("WANTED", Wanted(False, False))
            found = zip(("dK", "dV"), wanted, strict=True)
            rows.append(Row(setting, " ".join(name for name, is_ in found if is_), read(kernel)))

    JITFunction.run = compile_only
    tuning.Kernel.chosen = lambda *_: setting.blocks
    try:
        with gpu(setting.architecture):
            results = Results(output, lse, m, log2_ell, lost)
            launch.attend(operands, results)
            needed = [True, True, True, setting.kernel == "mask_backward"]
            launch.differentiate(operands, kept, upstream, needed)
    finally:
        JITFunction.run, tuning.Kernel.chosen = run, choose
    return rows


def report(settings: Iterable[Setting], workers: int = 2) -> Iterator[Row]:
    """Return the rows of some settings, which are compiled side by side."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for rows in pool.map(compiled, settings):
            yield from rows


def tiles(row: Row) -> list[str]:
    """Return which tiles each main loop goes through."""
    if len(row.code.loops) == 1:
        return ["masked"]
    if len(row.code.loops) == 3:
        return ["masked", "whole", "masked"]
    return ["masked", "whole"] if row.setting.kernel == "keys_backward" else ["whole", "masked"]


def as_lines(row: Row) -> Iterator[str]:
    """Return a row as it is printed: a line for each main loop."""
    setting, code = row.setting, row.code
    blocks = "({}, {}), {}, {}".format(*setting.blocks)
    for name, loop in zip(tiles(row), code.loops, strict=True):
        cells = [
            f"sm_{setting.architecture}",
            setting.width,
            f"{setting.kernel} {row.part}".strip(),
        ]
        cells += [blocks, code.registers, code.spilled, f"{code.shared / 1024:.0f}", name]
        cells += [loop.instructions, *(loop.kinds.get(kind, 0) for kind in KINDS)]
        yield f"| {' | '.join(map(str, cells))} |"


def main(arguments: list[str] | None = None) -> None:
    """Compile, print a table, store it if there is a file to store it in."""
    parser = argparse.ArgumentParser(description="what the kernels are made of")
    parser.add_argument("--architectures", type=int, nargs="+", default=ARCHITECTURES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--first", type=int, help="so many choices of a kernel, and no more")
    parser.add_argument("--case", choices=CASES, default="causal")
    parser.add_argument("--dtype", choices=("float16", "float32", "float64"), default="float16")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    if tuning.INTERPRETED:
        sys.exit("the interpreter compiles nothing: run without TRITON_INTERPRET=1")
    head = ["architecture", "D", "kernel", "(queries, keys), warps, stages", "registers", "spilled"]
    head += ["shared, KiB", "tiles", "instructions", *KINDS]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    rows = []
    for row in report(
        Setting(kernel, blocks, architecture, width, options.case, options.dtype)
        for architecture in options.architectures
        for width in options.widths
        for kernel in options.kernels
        for blocks in offered(kernel, architecture, width, options.case, options.dtype)[
            : options.first
        ]
    ):
        rows.append(row)
        print(*as_lines(row), sep="\n", flush=True)
    if options.output:
        options.output.write_text(json.dumps(rows) + "\n", "utf-8")


if __name__ == "__main__":
    main()
