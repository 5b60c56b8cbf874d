"""A kernel beside its reference, where the definition says nothing of what both compute.

A block with weights, or data of a shape of its own, is no attention of query, key and value. What
can be asked is whether the kernel gives what the reference gives in float64: with numbers whose
softmax is far from a mean, at lengths that are odd, on memory that holds NaN, and once more.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from attncheck import _tolerance
from attncheck._comparison import RaisedError, one_line
from attncheck._torch_backend import TorchBackend
from attncheck._types import FLOATING, HALF, Array

OWN = "the file's own numbers"
# Numbers of torch.rand give scores that are nearly alike, for which attention is a mean.
DRAWS = {OWN: 0.0, "standard deviation 1.5": 1.5, "standard deviation 6": 6.0}
LARGEST = 2**18  # numbers in all inputs; of more, axes are cut on a CPU, first to 64
SHORT = (64, 8)
TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-4}  # as KernelBench has them

NARROW = (torch.float16, torch.bfloat16, torch.float32)


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
        found: dict[str, str] = {}
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
                    try:
                        found[case] = self._wrong(own, second, truth, backend)
                    except RaisedError as raised:
                        if place and raised.refusal:  # it is not built for other lengths
                            not_asked[case] = f"{self.names[1]} refuses: {raised.refusal}"
                        else:
                            found[case] = str(raised)
        about = f"attncheck of {name}, torch on {device}, {len(found)} cases, seed {seed}"
        return PairReport(found, not_asked, [about, *lines])

    def _places(
        self, seed: int, backend: TorchBackend, found: dict[str, str], not_asked: dict[str, str]
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
                data.append(mapped(drawn, lambda x: x.to(backend.device)))
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
                if numbers_in(data[0]) > LARGEST and n > most:
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
            own = tensors(self.reference(copied(data)))
        except Exception as error:
            return f"{self.names[0]} gave {one_line(error)}"
        if not all(np.isfinite(numbers_of(x)).all() for x in own):
            return f"{self.names[0]} gives NaN or ∞"
        try:
            with InFloat64():
                wide = tensors(self.exact(mapped(copied(data), in_float64)))
        except Exception as error:
            return own, one_line(error)
        narrow = [x.dtype for x in wide if x.is_floating_point() and x.dtype != torch.float64]
        return own, f"its result is {str(narrow[0])[6:]}" if narrow else wide

    def _wrong(
        self, data: Any, other: Any, truth: tuple[list[Any], Any], backend: TorchBackend
    ) -> str:
        """Return what is wrong with the kernel's result for some data; "" if nothing is."""
        given, (own, wide) = copied(data), truth
        try:
            with backend.poisoned():
                came = self.kernel(given)
        except Exception as error:
            raise RaisedError("a result", error) from error
        got = tensors(came)
        kinds = [[(tuple(x.shape), str(x.dtype)[6:]) for x in results] for results in (own, got)]
        if kinds[0] != kinds[1]:
            return f"expected {kinds[0]}, got {kinds[1]}"
        first = [numbers_of(x).copy() for x in got]
        if isinstance(wide, str) and self.own_check is not None:
            said = " ".join(str(self.own_check(copied(data), came) or "").split())
            if said:
                return said
        elif said := different(first, own, wide):
            return said
        if not same(given, data):
            mirror = copied(data)
            self.reference(mirror)
            if same(mirror, data):
                return "expected inputs that are left as they are, but they were modified"
        with backend.poisoned(), contextlib.suppress(Exception):
            self.kernel(copied(other))
        if not all(np.array_equal(numbers_of(x), y) for x, y in zip(got, first, strict=True)):
            return "expected a result that stays, but the next call changed it"
        return ""


@dataclass(frozen=True)
class PairReport:
    """What came out of a pair: for each case what is wrong with it, "" for nothing."""

    found: Mapping[str, str]
    not_asked: Mapping[str, str]
    lines: list[str]

    @property
    def passed(self) -> bool:
        """Return whether some case passed, and none failed."""
        return bool(self.found) and not any(self.found.values())

    def __str__(self) -> str:
        lines = list(self.lines)
        for case, wrong in self.found.items():
            lines.append(f"failed  {case}: {wrong[:300]}" if wrong else f"passed  {case}")
        if self.found.get(OWN) == "" and not self.passed:
            lines.append(f"{OWN} do not show it")
        reasons: dict[str, list[str]] = {}
        for case, why in self.not_asked.items():
            reasons.setdefault(why[:200], []).append(case)
        lines += [f"not asked: {'; '.join(cases)} ({why})" for why, cases in reasons.items()]
        return "\n".join(lines)


def different(got: list[Array], own: list[Any], wide: Any) -> str:
    """Return the first entry that is too far from the reference's in float64, in words.

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
            return f"result {n + 1}: {said}" if len(got) > 1 else said
    return ""


# Data of any shape --------------------------------------------------------------------------------


def mapped(thing: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return data whose tensors are changed, within lists, dicts, data classes and modules."""
    if isinstance(thing, torch.Tensor):
        return change(thing)
    if isinstance(thing, dict):
        return {name: mapped(own, change) for name, own in thing.items()}
    if isinstance(thing, (tuple, list)):
        parts = [mapped(own, change) for own in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if isinstance(thing, torch.nn.Module):
        module = copy.deepcopy(thing)
        for own in (*module.parameters(), *module.buffers()):
            own.data = change(own.data)
        return module
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        other = copy.copy(thing)
        for name, own in vars(thing).items():
            object.__setattr__(other, name, mapped(own, change))
        return other
    return thing


def tensors(thing: Any) -> list[torch.Tensor]:
    """Return all tensors of some data, in order."""
    found: list[torch.Tensor] = []

    def kept(x: torch.Tensor) -> torch.Tensor:
        found.append(x)
        return x

    mapped(thing, kept)
    return found


def copied(thing: Any) -> Any:
    """Return data whose tensors are copies."""
    return mapped(thing, torch.clone)


def in_float64(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


class InFloat64(TorchFunctionMode):
    """Compute in float64 what is written for narrower dtypes: `x.half()`, `dtype=torch.bfloat16`.

    >>> with InFloat64():
    ...     torch.ones(1, dtype=torch.bfloat16).half().dtype, torch.ones(1).dtype
    (torch.float64, torch.float64)
    """

    def __enter__(self) -> InFloat64:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self.before)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.float):
            return args[0].double()
        named = {name: wider(own) for name, own in (kwargs or {}).items()}
        return function(*map(wider, args), **named)


def wider(thing: Any) -> Any:
    """Return float64 in place of a narrower dtype, and anything else as it is."""
    return torch.float64 if isinstance(thing, torch.dtype) and thing in NARROW else thing


def lengths(data: Any) -> list[tuple[int, int]]:
    """Return the axes of the tensors and their lengths, the last axis of each tensor aside."""
    return sorted({(axis, n) for x in tensors(data) for axis, n in enumerate(x.shape[:-1])})


def shorter(data: Any, n: int, to: int, axis: int) -> Any:
    """Return data with this length in place of n along an axis."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        there = axis < x.ndim - 1 and x.shape[axis] == n
        return x.narrow(axis, 0, to).clone() if there else x

    return mapped(data, cut)


def numbers_in(data: Any) -> int:
    """Return how many numbers the tensors of some data have."""
    return sum(x.numel() for x in tensors(data))


def redrawn(first: Any, second: Any, width: float, seed: int) -> Any:
    """Return data with normal numbers where two seeds gave other ones; None where that may not be.

    `width` is the standard deviation; 0 leaves the data as they are. Tensors that are the same for
    both seeds, and single numbers, stay. Weights, whose own deviation is below 0.1, keep it.
    Integers beside them, such as 8 bits of a quantised copy, may have been computed from others.
    """
    if not width:
        return first
    generator = torch.Generator().manual_seed(seed)
    pairs = list(zip(tensors(first), tensors(second), strict=True))
    drawn = [x.numel() > 1 and not torch.equal(x, y) for x, y in pairs]
    plain = [str(x.dtype)[6:] in FLOATING for x, _ in pairs]
    numbers = [x for (x, _), moves, own in zip(pairs, drawn, plain, strict=True) if moves and own]
    copies = len({(*x.shape, round(float(x.double().sum()), 2)) for x in numbers}) < len(numbers)
    if copies or any(moves and not own for moves, own in zip(drawn, plain, strict=True)):
        return None
    moving = iter(drawn)

    def draw(x: torch.Tensor) -> torch.Tensor:
        if not next(moving):
            return x
        own = float(x.double().std())
        normal = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return (normal * (width if own > 0.1 else own)).to(x.device, x.dtype)

    return mapped(first, draw)


def numbers_of(x: torch.Tensor) -> Array:
    """Return a tensor's numbers in float64."""
    numbers: Array = x.detach().cpu().to(torch.float64).numpy()
    return numbers


def same(one: Any, other: Any) -> bool:
    """Return whether two data hold the same numbers."""
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(np.array_equal(numbers_of(x), numbers_of(y), equal_nan=True) for x, y in pairs)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed, and leave torch's own numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
