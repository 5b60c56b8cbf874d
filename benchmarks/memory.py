"""How much memory one call takes beyond its inputs and results, in a process of its own.

    python -m benchmarks.memory torch_blockwise --tokens 32768 --features 64 [--causal] [--backward]

Linux counts the most memory that a process has held, and can start the count anew. It starts when
inputs, output and gradients lie in memory; what it has grown by after the call, the call needed
on top.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

from attnlib import implementations


def start_count() -> None:
    """Forget the most memory held so far."""
    Path("/proc/self/clear_refs").write_text("5")


def most_held() -> int:
    """Give the most bytes held since the count started."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(s for s in status.splitlines() if s.startswith("VmHWM")).split()[1])


def extra_bytes(name: str, n_tokens: int, n_features: int, is_causal: bool, backward: bool) -> int:
    """Give the bytes that one call holds at its worst, beyond inputs, output and gradients."""
    attend = implementations()[name]

    def run(length: int) -> None:
        shape = (1, 1, length, n_features)
        tensors = [torch.randn(shape, requires_grad=backward) for _ in range(3)]
        upstream = torch.randn(shape)
        # Room for the output and the gradients, held before and let go when they come.
        room = [torch.ones(shape) for _ in range(4 if backward else 1)]
        start_count()
        before.append(most_held())
        del room
        output = attend(*tensors, is_causal=is_causal)
        if backward:
            torch.autograd.grad(output, tensors, upstream)

    before: list[int] = []
    run(64)  # libraries load, thread pools start
    run(n_tokens)
    return most_held() - before[-1]


def in_a_fresh_process(name: str, n_tokens: int, n_features: int, is_causal: bool) -> int:
    """Measure forward and backward in a new process, so that nothing earlier counts."""
    command = [sys.executable, "-m", "benchmarks.memory", name, "--backward"]
    command += ["--tokens", str(n_tokens), "--features", str(n_features)]
    command += ["--causal"] if is_causal else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["extra_bytes"])


def main() -> None:
    """Print the bytes as json."""
    parser = argparse.ArgumentParser(description="peak memory of one call")
    parser.add_argument("name", choices=list(implementations()))
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--backward", action="store_true")
    options = parser.parse_args()
    found = extra_bytes(
        options.name, options.tokens, options.features, options.causal, options.backward
    )
    print(json.dumps({"extra_bytes": found}))


if __name__ == "__main__":
    main()
