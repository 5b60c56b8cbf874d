"""Bad input is refused: by the right kind of error, which names the argument and says what came.

The other words of a message are not held: nobody promises them.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from implementations import IMPLEMENTATIONS, Implementation
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from attnlib import (
    masks,
    numpy_blockwise,
    numpy_dense,
    positions,
    torch_blockwise,
    torch_decoding,
    torch_dense,
)
from attnlib._checks import checked_count
from attnlib.torch_layers import (
    MultiHeadSelfAttention,
    SelfAttention,
    merge_heads,
    split_heads,
)

B, H, L, S, E, E_V = 2, 4, 5, 7, 3, 11
ARRAYS = ("query", "key", "value", "attn_mask")


def refuses(error: type[Exception], name: str, came: str = "") -> Any:
    """Expect an error that names this argument, and says that this came."""
    return pytest.raises(error, match=rf"(?s)\b{re.escape(name)}\b.*got .*{re.escape(came)}")


# -- every form ------------------------------------------------------------------------------------

# The sizes of blocks are asked for below.
WHOLE = [form for form in IMPLEMENTATIONS if not form.blocks]
ON_ARRAYS = pytest.mark.parametrize("form", [r for r in WHOLE if not r.on_tensors], ids=str)
ON_TENSORS = pytest.mark.parametrize("form", [r for r in WHOLE if r.on_tensors], ids=str)
every_implementation = pytest.mark.parametrize("form", WHOLE, ids=str)


def attend(form: Implementation, *, as_it_is: bool = False, **changes: Any) -> Any:
    """Call a form with good arguments but for these, whose arrays become what the form takes."""
    shapes = {"query": (B, H, L, E), "key": (B, H, S, E), "value": (B, H, S, E_V)}
    good = {name: form.give(np.ones(shape)) for name, shape in shapes.items()}
    if not as_it_is:
        changes |= {name: form.give(changes[name]) for name in ARRAYS if name in changes}
    return form.function()(**good | changes)


def ones(*shape: int, dtype: Any = "float64") -> Any:
    return np.ones(shape, dtype)


def pair(key: tuple[int, ...], value: tuple[int, ...]) -> dict[str, Any]:
    return {"key": ones(*key), "value": ones(*value), "enable_gqa": True}


# The argument that is named, what is said to have come, and the call.
OF_A_WRONG_TYPE: list[tuple[str, str, dict[str, Any]]] = [
    *((flag, repr(bad), {flag: bad}) for flag in ("is_causal", "enable_gqa") for bad in (1, None)),
    *(("scale", repr(bad), {"scale": bad}) for bad in (True, "1", ones())),
    ("dropout_p", "None", {"dropout_p": None}),
    *((name, "int64", {name: ones(B, H, S, E, dtype="int64")}) for name in ARRAYS),
    ("query, key, value", "key float16", {"key": ones(B, H, S, E, dtype="float16")}),
    ("query, key, value", "value bfloat16", {"value": ones(S, E, dtype=ml_dtypes.bfloat16)}),
    ("attn_mask", "float16", {"attn_mask": ones(L, S, dtype="float16")}),
    ("window", "3", {"window": 3}),
    ("window", "(1, 2, 3)", {"window": (1, 2, 3)}),
    ("window's right bound", "1.5", {"window": (0, 1.5)}),
]
OF_A_WRONG_VALUE: list[tuple[str, str, dict[str, Any]]] = [
    *(("scale", repr(bad), {"scale": bad}) for bad in (math.nan, -math.inf, 10**400)),
    *(("dropout_p", repr(bad), {"dropout_p": bad}) for bad in (-0.5, 1.5, math.nan)),
    *((name, f"{name} (3,)", {name: ones(E)}) for name in ("query", "key", "value")),
    ("query and key", "key (2, 4, 7, 13), value (2, 4, 7, 11)", {"key": ones(B, H, S, 13)}),
    ("key and value", "value (2, 4, 1, 11)", {"value": ones(B, H, 1, E_V)}),
    ("query, key, value", "key (2, 2, 7, 3)", {"key": ones(B, 2, S, E)}),
    *(("heads", f"4 query, {h} key and {h_v} value", pair((B, h, S, E), (B, h_v, S, E_V)))
      for h, h_v in ((3, 3), (8, 8), (1, 2), (0, 0))),
    ("key", "(7, 3)", {"key": ones(S, E), "enable_gqa": True}),
    ("query, key, value", "(3, 2, 7, 3)", pair((3, 2, S, E), (3, 2, S, E_V))),
    *(("attn_mask", str(shape), {"attn_mask": ones(*shape, dtype="bool")}) for shape in
      ((S, L), (L,), (1, B, H, L, S), (0, S))),
    ("causal_align", "'left'", {"causal_align": "left"}),
    ("causal_align", "1", {"causal_align": 1}),
    ("window's left bound", "-1", {"window": (-1, 0)}),
]


@every_implementation
def test_good_arguments_are_taken(form: Implementation) -> None:
    attend(form, is_causal=np.True_, enable_gqa=np.False_)
    for scale in (0, np.float16(0.5), np.int8(2), Fraction(1, 3)):
        attend(form, scale=scale)


@every_implementation
@pytest.mark.parametrize(
    ("error", "name", "came", "changes"),
    [*((TypeError, *row) for row in OF_A_WRONG_TYPE),
     *((ValueError, *row) for row in OF_A_WRONG_VALUE)],
)
def test_a_call_that_is_refused(
    form: Implementation, error: type[Exception], name: str, came: str, changes: dict[str, Any]
) -> None:
    with refuses(error, name, came):
        attend(form, **changes)


@every_implementation
def test_what_two_arguments_say_together(form: Implementation) -> None:
    with pytest.raises(ValueError, match=r"attn_mask or is_causal=True, got both"):
        attend(form, attn_mask=np.ones((L, S), dtype=bool), is_causal=True)
    narrow = {name: ones(5, 5, dtype="float32") for name in ("query", "key", "value")}
    with refuses(TypeError, "attn_mask", "float64"):
        attend(form, **narrow, attn_mask=np.zeros((5, 5)))


@every_implementation
def test_only_who_can_drop_does(form: Implementation) -> None:
    refused = refuses(ValueError, "dropout_p", "0.1")
    with contextlib.nullcontext() if form.drops else refused:
        attend(form, dropout_p=0.1)


@ON_ARRAYS
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_must_be_arrays(form: Implementation, name: str) -> None:
    masked = np.ma.masked_equal(np.ones((B, H, S, E)), 0)
    for bad, came in (
        (np.float64(1), "numpy.float64"), (torch.ones(S, E), "Tensor"), (masked, "MaskedArray"),
    ):
        with refuses(TypeError, name, came):
            attend(form, as_it_is=True, **{name: bad})


@ON_TENSORS
@pytest.mark.parametrize("name", ARRAYS)
def test_tensors_must_be_dense_tensors_on_one_device(form: Implementation, name: str) -> None:
    wide = torch.ones(S, E, dtype=torch.float64)
    nested = torch.nested.nested_tensor([wide], layout=torch.jagged)
    for bad, came in (
        (1.0, "float"), (np.ones((S, E)), "numpy.ndarray"), (wide.to_sparse(), "sparse_coo"),
        (nested, "nested"),
    ):
        with refuses(TypeError, name, came):
            attend(form, as_it_is=True, **{name: bad})
    shape = {"query": (L, E), "value": (S, E_V), "attn_mask": (L, S)}.get(name, (S, E))
    with refuses(ValueError, name, f"{name} meta"):
        attend(form, as_it_is=True, **{name: wide.new_ones(shape, device="meta")})


@ON_ARRAYS
def test_the_order_of_bytes_is_no_part_of_a_dtype_s_name(form: Implementation) -> None:
    given = [np.full((3, 3), x, np.dtype("f4").newbyteorder()) for x in (1.0, 2.0, 3.0)]
    np.testing.assert_array_equal(form.function()(*given), given[2])


# -- everything else -------------------------------------------------------------------------------

ONES, TENSOR = np.ones((2, 4)), torch.ones(2, 4)
ALIKE, ALIKE_TENSORS = (dict.fromkeys(("query", "key", "value"), x) for x in (ONES, TENSOR))
IDS, MASK = torch.tensor([1, 2]), torch.ones(2, 2, dtype=torch.bool)
META = torch.ones(2, 4, device="meta")
ONE, SEVERAL = SelfAttention(4), MultiHeadSelfAttention(4, 2)

COUNTS, NO_COUNTS = {"n_queries": 2, "n_keys": 3}, {"n_queries": [2.0], "n_keys": [True]}
BELOW, NO_ALIGN = {"n_queries": [-1], "n_keys": [-1]}, {"align": ["left", np.zeros(2)]}
NO_LIKE = {"like": [[1.0]]}
NO_LENGTHS = {"lengths": [[1.5], np.ma.array([1]), torch.tensor([1.5])]}
WRONG_LENGTHS = {"lengths": [[[1]], [1, [2]], [4], [-1]]}
NO_SIZES = {"bias": [1], "is_causal": [None], "max_seq_len": [4.0], "d_model": [4.0]}
TOO_SMALL = {"max_seq_len": [0], "d_model": [0]}
PAIR, PAIR_OF_TENSORS = ({"query": x, "key": x} for x in (ONES, TENSOR))
MATRICES = dict(X=ONES, W_Q=ONES.T, W_K=ONES.T, W_V=ONES.T)
OF_TENSORS = dict(X=TENSOR, W_Q=TENSOR.mT, W_K=TENSOR.mT, W_V=TENSOR.mT)

# A function, good arguments, and what is no good in the place of some of them.
Refused = list[tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]]
WRONG_TYPES: Refused = [
    (masks.causal, COUNTS, NO_COUNTS | NO_LIKE),
    (masks.window, COUNTS | {"left": 1, "right": 1},
     {"n_keys": [None], "left": [1.5], "right": ["1"]}),
    (masks.padding, {"lengths": [1], "n_keys": 3}, NO_LENGTHS | {"n_keys": [2.0]}),
    (masks.prefix, {"lengths": [1], **COUNTS}, {"lengths": [True]}),
    (masks.document, {"ids": [1, 2]}, {"ids": [[1.5], MASK], "key_ids": [[True], IDS]}),
    (masks.document, {"ids": IDS}, {"key_ids": [[1]]}),
    (masks.alibi, {"n_heads": 2, **COUNTS}, {"n_heads": [None]}),
    (positions.sinusoidal, {"n_tokens": 2, "d_model": 4},
     NO_LIKE | {"n_tokens": [2.0], "d_model": [None], "base": ["7"]}),
    (positions.rotary, {"x": ONES},
     {"x": [[[1.0]], ONES.astype(int), np.ma.ones((2, 4))], "base": ["7"], "interleaved": [0],
      "positions": [["a", "b"], [True, False], np.ma.ones(2), torch.ones(2) > 0]}),
    (positions.rotary, {"x": TENSOR}, {"x": [TENSOR.to(torch.complex64)]}),
    (numpy_dense.project, {"X": ONES, "W": ONES.T},
     {"X": [[[1.0]], ONES.astype("f4")], "W": [TENSOR]}),
    (torch_dense.project, {"X": TENSOR, "W": TENSOR.mT}, {"X": [TENSOR.double()], "W": [ONES]}),
    (numpy_dense.attention_scores, PAIR, {"scale": ["1"], "key": [TENSOR]}),
    (torch_dense.attention_scores, PAIR_OF_TENSORS, {"scale": ["1"]}),
    (numpy_dense.attention_weights, PAIR, {"is_causal": [1], "attn_mask": [MASK]}),
    (torch_dense.attention_weights, PAIR_OF_TENSORS, {"is_causal": [1]}),
    (numpy_dense.softmax, {"scores": ONES}, {"scores": [[1.0], np.arange(3)], "axis": [None]}),
    (torch_dense.softmax, {"scores": TENSOR}, {"scores": [ONES, TENSOR.int()], "dim": [0.0]}),
    (numpy_dense.self_attention, MATRICES, {"X": [[[1.0]]], "W_K": [[[1.0]]]}),
    (torch_dense.self_attention, OF_TENSORS, {"X": [ONES], "W_K": [ONES]}),
    (numpy_blockwise.scaled_dot_product_attention, ALIKE, {"block_size": ["x", True]}),
    (torch_blockwise.scaled_dot_product_attention, ALIKE_TENSORS,
     {"block_size_q": [1.0], "block_size_k": ["2"]}),
    (torch_blockwise.block_sizes, PAIR_OF_TENSORS,
     {"is_causal": [1], "key": [[1.0]]}),
    (split_heads, {"x": TENSOR, "n_heads": 2}, {"x": [ONES], "n_heads": [2.0]}),
    (merge_heads, {}, {"x": [ONES]}),
    (SelfAttention, {"d_model": 4}, NO_SIZES | {"d_k": [True], "d_v": ["2"]}),
    (MultiHeadSelfAttention, {"d_model": 4, "n_heads": 2},
     NO_SIZES | {"n_heads": [2.0], "n_kv_heads": [1.0]}),
    (MultiHeadSelfAttention.from_torch, {}, {"mha": [nn.Linear(4, 4)]}),
    *((layer.forward, {"X": TENSOR[None]},
       {"X": [ONES, TENSOR.double()], "lengths": [[1.5]], "attn_mask": [ONES, MASK.long()]})
      for layer in (ONE, SEVERAL)),
]
WRONG_VALUES: Refused = [
    (masks.causal, COUNTS, BELOW | NO_ALIGN),
    (masks.window, COUNTS | {"left": 1, "right": 1}, {"left": [-1], "right": [-1]}),
    (masks.padding, {"lengths": [1], "n_keys": 3},
     {"lengths": [*WRONG_LENGTHS["lengths"], 3], "n_keys": [-1], "side": ["top", ["left"]]}),
    (masks.prefix, {"lengths": [1], **COUNTS}, WRONG_LENGTHS),
    (masks.document, {"ids": [1, 2]}, {"ids": [3, [[1], [2, 3]]], "key_ids": [[[1]]]}),
    (masks.document, {"ids": [[1, 2]]}, {"key_ids": [[1], [[1, 2, 3]] * 2]}),
    (masks.document, {"ids": IDS}, {"key_ids": [torch.tensor([1], device="meta")]}),
    (masks.alibi, {"n_heads": 2, **COUNTS}, {"n_heads": [0]}),
    (positions.sinusoidal, {"n_tokens": 2, "d_model": 4},
     {"n_tokens": [-1], "d_model": [3], "base": [0, math.inf, math.nan, 10**400], "start": [-1]}),
    (positions.rotary, {"x": ONES},
     {"x": [np.ones(4), torch.ones(2, 5)], "base": [0],
      "positions": [[1, 2, 3], 1, torch.ones(1, 2), [[1], 2]]}),
    (positions.rotary, {"x": np.ones((2, 2, 3, 4))}, {"positions": [[[0, 1, 2]] * 3]}),
    (numpy_dense.project, {"X": ONES, "W": ONES.T}, {"X": [ONES.T, ONES[0]]}),
    (numpy_dense.project, {"W": ONES.T[0]}, {"X": [ONES]}),
    (torch_dense.project, {"X": TENSOR, "W": TENSOR.mT}, {"X": [TENSOR.mT]}),
    (numpy_dense.attention_scores, PAIR, {"query": [ONES.T]}),
    (torch_dense.attention_scores, PAIR_OF_TENSORS, {"query": [TENSOR.mT]}),
    (numpy_dense.attention_weights, PAIR, {"attn_mask": [np.ones((3, 3), bool)]}),
    (torch_dense.attention_weights, PAIR_OF_TENSORS, {"attn_mask": [torch.ones(3, 3) > 0]}),
    (numpy_dense.softmax, {"scores": ONES}, {"axis": [2, -3]}),
    (torch_dense.softmax, {"scores": TENSOR}, {"dim": [2]}),
    (numpy_dense.self_attention, MATRICES, {"X": [ONES.T]}),
    (torch_dense.self_attention, OF_TENSORS | {"W_K": TENSOR}, {"X": [TENSOR]}),
    (numpy_blockwise.scaled_dot_product_attention, ALIKE, {"block_size": [0]}),
    (torch_blockwise.scaled_dot_product_attention, ALIKE_TENSORS,
     {"block_size_q": [0], "block_size_k": [0]}),
    (torch_decoding.scaled_dot_product_attention, ALIKE_TENSORS, {"block_size_k": [0]}),
    (split_heads, {"x": TENSOR, "n_heads": 2}, {"x": [torch.ones(4)], "n_heads": [3, 0, -2]}),
    (merge_heads, {}, {"x": [TENSOR]}),
    (SelfAttention, {"d_model": 4}, TOO_SMALL | {"d_k": [0], "d_v": [-1]}),
    (MultiHeadSelfAttention, {"d_model": 4, "n_heads": 2},
     TOO_SMALL | {"n_heads": [0, 3], "n_kv_heads": [0, 3, 4], "positions": ["alibi"]}),
    (MultiHeadSelfAttention, {"n_heads": 1, "positions": "sinusoidal"}, {"d_model": [3]}),
    (MultiHeadSelfAttention, {"n_heads": 2, "positions": "rotary"}, {"d_model": [6]}),
    (MultiHeadSelfAttention, {"d_model": 4, "n_heads": 2, "positions": "learned"},
     {"max_seq_len": [None]}),
    (MultiHeadSelfAttention.from_torch, {},
     {"mha": [nn.MultiheadAttention(4, 2, kdim=3), nn.MultiheadAttention(4, 2, dropout=0.5)]}),
    (SelfAttention(4, max_seq_len=1).forward, {}, {"X": [TENSOR]}),
    *((layer.forward, {"X": TENSOR[None]},
       {"X": [torch.ones(4), torch.ones(2, 3), META], "attn_mask": [torch.ones(3, 3)],
        "lengths": [[4], [1, 2], 3]}) for layer in (ONE, SEVERAL)),
    # Named as one mask, before lengths make another one of it.
    (ONE.forward, {"X": TENSOR[None], "lengths": [2]}, {"attn_mask": [torch.ones(3, 3) > 0]}),
    *((ONE.forward, {"X": X}, {"lengths": [[1]]}) for X in (TENSOR, TENSOR[None, None])),
]


@pytest.mark.parametrize(
    ("error", "function", "given", "name"),
    [
        pytest.param(error, f, good | {name: bad}, name, id=f"{f.__qualname__}-{name}-{n}")
        for error, table in ((TypeError, WRONG_TYPES), (ValueError, WRONG_VALUES))
        for f, good, wrong in table
        for name, values in wrong.items()
        for n, bad in enumerate(values)
    ],
)
def test_an_argument_that_is_no_good(
    error: type[Exception], function: Callable[..., Any], given: dict[str, Any], name: str
) -> None:
    """The words begin with the argument, and say what came."""
    with pytest.raises(error) as caught:
        function(**given)
    said = str(caught.value)
    assert re.match(rf"(the last dimension of )?{name}\b.*got ", said, re.DOTALL), said


@pytest.mark.parametrize(
    ("given", "error", "came"),
    [
        ((), TypeError, "none"),
        (([True],), TypeError, "mask 0 must be .*list"),
        ((np.ones(2, bool), np.ones(2, int)), TypeError, "mask 1 must be .*int64"),
        ((MASK, MASK.int()), TypeError, "mask 1 must be .*int32"),
        ((MASK, np.ones(2, bool)), TypeError, "mask 1, ndarray"),
        ((np.ones((2, 2)), np.ones((3, 3))), ValueError, r"\(2, 2\), \(3, 3\)"),
        ((MASK, MASK.to("meta")), ValueError, "cpu, meta"),
    ],
)
def test_masks_that_cannot_be_combined(given: Any, error: type[Exception], came: str) -> None:
    with pytest.raises(error, match=came):
        masks.combine(*given)


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_torch_layers_that_compute_something_else(option: str) -> None:
    with pytest.raises(ValueError, match=rf"^mha must .*{option}"):
        MultiHeadSelfAttention.from_torch(nn.MultiheadAttention(4, 2, **{option: True}))


def test_the_device_of_a_mask_beside_x() -> None:
    for layer in (ONE, SEVERAL):
        with pytest.raises(ValueError, match=r"^X, attn_mask must .*; got X cpu, attn_mask meta"):
            layer(TENSOR, MASK.to("meta"))


def test_the_size_of_a_traced_program_is_a_count() -> None:
    size = ShapeEnv().create_unbacked_symint()
    assert checked_count("n_keys", size) is size
