"""What `import attnlib` brings with it, and what it lists."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attnlib

ROOT = Path(attnlib.__path__[0]).parent


def loaded_after(statement: str) -> set[str]:
    """Return the top-level packages that a fresh Python has loaded after this statement."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{statement}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_numpy_alone_is_loaded() -> None:
    loaded = loaded_after("import attnlib.masks, attnlib.numpy_dense, attnbook.experiments")
    assert "attnlib" in loaded
    assert not loaded & {"torch", "matplotlib", "triton", "scipy", "ml_dtypes", "pandas"}


def test_attnbook_by_itself_loads_nothing_else() -> None:
    assert not loaded_after("import attnbook") & {"numpy", "matplotlib", "torch", "attnlib"}


def imported(path: Path) -> set[str]:
    """Return the names that a file imports, each with its module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("folder", "never"),
    [
        ("attnlib", {"attnbook", "attncheck", "benchmarks", "tools"}),
        ("oracle/attncheck", {"attnbook", "attnlib", "benchmarks", "tools"}),
        ("attnbook", {"benchmarks", "tools"}),
        ("benchmarks", set()),
        ("oracle/peers", set()),
    ],
)
def test_packages_import_downwards_and_nobody_what_is_private_in_attnlib(
    folder: str, never: set[str]
) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for name in imported(path):
            parts = name.split(".")
            assert parts[0] not in never, path
            is_private = parts[0] == "attnlib" and any(part.startswith("_") for part in parts)
            assert folder == "attnlib" or not is_private, path


def test_no_rung_takes_a_private_name_from_another() -> None:
    for form in attnlib._MODULES:
        folder = ROOT / "attnlib" / form
        for path in folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
            for name in imported(path):
                package, other, *rest = *name.split("."), "", ""
                if package == "attnlib" and other in attnlib._MODULES:
                    assert other == form or not rest[0].startswith("_"), path


def test_one_whose_package_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attnlib._MODULES, "numpy_dense", ("numpy", "a_package_that_is_not_there"))
    assert "numpy_dense" not in attnlib.implementations()
    assert "numpy_tokenwise" in attnlib.implementations()


# In a fresh Python: each module is imported, and the error, if there is one, is written down.
WITHOUT = """
import importlib, sys
sys.path.insert(0, {root!r})
sys.modules.update(dict.fromkeys({missing!r}))
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name, type(error.__cause__).__name__, error, sep="|")
    else:
        print(name, "", "", "", sep="|")
"""
MODULES = sorted(
    f"attnlib.{path.stem}"
    for path in (ROOT / "attnlib").glob("[!_]*")
    if path.suffix == ".py" or (path / "__init__.py").exists()
)


def errors_without(*missing: str) -> dict[str, list[str]]:
    """Return for each module the name, the cause and the words of its import error, if any."""
    names = [*MODULES, "attnbook.examples", "attnbook.experiments", "attnbook.figures"]
    code = WITHOUT.format(root=str(ROOT), missing=missing, names=names)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return {name: rest for name, *rest in (line.split("|") for line in done.stdout.splitlines())}


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    errors = errors_without("torch", "triton", "matplotlib")
    lacking = {name for name, (package, _, _) in errors.items() if package}
    assert lacking == {"attnbook.figures"} | {
        name for name in MODULES if name.startswith(("attnlib.torch_", "attnlib.triton_"))
    }
    for name in lacking:
        package, extra = ("matplotlib", "figures") if "figures" in name else ("torch", "torch")
        message = f'{name} needs {package}, which is not installed: pip install "attnlib[{extra}]"'
        assert errors[name] == [package, "ModuleNotFoundError", message]


def test_triton_is_needed_for_its_form_alone() -> None:
    errors = errors_without("triton")
    assert {name: error[0] for name, error in errors.items() if error[0]} == {
        "attnlib.triton_fused": "triton"
    }


def test_a_package_that_is_broken_shows_its_own_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for line, error in [
        ("import what_it_needs_itself", ModuleNotFoundError),
        ("from math import no_such_function", ImportError),
    ]:
        (tmp_path / "broken_package.py").write_text(line)
        importlib.invalidate_caches()
        with pytest.raises(error, match=r"what_it_needs_itself|no_such_function") as caught:
            attnlib.needs("attnlib.torch_dense", "broken_package")
        assert "which is not installed" not in str(caught.value)


def test_the_extras_are_those_of_the_project_and_the_package_is_typed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for package, extra in attnlib._EXTRAS.items():
        assert any(requirement.startswith(package) for requirement in extras[extra])
    assert (ROOT / "attnlib" / "py.typed").is_file()
