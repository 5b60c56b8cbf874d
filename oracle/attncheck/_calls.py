"""What a case is: a topic, its words, and the call that it makes, drawn for a setting.

All numbers of a case are float64 arrays whose entries the case's dtype can hold, so that truth and
kernel start from the same numbers. They become arrays or tensors of that dtype only when a kernel
is called (`_backends`), in the order of axes that the kernel has (`_claims`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from attncheck._types import FLOATING, Array, Shape

NOT_FLOAT16 = ("bfloat16", "float32", "float64")
# Different primes: no two axes can be taken for each other.
B, H, L, S = 2, 3, 5, 7
HEAD_DIMS = (13, 11)  # of query and key, and of the value, where a kernel takes all
# In the shape of a case stand these two for the head dimensions.
E, E_V = "E", "E_v"
Axes = tuple[int | str, ...]

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
    "lse": "the log-sum-exp of each row, its base, -∞ for an empty row, and its gradient",
    "merge": "two halves of the keys, put together by their log-sum-exps",
    "documents": "several texts in one row, of which none sees another",
    "pages": "keys and values in pages, found by a table, up to a length",
    "sinks": "a score for each head that takes weight and has no value",
    "soft cap": "scores kept below a cap: cap · tanh(score / cap)",
    "large masks": "masks of more than 2³¹ entries, or that lie so far apart",
    "compiled": "calls of other topics under torch.compile",
    "errors": "invalid calls are refused, with a message",
}
# Topics that need a function, a keyword or a claim which torch's own attention lacks.
CLAIMED = (
    "lse", "merge", "documents", "pages", "sinks", "soft cap", "large masks", "compiled",
)

Layout = Callable[[Array], Array]


class WrongResultError(Exception):
    """What is wrong with a result, in words. `kind` is what sort of wrong it is."""

    def __init__(self, words: str, kind: str = "") -> None:
        super().__init__(words)
        self.kind = kind or words


class Setting(NamedTuple):
    """What a case is drawn for: a dtype, the head dimensions (E, E_v), a seed, and a page."""

    dtype: str = "float32"
    head_dims: tuple[int, int] = HEAD_DIMS
    seed: int = 7
    page: int = 4

    def shape(self, axes: Axes) -> Shape:
        """Return axes with numbers in the places of E and E_v.

        >>> Setting().shape((5, E)), Setting().shape((5, "2E"))
        ((5, 13), (5, 26))
        """
        features, values = self.head_dims
        numbers = {E: features, E_V: values, "2E": 2 * features}
        return tuple(numbers[axis] if isinstance(axis, str) else axis for axis in axes)

    def value(self, axes: Axes) -> Axes:
        """Return the axes of a value: a kernel with two head dimensions takes the second one."""
        two = self.head_dims != HEAD_DIMS
        return tuple(E_V if axis == E and two else axis for axis in axes)

    def drawn(self, *shapes: Axes, dtype: str = "", salt: int = 0) -> list[Array]:
        """Return normal numbers of standard deviation 1.5: results are larger than tolerances."""
        rng = np.random.default_rng([self.seed, salt])
        dtype = dtype or self.dtype
        return [rounded(rng.normal(0, 1.5, self.shape(shape)), dtype) for shape in shapes]


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


class Documents(NamedTuple):
    """The lengths of texts that stand one after the other: of their queries, and of their keys."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]


class Pages(NamedTuple):
    """Where the keys of each sequence lie: its pages in order, (B, n), and how many keys it has."""

    table: Array
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call, and what is known of its result beyond the definition.

    Attributes:
        given: The arguments that are arrays, by name: query, key, value, attn_mask and sinks.
        options: The keywords that are not; one that the case does not need is not passed.
        upstream: The gradient of the output; None where the output alone is compared.
        wanted: The arguments whose gradients are compared.
        meant: Numbers that replace the given ones in the truth; what a mask removes may be NaN in
            the given ones and must not matter.
        truth: The result, where it is known without the definition.
        size: How many ε the result may be off, where it is less than the inputs would allow.
        peer: What stands for plain attention in half precision, where that would overflow.
        neighbour: The same call with one thing put right, for a call that must be refused.
        watched: Whether the inputs must be untouched, and the result must own its memory.
        lse: Whether the log-sum-exp is asked for too.
        lse_upstream: The gradient of the log-sum-exp, beside that of the output.
        split: The key at which the keys are cut in two, to be merged again.
        documents: The texts in a row: query is (H, T, E), key and value (H, T_k, E).
        pages: The pages of the keys: key and value are (n_pages, H, page, E).
        memory: The bytes of memory that a kernel may need for it.
        compiled: Whether the function is compiled first.
    """

    given: dict[str, Given]
    options: dict[str, Any] = field(default_factory=dict)
    upstream: Given | None = None
    wanted: tuple[str, ...] = ("query", "key", "value")
    meant: dict[str, Array] = field(default_factory=dict)
    truth: Array | None = None
    size: float | None = None
    peer: Array | None = None
    neighbour: Call | None = None
    watched: bool = False
    lse: bool = False
    lse_upstream: Given | None = None
    split: int | None = None
    documents: Documents | None = None
    pages: Pages | None = None
    memory: int = 0
    compiled: bool = False

    @property
    def refused(self) -> bool:
        """Return whether the call must raise."""
        return self.neighbour is not None

    def __str__(self) -> str:
        arrays = [f"{name} {given}" for name, given in self.given.items()]
        options = [f"{name}={option!r}" for name, option in self.options.items()]
        for words, own in (
            ("gradient of the output", self.upstream),
            ("gradient of the log-sum-exp", self.lse_upstream),
            ("documents", self.documents and tuple(self.documents)),
            ("lengths", self.pages and self.pages.lengths),
        ):
            options += [] if own is None else [f"{words} {own}"]
        return ", ".join([*arrays, *options])


Draw = Callable[[Setting], Call]  # draws a call for a setting


@dataclass(frozen=True)
class Case:
    """One call that a kernel must get right, in one dtype.

    Attributes:
        topic: One of `TOPICS`.
        name: What is checked, in plain words.
        draw: The function that draws the call for a setting.
        needs: Topics that the call uses as well: it is left out with each of them.
        dtypes: The dtypes that the call can have.
        kinds: The kinds of kernel that the case is for.
        everywhere: Whether it is asked at each head dimension, or at the smallest one alone.
        any_dims: Whether the call has head dimensions of its own, for a kernel that takes all.
        dtype: The dtype of the call.
        head_dims: The head dimensions of query and value.
        seed: The seed that is mixed with the case's own.
        page: The slots of a page.
    """

    topic: str
    name: str
    draw: Draw = field(repr=False)
    needs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = FLOATING
    kinds: tuple[str, ...] = ("numpy", "torch")
    everywhere: bool = False
    any_dims: bool = False
    dtype: str = "float32"
    head_dims: tuple[int, int] = HEAD_DIMS
    seed: int = 7
    page: int = 4

    def __str__(self) -> str:
        features, values = self.head_dims
        other = "" if self.head_dims == HEAD_DIMS else f", head dimension {features}"
        other += f" and {values}" if other and values != features else ""
        return f"{self.topic}: {self.name}, {self.dtype}{other}"

    @property
    def id(self) -> str:
        """Return the case's name as a shell and pytest take it.

        >>> Case("masks", "a boolean mask (B, 1, L, S)", Call, dtype="float16").id
        'masks[a-boolean-mask-B-1-L-S-float16-d13]'
        """
        features, values = self.head_dims
        usual = self.head_dims == HEAD_DIMS or features == values
        both = f"d{features}" if usual else f"d{features}x{values}"
        return f"{self._own}-{self.dtype}-{both}]"

    @property
    def _own(self) -> str:
        name = self.name.replace("∞", "inf").replace("−", "-")
        name = re.sub(r"(?<!\w)-(?=\d|inf)", "minus ", name)
        slug = re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-")
        return f"{self.topic.replace(' ', '-')}[{slug}"

    @property
    def setting(self) -> Setting:
        """Return what the case is drawn for; its seed comes from its name."""
        own = crc32(f"{self._own}] {self.seed}".encode())
        return Setting(self.dtype, self.head_dims, own, self.page)

    @property
    def call(self) -> Call:
        """Return the call, drawn anew."""
        return self.draw(self.setting)


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
