"""The ring of `torch_ring` between real processes. conftest.py keeps this file in one process
of pytest, so that the server of the ranks starts once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ring_ranks
import torch
from ring_ranks import Case, problem
from torch import Tensor

from attnbook.ranks import launch, run
from attnlib import torch_ring
from attnlib.torch_ring import layout, unshard

ROOT = Path(__file__).parents[2]
LIMIT = 120.0  # seconds; ranks that return or fail need a few even on a busy machine
# Sequences that all devices share evenly, unevenly, and that leave one of three and four without a
# token.
CASES: list[Case] = [
    (24, "zigzag", {"is_causal": True}),
    (19, "contiguous", {"is_causal": True}),
    (19, "zigzag", {"is_causal": False}),
    (2, "zigzag", {"is_causal": True}),
    (2, "contiguous", {"is_causal": False}),
]


def ranks(function: Any, size: int, *args: Any) -> list[Any]:
    """Run a function on ranks, with more time than it needs on any machine."""
    return run(function, size, *args, limit=LIMIT)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread, as a rank does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def by_threads(case: Case, n_devices: int) -> list[Tensor]:
    """Return what the ring between threads computes of the whole sequence."""
    n_tokens, balance, options = case
    *leaves, above = problem(n_tokens)
    for x in leaves:
        x.requires_grad_()
    results = torch_ring.scaled_dot_product_attention_with_lse(
        *leaves, enable_gqa=True, n_devices=n_devices, balance=balance, **options
    )
    gradients = torch.autograd.grad(results, leaves, (above, above[..., 0]))
    return [x.detach() for x in (*results, *gradients)]


def whole(case: Case, shards: list[list[Tensor]]) -> list[Tensor]:
    """Return the results of all ranks as those of the whole sequence."""
    n_tokens, balance, _ = case
    spans = layout(n_tokens, len(shards), balance)
    parts = zip(*shards, strict=True)
    return [unshard(x, spans, -1 if i == 1 else -2) for i, x in enumerate(parts)]


def hold(n_devices: int, found: list[list[list[Tensor]]]) -> None:
    """Hold the results of ranks against those of threads, in all cases."""
    for case, shards in zip(CASES, zip(*found, strict=True), strict=True):
        assert all(map(torch.equal, whole(case, list(shards)), by_threads(case, n_devices))), case


def test_processes_give_the_bits_of_threads_and_send_the_bytes_that_were_counted() -> None:
    """Between three, whose neighbours are two others; one start is asked both."""
    counted: list[Case] = [(67, "zigzag", {}), (5, "contiguous", {})]
    found = ranks(ring_ranks.results_and_bytes_of, 3, CASES, counted)
    hold(3, [results for results, _ in found])
    for rank, (_, all_sent) in enumerate(found):
        for (n_tokens, balance, _), sent in zip(counted, all_sent, strict=True):
            per_token = 2 * 2 * (5 + 3) * 4  # B · H_kv · (d_k + d_v) numbers of 4 bytes
            spans = layout(n_tokens, 3, balance)
            lengths = [sum(len(range(*span)) for span in own) for own in spans]
            # Its own keys and values and its neighbour's; backward again, and then all gradients.
            forward = per_token * (lengths[rank] + lengths[rank - 1])
            assert sent == (forward, forward + per_token * sum(lengths))


@pytest.mark.slow
@pytest.mark.parametrize("n_devices", [2, 4])
def test_any_number_of_processes_gives_the_bits_of_threads(n_devices: int) -> None:
    hold(n_devices, ranks(ring_ranks.results_of, n_devices, CASES))


def test_a_single_rank_sends_nothing_gives_the_same_and_has_no_second_derivative() -> None:
    case: Case = (11, "zigzag", {"is_causal": True})
    ((found, error),) = ranks(ring_ranks.alone, 1, case)
    assert all(map(torch.equal, found, by_threads(case, 1)))
    assert error == "torch_ring has no second derivatives (create_graph=True); torch_dense has them"


def test_a_mesh_and_a_group_are_taken_and_others_are_refused() -> None:
    case = (11, "zigzag", {"is_causal": True})
    found = ranks(ring_ranks.groups_of, 2, case)
    wanted = by_threads(case, 2)
    for place in (0, 1):
        assert all(map(torch.equal, whole(case, [x[place] for x in found]), wanted))
    for mesh, name, other in (x[2:] for x in found):
        assert mesh == "group must be a mesh of one dimension; got 2"
        assert name == "group must be None, a ProcessGroup or a DeviceMesh; got str"
        assert re.match("group must ", other)


def test_ranks_that_ask_for_different_things_are_told_so() -> None:
    first, second = ranks(ring_ranks.disagree, 2)
    wrong = "ranks must agree on shapes, dtype and options"
    said = [
        "", "gradients=True", "query (L, 4), key (L, 4), value (L, 4)",
        "rank 1 must have 3 of 6 tokens, zigzag; got query (4, 2)",
        "float64", "is_causal=True", "scale=2.0", "balance='contiguous'",
        "TypeError: n_tokens must be an integer; got 6.0",
        "TypeError: query must be a torch.Tensor; got list",
    ]
    assert first[0] == second[0] == ""
    assert first.pop() == second.pop() == "ValueError: n_tokens must be at least 0; got -1"
    for words, *errors in list(zip(said, first, second, strict=True))[1:]:
        for error in errors:
            assert error.startswith(f"ValueError: {wrong}; got rank 0: ")
            assert words in error.partition("rank 1: ")[2]


def test_a_rank_that_has_left_is_an_error_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE", LIMIT)  # a busy machine may need longer than usual
    with pytest.raises(RuntimeError, match=r"rank 1 of 3 left .*\nrank 0 of 3 raised RuntimeError"):
        ranks(ring_ranks.loses_a_rank, 3)


@pytest.mark.slow
def test_the_example_runs_under_torchrun() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", "-m", "attnlib.torch_ring"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d of \d", done.stdout)) == ["rank 0 of 2", "rank 1 of 2"]
    assert done.stdout.count("output and gradients as those of torch") == 2
