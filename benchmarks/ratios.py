"""How long `torch_dense` takes against torch's own attention on its MATH backend, in one run.

    python -m benchmarks.ratios [--lengths 512 1024 2048] [--repeats 31] [--output FILE]

Both sides run in pairs, A B B A A B …, so that a machine that slows down slows both. A ratio is
the median of a pair's ratios. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib import torch_dense

RESULTS = Path(__file__).parent / "results"
HEADS, FEATURES = 8, 64


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


def machine() -> dict[str, object]:
    """Give what a time means nothing without."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(": ")[2] if names else cpu
    return {
        "cpu": cpu,
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
    """Give a function that runs attention, and its backward where the tensors want gradients."""

    def run() -> object:
        output = attend(*tensors, is_causal=is_causal)
        return torch.autograd.grad(output, tensors, upstream) if output.requires_grad else output

    return run


def math_attention(*tensors: Tensor, is_causal: bool) -> Tensor:
    """Give torch's attention, pinned to the backend that is written out as torch_dense is."""
    with sdpa_kernel(SDPBackend.MATH):
        return torch_attention(*tensors, is_causal=is_causal)


def measure(lengths: list[int], repeats: int) -> list[dict[str, object]]:
    """Compare at each length, with and without the causal mask and the backward."""
    rows: list[dict[str, object]] = []
    for n_tokens in lengths:
        for is_causal in (False, True):
            for backward in (False, True):
                torch.manual_seed(0)
                shape = (1, HEADS, n_tokens, FEATURES)
                tensors = [torch.randn(shape, requires_grad=backward) for _ in range(3)]
                upstream = torch.randn(shape)
                functions = (torch_dense.scaled_dot_product_attention, math_attention)
                ours, theirs = (call(f, tensors, upstream, is_causal) for f in functions)
                case = {"n_tokens": n_tokens, "is_causal": is_causal, "backward": backward}
                rows.append(case | asdict(compare(ours, theirs, repeats)))
                print(as_line(rows[-1]), flush=True)
    return rows


def as_line(row: dict[str, object]) -> str:
    """Give one row of the table."""
    kind = ("causal" if row["is_causal"] else "full", "+ backward" if row["backward"] else "")
    return (
        f"T = {row['n_tokens']:>5}  {kind[0]:6}  {kind[1]:10}  "
        f"ratio {row['ratio']:.2f} ({row['ratio_low']:.2f} … {row['ratio_high']:.2f})  "
        f"{row['ours']:.4f} s against {row['theirs']:.4f} s"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, store the result."""
    parser = argparse.ArgumentParser(description="torch_dense against torch's MATH backend")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--output", type=Path, default=RESULTS / "torch_dense.json")
    options = parser.parse_args(arguments)
    about = machine()
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    result = {
        "what": "torch_dense against torch's MATH backend",
        "shape": {"batch": 1, "heads": HEADS, "features": FEATURES, "dtype": "float32"},
        "machine": about,
        "rows": measure(options.lengths, options.repeats),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"Stored in {options.output}")


if __name__ == "__main__":
    main()
