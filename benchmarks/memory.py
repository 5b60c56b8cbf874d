"""How much memory one call takes beyond its inputs and results, in a process of its own.

    python -m benchmarks.memory torch_blockwise --tokens 32768 --features 64 [--causal]

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
    """Return the most bytes held since the count started."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(s for s in status.splitlines() if s.startswith("VmHWM")).split()[1])


def extra_bytes(name: str, n_tokens: int, n_features: int, is_causal: bool) -> int:
    """Return the bytes that forward and backward hold at their worst, beyond inputs and results."""
    attend = implementations()[name]

    def growth(length: int) -> int:
        shape = (1, 1, length, n_features)
        tensors = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        upstream = torch.randn(shape)
        # Room for the output and the gradients, held before and let go when they come.
        room = [torch.ones(shape) for _ in range(4)]
        start_count()
        before = most_held()
        del room
        torch.autograd.grad(attend(*tensors, is_causal=is_causal), tensors, upstream)
        return most_held() - before

    growth(64)  # libraries load, thread pools start
    return growth(n_tokens)


def in_a_fresh_process(name: str, n_tokens: int, n_features: int, is_causal: bool) -> int:
    """Measure forward and backward in a new process, so that nothing earlier counts."""
    command = [sys.executable, "-m", "benchmarks.memory", name]
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
    options = parser.parse_args()
    found = extra_bytes(options.name, options.tokens, options.features, options.causal)
    print(json.dumps({"extra_bytes": found}))


if __name__ == "__main__":
    main()
