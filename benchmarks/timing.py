"""How two functions are timed against each other, and what is stored with the result.

Both sides run in pairs, A B B A A B …, so that a machine that slows down slows both. A ratio is
the median of a pair's ratios.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Comparison:
    """Seconds of two functions, and how they compare."""

    ratio: float  # ours / theirs, the median over the pairs
    ratio_low: float  # its quartiles
    ratio_high: float
    ours: float  # medians, in seconds
    theirs: float
    pairs: int


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    repeats: int = 31,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Time two functions in pairs, every second pair the other way round."""
    if repeats < 2:
        raise ValueError(f"repeats must be at least 2; got {repeats}")

    def seconds(function: Callable[[], object]) -> float:
        start = clock()
        function()
        return clock() - start

    for _ in range(warm_up):
        ours()
        theirs()
    pairs = []
    for place in range(repeats):
        if place % 2 == 0:
            first = seconds(ours)
            pairs.append((first, seconds(theirs)))
        else:
            first = seconds(theirs)
            pairs.append((seconds(ours), first))
    ratios = [a / b for a, b in pairs]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Comparison(statistics.median(ratios), low, high, own, other, repeats)


# The instructions that multiply bfloat16 numbers, by Linux's names for them, best first.
BFLOAT16 = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512"}


def processor(info: str) -> tuple[str, str]:
    r"""Return a processor's name and its instructions for bfloat16, from the text of /proc/cpuinfo.

    >>> processor("model name\t: One\nflags\t\t: fpu avx512_bf16\n")
    ('One', 'AVX-512')
    >>> processor("")
    ('', 'unknown')
    """
    lines = (line.partition(":") for line in reversed(info.splitlines()))
    about = {name.strip(): text.strip() for name, _, text in lines}
    flags = about.get("flags", "").split()
    found = [name for flag, name in BFLOAT16.items() if flag in flags]
    return about.get("model name", ""), (found or ["none" if flags else "unknown"])[0]


def machine() -> dict[str, object]:
    """Return what a time means nothing without."""
    info = Path("/proc/cpuinfo")
    cpu, bfloat16 = processor(info.read_text() if info.exists() else "")
    return {
        "cpu": cpu or platform.processor() or platform.machine(),
        "bfloat16": bfloat16,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def call(
    attend: Callable[..., Tensor], tensors: list[Tensor], upstream: Tensor, is_causal: bool
) -> Callable[[], object]:
    """Return a function that runs attention, and its backward where the tensors want gradients."""

    def run() -> object:
        output = attend(*tensors, is_causal=is_causal)
        return torch.autograd.grad(output, tensors, upstream) if output.requires_grad else output

    return run


def store(result: dict[str, object], file: Path) -> None:
    """Write a result as json, in a folder that is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"Stored in {file}")
