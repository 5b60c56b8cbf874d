"""Count what takes long on every machine alike: steps of training, and calls of three kinds.

This runs in the tests' own processes and, as text, in the kernel of each notebook (`costs.py`). It
imports none of what it counts in: that would take longer than many a notebook.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

counts: Counter[str] = Counter()


def of_calls(what: str, class_of: Callable[[Any], type], method: str) -> Callable[[Any], None]:
    """Return what makes a module count the calls of a method."""

    def in_module(module: Any) -> None:
        called = getattr(class_of(module), method)

        @functools.wraps(called)
        def counting(*arguments: Any, **named: Any) -> Any:
            counts[what] += 1
            return called(*arguments, **named)

        setattr(class_of(module), method, counting)

    return in_module


def of_steps(module: Any) -> None:
    """Count the steps of every optimizer of torch."""
    module.register_optimizer_step_post_hook(lambda *_: counts.update(["training"]))


MODULES: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": of_steps,
    "attncheck._claims": of_calls("oracle", lambda module: module.Kernel, "called"),
    "playwright.sync_api._generated": of_calls("browser", lambda module: module.Page, "goto"),
    "triton.runtime.interpreter": of_calls(
        "triton", lambda module: module.GridExecutor, "__call__"
    ),
}


class Watch:
    """Has a module count as soon as somebody imports it."""

    counts = counts

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        count = MODULES.pop(name, None)
        spec = importlib.util.find_spec(name) if count else None
        if spec is None or spec.loader is None or count is None:
            return None
        run = spec.loader.exec_module

        def run_and_count(module: Any) -> None:
            run(module)
            count(module)

        spec.loader.exec_module = run_and_count  # type: ignore[method-assign]
        return spec


def begin() -> None:
    """Count from now on, also in what is imported already."""
    for name in MODULES.keys() & sys.modules.keys():
        MODULES.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, Watch)  # type: ignore[arg-type]
