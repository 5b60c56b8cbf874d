"""What every form on tensors promises of its gradients beyond the cases of `test_cases`.

The truth is plain PyTorch in float64, on the same rounded inputs; `attncheck` has its
own, by the equations of chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from implementations import WITH_GRADIENTS, Implementation, every_form_with_gradients, on
from inputs import E_V, B, E, H, L, S, drawn
from numpy.typing import NDArray
from tolerance import assert_close, gradient_sizes

from attncheck import Call, Given, _definition
from attnlib import numpy_tokenwise

Array = NDArray[Any]
Options = dict[str, Any]


def inputs(batch: tuple[int, ...] = (B, H)) -> list[Array]:
    """Return query, key, value and the gradient of the output."""
    return drawn((*batch, L, E), (*batch, S, E), (*batch, S, E_V), (*batch, L, E_V))


SMALL = {"query": (2, 3, 2), "key": (2, 4, 2), "value": (2, 4, 3)}
EMPTY_ROW = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]], dtype=bool)
CASES: dict[str, Options] = {
    "plain": {},
    "causal, more queries": {"is_causal": True, "shapes": {"query": (2, 5, 2)}},
    "negative scale": {"scale": -0.7},
    "boolean mask": {"attn_mask": EMPTY_ROW},
    "floating mask": {"attn_mask": np.where(EMPTY_ROW, 0.3, -np.inf)},
    "mask to broadcast": {"attn_mask": np.array([0.5, -np.inf, -0.5, 1.0])},
    "shared key": {"shapes": {"key": (4, 2), "value": (1, 4, 3)}},
    "grouped heads": {"enable_gqa": True, "shapes": {"query": (4, 3, 2)}},
}


def small(case: str) -> tuple[dict[str, Array], Options]:
    """Return the floating inputs of a case, and its other options."""
    options = dict(CASES[case])
    shapes = SMALL | options.pop("shapes", {})
    floating = dict(zip(shapes, drawn(*shapes.values(), seed=1), strict=True))
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != np.bool_:
        floating["attn_mask"] = options.pop("attn_mask").copy()
    return floating, options


@pytest.mark.parametrize("case", CASES)
def test_equations_and_autograd_agree(case: str) -> None:
    """Two truths: those of `attncheck`, and those of these tests."""
    floating, options = small(case)
    shape = numpy_tokenwise.scaled_dot_product_attention(**floating, **options).shape
    (upstream,) = drawn(shape, seed=2)
    truth = plain_torch.gradients(**floating, upstream=upstream, **options)
    mask = options.pop("attn_mask", None)
    given = {name: Given(array, "float64") for name, array in floating.items()}
    given |= {} if mask is None else {"attn_mask": Given(mask, "bool")}
    found = _definition.gradients(Call(given, options, Given(upstream, "float64")))
    assert found.keys() == truth.keys()
    for name, gradient in truth.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-12, atol=1e-13)


@every_form_with_gradients
def test_a_gradient_does_not_need_the_others(form: Implementation) -> None:
    arrays, (mask,) = inputs(), drawn((H, 1, S))
    all_of_them = form.gradients(*arrays, mask)
    for by in (("query",), ("key",), ("value",), ("attn_mask",), ("query", "value")):
        alone = form.gradients(*arrays, mask, by=by)
        assert tuple(alone) == by
        for name, gradient in alone.items():
            assert gradient.tobytes() == all_of_them[name].tobytes()
            assert np.any(gradient != 0)


@every_form_with_gradients
@pytest.mark.parametrize("mask", [np.zeros((L, S), bool), np.full((L, S), -np.inf)], ids=str)
def test_the_log_sum_exp_of_an_empty_row_has_no_gradient(form: Implementation, mask: Array) -> None:
    (above,) = drawn((B, H, L))
    found = form.gradients(*inputs(), mask, above)
    assert all(np.all(gradient == 0) for gradient in found.values())


@every_form_with_gradients
@pytest.mark.parametrize("low", [-1e4, float(np.finfo(np.float32).min)])
def test_keys_below_a_finite_mask_leave_the_other_gradients_as_they_are(
    form: Implementation, low: float
) -> None:
    arrays = drawn((L, E), (70, E), (70, E_V), (L, E_V), dtype="float32")
    hidden = np.arange(70) < np.array([[0], [3], [40], [64], [69]])

    def hold(mask: Array, meant: Array | None) -> None:
        found = form.gradients(*arrays, mask.astype(np.float32), by=("query", "key", "value"))
        truth = plain_torch.gradients(*(x.astype(np.float64) for x in arrays), meant)
        sizes = gradient_sizes(*arrays)
        for name, gradient in found.items():
            assert_close(gradient, truth[name], dtype="float32", size=sizes[name])

    hold(np.where(hidden, low, 0), ~hidden)
    arrays[0][:] = 0  # all scores are equal, with the mask or without it
    hold(np.full((L, 70), low), None)


@every_form_with_gradients
def test_what_lies_outside_of_every_window_is_not_read(form: Implementation) -> None:
    query, key, value, upstream = inputs()
    clean = form.gradients(query, key, value, upstream, window=(2, 0))
    key[..., L:, :] = value[..., L:, :] = np.nan
    dirty = form.gradients(query, key, value, upstream, window=(2, 0))
    for name, gradient in dirty.items():
        np.testing.assert_allclose(gradient, clean[name], rtol=1e-13, atol=1e-14)


@every_form_with_gradients
def test_without_gradients_nothing_is_kept(form: Implementation) -> None:
    given = [form.give(array) for array in inputs()[:3]]
    assert not form.function()(*given).requires_grad
    given[2].requires_grad_()
    with torch.no_grad():
        assert not form.function()(*given).requires_grad
    assert form.function()(*given).requires_grad


def bound(form: Implementation, case: str) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Return attention with log-sum-exp as a function of its floating inputs, and these."""
    floating, options = small(case)
    mask = options.pop("attn_mask", None)
    if mask is not None:
        options["attn_mask"] = form.give(mask)
    leaves = {name: form.give(array).requires_grad_() for name, array in floating.items()}

    def attend(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        function = form.function("scaled_dot_product_attention_with_lse")
        output, lse = function(**dict(zip(leaves, tensors, strict=True)), **options)
        # The log-sum-exp of an empty row is -∞, which finite differences cannot take.
        return output, torch.where(lse == -torch.inf, 0, lse)

    return attend, tuple(leaves.values())


@on(form for form in WITH_GRADIENTS if form.has_second_derivatives)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_forward_mode_and_second_derivatives(form: Implementation, case: str) -> None:
    attend, leaves = bound(form, case)
    options: Any = {"check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(attend, leaves, check_forward_ad=True, **options)
    assert torch.autograd.gradgradcheck(attend, leaves, fast_mode=True)


@on(form for form in WITH_GRADIENTS if not form.has_second_derivatives)
def test_who_has_no_second_derivatives_names_who_has(form: Implementation) -> None:
    attend, leaves = bound(form, "plain")
    output, _ = attend(*leaves)
    with pytest.raises(RuntimeError, match="torch_dense"):
        torch.autograd.grad(output.sum(), leaves, create_graph=True)
