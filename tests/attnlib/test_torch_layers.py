"""The layers, held against loops over heads, torch's own layer, and what attention promises."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from parameters import slow
from torch import Tensor, nn

from attnlib import masks, numpy_dense
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_decoding import KVCache
from attnlib.torch_layers import MultiHeadSelfAttention, SelfAttention

Array = NDArray[Any]
B, T, D_MODEL, H = 3, 7, 12, 6

every_kind = pytest.mark.parametrize("positions", [None, "sinusoidal", "learned", "rotary"])


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(20)
        yield


def drawn(*shape: int, seed: int = 5) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, shape))


def with_nothing_at_0(layer: Any) -> Any:
    """Draw all parameters: a bias that starts at 0 would hide its loss."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return layer


def multi_head(**options: Any) -> MultiHeadSelfAttention:
    settings: dict[str, Any] = {"n_heads": H, "bias": True, "max_seq_len": 11} | options
    layer: MultiHeadSelfAttention = MultiHeadSelfAttention(D_MODEL, **settings).double()
    return with_nothing_at_0(layer)


def apply(linear: nn.Linear, X: Array) -> Array:
    bias = 0 if linear.bias is None else linear.bias.numpy(force=True)
    return np.asarray(X @ linear.weight.numpy(force=True).T + bias)


def by_heads(layer: MultiHeadSelfAttention, X: Tensor, mask: Any = None, **o: Any) -> Array:
    """Return what the layer should, for X (B, T, d_model), one head at a time, with NumPy."""
    n_tokens, d_model = X.shape[-2:]
    d_head = d_model // layer.n_heads
    x = X.numpy()
    if layer.positions == "sinusoidal":
        x = x + sinusoidal(n_tokens, d_model)
    if layer.positions == "learned":
        assert layer.learned is not None
        x = x + layer.learned.numpy(force=True)[:n_tokens]
    Q, K, V = (apply(W, x) for W in (layer.W_Q, layer.W_K, layer.W_V))
    outputs = []
    for h in range(layer.n_heads):
        g = h // (layer.n_heads // layer.n_kv_heads)
        mine, shared = (slice(n * d_head, (n + 1) * d_head) for n in (h, g))
        q, k, v = Q[..., mine], K[..., shared], V[..., shared]
        if layer.positions == "rotary":
            q, k = rotary(q), rotary(k)
        part = None
        if mask is not None:
            part = np.broadcast_to(mask, (len(x), layer.n_heads, n_tokens, n_tokens))[:, h]
        outputs.append(numpy_dense.scaled_dot_product_attention(q, k, v, part, **o))
    return apply(layer.W_O, np.concatenate(outputs, axis=-1))


def assert_same(got: Tensor, expected: Any, rtol: float = 1e-11) -> None:
    if isinstance(expected, Tensor):
        expected = expected.numpy(force=True)
    np.testing.assert_allclose(got.numpy(force=True), expected, rtol, atol=1e-12)


# -- one head --------------------------------------------------------------------------------------


def test_self_attention_has_biases_and_takes_masks_and_lengths() -> None:
    layer, X = SelfAttention(5, 3, 11, bias=True, is_causal=True).double(), drawn(B, T, 5)
    layer = with_nothing_at_0(layer)
    Q, K, V = (apply(W, X.numpy()) for W in (layer.W_Q, layer.W_K, layer.W_V))
    lengths, near = [2, 7, 5], masks.window(T, T, 2, 3)
    mask = masks.combine(near, masks.padding(lengths, T)[:, 0], masks.causal(T))
    expected = numpy_dense.scaled_dot_product_attention(Q, K, V, mask)
    assert_same(layer(X, torch.tensor(near), lengths=lengths), expected)


def test_what_is_not_given_is_d_model_or_left_out() -> None:
    shapes = {name: tuple(W.shape) for name, W in SelfAttention(5, d_v=3).state_dict().items()}
    assert shapes == {"W_Q.weight": (5, 5), "W_K.weight": (5, 5), "W_V.weight": (3, 5)}
    names = {f"W_{W}.weight" for W in "QKVO"}
    assert set(MultiHeadSelfAttention(4, 2).state_dict()) == names
    learned = MultiHeadSelfAttention(4, 2, positions="learned", max_seq_len=3)
    assert set(learned.state_dict()) == {"learned", *names}
    assert "is_causal=True, max_seq_len=None" in repr(SelfAttention(3, is_causal=True))


# -- several heads ---------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(6, 2), (2, 1)])
def test_multi_head_is_a_loop_over_heads(n_heads: int, n_kv_heads: int, positions: Any) -> None:
    layer = multi_head(n_heads=n_heads, n_kv_heads=n_kv_heads, positions=positions)
    X = drawn(B, T, D_MODEL)
    assert_same(layer(X), by_heads(layer, X))
    layer.is_causal = True
    assert_same(layer(X), by_heads(layer, X, is_causal=True))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [2, 7, 5]])
@pytest.mark.parametrize("shape", [None, (1, T), (H, T, T), (B, 1, T, T)])
@pytest.mark.parametrize("kind", ["boolean", "floating"])
def test_masks_lengths_and_causality_hold_together(
    shape: Any, lengths: Any, is_causal: bool, kind: str
) -> None:
    layer, X = multi_head(n_kv_heads=2, is_causal=is_causal), drawn(B, T, D_MODEL)
    parts: list[Array] = []
    if shape is not None:
        seen = drawn(*shape, seed=6).numpy()
        parts.append(seen < 1 if kind == "boolean" else np.where(seen < 1, seen, -np.inf))
    mask = torch.tensor(parts[0]) if parts else None
    parts += [] if lengths is None else [masks.padding(lengths, T)]
    parts += [masks.causal(T)] if is_causal else []
    joined = masks.combine(*parts) if parts else None
    assert_same(layer(X, mask, lengths=lengths), by_heads(layer, X, joined))


@every_kind
def test_padding_is_as_if_it_were_not_there(positions: Any) -> None:
    layer, X, lengths = multi_head(positions=positions), drawn(B, T, D_MODEL), [4, 0, 7]
    output = layer(X, lengths=torch.tensor(lengths))
    for b, length in enumerate(lengths):
        assert_same(output[b, :length], layer(X[b, :length]))
    assert torch.isfinite(output).all()
    assert torch.equal(output[1], layer.W_O.bias.expand(T, D_MODEL))
    junk = X.clone()
    junk[0, 4:] = math.nan
    assert_same(layer(junk, lengths=lengths)[0, :4], output[0, :4])


@every_kind
@pytest.mark.parametrize("batch", [(), (2, B), (0,)])
def test_any_leading_dimensions(batch: tuple[int, ...], positions: Any) -> None:
    layer, X = multi_head(positions=positions, n_kv_heads=2), drawn(*batch, T, D_MODEL)
    output = layer(X)
    assert output.shape == X.shape
    for index in np.ndindex(batch):
        assert_same(output[index], layer(X[index]))
    assert layer(X[..., :0, :]).shape == (*batch, 0, D_MODEL)


# -- weights ---------------------------------------------------------------------------------------


def test_queries_and_keys_begin_with_variance_one() -> None:
    d, n_tokens = 256, 2000
    X = drawn(n_tokens, d).float() / 1.5
    layer = MultiHeadSelfAttention(
        d, 8, n_kv_heads=4, bias=True, max_seq_len=64, positions="learned"
    )
    head = SelfAttention(d, 64, 128, bias=True)
    single, several = (head.W_Q, head.W_K, head.W_V), (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)
    for linear in (*single, *several):
        # Of n draws the variance has a relative standard error of √(2/n): five of them are allowed.
        assert abs(d * linear.weight.var().item() - 1) < 5 * (2 / linear.weight.numel()) ** 0.5
        assert abs(linear(X).var().item() - 1) < 0.05
        assert (linear.bias == 0).all()
    assert layer.learned is not None
    assert layer.learned.std().item() == pytest.approx(0.02, rel=0.03)
    assert abs(layer.learned.mean().item()) < 1e-3


def torch_layer(**options: Any) -> nn.MultiheadAttention:
    settings: dict[str, Any] = {"batch_first": True, "dtype": torch.float64} | options
    layer: nn.MultiheadAttention = with_nothing_at_0(nn.MultiheadAttention(D_MODEL, H, **settings))
    return layer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_from_torch_computes_the_same(batch_first: bool, bias: bool) -> None:
    """Dropout is of no use in eval mode."""
    mha = torch_layer(batch_first=batch_first, bias=bias, dropout=0.5).eval()
    X = drawn(B, T, D_MODEL)
    x = X if batch_first else X.transpose(0, 1)
    expected = mha(x, x, x, need_weights=False)[0]
    layer = MultiHeadSelfAttention.from_torch(mha)
    assert_same(layer(X), expected if batch_first else expected.transpose(0, 1))
    in_order = MultiHeadSelfAttention.from_torch(mha, is_causal=True)
    assert_same(in_order(X), layer(X, torch.tensor(masks.causal(T))))
    kinds = ["weight", "bias"] if bias else ["weight"]
    assert set(layer.state_dict()) == {f"W_{W}.{kind}" for W in "QKVO" for kind in kinds}


def test_from_torch_copies_and_draws_nothing() -> None:
    mha, X = torch_layer(dtype=torch.float32).eval(), drawn(T, D_MODEL).float()
    before, state = copy.deepcopy(mha.state_dict()), torch.get_rng_state()
    layer = MultiHeadSelfAttention.from_torch(mha)
    assert torch.equal(torch.get_rng_state(), state)
    assert not layer.training
    assert all(p.requires_grad and p.is_leaf and p.device == X.device for p in layer.parameters())
    layer(X).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    for name, value in mha.state_dict().items():
        assert torch.equal(value, before[name])
    assert (layer(X) - mha(X, X, X, need_weights=False)[0]).abs().max() > 0.1
    assert MultiHeadSelfAttention.from_torch(mha.train()).training


def test_from_torch_keeps_what_is_frozen() -> None:
    mha = nn.MultiheadAttention(D_MODEL, H)
    mha.in_proj_weight.requires_grad_(False)
    layer = MultiHeadSelfAttention.from_torch(mha)
    frozen = {name for name, p in layer.named_parameters() if not p.requires_grad}
    assert frozen == {"W_Q.weight", "W_K.weight", "W_V.weight"}


# -- a second sequence -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [6, 2])
def test_a_second_sequence_answers_as_in_torch(n_kv_heads: int) -> None:
    layer, X, context = (
        multi_head(n_kv_heads=n_kv_heads),
        drawn(B, T, D_MODEL),
        drawn(B, 5, D_MODEL),
    )
    lengths = [5, 3, 1]
    output = layer(X, context=context, lengths=lengths)
    torch_layer = nn.MultiheadAttention(D_MODEL, H, batch_first=True).double()
    with torch.no_grad():  # torch's layer has no groups: each key head is repeated
        d_head, group = D_MODEL // H, H // n_kv_heads
        for kind in ("weight", "bias"):
            repeated = [getattr(layer.W_Q, kind)]
            for W in (layer.W_K, layer.W_V):
                rows = getattr(W, kind).unflatten(0, (n_kv_heads, d_head))
                repeated.append(rows.repeat_interleave(group, 0).flatten(0, 1))
            getattr(torch_layer, f"in_proj_{kind}").copy_(torch.cat(repeated))
            getattr(torch_layer.out_proj, kind).copy_(getattr(layer.W_O, kind))
    is_padding = ~masks.padding(torch.tensor(lengths), 5)[:, 0, 0]
    expected, _ = torch_layer(X, context, context, key_padding_mask=is_padding)
    torch.testing.assert_close(output, expected)


NO_ORDER = "context needs a layer without order; got one with"


@pytest.mark.parametrize(
    ("options", "context", "message"),
    [
        ({"is_causal": True}, drawn(B, T, D_MODEL), f"{NO_ORDER} is_causal=True"),
        ({"positions": "rotary"}, drawn(B, T, D_MODEL), f"{NO_ORDER} is_causal=False, positions='"),
        ({}, drawn(2, T, D_MODEL), "context must share the leading dimensions of X; got .2, 7, 12"),
        ({}, drawn(B, T, 5), "context must be .*, d_model = 12.; got .3, 7, 5."),
        ({}, drawn(B, 12, D_MODEL), "context must have at most max_seq_len = 11 tokens"),
    ],
)
def test_what_a_second_sequence_needs(options: Any, context: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multi_head(**options)(drawn(B, T, D_MODEL), context=context)


def test_what_does_not_go_with_a_second_sequence() -> None:
    X = drawn(B, T, D_MODEL)
    with pytest.raises(ValueError, match="lengths must hold one length for each sequence of con"):
        multi_head()(X, context=X, lengths=[1])
    cache = KVCache(B, H, 11, D_MODEL // H, dtype=torch.float64)
    with pytest.raises(ValueError, match="context must be None beside a cache"):
        multi_head(is_causal=True)(X, cache=cache, context=X)


# -- a citizen of torch ----------------------------------------------------------------------------


@every_kind
def test_gradients(positions: Any) -> None:
    layer = MultiHeadSelfAttention(
        4, 2, n_kv_heads=1, bias=True, positions=positions, max_seq_len=5
    ).double()
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(X: Tensor, *parameters: Tensor) -> Any:
        state = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, state, (X,), {"lengths": [3, 2]})

    given = drawn(2, 3, 4).requires_grad_(), *values
    assert torch.autograd.gradcheck(call, given, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_mask_may_learn(is_causal: bool, dtype: torch.dtype) -> None:
    layer, mask = multi_head(is_causal=is_causal), torch.zeros(H, T, T, dtype=dtype)
    layer(drawn(B, T, D_MODEL), mask.requires_grad_()).square().sum().backward()
    assert mask.grad is not None
    part = torch.tensor(masks.causal(T)) & (torch.arange(T) > 0)[:, None]  # row 0 has one weight
    assert torch.equal(mask.grad != 0, (part if is_causal else torch.tensor(True)).expand(H, T, T))


# To compile one kind and to export another takes the place of both with each.
@pytest.mark.parametrize("positions", [slow(None), "sinusoidal", slow("learned"), slow("rotary")])
def test_compiled(positions: Any) -> None:
    layer, X = multi_head(positions=positions, is_causal=True, n_kv_heads=2), drawn(B, T, D_MODEL)
    lengths = torch.tensor([4, 0, 7])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_same(compiled(X, lengths=lengths), layer(X, lengths=lengths))


@every_kind
def test_with_vmap_and_on_meta(positions: Any) -> None:
    layer, X = multi_head(positions=positions, is_causal=True, n_kv_heads=2), drawn(B, T, D_MODEL)
    assert_same(torch.func.vmap(layer)(X), layer(X))
    with torch.device("meta"):
        empty = MultiHeadSelfAttention(D_MODEL, H, positions=positions, max_seq_len=T)
        assert empty(torch.empty(B, T, D_MODEL)).shape == (B, T, D_MODEL)


@every_kind
def test_autocast(positions: Any) -> None:
    layer, X = multi_head(positions=positions).float(), drawn(B, T, D_MODEL).float()
    exact = layer(X)
    with torch.autocast("cpu", torch.bfloat16):
        for given in (X, X.bfloat16()):
            output = layer(given, lengths=[7, 7, 7])
            assert output.dtype == torch.bfloat16
            assert (output - exact).abs().max() < 0.1 * exact.abs().max()
        with pytest.raises(TypeError, match=r"X must .*; got float64"):
            layer(X.double())


@pytest.mark.parametrize("positions", [slow("sinusoidal"), "rotary"])
def test_exported_for_any_number_of_tokens(positions: Any) -> None:
    layer = multi_head(is_causal=True, positions=positions, max_seq_len=None)
    any_length = {"X": {1: torch.export.Dim("n_tokens", min=2, max=64)}}
    exported = torch.export.export(
        layer, (drawn(B, T, D_MODEL),), dynamic_shapes=any_length, strict=False
    ).module()
    for n_tokens in (3, 13):
        X = drawn(B, n_tokens, D_MODEL)
        assert_same(exported(X), layer(X))
