"""What `torch_decoding` promises beyond the contract of all rungs: see test_cases."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlib import torch_dense
from attnlib.torch_decoding import merge


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(*shape, dtype=torch.float64, generator=generator)).to(dtype)


# merge


def pieces(cuts: list[int], key: Tensor, value: Tensor, query: Tensor) -> list[list[Tensor]]:
    """Return outputs and log-sum-exps of the keys between these cuts."""
    attend = torch_dense.scaled_dot_product_attention_with_lse
    ends = [0, *cuts, key.shape[-2]]
    found = [
        attend(query, key[..., a:b, :], value[..., a:b, :]) for a, b in itertools.pairwise(ends)
    ]
    return [list(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 6], [0, 4, 7], [2, 2]], ids=str)
def test_merged_pieces_are_attention_over_all_keys(cuts: list[int]) -> None:
    query, key, value = normal(2, 3, 5, 4), normal(2, 3, 7, 4, seed=2), normal(2, 3, 7, 6, seed=3)
    outputs, lses = pieces(cuts, key, value, query)
    output, lse = merge(outputs, lses)
    wanted = torch_dense.scaled_dot_product_attention_with_lse(query, key, value)
    torch.testing.assert_close((output, lse), wanted, rtol=1e-13, atol=1e-13)


def test_a_piece_that_saw_nothing_changes_no_bit() -> None:
    output, lse = normal(3, 4), normal(3, seed=2)
    nothing = torch.zeros(3, 4).double(), torch.full((3,), -math.inf).double()
    for order in ([0, 1], [1, 0]):
        parts = [(output, lse), nothing]
        merged = merge(*zip(*(parts[i] for i in order), strict=True))
        assert torch.equal(merged[0], output)
        assert torch.equal(merged[1], lse)


def test_pieces_that_all_saw_nothing_give_nothing() -> None:
    outputs, lses = torch.zeros(2, 3, 4), torch.full((2, 3), -math.inf)
    output, lse = merge(outputs.requires_grad_().unbind(), lses.requires_grad_().unbind())
    assert torch.equal(output, torch.zeros(3, 4))
    assert torch.equal(lse, torch.full((3,), -math.inf))
    gradients = torch.autograd.grad((output, lse), (outputs, lses), (output + 1, torch.ones(3)))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients)


def test_merge_has_gradients_of_both_results() -> None:
    outputs, lses = normal(3, 2, 4), normal(3, 2, seed=2)
    lses[1, 0] = 30.0  # outweighs the others

    def merged(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        return merge(outputs.unbind(), lses.unbind())

    assert torch.autograd.gradcheck(merged, (outputs.requires_grad_(), lses.requires_grad_()))


def test_merge_takes_lses_of_any_size() -> None:
    outputs = [torch.tensor([[6.0]]), torch.tensor([[2.0]])]
    for lse in (-3e38, -1e4, 1e4, 3e38):
        output, _ = merge(outputs, [torch.tensor([lse])] * 2)
        assert output.item() == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_merge_rounds_half_precision_once(dtype: torch.dtype) -> None:
    outputs, lses = normal(3, 5, 4, dtype=dtype), normal(3, 5, dtype=torch.float32)
    output, lse = merge(outputs.unbind(), lses.unbind())
    wide, same = merge(outputs.float().unbind(), lses.unbind())
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert torch.equal(output, wide.to(dtype))
    assert torch.equal(lse, same)


@pytest.mark.parametrize(
    ("outputs", "lses", "error", "said"),
    [
        ([], [], ValueError, "got 0 outputs and 0 lses"),
        ([torch.zeros(1, 2)], [], ValueError, "one tensor for each piece; got 1 outputs and 0"),
        ([[0.0]], [torch.zeros(1)], TypeError, r"outputs\[0\] must be a torch.Tensor; got list"),
        ([torch.zeros(1, 2)], [0.0], TypeError, r"lses\[0\] must be a torch.Tensor; got float"),
        ([torch.zeros(1, 2)], [torch.zeros(2)], ValueError, r"lses\[0\] \(2,\)"),
        ([torch.tensor(1.0)], [torch.tensor(1.0)], ValueError, r"outputs\[0\] \(\)"),
        (
            [torch.zeros(1, 2), torch.zeros(1, 3)],
            [torch.zeros(1)] * 2,
            ValueError,
            r"each output \(1, 2\) .* got outputs\[1\] \(1, 3\)",
        ),
        (
            [torch.zeros(1, 2), torch.zeros(1, 2).double()],
            [torch.zeros(1)] * 2,
            TypeError,
            r"share one dtype; got outputs\[0\] float32, outputs\[1\] float64",
        ),
        (
            [torch.zeros(1, 2).half()],
            [torch.zeros(1).half()],
            TypeError,
            r"lses\[0\] must be torch.float32 on cpu, as the outputs ask; got torch.float16 on cpu",
        ),
        (
            [torch.zeros(1, 2)],
            [torch.zeros(1, device="meta")],
            TypeError,
            "on cpu, as the outputs ask; got torch.float32 on meta",
        ),
    ],
)
def test_merge_refuses_what_does_not_fit(
    outputs: Any, lses: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        merge(outputs, lses)
