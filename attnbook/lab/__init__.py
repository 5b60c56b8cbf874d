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

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    "memory": Stage(12, "no tensor of more than T²/8 numbers"),
    "gradients": Stage(10, "all gradients, with masks too", ("gradients", "mask gradients")),
    "recompute": Stage(13, "a backward for which at most T²/8 numbers stay"),
}
# What to look at when a case of a topic fails, in the order in which failures are told.
HINTS = {
    "values": "O = softmax(scale · Q Kᵀ) V, where the scale is 1/√d_k unless it is given. The "
    "softmax runs along the keys, and subtracts the largest score.",
    "causal": "Query i sees the keys 0 to i, whether there are more keys than queries or fewer.",
    "masks": "True in a boolean mask keeps a key. A floating mask is added to the scaled scores.",
    "empty": "A query that sees no key gets zeros: no NaN, and no mean of what the mask removed.",
    "numbers": "NaN that a mask removes must change nothing, although 0 · NaN is NaN, and a sum on "
    "the way to the mean must not overflow.",
    "layouts": "The inputs may lie in memory in any order. They must stay as they are, and the "
    "result needs memory of its own.",
    "dtypes": "Compute float16 and bfloat16 in float32, and round once, at the end, to the dtype "
    "of the query.",
    "memory": "Take the keys block by block, and hold a maximum, a sum and an output for each row.",
    "gradients": "With G at the output: dV = Aᵀ G, dS = A ∘ (G Vᵀ − D), dQ = scale · dS K and "
    "dK = scale · dSᵀ Q, where D is the sum of each row of A ∘ (G Vᵀ).",
    "mask gradients": "The gradient of a floating mask is dS, summed where the mask is broadcast.",
    "recompute": "Keep query, key, value, the output and one or two numbers for each row, and "
    "compute each tile of weights again in the backward.",
}
UNASKED = ("bottom-right", "windows", "groups")  # what the lab leaves out
N_TOKENS = 1024
MOST = N_TOKENS**2 // 8
UNWRITTEN = "NotImplementedError without words"  # torch's own come with words


def cases(stage: str) -> list[Case]:
    """Return the cases of a stage.

    >>> [len(cases(stage)) for stage in STAGES]
    [39, 37, 48, 83, 2, 143, 2]
    """
    if STAGES[stage].topics:
        found = attncheck.cases(only=STAGES[stage].topics, without=UNASKED)
        return [case for case in found if case.head_dims == found[0].head_dims]
    name = f"{N_TOKENS} queries and keys"
    options: dict[str, dict[str, Any]] = {name: {}, f"{name}, causal": {"is_causal": True}}
    return [Case(stage, name, partial(_long, stage, own)) for name, own in options.items()]


def _long(stage: str, options: dict[str, Any], setting: Setting) -> Call:
    dtype = setting.dtype
    drawn = np.random.default_rng(0).standard_normal((4, 1, 1, N_TOKENS, 8)).astype(dtype)
    *arrays, upstream = drawn.astype(np.float64)
    given = {n: Given(x, dtype) for n, x in zip(("query", "key", "value"), arrays, strict=True)}
    if stage == "recompute":
        return Call(given, options, Given(upstream, dtype))
    return Call(given, options, truth=numpy_dense.scaled_dot_product_attention(*arrays, **options))


def _judged(case: Case, attention: Callable[..., Any], watch: Watch) -> Result:
    """Return what became of a case. Where memory is measured, its limit counts too."""
    kept, measured = Kept(attention), case.topic in ("memory", "recompute")
    try:
        with watch:
            attention = kept if measured else attention
            result = attncheck.judge(case, attention, attncheck.backend_for("torch"))
    except SystemExit:
        return Result(case, False, f"{case.call}\nexpected a result, but the program was ended")
    if measured and result.passed:
        wrong = f"{case.call}\nexpected at most T²/8 = {MOST:,} numbers"
        if watch.largest > MOST:
            return Result(case, False, f"{wrong} in a tensor,\ngot {watch.made}")
        if kept.numbers > MOST:
            return Result(case, False, f"{wrong} kept for the backward, got {kept.numbers:,}")
    return result


class Outcome(NamedTuple):
    """What became of a stage: "passed", "failed", "still to write", "refused" or "not asked"."""

    stage: str
    verdict: str = "not asked"
    results: Sequence[Result] = ()

    def lines(self) -> Iterator[str]:
        """Yield the line of the stage, and what to look at if the stage is not passed."""
        chapter, asks, _ = STAGES[self.stage]
        failed = [result for result in self.results if not result.passed]
        end, words = "", ""
        if self.verdict == "passed":
            end = f", {len(self.results)} cases"
        elif self.verdict == "failed":
            end = f" in {len(failed)} of {len(self.results)} cases; see chapter {chapter}"
            words = HINTS[min(failed, key=_order).case.topic]
        elif self.verdict == "still to write":
            end, words = f"; see chapter {chapter}", f"This stage asks for {asks}."
        elif self.verdict == "refused":
            words = "The function calls torch's own attention. Write the sum yourself."
        yield f"{[*STAGES].index(self.stage) + 1} {self.stage:11}{self.verdict}{end}"
        yield from textwrap.wrap(words, 78, initial_indent="  ", subsequent_indent="  ")
        if failed:
            first = min(failed, key=_order)
            yield from textwrap.indent(f"{first.case}\n{first.message}", "     ").splitlines()


def _order(result: Result) -> tuple[int, float]:
    """Return what sorts failures: by topic, then the fewest scores, but those without any last."""
    query, key, *_ = result.case.call.given.values()
    scores = query.numbers.shape[-2] * key.numbers.shape[-2]
    return [*HINTS].index(result.case.topic), scores or math.inf


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
            return Outcome(stage, "refused")
    messages = [result.message for result in results if not result.passed]
    if messages and all(UNWRITTEN in message for message in messages):
        return Outcome(stage, "still to write")
    return Outcome(stage, "failed" if messages else "passed", results)


def skeleton(module: str = "my_attention") -> str:
    """Return the file to begin with, for a module of this name."""
    text = files("attnbook.lab").joinpath("my_attention.py").read_text(encoding="utf-8")
    return text.replace("my_attention", module)
