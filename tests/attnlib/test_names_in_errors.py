"""An error names the argument that is wrong, first, and says what came."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from attnlib import (
    masks,
    numpy_blockwise,
    numpy_dense,
    positions,
    torch_blockwise,
    torch_dense,
    torch_layers,
)
from attnlib._checks import checked_count

ONES, TENSOR = np.ones((2, 4)), torch.ones(2, 4)
QKV = (TENSOR, TENSOR, TENSOR)
LAYER, HEADS = torch_layers.SelfAttention(4), torch_layers.MultiHeadSelfAttention(4, 2)


def padded(lengths: Any) -> Any:
    return masks.padding(lengths, 2)


def prefixed(lengths: Any) -> Any:
    return masks.prefix(lengths, 2)


def biased(n_heads: Any) -> Any:
    return masks.alibi(n_heads, 2)


def window(n_queries: Any = 2, n_keys: Any = 3, left: Any = 1, right: Any = 1) -> Any:
    return masks.window(n_queries, n_keys, left, right)


def table(n_tokens: Any) -> Any:
    return positions.sinusoidal(n_tokens, 4)


def in_two(x: Any) -> Any:
    return torch_layers.split_heads(x, 2)


def projected(X: Any) -> Any:
    return numpy_dense.project(X, ONES.T)


def attended(X: Any) -> Any:
    return numpy_dense.self_attention(X, ONES.T, ONES.T, ONES.T)


def torch_projected(X: Any) -> Any:
    return torch_dense.project(X, X)


def several(d_model: Any) -> Any:
    return torch_layers.MultiHeadSelfAttention(d_model, 2)


def bad(function: Callable[..., Any], *given: Any, **wrong: Any) -> Any:
    """One call: what is given is right, and `wrong` holds the one argument that is not."""
    ((name, value),) = wrong.items()
    return pytest.param(function, given, name, value, id=f"{function.__qualname__}-{name}-{value}")


WRONG_TYPE = [
    bad(masks.causal, n_queries=2.0),
    bad(masks.causal, 2, n_keys="3"),
    bad(masks.causal, 2, n_keys=True),
    bad(masks.causal, 2, like=[1.0]),
    bad(masks.padding, [1, 2], n_keys=2.0),
    bad(padded, lengths=[1.5]),
    bad(masks.document, ids=[1.5]),
    bad(masks.document, [1, 2], key_ids=[True]),
    bad(masks.document, [1, 2], key_ids=torch.tensor([1, 2])),
    bad(prefixed, lengths=1.5),
    bad(masks.prefix, 1, n_queries=2.0),
    bad(masks.prefix, 1, 2, n_keys=True),
    bad(biased, n_heads=None),
    bad(masks.alibi, 2, n_queries=2.0),
    bad(masks.alibi, 2, 3, n_keys="3"),
    bad(masks.alibi, 2, 3, like=[1.0]),
    bad(padded, lengths=torch.tensor([1.5])),
    bad(window, n_queries=None),
    bad(window, 2, n_keys=2.0),
    bad(window, 2, 3, left=1.5),
    bad(window, 2, 3, right="1"),
    bad(table, n_tokens=2.0),
    bad(positions.sinusoidal, 2, d_model=None),
    bad(positions.sinusoidal, 2, 4, base="1"),
    bad(positions.sinusoidal, 2, 4, like=3),
    bad(positions.rotary, x=[[1.0, 2.0]]),
    bad(positions.rotary, x=np.ones((2, 2), int)),
    bad(positions.rotary, ONES, positions=["a", "b"]),
    bad(positions.rotary, ONES, base=True),
    bad(positions.rotary, ONES, interleaved=0),
    bad(in_two, x=ONES),
    bad(torch_layers.split_heads, TENSOR, n_heads=2.0),
    bad(torch_layers.merge_heads, x=[1.0]),
    bad(torch_layers.SelfAttention, d_model=4.0),
    bad(torch_layers.SelfAttention, 4, d_k=True),
    bad(torch_layers.SelfAttention, 4, d_v="2"),
    bad(torch_layers.SelfAttention, 4, bias=1),
    bad(torch_layers.SelfAttention, 4, is_causal=None),
    bad(torch_layers.SelfAttention, 4, max_seq_len=4.0),
    bad(several, d_model=4.0),
    bad(torch_layers.MultiHeadSelfAttention, 4, 2, max_seq_len=4.0),
    bad(torch_layers.MultiHeadSelfAttention, 4, n_heads=2.0),
    bad(torch_layers.MultiHeadSelfAttention, 4, 2, n_kv_heads=1.0),
    bad(LAYER.forward, X=[[1.0]]),
    bad(LAYER.forward, TENSOR, attn_mask=[[True]]),
    bad(HEADS.forward, X=ONES),
    bad(HEADS.forward, TENSOR, attn_mask=ONES),
    bad(torch_blockwise.scaled_dot_product_attention, *QKV, block_size_q=2.0),
    bad(torch_blockwise.scaled_dot_product_attention, *QKV, block_size_k="2"),
    bad(numpy_blockwise.scaled_dot_product_attention, *[ONES] * 3, block_size=2.0),
    bad(torch_dense.softmax, scores=ONES),
    bad(torch_dense.project, TENSOR, W=ONES),
    bad(torch_projected, X=[[1.0]]),
    bad(projected, X=[[1.0]]),
    bad(attended, X=[[1.0]]),
    bad(numpy_dense.attention_scores, ONES, ONES, scale="1"),
    bad(torch_dense.softmax, TENSOR, dim=0.0),
]  # fmt: skip
WRONG_VALUE = [
    bad(masks.causal, n_queries=-1),
    bad(masks.causal, 2, n_keys=-1),
    bad(masks.causal, 2, align="middle"),
    bad(masks.padding, [1, 2], n_keys=-1),
    bad(masks.padding, [1, 2], 2, side="top"),
    bad(masks.document, ids=1),
    bad(masks.document, [1, 2], key_ids=[[1, 2]]),
    bad(masks.document, torch.tensor([1]), key_ids=torch.tensor([1], device="meta")),
    bad(prefixed, lengths=[[1]]),
    bad(prefixed, lengths=3),
    bad(masks.prefix, 0, n_queries=-1),
    bad(masks.prefix, 0, 2, n_keys=-1),
    bad(masks.prefix, 0, 2, align="top"),
    bad(biased, n_heads=0),
    bad(masks.alibi, 2, n_queries=-1),
    bad(masks.alibi, 2, 3, n_keys=-1),
    bad(masks.alibi, 2, 3, align="top"),
    bad(padded, lengths=[[1]]),
    bad(padded, lengths=[3]),
    bad(padded, lengths=torch.ones(1, 1, dtype=torch.int64)),
    bad(window, n_queries=-1),
    bad(window, 2, n_keys=-1),
    bad(window, 2, 3, left=-1),
    bad(window, 2, 3, right=-1),
    bad(table, n_tokens=-1),
    bad(positions.sinusoidal, 2, d_model=-2),
    bad(positions.sinusoidal, 2, d_model=3),
    bad(positions.sinusoidal, 2, 4, base=0),
    bad(positions.sinusoidal, 2, 4, base=math.inf),
    bad(positions.rotary, x=np.ones(4)),
    bad(positions.rotary, ONES, positions=[1, 2, 3]),
    bad(positions.rotary, ONES, base=-1.0),
    bad(in_two, x=torch.ones(4)),
    bad(torch_layers.split_heads, TENSOR, n_heads=3),
    bad(torch_layers.split_heads, TENSOR, n_heads=0),
    bad(torch_layers.merge_heads, x=TENSOR),
    bad(torch_layers.SelfAttention, d_model=0),
    bad(torch_layers.SelfAttention, 4, d_k=0),
    bad(torch_layers.SelfAttention, 4, d_v=-1),
    bad(torch_layers.SelfAttention, 4, max_seq_len=0),
    bad(several, d_model=0),
    bad(torch_layers.MultiHeadSelfAttention, 4, 2, max_seq_len=0),
    bad(torch_layers.MultiHeadSelfAttention, 4, n_heads=3),
    bad(torch_layers.MultiHeadSelfAttention, 4, n_heads=0),
    bad(torch_layers.MultiHeadSelfAttention, 4, 2, n_kv_heads=3),
    bad(torch_layers.MultiHeadSelfAttention, 4, 2, positions="absolute"),
    bad(LAYER.forward, X=torch.ones(4)),
    bad(LAYER.forward, X=torch.ones(2, 3)),
    bad(LAYER.forward, X=torch.ones(2, 4, device="meta")),
    bad(LAYER.forward, TENSOR, attn_mask=torch.ones(3, 3)),
    bad(LAYER.forward, TENSOR, lengths=[2]),
    bad(HEADS.forward, TENSOR[None], lengths=[3]),
    bad(HEADS.forward, TENSOR[None], lengths=[1, 2]),
    bad(torch_blockwise.scaled_dot_product_attention, *QKV, block_size_q=0),
    bad(torch_blockwise.scaled_dot_product_attention, *QKV, block_size_k=-1),
    bad(numpy_blockwise.scaled_dot_product_attention, *[ONES] * 3, block_size=0),
    bad(torch_dense.softmax, TENSOR, dim=2),
    bad(numpy_dense.softmax, np.ones(3), axis=1),
    bad(torch_dense.softmax, torch.ones(3), dim=-2),
]  # fmt: skip


def check(
    function: Callable[..., Any], given: Any, name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        function(*given, **{name: value})
    assert re.match(rf"{name}\b", str(caught.value)), str(caught.value)
    assert "got " in str(caught.value)


@pytest.mark.parametrize(("function", "given", "name", "value"), WRONG_TYPE)
def test_a_wrong_type(function: Callable[..., Any], given: Any, name: str, value: Any) -> None:
    check(function, given, name, value, TypeError)


@pytest.mark.parametrize(("function", "given", "name", "value"), WRONG_VALUE)
def test_a_wrong_value(function: Callable[..., Any], given: Any, name: str, value: Any) -> None:
    check(function, given, name, value, ValueError)


@pytest.mark.parametrize("name", ["is_causal", "enable_gqa"])
@pytest.mark.parametrize("module", [torch_dense, torch_blockwise, numpy_blockwise])
def test_a_flag(module: Any, name: str) -> None:
    given = [ONES] * 3 if module is numpy_blockwise else QKV
    check(module.scaled_dot_product_attention, given, name, 1, TypeError)


def test_the_device_of_a_mask_beside_x() -> None:
    mask = torch.ones(2, 2, dtype=torch.bool, device="meta")
    with pytest.raises(ValueError, match=r"^X, attn_mask must be on one device; got X cpu, attn_"):
        LAYER(TENSOR, mask)


def test_learned_positions_need_a_length() -> None:
    with pytest.raises(ValueError, match=r"^max_seq_len must be given for learned positions"):
        torch_layers.MultiHeadSelfAttention(4, 2, positions="learned")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch_layers.split_heads(torch.ones(4), 2), "x must be (…, T, H · d); got (4,)"),
        (lambda: torch_layers.merge_heads(TENSOR), "x must be (…, H, T, d); got (2, 4)"),
        (
            lambda: positions.rotary(np.ones((2, 3))),
            "the last dimension of x must be even, because features turn in pairs; got 3",
        ),
        (
            lambda: torch_layers.MultiHeadSelfAttention(6, 2, positions="rotary"),
            "d_model / n_heads must be even for rotary positions; got 3",
        ),
    ],
)
def test_what_a_shape_must_be(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: numpy_dense.softmax(torch.nn.Parameter(torch.ones(2))),
            "got torch.nn.parameter.Parameter (use a torch form for tensors)",
        ),
        (
            lambda: torch_dense.softmax(np.ma.ones(2)),
            "got numpy.ma.MaskedArray (use a NumPy form for arrays)",
        ),
        (
            lambda: torch_dense.softmax(
                torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)
            ),
            "scores must be a dense tensor; got a nested tensor",
        ),
        (
            lambda: numpy_dense.attention_scores(ONES, ONES, scale="1"),
            "scale must be None or a real number; got str '1'",
        ),
    ],
)
def test_what_came(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_the_order_of_bytes_is_no_part_of_a_dtype_s_name() -> None:
    numbers = np.array([1.0, 1.0], ">f4" if np.little_endian else "<f4")
    assert numpy_dense.softmax(numbers).tolist() == [0.5, 0.5]
    assert masks.combine(numbers).tolist() == [1.0, 1.0]


def test_the_size_of_a_traced_program_is_a_count() -> None:
    size = ShapeEnv().create_unbacked_symint()
    assert checked_count("n_keys", size) is size
