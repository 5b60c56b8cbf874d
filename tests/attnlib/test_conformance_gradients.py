"""What every rung on tensors promises of its gradients beyond the cases of `test_cases`.

The truth is plain PyTorch in float64, on the same rounded inputs. The first test ties it to the
definition by finite differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from inputs import E_V, EMPTY_AXES, B, E, H, L, S, drawn
from numpy.typing import NDArray
from rungs import DTYPES, WITH_GRADIENTS, Rung, every_rung_with_gradients, on
from tolerance import (
    HALF,
    assert_close,
    difference_size,
    epsilon,
    forward_size,
    gradient_sizes,
    lse_size,
)

from attnlib import numpy_tokenwise
from attnlib.conformance import Asked, _truth
from attnlib.conformance._case import Given

Array = NDArray[Any]
Options = dict[str, Any]

every_rung = every_rung_with_gradients


def inputs(batch: tuple[int, ...] = (B, H), dtype: str = "float64") -> list[Array]:
    """Return query, key, value and the gradient of the output."""
    return drawn((*batch, L, E), (*batch, S, E), (*batch, S, E_V), (*batch, L, E_V), dtype=dtype)


def wide(array: Array | None) -> Array | None:
    return array if array is None or array.dtype == np.bool_ else array.astype(np.float64)


def check(
    rung: Rung,
    query: Array,
    key: Array,
    value: Array,
    upstream: Array,
    attn_mask: Array | None = None,
    lse_upstream: Array | None = None,
    **options: Any,
) -> dict[str, Array]:
    """Hold the gradients against the truth."""
    given = (query, key, value, upstream, attn_mask, lse_upstream)
    found = rung.gradients(*given, **options)
    truth = plain_torch.gradients(*map(wide, given), **options)
    half = query.dtype.name in HALF
    peers = plain_torch.gradients(*given, **options) if half else {}
    sizes = gradient_sizes(*given, options.get("scale"))
    assert found.keys() == truth.keys()
    for name, array in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if name in found:
            assert array is not None
            assert found[name].dtype == array.dtype
            assert_close(
                found[name],
                truth[name],
                dtype=max(query.dtype.name, array.dtype.name, key=epsilon),
                size=sizes[name],
                peer=peers.get(name),
                times=3,
            )
    return found


SMALL = {"query": (2, 3, 2), "key": (2, 4, 2), "value": (2, 4, 3)}
EMPTY_ROW = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1]], dtype=bool)
CASES: dict[str, Options] = {
    "plain": {},
    "causal": {"is_causal": True},
    "causal, more queries": {"is_causal": True, "shapes": {"query": (2, 5, 2)}},
    "negative scale": {"scale": -0.7},
    "scale 0": {"scale": 0.0, "is_causal": True},
    "boolean mask": {"attn_mask": EMPTY_ROW},
    "floating mask": {"attn_mask": np.where(EMPTY_ROW, 0.3, -np.inf)},
    "mask to broadcast": {"attn_mask": np.array([0.5, -np.inf, -0.5, 1.0])},
    "shared key": {"shapes": {"key": (4, 2), "value": (1, 4, 3)}},
    "grouped heads": {"enable_gqa": True, "shapes": {"query": (4, 3, 2)}},
    "no features": {"shapes": {"query": (3, 0), "key": (4, 0), "value": (4, 1)}},
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


def by_equations(floating: dict[str, Array], upstream: Array, options: Options) -> dict[str, Array]:
    """Return the gradients by the equations that `attnlib.conformance` holds kernels against."""
    options = dict(options)
    mask = options.pop("attn_mask", None)
    given = {name: Given(array, "float64") for name, array in floating.items()}
    given |= {} if mask is None else {"attn_mask": Given(mask, "bool")}
    return _truth.gradients(Asked(given, options, Given(upstream, "float64")))


@pytest.mark.parametrize("case", CASES)
def test_equations_and_autograd_agree(case: str) -> None:
    floating, options = small(case)
    shape = numpy_tokenwise.scaled_dot_product_attention(**floating, **options).shape
    (upstream,) = drawn(shape, seed=2)
    found = by_equations(floating, upstream, options)
    truth = plain_torch.gradients(**floating, upstream=upstream, **options)
    assert found.keys() == truth.keys()
    for name, gradient in truth.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_the_truth_is_the_slope_of_the_definition(case: str) -> None:
    floating, options = small(case)
    step = 2.0**-17

    def attend() -> tuple[Array, Array]:
        return numpy_tokenwise.scaled_dot_product_attention_with_lse(**floating, **options)

    output, lse = attend()
    upstream, lse_upstream = drawn(output.shape, lse.shape, seed=2)
    lse_upstream[lse == -np.inf] = 0

    def total() -> float:
        output, lse = attend()
        return float(
            (output * upstream).sum() + (np.where(np.isfinite(lse), lse, 0) * lse_upstream).sum()
        )

    truth = plain_torch.gradients(
        **floating, upstream=upstream, lse_upstream=lse_upstream, **options
    )
    mask = floating.get("attn_mask")
    arrays = floating["query"], floating["key"], floating["value"]
    scale = options.get("scale")
    size = float(np.abs(upstream).sum()) * forward_size(*arrays, mask, scale)
    size += float(np.abs(lse_upstream).sum()) * lse_size(*arrays[:2], mask, scale)
    for name, array in floating.items():
        slopes = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            here = array[place]
            array[place] = here + step
            above = total()
            array[place] = here - step
            slopes[place] = (above - total()) / (2 * step)
            array[place] = here
        assert_close(truth[name], slopes, dtype="float64", size=difference_size(size, step))


@on(WITH_GRADIENTS, dtypes=DTYPES)
@pytest.mark.parametrize(
    "by", [("query",), ("key",), ("value",), ("attn_mask",), ("query", "key"), ("query", "value")]
)
def test_a_gradient_does_not_need_the_others(rung: Rung, by: tuple[str, ...], dtype: str) -> None:
    arrays = inputs(dtype=dtype)
    (mask,) = drawn((H, 1, S), dtype=dtype)
    alone, all_of_them = rung.gradients(*arrays, mask, by=by), rung.gradients(*arrays, mask)
    assert tuple(alone) == by
    for name, gradient in alone.items():
        assert gradient.tobytes() == all_of_them[name].tobytes()
        assert np.any(gradient != 0)


@on(WITH_GRADIENTS, dtypes=DTYPES)
@pytest.mark.parametrize("additive", [False, True])
def test_an_empty_row_has_gradients_of_zero(rung: Rung, additive: bool, dtype: str) -> None:
    query, key, value, upstream = inputs(dtype=dtype)
    (lse_upstream,) = drawn((B, H, L), dtype="float32" if dtype in HALF else dtype)
    mask: Array = np.zeros((L, S), dtype=bool)
    if additive:
        mask = np.full((L, S), -np.inf, dtype=np.float32)
    for above in (None, lse_upstream):
        found = rung.gradients(query, key, value, upstream, mask, above)
        assert all(np.all(gradient == 0) for gradient in found.values())
    mask[3] = True if not additive else 0
    found = check(rung, query, key, value, upstream, mask, lse_upstream)
    assert np.all(found["query"][..., np.arange(L) != 3, :] == 0)
    assert np.all(found["query"][..., 3, :] != 0)


@on(WITH_GRADIENTS, dtypes=["bfloat16", "float64"])
@pytest.mark.parametrize(("batch", "n_queries", "n_keys", "n_features", "n_values"), EMPTY_AXES)
def test_empty_axes_with_a_mask(
    rung: Rung, batch: tuple[int, ...], n_queries: int, n_keys: int, n_features: int, n_values: int,
    dtype: str,
) -> None:  # fmt: skip
    query, key, value, upstream = drawn(
        (*batch, n_queries, n_features), (*batch, n_keys, n_features), (*batch, n_keys, n_values),
        (*batch, n_queries, n_values), dtype=dtype,
    )  # fmt: skip
    mask = np.ones((n_queries, n_keys), dtype=query.dtype)
    found = check(rung, query, key, value, upstream, mask)
    if n_keys == 0 or n_queries == 0:
        assert all(np.all(gradient == 0) for gradient in found.values())


@every_rung
@pytest.mark.parametrize("low", [-1e4, float(np.finfo(np.float32).min)])
def test_keys_below_a_finite_mask_leave_the_other_gradients_as_they_are(
    rung: Rung, low: float
) -> None:
    arrays = drawn((L, E), (70, E), (70, E_V), (L, E_V), dtype="float32")
    hidden = np.arange(70) < np.array([[0], [3], [40], [64], [69]])
    mask = np.where(hidden, low, 0).astype(np.float32)
    found = rung.gradients(*arrays, mask, by=("query", "key", "value"))
    truth = plain_torch.gradients(*map(wide, arrays), ~hidden)
    sizes = gradient_sizes(*arrays)
    for name, gradient in found.items():
        assert_close(gradient, truth[name], dtype="float32", size=sizes[name])
    arrays[0][:] = 0  # all scores are equal, with the mask or without it
    mask[:] = low
    found = rung.gradients(*arrays, mask, by=("query", "key", "value"))
    truth, sizes = plain_torch.gradients(*map(wide, arrays)), gradient_sizes(*arrays)
    for name, gradient in found.items():
        assert_close(gradient, truth[name], dtype="float32", size=sizes[name])


@on(WITH_GRADIENTS, dtypes=DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_the_log_sum_exp_has_gradients_too(
    rung: Rung, both: bool, is_causal: bool, dtype: str
) -> None:
    query, key, value, upstream = inputs(dtype=dtype)
    (lse_upstream,) = drawn((B, H, L), dtype="float32" if dtype in HALF else dtype)
    if not both:
        upstream = np.zeros_like(upstream)
    check(rung, query, key, value, upstream, lse_upstream=lse_upstream, is_causal=is_causal)


@every_rung
def test_what_lies_outside_of_every_window_is_not_read(rung: Rung) -> None:
    query, key, value, upstream = inputs()
    clean = rung.gradients(query, key, value, upstream, window=(2, 0))
    key[..., L:, :] = value[..., L:, :] = np.nan
    dirty = rung.gradients(query, key, value, upstream, window=(2, 0))
    for name, gradient in dirty.items():
        np.testing.assert_allclose(gradient, clean[name], rtol=1e-13, atol=1e-14)


@every_rung
def test_without_gradients_nothing_is_kept(rung: Rung) -> None:
    given = [rung.give(array) for array in inputs()[:3]]
    assert not rung.function()(*given).requires_grad
    given[2].requires_grad_()
    with torch.no_grad():
        assert not rung.function()(*given).requires_grad
    assert rung.function()(*given).requires_grad


def bound(rung: Rung, case: str) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Return attention with log-sum-exp as a function of its floating inputs, and these."""
    floating, options = small(case)
    mask = options.pop("attn_mask", None)
    if mask is not None:
        options["attn_mask"] = rung.give(mask)
    leaves = {name: rung.give(array).requires_grad_() for name, array in floating.items()}

    def attend(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        function = rung.function("scaled_dot_product_attention_with_lse")
        output, lse = function(**dict(zip(leaves, tensors, strict=True)), **options)
        # The log-sum-exp of an empty row is -∞, which finite differences cannot take.
        return output, torch.where(lse == -torch.inf, 0, lse)

    return attend, tuple(leaves.values())


def fast(rung: Rung) -> bool:
    """Return whether a check asks for a random direction, and not for each entry of the Jacobian.

    A rung in blocks of other sizes has the same formulas as in its own.
    """
    return rung.is_interpreted or bool(rung.blocks)


# torch refuses to perturb an axis of length 0.
PERTURBED = [case for case in CASES if case != "no features"]


@every_rung
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", PERTURBED)
def test_gradcheck(rung: Rung, case: str) -> None:
    attend, leaves = bound(rung, case)
    forward = rung.has_forward_mode
    assert torch.autograd.gradcheck(
        attend, leaves, check_forward_ad=forward, check_batched_grad=forward, fast_mode=fast(rung)
    )


@every_rung
@pytest.mark.parametrize("case", PERTURBED)
def test_second_derivatives(rung: Rung, case: str) -> None:
    attend, leaves = bound(rung, case)
    if not rung.has_second_derivatives:
        output, _ = attend(*leaves)
        with pytest.raises(RuntimeError, match="torch_dense"):
            torch.autograd.grad(output.sum(), leaves, create_graph=True)
        return
    assert torch.autograd.gradgradcheck(attend, leaves, fast_mode=fast(rung))
