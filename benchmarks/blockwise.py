"""How long the forms on tensors take against torch's own attention, in one run, as a table.

    python -m benchmarks.blockwise [--quick] [--output FILE]

Each row is one form, dtype, shape and pass. `ratio` is its time by that of torch's own kernel,
`to_products` by that of the bare matrix products on the same tiles, which nothing can undercut.
Both are medians over pairs that run in turns (`benchmarks.timing.compare`). The memory rows are
measured in fresh processes (`benchmarks.memory`).
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib import implementations
from attnlib.torch_blockwise import block_sizes
from benchmarks.memory import in_a_fresh_process
from benchmarks.timing import RESULTS, call, compare, machine, store

FORMS = ("torch_blockwise", "torch_dense")

# More pairs where a call is short, so that each length takes about as long.
PAIRS = {512: 21, 1024: 21, 2048: 9, 4096: 5, 8192: 3}


@dataclass(frozen=True)
class Case:
    """What is measured: batch 1, `heads` heads, and as many queries as keys."""

    form: str
    dtype: str
    n_tokens: int
    n_features: int
    heads: int
    is_causal: bool
    backward: bool


def cases(quick: bool) -> Iterator[Case]:
    """Return the rows of the table. Long sequences have fewer heads, so that a run ends."""
    lengths = [512, 1024] if quick else [512, 1024, 2048, 4096, 8192]
    for n_tokens in lengths:
        for n_features in [64] if quick else [64, 128]:
            for is_causal in (False, True):
                for backward in (False, True):
                    heads = 8 if n_tokens <= 1024 else 2
                    size = (n_tokens, n_features, heads, is_causal, backward)
                    yield Case("torch_blockwise", "float32", *size)
                    if n_tokens <= 2048 and n_features == 64:
                        yield Case("torch_dense", "float32", *size)
                    if n_tokens in (512, 2048) and n_features == 64 and backward:
                        yield Case("torch_blockwise", "bfloat16", *size)
                        yield Case("torch_blockwise", "float16", *size)


def products(case: Case) -> Callable[[], object]:
    """Return the matrix products of the blockwise form alone: two a tile, and five for backward."""
    n, e = case.n_tokens, case.n_features
    whole = torch.empty(1, case.heads, n, e)
    block_q, block_k, together = block_sizes(whole, whole, is_causal=case.is_causal)
    together = min(together, case.heads)
    tokens = torch.randn(together, n, e)
    result, tile = torch.empty(together, block_q, e), torch.empty(together, block_q, block_k)
    columns = torch.empty(together, block_k, e)

    def run() -> None:
        for _ in range(math.ceil(case.heads / together)):
            for row in range(0, n, block_q):
                end = min(row + block_q, n) if case.is_causal else n
                here = tokens[:, row : row + block_q]
                rows = here.shape[1]
                for column in range(0, end, block_k):
                    there = tokens[:, column : min(column + block_k, end)]
                    scores = tile[:, :rows, : there.shape[1]]
                    for _ in range(3 if case.backward else 1):  # S; and S, dP again
                        torch.bmm(here, there.mT, out=scores)
                    for _ in range(2 if case.backward else 1):  # O; and dQ
                        torch.bmm(scores, there, out=result[:, :rows])
                    for _ in range(2 if case.backward else 0):  # dV, dK
                        torch.bmm(scores.mT, here, out=columns[:, : there.shape[1]])

    return run


def measured(case: Case, repeats: int) -> dict[str, object]:
    """Return one row of the table."""
    torch.manual_seed(0)
    shape = (1, case.heads, case.n_tokens, case.n_features)
    kind = getattr(torch, case.dtype)
    tensors = [torch.randn(shape).to(kind).requires_grad_(case.backward) for _ in range(3)]
    upstream = torch.randn(shape).to(kind)
    ours = call(implementations()[case.form], tensors, upstream, case.is_causal)
    theirs = call(torch_attention, tensors, upstream, case.is_causal)
    row = asdict(case) | asdict(compare(ours, theirs, repeats))
    row["to_products"] = None
    if case.form == "torch_blockwise" and case.dtype == "float32":
        row["to_products"] = compare(ours, products(case), repeats).ratio
    return row


def as_line(row: dict[str, object]) -> str:
    """Return one row as it is printed."""
    kind = "causal" if row["is_causal"] else "full"
    passes = "forward + backward" if row["backward"] else "forward"
    against = "" if row["to_products"] is None else f", {row['to_products']:.2f} × the products"
    return (
        f"{row['form']:16} {row['dtype']:9} T {row['n_tokens']:>5} D {row['n_features']:>3} "
        f"{kind:6} {passes:18} ratio {row['ratio']:.2f} "
        f"({row['ratio_low']:.2f} … {row['ratio_high']:.2f}){against}"
    )


def geometric_mean(numbers: list[float]) -> float:
    """Return the mean of numbers that are factors.

    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def geometric_means(rows: list[dict[str, object]]) -> dict[str, float]:
    """Return the means of the ratios that the targets are about."""
    blockwise = [row for row in rows if row["form"] == "torch_blockwise"]
    wide = [row for row in blockwise if row["dtype"] == "float32"]
    groups = {
        "float32, forward": [row for row in wide if not row["backward"]],
        "float32, forward, causal": [r for r in wide if r["is_causal"] and not r["backward"]],
        "float32, forward + backward": [row for row in wide if row["backward"]],
        "bfloat16, forward + backward": [r for r in blockwise if r["dtype"] == "bfloat16"],
        "float16, forward + backward": [r for r in blockwise if r["dtype"] == "float16"],
    }
    return {
        name: geometric_mean([float(str(row["ratio"])) for row in group])
        for name, group in groups.items()
        if group
    }


def name_of(machine: dict[str, object]) -> str:
    """Return the name of a machine's file; another kind of processor has a file of its own.

    >>> name_of({"cpu": "One CPU @ 2.50GHz", "bfloat16": "none"})
    'one-cpu-2-50ghz-bfloat16-none'
    """
    words = f"{machine['cpu']} bfloat16 {machine['bfloat16']}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, store the result."""
    parser = argparse.ArgumentParser(description="the forms on tensors against torch's kernel")
    parser.add_argument("--quick", action="store_true", help="short sequences, few pairs")
    parser.add_argument("--output", type=Path, help="else a file named for the processor")
    options = parser.parse_args(arguments)
    about = machine()
    file = options.output or RESULTS / "blockwise" / f"{name_of(about)}.json"
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    todo, rows = list(cases(options.quick)), []
    for place, case in enumerate(todo, start=1):
        repeats = 3 if options.quick else PAIRS[case.n_tokens]
        rows.append(measured(case, repeats))
        print(f"{place:>3}/{len(todo)} {as_line(rows[-1])}", flush=True)
    means = geometric_means(rows)
    for name, mean in means.items():
        print(f"geometric mean, {name}: {mean:.2f}")
    memory = []
    for form in FORMS:
        for n_tokens in [1024, 2048] if options.quick else [2048, 4096, 8192, 32768]:
            if form == "torch_dense" and n_tokens > 8192:
                continue  # tens of gigabytes
            found = in_a_fresh_process(form, n_tokens, 64, False)
            memory.append({"form": form, "n_tokens": n_tokens, "extra_bytes": found})
            print(f"{form:16} T {n_tokens:>5}: {found / 2**20:,.0f} MiB over inputs and results")
    result = {
        "what": "the forms on tensors against torch's own kernel",
        "machine": about,
        "rows": rows,
        "means": means,
        "memory": memory,
    }
    store(result, file)


if __name__ == "__main__":
    main()
