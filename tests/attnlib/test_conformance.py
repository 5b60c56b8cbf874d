"""What every form of `attnlib.implementations()` promises beyond the cases of `test_cases`.

Some of it other people's attention code has got wrong: the report stands beside the test.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from implementations import (
    IMPLEMENTATIONS,
    WITH_GRADIENTS,
    Implementation,
    every_form_with_gradients,
    every_implementation,
    on,
)
from inputs import E_V, B, E, H, L, S, drawn, some
from numpy.typing import NDArray
from parameters import slow
from torch import Tensor

from attncheck._torch_backend import plain
from attnlib._checks import Band

Array = NDArray[Any]
WHOLE = [form for form in IMPLEMENTATIONS if not form.blocks]
ON_ARRAYS = on(form for form in WHOLE if not form.on_tensors)
ON_TENSORS = on(form for form in WHOLE if form.on_tensors)
WITH_OPERATORS = [f for f in WHOLE if f.on_tensors and not f.is_differentiated_by_autograd]
each_on_tensors = pytest.mark.parametrize("form", [f for f in WHOLE if f.on_tensors], ids=str)


@pytest.mark.parametrize("form", WHOLE, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_both_functions_give_one_output(form: Implementation, masked: bool) -> None:
    options: dict[str, Any] = {"scale": 0.3, "enable_gqa": True}
    options |= {"attn_mask": some((2 * H, L, S))} if masked else {
        "is_causal": True, "causal_align": "bottom-right", "window": (2, 0),
    }
    arrays = drawn((2 * H, L, E), (H, S, E), (H, S, E_V))
    output, lse = form.with_lse(*arrays, **options)
    assert form(*arrays, **options).tobytes() == output.tobytes()
    assert lse.shape == output.shape[:-1]


# -- numbers ---------------------------------------------------------------------------------------

# The query 0 sees all keys alike; the other picks the largest keys, or the smallest.
ALIKE_OR_ONE = [[0.0], [1.0]], [[1.0], [2.0], [2.0]], [[0.0], [3.0], [5.0]]
BOTH = [1e25], [-1e25]


@every_implementation
@pytest.mark.parametrize(
    ("dtype", "scale", "arrays", "expected"),
    [
        ("float16", 1e39, ALIKE_OR_ONE, [[8 / 3], [4.0]]),
        ("float32", -1e300, ALIKE_OR_ONE, [[8 / 3], [0.0]]),
        # q · scale is beyond the dtype, and the score is not.
        ("float32", 1e38, ([[10.0]], [[0.0], [1e-31]], [[3.0], [5.0]]), [[5.0]]),
        ("float64", -1e308, ([[10.0]], [[0.0], [-1e-301]], [[3.0], [5.0]]), [[5.0]]),
        # The scale is 0 in float32, the product of query and key ∞; the score is neither.
        ("float32", 1e-50, ([[1e25]], BOTH, [[1.0], [2.0]]), [[1 + 1 / (1 + np.e**2)]]),
    ],
)
def test_a_scale_beyond_the_dtype(
    form: Implementation, dtype: str, scale: float, arrays: Any, expected: Any
) -> None:
    given = [np.array(x, dtype) for x in arrays]
    output, lse = form.with_lse(*given, scale=scale)
    np.testing.assert_allclose(output, expected, rtol=1e-3 if dtype == "float16" else 1e-6)
    wide = dtype == "float64" or form.name == "numpy_tokenwise"
    assert lse.dtype == ("float64" if wide else "float32")


@on(IMPLEMENTATIONS, dtypes=["float32", "float64"])
def test_a_mean_beside_the_largest_number(form: Implementation, dtype: str) -> None:
    """Of the largest number itself; for most forms on tensors it lies within a thousandth of it.

    NaN and ∞ that are removed do not change a mean, and where they take part they come out.
    """
    clamps = not form.on_tensors or form.name == "torch_blockwise"
    largest = np.finfo(dtype).max * (1 if clamps else 0.999)
    query, key = drawn((L, E), (19, E), dtype=dtype)
    value = np.full((19, 4), largest, dtype) * np.array([1, -1, 1, 1], dtype)
    value[-1, :3] = np.inf, -np.inf, np.nan
    kept = np.arange(19) < np.full((L, 1), 18)
    finite, spoilt = [largest, -largest, largest, largest], [np.inf, -np.inf, np.nan, largest]
    np.testing.assert_allclose(form(query, key, value, kept), [finite] * L, rtol=1e-5)
    np.testing.assert_allclose(form(query, key, value), [spoilt] * L, rtol=1e-5)
    if not form.on_tensors:  # there 0 · ∞ gives NaN in the other rows
        kept[0] = True
        output = form(query, key, value, kept)
        np.testing.assert_allclose(output, [spoilt] + [finite] * (L - 1), rtol=1e-5)


@every_implementation
def test_only_scores_of_minus_infinity_give_zeros(form: Implementation) -> None:
    query, key, value = drawn((L, E), (S, E), (S, E_V))
    query[1], key[:] = np.inf, -np.abs(key)
    output, lse = form.with_lse(query, key, value)
    assert np.all(output[1] == 0) and lse[1] == -np.inf
    assert np.isfinite(output).all()


@every_implementation
def test_nan_comes_out_however_little_it_weighs(form: Implementation) -> None:
    query, key, value = np.ones((1, 1)), np.array([[0.0], [-1e4], [0.0]]), np.ones((3, 1))
    value[1] = np.nan
    assert np.isnan(form(query, key, value, np.array([True, True, False]))).all()


@ON_ARRAYS
def test_numbers_warn_nobody(form: Implementation) -> None:
    for place in range(3):
        arrays = drawn((2, 3), (2, 3), (2, 3), dtype="float32")
        signalling = np.full((2, 3), 0x7F800001, dtype=np.uint32).view(np.float32)
        arrays[place] = signalling
        assert np.isnan(form(*arrays)).all()
    value = np.array([[6e-8], [0.0]], np.float16)  # 6e-8 / 2 is below every float16
    zeros = np.zeros((2, 1), np.float16)
    assert form(zeros, zeros, value).max() <= 6e-8


@ON_ARRAYS
def test_a_matrix_is_taken_for_an_array(form: Implementation) -> None:
    arrays = drawn((2, 3), (4, 3), (4, 5))
    output = form(*(x.view(np.matrix) for x in arrays))
    assert type(output) is np.ndarray
    np.testing.assert_array_equal(output, form(*arrays))


# -- gradients -------------------------------------------------------------------------------------


def inputs() -> list[Array]:
    """Return query, key, value and the gradient of the output."""
    return drawn((B, H, L, E), (B, H, S, E), (B, H, S, E_V), (B, H, L, E_V))


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
@pytest.mark.parametrize("low", [-1e4, float(np.finfo(np.float32).min)])
def test_a_finite_mask_leaves_the_other_gradients_as_they_are(
    form: Implementation, low: float
) -> None:
    """One that hides some keys, as a boolean one does, and one that is equal for all keys."""
    *arrays, upstream = drawn((L, E), (70, E), (70, E_V), (L, E_V), dtype="float32")
    hidden = np.arange(70) < np.array([[0], [3], [40], [64], [69]])
    for off, meant in ((hidden, ~hidden), (hidden | True, hidden | True)):
        mask = np.where(off, low, 0).astype(np.float32)
        found = form.gradients(*arrays, upstream, mask, by=("query", "key", "value"))
        for name, gradient in form.gradients(*arrays, upstream, meant).items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=1e-5)
        arrays[0][:] = 0  # else the scores are rounded to the step of `low`


@every_form_with_gradients
def test_what_lies_outside_of_every_window_is_not_read(form: Implementation) -> None:
    query, key, value, upstream = inputs()
    clean = form.gradients(query, key, value, upstream, window=(2, 0))
    key[..., L:, :] = value[..., L:, :] = np.nan
    dirty = form.gradients(query, key, value, upstream, window=(2, 0))
    for name, gradient in dirty.items():
        np.testing.assert_allclose(gradient, clean[name], rtol=1e-13, atol=1e-14)


@every_form_with_gradients
def test_gradients_beside_values_near_the_largest_number(form: Implementation) -> None:
    """A gradient of the output that is small enough: everything that follows is finite."""
    query, key, value, upstream = drawn((5, 3), (7, 3), (7, 2), (5, 2), dtype="float32")
    large, small, value = np.float32(2.0**126), np.float32(2.0**-126), value / 8
    found = form.gradients(query, key, value * large, upstream * small)
    for name, gradient in form.gradients(query, key, value, upstream).items():
        scaled = gradient * small if name == "value" else gradient
        np.testing.assert_allclose(found[name], scaled, rtol=1e-4, atol=1e-5 * np.abs(scaled).max())


# -- citizens of torch -----------------------------------------------------------------------------


def tensors(
    form: Implementation, n_queries: int = L, n_keys: int = S, seed: int = 7
) -> list[Tensor]:
    """Return query, key, value and a floating mask with an empty row and a key that nobody sees."""
    shapes = (B, H, n_queries, E), (B, H, n_keys, E), (B, H, n_keys, E_V), (n_queries, n_keys)
    *arrays, mask = drawn(*shapes, seed=seed)
    mask[2] = mask[:, 3] = -np.inf
    return [form.give(x) for x in (*arrays, mask)]


@each_on_tensors
def test_compiled_whole_for_one_length_and_then_for_another(form: Implementation) -> None:
    """pytorch#148545, pytorch#186775."""
    attend = form.function("scaled_dot_product_attention_with_lse")

    def total(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        band: Any = {"window": (3, 1), "causal_align": "bottom-right"}
        results = attend(query, key[:, :1], value[:, :1], mask, enable_gqa=True, **band)
        return torch.stack([x.masked_fill(x == -math.inf, 0).sin().sum() for x in results])

    torch.compiler.reset()
    compiled: Any = torch.compile(total, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (5, 20):
        leaves = [x.requires_grad_() for x in tensors(form, n, n + 2)]
        found = [f(*leaves) for f in (compiled, total)]
        torch.testing.assert_close(*found)
        torch.testing.assert_close(*(torch.autograd.grad(x.sum(), leaves) for x in found))


@each_on_tensors
def test_shapes_can_be_had_without_numbers(form: Implementation) -> None:
    leaves = [x.to("meta", torch.bfloat16).requires_grad_() for x in tensors(form)]
    output, lse = form.function("scaled_dot_product_attention_with_lse")(*leaves)
    assert (output.shape, lse.shape) == ((B, H, L, E_V), (B, H, L))
    assert (output.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    assert output.device.type == "meta"
    found = torch.autograd.grad(output.sum(), leaves)
    assert [x.shape for x in found] == [x.shape for x in leaves]


@each_on_tensors
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_that_of_torch(form: Implementation, dtype: torch.dtype) -> None:
    """What is narrower than float64 is cast, the mask too, wherever it stands.

    A backward under autocast is autograd's own, where there is no other.
    """
    wide, attend = tensors(form), form.function()
    query, key, value, mask = (x.float() for x in wide)
    leaves = query.requires_grad_(), value.requires_grad_()
    with torch.autocast(form.device, dtype):
        output = attend(query, key.bfloat16(), value=value, attn_mask=mask)
        found = torch.autograd.grad(output.sum(), leaves)
        assert attend(*wide).dtype == torch.float64
    rounded = [x.detach().to(dtype).requires_grad_() for x in (query, key.bfloat16(), value)]
    truth = attend(*rounded, mask.to(dtype))
    assert output.dtype == dtype and torch.equal(output, truth)
    if not form.is_differentiated_by_autograd:
        expected = torch.autograd.grad(truth.sum(), (rounded[0], rounded[2]))
        assert all(torch.equal(a, b.float()) for a, b in zip(found, expected, strict=True))


def four(form: Implementation) -> list[Tensor]:
    """Return query, key, value and a boolean mask, in two leading dimensions."""
    *arrays, mask = drawn((4, 2, 5, 3), (4, 2, 7, 3), (4, 2, 7, 2), (4, 2, 5, 7), seed=3)
    return [form.give(x) for x in (*arrays, mask > -0.5)]


def gradients_of(f: Any) -> Any:
    return torch.func.grad(lambda *x: f(*x).sin().sum(), (0, 1, 2))


TRANSFORMS: dict[str, Callable[[Any, list[Tensor]], Any]] = {
    "jacobians": lambda f, x: torch.func.jacrev(f, (0, 1, 2))(*(y[0, 0] for y in x[:3])),
    "vmap along the last head": lambda f, x: torch.vmap(f, 1, 1)(*x[:3]),
    "vmap of vmap": lambda f, x: torch.vmap(torch.vmap(f))(*x),
    "gradient of vmap": lambda f, x: gradients_of(torch.vmap(f))(*x[:3]),
    "vmap of a compiled program": lambda f, x: torch.compile(
        torch.vmap(f), backend="aot_eager", fullgraph=True
    )(*x[:3]),
}
# Each argument alone is mapped, and all together, of the output and of its gradients.
for letters in ("0---", "-0--", "--0-", "---0", "0000"):
    dims = tuple(0 if letter == "0" else None for letter in letters)
    for words, change in {"output": lambda f: f, "gradients": gradients_of}.items():
        TRANSFORMS[f"vmap {letters} of the {words}"] = lambda f, x, dims=dims, change=change: (  # type: ignore[misc]
            torch.vmap(change(f), dims)(
                *(y if d == 0 else y[0] for y, d in zip(x, dims, strict=True))
            )
        )


@ON_TENSORS
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_torch_func(form: Implementation, name: str) -> None:
    if "compiled" in name:
        torch.compiler.reset()
    given = four(form)
    found = TRANSFORMS[name](form.function(), given)
    truth = TRANSFORMS[name](lambda *x: plain(*x)[0], given)
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)


@every_form_with_gradients
def test_groups_half_precision_and_the_log_sum_exp_under_transforms(form: Implementation) -> None:
    query, key, value = (x.bfloat16() for x in four(form)[:3])
    key, value = key[:, :1], value[:, :1]
    with_lse = form.function("scaled_dot_product_attention_with_lse")

    def total(*qkv: Tensor) -> Tensor:
        output, lse = with_lse(*qkv, enable_gqa=True)
        return output.float().sum() + lse.sin().sum()

    found = torch.vmap(torch.func.grad(total, (0, 1, 2)))(query, key, value)
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    truth = torch.autograd.grad(total(*leaves), leaves)
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, theirs)


@on(form for form in WITH_GRADIENTS if form.is_differentiated_by_autograd)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", ["causal", "boolean", "floating"])
def test_forward_mode_and_second_derivatives(form: Implementation, kind: str) -> None:
    query, key, value, mask = (x[0, 0] for x in four(form))
    leaves = [x.requires_grad_() for x in (query.repeat(2, 1, 1), key[None], value[None])]
    options: dict[str, Any] = {"enable_gqa": True}
    options |= {"is_causal": True} if kind == "causal" else {}
    mask[2] = False  # an empty row, whose log-sum-exp of -∞ finite differences cannot take
    if kind == "boolean":
        options["attn_mask"] = mask
    elif kind == "floating":
        leaves.append(torch.where(mask, 0.3, -torch.inf).to(query).requires_grad_())

    def attend(*given: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = form.function("scaled_dot_product_attention_with_lse")(*given, **options)
        return output, torch.where(lse == -torch.inf, 0, lse)

    checks: Any = {"check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(attend, leaves, check_forward_ad=True, **checks)
    assert torch.autograd.gradgradcheck(attend, leaves, fast_mode=True)


@on(form for form in WITH_GRADIENTS if not form.is_differentiated_by_autograd)
def test_who_has_no_more_than_first_derivatives_names_who_has(form: Implementation) -> None:
    query, key, value = (x[0, 0] for x in four(form)[:3])

    def total(x: Tensor) -> Tensor:
        return form.function()(x, key, value).sin().sum()

    def twice(x: Tensor) -> Any:
        return torch.autograd.grad(total(y := x.detach().requires_grad_()), y, create_graph=True)

    in_func = torch.func.grad(lambda x: torch.func.grad(total)(x).sum())
    for wanted in (twice, in_func, torch.func.jacfwd(total), torch.func.hessian(total)):
        with pytest.raises(RuntimeError, match=rf"{form.name} has no .*; torch_dense has them"):
            wanted(query)


RULES = "test_schema", "test_autograd_registration", "test_faketensor"


@pytest.mark.parametrize("rules", [RULES, slow((*RULES, "test_aot_dispatch_dynamic"))])
@pytest.mark.parametrize("form", WITH_OPERATORS, ids=str)
def test_the_operators_keep_the_rules_of_torch(
    form: Implementation, rules: tuple[str, ...]
) -> None:
    """Shapes of the fake ones, nothing aliased, nothing changed."""
    operator = importlib.import_module(f"attnlib.{form.name}")._operator
    shapes = (2, 4, 5, 4), (2, 2, 7, 4), (2, 2, 7, 6), (5, 7)
    given = [form.give(x).bfloat16() for x in drawn(*shapes)]
    own = {"torch_blockwise": [2, 3, 0], "torch_ring": [2, 1], "triton_fused": [True]}[form.name]
    inputs = (*given, Band().numbers(), None, 2, own)
    torch.library.opcheck(operator.forward, inputs, test_utils=rules)
    output, lse, *of_rows = operator.forward(*inputs)
    rest = (output, *of_rows, output, lse, [True, False, True, True], *inputs[4:])
    torch.library.opcheck(operator.backward, (*given, *rest), test_utils=rules)
    found = operator.backward(*given, *rest)
    assert all(x.dtype == torch.bfloat16 for x in (found[0], *found[2:]))
