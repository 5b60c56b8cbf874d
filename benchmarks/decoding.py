"""How long one decoding step takes, and what a cache and split keys save, in one run.

    python -m benchmarks.decoding [--quick] [--output FILE]

There are three tables, each of medians over pairs that run in turns (`benchmarks.timing.compare`).
Steps and layers run on one thread, in seconds of the processor, so that other programs count less:

    steps    `attend` with one new token, which it also writes into the cache, against torch's own
             attention on a slice of the same memory
    layers   a layer that computes all T tokens again, against one that goes on in its cache
    splits   `attend` with split keys against `attend` without, on one thread and on two, in
             seconds of the clock: one call of each form in turns; eight calls in a row; and one
             call for each of eight caches, as eight layers make
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib.torch_decoding import KVCache, attend
from attnlib.torch_layers import MultiHeadSelfAttention
from benchmarks.timing import RESULTS, Comparison, compare, machine, store

HEADS, FEATURES, PIECES = 8, 64, (16_384, 2048)
CPU = time.thread_time
Row = dict[str, object]


def filled(batch: int, n_kv_heads: int, n_keys: int) -> KVCache:
    """Return a cache that is full but for one token of each row."""
    cache = KVCache(batch, n_kv_heads, n_keys, FEATURES)
    cache.append(*torch.randn(2, batch, n_kv_heads, n_keys - 1, FEATURES))
    return cache


def step(
    cache: KVCache, n_heads: int, block_size_k: int | None = None
) -> Callable[[], torch.Tensor]:
    """Return a function that takes one step, and the token back."""
    batch, n_kv_heads = cache.key.shape[:2]
    lengths = cache.lengths
    shapes = ((batch, heads, 1, FEATURES) for heads in (n_heads, n_kv_heads, n_kv_heads))
    query, key, value = map(torch.randn, shapes)

    def run() -> torch.Tensor:
        output = attend(query, key, value, cache, block_size_k=block_size_k)
        cache.lengths = lengths  # in place of `truncate`, which is no part of a step
        return output

    return run


def torchs(cache: KVCache, n_keys: int) -> Callable[[], torch.Tensor]:
    """Return a function that runs torch's attention on the first keys of a cache."""
    batch, n_kv_heads = cache.key.shape[:2]
    query = torch.randn(batch, HEADS, 1, FEATURES)

    def run() -> torch.Tensor:
        key, value = cache.key[:, :, :n_keys], cache.value[:, :, :n_keys]
        return torch_attention(query, key, value, enable_gqa=n_kv_heads != HEADS)

    return run


def steps(lengths: list[int], repeats: int) -> list[Row]:
    """Compare one step with torch's attention on a slice."""
    rows: list[Row] = []
    for n_kv_heads, batch in ((HEADS, 1), (2, 1), (2, 4)):
        for n_keys in lengths:
            cache = filled(batch, n_kv_heads, n_keys + 8)
            cache.truncate([n_keys - 1] * batch)
            found = compare(step(cache, HEADS), torchs(cache, n_keys), repeats, 20, CPU)
            rows.append(line("step", found, n_keys=n_keys, n_kv_heads=n_kv_heads, batch=batch))
    return rows


def going_on(
    layer: MultiHeadSelfAttention, X: torch.Tensor, cache: KVCache
) -> Callable[[], torch.Tensor]:
    """Return a function that computes new tokens beside a cache, and takes them back."""
    lengths = cache.lengths

    def run() -> torch.Tensor:
        output: torch.Tensor = layer(X, cache=cache)
        cache.truncate(lengths)
        return output

    return run


def layers(lengths: list[int], repeats: int) -> list[Row]:
    """Compare computing all tokens again with computing the last one beside a cache."""
    rows: list[Row] = []
    layer = MultiHeadSelfAttention(HEADS * FEATURES, HEADS, n_kv_heads=2, is_causal=True)
    for n_tokens in lengths:
        X, cache = torch.randn(1, n_tokens, HEADS * FEATURES), KVCache(1, 2, n_tokens, FEATURES)
        layer(X[:, :-1], cache=cache)
        found = compare(
            functools.partial(layer, X), going_on(layer, X[:, -1:], cache), repeats, 2, CPU
        )
        rows.append(line("layer", found, n_tokens=n_tokens))
    return rows


def in_turn(functions: Iterable[Callable[[], object]]) -> Callable[[], None]:
    """Return a function that calls each of these, one after the other."""
    listed = list(functions)

    def run() -> None:
        for function in listed:
            function()

    return run


def splits(n_keys: int, threads: list[int], repeats: int) -> list[Row]:
    """Compare steps on split keys with steps on whole keys."""
    # Nearly every length that a decoder meets leaves keys over, as n_keys - 1 does.
    cases = [
        (1, n_keys, PIECES, 1, 1),
        (1, n_keys, PIECES, 8, 1),
        (1, n_keys, PIECES, 8, 8),
        (1, n_keys - 1, PIECES, 1, 1),
        (2, n_keys, PIECES[:1], 1, 1),
    ]
    rows: list[Row] = []
    for n_threads in threads:
        torch.set_num_threads(n_threads)
        for n_heads, keys, sizes, calls, n_caches in cases:
            caches = [filled(1, n_heads, keys) for _ in range(n_caches)] * (calls // n_caches)
            whole = in_turn(step(cache, n_heads) for cache in caches)
            for size in sizes:
                split = in_turn(step(cache, n_heads, size) for cache in caches)
                found = compare(split, whole, max(2, repeats // calls), warm_up=5)
                case = {"n_keys": keys, "block_size_k": size, "n_heads": n_heads}
                case |= {"threads": n_threads, "calls": calls, "caches": n_caches}
                rows.append(line("split", found, **case))
    return rows


def line(what: str, found: Comparison, **case: int) -> Row:
    """Return one row of a table, and print it."""
    words = "  ".join(f"{name} {number:>5}" for name, number in case.items())
    print(
        f"{what:5}  {words}  ratio {found.ratio:.2f} ({found.ratio_low:.2f} … "
        f"{found.ratio_high:.2f})  {found.ours * 1e6:.0f} µs against {found.theirs * 1e6:.0f} µs",
        flush=True,
    )
    return {**case, **asdict(found)}


def geometric_means(rows: list[Row]) -> dict[str, float]:
    """Return the means of the ratios of steps that the targets are about."""
    groups = {
        "all heads": [row for row in rows if row["n_kv_heads"] == HEADS],
        "grouped heads": [row for row in rows if row["n_kv_heads"] != HEADS],
        "grouped heads, batch 1": [
            row for row in rows if row["n_kv_heads"] != HEADS and row["batch"] == 1
        ],
    }
    return {
        name: math.exp(sum(math.log(float(str(row["ratio"]))) for row in group) / len(group))
        for name, group in groups.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the tables, store the result."""
    parser = argparse.ArgumentParser(description="one decoding step, a cache, split keys")
    parser.add_argument("--quick", action="store_true", help="short sequences, few pairs")
    parser.add_argument("--output", type=Path, default=RESULTS / "decoding.json")
    options = parser.parse_args(arguments)
    lengths = [16, 32] if options.quick else [256, 512, 1024, 2048]
    many, few = (2, 2) if options.quick else (401, 15)
    about = machine()
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        taken = steps(lengths, many)
        means = geometric_means(taken)
        for name, mean in means.items():
            print(f"geometric mean, {name}: {mean:.2f}")
        again = layers(lengths, few)
        threads = sorted({1, min(2, int(str(about["cores"])))})
        split = splits(64 if options.quick else 32768, threads, 2 if options.quick else 101)
    torch.set_num_threads(before)
    result: dict[str, object] = {
        "what": "decoding: one step, a layer with a cache, split keys",
        "machine": about,
        "steps": taken,
        "means": means,
        "layers": again,
        "splits": split,
    }
    store(result, options.output)


if __name__ == "__main__":
    main()
