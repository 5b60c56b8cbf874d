"""What every form of `attnlib.implementations()` promises beyond the cases of `test_cases`.

There the truth is the token-by-token form in float64. That form itself is held by hand-made
numbers in test_numpy_tokenwise, by sums in longdouble in test_fuzz, and by plain torch here.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from implementations import IMPLEMENTATIONS, Implementation, every_implementation, on
from inputs import E_V, B, E, H, L, S, drawn, some
from tolerance import assert_close, forward_size
from torch import Tensor

from attnlib import numpy_tokenwise

WHOLE = [form for form in IMPLEMENTATIONS if not form.blocks]
ON_ARRAYS = on(form for form in IMPLEMENTATIONS if not form.on_tensors)
# The kernel and the ring run on a GPU and on several devices: their own tests ask these.
ON_CPU = on(form for form in WHOLE if form.on_tensors and not form.takes_long)


@pytest.mark.parametrize("form", WHOLE, ids=str)
def test_the_signature_is_the_one_of_torch(form: Implementation) -> None:
    for suffix in ("", "_with_lse"):
        function = form.function(f"scaled_dot_product_attention{suffix}")
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:8] == [
            "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
        ]
        assert [p.default for p in parameters.values()][3:8] == [None, 0.0, False, None, False]
        for name, parameter in list(parameters.items())[6:]:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            known = name in ("scale", "enable_gqa", "causal_align", "window")
            assert known or name.startswith("block_size") or name in ("n_devices", "balance")


@pytest.mark.parametrize("form", WHOLE, ids=str)
def test_arguments_are_described_once_in_each_docstring(form: Implementation) -> None:
    said = inspect.getdoc(form.function()) or ""
    assert said.startswith("Return ")
    for section in ("Args:", "Shapes:", "Raises:", "Source:", "Example:"):
        assert said.count(f"\n{section}\n") == 1
    assert said.index("Example:") > said.index("Raises:")


@pytest.mark.parametrize("form", WHOLE, ids=str)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": some((L, S))}])
def test_both_functions_give_one_output(form: Implementation, options: dict[str, Any]) -> None:
    arrays = drawn((H, L, E), (H, S, E), (H, S, E_V))
    output, lse = form.with_lse(*arrays, **options)
    assert form(*arrays, **options).tobytes() == output.tobytes()
    assert lse.shape == output.shape[:-1]


# -- numbers ---------------------------------------------------------------------------------------


@on(IMPLEMENTATIONS, dtypes=["float16", "float32"])
@pytest.mark.parametrize("scale", [1e39, -1e300])
def test_a_scale_beyond_the_dtype_is_no_nan(form: Implementation, dtype: str, scale: float) -> None:
    query = np.array([[0.0], [1.0]], dtype)
    key, value = np.array([[1.0], [2.0], [2.0]], dtype), np.array([[0.0], [3.0], [5.0]], dtype)
    # The query 0 sees all keys alike; the other picks the largest keys, or the smallest.
    expected = np.array([[8 / 3], [4.0 if scale > 0 else 0.0]])
    size = forward_size(query, key, value, scale=1.0)
    peer = expected.astype(dtype)
    assert_close(form(query, key, value, scale=scale), expected, dtype=dtype, size=size, peer=peer)


@every_implementation
@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e38), ("float64", -1e308)])
def test_a_large_scale_does_not_overflow_on_the_way(
    form: Implementation, dtype: str, scale: float
) -> None:
    """q · scale is beyond the dtype, and the score is not."""
    query, value = np.array([[10.0]], dtype), np.array([[3.0], [5.0]], dtype)
    key = np.array([[0.0], [1e7 / scale]], dtype)
    np.testing.assert_array_equal(form(query, key, value, scale=scale), [[5.0]])


@every_implementation
def test_a_tiny_scale_does_not_vanish_on_the_way(form: Implementation) -> None:
    """The scale is 0 in float32, the product of query and key ∞; the score is neither."""
    query, key = np.array([[1e25]], "float32"), np.array([[1e25], [-1e25]], "float32")
    output = form(query, key, np.array([[1.0], [2.0]], "float32"), scale=1e-50)
    np.testing.assert_allclose(output, [[1 + 1 / (1 + np.e**2)]], rtol=1e-6)


@every_implementation
def test_the_lse_keeps_its_dtype_at_any_scale(form: Implementation) -> None:
    ones = np.ones((2, 3), np.float32)
    for scale in (0.0, 0.5, 1e39):
        _, lse = form.with_lse(ones, ones, ones, scale=scale)
        assert lse.dtype == ("float64" if form.name == "numpy_tokenwise" else "float32")


@on(IMPLEMENTATIONS, dtypes=["float32", "float64"])
def test_the_mean_of_one_low_number_is_itself(form: Implementation, dtype: str) -> None:
    """It may lie within a thousandth of the lowest number; with NumPy it may be that number."""
    lowest = np.finfo(dtype).min * (0.999 if form.on_tensors else 1)
    query, key = drawn((L, E), (S, E), dtype=dtype)
    value = np.full((S, 1), lowest, dtype)
    np.testing.assert_allclose(form(query, key, value), lowest, rtol=1e-5)


@on(IMPLEMENTATIONS, dtypes=["float32", "float64"])
def test_an_infinite_value_that_is_removed_does_not_lift_a_mean(
    form: Implementation, dtype: str
) -> None:
    """Beside the largest number; for most forms on tensors within a thousandth of it."""
    clamps = not form.on_tensors or form.name == "torch_blockwise"
    largest = np.finfo(dtype).max * (1 if clamps else 0.999)
    query, key = drawn((L, E), (19, E), dtype=dtype)
    value = np.full((19, 2), largest, dtype)
    value[-1] = np.inf, -np.inf
    kept = np.arange(19) < np.full((L, 1), 18)
    np.testing.assert_allclose(form(query, key, value, kept), largest, rtol=1e-5)
    if not form.multiplies_removed_values:
        kept[0] = True
        output = form(query, key, value, kept)
        np.testing.assert_array_equal(output[0], [np.inf, -np.inf])
        np.testing.assert_allclose(output[1:], largest, rtol=1e-5)


@every_implementation
def test_only_scores_of_minus_infinity_give_zeros(form: Implementation) -> None:
    query, key, value = drawn((L, E), (S, E), (S, E_V))
    query[1], key[:] = np.inf, -np.abs(key)
    output, lse = form.with_lse(query, key, value)
    assert np.all(output[1] == 0) and lse[1] == -np.inf
    assert np.isfinite(output).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "scale": 0.9},
        {"attn_mask": some((H, L, S))},
        {"attn_mask": drawn((B, 1, 1, S))[0]},
        {"enable_gqa": True},
    ],
)
def test_plain_torch_agrees_with_the_definition(options: dict[str, Any]) -> None:
    n_heads = 2 * H if "enable_gqa" in options else H
    query, key, value = drawn((B, n_heads, L, E), (B, H, S, E), (B, H, S, E_V))
    output = numpy_tokenwise.scaled_dot_product_attention(query, key, value, **options)
    size = forward_size(query, key, value, **options)
    assert_close(
        output, plain_torch.plain(query, key, value, **options), dtype="float64", size=size
    )


@ON_ARRAYS
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_signalling_nan_comes_out_and_warns_nobody(form: Implementation, place: int) -> None:
    arrays = drawn((2, 3), (2, 3), (2, 3), dtype="float32")
    arrays[place] = np.full((2, 3), 0x7F800001, dtype=np.uint32).view(np.float32)
    assert np.isnan(form(*arrays)).all()


@ON_ARRAYS
def test_half_a_smallest_number_warns_nobody(form: Implementation) -> None:
    value = np.array([[6e-8], [0.0]], np.float16)  # 6e-8 / 2 is below every float16
    zeros = np.zeros((2, 1), np.float16)
    assert form(zeros, zeros, value).max() <= 6e-8


@ON_ARRAYS
def test_a_matrix_is_taken_for_an_array(form: Implementation) -> None:
    arrays = drawn((2, 3), (4, 3), (4, 5))
    output = form(*(x.view(np.matrix) for x in arrays))
    assert type(output) is np.ndarray
    np.testing.assert_array_equal(output, form(*arrays))


# -- citizens of torch -----------------------------------------------------------------------------


def case(name: str) -> tuple[list[Tensor], dict[str, Any]]:
    """Return inputs and options; the masks have an empty row, and a key that no row sees."""
    heads = 1 if name == "grouped" else H
    query, key, value, added = drawn((B, H, L, E), (B, heads, S, E), (B, heads, S, E_V), (L, S))
    kept = some((L, S))
    kept[2] = kept[:, 3] = False
    options: dict[str, Any] = {
        "causal": {"is_causal": True},
        "floating": {"attn_mask": torch.tensor(np.where(kept, added, -np.inf))},
        "grouped": {"attn_mask": torch.tensor(kept), "enable_gqa": True},
    }[name]
    return [torch.tensor(x) for x in (query, key, value)], options


@ON_CPU
def test_compiled_whole(form: Implementation) -> None:
    asked = [case(name) for name in ("causal", "floating", "grouped")]
    leaves = [x.requires_grad_() for tensors, _ in asked for x in tensors]
    leaves.append(asked[1][1]["attn_mask"].requires_grad_())
    function = form.function("scaled_dot_product_attention_with_lse")

    def total() -> Tensor:
        results = [x for tensors, options in asked for x in function(*tensors, **options)]
        return torch.stack([x.masked_fill(x == -math.inf, 0).sin().sum() for x in results])

    torch.compiler.reset()
    compiled: Any = torch.compile(total, fullgraph=True, backend="aot_eager")
    found = [f() for f in (compiled, total)]
    torch.testing.assert_close(*found)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), leaves) for x in found))


@ON_CPU
@pytest.mark.parametrize("name", ["causal", "floating", "grouped"])
def test_shapes_can_be_had_without_numbers(form: Implementation, name: str) -> None:
    tensors, options = case(name)
    dtype = torch.bfloat16
    options = {k: v.to("meta") if isinstance(v, Tensor) else v for k, v in options.items()}
    if name == "floating":
        options["attn_mask"] = options["attn_mask"].to(dtype)
    leaves = [x.to("meta", dtype).requires_grad_() for x in tensors]
    output, lse = form.function("scaled_dot_product_attention_with_lse")(*leaves, **options)
    assert (output.shape, lse.shape) == ((B, H, L, E_V), (B, H, L))
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert output.device.type == "meta"
    found = torch.autograd.grad(output.sum(), leaves)
    assert [x.shape for x in found] == [x.shape for x in leaves]


@ON_CPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_that_of_torch(form: Implementation, dtype: torch.dtype) -> None:
    """What is narrower than float64 is cast, the mask too, wherever it stands.

    A backward under autocast is autograd's own, where there is no other.
    """
    query, key, value = (x.float().requires_grad_() for x in case("causal")[0])
    mask, wide = torch.tensor(drawn((L, S))[0]).float(), case("causal")[0]
    attend = form.function()
    with torch.autocast("cpu", dtype):
        output = attend(query, key.bfloat16(), value=value, attn_mask=mask)
        found = torch.autograd.grad(output.sum(), (query, value))
        assert attend(*wide).dtype == torch.float64
    rounded = [x.detach().to(dtype).requires_grad_() for x in (query, key.bfloat16(), value)]
    truth = attend(*rounded, mask.to(dtype))
    assert output.dtype == dtype and torch.equal(output, truth)
    if not form.is_differentiated_by_autograd:
        expected = torch.autograd.grad(truth.sum(), (rounded[0], rounded[2]))
        assert all(torch.equal(a, b.float()) for a, b in zip(found, expected, strict=True))
