"""What `import attnlib` brings with it, and what it lists."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attnlib

ROOT = Path(attnlib.__path__[0]).parent
LADDER = ["numpy_tokenwise", "numpy_dense", "torch_dense"]


def loaded_after(statement: str) -> set[str]:
    """Give the top-level packages that a fresh Python has loaded after this statement."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{statement}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import attnlib",
        "from attnlib.numpy_dense import scaled_dot_product_attention",
        "import attnlib.masks, attnlib.numpy_dense, attnlib.numpy_tokenwise",
        "import attnlib, attnbook.examples, attnbook.experiments",
    ],
)
def test_numpy_alone_is_loaded(statement: str) -> None:
    loaded = loaded_after(statement)
    assert "attnlib" in loaded
    assert not loaded & {"torch", "matplotlib", "triton", "scipy", "ml_dtypes", "pandas"}


def test_attnbook_by_itself_loads_nothing_else() -> None:
    assert not loaded_after("import attnbook") & {"numpy", "matplotlib", "torch", "attnlib"}


def test_attnlib_never_imports_attnbook() -> None:
    for path in (ROOT / "attnlib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] == "attnbook" for name in names), path


def test_the_ladder() -> None:
    forms = attnlib.implementations()
    assert list(forms)[:3] == LADDER
    for name, function in forms.items():
        module = importlib.import_module(f"attnlib.{name}")
        assert function is module.scaled_dot_product_attention
        assert function.__doc__


def test_a_rung_whose_package_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attnlib._RUNGS, "numpy_dense", ("numpy", "a_package_that_is_not_there"))
    assert "numpy_dense" not in attnlib.implementations()
    assert "numpy_tokenwise" in attnlib.implementations()


def test_the_ladder_cannot_be_changed_from_outside() -> None:
    forms: dict[str, Any] = attnlib.implementations()
    forms.clear()
    assert list(attnlib.implementations())[:3] == LADDER


def test_the_version() -> None:
    assert attnlib.__version__ == "0.1.0"


def test_the_package_is_typed() -> None:
    assert (ROOT / "attnlib" / "py.typed").is_file()
