"""The signatures can be read: by a type checker, by `help`, and in the source.

mypy reads this file too. It must find each call that is marked, because it also reports a mark
where it finds nothing wrong.
"""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
import torch

import attnlib
from attnlib import numpy_blockwise, numpy_dense, torch_blockwise, torch_dense


@pytest.mark.parametrize("end", ["", "_with_lse"])
@pytest.mark.parametrize("module", attnlib.implementations())
def test_source_and_help_show_the_signature_of_torch_and_the_docstring(
    module: str, end: str
) -> None:
    name = f"scaled_dot_product_attention{end}"
    function = getattr(importlib.import_module(f"attnlib.{module}"), name)
    parameters, source = inspect.signature(function).parameters, inspect.getsource(function)
    assert f"def {name}(" in source and all(f"{p}: " in source for p in parameters)
    assert list(parameters)[:10] == [
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
        "causal_align", "window",
    ]
    assert [p.default for p in parameters.values()][3:8] == [None, 0.0, False, None, False]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[6:])
    said = inspect.getdoc(function) or ""
    assert said.startswith("Return ") and said.splitlines()[0] in source and "\nShapes:\n" in said
    if not end:
        sections = [f"\n{section}:\n" for section in ("Args", "Raises", "Source", "Example")]
        assert [said.count(section) for section in sections] == [1, 1, 1, 1]
        assert said.index("Example:") > said.index("Raises:")


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
