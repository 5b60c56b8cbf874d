"""The signatures can be read: by a type checker, by `help`, and in the source.

mypy reads this file too. It must find each call that is marked, because it also reports a mark
where it finds nothing wrong.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlib
from attnlib import numpy_blockwise, numpy_dense, torch_blockwise, torch_dense

MODULES = list(attnlib.implementations())
FUNCTIONS = ("scaled_dot_product_attention", "scaled_dot_product_attention_with_lse")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("module", MODULES)
def test_source_and_help_show_signature_and_docstring(module: str, name: str) -> None:
    function = getattr(importlib.import_module(f"attnlib.{module}"), name)
    source = inspect.getsource(function)
    assert f"def {name}(" in source
    parameters = inspect.signature(function).parameters
    assert "window" in parameters and all(f"{p}: " in source for p in parameters)
    documented = inspect.getdoc(function) or ""
    first, *_ = documented.splitlines()
    assert first in source and "Shapes:" in documented


def test_wrong_calls_are_found_before_they_run() -> None:
    x, t = np.ones((2, 2)), torch.ones(2, 2)
    with pytest.raises(TypeError, match="is_cuasal"):
        numpy_dense.scaled_dot_product_attention(x, x, x, is_cuasal=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="block_size must be an integer; got 'x'"):
        numpy_blockwise.scaled_dot_product_attention(x, x, x, block_size="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key"):
        torch_dense.scaled_dot_product_attention_with_lse(t)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="value"):
        torch_blockwise.scaled_dot_product_attention(t, t)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="block_sise"):
        torch_blockwise.scaled_dot_product_attention_with_lse(t, t, t, block_sise=1)  # type: ignore[call-arg]


def _private(node: Any) -> list[str]:
    """Return the private names of attnlib that an import statement takes."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return []
    return [n for n in names if n.startswith("attnlib.") and any(p[0] == "_" for p in n.split("."))]


@pytest.mark.parametrize("folder", ["attnbook", "benchmarks", "oracle/attncheck", "oracle/peers"])
def test_nobody_else_imports_what_is_private(folder: str) -> None:
    taken = {
        str(path): found
        for path in Path(folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (found := _private(node))
    }
    assert not taken
