"""Backends: what turns the numbers of a call into arrays, and results back into numbers.

`Backend` says what the comparison needs. `NumpyBackend` is the one for arrays; the one for tensors,
which needs torch, is in `_torch_backend`.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from attncheck._calls import Call, Given, WrongResultError
from attncheck._definition import problem
from attncheck._tolerance import finite
from attncheck._types import FLOATING, Array, scale_of


class Backend(ABC):
    """Makes the arrays that an implementation is given, and reads those that it returns.

    Attributes:
        missing: Why a dtype is missing in `dtypes`, in words.
    """

    missing = ""

    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that there are."""
        return FLOATING

    def poisoned(self) -> AbstractContextManager[Any]:
        """Return a context in which memory that is allocated holds NaN, where that can be had."""
        return nullcontext()

    @abstractmethod
    def give(self, given: Given) -> Any:
        """Return the argument as an array of its dtype and layout."""

    @abstractmethod
    def bits(self, own: Any) -> bytes:
        """Return what an array holds, to see whether it was modified."""

    @abstractmethod
    def take(self, result: Any) -> tuple[Array, str]:
        """Return a result in float64, and the name of its dtype.

        Raises:
            WrongResultError: a result that is no array of this backend.
        """

    def held(self, own: Array, dtype: str) -> Any:
        """Return what lies in memory as `stored` has it, where it lies, as the kernel's array."""
        raise NotImplementedError  # pragma: no cover (only the kinds of the command need it)

    def packed(self, result: Any) -> tuple[Array, str]:
        """Return a result as `stored` has it, and the name of its dtype; raise as `take` does."""
        raise NotImplementedError  # pragma: no cover (only the kinds of the command need it)

    @abstractmethod
    def shares(self, result: Any, own: Any) -> bool:
        """Return whether a result lies in the memory of an argument."""

    @abstractmethod
    def peer(self, call: Call) -> Array:
        """Return plain attention with every step in the inputs' dtype, as its errors measure."""

    def gradients(
        self, attention: Any, own: dict[str, Any], upstream: Any, wanted: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the gradients that an implementation gives for a gradient of its output."""
        raise NotImplementedError  # pragma: no cover (only cases for tensors need gradients)

    def peer_gradients(self, call: Call) -> dict[str, Array]:
        """Return the gradients of plain attention, every step in the inputs' dtype."""
        raise NotImplementedError  # pragma: no cover (only cases for tensors need gradients)


def of_dtype(numbers: Array, dtype: str) -> Array:
    """Return the numbers as an array of this dtype; NumPy has its bfloat16 from ml_dtypes."""
    if dtype == "bfloat16":
        return numbers.astype(importlib.import_module("ml_dtypes").bfloat16)
    return numbers.astype(dtype)


def stored(numbers: Array, dtype: str) -> Array:
    """Return numbers that a dtype can hold in that dtype; bfloat16 as its 16 bits.

    They are the upper ones of float32's 32.
    """
    if dtype != "bfloat16":
        return numbers.astype(dtype)
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype(np.uint16).view(np.int16)


def wide(own: Array, dtype: str) -> Array:
    """Return what `stored` has in float64.

    >>> wide(stored(np.array([1.5, -2.0]), "bfloat16"), "bfloat16")
    array([ 1.5, -2. ])
    """
    if dtype == "bfloat16":
        own = (own.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return own.astype(np.float64)


class NumpyBackend(Backend):
    """Gives arrays of NumPy, and takes such an array back. It has no gradients."""

    missing = "ml_dtypes is not installed"

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu":
            raise ValueError(f'device must be "cpu" for NumPy arrays; got {device!r}')

    def dtypes(self) -> tuple[str, ...]:
        has_bfloat16 = importlib.util.find_spec("ml_dtypes") is not None
        return tuple(dtype for dtype in FLOATING if dtype != "bfloat16" or has_bfloat16)

    def give(self, given: Given) -> Array:
        own = of_dtype(given.numbers, given.dtype)
        return own if given.layout is None else given.layout(own)

    def bits(self, own: Array) -> bytes:
        return own.tobytes()

    def held(self, own: Array, dtype: str) -> Array:
        if dtype != "bfloat16":
            return own
        return own.view(importlib.import_module("ml_dtypes").bfloat16)

    def packed(self, result: Any) -> tuple[Array, str]:
        self._require_array(result)
        own, name = np.asarray(result), result.dtype.name
        own = own.view(np.int16) if name == "bfloat16" else own
        return own.astype(own.dtype.newbyteorder("="), copy=False), name

    def _require_array(self, result: Any) -> None:
        # An object may say that its class is another one; its type is what it is.
        if not issubclass(type(result), np.ndarray):
            raise WrongResultError(f"expected a numpy.ndarray, got {type(result).__qualname__}")

    def take(self, result: Any) -> tuple[Array, str]:
        self._require_array(result)
        numbers = result.astype(np.float64) if result.dtype.kind in "fViub" else result
        return numbers, result.dtype.name

    def shares(self, result: Array, own: Array) -> bool:
        """Return whether a result lies in the memory of an argument, or cannot be written to."""
        return bool(np.shares_memory(result, own)) or not result.flags.writeable

    def peer(self, call: Call) -> Array:
        query, key, value, mask, scale, softcap, sinks = problem(call)
        dtype = call.given["query"].dtype
        query, key, value = (of_dtype(finite(x), dtype) for x in (query, key, value))
        factor = scale_of(scale, query.shape[-1])
        scores = np.matmul(query, key.swapaxes(-1, -2)) * query.dtype.type(factor)
        if softcap is not None:
            cap = query.dtype.type(softcap)
            scores = cap * np.tanh(scores / cap)
        if mask is not None:
            allowed = mask if mask.dtype == np.bool_ else mask != -np.inf
            if mask is not allowed:
                scores = scores + of_dtype(mask, dtype)
            scores = np.where(allowed, scores, of_dtype(np.array(-np.inf), dtype))
        highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        if sinks is not None:
            sinks = of_dtype(sinks[:, None, None], dtype)
            highest = np.maximum(highest, sinks)
        highest = np.where(np.isinf(highest), np.zeros_like(highest), highest)
        powers = np.exp(scores - highest)
        total = powers.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks - highest)
        weights = powers / np.where(total == 0, np.ones_like(total), total)
        return np.asarray(np.matmul(weights, value), np.float64)
