"""Positions, held against loops, complex numbers, and what they are there for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnlib.positions import _wide_device, rotary, sinusoidal

Array = NDArray[Any]
B, H, T, D = 2, 3, 5, 14
PLACES = st.floats(-1e4, 1e4) | st.integers(-10_000, 10_000)


def drawn(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).normal(0, 1.5, shape)


def by_loops(x: Array, positions: Any, base: float) -> Array:
    """Return the equation of `rotary`, one number at a time, in float64."""
    turned = np.zeros(x.shape)
    for *batch, t, c in np.ndindex(*x.shape[:-1], x.shape[-1] // 2):
        angle = float(positions[t]) / base ** (2 * c / x.shape[-1])
        a, b = (float(x[(*batch, t, 2 * c + s)]) for s in (0, 1))
        turned[(*batch, t, 2 * c)] = math.cos(angle) * a - math.sin(angle) * b
        turned[(*batch, t, 2 * c + 1)] = math.sin(angle) * a + math.cos(angle) * b
    return turned


def rotated(x: Array, position: float) -> Array:
    """Return one vector, turned by one position."""
    return rotary(x[None], [position])[0]


@pytest.mark.parametrize("base", [10000.0, 7])
def test_sinusoidal_by_loops(base: float) -> None:
    table = sinusoidal(T, D, base=base)
    assert table.shape == (T, D) and table.dtype == np.float64
    for t, c in np.ndindex(T, D // 2):
        angle = t / base ** (2 * c / D)
        assert table[t, 2 * c] == pytest.approx(math.sin(angle), rel=1e-13)
        assert table[t, 2 * c + 1] == pytest.approx(math.cos(angle), rel=1e-13)


def test_sinusoidal_rows_do_not_depend_on_how_many_there_are() -> None:
    np.testing.assert_array_equal(sinusoidal(T, D), sinusoidal(3 * T, D)[:T])
    assert sinusoidal(0, D).shape == (0, D)
    assert sinusoidal(T, 0).shape == (T, 0)


def test_sinusoidal_products_depend_on_the_offset_only() -> None:
    products = sinusoidal(50, D) @ sinusoidal(50, D).T
    for offset in range(50):
        np.testing.assert_allclose(np.diagonal(products, offset), products[0, offset], rtol=1e-12)
    assert np.unique(products[0].round(6)).size > 40


def test_sinusoidal_is_zero_one_turned_backwards() -> None:
    up = np.tile([0.0, 1.0], (T, D // 2))
    np.testing.assert_allclose(sinusoidal(T, D), rotary(up, -np.arange(T)), atol=1e-15)


@pytest.mark.parametrize("base", [10000.0, 3])
@pytest.mark.parametrize("positions", [None, [7, -2, 0, 11, 3], [0.5, -1.25, 3.0, 3.0, 1e5]])
@pytest.mark.parametrize("shape", [(T, D), (B, H, T, D), (T, 2)])
def test_rotary_by_loops(shape: tuple[int, ...], positions: Any, base: float) -> None:
    x = drawn(*shape)
    expected = by_loops(x, range(T) if positions is None else positions, base)
    for turned in (rotary(x, positions, base=base), rotary(torch.tensor(x), positions, base=base)):
        assert turned.shape == x.shape
        np.testing.assert_allclose(turned, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_rotary_is_a_product_of_complex_numbers(kind: Callable[[Array], Any]) -> None:
    x = drawn(B, T, D)
    turns = np.exp(1j * np.outer(np.arange(T), 10000.0 ** (-np.arange(0, D, 2) / D)))
    product = (x[..., 0::2] + 1j * x[..., 1::2]) * turns
    turned = np.asarray(rotary(kind(x)))
    np.testing.assert_allclose(turned[..., 0::2], product.real, atol=1e-13)
    np.testing.assert_allclose(turned[..., 1::2], product.imag, atol=1e-13)


@given(m=PLACES, n=PLACES, shift=PLACES, seed=st.integers(0, 99))
def test_scores_depend_on_the_offset_only(m: float, n: float, shift: float, seed: int) -> None:
    q, k = drawn(2, D, seed=seed)
    score = rotated(q, m) @ rotated(k, n)
    size = np.linalg.norm(q) * np.linalg.norm(k)
    assert abs(rotated(q, m + shift) @ rotated(k, n + shift) - score) < 1e-10 * size
    assert abs(rotated(q, m - n) @ k - score) < 1e-10 * size


def test_scores_do_depend_on_the_offset() -> None:
    q, k = drawn(2, D)
    scores = [float(rotated(q, m) @ k) for m in range(-9, 10)]
    assert min(np.diff(sorted(scores))) > 1e-3


@given(m=PLACES, n=PLACES, seed=st.integers(0, 99))
def test_lengths_stay_and_turns_add_up(m: float, n: float, seed: int) -> None:
    (x,) = drawn(1, D, seed=seed)
    assert np.linalg.norm(rotated(x, m)) == pytest.approx(np.linalg.norm(x), rel=1e-13)
    np.testing.assert_allclose(rotated(rotated(x, m), n), rotated(x, m + n), atol=1e-10)
    np.testing.assert_allclose(rotated(rotated(x, m), -m), x, atol=1e-13)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept_and_rounded_once(name: str) -> None:
    dtype: Any = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    x = drawn(H, T, D).astype(dtype)
    places = [0, 1000, 100_000, 2**24 + 1, -77]  # float32 has no 2**24 + 1
    truth = by_loops(x, places, 10000.0)
    tensor = torch.tensor(x.astype(np.float64)).to(getattr(torch, name))
    for turned, kind in ((rotary(x, places), x), (rotary(tensor, places), tensor)):
        assert turned.dtype == kind.dtype
        wide: Any = turned.double() if isinstance(turned, torch.Tensor) else turned
        error = np.abs(np.asarray(wide, dtype=np.float64) - truth)
        eps = float(ml_dtypes.finfo(dtype).eps)
        # A few roundings of sines and products in the wide dtype, those of the angle in float64,
        # and in half precision one more, of the result.
        half = name in ("float16", "bfloat16")
        wide_eps = 2.0**-23 if half else eps
        pairs = np.hypot(truth[..., 0::2], truth[..., 1::2]).repeat(2, axis=-1)
        bound = (3 * wide_eps + 4 * 2.0**-52 * max(places)) * pairs
        assert (error <= bound + half * eps / 2 * np.abs(truth)).all()


def test_both_backends_agree() -> None:
    x = drawn(B, H, T, D).astype(np.float32)
    places = np.array([3.0, -1.0, 0.5, 1e4, 12.0])
    for given_places in (None, places, list(places), torch.tensor(places)):
        ours = rotary(torch.tensor(x), given_places).numpy()
        np.testing.assert_allclose(rotary(x, given_places), ours, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64, torch.float16, torch.float32])
def test_positions_of_any_number_type(dtype: torch.dtype) -> None:
    x, places = torch.tensor(drawn(T, D)), torch.tensor([5, 6, 7, 8, 2000])
    expected = rotary(x, places.tolist())
    assert torch.equal(rotary(x, places.to(dtype)), expected)
    typed = places.to(dtype).numpy()
    np.testing.assert_allclose(rotary(x.numpy(), typed), expected, atol=1e-12)


def test_positions_of_any_array_for_arrays_and_tensors() -> None:
    x, places = drawn(T, D), np.array([5.0, -6, 7, 8, 200])
    expected = rotary(x, places)
    grows = torch.tensor(places, requires_grad=True)
    kinds = [ml_dtypes.bfloat16, np.float16, ">f8", np.longdouble, np.int16]
    for kind in (*(places.astype(kind) for kind in kinds), places[::-1].copy()[::-1], grows):
        np.testing.assert_array_equal(rotary(x, kind), expected)
        np.testing.assert_allclose(rotary(torch.tensor(x), kind).detach(), expected, atol=1e-12)
    half = torch.tensor(places, dtype=torch.bfloat16)
    np.testing.assert_array_equal(rotary(x, half), expected)


def test_a_base_of_any_real_type_warns_nobody() -> None:
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(rotary(np.ones((T, D)), base=np.float32(7.5)),
                                      rotary(np.ones((T, D)), base=7.5))  # fmt: skip
        assert np.isfinite(sinusoidal(1, 100, base=1e-300)).all()
        # Here the angles are beyond float64.
        assert np.isnan(sinusoidal(3, 100, base=5e-324)).any()


# -- half-split ------------------------------------------------------------------------------------


def neighbours_of_halves(d: int) -> list[int]:
    """Return 0, d/2, 1, d/2 + 1 and so on."""
    return [c + side * d // 2 for c in range(d // 2) for side in (0, 1)]


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def as_llama(x: torch.Tensor, places: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """Return rotary positions as models with halves write them: x cos + rotate_half(x) sin."""
    speeds = 1.0 / base ** (torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    angles = torch.outer(places.double(), speeds)
    twice = torch.cat((angles, angles), dim=-1)
    return x * twice.cos().to(x) + rotate_half(x) * twice.sin().to(x)


@pytest.mark.parametrize("base", [10000.0, 3])
@pytest.mark.parametrize("shape", [(T, D), (B, H, T, D), (T, 2)])
def test_half_split_is_what_models_with_halves_compute(shape: tuple[int, ...], base: float) -> None:
    x = torch.tensor(drawn(*shape), requires_grad=True)
    places = torch.tensor([7.0, -2.0, 0.5, 11.0, 3e4])
    expected = as_llama(x, places, base)
    turned = rotary(x, places, base=base, interleaved=False)
    torch.testing.assert_close(turned, expected, rtol=1e-9, atol=1e-11)
    array = rotary(x.detach().numpy(), places.numpy(), base=base, interleaved=False)
    np.testing.assert_allclose(array, expected.detach(), rtol=1e-9, atol=1e-11)
    upstream = torch.tensor(drawn(*shape, seed=4))
    gradients = [torch.autograd.grad(y, x, upstream)[0] for y in (turned, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("d", [2, 6, 14])
def test_half_split_is_interleaved_with_the_features_in_another_order(kind: Any, d: int) -> None:
    x, order = drawn(B, T, d), neighbours_of_halves(d)
    halves = rotary(kind(x), interleaved=False)
    np.testing.assert_array_equal(halves[..., order], rotary(kind(x[..., order])))
    if d > 2:
        assert not np.allclose(halves, rotary(kind(x)))


def test_weights_of_halves_serve_the_interleaved_form() -> None:
    n_heads, d_model = 3, 5
    X, W_Q, W_K = drawn(T, d_model), drawn(d_model, n_heads * D), drawn(d_model, n_heads * D)

    def heads(W: Array) -> Array:
        return (X @ W).reshape(T, n_heads, D).swapaxes(0, 1)

    def reordered(W: Array) -> Array:
        columns = W.reshape(d_model, n_heads, D)[..., neighbours_of_halves(D)]
        return columns.reshape(d_model, n_heads * D)

    halves = [rotary(heads(W), interleaved=False) for W in (W_Q, W_K)]
    neighbours = [rotary(heads(reordered(W))) for W in (W_Q, W_K)]
    scores = [q @ k.swapaxes(-1, -2) for q, k in (halves, neighbours)]
    np.testing.assert_allclose(*scores, rtol=1e-10, atol=1e-10)


@given(m=PLACES, n=PLACES, shift=PLACES, seed=st.integers(0, 99))
def test_scores_of_halves_depend_on_the_offset_only(
    m: float, n: float, shift: float, seed: int
) -> None:
    q, k = drawn(2, D, seed=seed)

    def score(m: float, n: float) -> float:
        turned = [rotary(x[None], [t], interleaved=False)[0] for x, t in ((q, m), (k, n))]
        return float(turned[0] @ turned[1])

    size = np.linalg.norm(q) * np.linalg.norm(k)
    assert abs(score(m + shift, n + shift) - score(m, n)) < 1e-10 * size
    turned = rotary(q[None], [m], interleaved=False)
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(q), rel=1e-13)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_half_split_keeps_the_dtype_and_rounds_once(name: str) -> None:
    x = torch.tensor(drawn(H, T, D)).to(getattr(torch, name))
    turned = rotary(x, interleaved=False)
    assert turned.dtype == x.dtype
    order = neighbours_of_halves(D)
    assert torch.equal(turned[..., order], rotary(x[..., order].contiguous()))
    if name != "bfloat16":
        array = rotary(x.numpy(), interleaved=False)
        assert array.dtype == name
        np.testing.assert_array_equal(array[..., order], rotary(x.numpy()[..., order]))


def test_half_split_of_nothing_and_inside_vmap_compile_and_meta() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return rotary(x, interleaved=False)

    assert rotary(np.zeros((B, 0, D)), interleaved=False).shape == (B, 0, D)
    assert rotary(torch.zeros(T, 0), interleaved=False).shape == (T, 0)
    x = torch.tensor(drawn(B, H, T, D))
    assert torch.equal(torch.func.vmap(halves)(x), halves(x))
    compiled = torch.compile(halves, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), halves(x))
    assert halves(x.to("meta")).device.type == "meta"
    assert torch.equal(rotary(x, interleaved=np.True_), rotary(x))  # type: ignore[arg-type]
    small = x[0, :1, :, :4].requires_grad_()
    assert torch.autograd.gradcheck(halves, (small,))


# -- layouts and edges -----------------------------------------------------------------------------


def test_an_offset_is_the_end_of_a_longer_sequence() -> None:
    for x in (drawn(H, 3 * T, D), torch.tensor(drawn(H, 3 * T, D))):
        end = rotary(x[:, -T:], range(2 * T, 3 * T))
        np.testing.assert_array_equal(rotary(x)[:, -T:], end)


def test_inputs_stay_and_layout_does_not_matter() -> None:
    x = drawn(T, B, D)
    before = x.copy()
    view = x.transpose(1, 0, 2)[::-1]
    straight = rotary(np.ascontiguousarray(view))
    np.testing.assert_array_equal(rotary(view), straight)
    strided = torch.tensor(x).transpose(0, 1).flip(0)
    np.testing.assert_allclose(rotary(strided), straight, atol=1e-13)
    expanded = torch.tensor(x[:1]).expand(T, B, D)
    assert torch.equal(rotary(expanded), rotary(expanded.contiguous()))
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(rotary(x, [0, 0]), x)


def test_nothing_in_nothing_out() -> None:
    assert rotary(np.zeros((B, 0, D))).shape == (B, 0, D)
    assert rotary(torch.zeros(0, T, D)).shape == (0, T, D)
    assert rotary(np.zeros((T, 0))).shape == (T, 0)


def test_what_is_not_finite_stays_in_its_pair() -> None:
    x = np.zeros((3, 4))
    x[1, 0], x[2, 2:] = np.nan, np.inf  # cos · ∞ - sin · ∞ is NaN, and no reason to warn
    with np.errstate(all="raise"):
        turned = rotary(x)
    np.testing.assert_array_equal(np.isnan(turned), [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])


def test_the_gradient_is_the_turn_back() -> None:
    x = torch.tensor(drawn(H, T, D), requires_grad=True)
    upstream = torch.tensor(drawn(T, H, D, seed=4)).transpose(0, 1)
    (gradient,) = torch.autograd.grad(rotary(x), x, upstream)
    torch.testing.assert_close(gradient, rotary(upstream, -torch.arange(T)))
    places = torch.tensor([0.5, -1.0, 2.0, 3.0, 9.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rotary, (x, places))
    assert torch.autograd.gradgradcheck(rotary, (x[:1, :, :2], places))


def test_vmap_compile_and_meta() -> None:
    x, places = torch.tensor(drawn(B, H, T, D)), torch.arange(3, 3 + T)
    assert torch.equal(torch.func.vmap(rotary)(x), rotary(x))
    per_sequence = torch.func.vmap(rotary)(x, torch.stack([places, 2 * places]))
    assert torch.equal(per_sequence[1], rotary(x[1], 2 * places))
    compiled = torch.compile(rotary, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, places), rotary(x, places))
    assert rotary(x.to("meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sinusoidal(-1, 4), ValueError, "n_tokens must be at least 0; got -1"),
        (lambda: sinusoidal(True, 4), TypeError, "n_tokens must be an integer; got True"),
        (lambda: sinusoidal(2, 4.0), TypeError, "d_model must be an integer; got 4.0"),
        (lambda: sinusoidal(2, 5), ValueError, "d_model must be even, because"),
        (lambda: sinusoidal(2, 4, base=0), ValueError, "base must be positive and finite; got 0"),
        (lambda: sinusoidal(2, 4, base=math.nan), ValueError, "got nan"),
        (lambda: rotary(np.ones((2, 4)), base=math.inf), ValueError, "got inf"),
        (lambda: rotary(torch.ones(2, 4), base=-1.0), ValueError, "got -1.0"),
        (lambda: rotary(np.ones((2, 4)), base=10**400), ValueError, "base must be positive"),
        (lambda: rotary(np.ones((2, 4)), base="7"), TypeError,
         "base must be a real number; got str '7'"),
        (lambda: rotary(np.ones((2, 4)), base=True), TypeError, "got bool True"),
        (lambda: sinusoidal(2, 4, like=[1.0]), TypeError,
         "like must be an array or a tensor; got list"),
        (lambda: rotary(np.ones((2, 4)), interleaved=1), TypeError,
         "interleaved must be True or False; got 1"),
        (lambda: rotary(torch.ones(2, 4), interleaved=None), TypeError,
         "interleaved must be True or False; got None"),
        (lambda: rotary([[1.0, 2.0]]), TypeError,
         "x must be a numpy.ndarray or torch.Tensor; got list"),
        (lambda: rotary(np.ma.ones((2, 4))), TypeError, "x must be a numpy.ndarray; got numpy.ma."),
        (lambda: rotary(np.ones((2, 4), dtype=int)), TypeError,
         "x must have dtype float16, bfloat16, float32, float64; got int64"),
        (lambda: rotary(torch.ones(2, 4, dtype=torch.complex64)), TypeError, "got complex64"),
        (lambda: rotary(np.ones(4)), ValueError,
         "x must have at least 2 dimensions (…, T, d); got (4,)"),
        (lambda: rotary(torch.ones(4)), ValueError, "got (4,)"),
        (lambda: rotary(torch.ones(2, 5)), ValueError,
         "the last dimension of x must be even, because features turn in pairs; got 5"),
        (lambda: rotary(np.ones((2, 4)), [1, 2, 3]), ValueError,
         "positions must have shape (T,) = (2,); got (3,)"),
        (lambda: rotary(torch.ones(2, 4), 1), ValueError, "got ()"),
        (lambda: rotary(torch.ones(2, 4), torch.ones(1, 2)), ValueError, "got (1, 2)"),
        (lambda: rotary(np.ones((2, 4)), [True, False]), TypeError,
         "positions must be integers or floating numbers"),
        (lambda: rotary(torch.ones(2, 4), torch.ones(2, dtype=torch.bool)), TypeError,
         "positions must be integers"),
        (lambda: rotary(torch.ones(2, 4), [1j, 2]), TypeError, "positions must be integers"),
        (lambda: rotary(np.ones((2, 4)), ["a", "b"]), TypeError,
         "positions must be integers or floating numbers; got dtype str"),
        (lambda: rotary(torch.ones(2, 4), ["a", "b"]), TypeError, "got dtype str"),
        (lambda: rotary(torch.ones(2, 4), [[1], 2]), ValueError, "got [[1], 2]"),
        (lambda: rotary(np.ones((2, 4)), np.ma.ones(2)), TypeError, "whose mask would be lost"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_the_default_device_is_left_alone() -> None:
    x = torch.ones(3, 4)
    with torch.device("meta"):
        assert rotary(x).device.type == "cpu"
        assert rotary(x, [0, 1, 2]).device.type == "cpu"
        assert sinusoidal(3, 4, like=x).device.type == "cpu"


def test_sinusoidal_like_a_tensor_is_the_same_table() -> None:
    table = sinusoidal(7, 6, base=100.0, like=torch.zeros(1, dtype=torch.float32))
    assert table.dtype == torch.float64
    np.testing.assert_allclose(table.numpy(), sinusoidal(7, 6, base=100.0), rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_pairs_are_turned_in_one_dtype_and_rounded_once(dtype: str) -> None:
    x = np.random.default_rng(4).standard_normal((400, 64)).astype(dtype)
    wide = np.float64 if dtype == "float64" else np.float32
    angles = np.arange(400.0)[:, None] * 10000.0 ** -(np.arange(0, 64, 2) / 64)
    cos, sin = np.cos(angles).astype(wide), np.sin(angles).astype(wide)
    even, odd = x[:, ::2].astype(wide), x[:, 1::2].astype(wide)
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    truth = turned.reshape(x.shape).astype(dtype)
    np.testing.assert_array_equal(rotary(x), truth)
    if dtype != "float64":  # torch's cosine may differ in the last bit
        found = rotary(torch.from_numpy(x)).numpy()
        assert np.mean(found == truth) > 0.999
        np.testing.assert_allclose(found, truth, rtol=0, atol=2 * np.finfo(dtype).eps * 8)


def test_angles_are_computed_where_there_is_float64() -> None:
    for kind, place in (("mps", "cpu"), ("cuda", "itself")):
        device = SimpleNamespace(type=kind)
        found = _wide_device(SimpleNamespace(device=device))
        assert found == (place if place == "cpu" else device)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "longdouble"])
def test_positions_of_any_number_type_as_an_array(dtype: str) -> None:
    x, places = drawn(T, D), np.array([0, 1, 200, 3, 4], dtype)
    np.testing.assert_array_equal(rotary(x, places), rotary(x, places.astype(float)))
    if dtype != "longdouble":
        found = rotary(x, torch.from_numpy(places.astype(dtype)))
        np.testing.assert_array_equal(found, rotary(x, places))
    with np.errstate(all="raise"):
        assert np.isnan(rotary(x, [np.longdouble("1e400")] * T)).all()


def test_each_sequence_of_a_batch_may_have_positions_of_its_own() -> None:
    x = np.random.default_rng(1).normal(size=(2, 2, 3, 4))  # as many sequences as heads
    places = [[0, 1, 2], [5, 6, 7]]
    turned = rotary(x, places)
    for own, row, place in zip(turned, x, places, strict=True):
        np.testing.assert_array_equal(own, rotary(row, place))
    wanted = r"positions must have shape \(T,\) = \(3,\) or \(B, T\) = \(2, 3\); got \(3, 3\)"
    with pytest.raises(ValueError, match=wanted):
        rotary(x, [[0, 1, 2]] * 3)


def test_sinusoidal_rows_may_begin_anywhere() -> None:
    np.testing.assert_array_equal(sinusoidal(3, 4, start=5), sinusoidal(8, 4)[5:])
    with pytest.raises(ValueError, match="start must be at least 0; got -1"):
        sinusoidal(3, 4, start=-1)
