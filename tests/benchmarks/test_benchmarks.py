"""The logic of the benchmarks, on a clock of our own. Times are not tested."""

from __future__ import annotations

import json
import math
import re
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlib import torch_dense
from benchmarks import blockwise, decoding, gpu, memory, ratios, ring, tables, timing


class Clock:
    """A clock that stands still, but for what is run."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, ""

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, *seconds: float) -> None:
        self.now += seconds[self.order.count(name) % len(seconds)]
        self.order += name


def test_pairs_take_turns_and_the_warm_up_does_not_count() -> None:
    clock = Clock()
    found = timing.compare(
        lambda: clock.run("A", 100.0, 3.0, 3.0, 6.0),
        lambda: clock.run("B", 100.0, 2.0, 2.0, 2.0),
        repeats=3,
        warm_up=1,
        clock=clock,
    )
    assert clock.order == "AB" + "AB" + "BA" + "AB"
    assert found == timing.Comparison(1.5, 1.5, 2.25, 3.0, 2.0, 3)


def test_a_machine_that_slows_down_does_not_change_the_ratio() -> None:
    clock = Clock()
    ours, theirs = ([seconds * 2**place for place in range(8)] for seconds in (3.0, 2.0))
    found = timing.compare(
        lambda: clock.run("A", *ours), lambda: clock.run("B", *theirs), 8, 0, clock
    )
    assert (found.ratio_low, found.ratio, found.ratio_high) == (1.5, 1.5, 1.5)


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "result.json"
    ratios.main(["--lengths", "3", "5", "--repeats", "2", "--output", str(file)])
    rows = read(file)["rows"]
    kinds = [(row["n_tokens"], row["is_causal"], row["backward"]) for row in rows]
    assert kinds == list(product((3, 5), (False, True), (False, True)))
    assert capsys.readouterr().out.count("ratio") == 8


STORED = sorted((timing.RESULTS / "blockwise").glob("*.json"))


@pytest.mark.parametrize("file", STORED, ids=lambda file: file.stem)
def test_a_stored_table_has_every_case(file: Path) -> None:
    result = read(file)
    assert file.stem == blockwise.name_of(result["machine"])
    for row, case in zip(result["rows"], blockwise.cases(quick=False), strict=True):
        assert vars(case).items() <= row.items()


def test_one_row_of_the_table() -> None:
    case = blockwise.Case("torch_blockwise", "float32", 7, 3, 2, True, True)
    row = blockwise.measured(case, repeats=2)
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"] and row["to_products"] > 0
    assert blockwise.geometric_means([row]) == {
        "float32, forward + backward": pytest.approx(row["ratio"])
    }
    assert "causal forward + backward" in blockwise.as_line(row)


def test_a_small_run_of_decoding(tmp_path: Path) -> None:
    decoding.main(["--quick", "--output", str(tmp_path / "decoding.json")])
    result = read(tmp_path / "decoding.json")
    cases = [(row["n_kv_heads"], row["batch"], row["n_keys"]) for row in result["steps"]]
    assert cases == [(h, b, n) for h, b in ((8, 1), (2, 1), (2, 4)) for n in (16, 32)]
    assert [row["n_tokens"] for row in result["layers"]] == [16, 32]
    assert {row["n_heads"] for row in result["splits"]} == {1, 2}
    grouped = [row["ratio"] for row in result["steps"] if row["n_kv_heads"] == 2]
    assert result["means"]["grouped heads"] == pytest.approx(blockwise.geometric_mean(grouped))


def test_memory_over_inputs_is_seen_in_a_fresh_process() -> None:
    found = memory.in_a_fresh_process("torch_dense", 2048, 64, False)
    assert found > 2 * 4 * 2048**2  # scores and weights


def test_a_round_takes_every_form_once_and_then_backwards() -> None:
    order: list[str] = []
    seconds = iter([1.0, 5.0, 7.0, 3.0])

    def clock(function: object) -> float:
        function()
        return next(seconds)

    functions = {"A": lambda: order.append("A"), "B": lambda: order.append("B")}
    assert gpu.in_turns(functions, clock, 2) == {"A": 2.0, "B": 6.0}
    assert order == ["A", "B", "B", "A"]


@pytest.mark.parametrize("backward", [False, True])
def test_a_case_on_a_gpu_has_a_time_or_a_reason(backward: bool) -> None:
    dense = torch_dense.scaled_dot_product_attention

    def refuses(*tensors: torch.Tensor, is_causal: bool) -> torch.Tensor:
        raise RuntimeError("No kernel for this.\nMore words.")

    candidates = {
        "triton_fused": dense,
        "FLASH_ATTENTION": dense,
        "wrong": lambda q, k, v, is_causal: dense(q, k, v.flip(-2), is_causal=is_causal),
        "not a number": lambda q, k, v, is_causal: dense(q, k, v * torch.nan, is_causal=is_causal),
        "refuses": refuses,
    }
    case = gpu.Case(1024, 64, True, backward)
    rows = gpu.measured(case, candidates, "cpu", rounds=2, shape=(2, 2, 32, 16))
    assert [row.get("why_not") for row in rows] == [
        None, None, "its result is wrong", "its result is wrong", "No kernel for this.",
    ]
    ours = rows[0]
    assert ours["tflops_done"] == pytest.approx(ours["tflops"] * (7 / 5 if backward else 1))
    assert ours["tflops"] == pytest.approx(case.operations / ours["milliseconds"] / 1e9)
    assert list(ours["ratios"]) == ["FLASH_ATTENTION"] and ours["error"] <= ours["allowed"]
    assert all(gpu.as_line(row) for row in rows)


def test_operations_are_those_of_the_products() -> None:
    full, causal = (gpu.Case(8192, 128, c, False).operations for c in (False, True))
    assert full == 4 * 4 * 16 * 8192**2 * 128 == 2 * causal
    backward = gpu.Case(8192, 128, False, True)
    assert backward.operations == 2.5 * full
    # Two of the seven products are computed twice: the scores, and the gradients of the weights.
    assert backward.operations_of(gpu.PRODUCTS["triton_fused"]) == 3.5 * full


class Device:
    """Stands for a GPU that works through its queue while the host goes on, in milliseconds."""

    def __init__(self, call: float, host: float, waits: bool) -> None:
        self.call, self.host, self.waits = call, host, waits
        self.now = self.free = 0.0  # the host's time, and when the queue will be empty
        self.sleeps: list[int] = []

    def sleep(self, cycles: int) -> None:
        self.sleeps.append(cycles)
        self.free = max(self.free, self.now) + cycles / 1e6

    def work(self) -> None:
        self.now += self.host
        self.free = max(self.free, self.now) + self.call
        self.now = self.free if self.waits else self.now


class Event:
    """A place in the queue of a device."""

    def __init__(self, device: Device) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.at = max(self.device.free, self.device.now)

    def query(self) -> bool:
        return self.device.now >= self.at

    def synchronize(self) -> None:
        self.device.now = max(self.device.now, self.at)

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


# For a call that itself waits, no sleep is long enough.
@pytest.mark.parametrize(("host", "waits", "sleeps"), [(0.5, 0, 1), (60.0, 0, 3), (0.5, 1, None)])
def test_the_clock_of_a_gpu_does_not_count_the_host(
    monkeypatch: pytest.MonkeyPatch, host: float, waits: bool, sleeps: int | None
) -> None:
    device, cache = Device(2.0, host, waits), torch.zeros(1)
    monkeypatch.setattr(torch.cuda, "_sleep", device.sleep, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", lambda **options: Event(device))
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: cache)
    assert gpu.event_clock(device.work) == pytest.approx(2.0)
    assert len(device.sleeps) == sleeps or device.sleeps[-1] == gpu.LONGEST_SLEEP


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_nothing_is_stored(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        gpu.main(["--output", str(tmp_path / "gpu.json")])
    assert not list(tmp_path.iterdir())


def test_the_page_has_the_stored_numbers() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.written(page, tables.parts()) == page, "run python -m benchmarks.tables"


def test_the_stored_drawings_have_the_stored_numbers() -> None:
    found = tables.runs()
    drawn = {"ratios": tables.ratios(found), "memory": tables.bytes_(found[0])}
    for name, drawing in drawn.items():
        stored = (timing.RESULTS / f"{name}.html").read_text(encoding="utf-8")
        assert f'aria-label="{escape(drawing.alt)}"' in stored, name
    row, *_ = (row for row in found[0]["rows"] if row["form"] == "torch_blockwise")
    assert f"run A, forward: {row['ratio']:.2f} at {row['n_tokens']}," in drawn["ratios"].alt


def test_what_the_page_says_of_half_precision_is_so() -> None:
    means = {run["machine"]["bfloat16"]: run["means"] for run in tables.runs()}
    units, none = means["AVX-512"], means["none"]
    wide = [name for name in units if name.startswith("float32")]
    assert all(abs(units[name] / none[name] - 1) < 0.07 for name in wide)
    brain, half = "bfloat16, forward + backward", "float16, forward + backward"
    assert 4.5 < 1 / none[brain] < 5 and units[brain] > 1
    assert max(units[half], none[half]) < 0.2


def test_what_the_pages_say_of_a_gpu_is_so() -> None:
    """The numbers that chapter 14 and its page name in their sentences."""
    result = read(timing.RESULTS / "gpu.json")
    names = ("form", "n_features", "is_causal", "backward", "n_tokens")
    done = {tuple(row[n] for n in names): row for row in result["rows"] if "tflops" in row}
    chapters = Path(__file__).parents[2] / "chapters"
    page = (chapters / "14_fused_kernel.ipynb").read_text(encoding="utf-8")
    rates = [f"{done[form, 128, False, False, 8192]['tflops']:.0f}" for form in tables.DRAWN]
    words = "our kernel reached {}, FlashAttention-2 in torch {}, FlexAttention {}, and cuDNN {}, "
    assert words.format(*rates) + f"{100 * int(rates[-1]) / 989:.0f} % of the peak" in page
    forward = {
        tuple(row["blocks"]): row["tflops_done"]
        for row in result["blocks"]["rows"] if row["kernel"] == "forward"
    }
    assert max(forward, key=forward.__getitem__) == (128, 64, 4, 2)
    readme = (Path(__file__).parents[2] / "benchmarks" / "README.md").read_text(encoding="utf-8")
    row = r"^\| \((\d+), (\d+)\), (\d), (\d) \| (\d+) \| (\d) \| (\d+) \| \**(\d+)\** \|$"
    rows = [tuple(map(int, found)) for found in re.findall(row, readme, re.MULTILINE)]
    beaten, below, named = [], [], {}
    for n_queries, n_keys, warps, stages, n, programs, predicted, measured in rows:
        all_warps = n * warps * 128 * 128 / (n_queries * n_keys)
        clocks = 2048 * 989 / result["peak_tflops"] + all_warps / 4
        waves = 64 * 8192 / n_queries / 132 / programs
        assert predicted == round(989 * 2048 / clocks * waves / math.ceil(waves))
        assert measured == round(forward.pop((n_queries, n_keys, warps, stages)))
        if measured > predicted:
            beaten.append((n_queries, n_keys, warps, stages))
        elif programs == 2:
            below.append(round(100 - 100 * measured / predicted))
        if (n, stages) in [(661, 3), (582, 2), (727, 2)]:
            assert f": {n}" in page
            named[n] = measured
    assert "We measured {}, {} and {}.".format(*(named[n] for n in (661, 582, 727))) in page
    assert not forward and beaten == [(128, 64, 4, 2)]
    assert len(below) == 4 and (min(below), max(below)) == (2, 7)
    assert "four other choices with two programs stay 2 to 7 % below" in page
    # With atomic additions the backward is slower in every case.
    backward = [case for form, *case in done if form == "triton_fused" and case[2]]
    pairs = [(done[tables.ATOMIC, *case], done["triton_fused", *case]) for case in backward]
    assert len(pairs) == 18
    assert all(atomic["tflops"] < ours["tflops"] for atomic, ours in pairs)
    one = 128, False, True, 8192
    forms = "triton_fused", tables.ATOMIC, "FLASH_ATTENTION", "CUDNN_ATTENTION"
    times = [f"{done[form, *one]['milliseconds']:.1f}" for form in forms]
    page = (chapters / "14_backward_kernel.ipynb").read_text(encoding="utf-8")
    assert f"| {' | '.join(times)} |" in page
    slower = [100 * (ours["tflops"] / atomic["tflops"] - 1) for atomic, ours in pairs]
    assert f"{min(slower):.0f} to {max(slower):.0f}% slower in 18 cases" in page


def test_the_stored_ring_shares_its_work_as_it_should() -> None:
    result = read(timing.RESULTS / "ring.json")
    found = {(row["devices"], row["balance"]): row["measured"] for row in result["rows"]}
    assert result["shape"]["tokens"] == 8192
    assert found[2, "zigzag"] <= 1.1 and found[4, "zigzag"] <= 1.1
    assert found[2, "contiguous"] >= 1.3 and found[4, "contiguous"] >= 1.5


@pytest.mark.slow
def test_a_small_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ring.json"
    ring.main(["--tokens", "64", "--repeats", "1", "--output", str(file)])
    rows = read(file)["rows"]
    assert [row["devices"] for row in rows] == [len(row["seconds"]) for row in rows] == [2, 2, 4, 4]
    assert all(second > 0 for row in rows for second in row["seconds"])
    assert rows[1]["counted"] == rows[3]["counted"] == 1 < rows[0]["counted"] < rows[2]["counted"]
    assert capsys.readouterr().out.count("CPU time") == 4
