"""What a case is: a topic, its words, and the call that it makes, drawn from a seed.

All numbers of a case are float64 arrays whose entries the case's dtype can hold, so that truth and
kernel start from the same numbers. They become arrays or tensors of that dtype only when a kernel
is called (`_backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from attnlib._checks import FLOATING, Array, Shape

NOT_FLOAT16 = ("bfloat16", "float32", "float64")
# Different primes: no two axes can be taken for each other.
B, H, L, S, E, E_V = 2, 3, 5, 7, 13, 11

TOPICS = {
    "values": "shapes, ranks, lengths, leading dimensions that broadcast, scales, large scores",
    "masks": "boolean and floating masks, in every shape that broadcasts",
    "causal": "is_causal: query i sees keys 0 to i, for lengths that are equal or not",
    "bottom-right": 'causal_align="bottom-right": the last query stands at the last key',
    "windows": "window=(left, right): the keys around a query's own position",
    "groups": "enable_gqa: query head h uses key head h // (H / H_kv)",
    "empty": "rows with nothing to attend to give zeros; axes of length 0",
    "numbers": "NaN that takes part and NaN that is removed, numbers near the largest one",
    "layouts": "transposed, strided and expanded inputs; inputs untouched, the result its own",
    "dtypes": "float16, bfloat16, float32, float64, and sums of half precision in float32",
    "gradients": "the gradients of query, key and value",
    "mask gradients": "the gradient of a floating mask",
    "errors": "invalid calls are refused, with a message",
}

Layout = Callable[[Array], Array]


class WrongResultError(Exception):
    """What is wrong with a result, in words."""


class Given(NamedTuple):
    """An argument: its numbers, its dtype, and how it lies in memory.

    `layout` takes an array to one that is equal but lies otherwise; None leaves it contiguous.
    """

    numbers: Array
    dtype: str
    layout: Layout | None = None

    def __str__(self) -> str:
        words = [str(self.numbers.shape), self.dtype]
        if self.layout is not None:
            words.append(self.layout.__name__.replace("_", " "))
        return " ".join(words)


@dataclass(frozen=True)
class Call:
    """One call, and what is known of its result beyond the definition.

    Attributes:
        given: The arguments that are arrays, by name: query, key, value and attn_mask.
        options: The keywords that are not; one that the case does not need is not passed.
        upstream: The gradient of the output; None where the output alone is compared.
        wanted: The arguments whose gradients are compared.
        meant: Numbers that replace the given ones in the truth; what a mask removes may be NaN in
            the given ones and must not matter.
        truth: The result, where it is known without the definition.
        size: How many ε the result may be off, where it is less than the inputs would allow.
        peer: What stands for plain attention in half precision, where that would overflow.
        refused: Whether the call must raise.
        watched: Whether the inputs must be untouched, and the result must own its memory.
    """

    given: dict[str, Given]
    options: dict[str, Any] = field(default_factory=dict)
    upstream: Given | None = None
    wanted: tuple[str, ...] = ("query", "key", "value")
    meant: dict[str, Array] = field(default_factory=dict)
    truth: Array | None = None
    size: float | None = None
    peer: Array | None = None
    refused: bool = False
    watched: bool = False

    def __str__(self) -> str:
        arrays = [f"{name} {given}" for name, given in self.given.items()]
        options = [f"{name}={option!r}" for name, option in self.options.items()]
        upstream = [] if self.upstream is None else [f"gradient of the output {self.upstream}"]
        return ", ".join([*arrays, *options, *upstream])


Draw = Callable[[str], Call]  # draws a call for a dtype


@dataclass(frozen=True)
class Case:
    """One call that a kernel must get right, in one dtype.

    Attributes:
        topic: One of `TOPICS`.
        name: What is checked, in plain words.
        draw: The function that draws the call for a dtype.
        needs: Topics that the call uses as well: it is left out with each of them.
        dtypes: The dtypes that the call can have.
        kinds: The kinds of kernel that the case is for.
        dtype: The dtype of the call.
    """

    topic: str
    name: str
    draw: Draw = field(repr=False)
    needs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = FLOATING
    kinds: tuple[str, ...] = ("numpy", "torch")
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.topic}: {self.name}, {self.dtype}"

    @property
    def call(self) -> Call:
        """Return the call, drawn anew."""
        return self.draw(self.dtype)


def rounded(numbers: Array, dtype: str) -> Array:
    """Return the nearest numbers that a dtype has, as float64.

    NumPy itself has no bfloat16: a float32 whose lower 16 bits are 0.

    >>> rounded(np.array([1 + 2**-9, 1 + 3 * 2**-8]), "bfloat16")
    array([1.      , 1.015625])
    """
    if dtype != "bfloat16":
        return np.asarray(numbers, np.float64).astype(dtype).astype(np.float64)
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (even & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def drawn(*shapes: Shape, dtype: str = "float64", seed: int = 7) -> list[Array]:
    """Return normal numbers of standard deviation 1.5: results are larger than tolerances."""
    rng = np.random.default_rng(seed)
    return [rounded(rng.normal(0, 1.5, shape), dtype) for shape in shapes]


def random_mask(shape: Shape) -> Array:
    """Return a boolean mask that removes two keys of five; every row keeps its first one."""
    mask: Array = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0] = True
    return mask


def qkv(
    dtype: str, query: Shape = (B, H, L, E), key: Shape = (B, H, S, E), value: Shape | None = None
) -> dict[str, Given]:
    """Return query, key and value of these shapes; the value's last axis has its own length."""
    value = (*key[:-1], E_V) if value is None else value
    names = ("query", "key", "value")
    numbers = drawn(query, key, value, dtype=dtype)
    return {name: Given(n, dtype) for name, n in zip(names, numbers, strict=True)}


def shaped(
    query: Shape = (B, H, L, E), key: Shape = (B, H, S, E), value: Shape | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Draw:  # fmt: skip
    """Return the function that draws a call of these shapes, with these options."""
    return lambda dtype: Call(qkv(dtype, query, key, value), dict(options))


def heads(
    n_queries: int = L, n_keys: int = S, options: Mapping[str, Any] = MappingProxyType({})
) -> Draw:
    """Return the function that draws a call as most kernels take it: batch, heads, one E."""
    query, key = (1, B, n_queries, E), (1, B, n_keys, E)
    return shaped(query, key, key, options)


def with_mask(
    mask: Array, mask_dtype: str = "", query: Shape = (B, H, L, E), key: Shape = (B, H, S, E),
    value: Shape = (B, H, S, E),
) -> Draw:  # fmt: skip
    """Return the function that draws a call with this mask, of the inputs' dtype or of its own."""

    def draw(dtype: str) -> Call:
        kind = "bool" if mask.dtype == np.bool_ else mask_dtype or dtype
        own = mask if kind == "bool" else rounded(mask, kind)
        return Call(qkv(dtype, query, key, value) | {"attn_mask": Given(own, kind)})

    return draw
