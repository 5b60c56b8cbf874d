"""Positions, held against loops and against what they are there for."""

from __future__ import annotations

import functools
import math
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

both_conventions = pytest.mark.parametrize("interleaved", [True, False])


def drawn(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).normal(0, 1.5, shape)


def by_loops(x: Array, positions: Any, base: float, interleaved: bool = True) -> Array:
    """Return the equation of `rotary`, one pair at a time, in float64."""
    turned, d = np.zeros(x.shape), x.shape[-1]
    for *batch, t, c in np.ndindex(*x.shape[:-1], d // 2):
        one, two = (2 * c, 2 * c + 1) if interleaved else (c, c + d // 2)
        angle = float(positions[t]) / base ** (2 * c / d)
        a, b = (float(x[(*batch, t, place)]) for place in (one, two))
        turned[(*batch, t, one)] = math.cos(angle) * a - math.sin(angle) * b
        turned[(*batch, t, two)] = math.sin(angle) * a + math.cos(angle) * b
    return turned


# -- sinusoidal ------------------------------------------------------------------------------------


@pytest.mark.parametrize("like", [None, np.zeros(1), torch.zeros(1)])
@pytest.mark.parametrize("base", [10000.0, 7])
def test_sinusoidal_by_loops(base: float, like: Any) -> None:
    table = sinusoidal(T, D, base=base, like=like)
    assert table.shape == (T, D) and str(table.dtype).endswith("float64")
    assert isinstance(table, torch.Tensor) is isinstance(like, torch.Tensor)
    for t, c in np.ndindex(T, D // 2):
        angle = t / base ** (2 * c / D)
        assert table[t, 2 * c] == pytest.approx(math.sin(angle), rel=1e-13)
        assert table[t, 2 * c + 1] == pytest.approx(math.cos(angle), rel=1e-13)


def test_sinusoidal_rows_may_begin_anywhere() -> None:
    np.testing.assert_array_equal(sinusoidal(3, 4, start=5), sinusoidal(8, 4)[5:])
    assert sinusoidal(0, D).shape == (0, D)
    assert sinusoidal(T, 0).shape == (T, 0)
    with pytest.raises(ValueError, match="start must be at least 0; got -1"):
        sinusoidal(3, 4, start=-1)


# -- rotary ----------------------------------------------------------------------------------------


@both_conventions
@pytest.mark.parametrize("base", [10000.0, 3])
@pytest.mark.parametrize("positions", [None, [0.5, -1.25, 3.0, 3.0, 1e5]])
@pytest.mark.parametrize("shape", [(B, H, T, D), (T, 2)])
def test_rotary_by_loops(
    shape: tuple[int, ...], positions: Any, base: float, interleaved: bool
) -> None:
    x = drawn(*shape)
    expected = by_loops(x, range(T) if positions is None else positions, base, interleaved)
    for given_x in (x, torch.tensor(x)):
        turned = rotary(given_x, positions, base=base, interleaved=interleaved)
        assert type(turned) is type(given_x) and turned.shape == x.shape
        np.testing.assert_allclose(turned, expected, rtol=1e-9, atol=1e-11)


@both_conventions
@given(m=PLACES, n=PLACES, shift=PLACES, seed=st.integers(0, 99))
def test_scores_depend_on_the_offset_only(
    interleaved: bool, m: float, n: float, shift: float, seed: int
) -> None:
    q, k = drawn(2, D, seed=seed)

    def turned(x: Array, position: float) -> Array:
        return rotary(x[None], [position], interleaved=interleaved)[0]

    size = np.linalg.norm(q) * np.linalg.norm(k)
    score = turned(q, m) @ turned(k, n)
    assert abs(turned(q, m + shift) @ turned(k, n + shift) - score) < 1e-10 * size
    assert abs(turned(q, m - n) @ k - score) < 1e-10 * size
    assert np.linalg.norm(turned(q, m)) == pytest.approx(np.linalg.norm(q), rel=1e-13)


@both_conventions
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept_and_rounded_once(name: str, interleaved: bool) -> None:
    dtype: Any = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    x = drawn(H, T, D).astype(dtype)
    places = [0, 1000, 100_000, 2**24 + 1, -77]  # float32 has no 2**24 + 1
    truth = by_loops(x, places, 10000.0, interleaved)
    first, second = (
        (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : D // 2], x[..., D // 2 :])
    )
    pairs = np.hypot(first.astype(float), second.astype(float))
    pairs = pairs.repeat(2, -1) if interleaved else np.concatenate([pairs, pairs], -1)
    tensor = torch.tensor(x.astype(np.float64)).to(getattr(torch, name))
    # A few roundings of sines and products in the wide dtype, those of the angle in float64,
    # and in half precision one more, of the result.
    eps, half = float(ml_dtypes.finfo(dtype).eps), name in ("float16", "bfloat16")
    wide = (3 * (2.0**-23 if half else eps) + 4 * 2.0**-52 * max(places)) * pairs
    bound = wide + half * eps / 2 * np.abs(truth)
    for kind in (x, tensor):
        turned: Any = rotary(kind, places, interleaved=interleaved)
        assert turned.dtype == kind.dtype
        turned = turned.double() if isinstance(turned, torch.Tensor) else turned
        assert (np.abs(np.asarray(turned, dtype=np.float64) - truth) <= bound).all()


def test_positions_of_any_kind_for_arrays_and_tensors() -> None:
    x, places = drawn(T, D), np.array([5.0, 6, 7, 8, 200])
    expected = rotary(x, places)
    kinds: list[Any] = [ml_dtypes.bfloat16, "f2", ">f8", np.longdouble, "i2", "i8", "u1"]
    given_places: list[Any] = [places.astype(kind) for kind in kinds]
    given_places += [places[::-1].copy()[::-1], places.tolist(), tuple(places)]
    given_places += [
        torch.tensor(places, requires_grad=True),
        *(torch.tensor(places, dtype=dtype) for dtype in (torch.bfloat16, torch.int16)),
    ]
    for own in given_places:
        np.testing.assert_array_equal(rotary(x, own), expected)
        np.testing.assert_allclose(rotary(torch.tensor(x), own).detach(), expected, atol=1e-12)


def test_numbers_of_any_real_type_warn_nobody() -> None:
    ones = np.ones((T, D))
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(rotary(ones, base=np.float32(7.5)), rotary(ones, base=7.5))
        assert np.isfinite(sinusoidal(1, 100, base=1e-300)).all()
        # Here the angles are beyond float64.
        assert np.isnan(sinusoidal(3, 100, base=5e-324)).any()
        assert np.isnan(rotary(ones, [np.longdouble("1e400")] * T)).all()


def test_each_sequence_of_a_batch_may_have_positions_of_its_own() -> None:
    x = np.random.default_rng(1).normal(size=(2, 2, 3, 4))  # as many sequences as heads
    places = [[0, 1, 2], [5, 6, 7]]
    turned = rotary(x, places)
    for own, row, place in zip(turned, x, places, strict=True):
        np.testing.assert_array_equal(own, rotary(row, place))
    wanted = r"positions must have shape \(T,\) = \(3,\) or \(B, T\) = \(2, 3\); got \(3, 3\)"
    with pytest.raises(ValueError, match=wanted):
        rotary(x, [[0, 1, 2]] * 3)


# -- layouts and edges -----------------------------------------------------------------------------


def test_inputs_stay_and_layout_does_not_matter() -> None:
    x = drawn(T, B, D)
    before = x.copy()
    view = x.transpose(1, 0, 2)[::-1]
    straight = rotary(np.ascontiguousarray(view))
    np.testing.assert_array_equal(rotary(view), straight)
    strided = torch.tensor(x).transpose(0, 1).flip(0)
    np.testing.assert_allclose(rotary(strided), straight, atol=1e-13)
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(rotary(x, [0, 0]), x)


@both_conventions
def test_nothing_in_nothing_out(interleaved: bool) -> None:
    for shape in ((B, 0, D), (0, T, D), (T, 0)):
        for x in (np.zeros(shape), torch.zeros(shape)):
            assert rotary(x, interleaved=interleaved).shape == shape


def test_what_is_not_finite_stays_in_its_pair() -> None:
    x = np.zeros((3, 4))
    x[1, 0], x[2, 2:] = np.nan, np.inf  # cos · ∞ - sin · ∞ is NaN, and no reason to warn
    with np.errstate(all="raise"):
        turned = rotary(x)
    np.testing.assert_array_equal(np.isnan(turned), [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])


@both_conventions
def test_gradients(interleaved: bool) -> None:
    x = torch.tensor(drawn(H, T, 4), requires_grad=True)
    places = torch.tensor([0.5, -1.0, 2.0, 3.0, 9.0], dtype=torch.float64, requires_grad=True)
    turn = functools.partial(rotary, interleaved=interleaved)
    assert torch.autograd.gradcheck(turn, (x[:1], places))
    assert torch.autograd.gradgradcheck(turn, (x[:1, :, :2], places))


@both_conventions
def test_vmap_compile_and_meta(interleaved: bool) -> None:
    turn = functools.partial(rotary, interleaved=interleaved)
    x, places = torch.tensor(drawn(B, H, T, D)), torch.arange(3, 3 + T)
    assert torch.equal(torch.func.vmap(turn)(x), turn(x))
    per_sequence = torch.func.vmap(turn)(x, torch.stack([places, 2 * places]))
    assert torch.equal(per_sequence[1], turn(x[1], 2 * places))
    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, places), turn(x, places))
    assert turn(x.to("meta")).device.type == "meta"


def test_the_default_device_is_left_alone() -> None:
    x = torch.ones(3, 4)
    with torch.device("meta"):
        assert rotary(x).device.type == "cpu"
        assert rotary(x, [0, 1, 2]).device.type == "cpu"
        assert sinusoidal(3, 4, like=x).device.type == "cpu"


def test_angles_are_computed_where_there_is_float64() -> None:
    for kind, place in (("mps", "cpu"), ("cuda", "itself")):
        device = SimpleNamespace(type=kind)
        found = _wide_device(SimpleNamespace(device=device))
        assert found == (place if place == "cpu" else device)
