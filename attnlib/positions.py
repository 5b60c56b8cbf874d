"""Positions: what tells attention in which order its tokens stand.

Both forms turn by the angles φ(t, c) = t · base^(-2c/d), for position t and pair c of d features:
the first pair turns by one radian a token, the last one nearly `base` times more slowly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from attnlib._checks import (
    HALF,
    Array,
    check_dtypes,
    check_flag,
    check_like,
    checked_count,
    dtype_name,
    is_tensor,
)
from attnlib._numpy_door import check_array

if TYPE_CHECKING:
    import torch

Vectors = TypeVar("Vectors", Array, "torch.Tensor")


def _checked_base(base: Any) -> float:
    if isinstance(base, bool) or not isinstance(base, Real):
        raise TypeError(f"base must be a real number; got {type(base).__name__} {base!r}")
    try:
        number = float(base)
    except OverflowError:
        number = math.inf
    if not 0 < number < math.inf:
        raise ValueError(f"base must be positive and finite; got {base!r}")
    return number


def _check_even(name: str, number: int) -> None:
    if number % 2:
        raise ValueError(f"{name} must be even, because features turn in pairs; got {number}")


@overload
def sinusoidal(
    n_tokens: int, d_model: int, *, base: float = ..., like: Array | None = None
) -> NDArray[np.float64]: ...
@overload
def sinusoidal(
    n_tokens: int, d_model: int, *, base: float = ..., like: torch.Tensor
) -> torch.Tensor: ...
def sinusoidal(n_tokens: int, d_model: int, *, base: float = 10000.0, like: Any = None) -> Any:
    """Return one row for each position, to be added to the tokens: sines and cosines in turn.

    The rows hold the angles φ(t, c) of the module:

        p[t, 2c] = sin φ(t, c),   p[t, 2c + 1] = cos φ(t, c)

    Args:
        n_tokens: T, the number of positions, counted from 0.
        d_model: the number of features, an even number.
        base: how many times more slowly the last pair turns, nearly, than the first one.
        like: a tensor, for a table on its device; an array or None, for an array.

    Returns:
        The table, in float64.

    Shapes:
        (T, d_model)

    Raises:
        TypeError: for a count that is no integer, a base that is no real number, or a `like` that
            is neither array nor tensor.
        ValueError: for a count below 0, an odd d_model, or a base that is not positive and finite.

    Source:
        Vaswani et al. 2017, section 3.5; chapter 09.

    Example:
        At position 0 every angle is 0.

        >>> sinusoidal(1, 4)
        array([[0., 1., 0., 1.]])
    """
    n_tokens, d_model = checked_count("n_tokens", n_tokens), checked_count("d_model", d_model)
    _check_even("d_model", d_model)
    base = _checked_base(base)
    check_like(like)
    if is_tensor(like):
        return _table(sys.modules["torch"], n_tokens, d_model, base, device=_wide_device(like))
    with np.errstate(all="ignore"):  # an angle beyond float64 gives NaN, and warns nobody
        return _table(np, n_tokens, d_model, base)


def rotary(
    x: Vectors,
    positions: Sequence[float] | Array | torch.Tensor | None = None,
    *,
    base: float = 10000.0,
    interleaved: bool = True,
) -> Vectors:
    """Return x with the pairs of features in each row turned by the angles of its position (RoPE).

    A pair (a, b) = (x[t, 2c], x[t, 2c + 1]) becomes, with φ = φ(positions[t], c):

        y[t, 2c]     = cos φ · a - sin φ · b
        y[t, 2c + 1] = sin φ · a + cos φ · b

    Turning queries and keys leaves their lengths alone, and makes the product of query i and key j
    depend on the positions by their difference only. Half precision is computed in float32 and
    rounded once.

    Two conventions say which features are a pair. Neighbours, 2c and 2c + 1, are the paper's
    (`interleaved=True`). GPT-NeoX, and Llama in Hugging Face's transformers, split the features in
    halves and pair c with c + d/2 (`interleaved=False`, where the code has a function
    `rotate_half`). One is the other with the features in another order, as the example shows.
    Weights of one convention therefore serve the other if the columns of each head in W_Q and in
    W_K are reordered alike; the scores do not change.

    Args:
        x: queries or keys, an array or a tensor.
        positions: the position of each row; 0 … T - 1 where None. Positions may be negative, or
            lie between integers.
        base: how many times more slowly the last pair turns, nearly, than the first one.
        interleaved: whether a pair is two neighbours, or one feature from each half.

    Returns:
        The turned rows, of x's type and dtype.

    Shapes:
        x (…, T, d), positions (T,) → (…, T, d)

    Raises:
        TypeError: for an x that is no floating array or tensor, positions that are no numbers, a
            base that is no real number, or an `interleaved` that is neither True nor False.
        ValueError: for a rank under 2, an odd d, positions of another shape than (T,), or a base
            that is not positive and finite.

    Source:
        Su et al. 2021, RoFormer (arXiv 2104.09864), section 3.2.2; chapter 09.

    Example:
        Position 0 changes nothing, and position π turns the first pair half round.

        >>> rotary(np.array([[1.0, 2.0], [1.0, 2.0]]), [0, np.pi]).round(12)
        array([[ 1.,  2.],
               [-1., -2.]])

        With base 1 all pairs turn alike, here by a quarter: (a, b) becomes (-b, a).

        >>> x = np.array([[1.0, 2.0, 3.0, 4.0]])
        >>> rotary(x, [np.pi / 2], base=1).round(12)
        array([[-2.,  1., -4.,  3.]])
        >>> rotary(x, [np.pi / 2], base=1, interleaved=False).round(12)
        array([[-3., -4.,  1.,  2.]])

        The order 0, d/2, 1, d/2 + 1 and so on makes the pairs of halves neighbours.

        >>> order = [0, 2, 1, 3]
        >>> halves, neighbours = rotary(x, [5], interleaved=False), rotary(x[:, order], [5])
        >>> np.array_equal(halves[:, order], neighbours)
        True
    """
    base = _checked_base(base)
    check_flag("interleaved", interleaved)
    if is_tensor(x):
        return cast(Vectors, _tensor_rotary(x, positions, base, bool(interleaved)))
    if not isinstance(x, np.ndarray):
        raise TypeError(f"x must be a numpy.ndarray or torch.Tensor; got {type(x).__name__}")
    check_array("x", x)
    x = np.asarray(x)
    _check_vectors(x.shape, x.dtype.name)
    n_tokens = x.shape[-2]
    places = np.arange(n_tokens, dtype=float) if positions is None else _places(positions, n_tokens)
    wide = np.dtype(np.float32 if x.dtype.name in HALF else x.dtype)
    with np.errstate(all="ignore"):
        angles = _angles(np, places, x.shape[-1], base)
        cos, sin = np.cos(angles).astype(wide), np.sin(angles).astype(wide)
        turned = _turned(np, x.astype(wide), cos, sin, bool(interleaved))
        return cast(Vectors, turned.astype(x.dtype))


def _wide_device(tensor: Any) -> Any:
    """Return the device for the angles. Apple's GPUs have no float64: for them it is the CPU."""
    return "cpu" if tensor.device.type == "mps" else tensor.device


def _tensor_rotary(x: Any, positions: Any, base: float, interleaved: bool) -> Any:
    import torch  # arrays do without it

    _check_vectors(tuple(x.shape), dtype_name(x))
    device = _wide_device(x)
    if positions is None:
        places = torch.arange(x.shape[-2], device=device)
    elif is_tensor(positions):
        _check_positions(tuple(positions.shape), dtype_name(positions), x.shape[-2])
        places = positions.to(device)
    else:
        places = torch.as_tensor(_places(positions, x.shape[-2]), device=device)
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    angles = _angles(torch, places.to(torch.float64), x.shape[-1], base, device=device)
    cos, sin = (f(angles).to(device=x.device, dtype=wide) for f in (torch.cos, torch.sin))
    return _turned(torch, x.to(wide), cos, sin, interleaved).to(x.dtype)


# From here on one text serves both: `xp` is numpy or torch.


def _angles(xp: Any, positions: Any, d: int, base: float, **place: Any) -> Any:
    """Return φ, (T, d / 2), from positions (T,) in float64.

    In float64 for any dtype of x: float32 resolves an angle of 100,000 radians to 0.008 only.
    """
    exponents = xp.arange(0, d, 2, dtype=xp.float64, **place) / d
    return positions[:, None] * base**-exponents


def _table(xp: Any, n_tokens: int, d: int, base: float, **place: Any) -> Any:
    angles = _angles(xp, xp.arange(n_tokens, dtype=xp.float64, **place), d, base, **place)
    return xp.stack([xp.sin(angles), xp.cos(angles)], -1).reshape(n_tokens, d)


def _turned(xp: Any, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    if not interleaved:
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        return xp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = [even * cos - odd * sin, even * sin + odd * cos]
    return xp.stack(pairs, -1).reshape(x.shape)  # (…, T, d / 2, 2) → (…, T, d)


def _check_vectors(shape: tuple[int, ...], dtype: str) -> None:
    check_dtypes({"x": dtype})
    if len(shape) < 2:
        raise ValueError(f"x must have at least 2 dimensions (…, T, d); got {shape}")
    _check_even("the last dimension of x", shape[-1])


def _places(positions: Any, n_tokens: int) -> NDArray[np.float64]:
    """Return positions of any kind as an array in float64."""
    if isinstance(positions, np.ma.MaskedArray):
        raise TypeError("positions must be numbers; got a MaskedArray, whose mask would be lost")
    if is_tensor(positions):
        _check_positions(tuple(positions.shape), dtype_name(positions), n_tokens)
        return np.asarray(positions.detach().cpu().double())
    try:
        places = np.asarray(positions)
    except ValueError:
        raise ValueError(
            f"positions must have shape (T,) = ({n_tokens},); got {positions!r}"
        ) from None
    _check_positions(places.shape, places.dtype.name, n_tokens)
    with np.errstate(all="ignore"):
        return places.astype(np.float64)


def _check_positions(shape: tuple[int, ...], dtype: str, n_tokens: int) -> None:
    if shape != (n_tokens,):
        raise ValueError(f"positions must have shape (T,) = ({n_tokens},); got {shape}")
    if not dtype.startswith(("int", "uint", "float", "bfloat", "longdouble")):
        raise TypeError(f"positions must be integers or floating numbers; got dtype {dtype}")
