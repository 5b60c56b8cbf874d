"""How fast the forms on tensors are on a GPU, beside torch's own kernels, as a table.

    python -m benchmarks.gpu [--quick] [--output FILE]

A row is one form, shape and pass, in bfloat16: operations a second as they are usually counted
(4 · T² · D a head forward, 2.5 times as many backward, half of that with a causal mask), as a share
of what a large matrix product reaches in the same run, and the ratio of its time to that of each of
torch's kernels. Our forms also have the operations that they do: the default backward of
`triton_fused` computes seven products, and the usual count is of five. The forms run in turns,
every second round backwards; times are medians, taken by the GPU's own clock. A form whose result
is wrong has no time.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as torch_attention

from attnlib import implementations, torch_dense
from benchmarks.timing import RESULTS, machine, store

HEADS, ROUNDS = 16, 10
OURS = ("triton_fused", "torch_blockwise", "torch_dense")
# The products of a tile that a backward computes; the forward has two. The usual count is five.
PRODUCTS = {"triton_fused": 7, "torch_blockwise": 5, "torch_dense": 4}
# How long the GPU sleeps before it is timed, in its own cycles, at first and at most.
SLEEP, LONGEST_SLEEP = 2**22, 2**26
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
# Beyond this many tokens the matrices of all heads would not fit the memory.
LONGEST_DENSE = 4096
Form = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """What is measured: as many queries as keys, 32,768 tokens in all or 4 rows, 16 heads each."""

    n_tokens: int
    n_features: int
    is_causal: bool
    backward: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return max(4, 32_768 // self.n_tokens), HEADS, self.n_tokens, self.n_features

    @property
    def operations(self) -> float:
        """Multiplications and additions of the matrix products, as they are usually counted."""
        return self.operations_of(5 if self.backward else 2)

    def operations_of(self, products: int) -> float:
        """Return the multiplications and additions of so many products of a tile."""
        return products * 2 * math.prod(self.shape) * self.n_tokens / (2 if self.is_causal else 1)


def cases(quick: bool) -> Iterator[Case]:
    """Return the shapes and passes of the table."""
    for n_features in (64, 128):
        for n_tokens in (1024, 8192) if quick else (1024, 2048, 4096, 8192, 16384):
            for is_causal in (False, True):
                for backward in (False, True):
                    yield Case(n_tokens, n_features, is_causal, backward)


def pinned(backend: str) -> Form:
    """Return torch's attention, on one of its kernels."""

    def attend(*tensors: Tensor, is_causal: bool) -> Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch_attention(*tensors, is_causal=is_causal)

    return attend


def flex() -> Form:
    """Return torch's FlexAttention, compiled anew for each shape.

    After eight shapes torch would go on without compiling, and say nothing. And a backward may run
    again on the same forward only if it does not write into what the forward has left.
    """
    from torch import _dynamo, _functorch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    _dynamo.config.recompile_limit = 1000
    _dynamo.config.fail_on_recompile_limit_hit = True
    _functorch.config.donated_buffer = False
    compiled = torch.compile(flex_attention, dynamic=False)

    @functools.cache
    def past(n_tokens: int, device: str) -> object:
        def seen(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return i >= j

        return create_block_mask(seen, None, None, n_tokens, n_tokens, device=device)

    def attend(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
        mask = past(query.shape[-2], str(query.device)) if is_causal else None
        return compiled(query, key, value, block_mask=mask)

    return attend


def forms() -> dict[str, Form]:
    """Return what is measured, by name."""
    here = implementations()
    found: dict[str, Form] = {name: here[name] for name in OURS if name in here}
    return found | {name: pinned(name) for name in BACKENDS} | {"FlexAttention": flex()}


def event_clock(function: Callable[[], object]) -> float:
    """Return the milliseconds of one call, by the GPU's clock, with nothing left in its cache.

    The GPU sleeps until the whole call is in its queue; otherwise it would wait for the host, and
    the host's time would count. If the sleep was too short for that, the call is timed again after
    a longer one. A call that itself waits for the GPU never lies in the queue as a whole: in its
    time there is the host's.
    """
    sleep = SLEEP
    while True:
        torch.empty(2**28, dtype=torch.int8, device="cuda").zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(sleep)
        start.record()
        function()
        end.record()
        is_asleep = not start.query()
        end.synchronize()
        if is_asleep or sleep >= LONGEST_SLEEP:
            return float(start.elapsed_time(end))
        sleep *= 4


def wall_clock(function: Callable[[], object]) -> float:
    """Return the milliseconds of one call, where there is no GPU."""
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


def in_turns(
    functions: Mapping[str, Callable[[], object]],
    clock: Callable[[Callable[[], object]], float],
    rounds: int,
) -> dict[str, float]:
    """Return each function's median time: all once a round, every second round in reverse order."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for place in range(rounds):
        for name in list(functions)[:: 1 if place % 2 == 0 else -1]:
            times[name].append(clock(functions[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def results(form: Form, tensors: list[Tensor], upstream: Tensor, case: Case) -> list[Tensor]:
    """Return output, whose graph is kept, and the gradients where the case asks for them."""
    output = form(*tensors, is_causal=case.is_causal)
    if not case.backward:
        return [output]
    return [output, *torch.autograd.grad(output, tensors, upstream, retain_graph=True)]


def largest_error(found: list[Tensor], right: list[Tensor]) -> float:
    """Return the largest difference, in units of the largest number; a NaN counts as infinite."""
    worst = 0.0
    for ours, truth in zip(found, right, strict=True):
        error = float((ours.float() - truth.float()).abs().max() / truth.float().abs().max())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def measured(
    case: Case,
    candidates: Mapping[str, Form],
    device: str = "cuda",
    rounds: int = ROUNDS,
    shape: tuple[int, int, int, int] | None = None,
) -> list[dict[str, object]]:
    """Return the rows of one case: of each form the first head is checked, then all are timed."""
    torch.manual_seed(0)
    shape = shape or case.shape
    half = {"dtype": torch.bfloat16, "device": device}
    tensors = [torch.randn(shape, **half).requires_grad_(case.backward) for _ in range(3)]
    upstream = torch.randn(shape, **half)

    def first_head(dtype: torch.dtype, form: Form) -> list[Tensor]:
        small = [x.detach()[:1, :1].to(dtype).requires_grad_(case.backward) for x in tensors]
        return [x.detach() for x in results(form, small, upstream[:1, :1].to(dtype), case)]

    right = first_head(torch.float32, torch_dense.scaled_dot_product_attention)
    with sdpa_kernel(SDPBackend.MATH):
        usual = largest_error(first_head(torch.bfloat16, torch_attention), right)
    # The rule of the tests: twice the error of plain torch, and one rounding; of gradients thrice.
    allowed = (3 if case.backward else 2) * usual + torch.finfo(torch.bfloat16).eps
    rows: dict[str, dict[str, object]] = {}
    functions: dict[str, Callable[[], object]] = {}
    for name, form in candidates.items():
        row: dict[str, object] = asdict(case) | {"form": name, "error": None, "allowed": allowed}
        rows[name] = row
        if name == "torch_dense" and case.n_tokens > LONGEST_DENSE:
            row["why_not"] = "its matrices do not fit the memory"
            continue
        try:
            output, *gradients = results(form, tensors, upstream, case)
            found = [x.detach()[:1, :1] for x in (output, *gradients)]
            error = largest_error(found, right)
        except Exception as problem:  # a backend that refuses the case has its say in the table
            row["why_not"] = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            continue
        row["error"] = error
        if not error <= allowed:
            row["why_not"] = "its result is wrong"
            continue
        if case.backward:  # the backward alone, of a forward that is done
            functions[name] = functools.partial(
                torch.autograd.grad, output, tensors, upstream, retain_graph=True
            )
        else:
            functions[name] = functools.partial(form, *tensors, is_causal=case.is_causal)
    clock = event_clock if device == "cuda" else wall_clock
    in_turns(functions, clock, 2)  # compile, choose block sizes, fill caches
    times = in_turns(functions, clock, rounds)
    for name, milliseconds in times.items():
        rows[name]["milliseconds"] = milliseconds
        rows[name]["tflops"] = case.operations / milliseconds / 1e9
        if name in PRODUCTS:
            products = PRODUCTS[name] if case.backward else 2
            rows[name]["tflops_done"] = case.operations_of(products) / milliseconds / 1e9
        rows[name]["ratios"] = {p: milliseconds / times[p] for p in times if p not in OURS}
    return list(rows.values())


def matrix_peak(device: str = "cuda", size: int = 8192) -> float:
    """Return the TFLOP/s of a product of two large matrices of random numbers, in bfloat16."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    clock = event_clock if device == "cuda" else wall_clock
    in_turns({"product": lambda: left @ right}, clock, 3)
    return 2 * size**3 / in_turns({"product": lambda: left @ right}, clock, 10)["product"] / 1e9


def about_the_gpu() -> dict[str, object]:
    """Return what a GPU's time means nothing without."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    import triton

    return machine() | {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": triton.__version__,
    }


def as_line(row: Mapping[str, object]) -> str:
    """Return one row as it is printed."""
    kind = "causal" if row["is_causal"] else "full"
    passes = "backward" if row["backward"] else "forward"
    case = f"T {row['n_tokens']:>5} D {row['n_features']:>3} {kind:6} {passes:8}"
    if "tflops" not in row:
        return f"{case} {row['form']:33} none: {row['why_not']}"
    time = f"{row['milliseconds']:8.3f} ms {row['tflops']:6.0f} TFLOP/s"
    done = f", {row['tflops_done']:.0f} as done" if "tflops_done" in row else ""
    return f"{case} {row['form']:33} {time}{done}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, store the result."""
    parser = argparse.ArgumentParser(description="the forms on tensors on a GPU")
    parser.add_argument("--quick", action="store_true", help="two lengths, few rounds")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("benchmarks.gpu needs a CUDA GPU; none is here, so nothing was measured or stored")
    about, peak, candidates = about_the_gpu(), matrix_peak(), forms()
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    print(f"a product of two large matrices: {peak:.0f} TFLOP/s", flush=True)
    rows: list[dict[str, object]] = []
    what = "the forms on tensors on a GPU, bfloat16"
    try:
        for case in cases(options.quick):
            for row in measured(case, candidates, rounds=3 if options.quick else ROUNDS):
                rows.append(row)
                print(as_line(row), flush=True)
            torch.cuda.empty_cache()
    finally:  # what was measured until somebody stopped it is kept
        store({"what": what, "machine": about, "peak_tflops": peak, "rows": rows}, options.output)
    wrong = [row for row in rows if row.get("why_not") == "its result is wrong"]
    if wrong:
        sys.exit(f"{len(wrong)} results were wrong; the table says which")


if __name__ == "__main__":
    main()
