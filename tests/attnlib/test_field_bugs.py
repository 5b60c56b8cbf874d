"""Faults that attention code in the field has had, each with the report that described it.

Every test runs over each form in which the fault could be. What a form does not promise (the same
bits for one row alone and in a batch, where a library's matrix product decides) is held by a
bound instead, and the property of the form says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from implementations import (
    DTYPES,
    IMPLEMENTATIONS,
    Implementation,
    every_form_with_gradients,
    every_implementation,
    on,
    tensor,
)
from tolerance import HALF, assert_close, forward_size, gradient_sizes
from torch import Tensor

Array = Any
# Most of these do not hang on the sizes of blocks.
WHOLE = [form for form in IMPLEMENTATIONS if not form.blocks]
WHOLE_WITH_GRADIENTS = [form for form in WHOLE if form.on_tensors]


def normal(*shape: int, seed: int = 1, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# -- 1. A batch that a grid with 16 bits cannot number (pytorch#142228)


@on(form for form in WHOLE if not form.is_interpreted and form.name != "numpy_tokenwise")
def test_a_batch_of_more_than_65536(form: Implementation) -> None:
    query, value = normal(70_000, 1, 1, 8), normal(70_000, 1, 1, 4, seed=2)
    np.testing.assert_array_equal(form(query, query, value), value)  # one key has the weight 1


def test_the_kernels_grid_has_one_dimension() -> None:
    """The first dimension of a GPU's grid counts to 2³¹, the others to 65,535."""
    tuning = pytest.importorskip("attnlib.triton_fused.tuning", reason="triton is for Linux")
    from attnlib.triton_fused._tiles import Sizes

    grids: list[tuple[int, ...]] = []

    class Caught:
        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda **given: grids.append(grid(given))

    kernel = tuning.Kernel.__new__(tuning.Kernel)
    kernel.function, kernel.owns, kernel.blocks = Caught(), "queries", tuning.QUERY_BLOCKS
    kernel.chosen = lambda choices, case: tuning.Blocks(64, 64, 4, 1)
    kernel(70_000, sizes=Sizes(1, 65, 1, 0, 0), CHOICES=None, case=None)
    assert grids == [(140_000,)]


# -- 2. Errors that depend on the values (TransformerEngine#3216, pytorch#191937)


@on((form for form in WHOLE if form.name != "numpy_tokenwise"), dtypes=["float32", *HALF])
def test_channels_and_tokens_that_stand_out(form: Implementation, dtype: str) -> None:
    """Two channels with a mean, and a first token of three times the size, as in real models.

    The definition itself is left out: its loops would take a minute.
    """
    shapes = (2, 4, 192, 64), (2, 2, 192, 64), (2, 2, 192, 64)
    arrays = [normal(*shape, seed=i, dtype="float64") for i, shape in enumerate(shapes)]
    for array in arrays:
        array[..., 3] += 4
        array[..., 32] -= 3
        array[..., 0, :] *= 3
    arrays = [array.astype(DTYPES[dtype]) for array in arrays]
    options: dict[str, Any] = {"is_causal": True, "enable_gqa": True}
    truth = plain_torch.plain(*(array.astype(np.float64) for array in arrays), **options)
    peer = plain_torch.plain(*arrays, **options) if dtype in HALF else None
    size = forward_size(*arrays, **options)
    assert_close(form(*arrays, **options), truth, dtype=dtype, size=size, peer=peer)


# -- 3. Compiled again for a second length (pytorch#148545, pytorch#186775)


@on(WHOLE_WITH_GRADIENTS)
def test_compiled_for_one_length_and_then_for_another(form: Implementation) -> None:
    attention = form.function()
    torch.compiler.reset()
    compiled: Any = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=True)
    for n_tokens in (5, 70):
        leaves = [
            tensor(normal(2, n_tokens, 3, seed=i), form.device).requires_grad_() for i in range(3)
        ]
        found = [f(*leaves) for f in (compiled, attention)]
        torch.testing.assert_close(*found)
        torch.testing.assert_close(*(torch.autograd.grad(x.sin().sum(), leaves) for x in found))


# -- 4. Large equal scores: what a value gets back adds up to the number of queries


@every_form_with_gradients
@pytest.mark.parametrize("c", [10.0, 1000.0])
def test_the_gradients_of_values_add_up_under_large_scores(form: Implementation, c: float) -> None:
    """Each query deals out 1. Scores of 8e6 must not change that: torch's CPU kernel loses 8 %.

    Which value gets how much of it may change: at 8e6 a score is rounded to half a unit.
    """
    n_tokens = 50
    alike = np.full((n_tokens, 64), c, dtype=np.float32)
    ones = np.ones((n_tokens, 1), dtype=np.float32)
    found = form.gradients(alike, alike, ones, ones, by=("value",))["value"]
    # 50 weights of 1/50, each rounded, added up over 50 queries.
    np.testing.assert_allclose(found.sum(dtype=np.float64), n_tokens, rtol=n_tokens * 2.0**-23)


# -- 5. A row alone and in a batch (pytorch#34060, transformers#10766)


@on(WHOLE)
@pytest.mark.parametrize("n_queries", [1, 7])
def test_a_row_alone_and_in_a_batch(form: Implementation, n_queries: int) -> None:
    n_keys = 300 if form.name == "numpy_tokenwise" else 2048
    shapes = (n_queries, 16), (n_keys, 16), (n_keys, 16)
    arrays = [normal(8, 2, *shape, seed=i) for i, shape in enumerate(shapes)]
    together, alone = form(*arrays)[3:4], form(*(array[3:4] for array in arrays))
    if form.rows_do_not_depend_on_the_batch:
        np.testing.assert_array_equal(together, alone)
    else:
        truth, size = alone.astype(np.float64), 2 * forward_size(*arrays)[3:4]
        assert_close(together, truth, dtype="float32", size=size)


# -- 6. Threads, and the transforms of torch.func


@on(WHOLE_WITH_GRADIENTS)
def test_the_number_of_threads_changes_rounding_at_most(form: Implementation) -> None:
    shapes = (70, 5), (300, 5), (300, 3), (70, 3)
    arrays = [normal(4, *shape, seed=i) for i, shape in enumerate(shapes)]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append({"output": form(*arrays[:3]), **form.gradients(*arrays)})
    finally:
        torch.set_num_threads(before)
    sizes = {"output": forward_size(*arrays[:3]), **gradient_sizes(*arrays)}
    for name, one in found[0].items():
        size = 2 * sizes[name]
        assert_close(found[1][name], one.astype(np.float64), dtype="float32", size=size)


def four(seed: int, device: str) -> list[Tensor]:
    """Return query, key, value and a boolean mask, in two leading dimensions."""
    shapes = (4, 2, 5, 3), (4, 2, 7, 3), (4, 2, 7, 2), (4, 2, 5, 7)
    query, key, value, mask = (
        tensor(normal(*shape, seed=seed + i, dtype="float64"), device)
        for i, shape in enumerate(shapes)
    )
    return [query, key, value, mask > -0.5]


def gradients_of(f: Any) -> Any:
    return torch.func.grad(lambda *x: f(*x).sin().sum(), (0, 1, 2))


TRANSFORMS: dict[str, Callable[[Any, list[Tensor]], Any]] = {
    "grad": lambda f, x: gradients_of(f)(*x),
    "vjp": lambda f, x: torch.func.vjp(f, *x[:3])[1](f(*x[:3]).sin()),
    "jacobians": lambda f, x: torch.func.jacrev(f, (0, 1, 2))(*(y[0, 0] for y in x[:3])),
    "vmap along the last head": lambda f, x: torch.vmap(f, 1, 1)(*x[:3]),
    "vmap of vmap": lambda f, x: torch.vmap(torch.vmap(f))(*x),
    "gradient of vmap": lambda f, x: gradients_of(torch.vmap(f))(*x[:3]),
    "vmap of a compiled program": lambda f, x: torch.compile(
        torch.vmap(f), backend="aot_eager", fullgraph=True
    )(*x[:3]),
}
# Each argument alone is mapped, and all together, of the output and of its gradients.
for some in ("0---", "-0--", "--0-", "---0", "0000"):
    dims = tuple(0 if letter == "0" else None for letter in some)
    for words, change in {"output": lambda f: f, "gradients": gradients_of}.items():
        TRANSFORMS[f"vmap {some} of the {words}"] = lambda f, x, dims=dims, change=change: (  # type: ignore[misc]
            torch.vmap(change(f), dims)(
                *(y if d == 0 else y[0] for y, d in zip(x, dims, strict=True))
            )
        )


@on(WHOLE_WITH_GRADIENTS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_torch_func(form: Implementation, name: str) -> None:
    if "compiled" in name:
        torch.compiler.reset()
    given = four(3, form.device)
    found = TRANSFORMS[name](form.function(), given)
    truth = TRANSFORMS[name](lambda *x: plain_torch.attention(*x)[0], given)
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)


@every_form_with_gradients
def test_groups_half_precision_and_the_log_sum_exp_under_transforms(form: Implementation) -> None:
    query, key, value = (x.bfloat16() for x in four(5, form.device)[:3])
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


@on(form for form in IMPLEMENTATIONS if form.on_tensors and not form.has_second_derivatives)
def test_transforms_that_need_more_than_a_first_derivative_name_the_form(
    form: Implementation,
) -> None:
    query, key, value = (x[0, 0] for x in four(3, form.device)[:3])

    def total(x: Tensor) -> Tensor:
        return form.function()(x, key, value).sin().sum()

    twice = torch.func.grad(lambda x: torch.func.grad(total)(x).sum())
    for wanted in (twice, torch.func.jacfwd(total), torch.func.hessian(total)):
        with pytest.raises(RuntimeError, match=rf"{form.name} has no .*; torch_dense has them"):
            wanted(query)


# -- 7. Numbers at the edge of the dtype


@every_implementation
def test_scores_near_the_smallest_number_are_ordered(form: Implementation) -> None:
    query, key = np.array([[-1.0]], dtype=np.float32), np.array([[3.2e38], [3e38], [3.1e38]])
    value = np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    assert form(query, key.astype(np.float32), value, scale=1.0).item() == 2.0


@every_form_with_gradients
def test_the_gradient_of_a_key_with_such_a_score(form: Implementation) -> None:
    query, one = np.array([[-3e38]], dtype=np.float32), np.ones((1, 1), dtype=np.float32)
    found = form.gradients(query, one, 5 * one, 7 * one, by=("query", "key", "value"), scale=1.0)
    assert {name: g.item() for name, g in found.items()} == {"query": 0, "key": 0, "value": 7}


@every_implementation
def test_room_for_large_values_does_not_hide_an_infinite_one(form: Implementation) -> None:
    query, key = np.zeros((2, 1), dtype=np.float32), np.zeros((3, 1), dtype=np.float32)
    value = np.array([[3e38, 1.0], [math.inf, 3e38], [3e38, 3e38]], dtype=np.float32)
    output = form(query, key, value)
    assert np.isposinf(output[:, 0]).all()
    np.testing.assert_allclose(output[:, 1], 2e38, rtol=1e-5)


@every_form_with_gradients
def test_gradients_beside_values_near_the_largest_number(form: Implementation) -> None:
    """A gradient of the output that is small enough: everything that follows is finite."""
    arrays = [normal(5, 3), normal(7, 3, seed=2), normal(7, 2, seed=3), normal(5, 2, seed=4)]
    large, small = np.float32(2.0**126), np.float32(2.0**-126)
    value, upstream = arrays[2] / 4, arrays[3]
    found = form.gradients(*arrays[:2], value * large, upstream * small)
    truth = form.gradients(*arrays[:2], value, upstream)
    for name, gradient in truth.items():
        scaled = gradient * small if name == "value" else gradient
        np.testing.assert_allclose(found[name], scaled, rtol=1e-4, atol=1e-5 * np.abs(scaled).max())
