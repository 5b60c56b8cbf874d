"""Draw calls beyond the table: lengths around tiles, masks, strides, groups, scales.

A call that fails is made smaller as long as it fails. Its id says all of it, so that it can be
asked again: `search[B1-H2x2-L65-S129-boolB1LS-float32-d64x64]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from attncheck._backends import Backend
from attncheck._calls import HEAD_DIMS, Call, Case, E, Setting
from attncheck._claims import SMALLEST, Kernel
from attncheck._comparison import Result, judge
from attncheck._draws import random_bias, random_mask, shaped, with_mask
from attncheck._gradients import with_upstream
from attncheck._layouts import LAYOUTS
from attncheck._table import _dtypes_of

LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200)
MASKS = ("", "", "", "bool", "float")
SHAPES = ("BHLS", "B1LS", "11LS", "B11S", "111S", "1HL1")
# What a call has in its plainest form where it is made smaller, one after the other.
SIMPLER = ("mask", "causal", "left", "layout", "scale", "gradient", "G", "H", "B")
LAYOUT = {f.__name__.replace("_", ""): f for f in LAYOUTS}
# A part of an id, with the names of what it tells.
PART = rf"""
    B(?P<B>\d+) | H(?P<H>\d+)x(?P<G>\d+) | L(?P<L>\d+) | S(?P<S>\d+)
    | (?P<mask>bool|float)(?P<axes>[BHLS1]{{4}}) | (?P<causal>topleft|bottomright)
    | left(?P<left>\d+) | (?P<layout>{"|".join(LAYOUT)}) | scale(?P<scale>[\d.e+]+)
    | (?P<gradient>gradient)
"""


@dataclass(frozen=True)
class Drawn:
    """A call of the search: everything that is needed to draw it again."""

    B: int = 1
    H: int = 1
    G: int = 1  # query heads for each key head
    L: int = 1
    S: int = 1
    mask: str = ""
    axes: str = "11LS"
    causal: str = ""
    left: int = -1
    layout: str = ""
    scale: float = 0.0
    gradient: bool = False

    @property
    def words(self) -> str:
        """Return the call as it stands in an id."""
        said = [f"B{self.B}", f"H{self.H}x{self.G}", f"L{self.L}", f"S{self.S}"]
        said += [f"{self.mask}{self.axes}"] if self.mask else []
        said += [self.causal] if self.causal else []
        said += [f"left{self.left}"] if self.left >= 0 else []
        said += [self.layout] if self.layout else []
        said += [f"scale{self.scale:g}"] if self.scale else []
        return "-".join(said + ["gradient"] * self.gradient)

    @classmethod
    def of(cls, words: str) -> Drawn:
        """Return the call that words of an id tell.

        >>> Drawn.of(Drawn(2, 3, 2, 65, 70, "bool", "B1LS", "topleft", 3).words).S
        70
        """
        told: dict[str, Any] = {}
        for part in words.split("-"):
            found = re.fullmatch(PART, part, re.VERBOSE)
            if found is None:
                raise ValueError(f"expected a part of a searched call; got {part!r}")
            told |= {name: text for name, text in found.groupdict().items() if text is not None}
        # Each text becomes what the plain call has in its place: an integer, a number, True.
        return cls(**{name: type(getattr(cls, name))(text) for name, text in told.items()})

    def draw(self, setting: Setting) -> Call:
        """Return the call for a setting."""
        heads = self.H * self.G
        query, key = (self.B, heads, self.L, E), (self.B, self.H, self.S, E)
        options: dict[str, Any] = {"enable_gqa": True} if self.G > 1 else {}
        if self.causal:
            options["is_causal"] = True
        if self.left >= 0:
            options["window"] = (self.left, None)
        if self.causal == "bottomright":
            options["causal_align"] = "bottom-right"
        if self.scale:
            options["scale"] = self.scale
        sizes = {"B": self.B, "H": heads, "L": self.L, "S": self.S, "1": 1}
        shape = tuple(sizes[axis] for axis in self.axes)
        kept = random_mask(shape)
        if self.mask == "float":
            drawing = with_mask(random_bias(shape, kept), "", query, key, key, options)
        elif self.mask:
            drawing = with_mask(kept, "", query, key, key, options)
        else:
            drawing = shaped(query, key, key, options)
        call = (with_upstream(drawing) if self.gradient else drawing)(setting)
        layout = LAYOUT.get(self.layout)
        inputs = ("query", "key", "value")
        laid = {n: x._replace(layout=layout) if n in inputs else x for n, x in call.given.items()}
        return replace(call, given=laid)

    def case(self, dtype: str, head_dims: tuple[int, int], seed: int) -> Case:
        """Return the call as a case."""
        topic = "gradients" if self.gradient else "values"
        needs = ("causal",) * bool(self.causal) + ("masks",) * bool(self.mask)
        needs += ("empty",) * (self.causal == "bottomright" and self.L > self.S)
        return _Searched(topic, self.words, self.draw, needs, dtype=dtype, head_dims=head_dims,
                         seed=seed)

    def smaller(self) -> Iterator[Drawn]:
        """Yield calls that are a step simpler."""
        steps: list[tuple[str, Any]] = [(name, getattr(Drawn, name)) for name in SIMPLER]
        for name in ("L", "S"):
            own = getattr(self, name)
            steps += [(name, less) for less in (1, own // 2, own - 1)]
        for name, plain in steps:
            own = getattr(self, name)
            if own != plain and not (name in ("L", "S") and not 0 < plain < own):
                changed: Any = {name: plain}
                yield replace(self, **changed)


class _Searched(Case):
    """A case of the search, whose id says what it draws."""

    @property
    def id(self) -> str:
        """Return the id, from which `case_of` makes the case again."""
        features, values = self.head_dims
        return f"search[{self.name}-{self.dtype}-d{features}x{values}]"


def case_of(own: str, seed: int) -> Case | None:
    """Return the case of the search with this id; None if it is no such id."""
    found = re.fullmatch(r"search\[(.+)-(\w+)-d(\d+)x(\d+)\]", own)
    if found is None:
        return None
    return Drawn.of(found[1]).case(found[2], (int(found[3]), int(found[4])), seed)


def drawn_cases(
    kernel: Kernel, kind: str, n: int, seed: int, dtypes: Sequence[str] | None
) -> list[Case]:
    """Return n calls that the kernel claims, drawn from a seed."""
    rng = np.random.default_rng([seed, crc32(b"search")])
    dims = kernel.dims or [HEAD_DIMS, *((size, size) for size in SMALLEST)]
    wanted = _dtypes_of(kernel, "dtypes" if kernel.dtypes else "", dtypes, column=True)
    found: list[Case] = []
    for _ in range(50 * n):
        if len(found) == n:
            break
        masked, causal = rng.choice(MASKS), rng.choice(["", "topleft", "bottomright"])
        own = Drawn(
            B=int(rng.integers(1, 3)), H=int(rng.integers(1, 4)), G=int(rng.choice([1, 1, 2, 3])),
            L=int(rng.choice(LENGTHS)), S=int(rng.choice(LENGTHS)),
            mask=str(masked), axes=str(rng.choice(SHAPES)), causal="" if masked else str(causal),
            left=int(rng.choice([-1, -1, 0, 3, 20])), layout=str(rng.choice(["", "", *LAYOUT])),
            scale=float(rng.choice([0, 0, 0.25, 2])),
            gradient=kind == "torch" and bool(rng.integers(2)),
        )
        pair = dims[int(rng.integers(len(dims)))]
        case = own.case(str(rng.choice(list(wanted))), pair, seed)
        if not kernel.unclaimed(case, case.call):
            found.append(case)
    return found


def smaller(result: Result, kernel: Kernel, backend: Backend) -> Result:
    """Return a failure of the search, made smaller step by step while it fails in the same way."""
    while True:
        case = result.case
        for step in Drawn.of(case.name).smaller():
            own = step.case(case.dtype, case.head_dims, case.seed)
            if not kernel.unclaimed(own, own.call):
                less = judge(own, kernel, backend)
                if not less.passed and less.kind == result.kind:
                    result = less
                    break
        else:
            return result
