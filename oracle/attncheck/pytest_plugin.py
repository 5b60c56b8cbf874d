"""A plugin of pytest: `pytest --attention my_module:my_attention`, one test for each case.

It comes with the package as the entry point `pytest11`, and does nothing without its option. Ids
are those of the cases, `masks[a-boolean-mask-5-7-True-takes-part-float32-d13]`, and each topic is a
marker, so that -k, -m, --lf and pytest-xdist choose among them.
"""

from __future__ import annotations

from typing import Any

import pytest

from attncheck import TOPICS, Backend, Case, Kernel, backend_for, cases, expected_failures, judge

OPTIONS = ("device", "only", "without", "dtypes", "seed", "expected")


def marker(topic: str) -> str:
    """Return the marker of a topic.

    >>> marker("mask gradients")
    'attention_mask_gradients'
    """
    return "attention_" + topic.replace(" ", "_").replace("-", "_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("attention", "attention kernels, by attncheck")
    group.addoption("--attention", metavar="MODULE:FUNCTION", help="the kernel to check")
    group.addoption("--attention-kind", default="torch", choices=("torch", "numpy"))
    group.addoption("--attention-device", default="cpu", help="the device of the tensors")
    group.addoption("--attention-expected", metavar="FILE", help="ids that are expected to fail")
    group.addoption("--attention-seed", default="7", help='an integer, or "random"')


def pytest_configure(config: pytest.Config) -> None:
    """Register a marker for each topic; with a kernel and no files, ask the kernel alone."""
    for topic, words in TOPICS.items():
        config.addinivalue_line("markers", f"{marker(topic)}: {words}")
    if config.getoption("--attention") and config.args_source is not config.ArgsSource.ARGS:
        config.args = []


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is checked, and the seed of its numbers."""
    path = config.getoption("--attention")
    return [f"attention: {path}, seed {_seed(config)}"] if path else []


def _seed(config: pytest.Config) -> int:
    """Return the seed, drawn once for all processes of a run."""
    from attncheck import seed_of

    said = getattr(config, "workerinput", {}).get("attention_seed")
    if said is None and not hasattr(config, "_attention_seed"):
        own = config.getoption("--attention-seed")
        config._attention_seed = seed_of(own if own == "random" else int(own))  # type: ignore[attr-defined]
    return int(said if said is not None else config._attention_seed)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist the seed."""
    node.workerinput["attention_seed"] = _seed(node.config)


class Asked(pytest.Item):
    """The test of one case."""

    def __init__(self, *, case: Case, kernel: Kernel, backend: Backend, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.kernel, self.backend = case, kernel, backend

    def runtest(self) -> None:
        """Ask the case."""
        _require(self.case, self.kernel, self.backend)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Say what was wrong, without a traceback."""
        if excinfo.errisinstance(AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        """Say where a test is from: from the oracle, and its case."""
        return "attncheck", None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each case that the kernel claims, before -k and the like choose."""
    from attncheck.__main__ import found
    from attncheck.adapters import ready

    path = config.getoption("--attention")
    if not path:
        return
    kind, device, expected = (
        config.getoption(f"--attention-{name}") for name in ("kind", "device", "expected")
    )
    try:
        ready(path, device)
        asked = found(path, device)
        if hasattr(asked, "check"):
            words = "expected attention by the definition; got a kernel beside a reference that is"
            raise ValueError(f"{words} asked itself: python -m attncheck {path}")
        kernel = Kernel.of(asked)
        backend, chosen = _chosen(kernel, kind, device, expected, seed=_seed(config))
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    for case, marks in chosen:
        own = f"{path}::{case.id}"  # parsed, so that --lf finds it again
        given = {"case": case, "kernel": kernel, "backend": backend}
        item = Asked.from_parent(session, name=case.id, nodeid=own, **given)
        for mark in marks:
            item.add_marker(mark)
        items.append(item)


def _chosen(
    kernel: Kernel, kind: str, device: str = "cpu", expected: str | None = None, **options: Any
) -> tuple[Backend, list[tuple[Case, list[Any]]]]:
    """Return the backend, and the cases that are asked, each with its marks."""
    backend, ids = backend_for(kind, device), expected_failures(expected) if expected else []
    xfail, chosen = pytest.mark.xfail(strict=True, reason="an expected failure"), []
    there = backend.dtypes()
    for case in (c for c in cases(kind, kernel=kernel, **options) if c.dtype in there):
        is_expected = any(part in case.id for part in ids)
        chosen.append((case, [getattr(pytest.mark, marker(case.topic)), *[xfail] * is_expected]))
    return backend, chosen


def _require(case: Case, kernel: Kernel, backend: Backend) -> None:
    result = judge(case, kernel, backend)
    if not result.passed:
        raise AssertionError(f"{result}\nseed {case.seed}")


def test_of(attention: Any, kind: str = "torch", **options: Any) -> Any:
    """Return a test with one parameter for each case; `attncheck.tests` is this."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(f"options must be some of {', '.join(OPTIONS)}; got {unknown[0]!r}")
    kernel = Kernel.of(attention)
    backend, chosen = _chosen(kernel, kind, **options)

    @pytest.mark.parametrize("case", [pytest.param(c, id=c.id, marks=m) for c, m in chosen])
    def test(case: Case) -> None:
        _require(case, kernel, backend)

    return test


test_of.__test__ = False  # type: ignore[attr-defined]
