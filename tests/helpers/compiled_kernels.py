"""Compile the kernels of `triton_fused` for an H100 or H200 (sm_90), which needs no GPU.

    python tests/helpers/compiled_kernels.py causal window ...

Run in a process of its own, without TRITON_INTERPRET. It prints one line of JSON for each kernel:
how often PTX has the instructions that count, and the registers of a thread and what they spill.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from attnbook.compiled import gpu, read
from attnlib._checks import Band
from attnlib._torch_operators import Results
from attnlib.triton_fused import _launch, _tuning

N_TOKENS, WIDTH = 1024, 128
BLOCKS = {
    "forward": _tuning.Blocks(128, 128, 8, 2),
    "query_backward": _tuning.Blocks(128, 128, 8, 2),
    "keys_backward": _tuning.Blocks(64, 128, 8, 2),
}
CASES: dict[str, tuple[Band, str, bool]] = {
    "full": (Band(), "", True),
    "causal": (Band(0, None, 0), "", True),
    "causal, atomic additions": (Band(0, None, 0), "", False),
    "bottom-right": (Band(-24, None, 0), "", True),
    "window": (Band(0, 256, 0), "", True),
    "left bound": (Band(3, 100, None), "", True),
    "boolean mask": (Band(), "bool", True),
    "floating mask": (Band(), "bfloat16", True),
    "window and mask": (Band(0, 256, 0), "bool", True),
}


def compiled(name: str) -> dict[str, Any]:
    """Return the compiled kernels of a case, by name."""
    band, mask_dtype, deterministic = CASES[name]
    found: dict[str, Any] = {}
    run = JITFunction.run

    def kept(function: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found[function.fn.__name__] = run(function, *arguments, grid=grid, warmup=True, **options)

    for kernel in (_tuning.FORWARD, _tuning.QUERY_BACKWARD, _tuning.KEYS_BACKWARD):
        blocks = BLOCKS[kernel.function.fn.__name__]
        kernel.chosen = lambda choices, case, blocks=blocks: blocks
    query, key, value, output, lost = (
        torch.zeros(1, 4, N_TOKENS, WIDTH, dtype=torch.bfloat16) for _ in range(5)
    )
    lse, shift, log2_sum = (torch.zeros(1, 4, N_TOKENS) for _ in range(3))
    mask = torch.ones(N_TOKENS, N_TOKENS, dtype=getattr(torch, mask_dtype)) if mask_dtype else None
    operands = _launch.Operands(query, key, value, mask)
    results = Results(output, lse, shift, log2_sum, lost)
    rows = _launch.Kept(output, lost, shift, log2_sum)
    upstream = _launch.Upstream(output, lse)
    JITFunction.run = kept
    try:
        with gpu(90):
            _launch.attend(operands, results, 0.1, band, 1)
            _launch.differentiate(operands, rows, upstream, [True] * 3, 0.1, band, 1, deterministic)
    finally:
        JITFunction.run = run
    return found


def measured(kernel: Any) -> dict[str, int]:
    """Return what a compiled kernel is made of."""
    ptx = kernel.asm["ptx"]
    code = read(kernel)
    return {
        "wgmma": len(re.findall(r"wgmma\.mma_async", ptx)),
        "copies of 16 bytes": len(re.findall(r"cp\.async\.cg\.shared\.global[^;]*0x10", ptx)),
        "loads of 16 bytes": len(re.findall(r"ld\.global\S*\.v4", ptx)),
        "instructions": len(re.findall(r"^\s+(?:@%p\d+ )?[a-z][\w.:]+.*;$", ptx, re.M)),
        "registers": code.registers,
        "spilled": code.spilled,
        "shared": code.shared,
    }


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("the interpreter compiles nothing: run without TRITON_INTERPRET=1")
    for case in sys.argv[1:] or CASES:
        for kernel_name, found_kernel in compiled(case).items():
            row = {"case": case, "kernel": kernel_name, **measured(found_kernel)}
            print(json.dumps(row), flush=True)
