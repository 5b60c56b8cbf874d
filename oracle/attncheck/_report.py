"""Say what came out of a check, in at most 40 lines: what failed alike stands together.

Failures are alike where the same exception came, its numbers aside, or the same sort of wrong
result. What they have in common is told by the shortest condition on the calls that holds for all
of them and for none that passed.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attncheck._calls import TOPICS, Call, Case, Given
from attncheck._classes import CLASSES, class_of
from attncheck._comparison import INVERTED, RAISED, Result
from attncheck._definition import allowed_keys, combined_mask
from attncheck._types import HALF, Array, scale_of

WIDTH = 30  # of the bar, in characters
LINES = 40  # of a report, which somebody reads
UNKNOWN = "nothing that is known of the calls sets them apart"


@dataclass(frozen=True)
class Report:
    """What became of all cases of a check. `print(report)` gives the table and what failed alike.

    Attributes:
        results: A result for each case that was asked, in the order of the topics.
        not_claimed: What was not asked, and why.
        asked: The cases that there are, the claimed ones among them.
        about: What was checked, and where, in a few words.
        again: The command that asks again; a case's id and the seed are added to it.
        seed: The seed of the cases.
        claimed: What the kernel says that it takes: "dtype", "head dimensions", "rank".
    """

    results: Sequence[Result]
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    asked: int = 0
    about: str = ""
    again: str = ""
    seed: int = 7
    claimed: Sequence[str] = ()

    @property
    def refused(self) -> list[Result]:
        """Return what was refused, calls of a dtype, a head dimension or a rank that always is.

        A kernel that says no to every call of one kind says what it is not built for. One that
        says no to some calls of a kind that it takes, or to what it claims, has failed. A call that
        needs much memory may be refused for want of it.
        """
        raised = [r for r in self.results if r.refused]
        if not raised:
            return []
        if not self.claimed and len(raised) == len(self.results):
            return raised
        kinds = Counter(kind for r in self.results for kind in _kinds(r.case))
        said_no = Counter(kind for r in raised for kind in _kinds(r.case))
        taken = {kind[0] for r in self.results if r.passed for kind in _kinds(r.case)}
        whole = {
            kind
            for kind, n in said_no.items()
            if n == kinds[kind] and kind[0] in taken and kind[0] not in self.claimed
        }
        return [r for r in raised if whole & set(_kinds(r.case)) or _lacks_memory(r)]

    @property
    def failed(self) -> list[Result]:
        """Return the results of the cases that failed."""
        refused = set(map(id, self.refused))
        return [r for r in self.results if not r.passed and id(r) not in refused]

    @property
    def passed(self) -> bool:
        """Return whether some case passed, and none failed."""
        return any(r.passed for r in self.results) and not self.failed

    def without(self, expected: Sequence[str]) -> tuple[Report, list[str]]:
        """Return the report without failures that are expected, and the ids of those that passed.

        `expected` holds ids of cases, or parts of them.
        """
        if not expected:
            return self, []
        named = [r for r in self.results if any(part in r.case.id for part in expected)]
        kept = [r for r in self.results if r.passed or r not in named]
        words = f"{len([r for r in named if not r.passed])} expected failures"
        reasons = dict(self.not_claimed) | {words: "as the file says"}
        passes = [r.case.id for r in named if r.passed]
        return replace(self, results=kept, not_claimed=reasons), passes

    @property
    def table(self) -> str:
        """Return how many cases of each topic passed, failed and were refused."""
        failed, refused = (Counter(r.case.topic for r in x) for x in (self.failed, self.refused))
        passed = Counter(r.case.topic for r in self.results if r.passed)
        lines = [f"{'topic':16}{'passed':>8}{'failed':>8}{'refused':>9}"]
        for topic in [t for t in TOPICS if passed[t] + failed[t] + refused[t]]:
            lines.append(f"{topic:16}{passed[topic]:8}{failed[topic]:8}{refused[topic]:9}")
        sums = [sum(n.values()) for n in (passed, failed, refused)]
        lines.append(f"{'all':16}{sums[0]:8}{sums[1]:8}{sums[2]:9}")
        reasons: dict[str, list[str]] = {}
        for what, why in self.not_claimed.items():
            reasons.setdefault(why, []).append(what)
        said = [f"{', '.join(what)} ({why})" for why, what in reasons.items()]
        return "\n".join([*lines, *([f"not claimed: {'; '.join(said)}"] if said else [])])

    @property
    def classes(self) -> dict[str, int]:
        """Return how many failures there are of each class of `_classes`, edges last."""
        counts = Counter(class_of(result) for result in self.failed)
        return {own: counts[own] for own in CLASSES if counts[own]}

    @property
    def groups(self) -> list[Group]:
        """Return the failures, alike ones together, the largest group first."""
        kinds: dict[str, list[Result]] = {}
        for result in self.failed:
            kinds.setdefault(_alike(result), []).append(result)
        passed = [r.case for r in self.results if r.passed] if kinds else []
        facts = [frozenset(conditions(case)) for case in passed]
        groups = []
        for kind, found in kinds.items():
            topics = {r.case.topic for r in found}
            fine = sum(case.topic in topics for case in passed)
            if kind == INVERTED:
                said = "every one passes with its mask turned round"
                groups.append(Group(kind, found, said))
                continue
            parts = list(_parts(found, facts))
            if len(found) > 3 * fine and (len(parts) > 1 or UNKNOWN in parts[0][1]):
                said = f"nearly all that were asked: {fine} of these topics pass"
                parts = [(found, said)]
            groups += [Group(kind, part, said) for part, said in parts]
        return sorted(groups, key=lambda group: -len(group.results))

    def told(self, most: int | None = LINES) -> str:
        """Return the report in this many lines at most; None tells every group of failures."""
        first = f"{self.about}, {len(self.results)} of {self.asked} cases, seed {self.seed}"
        parts = [first, self.table] if self.about else [self.table]
        if classes := self.classes:
            parts.append(f"failed: {', '.join(f'{n} {own}' for own, n in classes.items())}")
        refusals = Counter(_struck(r.refused) for r in self.refused).most_common()
        for said, n in refusals[:1]:
            others = f", and {len(refusals) - 1} other messages" * (len(refusals) > 1)
            parts.append(f"refused {n} cases: {said[:150]}{others}")
        groups = self.groups
        used = "\n".join(parts).count("\n") + 2
        shown = len(groups) if most is None else max(0, (most - used) // 4)
        parts += [group.told(n, self) for n, group in enumerate(groups[:shown], 1)]
        if groups[shown:]:
            rest = sum(len(group.results) for group in groups[shown:])
            parts.append(f"and {rest} cases more, in {len(groups) - shown} groups: --all")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.told()


@dataclass(frozen=True)
class Group:
    """Failures of one kind, and what they have in common.

    Attributes:
        kind: What sort of wrong they are.
        results: The failures.
        condition: What holds for all of them and for none that passed, in words.
    """

    kind: str
    results: Sequence[Result]
    condition: str

    @property
    def smallest(self) -> Result:
        """Return the failure with the fewest numbers."""
        return min(
            self.results, key=lambda r: sum(x.numbers.size for x in r.case.call.given.values())
        )

    def told(self, n: int, report: Report) -> str:
        """Return four lines: how many, the smallest call, its wrong entry, how to ask again."""
        topics = ", ".join(dict.fromkeys(r.case.topic for r in self.results))
        some = f"{len(self.results)} case{'s' * (len(self.results) != 1)}"
        result = self.smallest
        call, wrong = result.message.split("\n", 1)
        again = f"{report.again} --case '{result.case.id}'" if report.again else result.case.id
        seed = f" --seed {report.seed}" if report.again and report.seed != 7 else ""
        said = [f"{n}  {some} of {topics}: {self.kind}; {self.condition}"]
        said += [f"   {call}", f"   {' '.join(wrong.split())}", f"   again: {again}{seed}"]
        return "\n".join(line if len(line) < 400 else f"{line[:397]}..." for line in said)


def _kinds(case: Case) -> Iterator[tuple[str, object]]:
    """Yield what a kernel may not be built for."""
    yield "dtype", case.dtype
    yield "head dimensions", case.head_dims
    yield "rank", len(case.call.given["query"].numbers.shape)


def _lacks_memory(result: Result) -> bool:
    """Return whether a call was refused that needs much memory, and the words speak of memory."""
    return "memory" in result.refused.lower() and bool(result.case.call.memory)


def _struck(words: str) -> str:
    """Return words with their numbers struck out, by which exceptions are alike."""
    return re.sub(r"-?\d[\d.e+-]*", "#", words)


def _alike(result: Result) -> str:
    if result.kind.startswith(RAISED):
        return _struck(result.kind)[:110]
    return result.kind.rsplit(": ", 1)[-1]  # NaN is alike in an output and in a gradient


# What the calls of a group have in common ---------------------------------------------------------


def conditions(case: Case) -> list[str]:
    """Return what holds for a call, in words, from what is said most often to what is seldom."""
    call = case.call
    query, key, value = (call.given[name] for name in ("query", "key", "value"))
    n_queries, n_keys = query.numbers.shape[-2:-1], key.numbers.shape[-2:-1]
    rows, columns = (n[0] if n else 0 for n in (n_queries, n_keys))
    mask, options = call.given.get("attn_mask"), call.options
    scale, window = options.get("scale"), options.get("window")
    layouts = {x.layout.__name__.replace("_", " ") for x in call.given.values() if x.layout}
    above = call.upstream.layout if call.upstream else None
    removed = mask is not None and not _kept(mask).all()
    causal = bool(options.get("is_causal"))
    aligned = options.get("causal_align") == "bottom-right"
    numbers = [x.numbers for x in (query, key, value)]
    finite = [x if np.isfinite(x.sum()) else x[np.isfinite(x)] for x in numbers]
    cleaned = [call.given[name].numbers for name in call.meant]
    texts, pages = call.documents, call.pages
    page = key.numbers.shape[-2] if pages is not None else 1
    facts = {
        "a mask": mask is not None,
        "a boolean mask": mask is not None and mask.dtype == "bool",
        "a floating mask": mask is not None and mask.dtype not in ("bool", "int64"),
        "a mask that removes keys": removed,
        "a query without any of the first 64 keys": columns > 64 and _late(call, rows, columns),
        "is_causal": causal,
        "no is_causal": not causal,
        "is_causal at the bottom right": causal and aligned,
        "a window": window is not None,
        "a window without an end": window is not None and None in window,
        "a window that ends at the query": window is not None and window[1] == 0,
        "a bottom-right alignment": aligned,
        "more keys than queries": columns > rows,
        "more queries than keys": rows > columns,
        "as many queries as keys": rows == columns,
        "another number of queries than of keys": rows != columns,
        "one query": rows == 1,
        "more than one query": rows > 1,
        "one key": columns == 1,
        "more than one key": columns > 1,
        "more than 64 keys": columns > 64,
        "more than 16 keys": columns > 16,
        "more than 64 queries": rows > 64,
        "an axis of length 0": any(0 in x.shape for x in numbers),
        "fewer key heads than query heads": "enable_gqa" in options
        and query.numbers.shape[-3] > key.numbers.shape[-3],
        "enable_gqa": "enable_gqa" in options,
        "a scale": scale is not None,
        "no scale": scale is None,
        "a scale that is not finite": scale is not None and not np.isfinite(scale),
        "a scale of 0 or below": scale is not None and scale <= 0,
        "a gradient of the log-sum-exp": call.lse_upstream is not None,
        "gradients": call.upstream is not None,
        "no gradients": call.upstream is None,
        "the gradient of the mask": "attn_mask" in call.wanted and call.upstream is not None,
        "keys in two halves": call.split is not None,
        "a log-sum-exp": call.lse or call.split is not None,
        "documents": texts is not None,
        "documents with other lengths for keys": texts is not None and texts.queries != texts.keys,
        "pages": pages is not None,
        "a page that is not full": pages is not None and any(n % page for n in pages.lengths),
        "sinks": "sinks" in call.given,
        "a soft cap": "softcap" in options,
        "NaN or ∞ in the inputs": any(not np.isfinite(x).all() for x in numbers),
        "NaN or ∞ that is removed": any(not np.isfinite(x).all() for x in cleaned),
        "scores above 80": _largest_score(call) > 80,  # whose powers float32 cannot hold
        "numbers above 1e30": any(max(x.max(initial=0), -x.min(initial=0)) > 1e30 for x in finite),
        "rows without keys": case.topic == "empty" or "empty" in case.needs,
        "leading axes that broadcast": len({x.shape[:-2] for x in numbers}) > 1,
        "one head dimension for all": query.numbers.shape[-1:] == value.numbers.shape[-1:],
        "a value with its own head dimension": query.numbers.shape[-1:] != value.numbers.shape[-1:],
        "more than 65,535 sequences": query.numbers.shape[:1] > (65535,),
        "half precision": case.dtype in HALF,
        "inputs that are not contiguous": bool(layouts - {"read only", "shifted"}),
        "a gradient of the output that is not contiguous": above is not None,
        "a call that is looked at twice": call.watched,
        "an invalid call": call.refused,
        "another number of values than of keys": len(key.numbers.shape) > 1
        and len(value.numbers.shape) > 1
        and columns != value.numbers.shape[-2],
    }
    if mask is not None:
        facts[f"a mask {_axes(mask.numbers.shape)}"] = True
    facts |= {f"inputs {name}": True for name in layouts}
    facts |= {f"the topic {case.topic}": True, case.dtype: True}
    features = query.numbers.shape[-1]
    facts |= {f"head dimension {features}": True, f"head dimensions above {features - 1}": True}
    return [words for words, holds in facts.items() if holds]


def _late(call: Call, n_queries: int, n_keys: int) -> bool:
    """Return whether some query sees none of the first 64 keys."""
    if call.documents is not None or call.pages is not None or call.refused:
        return False
    names = ("is_causal", "causal_align", "window")
    by_position = {name: call.options[name] for name in names if name in call.options}
    allowed = allowed_keys(n_queries, n_keys, **by_position)
    mask = call.given.get("attn_mask")
    seen = combined_mask(None if mask is None else _kept(mask), allowed)
    return seen is not None and not seen[..., :64].any(axis=-1).all()


def _kept(mask: Given) -> Array:
    """Return what a mask does not remove."""
    return mask.numbers if mask.dtype == "bool" else mask.numbers != -np.inf


def _largest_score(call: Call) -> float:
    """Return the size of the largest score, 0 where shapes do not fit or are large."""
    query, key = (call.given[name].numbers for name in ("query", "key"))
    fits = query.ndim > 1 and key.ndim > 1 and query.shape[-1] == key.shape[-1] > 0
    if not fits or max(query.size, key.size) > 10**5 or call.pages is not None:
        return 0.0
    factor = scale_of(call.options.get("scale"), query.shape[-1])
    rows, columns = (np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0) for x in (query, key))
    lengths = [np.sqrt((x**2).sum(axis=-1)).max(initial=0.0) for x in (rows, columns)]
    return float(abs(factor) * lengths[0] * lengths[1])


def _axes(shape: tuple[int, ...]) -> str:
    """Return the axes of a mask by their letters, (B, 1, L, S)."""
    letters = zip(reversed(shape), reversed("BHLS"), strict=False)
    names = ["1" if length == 1 else name for length, name in letters]
    return f"({', '.join(reversed(names))}{',' * (len(names) == 1)})"


def _parts(
    failed: Sequence[Result], passed: Sequence[frozenset[str]]
) -> Iterator[tuple[list[Result], str]]:
    """Yield failures of one kind, each part with a condition that holds for all of it.

    First comes a condition for all, which none that passed has, or few of those that have it. If
    there is none, the failures are cut: the condition that tells the most comes first. Sets are
    bits of integers here.
    """
    own = [conditions(result.case) for result in failed]
    facts = list(dict.fromkeys(fact for found in own for fact in found))
    fails = {fact: _bits(fact in found for found in own) for fact in facts}
    passes = {fact: _bits(fact in found for found in passed) for fact in facts}
    rest = (1 << len(failed)) - 1
    while rest and passed:
        # What half of those that pass have as well tells nothing.
        few = min(rest.bit_count(), len(passed)) // 2
        chosen, told, fine = _best(rest, fails, passes, few)
        if not told:
            break
        part = [result for n, result in enumerate(failed) if told >> n & 1]
        if len(part) == 1 and (fine or len(chosen) > 2):
            yield part, f'it is the case "{part[0].case.name}"'
        else:
            end = f"so have {fine} that pass" if fine else "none that passes has"
            yield part, f"every one has {' and '.join(chosen)}; {end}"
        rest &= ~told
    if rest:
        part = [result for n, result in enumerate(failed) if rest >> n & 1]
        yield part, UNKNOWN


def _best(
    rest: int, fails: Mapping[str, int], passes: Mapping[str, int], few: int
) -> tuple[tuple[str, ...], int, int]:
    """Return facts, the failures that have them together, and how many that passed have them.

    Facts of all the rest come first, if at most `few` that passed have them, and then those of the
    most failures that none has which passed; among equals, those that are seldom elsewhere.
    """
    found: list[tuple[tuple[str, ...], int, int]] = []

    def common(chosen: tuple[str, ...]) -> tuple[int, int]:
        # The topic stands in the line already.
        topics = [fact for fact in chosen if fact.startswith("the topic")]
        return len(topics), sum(passes[fact].bit_count() for fact in chosen)

    for n in (1, 2, 3):
        for chosen in itertools.combinations([fact for fact in fails if fails[fact] & rest], n):
            both, fine = rest, -1
            for fact in chosen:
                both, fine = both & fails[fact], fine & passes[fact]
            if both and fine.bit_count() <= (few if both == rest else 0):
                found.append((chosen, both, fine.bit_count()))
        whole = [own for own in found if own[1] == rest]
        best = min(whole, key=lambda own: (own[2], common(own[0])), default=None)
        # A second fact is worth its words where it leaves none that passes.
        if best is not None and (n > 1 or best[2] == 0):
            return best
        if n == 2 and found:
            break
    if not found:
        return (), 0, 0
    return min(found, key=lambda own: (-own[1].bit_count(), common(own[0])))


def _bits(holds: Iterable[bool]) -> int:
    return sum(1 << n for n, own in enumerate(holds) if own)


def followed(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the cases, and draw how many of them are done; the bar is gone at the end."""
    for done, case in enumerate(cases):
        full = WIDTH * done // len(cases)
        bar = "#" * full + "." * (WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {done} of {len(cases)}, {case.topic:14}")
        sys.stderr.flush()
        yield case
    sys.stderr.write("\r" + " " * (WIDTH + 40) + "\r")
    sys.stderr.flush()
