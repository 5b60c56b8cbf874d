"""Messages between the judge and the process of a kernel: a header in JSON, and raw bytes.

Nothing is pickled, so that what a kernel's process sends is numbers and words, and never code.
Inputs go through memory that both share (`Memory`), which the judge reads itself after each call.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attncheck._types import Array

HEAD = struct.Struct("<QQ")  # the lengths of header and body
GUARD = 64  # bytes of NaN on both sides of an input
# The bytes of a number of each dtype that a result can have.
WIDTHS = {"bool": 1, "uint8": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
WIDTHS |= {"int16": 2, "int32": 4, "int64": 8}
FORKED = 0  # the byte that says that a call came back in a second process


def message(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a message: two lengths, a header in JSON, and a body.

    >>> message({"a": 1}, b"xy")[HEAD.size:]
    b'{"a": 1}xy'
    """
    words = json.dumps(header).encode()
    return HEAD.pack(len(words), len(body)) + words + body


@dataclass
class Sent:
    """An input in the shared memory.

    Attributes:
        told: Where and how it lies: offset, shape, strides, dtype, and whether it may be written.
        view: The judge's own view of it.
        region: Its bytes in the memory, between those that guard it.
        sparse: Whether its numbers lie so far apart that what is between them is not looked at.
        before: A hash of what it held when it was put there.
        name: The name of the argument.
    """

    told: dict[str, Any]
    view: Array
    region: slice
    sparse: bool
    before: bytes = b""
    name: str = "an input"


class Came(NamedTuple):
    """A result: its number among those that the process holds, its shape, and its bytes.

    `wrong` says what it is in place of an array.
    """

    n: int
    dtype: str
    shape: tuple[int, ...]
    numbers: Array
    bits: bytes
    wrong: str = ""


class Valued(NamedTuple):
    """A value of ours that the kernel's own function takes to its value: `Kernel.values`."""

    word: str
    own: Any


def encoded(thing: Any) -> dict[str, Any]:
    """Return an argument as JSON has it.

    >>> encoded((3, None))
    {'tuple': [{'is': 3}, {'is': None}]}
    """
    if isinstance(thing, Sent):
        return {"array": thing.told}
    if isinstance(thing, Came):
        return {"result": thing.n}
    if isinstance(thing, Valued):
        return {"word": thing.word, "own": encoded(thing.own)}
    if isinstance(thing, (tuple, list)):
        return {type(thing).__name__: [encoded(own) for own in thing]}
    thing = thing.item() if isinstance(thing, np.generic) else thing
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return {"is": thing}
    raise TypeError(f"an argument must be an array, numbers or words; got {thing!r}")


class Memory:
    """Memory that two processes share: a file without a name. It holds the inputs of one case."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.placed: list[Sent] = []
        self.used = GUARD
        self.grow(1 << 20)

    def grow(self, size: int) -> None:
        """Map this many bytes; views of what was mapped before stay."""
        if os.fstat(self.file).st_size < size:
            os.ftruncate(self.file, size)
        self.bytes, self.size = mmap.mmap(self.file, size), size

    def clear(self) -> None:
        """Forget the inputs of the last case."""
        self.placed, self.used = [], GUARD

    def place(self, own: Array) -> Sent:
        """Put an array into the memory as it lies, strides and all, between bytes of NaN."""
        ends = [(n - 1) * stride for n, stride in zip(own.shape, own.strides, strict=True)]
        below = -sum(end for end in ends if end < 0) if own.size else 0
        above = sum(end for end in ends if end > 0) + own.itemsize if own.size else 0
        address = own.__array_interface__["data"][0]
        start = self.used + GUARD + address % own.itemsize  # as aligned as it was
        region = slice(start, start + below + above)
        self.used = -(-(region.stop + GUARD) // GUARD) * GUARD
        if self.used > self.size:
            self.grow(2 * self.used)
        told = {
            "offset": start + below, "shape": own.shape, "strides": own.strides,
            "dtype": own.dtype.name, "writeable": True,
        }
        sent = Sent(told, self.view(told), region, below + above > 4 * own.nbytes + (1 << 26))
        for guard in _guards(region):
            self.bytes[guard] = b"\xff" * GUARD
        if sent.sparse:
            sent.view[...] = own
        else:
            held = (ctypes.c_char * (below + above)).from_address(address - below)
            self.bytes[region] = memoryview(held).cast("B")
        told["writeable"] = own.flags.writeable
        sent.before = self._hash(sent)
        self.placed.append(sent)
        return sent

    def view(self, told: dict[str, Any]) -> Array:
        """Return the array that lies in the memory as it is told."""
        shape, strides = tuple(told["shape"]), tuple(told["strides"])
        own: Array = np.ndarray(shape, told["dtype"], self.bytes, told["offset"], strides)
        own.flags.writeable = told["writeable"]
        return own

    def changed(self) -> tuple[Sent, bool] | None:
        """Return an input that does not hold what it held, and whether its own numbers changed."""
        for sent in self.placed:
            within = self._hash(sent) != sent.before
            if within or any(self.bytes[own] != b"\xff" * GUARD for own in _guards(sent.region)):
                return sent, within
        return None

    def _hash(self, sent: Sent) -> bytes:
        held = sent.view.tobytes() if sent.sparse else memoryview(self.bytes)[sent.region]
        return hashlib.blake2b(held).digest()


def _guards(region: slice) -> tuple[slice, slice]:
    return slice(region.start - GUARD, region.start), slice(region.stop, region.stop + GUARD)
