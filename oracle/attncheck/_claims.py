"""What a kernel says of itself: how its arguments are called and ordered, and what it is built for.

A case is drawn with the axes (…, H, L, E) and torch's names. A `Kernel` takes it to the axes and
names of one function, and says which cases it does not claim, and why.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from attncheck._calls import TOPICS, Call, Case, Given
from attncheck._types import FLOATING, Array

TORCH = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
INPUTS = ("query", "key", "value")
# What torch's own attention takes, which has no signature.
TAKEN = [
    *(inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in INPUTS),
    *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in TORCH),
]
ALIGNMENTS = ("top-left", "bottom-right")
KEYWORDS = (*TORCH, "causal_align", "window", "sinks", "softcap")
# What can be left out beside a topic: the gradients of what has a topic of its own.
GRADIENTS = tuple(f"{topic} gradients" for topic in ("merge", "documents", "sinks", "soft cap"))
SMALLEST = (64, 96, 128)  # asked beside the odd one, where a kernel takes all head dimensions


@dataclass(frozen=True)
class Also:
    """A second function of a kernel: with a log-sum-exp, for documents, or for pages.

    Attributes:
        function: The function. Query, key and value are given by place.
        axes: The order of its axes. For `lse` those of the log-sum-exp, "BHS" or another order;
            for `documents` of query, key and value, "THD", where the texts stand one after the
            other along T; for `pages` of the pools, "PSHD", with P pages of S slots.
        base: The base of the logarithm, "e" or 2.
        differentiable: Whether gradients pass through it.
        starts: For `documents`, the names of the places where texts begin, (n + 1,) integers.
        longest: For `documents`, the names of the greatest lengths, if it takes any.
        table: For `pages`, the name of the table, (B, n) integers.
        lengths: For `pages`, the name of the number of keys of each sequence.
        page: For `pages`, the slots of a page.
        always: Keywords of every call, such as {"return_lse": True}.
    """

    function: Callable[..., Any]
    axes: str = ""
    base: Literal["e", 2] = "e"
    differentiable: bool = True
    starts: tuple[str, str] = ("cu_seqlens_q", "cu_seqlens_k")
    longest: tuple[str, str] | None = None
    table: str = "block_table"
    lengths: str = "cache_seqlens"
    page: int = 16
    always: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_callable("function", self.function)
        if self.base not in ("e", 2):
            raise ValueError(f'base must be "e" or 2; got {self.base!r}')
        if self.page < 1:
            raise ValueError(f"page must be at least 1; got {self.page!r}")


@dataclass(frozen=True)
class Kernel:
    """An attention function, and what it claims. What is not claimed is not asked, and listed.

    A function with torch's signature needs none of this: its keywords are read from it.

    Attributes:
        function: The function. Query, key and value are given by place, in this order.
        axes: The order of the axes of query, key, value and output: "BHSD", "HSD", or the same
            letters in another order, as "BSHD", "SBHD" and "SHD", and then exactly these; "" for
            (…, H, S, D) of any rank, as torch takes it.
        head_dims: The head dimensions that it takes: numbers, or pairs (query's, value's). None
            stands for all.
        dtypes: The dtypes that it takes. None stands for all.
        names: What it calls our keywords, where it calls them otherwise: {"scale": "sm_scale"}.
        values: Functions that take a value of ours to its own, by our name; `NotImplemented` for a
            value that it has nothing for, and such a call is not asked. For "attn_mask" and
            "sinks" the function gets the array or tensor.
        causal: Where is_causal stands, "top-left", "bottom-right", or both; with both, the keyword
            `causal_align` says which. Nothing stands for what the signature has.
        mask: The masks that it takes: "bool", "float", "both", or None; "like query" stands for
            floating ones of the query's dtype alone.
        mask_true: What True says in a boolean mask: the key "takes part", or is "removed".
        mask_ranks: The numbers of axes that a mask may have, such as [4] or [2, 4]; a mask of fewer
            gets leading axes of length 1. None stands for any.
        mask_with_causal: What a mask beside is_causal does: "refused", or "both remove".
        window: What a window is: "ends" for (left, right), the keys before and after a query's own
            position; "w keys" for an integer that counts the own key too, "w + 1 keys" for one that
            does not. Integers are asked beside is_causal. Where the signature says that the keyword
            takes an integer, windows are asked only if this, or `values`, says which.
        groups: How fewer key heads are told: "enable_gqa", "by shape", or None.
        gradients: Whether it can be differentiated.
        lse: The function that returns (output, log-sum-exp).
        merge: A function of [outputs], [log-sum-exps] that returns those of all keys. Gradients
            are asked through it; `Also(merge, differentiable=False)` says that there are none.
        documents: The function for several texts in one row.
        pages: The function for keys in pages. Its query has a batch, also where `axes` have none.
        sinks: The name of the keyword for sinks, one number for each query head.
        softcap: The name of the keyword for a soft cap.
        large_masks: Whether masks of more than 2³¹ entries are asked, where the memory is there.
        compiled: The backend of torch.compile under which some calls are asked too: "inductor",
            "aot_eager", "eager", or another name that torch knows. None asks nothing of it.
        not_claimed: Topics that are not claimed, each with the reason; also the gradients of one:
            "merge gradients", "documents gradients", "sinks gradients", "soft cap gradients".
        always: Keywords of every call.

    Example:
        >>> def flash(q, k, v, causal=False, softmax_scale=None):
        ...     raise NotImplementedError("needs a GPU")
        >>> names = {"is_causal": "causal", "scale": "softmax_scale"}
        >>> kernel = Kernel(flash, "BSHD", head_dims=[64], names=names, causal=["bottom-right"])
        >>> kernel.takes("attn_mask"), kernel.takes("scale")
        (False, True)
    """

    function: Callable[..., Any]
    axes: str = ""
    head_dims: Sequence[int | tuple[int, int]] | None = None
    dtypes: Sequence[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    causal: Sequence[str] = ()
    mask: Literal["bool", "float", "like query", "both"] | None = "both"
    mask_true: Literal["takes part", "removed"] = "takes part"
    mask_ranks: Sequence[int] | None = None
    mask_with_causal: Literal["refused", "both remove"] = "refused"
    window: Literal["ends", "w keys", "w + 1 keys"] = "ends"
    groups: Literal["enable_gqa", "by shape"] | None = "enable_gqa"
    gradients: bool = True
    lse: Also | None = None
    merge: Callable[..., Any] | Also | None = None
    documents: Also | None = None
    pages: Also | None = None
    sinks: str | None = None
    softcap: str | None = None
    large_masks: bool = False
    compiled: str | None = None
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    _keywords: frozenset[str] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        _check_callable("attention", self.function)
        if sorted(self.axes) not in ([], sorted("BHSD"), sorted("HSD")):
            raise ValueError(f"axes must be '', or BHSD or HSD in any order; got {self.axes!r}")
        _check_choice("mask", self.mask, ("bool", "float", "like query", "both", None))
        _check_choice("mask_with_causal", self.mask_with_causal, ("refused", "both remove"))
        _check_choice("mask_true", self.mask_true, ("takes part", "removed"))
        for rank in self.mask_ranks or ():
            _check_choice("mask_ranks", rank, (1, 2, 3, 4))
        _check_choice("window", self.window, ("ends", "w keys", "w + 1 keys"))
        _check_choice("groups", self.groups, ("enable_gqa", "by shape", None))
        for align in self.causal:
            _check_choice("causal", align, ALIGNMENTS)
        for dtype in self.dtypes or ():
            _check_choice("dtypes", dtype, FLOATING)
        for pair in self.dims:
            if not all(isinstance(n, int) and n > 0 for n in pair):
                raise ValueError(f"head_dims must hold numbers above 0, or pairs; got {pair!r}")
        check_words("names", self.names, KEYWORDS)
        check_words("values", self.values, KEYWORDS)
        check_words("not_claimed", self.not_claimed, (*TOPICS, *GRADIENTS))
        object.__setattr__(self, "_keywords", _keywords(self.function))
        others = (self.lse, self.documents, self.pages)
        also = [_keywords(own.function) for own in others if own is not None]
        if None not in (self._keywords, *also):
            known = sorted(frozenset().union(self._keywords or (), *(own or () for own in also)))
            check_words("names", self.names.values(), known, "lead to keywords of the function")

    @classmethod
    def of(cls, attention: Any) -> Kernel:
        """Return the kernel itself, or the one that a function's signature tells."""
        return attention if isinstance(attention, cls) else cls(attention)

    @property
    def dims(self) -> list[tuple[int, int]]:
        """Return the claimed head dimensions as pairs, the smallest first; none for all."""
        return sorted(n if isinstance(n, tuple) else (n, n) for n in self.head_dims or ())

    def name(self, ours: str) -> str:
        """Return what the kernel calls a keyword of ours."""
        own = {"sinks": self.sinks, "softcap": self.softcap}.get(ours)
        return own or self.names.get(ours, ours)

    def takes(self, ours: str) -> bool:
        """Return whether the function has a keyword, by our name for it."""
        return self._keywords is None or self.name(ours) in self._keywords

    @property
    def alignments(self) -> tuple[str, ...]:
        """Return where is_causal can stand."""
        both = ALIGNMENTS if self.takes("causal_align") else ALIGNMENTS[:1]
        return tuple(self.causal) or both

    def unclaimed(self, case: Case, call: Call) -> str:
        """Return why a case is not asked; "" if it is."""
        for topic in (case.topic, *case.needs):
            if topic in self.not_claimed:
                return self.not_claimed[topic]
        gradients = f"{case.topic} gradients"
        if call.upstream is not None and gradients in self.not_claimed:
            return self.not_claimed[gradients]
        # A refusal counts only beside a call that is accepted, which must be claimed for that.
        if call.neighbour is not None and (reason := self.unclaimed(case, call.neighbour)):
            return reason
        if case.any_dims and self.head_dims is not None:
            return "head dimensions of its own"
        if case.topic in ("lse", "merge") and self.lse is None:
            return "no function with a log-sum-exp"
        if case.topic == "large masks" and not self.large_masks:
            return "no large masks"
        if call.memory:
            from attncheck._modes import free_memory

            if free_memory() < call.memory:
                return f"less memory than {call.memory >> 30} GiB"
        if call.compiled and self.compiled is None:
            return "no torch.compile"
        if call.upstream is not None:
            merge = self.merge if isinstance(self.merge, Also) and call.split is not None else None
            through = [own for own in (self.also(call), merge) if own is not None]
            if not (self.gradients and all(own.differentiable for own in through)):
                return "no gradients"
            if call.split is not None and self.merge is None:
                return "no function that merges"
        for topic in ("documents", "pages"):
            if getattr(call, topic) is not None and getattr(self, topic) is None:
                return f"no function for {topic}"
        for topic in ("sinks", "softcap"):
            here = topic in call.options or topic in call.given
            if here and getattr(self, topic) is None:
                return f"no keyword for {topic}"
        return self._unclaimed_option(call) or self._unclaimed_shape(call)

    def _unclaimed_option(self, call: Call) -> str:
        mask = call.given.get("attn_mask")
        if mask is not None:
            if self.mask is None or not self.takes("attn_mask"):
                return "no mask"
            kinds = ["both", "bool" if mask.dtype == "bool" else "float"]
            kinds += ["like query"] * (mask.dtype == call.given["query"].dtype)
            if self.mask not in kinds and mask.dtype != "int64":
                return f"no {'boolean' if mask.dtype == 'bool' else 'floating'} mask"
            if self.mask_ranks is not None:
                axes = self._mask(mask).numbers.ndim
                inputs = max(call.given[name].numbers.ndim for name in INPUTS)
                if axes not in self.mask_ranks or axes > max(inputs, len(self.axes)):
                    return "masks with other numbers of axes"
            both = call.refused and call.options.get("is_causal")
            if both and self.mask_with_causal != "refused":
                return "a mask beside is_causal is no error"
        by_keyword = self.groups == "enable_gqa" and self.takes("enable_gqa")
        if "enable_gqa" in call.options and not (by_keyword or self.groups == "by shape"):
            return "no groups"
        align = call.options.get("causal_align", ALIGNMENTS[0])
        placed = call.options.get("is_causal") or call.options.get("window") is not None
        if placed or "causal_align" in call.options:
            query, key = (call.given[name].numbers.shape for name in INPUTS[:2])
            square = query[-2:-1] == key[-2:-1]
            if call.documents is not None:
                square = call.documents.queries == call.documents.keys
            if align not in self.alignments and not (square and self.alignments):
                return f"no causal mask at the {align.replace('-', ' ')}"
        for word, value in call.options.items():
            silent = word == "window" and self.window == "ends" and word not in self.values
            if silent and takes_integer(self.function, self.name(word)):
                return "it is not said what an integer window counts"
            if self._value(word, value, call) is NotImplemented:
                return f"no {word}={value}"
            told = word in ("enable_gqa", "causal_align", "sinks", "softcap")
            if not told and not self.takes(word):
                return f"no {word}"
        return ""

    def _unclaimed_shape(self, call: Call) -> str:
        rank = 3 if call.documents else len(self.axes)
        if not rank or call.pages is not None:
            return ""
        shapes = [call.given[name].numbers.shape for name in INPUTS]
        for shape in shapes:
            if len(shape) < 2 or any(n != 1 for n in shape[: max(0, len(shape) - rank)]):
                return f"{rank} axes"
        leading = [((1,) * (rank - len(shape)) + shape[:-2])[2 - rank :] for shape in shapes]
        if len({shape[:-1] for shape in leading}) > 1:
            return "batches that broadcast" if not call.refused else ""
        grouped = "enable_gqa" in call.options
        if len({shape[-1] for shape in leading}) > 1 and not grouped:
            by_shape = self.groups == "by shape" and call.refused
            return "heads that broadcast" if not call.refused or by_shape else ""
        mask = call.given.get("attn_mask")
        if mask is not None and mask.numbers.ndim > rank and not call.refused:
            return f"{rank} axes"
        return ""

    # How a call is put to the function.

    def also(self, call: Call) -> Also | None:
        """Return the second function that a call goes to; None for the function itself."""
        if call.documents is not None:
            return self.documents
        if call.pages is not None:
            return self.pages
        return self.lse if call.lse or call.split is not None else None

    def orders(self, call: Call) -> dict[str, tuple[str, str]]:
        """Return, for each argument with axes, our order of them and the kernel's."""
        whole = _ours(self.axes), self.axes
        if call.documents is not None:
            own = "HTD", (self.documents and self.documents.axes) or "THD"
            return dict.fromkeys((*INPUTS, "output"), own)
        orders = dict.fromkeys((*INPUTS, "output"), whole)
        if call.pages is not None:
            pool = "PHSD", (self.pages and self.pages.axes) or "PSHD"
            batch = "B" * (bool(self.axes) and "B" not in self.axes) + self.axes
            rows = _ours(batch), batch
            orders = {"query": rows, "key": pool, "value": pool, "output": rows}
        if self.lse is not None:
            lse = self.lse.axes or self.axes.replace("D", "")
            orders["lse"] = _ours(lse), lse
        return orders

    def arranged(self, call: Call) -> dict[str, Given]:
        """Return the arrays of a call, in the kernel's order of axes."""
        orders = self.orders(call)
        return {
            name: arranged(own, *orders[name]) if name in orders
            else self._mask(own) if name == "attn_mask" else own
            for name, own in call.given.items()
        }

    def _mask(self, mask: Given) -> Given:
        """Return a mask with the kernel's number of axes, and its meaning of True."""
        if ranks := sorted(self.mask_ranks or ()):
            fit = next((rank for rank in ranks if rank >= mask.numbers.ndim), ranks[-1])
            mask = mask._replace(numbers=ranked(mask.numbers, fit))
        turned = mask.dtype == "bool" and self.mask_true == "removed"
        return mask._replace(numbers=~mask.numbers) if turned else mask

    def _value(self, name: str, value: Any, call: Call) -> Any:
        """Return the kernel's own value for a keyword of ours."""
        if name in self.values:
            return self.values[name](value)
        if name != "window" or self.window == "ends" or value is None:
            return value
        left, right = value
        # What an integer says of the future is what is_causal says beside it.
        if left is None or not call.options.get("is_causal") or (right is not None and right < 0):
            return NotImplemented
        return left + 1 if self.window == "w keys" else left

    def options(self, call: Call) -> dict[str, Any]:
        """Return the keywords of a call that are no arrays, by the kernel's names."""
        found = {}
        for name, value in call.options.items():
            if name == "enable_gqa" and self.groups == "by shape":
                continue
            if name == "causal_align" and not self.takes(name):
                continue
            found[self.name(name)] = self._value(name, value, call)
        return found

    def called(self, call: Call, own: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
        """Return what the function returns for these arrays; `extra` are further keywords."""
        also = self.also(call)
        function = self.function if also is None else also.function
        function = compiled(function, self.compiled if call.compiled else None)
        always = self.always if also is None else {**self.always, **also.always}
        named = {
            self.name(name): self.values[name](x) if name in self.values else x
            for name, x in own.items() if name not in INPUTS
        }
        inputs = [own[name] for name in INPUTS]
        return function(*inputs, **named, **self.options(call), **extra, **always)

    def merged(self, parts: Iterable[tuple[Any, Any]]) -> Any:
        """Return what the function that merges returns for outputs and their log-sum-exps."""
        outputs, lses = map(list, zip(*parts, strict=True))
        if isinstance(self.merge, Also):
            return self.merge.function(outputs, lses, **self.merge.always)
        assert self.merge is not None
        return self.merge(outputs, lses)

    def further(self, call: Call) -> dict[str, Given | int]:
        """Return what only documents and pages have: where they begin, tables and lengths."""
        if call.documents is not None and self.documents is not None:
            pairs = zip(self.documents.starts, call.documents, strict=True)
            found: dict[str, Given | int] = {
                name: Given(np.cumsum((0, *lengths)), "int32") for name, lengths in pairs
            }
            longest = zip(self.documents.longest or (), call.documents, strict=False)
            return found | {name: max(lengths) for name, lengths in longest}
        if call.pages is not None and self.pages is not None:
            table, lengths = call.pages
            return {
                self.pages.table: Given(table, "int32"),
                self.pages.lengths: Given(np.array(lengths), "int32"),
            }
        return {}


def compiled(function: Callable[..., Any], backend: str | None) -> Any:
    """Return a function under torch.compile, and as it is for None.

    A judge's is compiled where it is called.
    """
    if backend is None:
        return function
    if hasattr(function, "compiled"):
        return function.compiled(backend)
    import torch

    # More than some compilations of one function fall back to the plain one in silence.
    torch._dynamo.reset()
    return torch.compile(function, backend=backend)


def arranged(own: Given, ours: str, theirs: str) -> Given:
    """Return an argument with its axes in another order, its layout along with it.

    >>> arranged(Given(np.zeros((2, 3, 5, 7)), "float32"), "BHSD", "BSHD").numbers.shape
    (2, 5, 3, 7)
    """
    if not theirs:
        return own
    order = [ours.index(axis) for axis in theirs]
    numbers = ranked(own.numbers, len(ours))
    layout = own.layout
    if layout is None or order == sorted(order):
        return own._replace(numbers=np.ascontiguousarray(numbers.transpose(order)))
    back = np.argsort(order)

    def laid(array: Array) -> Array:
        view: Array = layout(array.transpose(back)).transpose(order)
        return view

    laid.__name__ = layout.__name__
    return Given(numbers.transpose(order), own.dtype, laid)


def ranked(numbers: Array, rank: int) -> Array:
    """Return numbers with this many axes, where leading ones of length 1 can come or go for it."""
    more = numbers.ndim - rank
    if more <= 0:
        return numbers.reshape((1,) * -more + numbers.shape)
    return numbers.reshape(numbers.shape[more:]) if set(numbers.shape[:more]) == {1} else numbers


def restored(numbers: Array, ours: str, theirs: str, rank: int) -> Array:
    """Return a result in our order of axes, with the rank that is expected."""
    if not theirs or numbers.ndim != len(theirs):
        return numbers
    back = np.argsort([ours.index(axis) for axis in theirs])
    return ranked(numbers.transpose(back), rank)


def _ours(axes: str) -> str:
    """Return our order of the axes of a kernel.

    >>> _ours("BSHD"), _ours("SHD"), _ours("BSH")
    ('BHSD', 'HSD', 'BHS')
    """
    return "".join(axis for axis in "BHSD" if axis in axes)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what a function takes. One without a signature, as torch's own in C, has torch's."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return TAKEN


def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a function takes; None if it takes any."""
    parameters = parameters_of(function)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(p.name for p in parameters if p.kind in kinds)


def _check_callable(name: str, thing: object) -> None:
    if not callable(thing):
        raise TypeError(f"{name} must be callable; got {type(thing).__qualname__}")


def takes_integer(function: Callable[..., Any], name: str) -> bool:
    """Return whether a keyword takes an integer, by its annotation or by its default.

    >>> takes_integer(lambda window=-1: window, "window")
    True
    """
    found = next((own for own in parameters_of(function) if own.name == name), None)
    if found is None:
        return False
    said = found.annotation
    words = re.findall(r"\w+", said.__name__ if isinstance(said, type) else str(said))
    if said is not found.empty:
        return "int" in words and not {"tuple", "Tuple", "Sequence", "list", "List"} & set(words)
    return isinstance(found.default, int) and not isinstance(found.default, bool)


def check_words(
    name: str, words: Iterable[str], known: Sequence[str], what: str = "hold some of"
) -> None:
    """Refuse a word that is not known, and name the nearest one.

    >>> check_words("names", ["scal"], ["is_causal", "scale"])
    Traceback (most recent call last):
    ValueError: names must hold some of is_causal, scale; got 'scal'; the nearest is 'scale'
    """
    for word in words:
        if word not in known:
            import difflib  # for an error alone

            near = difflib.get_close_matches(str(word), known, 1, 0.0)
            end = f"; the nearest is {near[0]!r}" if near else ""
            raise ValueError(f"{name} must {what} {', '.join(known)}; got {word!r}{end}")


def _check_choice(name: str, thing: object, choices: Sequence[object]) -> None:
    if thing not in choices:
        said = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {said}; got {thing!r}")
