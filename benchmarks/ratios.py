"""How long `torch_dense` takes against torch's own attention on its MATH backend, in one run.

    python -m benchmarks.ratios [--lengths 512 1024 2048] [--repeats 31] [--output FILE]

How a ratio is measured says `benchmarks.timing`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib import torch_dense
from benchmarks.timing import RESULTS, call, compare, machine, store

HEADS, FEATURES = 8, 64


def math_attention(*tensors: Tensor, is_causal: bool) -> Tensor:
    """Return torch's attention, pinned to the backend that is written out as torch_dense is."""
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
    """Return one row of the table."""
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
    store(result, options.output)


if __name__ == "__main__":
    main()
