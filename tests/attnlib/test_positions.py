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
from numpy.typing import NDArray

from attnlib.positions import _wide_device, rotary, sinusoidal

Array = NDArray[Any]
B, H, T, D = 2, 3, 5, 14

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
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_dtypes_are_kept_and_rounded_once(name: str, interleaved: bool) -> None:
    """With angles in float64: float32 has no 2**24 + 1, and half precision not even 1001."""
    dtype: Any = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    x, places = drawn(H, T, D).astype(dtype), [0, 1001, 100_000, 2**24 + 1, -77]
    truth = by_loops(x, places, 10000.0, interleaved)
    # Three roundings in float32, of numbers up to the longest pair, and one in half precision.
    longest, half = 2**0.5 * np.abs(x.astype(float)).max(), name != "float32"
    bound = 3 * 2.0**-23 * longest + half * float(ml_dtypes.finfo(dtype).eps) / 2 * np.abs(truth)
    for kind in (x, torch.tensor(x.astype(np.float64)).to(getattr(torch, name))):
        turned: Any = rotary(kind, places, interleaved=interleaved)
        assert turned.dtype == kind.dtype
        turned = turned.double() if isinstance(turned, torch.Tensor) else turned
        assert (np.abs(np.asarray(turned, dtype=np.float64) - truth) <= bound).all()


def test_positions_of_any_kind_for_arrays_and_tensors() -> None:
    x, places = drawn(T, D), np.array([5.0, 6, 7, 8, 200])
    expected = rotary(x, places)
    kinds: list[Any] = [ml_dtypes.bfloat16, ">f8", np.longdouble, "i2", "u1"]
    given_places: list[Any] = [places.astype(kind) for kind in kinds]
    given_places += [
        places[::-1].copy()[::-1], tuple(places), torch.tensor(places, requires_grad=True),
        *(torch.tensor(places, dtype=dtype) for dtype in (torch.bfloat16, torch.int16)),
    ]
    for own in given_places:
        np.testing.assert_array_equal(rotary(x, own), expected)
        np.testing.assert_allclose(rotary(torch.tensor(x), own).detach(), expected, atol=1e-12)


def test_numbers_of_any_real_type_warn_nobody() -> None:
    ones = np.ones((T, D))
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(rotary(ones, base=np.float32(7.5)), rotary(ones, base=7.5))
        # Here the angles are beyond float64.
        assert np.isnan(sinusoidal(3, 100, base=5e-324)).any()
        assert np.isnan(rotary(ones, [np.longdouble("1e400")] * T)).all()


def test_each_sequence_of_a_batch_may_have_positions_of_its_own() -> None:
    x = np.random.default_rng(1).normal(size=(2, 2, 3, 4))  # as many sequences as heads
    places = [[0, 1, 2], [5, 6, 7]]
    for own, row, place in zip(rotary(x, places), x, places, strict=True):
        np.testing.assert_array_equal(own, rotary(row, place))


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
def test_gradients_vmap_compile_and_meta(interleaved: bool) -> None:
    turn = functools.partial(rotary, interleaved=interleaved)
    x, places = torch.tensor(drawn(B, H, T, 4)), torch.arange(3, 3 + T)
    leaves = x[0, :1].requires_grad_(), (places / 2).double().requires_grad_()
    assert torch.autograd.gradcheck(turn, leaves) and torch.autograd.gradgradcheck(turn, leaves)
    per_sequence = torch.func.vmap(turn)(x, torch.stack([places, 2 * places]))
    torch.testing.assert_close(per_sequence[1], turn(x[1], 2 * places))
    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, places), turn(x, places))
    assert turn(x.to("meta")).device.type == "meta"


def test_the_device_is_that_of_x_and_of_the_angles_where_there_is_float64() -> None:
    x = torch.ones(3, 4)
    with torch.device("meta"):
        assert rotary(x).device.type == rotary(x, [0, 1, 2]).device.type == "cpu"
        assert sinusoidal(3, 4, like=x).device.type == "cpu"
    for kind, place in (("mps", "cpu"), ("cuda", "itself")):
        device = SimpleNamespace(type=kind)
        found = _wide_device(SimpleNamespace(device=device))
        assert found == (place if place == "cpu" else device)
