"""Every bad input is refused, in words that say what was expected and what came."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import attnlib
from attnlib import numpy_dense

FORMS = [name for name in attnlib.implementations() if name.startswith("numpy")]
FUNCTIONS = ["scaled_dot_product_attention", "scaled_dot_product_attention_with_lse"]
B, H, L, S, E, E_V = 2, 4, 5, 7, 3, 11


@pytest.fixture(params=[(form, name) for form in FORMS for name in FUNCTIONS], ids="-".join)
def attend(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Give the function, called with good arguments except for those that the test replaces."""
    form, name = request.param
    function = getattr(importlib.import_module(f"attnlib.{form}"), name)

    def call(**changes: Any) -> Any:
        good = {
            "query": np.ones((B, H, L, E)),
            "key": np.ones((B, H, S, E)),
            "value": np.ones((B, H, S, E_V)),
        }
        return function(**{**good, **changes})

    call()
    return call


def refuses(error: type[Exception], *parts: str) -> Any:
    """Expect an error whose message has all these parts, in this order."""
    return pytest.raises(error, match=".*".join(re.escape(part) for part in parts))


@pytest.mark.parametrize("name", ["query", "key", "value", "attn_mask"])
def test_arrays_must_be_arrays(attend: Callable[..., Any], name: str) -> None:
    expected = f"{name} must be a numpy.ndarray; got"
    with refuses(TypeError, expected, "list (convert it with np.asarray)"):
        attend(**{name: [[1.0]]})
    with refuses(TypeError, expected, "numpy.float64 (convert it with np.asarray)"):
        attend(**{name: np.float64(1)})
    with refuses(TypeError, expected, "Tensor (use a torch form for tensors)"):
        attend(**{name: torch.ones(B, H, S, E)})
    with refuses(TypeError, expected, "MaskedArray (its mask would be lost; pass attn_mask)"):
        attend(**{name: np.ma.masked_equal(np.ones((B, H, S, E)), 0)})


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "complex128", "object", "longdouble"])
def test_arrays_must_be_floating(attend: Callable[..., Any], name: str, dtype: str) -> None:
    array = np.ones((B, H, S, E), dtype=dtype)
    allowed = f"{name} must have dtype float16, bfloat16, float32, float64"
    with refuses(TypeError, allowed, f"got {array.dtype.name}"):
        attend(**{name: array})


def test_dtypes_must_agree(attend: Callable[..., Any]) -> None:
    for name, dtype in (("query", np.float32), ("key", np.float16), ("value", ml_dtypes.bfloat16)):
        length = L if name == "query" else S
        with refuses(
            TypeError,
            "query, key, value must share one dtype; got",
            f"{name} {np.dtype(dtype).name}",
        ):
            attend(**{name: np.ones((B, H, length, E), dtype=dtype)})


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_at_least_two_dimensions(attend: Callable[..., Any], name: str) -> None:
    for shape in ((), (E,)):
        with refuses(
            ValueError,
            f"{name} must have at least 2 dimensions (…, length, features); got",
            f"{name} {shape}",
        ):
            attend(**{name: np.ones(shape)})


def test_query_and_key_must_have_the_same_features(attend: Callable[..., Any]) -> None:
    with refuses(
        ValueError,
        "query and key must have the same last dimension; got",
        "query (2, 4, 5, 3), key (2, 4, 7, 13), value (2, 4, 7, 11)",
    ):
        attend(key=np.ones((B, H, S, 13)))


@pytest.mark.parametrize("length", [1, 6, 8])
def test_key_and_value_must_have_the_same_length(attend: Callable[..., Any], length: int) -> None:
    with refuses(
        ValueError,
        "key and value must have the same length (dimension -2); got",
        f"query (2, 4, 5, 3), key (2, 4, 7, 3), value (2, 4, {length}, 11)",
    ):
        attend(value=np.ones((B, H, length, E_V)))


@pytest.mark.parametrize("leading", [(3, H), (B, 2), (5, B, 1, 3)])
@pytest.mark.parametrize("name", ["key", "value"])
def test_leading_dimensions_must_broadcast(
    attend: Callable[..., Any], name: str, leading: tuple[int, ...]
) -> None:
    shape = (*leading, S, E)
    with refuses(
        ValueError,
        "the leading dimensions of query, key, value must be equal or broadcast",
        "(heads in groups need enable_gqa=True); got query (2, 4, 5, 3)",
        f"{name} {shape}",
    ):
        attend(**{name: np.ones(shape)})


@pytest.mark.parametrize(("n_key_heads", "n_value_heads"), [(3, 3), (8, 8), (2, 4), (1, 2), (0, 0)])
def test_grouped_heads_must_divide(
    attend: Callable[..., Any], n_key_heads: int, n_value_heads: int
) -> None:
    key, value = np.ones((B, n_key_heads, S, E)), np.ones((B, n_value_heads, S, E_V))
    with refuses(
        ValueError,
        "with enable_gqa key and value must have the same number of heads, a divisor of query's",
        f"got 4 query, {n_key_heads} key and {n_value_heads} value heads",
        f"query (2, 4, 5, 3), key {key.shape}, value {value.shape}",
    ):
        attend(key=key, value=value, enable_gqa=True)


def test_grouped_heads_need_an_axis_of_heads(attend: Callable[..., Any]) -> None:
    with refuses(
        ValueError,
        "key must have at least 3 dimensions (…, heads, length, features); got",
        "(7, 3)",
    ):
        attend(key=np.ones((S, E)), enable_gqa=True)


def test_with_grouped_heads_the_rest_must_broadcast(attend: Callable[..., Any]) -> None:
    with refuses(ValueError, "the leading dimensions of query, key, value must be equal"):
        attend(key=np.ones((3, 2, S, E)), value=np.ones((3, 2, S, E_V)), enable_gqa=True)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16", "complex64", "object"])
def test_mask_dtype(attend: Callable[..., Any], dtype: str) -> None:
    with refuses(
        TypeError,
        "attn_mask must have dtype bool or float32 or float64 for float64 inputs",
        f"got {dtype}",
    ):
        attend(attn_mask=np.ones((L, S), dtype=dtype))


def test_a_float64_mask_is_too_wide_for_float32(attend: Callable[..., Any]) -> None:
    arrays = {
        name: np.ones(shape, dtype=np.float32)
        for name, shape in (("query", (L, E)), ("key", (S, E)), ("value", (S, E_V)))
    }
    with refuses(
        TypeError, "attn_mask must have dtype bool or float32 for float32 inputs", "got float64"
    ):
        attend(**arrays, attn_mask=np.zeros((L, S)))


@pytest.mark.parametrize(
    "shape", [(S, L), (L, S + 1), (L,), (3, L, S), (H, B, L, S), (1, B, H, L, S), (0, S)]
)
def test_mask_must_broadcast_and_not_enlarge(
    attend: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    with refuses(
        ValueError, "attn_mask must broadcast to (…, L, S) = (2, 4, 5, 7)", f"got {shape}"
    ):
        attend(attn_mask=np.ones(shape, dtype=bool))


def test_a_mask_beside_is_causal(attend: Callable[..., Any]) -> None:
    with refuses(ValueError, "give attn_mask or is_causal=True, got both", "attnlib.masks.combine"):
        attend(attn_mask=np.ones((L, S), dtype=bool), is_causal=True)
    attend(attn_mask=np.ones((L, S), dtype=bool), is_causal=False)


@pytest.mark.parametrize("dropout_p", [None, "0", [0.0]])
def test_dropout_must_be_a_number(attend: Callable[..., Any], dropout_p: object) -> None:
    with refuses(TypeError, "dropout_p must be 0.0; got", repr(dropout_p)):
        attend(dropout_p=dropout_p)


@pytest.mark.parametrize("dropout_p", [0.1, 1, -0.5, math.nan, True])
def test_nothing_is_dropped(attend: Callable[..., Any], dropout_p: object) -> None:
    with refuses(
        ValueError,
        "dropout_p must be 0.0, because this form is deterministic",
        f"got {dropout_p!r}",
    ):
        attend(dropout_p=dropout_p)


@pytest.mark.parametrize("scale", [True, np.True_, "1", 1j, [1.0], np.ones(1), np.ones(())])
def test_scale_must_be_a_real_number(attend: Callable[..., Any], scale: object) -> None:
    with refuses(TypeError, "scale must be None or a real number; got", repr(scale)):
        attend(scale=scale)


@pytest.mark.parametrize("scale", [math.nan, math.inf, -math.inf, np.float32("inf"), 10**400])
def test_scale_must_be_finite(attend: Callable[..., Any], scale: float) -> None:
    with refuses(ValueError, "scale must be finite; got", repr(scale)):
        attend(scale=scale)


@pytest.mark.parametrize("scale", [0, -2, 0.5, np.float16(0.5), np.int8(2), Fraction(1, 3)])
def test_scale_may_be_any_finite_real_number(attend: Callable[..., Any], scale: float) -> None:
    attend(scale=scale)


@pytest.mark.parametrize("name", ["is_causal", "enable_gqa"])
@pytest.mark.parametrize("flag", [0, 1, None, "True", np.ones(1, dtype=bool)])
def test_flags_must_be_true_or_false(attend: Callable[..., Any], name: str, flag: object) -> None:
    with refuses(TypeError, f"{name} must be True or False; got", repr(flag)):
        attend(**{name: flag})
    attend(**{name: np.True_})


def test_the_order_of_bytes_and_subclasses_of_arrays_do_not_matter(
    attend: Callable[..., Any],
) -> None:
    query, key, value = (np.full((3, 3), x) for x in (1.0, 2.0, 3.0))
    swapped = [a.astype(a.dtype.newbyteorder()) for a in (query, key, value)]
    results = (
        attend(query=query, key=key, value=value),
        attend(query=swapped[0], key=swapped[1], value=swapped[2]),
    )
    for plain, other in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
        np.testing.assert_array_equal(plain, other)


ONES = np.ones((L, E))


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda: numpy_dense.project(ONES, np.ones((4, 2))), ValueError,
         ["X must be (…, T, d_model) and W (d_model, d); got X (5, 3), W (4, 2)"]),
        (lambda: numpy_dense.project(ONES[0], np.ones((E, 2))), ValueError,
         ["got X (3,), W (3, 2)"]),
        (lambda: numpy_dense.project(ONES, np.ones(E)), ValueError, ["got X (5, 3), W (3,)"]),
        (lambda: numpy_dense.project(ONES, [[1.0]]), TypeError,
         ["W must be a numpy.ndarray; got list"]),
        (lambda: numpy_dense.project(ONES.astype(int), ONES), TypeError,
         ["X must have dtype float16", "got int64"]),
        (lambda: numpy_dense.project(ONES, ONES.T.astype("f4")), TypeError,
         ["X, W must share one dtype; got X float64, W float32"]),
        (lambda: numpy_dense.attention_scores(ONES, np.ones((S, 4))), ValueError,
         ["same last dimension; got query (5, 3), key (7, 4)"]),
        (lambda: numpy_dense.attention_scores(ONES, ONES, scale=math.inf), ValueError,
         ["scale must be finite; got inf"]),
        (lambda: numpy_dense.attention_scores(np.ones((2, L, E)), np.ones((3, S, E))), ValueError,
         ["the leading dimensions of query, key must", "got query (2, 5, 3), key (3, 7, 3)"]),
        (lambda: numpy_dense.softmax([1.0]), TypeError,
         ["scores must be a numpy.ndarray; got list"]),
        (lambda: numpy_dense.softmax(np.arange(3)), TypeError,
         ["scores must have dtype float16", "got int64"]),
        (lambda: numpy_dense.attention_weights(ONES, ONES, np.ones((2, 2), dtype=bool)), ValueError,
         ["attn_mask must broadcast to (…, L, S) = (5, 5); got (2, 2)"]),
        (lambda: numpy_dense.attention_weights(ONES, ONES, np.full(5, True), True), ValueError,
         ["masks.combine"]),
        (lambda: numpy_dense.attention_weights(ONES, ONES, is_causal=1), TypeError,
         ["is_causal must be True or False; got 1"]),
        (lambda: numpy_dense.self_attention(ONES, np.ones((4, 2)), ONES, ONES), ValueError,
         ["W_Q (d_model, d); got X (5, 3), W_Q (4, 2)"]),
        (lambda: numpy_dense.self_attention(ONES, ONES.T, ONES.T, np.ones((4, 2))), ValueError,
         ["W_V (d_model, d); got X (5, 3), W_V (4, 2)"]),
        (lambda: numpy_dense.self_attention(ONES, ONES.T, [[1.0]], ONES.T), TypeError,
         ["W_K must be a numpy.ndarray; got list"]),
        (lambda: numpy_dense.self_attention(ONES, ONES.T, ONES.T, ONES.T.astype("f4")), TypeError,
         ["X, W_Q, W_K, W_V must share one dtype", "W_V float32"]),
    ],
)  # fmt: skip
def test_the_steps_refuse_too(
    call: Callable[[], object], error: type[Exception], parts: list[str]
) -> None:
    with refuses(error, *parts):
        call()
