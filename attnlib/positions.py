"""Positions: what tells attention in which order its tokens stand.

Both forms turn by the angles φ(t, c) = t · base^(-2c/d), for position t and pair c of d features:
the first pair turns by one radian a token, the last one nearly `base` times more slowly. Angles
are float64 for any dtype of x, because float32 resolves 100,000 radians to 0.008 only.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlib._arrays import check_array
from attnlib._checks import (
    HALF,
    Array,
    Shape,
    check_dtypes,
    check_flag,
    check_like,
    checked_count,
    checked_real,
    dtype_name,
    is_tensor,
)

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar

    Vectors = TypeVar("Vectors", Array, torch.Tensor, default=Array)


def sinusoidal(
    n_tokens: int, d_model: int, *, base: float = 10000.0, like: Vectors | None = None,
    start: int = 0,
) -> Vectors:
    """Return one row for each position, to be added to the tokens: sines and cosines in turn.

    The rows hold the angles φ(t, c) of the module, in float64:

        p[t, 2c] = sin φ(t, c),   p[t, 2c + 1] = cos φ(t, c)

    Args:
        n_tokens: T, the number of positions.
        d_model: the number of features, an even number.
        base: how many times more slowly the last pair turns, nearly, than the first one.
        like: a tensor, for a table on its device; an array or None, for an array.
        start: the first position.

    Shapes:
        (T, d_model)

    Raises:
        TypeError, ValueError: for sizes that are no counts, an odd d_model, a base that is no
            positive finite number, or a `like` that is neither array nor tensor.

    Source:
        Vaswani et al. 2017, section 3.5; chapter 09.

    Example:
        At position 0 every angle is 0.

        >>> sinusoidal(1, 4)
        array([[0., 1., 0., 1.]])
    """
    n_tokens, d_model = checked_count("n_tokens", n_tokens), checked_count("d_model", d_model)
    start = checked_count("start", start)
    _check_even("d_model", d_model)
    base = _checked_base(base)
    check_like(like)
    xp, on, quiet = _library(like)
    with quiet:
        positions = xp.arange(start, start + n_tokens, dtype=xp.float64, **on)
        angles = _angles(xp, positions, d_model, base, **on)
        pairs = xp.stack([xp.sin(angles), xp.cos(angles)], -1)
        rows: Vectors = pairs.reshape(n_tokens, d_model)
    return rows


def rotary(
    x: Vectors, positions: Sequence[float] | Array | torch.Tensor | None = None, *,
    base: float = 10000.0, interleaved: bool = True,
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
        x: queries or keys, an array or a tensor. The result has its type and dtype.
        positions: the position of each row; 0 … T - 1 where None. Positions may be negative, or
            lie between integers. In two dimensions, one list for each sequence of a batch.
        base: how many times more slowly the last pair turns, nearly, than the first one.
        interleaved: whether a pair is two neighbours, or one feature from each half.

    Shapes:
        x (…, T, d), positions (T,) → (…, T, d);
        x (B, …, T, d), positions (B, T) → (B, …, T, d)

    Raises:
        TypeError, ValueError: for an x that is no floating array or tensor of such a shape, an odd
            d, positions that are not numbers of such a shape, or a base that is no positive finite
            number.

    Source:
        Su et al. 2021, RoFormer (arXiv 2104.09864), section 3.2.2; chapter 09.

    Example:
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
    if not is_tensor(x):
        if not isinstance(x, np.ndarray):
            raise TypeError(f"x must be a numpy.ndarray or torch.Tensor; got {type(x).__name__}")
        x = check_array("x", x)
    check_dtypes({"x": dtype_name(x)})
    if x.ndim < 2:
        raise ValueError(f"x must have at least 2 dimensions (…, T, d); got {tuple(x.shape)}")
    d = x.shape[-1]
    _check_even("the last dimension of x", d)
    xp, on, quiet = _library(x)
    wide = xp.float32 if dtype_name(x) in HALF else x.dtype
    with quiet:
        angles = _angles(xp, _positions(xp, positions, tuple(x.shape[:-1]), **on), d, base, **on)
        cos, sin, rows = (_as(y, wide, x) for y in (xp.cos(angles), xp.sin(angles), x))
        if interleaved:
            a, b = rows[..., 0::2], rows[..., 1::2]
        else:
            a, b = rows[..., : d // 2], rows[..., d // 2 :]
        pairs = [a * cos - b * sin, a * sin + b * cos]
        # (…, T, d / 2, 2) → (…, T, d) for neighbours, 2 · (…, T, d / 2) → (…, T, d) for halves
        turned = xp.stack(pairs, -1).reshape(x.shape) if interleaved else xp.concatenate(pairs, -1)
        result: Vectors = _as(turned, x.dtype, x)
    return result


# One text serves arrays and tensors: `xp` is numpy or torch.


def _library(like: Any) -> tuple[Any, dict[str, Any], contextlib.AbstractContextManager[Any]]:
    """Return numpy or torch, the device of the angles, and what keeps numpy from warning.

    An angle beyond float64 gives NaN, and infinite features do: no reason to warn.
    """
    if is_tensor(like):
        return sys.modules["torch"], {"device": _wide_device(like)}, contextlib.nullcontext()
    return np, {}, np.errstate(all="ignore")


def _wide_device(tensor: Any) -> Any:
    """Return the device for the angles. Apple's GPUs have no float64: for them it is the CPU."""
    return "cpu" if tensor.device.type == "mps" else tensor.device


def _angles(xp: Any, positions: Any, d: int, base: float, **on: Any) -> Any:
    """Return φ, (…, T, d / 2), from positions (…, T) in float64."""
    exponents = xp.arange(0, d, 2, dtype=xp.float64, **on) / d
    return positions[..., None] * base**-exponents


def _as(array: Any, dtype: Any, like: Any) -> Any:
    """Return an array or tensor in this dtype, on the device of `like`."""
    return array.to(device=like.device, dtype=dtype) if is_tensor(like) else array.astype(dtype)


def _positions(xp: Any, positions: Any, rows: Shape, **on: Any) -> Any:
    """Return positions of any kind in float64, in a shape that broadcasts to rows (…, T)."""
    n_tokens = rows[-1]
    if positions is None:
        return xp.arange(n_tokens, dtype=xp.float64, **on)
    wanted = f"positions must have shape (T,) = ({n_tokens},)"
    if len(rows) > 1:
        wanted += f" or (B, T) = ({rows[0]}, {n_tokens})"
    if isinstance(positions, np.ma.MaskedArray):
        raise TypeError("positions must be numbers; got a MaskedArray, whose mask would be lost")
    try:
        given: Any = positions if is_tensor(positions) else np.asarray(positions)
    except ValueError:
        raise ValueError(f"{wanted}; got {positions!r}") from None
    in_batch = len(rows) > 1 and given.ndim == 2
    if tuple(given.shape) != ((rows[0], n_tokens) if in_batch else (n_tokens,)):
        raise ValueError(f"{wanted}; got {tuple(given.shape)}")
    if in_batch:  # (B, T) → (B, 1, …, 1, T), so that B cannot be taken for H
        given = given.reshape(rows[0], *[1] * (len(rows) - 2), n_tokens)
    if not (dtype := dtype_name(given)).startswith(
        ("int", "uint", "float", "bfloat", "longdouble")
    ):
        raise TypeError(f"positions must be integers or floating numbers; got dtype {dtype}")
    if is_tensor(given) and xp is not np:
        return given.to(**on).to(xp.float64)
    if is_tensor(given):
        return np.asarray(given.detach().cpu().double())
    with np.errstate(all="ignore"):
        return xp.asarray(given.astype(np.float64), **on)


def _checked_base(base: object) -> float:
    number = checked_real("base", base)
    if not 0 < number < math.inf:
        raise ValueError(f"base must be positive and finite; got {base!r}")
    return number


def _check_even(name: str, number: int) -> None:
    if number % 2:
        raise ValueError(f"{name} must be even, because features turn in pairs; got {number}")
