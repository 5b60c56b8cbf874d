"""How evenly the ring shares its work: CPU seconds of each rank, forward and backward.

    python -m benchmarks.ring [--tokens 8192] [--repeats 5] [--output FILE]

Under a causal mask the contiguous layout gives the last rank the most work, and zigzag gives all
the same. The scores are counted, and the seconds are measured. They are those of the processor
(`time.thread_time`), because ranks that share cores wait for each other.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

from attnbook.ranks import run
from attnlib.torch_ring import layout, ring_attention, shard
from benchmarks import ring
from benchmarks.timing import RESULTS, machine, store

HEADS, FEATURES = 1, 64


def seconds_of_a_rank(n_tokens: int, balance: str, repeats: int) -> float:
    """Return the median CPU seconds of forward and backward on this rank."""
    spans = layout(n_tokens, dist.get_world_size(), balance)[dist.get_rank()]
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(4, 1, HEADS, n_tokens, FEATURES, generator=generator)
    *leaves, upstream = (shard(x, spans) for x in whole)
    for x in leaves:
        x.requires_grad_()

    def once() -> float:
        start = time.thread_time()
        output = ring_attention(*leaves, is_causal=True, n_tokens=n_tokens, balance=balance)
        torch.autograd.grad(output, leaves, upstream)
        return time.thread_time() - start

    once()
    return statistics.median(once() for _ in range(repeats))


def uneven(numbers: list[float]) -> float:
    """Return the largest divided by the mean, which is 1 where all are equal."""
    return max(numbers) / statistics.mean(numbers)


def measure(n_tokens: int, repeats: int) -> list[dict[str, object]]:
    """Compare the two layouts on two and four ranks."""
    rows: list[dict[str, object]] = []
    for n_devices in (2, 4):
        for balance in ("contiguous", "zigzag"):
            arguments = n_tokens, balance, repeats
            # The ranks import the function by the name of its module, which is not __main__.
            seconds = run(ring.seconds_of_a_rank, n_devices, *arguments, limit=600.0)
            # Query i sees i + 1 keys.
            scores = [
                float(sum(i + 1 for span in own for i in range(*span)))
                for own in layout(n_tokens, n_devices, balance)
            ]
            rows.append(
                {
                    "devices": n_devices,
                    "balance": balance,
                    "seconds": seconds,
                    "measured": uneven(seconds),
                    "counted": uneven(scores),
                }
            )
            print(as_line(rows[-1]), flush=True)
    return rows


def as_line(row: dict[str, object]) -> str:
    """Return one row of the table."""
    return (
        f"P = {row['devices']}  {row['balance']:10}  "
        f"CPU time, max / mean {row['measured']:.3f}  scores, max / mean {row['counted']:.3f}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, store the result."""
    parser = argparse.ArgumentParser(description="how evenly the ring shares its work")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "ring.json")
    options = parser.parse_args(arguments)
    about = machine()
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    result = {
        "what": "CPU time of the ranks of a ring, the largest divided by the mean",
        "shape": {"heads": HEADS, "features": FEATURES, "tokens": options.tokens},
        "machine": about,
        "rows": measure(options.tokens, options.repeats),
    }
    store(result, options.output)


if __name__ == "__main__":
    main()
