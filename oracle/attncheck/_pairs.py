"""A kernel beside its reference, where the definition says nothing of what both compute.

A block with weights, or data of a shape of its own, is no attention of query, key and value. What
can be asked is whether the kernel gives what the reference gives in float64: with numbers whose
softmax is far from a mean, at lengths that are odd, on memory that holds NaN, and once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import torch

from attncheck import _tolerance
from attncheck._calls import WrongResultError
from attncheck._comparison import MODIFIED, OVERWRITTEN, RaisedError, one_line
from attncheck._data import (
    InFloat64,
    copied,
    in_float64,
    lengths,
    mapped,
    redrawn,
    same,
    seeded,
    shorter,
    tensors,
)
from attncheck._torch_backend import TorchBackend, numbers_of
from attncheck._types import FLOATING, HALF, Array

OWN = "the file's own numbers"
# Numbers of torch.rand give scores that are nearly alike, for which attention is a mean.
DRAWS = {OWN: 0.0, "standard deviation 1.5": 1.5, "standard deviation 6": 6.0}
LARGEST = 2**18  # numbers in all inputs; of more, axes are cut on a CPU, first to 64
SHORT = (64, 8)
TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-4}  # as KernelBench has them


@dataclass(frozen=True)
class Pair:
    """A kernel and its reference, functions of the same data.

    Attributes:
        reference, kernel: Both take the data, and return a tensor or several.
        exact: The reference, made for data in float64.
        inputs: Returns data, for these `arguments`.
        names: What reference and kernel are called in their file.
        why: Why the definition is not asked, in words.
        arguments: The arguments of `inputs`; each number but "seed" is made smaller by 1 in turn.
        own_check: The file's own comparison of data and result: "" where the result passes. It is
            asked where the reference cannot be had in float64.
    """

    reference: Callable[[Any], Any]
    kernel: Callable[[Any], Any]
    exact: Callable[[Any], Any]
    inputs: Callable[..., Any]
    names: tuple[str, str]
    why: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    own_check: Callable[[Any, Any], Any] | None = None

    def check(self, name: str, device: str = "cpu", seed: int = 7) -> PairReport:
        """Return what came out of all cases."""
        backend = TorchBackend(device)
        found: dict[str, WrongResultError | None] = {}
        not_asked: dict[str, str] = {}
        lines = [f"{self.names[1]} is asked against {self.names[0]}, and not by the definition: "
                 f"{self.why}"]
        with torch.no_grad():
            for place, first, second in self._places(seed, backend, found, not_asked):
                for draw, width in DRAWS.items():
                    case = f"{place}, {draw}" if place else draw
                    own = redrawn(first, second, width, crc32(f"{case} {seed}".encode()))
                    if own is None:
                        not_asked[case] = "one input may be computed from another"
                        continue
                    truth = self._truth(own)
                    if isinstance(truth, str):
                        not_asked[case] = truth
                        continue
                    if isinstance(truth[1], str) and width:
                        not_asked[case] = "the file's tolerance is for its own numbers"
                        continue
                    if isinstance(truth[1], str) and len(lines) == 1:
                        lines.append(f"{self.names[0]} is not to be had in float64 ({truth[1]}): "
                                     "its own results and tolerance are asked")
                    wrong = self._wrong(own, second, truth, backend)
                    refusal = getattr(wrong, "refusal", "")
                    if place and refusal:  # it is not built for other lengths
                        not_asked[case] = f"{self.names[1]} refuses: {refusal}"
                    else:
                        found[case] = wrong
        about = f"attncheck of {name}, torch on {device}"
        return PairReport(found, not_asked, about, seed, lines)

    def _places(
        self, seed: int, backend: TorchBackend, found: Mapping[str, Any],
        not_asked: dict[str, str],
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield where to ask, and data of two seeds: as in the file, then at lengths less 1.

        On a CPU the file's lengths are cut where they are long and the reference takes others.
        They are asked all the same if nothing else could be.
        """

        def both(**more: Any) -> list[Any]:
            own, data = {**self.arguments, **more}, []
            for n in (seed, seed + 1):
                with seeded(n):
                    drawn = self.inputs(**own | ({"seed": n} if "seed" in own else {}))
                # A task puts its data where it wants them.
                here = drawn if self.own_check else mapped(drawn, lambda x: x.to(backend.device))
                data.append(here)
            return data

        def takes(data: Any) -> bool:
            try:
                self.reference(copied(data))
            except Exception:
                return False
            return True

        own = data = both()
        cuts: list[str] = []
        for short in SHORT if not self.arguments and backend.device.type == "cpu" else ():
            for axis, n in lengths(data[0]):
                most = short if axis else 2  # the first one is a batch
                if n > most and sum(x.numel() for x in tensors(data[0])) > LARGEST:
                    tried = shorter(data[0], n, most, axis)
                    if takes(tried):
                        data = [tried, shorter(data[1], n, most, axis)]
                        cuts.append(f"axis {axis} of {most} in place of {n}")
        yield ", ".join(cuts), *data
        for name, n in self.arguments.items():
            if name != "seed" and isinstance(n, int) and n > 2:
                try:
                    yield f"{name}={n - 1}", *both(**{name: n - 1})
                except Exception as error:
                    not_asked[f"{name}={n - 1}"] = f"its inputs gave {one_line(error)}"
        for axis, n in lengths(data[0]) if not self.arguments else ():
            if n > 2:
                cut = [shorter(one, n, n - 1, axis) for one in data]
                yield f"axis {axis} of {n - 1} in place of {n}", *cut
        if cuts and not found:
            yield "", *own

    def _truth(self, data: Any) -> tuple[list[Any], Any] | str:
        """Return the reference's results, and those in float64 or why there are none, in words.

        Words alone stand for data of which nothing can be asked.
        """
        try:
            own, again = (tensors(self.reference(copied(data))) for _ in range(2))
        except Exception as error:
            return f"{self.names[0]} gave {one_line(error)}"
        if not all(np.isfinite(numbers_of(x)).all() for x in own):
            return f"{self.names[0]} gives NaN or ∞"
        if not same(own, again):
            return f"{self.names[0]} gives another result each time"
        try:
            with InFloat64():
                wide = tensors(self.exact(mapped(copied(data), in_float64)))
        except Exception as error:
            return own, one_line(error)
        narrow = [x.dtype for x in wide if x.is_floating_point() and x.dtype != torch.float64]
        return own, f"its result is {str(narrow[0])[6:]}" if narrow else wide

    def _wrong(
        self, data: Any, other: Any, truth: tuple[list[Any], Any], backend: TorchBackend
    ) -> WrongResultError | None:
        """Return what is wrong with the kernel's result for some data; None if nothing is."""
        given, (own, wide) = copied(data), truth
        try:
            with backend.poisoned():
                came = self.kernel(given)
        except Exception as error:
            return RaisedError("a result", error)
        got = tensors(came)
        kinds = [[(tuple(x.shape), str(x.dtype)[6:]) for x in results] for results in (own, got)]
        if kinds[0] != kinds[1]:
            words = f"expected {kinds[0]}, got {kinds[1]}"
            return WrongResultError(words, "another shape or dtype")
        first = [numbers_of(x).copy() for x in got]
        if isinstance(wide, str) and self.own_check is not None:
            said = " ".join(str(self.own_check(copied(data), came) or "").split())
            if said:
                return WrongResultError(said, "the file's own comparison")
        elif wrong := different(first, own, wide):
            return wrong
        if not same(given, data):
            mirror = copied(data)
            self.reference(mirror)
            if same(mirror, data):
                words = "expected inputs that are left as they are, but they were modified"
                return WrongResultError(words, MODIFIED)
        with backend.poisoned(), contextlib.suppress(Exception):
            self.kernel(copied(other))
        if not all(np.array_equal(numbers_of(x), y) for x, y in zip(got, first, strict=True)):
            return WrongResultError(OVERWRITTEN)
        return None


@dataclass(frozen=True)
class PairReport:
    """What came out of a pair.

    Attributes:
        found: For each case what is wrong with it, None for nothing.
        not_asked: Why other cases were not asked.
        about: What was asked, and where.
        seed: The seed of the numbers.
        lines: How the kernel was asked.
    """

    found: Mapping[str, WrongResultError | None]
    not_asked: Mapping[str, str]
    about: str
    seed: int
    lines: list[str]

    @property
    def passed(self) -> bool:
        """Return whether some case passed, and none failed."""
        return bool(self.found) and not any(self.found.values())

    def __str__(self) -> str:
        lines = [f"{self.about}, {len(self.found)} cases, seed {self.seed}", *self.lines]
        for case, wrong in self.found.items():
            lines.append(f"failed  {case}: {str(wrong)[:300]}" if wrong else f"passed  {case}")
        if self.found.get(OWN, self) is None and not self.passed:
            lines.append(f"{OWN} do not show it")
        reasons: dict[str, list[str]] = {}
        for case, why in self.not_asked.items():
            reasons.setdefault(why[:200], []).append(case)
        lines += [f"not asked: {'; '.join(cases)} ({why})" for why, cases in reasons.items()]
        return "\n".join(lines)


def different(got: list[Array], own: list[Any], wide: Any) -> WrongResultError | None:
    """Return the first entry that is too far from the reference's in float64; None for none.

    The reference in its own dtype may be off by some error itself: a result may be three times as
    wrong in half precision, and eight times where sums are short of digits in other places.
    """
    for n, (numbers, peer) in enumerate(zip(got, own, strict=True)):
        dtype, peers = str(peer.dtype)[6:], numbers_of(peer)
        truth, limit = peers, np.zeros(())
        if isinstance(wide, str):
            allowed = TOLERANCE.get(dtype, 0.0)
            limit = np.asarray(allowed + allowed * np.abs(truth))
        elif dtype in FLOATING:
            truth = numbers_of(wide[n])
            times, floor = (3, 1) if dtype in HALF else (8, 32)
            largest, off = (np.abs(x).max(initial=0.0) for x in (truth, peers - truth))
            limit = np.asarray(times * off + floor * _tolerance.epsilon(dtype) * largest)
        if said := _tolerance.difference(numbers, truth, limit):
            kind = _tolerance.sort_of_wrong(numbers, truth)
            return WrongResultError(f"result {n + 1}: {said}" if len(got) > 1 else said, kind)
    return None
