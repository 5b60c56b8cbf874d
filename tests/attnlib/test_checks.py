"""Every bad input is refused, in words that name the argument and say what came.

The rest of a message is not held: nobody promises its words.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
import torch
from rungs import RUNGS, Rung, tensor

from attnlib import numpy_dense, torch_dense

INPUTS = ("query", "key", "value", "attn_mask")
B, H, L, S, E, E_V = 2, 4, 5, 7, 3, 11


class Attend:
    """A function of a rung, called with good arguments except for those that the test replaces.

    Its arrays come as what the rung takes; `as_it_is` is for a test of that very thing.
    """

    def __init__(self, rung: Rung) -> None:
        self.rung, self.function = rung, rung.function()

    def __call__(self, *, as_it_is: bool = False, **changes: Any) -> Any:
        if not as_it_is:
            changes = {
                name: self.rung.give(change) if name in INPUTS else change
                for name, change in changes.items()
            }
        good = {
            "query": self.rung.give(np.ones((B, H, L, E))),
            "key": self.rung.give(np.ones((B, H, S, E))),
            "value": self.rung.give(np.ones((B, H, S, E_V))),
        }
        return self.function(**{**good, **changes})


def calls(*, on_tensors: bool) -> list[Any]:
    """Return a caller of each rung; the sizes of its blocks are not asked for here."""
    rungs = [rung for rung in RUNGS if rung.on_tensors is on_tensors and not rung.blocks]
    return [pytest.param(Attend(rung), id=str(rung)) for rung in rungs]


@pytest.fixture(params=calls(on_tensors=False) + calls(on_tensors=True))
def attend(request: pytest.FixtureRequest) -> Attend:
    return cast(Attend, request.param)


def test_the_good_arguments_are_taken(attend: Attend) -> None:
    attend()


on_arrays = pytest.mark.parametrize("attend", calls(on_tensors=False))
on_tensors = pytest.mark.parametrize("attend", calls(on_tensors=True))


def refuses(error: type[Exception], *parts: str) -> Any:
    """Expect an error whose message has all these parts, in this order."""
    return pytest.raises(error, match=".*".join(re.escape(part) for part in parts))


def test_the_function_with_the_log_sum_exp_refuses_the_same(attend: Attend) -> None:
    for bad in ({"key": np.ones((B, H, S, 13))}, {"scale": math.nan}, {"is_causal": 1}):
        with pytest.raises((ValueError, TypeError)) as expected:
            attend(**bad)
        with_lse = Attend(attend.rung)
        with_lse.function = attend.rung.function("scaled_dot_product_attention_with_lse")
        with refuses(type(expected.value), str(expected.value)):
            with_lse(**bad)


@on_arrays
@pytest.mark.parametrize("name", INPUTS)
def test_arrays_must_be_arrays(attend: Attend, name: str) -> None:
    for wrong, came, advice in (
        ([[1.0]], "list", "np.asarray"),
        (np.float64(1), "numpy.float64", "np.asarray"),
        (torch.ones(B, H, S, E), "Tensor", "torch"),
        (np.ma.masked_equal(np.ones((B, H, S, E)), 0), "MaskedArray", "attn_mask"),
    ):
        with refuses(TypeError, name, "numpy.ndarray", came, advice):
            attend(as_it_is=True, **{name: wrong})


@on_tensors
@pytest.mark.parametrize("name", INPUTS)
def test_tensors_must_be_tensors(attend: Attend, name: str) -> None:
    for wrong, came, advice in (
        ([[1.0]], "list", "torch.as_tensor"),
        (1.0, "float", "torch.as_tensor"),
        (np.ones((B, H, S, E)), "numpy.ndarray", "NumPy"),
        (np.float64(1), "numpy.float64", "NumPy"),
    ):
        with refuses(TypeError, name, "torch.Tensor", came, advice):
            attend(as_it_is=True, **{name: wrong})


@on_tensors
@pytest.mark.parametrize("name", INPUTS)
def test_tensors_must_be_dense(attend: Attend, name: str) -> None:
    sparse = torch.ones(S, E, dtype=torch.float64).to_sparse()
    with refuses(TypeError, name, "dense", "sparse_coo"):
        attend(as_it_is=True, **{name: sparse})
    with refuses(TypeError, name, "dense", "nested"):
        attend(
            as_it_is=True,
            **{name: torch.nested.nested_tensor([torch.ones(S, E)], layout=torch.jagged)},
        )


@on_tensors
@pytest.mark.parametrize("name", INPUTS)
def test_tensors_must_be_on_one_device(attend: Attend, name: str) -> None:
    shape = {"query": (B, H, L, E), "value": (B, H, S, E_V), "attn_mask": (L, S)}.get(
        name, (B, H, S, E)
    )
    names = "query, attn_mask" if name == "attn_mask" else "query, key, value"
    with refuses(ValueError, names, "device", f"{name} meta"):
        elsewhere = torch.ones(shape, dtype=torch.float64, device="meta")
        attend(as_it_is=True, **{name: elsewhere})


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "complex128"])
def test_inputs_must_be_floating(attend: Attend, name: str, dtype: str) -> None:
    with refuses(TypeError, name, "float16, bfloat16, float32, float64", dtype):
        attend(**{name: np.ones((B, H, S, E), dtype=dtype)})


@on_arrays
@pytest.mark.parametrize("dtype", ["object", "longdouble"])
def test_dtypes_that_only_numpy_has(attend: Attend, dtype: str) -> None:
    array = np.ones((B, H, S, E), dtype=dtype)
    with refuses(TypeError, "query", "float16", array.dtype.name):
        attend(query=array)
    with refuses(TypeError, "attn_mask", "bool", array.dtype.name):
        attend(attn_mask=np.ones((L, S), dtype=dtype))


def test_dtypes_must_agree(attend: Attend) -> None:
    for name, dtype in (("query", np.float32), ("key", np.float16), ("value", ml_dtypes.bfloat16)):
        length = L if name == "query" else S
        with refuses(
            TypeError,
            "query, key, value",
            f"{name} {np.dtype(dtype).name}",
        ):
            attend(**{name: np.ones((B, H, length, E), dtype=dtype)})


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_at_least_two_dimensions(attend: Attend, name: str) -> None:
    for shape in ((), (E,)):
        with refuses(
            ValueError,
            name,
            "2 dimensions",
            f"{name} {shape}",
        ):
            attend(**{name: np.ones(shape)})


def test_query_and_key_must_have_the_same_features(attend: Attend) -> None:
    with refuses(
        ValueError,
        "query and key",
        "query (2, 4, 5, 3), key (2, 4, 7, 13), value (2, 4, 7, 11)",
    ):
        attend(key=np.ones((B, H, S, 13)))


@pytest.mark.parametrize("length", [1, 6, 8])
def test_key_and_value_must_have_the_same_length(attend: Attend, length: int) -> None:
    with refuses(
        ValueError,
        "key and value",
        f"query (2, 4, 5, 3), key (2, 4, 7, 3), value (2, 4, {length}, 11)",
    ):
        attend(value=np.ones((B, H, length, E_V)))


@pytest.mark.parametrize("leading", [(3, H), (B, 2), (5, B, 1, 3)])
@pytest.mark.parametrize("name", ["key", "value"])
def test_leading_dimensions_must_broadcast(
    attend: Attend, name: str, leading: tuple[int, ...]
) -> None:
    shape = (*leading, S, E)
    with refuses(
        ValueError,
        "query, key, value",
        "enable_gqa=True",
        "query (2, 4, 5, 3)",
        f"{name} {shape}",
    ):
        attend(**{name: np.ones(shape)})


@pytest.mark.parametrize(("n_key_heads", "n_value_heads"), [(3, 3), (8, 8), (2, 4), (1, 2), (0, 0)])
def test_grouped_heads_must_divide(attend: Attend, n_key_heads: int, n_value_heads: int) -> None:
    key, value = np.ones((B, n_key_heads, S, E)), np.ones((B, n_value_heads, S, E_V))
    with refuses(
        ValueError,
        "heads",
        f"4 query, {n_key_heads} key and {n_value_heads} value",
        f"query (2, 4, 5, 3), key {key.shape}, value {value.shape}",
    ):
        attend(key=key, value=value, enable_gqa=True)


def test_grouped_heads_need_an_axis_of_heads(attend: Attend) -> None:
    with refuses(
        ValueError,
        "key",
        "3 dimensions",
        "(7, 3)",
    ):
        attend(key=np.ones((S, E)), enable_gqa=True)


def test_with_grouped_heads_the_rest_must_broadcast(attend: Attend) -> None:
    with refuses(ValueError, "query, key, value", "(3, 2, 7, 3)"):
        attend(key=np.ones((3, 2, S, E)), value=np.ones((3, 2, S, E_V)), enable_gqa=True)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16", "complex64"])
def test_mask_dtype(attend: Attend, dtype: str) -> None:
    with refuses(
        TypeError,
        "attn_mask",
        "bool or float32 or float64",
        dtype,
    ):
        attend(attn_mask=np.ones((L, S), dtype=dtype))


def test_a_float64_mask_is_too_wide_for_float32(attend: Attend) -> None:
    arrays = {
        name: np.ones(shape, dtype=np.float32)
        for name, shape in (("query", (L, E)), ("key", (S, E)), ("value", (S, E_V)))
    }
    with refuses(TypeError, "attn_mask", "bool or float32 for float32", "float64"):
        attend(**arrays, attn_mask=np.zeros((L, S)))


@pytest.mark.parametrize(
    "shape", [(S, L), (L, S + 1), (L,), (3, L, S), (H, B, L, S), (1, B, H, L, S), (0, S)]
)
def test_mask_must_broadcast_and_not_enlarge(attend: Attend, shape: tuple[int, ...]) -> None:
    with refuses(ValueError, "attn_mask", "(2, 4, 5, 7)", f"{shape}"):
        attend(attn_mask=np.ones(shape, dtype=bool))


def test_a_mask_beside_is_causal(attend: Attend) -> None:
    with refuses(ValueError, "attn_mask", "is_causal", "attnlib.masks.combine"):
        attend(attn_mask=np.ones((L, S), dtype=bool), is_causal=True)
    attend(attn_mask=np.ones((L, S), dtype=bool), is_causal=False)


@pytest.mark.parametrize("dropout_p", [None, "0", [0.0], 0j])
def test_dropout_must_be_a_number(attend: Attend, dropout_p: object) -> None:
    expected = "a real number" if attend.rung.drops else "0.0"
    with refuses(TypeError, "dropout_p", expected, repr(dropout_p)):
        attend(dropout_p=dropout_p)


@pytest.mark.parametrize("dropout_p", [-0.5, 1.5, math.nan, math.inf])
def test_dropout_must_be_a_probability(attend: Attend, dropout_p: float) -> None:
    expected = "between 0 and 1" if attend.rung.drops else "0.0"
    with refuses(ValueError, "dropout_p", expected, repr(dropout_p)):
        attend(dropout_p=dropout_p)


@pytest.mark.parametrize("dropout_p", [0.1, 1, True])
def test_nothing_is_dropped(attend: Attend, dropout_p: object) -> None:
    if attend.rung.drops:
        if dropout_p is True:
            with refuses(TypeError, "dropout_p", "number", "True"):
                attend(dropout_p=dropout_p)
        else:
            attend(dropout_p=dropout_p)
        return
    with refuses(
        ValueError,
        "dropout_p",
        "0.0",
        repr(dropout_p),
    ):
        attend(dropout_p=dropout_p)


@pytest.mark.parametrize("scale", [True, np.True_, "1", 1j, [1.0], np.ones(1), np.ones(())])
def test_scale_must_be_a_real_number(attend: Attend, scale: object) -> None:
    with refuses(TypeError, "scale", "number", repr(scale)):
        attend(scale=scale)


@pytest.mark.parametrize(
    "scale", [math.nan, math.inf, -math.inf, np.float32("inf"), pytest.param(10**400, id="10**400")]
)
def test_scale_must_be_finite(attend: Attend, scale: float) -> None:
    with refuses(ValueError, "scale", "finite", repr(scale)):
        attend(scale=scale)


@pytest.mark.parametrize("scale", [0, -2, 0.5, np.float16(0.5), np.int8(2), Fraction(1, 3)])
def test_scale_may_be_any_finite_real_number(attend: Attend, scale: float) -> None:
    attend(scale=scale)


@pytest.mark.parametrize("name", ["is_causal", "enable_gqa"])
@pytest.mark.parametrize("flag", [0, 1, None, "True", np.ones(1, dtype=bool)])
def test_flags_must_be_true_or_false(attend: Attend, name: str, flag: object) -> None:
    with refuses(TypeError, name, "True or False", repr(flag)):
        attend(**{name: flag})
    attend(**{name: np.True_})


@on_arrays
def test_the_order_of_bytes_does_not_matter(attend: Attend) -> None:
    query, key, value = (np.full((3, 3), x) for x in (1.0, 2.0, 3.0))
    swapped = [a.astype(a.dtype.newbyteorder()) for a in (query, key, value)]
    results = (
        attend(query=query, key=key, value=value),
        attend(query=swapped[0], key=swapped[1], value=swapped[2]),
    )
    for plain, other in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
        np.testing.assert_array_equal(plain, other)


ONES = np.ones((L, E))
STEPS = [numpy_dense, torch_dense]


@pytest.mark.parametrize("steps", STEPS, ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    ("step", "arrays", "options", "error", "message"),
    [
        ("project", [ONES, np.ones((4, 2))], {}, ValueError,
         "X (5, 3), W (4, 2)"),
        ("project", [ONES[0], np.ones((E, 2))], {}, ValueError, "X (3,), W (3, 2)"),
        ("project", [ONES, np.ones(E)], {}, ValueError, "X (5, 3), W (3,)"),
        ("project", [ONES, [[1.0]]], {}, TypeError, "W … list"),
        ("project", [ONES.astype(int), ONES], {}, TypeError,
         "X … float16 … int64"),
        ("project", [ONES, ONES.T.astype("f4")], {}, TypeError,
         "X float64, W float32"),
        ("attention_scores", [ONES, np.ones((S, 4))], {}, ValueError,
         "query (5, 3), key (7, 4)"),
        ("attention_scores", [ONES, ONES], {"scale": math.inf}, ValueError,
         "scale … finite … inf"),
        ("attention_scores", [np.ones((2, L, E)), np.ones((3, S, E))], {}, ValueError,
         "query (2, 5, 3), key (3, 7, 3)"),
        ("softmax", [[1.0]], {}, TypeError, "scores … list"),
        ("softmax", [np.arange(3)], {}, TypeError, "scores … float16 … int64"),
        ("softmax", [ONES, 2], {}, ValueError,
         "-2 and 1 … (5, 3) … 2"),
        ("softmax", [ONES, -3], {}, IndexError, "-3"),
        ("softmax", [ONES, None], {}, TypeError, "integer … None"),
        ("softmax", [ONES, (0, 1)], {}, TypeError, "integer … (0, 1)"),
        ("attention_weights", [ONES, ONES, np.ones((2, 2), dtype=bool)], {}, ValueError,
         "attn_mask … (5, 5) … (2, 2)"),
        ("attention_weights", [ONES, ONES, np.full(5, True)], {"is_causal": True}, ValueError,
         "masks.combine"),
        ("attention_weights", [ONES, ONES], {"is_causal": 1}, TypeError,
         "is_causal … True or False … 1"),
        ("self_attention", [ONES, np.ones((4, 2)), ONES, ONES], {}, ValueError,
         "X (5, 3), W_Q (4, 2)"),
        ("self_attention", [ONES, ONES.T, ONES.T, np.ones((4, 2))], {}, ValueError,
         "X (5, 3), W_V (4, 2)"),
        ("self_attention", [ONES, ONES.T, [[1.0]], ONES.T], {}, TypeError,
         "W_K … list"),
        ("self_attention", [ONES, ONES.T, ONES.T, ONES.T.astype("f4")], {}, TypeError,
         "X float64, W_Q float64 … W_V float32"),
        ("self_attention", [[[1.0]], ONES.T, ONES.T, ONES.T], {}, TypeError,
         "X … list"),
    ],
)  # fmt: skip
def test_the_steps_refuse_too(
    step: str,
    arrays: list[Any],
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    steps: Any,
) -> None:
    if steps is torch_dense:
        arrays = [tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    with refuses(error, *message.split(" … ")):
        getattr(steps, step)(*arrays, **options)
