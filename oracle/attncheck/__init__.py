"""Check an attention function against the definition, case by case.

For somebody who has written an attention and wants to know whether it is right. `check` makes some
hundred small calls of it, topic by topic, and compares each result with the definition in float64.
What fails alike is told together, with the smallest call and its first wrong entry:

    import attncheck
    print(attncheck.check(my_attention))

A function with the signature of torch's `scaled_dot_product_attention` needs no more; `Kernel` says
what another one is built for: its order of axes, head dimensions, dtypes, and names. The same
check runs from a shell, `python -m attncheck my_module:my_attention`, and as tests of pytest,
`pytest --attention my_module:my_attention`. How far a result may be off follows from the arithmetic
of its dtype. The files, from the question to the verdict:

    _claims        what a kernel says of itself, and how it is called
    _calls         a case and its call; _draws has what most of them are drawn by. _shapes, _masks,
                   _dtypes, _layouts, _serving, _gradients, _modes and _errors have those of their
                   topics, and _table puts them in order
    _definition    the truth; it shares no code with anything that is judged
    _tolerance     how far a result may be off
    _backends      arrays and tensors, as a kernel takes them (_torch_backend)
    _comparison    one case asked; _search draws calls beyond the table, _report tells the failures,
                   _classes what sort of failures matters to whom, and _advice what was meant
    _judged        a kernel that is not trusted, in a process of its own (_process, _worker, _wire)
    _record        a report as data, with a score by class (schema.json)
    _export        cases in a file (EXPORT.md); _badge has a report in one line
    adapters       other people's functions as kernels; hands finds what people have in files, by
                   _references, and _traces with _operation, or asks it beside its reference, in
                   _pairs with _data
    suites         what published tests let pass; __main__ and pytest_plugin use all but that
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from attncheck._backends import Backend, NumpyBackend
from attncheck._calls import CLAIMED, TOPICS, Call, Case, Given, Setting, WrongResultError
from attncheck._claims import Also, Kernel
from attncheck._comparison import Result, judge
from attncheck._definition import argument_gradients, problem
from attncheck._report import Report, followed
from attncheck._table import checked_topics, tabled

__version__ = "2026.1"
__all__ = ["CLAIMED", "TOPICS", "Also", "Call", "Case", "Kernel", "Report", "Result"]
__all__ += ["cases", "check", "expected_failures", "judged", "tests"]
# What peers/ needs besides, to check functions that take neither tensors nor arrays of NumPy.
__all__ += ["Backend", "Given", "WrongResultError", "argument_gradients", "backend_for", "judge"]
__all__ += ["Setting", "problem"]

Seed = int | Literal["random"]


def cases(
    kind: str = "torch", *, kernel: Any = None,
    only: Iterable[str] = (), without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None, seed: Seed = 7,
) -> list[Case]:
    """Return the cases for a kernel, in the order of the topics.

    Args:
        kind: "numpy" or "torch"; gradients are for torch alone.
        kernel: A function or a `Kernel`, whose claims choose the cases. None stands for a function
            that has all keywords of the implementations here, and no function beside it.
        only, without, dtypes, seed: What `check` takes.

    Raises:
        ValueError: a kind, a topic or a dtype that is unknown.

    Example:
        >>> case = cases("numpy", only=["causal"])[0]
        >>> print(case)
        causal: query (5, E), key (7, E), float32
        >>> print(case.call)
        query (5, 13) float32, key (7, 13) float32, value (7, 11) float32, is_causal=True
        >>> case.id
        'causal[query-5-E-key-7-E-float32-d13]'
    """
    own = Kernel.of(_everything if kernel is None else kernel)
    choice: dict[str, Any] = {"only": only, "without": without, "dtypes": dtypes}
    found = tabled(own, kind, **choice, seed=seed_of(seed))
    return [case for case in found if not own.unclaimed(case, case.call)]


def _everything(query: Any, key: Any, value: Any, **keywords: Any) -> Any:
    """Stand for a function that takes every keyword."""
    raise NotImplementedError  # pragma: no cover (only its signature is looked at)


def seed_of(seed: Seed) -> int:
    """Return a seed, drawn anew where it is "random"."""
    if seed == "random":
        return secrets.randbelow(10**6)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f'seed must be an integer or "random"; got {seed!r}')
    return seed


def backend_for(kind: str, device: str = "cpu") -> Backend:
    """Return the backend of a kind of kernel, "torch" or "numpy".

    Raises:
        ValueError: a device that is not there, or torch is not installed.
    """
    if kind == "torch":
        if find_spec("torch") is None:
            raise ValueError(
                'kind "torch" needs torch, which is not installed here; a function of arrays is '
                'asked with kind "numpy" (--kind numpy)'
            )
        from attncheck._torch_backend import TorchBackend

        return TorchBackend(device)
    return NumpyBackend(device)


def check(
    attention: Callable[..., Any] | Kernel, kind: str = "torch", *, device: str = "cpu",
    only: Iterable[str] = (), without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None, case: Iterable[str] = (), seed: Seed = 7,
    search: int = 0, name: str = "", progress: bool = False,
) -> Report:
    """Check an attention function against the definition, and return what was found.

    Args:
        attention: A function with the signature of torch's `scaled_dot_product_attention`, some of
            its keywords, and perhaps `causal_align` and `window`; or a `Kernel`. A keyword is
            passed only where a case needs it, query, key and value by place.
        kind: What the function takes and returns: "torch" for tensors, "numpy" for arrays.
        device: The device of the tensors, as torch names it.
        only: The topics to check; all of `TOPICS` where it is empty.
        without: The topics to leave out. A case that uses one of them is left out as well: a
            causal case of the topic gradients goes with "causal".
        dtypes: The dtypes to check in, of float16, bfloat16, float32 and float64. None checks the
            topic dtypes in all that are claimed, and everything else in float32, or in what is
            claimed.
        case: Ids of cases, to check these alone.
        seed: What the numbers are drawn from, beside the name of each case; "random" draws it, and
            the report tells it.
        search: How many calls to draw beyond the table; the first that fails is made smaller.
        name: What to call the function in the report, as MODULE:FUNCTION.
        progress: Whether to draw a bar on stderr.

    Returns:
        A report, with `report.passed`, `report.results`, and at most 40 lines where it is printed.

    Raises:
        TypeError: an attention that is not callable.
        ValueError: a kind, device, topic, dtype or case that is unknown; no case that is left.

    Source:
        The bounds for half precision are those of FlashAttention's tests (Dao et al. 2022), those
        for float32 and float64 follow Higham and Mary (2019).

    Example:
        A kernel that takes is_causal and does not look at it:

        >>> import numpy as np
        >>> def blind(query, key, value, is_causal=False):
        ...     scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        ...     weights = np.exp(scores - scores.max(-1, keepdims=True))
        ...     return weights / weights.sum(-1, keepdims=True) @ value
        >>> report = check(blind, "numpy", only=["causal"])
        >>> report.passed
        False
        >>> print(report.failed[0].case)
        causal: query (5, E), key (7, E), float32
    """
    kernel, backend = Kernel.of(attention), backend_for(kind, device)

    def asked(chosen: Sequence[Case]) -> list[Result]:
        each = followed(chosen) if progress else chosen
        found = [judge(own, kernel, backend) for own in each]
        if search:
            from attncheck._search import smaller

            found = [own if own.passed else smaller(own, kernel, backend) for own in found]
        return found

    choice: dict[str, Any] = {"only": only, "without": without, "dtypes": dtypes, "case": case}
    choice |= {"seed": seed_of(seed), "search": search}
    return _reported(kernel, backend, asked, kind, device, name, **choice)


def judged(
    path: str, kind: str = "torch", *, claims: Kernel | None = None, device: str = "cpu",
    only: Iterable[str] = (), without: Iterable[str] = (),
    dtypes: Sequence[str] | None = None, case: Iterable[str] = (), search: int = 0,
    limits: tuple[float, float] = (60.0, 1800.0), folder: str | Path = "", log: str | Path = "",
    progress: bool = False,
) -> Report:
    """Check a kernel that is not trusted, and return what was found.

    The kernel runs in a process of its own, which has the inputs of one call at a time and never
    the truth. The seed is secret until the report tells it. What passes is asked twice more, later
    and in another order, with the same numbers and with others, and must pass again. A crash, a
    hang or an exit is a failure of its case, and the judge goes on with the next one. The docstring
    of `attncheck._judged` says what this does not prevent. It needs Linux or macOS.

    Args:
        path: MODULE:FUNCTION, the kernel. Its module is imported in its own process alone.
        claims: What must be claimed, as a `Kernel` of the judge's own; its functions are never
            called, and stand for those of the kernel. None takes what the kernel claims itself.
        kind, device, only, without, dtypes, case, progress: What `check` takes.
        search: How many calls to draw beside the table, of shapes that nobody knows.
        limits: The seconds that a call may take, and all calls together.
        folder: Where the module is; the current folder if it is empty.
        log: A file for what the kernel prints, which otherwise goes nowhere.

    Raises:
        ValueError: what `check` refuses, and a path that is none. A module that cannot be imported
            is no error: all of its cases fail.
    """
    from attncheck._judged import Remote, thrice
    from attncheck._process import Process
    from attncheck._search import drawn_cases

    backend_for(kind, device)  # a device that is not there is no fault of the kernel
    inner = backend_for(kind)  # half precision is measured by the judge, on its own CPU
    seed = secrets.randbelow(10**12)
    choice: dict[str, Any] = {"only": only, "without": without, "dtypes": dtypes, "case": case}
    with Process(path, kind, device, limits, str(folder), str(log)) as process:
        remote = Remote(process, inner, kind)
        kernel = remote.kernel(claims)
        more = drawn_cases(kernel, kind, search, seed, dtypes) if search else []

        def asked(chosen: Sequence[Case]) -> list[Result]:
            unasked = {*kernel.not_claimed, *checked_topics("without", without)}
            remote.is_watched = "layouts" not in unasked
            return thrice([*chosen, *more], kernel, remote, progress)

        report = _reported(kernel, remote, asked, kind, device, path, **choice, seed=seed)
    return replace(report, asked=report.asked + len(more), about=f"{report.about}, judged")


def _reported(
    kernel: Kernel, backend: Backend, asked: Callable[[Sequence[Case]], list[Result]],
    kind: str, device: str, name: str, *, only: Iterable[str], without: Iterable[str],
    dtypes: Sequence[str] | None, case: Iterable[str], seed: int, search: int = 0,
) -> Report:
    """Choose the cases of a kernel, and return the report of what `asked` gives for them."""
    every = tabled(kernel, kind, only=only, without=without, dtypes=dtypes, seed=seed)
    missing = [d for d in dict.fromkeys(c.dtype for c in every) if d not in backend.dtypes()]
    if missing and dtypes is not None:
        raise ValueError(f"dtypes must be there: {', '.join(missing)} is not, {backend.missing}")
    chosen, reasons = _claimed(kernel, [c for c in every if c.dtype not in missing])
    if ids := ((case,) if isinstance(case, str) else tuple(case)):
        chosen = _named(chosen, ids, kernel, seed)
    if search:
        from attncheck._search import drawn_cases

        chosen = drawn_cases(kernel, kind, search, seed, dtypes)
    if not chosen:
        raise ValueError("no case is left: only, without and dtypes leave nothing to check")
    results = asked(chosen)
    reasons |= {dtype: backend.missing for dtype in missing}
    if not (ids or search):
        left_out = {own.topic for own in tabled(kernel, kind)} - {own.topic for own in every}
        reasons |= {topic: "left out" for topic in TOPICS if topic in left_out}
    own_name = getattr(kernel.function, "__name__", type(kernel.function).__name__)
    about = f"attncheck of {name or own_name}, {kind} on {device}"
    again = f"python -m attncheck {name or 'MODULE:FUNCTION'}"
    again += f" --kind {kind}" * (kind != "torch") + f" --device {device}" * (device != "cpu")
    claims = {"dtype": kernel.dtypes, "head dimensions": kernel.head_dims, "rank": kernel.axes}
    claimed = [what for what, said in claims.items() if said]
    return Report(results, reasons, len(every), about, again, seed, claimed)


def _claimed(kernel: Kernel, every: Sequence[Case]) -> tuple[list[Case], dict[str, str]]:
    """Return the cases that a kernel claims, and why the others are not asked."""
    chosen, why = [], {topic: Counter[str]() for topic in TOPICS}
    for case in every:
        reason = kernel.unclaimed(case, case.call)
        if reason:
            why[case.topic][reason] += 1
        else:
            chosen.append(case)
    there = {case.topic for case in chosen}
    reasons, rest = {}, Counter[str]()
    for topic, counts in why.items():
        if topic not in there and counts:
            reasons[topic] = counts.most_common(1)[0][0]
        else:
            rest += counts
    return chosen, reasons | {f"{n} cases of other topics": reason for reason, n in rest.items()}


def _named(chosen: Sequence[Case], ids: Sequence[str], kernel: Kernel, seed: int) -> list[Case]:
    """Return the cases with these ids; some may come from a search."""
    from attncheck._search import case_of

    by_id = {case.id: case for case in chosen}
    found = []
    for own in ids:
        case = by_id.get(own) or case_of(own, seed)
        if case is None:
            near = next((there for there in by_id if own.rsplit("-", 2)[0] in there), "")
            words = f"; there is {near!r}" if near else ""
            raise ValueError(f"case must be the id of a case that is claimed; got {own!r}{words}")
        found.append(case)
    return found


def expected_failures(file: str | Path) -> list[str]:
    """Return the ids of a file of expected failures: one a line, or a part of it, # for a reason.

    Raises:
        ValueError: a file that is not there.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"expected a file of ids, one a line; {file}: {error.strerror}") from error
    return [own for line in lines if (own := line.split("#")[0].strip())]


def tests(attention: Callable[..., Any] | Kernel, kind: str = "torch", **options: Any) -> Any:
    """Return a test for pytest, with one parameter for each case that a kernel claims.

    Args:
        attention: A function or a `Kernel`.
        kind: "torch" or "numpy".
        options: `device`, `only`, `without`, `dtypes` and `seed` of `check`, and `expected`, a
            file of failures that are expected: they are xfail, and strict.

    Example:
        In a file of tests:

            import attncheck
            from my_module import my_attention

            test_my_attention = attncheck.tests(my_attention)
    """
    from attncheck.pytest_plugin import test_of

    return test_of(attention, kind, **options)
