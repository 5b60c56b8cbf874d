"""What a reference implementation says: whether it is attention, and which one.

Benchmarks hand out a kernel beside a reference. Where the reference gives what the definition here
gives, the definition can be asked; `recognised` finds that out by calling the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from attncheck._calls import Call, Case
from attncheck._claims import ALIGNMENTS, Also, Kernel
from attncheck._comparison import judge
from attncheck._draws import changed, heads
from attncheck._torch_backend import TorchBackend

LARGEST = 2**25  # numbers in a query; more take minutes on a CPU


@dataclass(frozen=True)
class InHand(Kernel):
    """A kernel that came with a reference, and what follows from that.

    Attributes:
        said: How the kernel is asked, in words.
        always_causal: Where the causal mask stands that every call has; "" for none.
        square: Whether there must be as many queries as keys.
        one_query: Whether a sequence in pages has one query.
        heads: The heads of the query and of key and value, where only these are taken; None for
            all. The function itself puts a call with other heads into calls with as many.
        reference: The reference as a kernel. What it fails itself is not asked; None asks all.
        device: Where the reference is asked.
    """

    said: str = ""
    always_causal: str = ""
    square: bool = False
    one_query: bool = False
    heads: tuple[int, int] | None = None
    reference: Kernel | None = None
    device: str = "cpu"

    def unclaimed(self, case: Case, call: Call) -> str:
        reason = super().unclaimed(case, call) or self._unclaimed_here(call)
        if not reason and self.reference is not None:
            passed = judge(case, self.reference, TorchBackend(self.device)).passed
            reason = "" if passed else "the reference fails it too"
        return reason

    def _unclaimed_here(self, call: Call) -> str:
        query, key = (call.given[name].numbers.shape for name in ("query", "key"))
        n_queries, n_keys = list(query[-2:-1]), list(key[-2:-1])
        if call.documents is not None:
            n_queries, n_keys = map(list, call.documents)
        if self.square and call.pages is None and n_queries != n_keys:
            return "another number of keys than of queries"
        if self.one_query and call.pages is not None and n_queries != [1]:
            return "more than one query for a sequence"
        alone = self.always_causal == "bottom-right" and set(n_queries) == {1}
        causal = bool(call.options.get("is_causal"))
        if causal and not self.always_causal:
            return "no call is causal"
        if self.always_causal and not (causal or alone):
            return "every call is causal"
        factor = 1
        if self.heads is not None:
            here = (query[-3:-2] or (1,))[0], (key[-3:-2] or (1,))[0]
            if not fits(here, self.heads):
                return f"more than {self.heads[0] // self.heads[1]} query heads for a key head"
            factor = self.heads[0]
        if factor * call.given["query"].numbers.size > LARGEST:
            return f"more than {LARGEST:,} numbers"
        return ""


def fits(here: tuple[int, int], heads: tuple[int, int]) -> bool:
    """Return whether heads can stand among those that a kernel takes, in one call or in several.

    >>> fits((3, 3), (32, 8)), fits((6, 2), (32, 8)), fits((6, 1), (32, 8))
    (True, True, False)
    """
    whole = min(here) > 0 and here[0] % here[1] == 0
    return whole and here[0] // here[1] <= heads[0] // heads[1]


class Recognised(NamedTuple):
    """The attention that a reference is.

    Attributes:
        axes: The order of its axes, as `Kernel` has it.
        always_causal: Where its causal mask stands; "" for none.
        square: Whether it was accepted with as many queries as keys alone.
        base: The base of its log-sum-exp, "e" or 2; 0 where it returns none.
    """

    axes: str
    always_causal: str
    square: bool
    base: Any

    def __str__(self) -> str:
        corner = self.always_causal.replace("-", " ")
        causal = f", causal at the {corner}" * bool(corner)
        square = ", as many queries as keys" * self.square
        base = f", log-sum-exp to base {self.base}" * bool(self.base)
        return f"{self.axes}{causal}{square}{base}"


def recognised(
    reference: Callable[..., Any], axes: Iterable[str], dtype: str, head_dims: tuple[int, int],
    device: str, with_lse: bool = False,
) -> Recognised | str:
    """Return which attention a reference is, or what it gave instead, in words.

    The reference takes is_causal, and does as it always does. It is called with 5 queries beside 7
    keys, and with 7 of both where that is refused; its results are compared with the definition, in
    each order of axes and with the causal mask at either corner. `with_lse` says that it returns a
    log-sum-exp too, whose axes are those of the output without the last one.
    """
    said = ""
    for square in (False, True):
        for order in axes:
            for corner in ("", *ALIGNMENTS[: 1 if square else 2]):
                for base in (("e", 2) if with_lse else (0,)):
                    lse = Also(reference, order.replace("D", ""), base) if base else None
                    kernel = Kernel(reference, order, lse=lse, causal=[corner or ALIGNMENTS[0]])
                    case = _probe(square, corner, dtype, head_dims, with_lse)
                    result = judge(case, kernel, TorchBackend(device))
                    if result.passed:
                        return Recognised(order, corner, square, base)
                    said = said or result.message.splitlines()[-1]
    return said


def _probe(
    square: bool, corner: str, dtype: str, head_dims: tuple[int, int], lse: bool
) -> Case:
    """Return the case of 5 or 7 queries and 7 keys, with the causal mask at a corner."""
    options = {"is_causal": True, "causal_align": corner} if corner else {}
    draw = changed(heads(7 if square else 5, 7, options), lse=lse)
    return Case("values", "the reference", draw, dtype=dtype, head_dims=head_dims)


def refusal(
    kernel: Callable[..., Any], found: Recognised, dtype: str, head_dims: tuple[int, int],
    device: str,
) -> str:
    """Return the words with which a kernel refuses what its reference takes; "" if it does not."""
    case = _probe(found.square, found.always_causal, dtype, head_dims, False)
    result = judge(case, Kernel(kernel, found.axes), TorchBackend(device))
    return result.refused
