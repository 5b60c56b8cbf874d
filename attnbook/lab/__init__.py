"""Grade an attention in seven stages, from the first weighted sum to a backward that recomputes.

    python -m attnbook.lab --start my_attention.py      write a file to begin with
    python -m attnbook.lab my_attention                 every stage, up to the first that fails
    python -m attnbook.lab my_attention --stage masks   one stage alone

In a notebook, `lab.grade(attention, ["values"])` does the same. The page *The lab* explains the
stages. Five of them ask the cases of `attncheck`, and two measure memory.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

import importlib.util

if importlib.util.find_spec("attncheck") is None:
    how = 'pip install "git+https://github.com/your_account/attention-step-by-step#subdirectory=oracle"'
    what = f"{__name__} needs attncheck, which is not installed"
    raise ModuleNotFoundError(f"{what}: {how}", name="attncheck")

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

import attncheck
from attnbook.lab._memory import Kept, Watch
from attncheck import Call, Case, Given, Result, Setting
from attnlib import numpy_dense

__all__ = ["STAGES", "Outcome", "Report", "Stage", "cases", "grade", "skeleton"]


class Stage(NamedTuple):
    """One step of the lab.

    Attributes:
        chapter: The chapter that explains what the stage asks.
        asks: What it asks.
        topics: The topics of its cases; none where it asks long sequences and measures memory.
    """

    chapter: int
    asks: str
    topics: tuple[str, ...] = ()


STAGES = {
    "values": Stage(5, "a weighted sum of the values, for any shapes and scale", ("values",)),
    "causal": Stage(7, "is_causal: query i sees the keys 0 to i", ("causal",)),
    "masks": Stage(7, "boolean and floating masks, rows without a key", ("masks", "empty")),
    "numbers": Stage(
        10, "NaN, huge numbers, any layout, four dtypes", ("numbers", "layouts", "dtypes")
    ),
    "memory": Stage(12, "no tensor of more than an eighth of the scores"),
    "gradients": Stage(10, "all gradients, with masks too", ("gradients", "mask gradients")),
    "recompute": Stage(13, "a backward for which no more than that stays"),
}
# What to look at: the topic of what fails alike, words in what the report says of it, and the hint.
# The first line that fits is told.
HINTS = (
    ("values", "its own head dimension", "The scale is 1/√d_k, of the query's features and not of "
     "the value's, and the output has the value's d_v."),
    ("values", "no scale", "Where no scale is given, the scores are divided by √d_k."),
    ("values", "scale=0.0", "A scale of 0 is a scale: ask whether it is None."),
    ("values", "length 0", "Without features all scores are 0, and without keys the output is 0."),
    ("values", "scores above 80", "Subtract the largest score of each row before you take powers."),
    ("values", "", "O = softmax(scale · Q Kᵀ) V, where the softmax runs along the keys."),
    ("causal", "than", "Query i sees the keys 0 to i, counted from the first key, whether there "
     "are more keys than queries or fewer."),
    ("causal", "", "Query i sees the keys 0 to i: its own key and those before it."),
    ("masks", "NaN;", "A block of keys may hold none that a query sees: its largest score is −∞, "
     "and −∞ − (−∞) is NaN."),
    ("masks", "a boolean mask", "True in a boolean mask keeps a key."),
    ("masks", "a floating mask", "A floating mask is added to the scores after they were scaled."),
    ("masks", "", "A mask broadcasts to (…, L, S). A key that it removes has the weight 0."),
    ("empty", "NaN", "A query that sees no key gets zeros. The softmax would divide 0 by 0."),
    ("empty", "", "A query that sees no key gets zeros, and not the mean of what was removed: −∞ "
     "removes a key, and a large negative number does not."),
    ("numbers", "removed", "What a mask removes must change nothing, NaN too, although 0 · NaN is "
     "NaN."),
    ("numbers", "1e30", "The output is a mean, which is finite. A sum on the way to it must not "
     "overflow."),
    ("numbers", "", "NaN that takes part comes out, and NaN that is removed changes nothing."),
    ("layouts", "modified", "The inputs must stay as they are: nothing is done in place."),
    ("layouts", "memory", "The result needs memory of its own."),
    ("layouts", "", "The inputs may lie in memory in any order."),
    ("dtypes", "", "Compute float16 and bfloat16 in float32, and round once, at the end, to the "
     "dtype of the query."),
    ("memory", "numbers", "Where a block has a new largest score, the sum and the output of the "
     "blocks before are rescaled."),
    ("memory", "", "Take the keys block by block, and hold a maximum, a sum and an output for each "
     "row. A whole row of scores is too much."),
    ("gradients", "removed", "What a mask removes must change no gradient, NaN too."),
    ("gradients", "rows without keys", "The gradients of a query that sees no key are 0."),
    ("gradients", "", "With G at the output: dV = Aᵀ G, dS = A ∘ (G Vᵀ − D), dQ = scale · dS K and "
     "dK = scale · dSᵀ Q, where D is the sum of each row of A ∘ (G Vᵀ)."),
    ("mask gradients", "", "The gradient of a floating mask is dS, summed where the mask is "
     "broadcast."),
    ("recompute", "", "Keep query, key, value, the output and one or two numbers for each row, and "
     "compute each tile of weights again in the backward."),
)
UNASKED = ("bottom-right", "windows", "groups")  # what the lab leaves out
# Queries and keys of the stages that measure memory. Of four rows, one is too much.
LENGTHS = {"1,024 queries and keys": (1024, 1024), "4 queries, 32,768 keys": (4, 32768)}
UNWRITTEN = "NotImplementedError without words"  # torch's own come with words


def cases(stage: str) -> list[Case]:
    """Return the cases of a stage.

    >>> [len(cases(stage)) for stage in STAGES]
    [39, 37, 48, 83, 3, 143, 3]
    """
    if STAGES[stage].topics:
        found = attncheck.cases(only=STAGES[stage].topics, without=UNASKED)
        return [case for case in found if case.head_dims == found[0].head_dims]
    square, few = LENGTHS
    asked = {square: {}, f"{square}, causal": {"is_causal": True}, few: {}}
    return [
        Case(stage, name, partial(_long, stage, LENGTHS[name.removesuffix(", causal")], options))
        for name, options in asked.items()
    ]


def _long(stage: str, lengths: tuple[int, int], options: dict[str, Any], setting: Setting) -> Call:
    dtype, rng = setting.dtype, np.random.default_rng(0)
    rows = {"query": lengths[0], "key": lengths[1], "value": lengths[1], "upstream": lengths[0]}
    drawn = {n: rng.standard_normal((1, 1, length, 8)).astype(dtype) for n, length in rows.items()}
    *arrays, upstream = (x.astype(np.float64) for x in drawn.values())
    given = {n: Given(x, dtype) for n, x in zip(("query", "key", "value"), arrays, strict=True)}
    if stage == "recompute":
        return Call(given, options, Given(upstream, dtype))
    query, key, value = arrays
    truth = numpy_dense.scaled_dot_product_attention(query, key, value, **options)
    return Call(given, options, truth=truth)


def most_numbers(call: Call) -> tuple[int, int]:
    """Return how many numbers a tensor may have, and how many may stay for the backward.

    A tensor as large as an input may be made, and the inputs and the output may stay.
    """
    query, key, value = (call.given[name].numbers for name in ("query", "key", "value"))
    eighth, output = query.shape[-2] * key.shape[-2] // 8, query[..., 0].size * value.shape[-1]
    return eighth, eighth + query.size + key.size + value.size + output


def _judged(case: Case, attention: Callable[..., Any], watch: Watch) -> Result:
    """Return what became of a case. Where memory is measured, its limit counts too."""
    measured = case.topic in ("memory", "recompute")
    kept = Kept(attention)
    watch.inputs = {own.numbers.size for own in case.call.given.values()}
    watch.checkpoints = case.topic != "recompute"
    try:
        with watch, kept if measured else nullcontext():
            attention = kept if measured else attention
            result = attncheck.judge(case, attention, attncheck.backend_for("torch"))
    except SystemExit:
        return Result(case, False, f"{case.call}\nexpected a result, but the program was ended")
    if measured and result.passed:
        largest, most = most_numbers(case.call)
        wrong = f"{case.call}\nexpected at most"
        if watch.largest > largest:
            words = f"{wrong} {largest:,} numbers in a tensor, an eighth of the scores,"
            return Result(case, False, f"{words}\ngot {watch.made}", "a large tensor")
        if kept.most > most:
            words = f"{wrong} {most:,} numbers kept for the backward (inputs, output and an eighth"
            return Result(case, False, f"{words}\nof the scores), got {kept.most:,}", "kept")
    return result


class Outcome(NamedTuple):
    """What became of a stage: "passed", "failed", "still to write", "refused" or "not asked"."""

    stage: str
    verdict: str = "not asked"
    results: Sequence[Result] = ()
    refused: str = ""  # what the function called

    def lines(self) -> Iterator[str]:
        """Yield the line of the stage, and what to look at if the stage is not passed."""
        chapter, asks, _ = STAGES[self.stage]
        failed = [result for result in self.results if not result.passed]
        end, words, alike = "", "", None
        if self.verdict == "passed":
            end = f", {len(self.results)} cases"
        elif self.verdict == "failed":
            end = f" in {len(failed)} of {len(self.results)} cases; see chapter {chapter}"
            alike = min(attncheck.Report(self.results).groups, key=_order)
            words = _hint(alike)
        elif self.verdict == "still to write":
            end, words = f"; see chapter {chapter}", f"This stage asks for {asks}."
        elif self.verdict == "refused":
            words = f"The function calls {self.refused}. Write that yourself."
        yield f"{[*STAGES].index(self.stage) + 1} {self.stage:11}{self.verdict}{end}"
        yield from textwrap.wrap(words, 78, initial_indent="  ", subsequent_indent="  ")
        if alike is not None:
            n = len(alike.results)
            said = f"{n} case{'s' * (n > 1)}: {alike.kind}"
            said += f"; {alike.condition}" if alike.condition.startswith("every one") else ""
            yield from textwrap.wrap(said, 78, initial_indent="     ", subsequent_indent="     ")
            first = alike.smallest
            yield from textwrap.indent(f"{first.case}\n{first.message}", "     ").splitlines()


def _order(alike: Any) -> tuple[int, int]:
    """Return what sorts failures that are alike: by topic, then the most first."""
    topics = list(dict.fromkeys(topic for topic, *_ in HINTS))
    return topics.index(alike.smallest.case.topic), -len(alike.results)


def _hint(alike: Any) -> str:
    """Return what to look at, for failures that are alike."""
    said = f"{alike.kind}; {alike.condition}; {alike.smallest.case}"
    topic = alike.smallest.case.topic
    return next(hint for own, words, hint in HINTS if own == topic and words in said)


@dataclass(frozen=True, repr=False)
class Report:
    """What became of the stages that were chosen. It is shown and printed in words."""

    outcomes: Sequence[Outcome]

    @property
    def stopped_at(self) -> str | None:
        """Return the stage that is not passed, and None where all are."""
        return next((own.stage for own in self.outcomes if own.verdict != "passed"), None)

    @property
    def passed(self) -> bool:
        """Return whether all stages that were chosen are passed."""
        return self.stopped_at is None

    def __repr__(self) -> str:
        return "\n".join(line for outcome in self.outcomes for line in outcome.lines())


def grade(attention: Callable[..., Any], stages: Iterable[str] = ()) -> Report:
    """Grade an attention, stage after stage, and stop at the first that is not passed.

    Args:
        attention: A function of tensors with the signature of torch's
            `scaled_dot_product_attention`.
        stages: The names of some stages; all of them where it is empty.

    Raises:
        TypeError: an attention that is not callable.
        ValueError: a stage that is unknown.

    Example:
        >>> from attnlib.torch_dense import scaled_dot_product_attention
        >>> grade(scaled_dot_product_attention, ["values", "causal"])
        1 values     passed, 39 cases
        2 causal     passed, 37 cases
    """
    if not callable(attention):
        raise TypeError(f"attention must be a function; got {type(attention).__qualname__}")
    chosen = {stages} if isinstance(stages, str) else {*stages}
    if unknown := sorted(map(str, chosen - {*STAGES})):
        raise ValueError(f"stages must be some of {', '.join(STAGES)}; got {', '.join(unknown)}")
    outcomes: list[Outcome] = []
    for stage in [stage for stage in STAGES if not chosen or stage in chosen]:
        goes_on = not outcomes or outcomes[-1].verdict == "passed"
        outcomes.append(_outcome(stage, attention) if goes_on else Outcome(stage))
    return Report(outcomes)


def _outcome(stage: str, attention: Callable[..., Any]) -> Outcome:
    results: list[Result] = []
    for case in cases(stage):
        watch = Watch()
        results.append(_judged(case, attention, watch))
        if watch.refused:
            return Outcome(stage, "refused", refused=watch.refused)
    messages = [result.message for result in results if not result.passed]
    if messages and all(UNWRITTEN in message for message in messages):
        return Outcome(stage, "still to write")
    return Outcome(stage, "failed" if messages else "passed", results)


def skeleton(module: str = "my_attention") -> str:
    """Return the file to begin with, for a module of this name."""
    text = files("attnbook.lab").joinpath("my_attention.py").read_text(encoding="utf-8")
    return text.replace("my_attention", module)
