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
LADDER = ["numpy_tokenwise", "numpy_dense", "torch_dense"]


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


@pytest.mark.parametrize(
    "statement",
    [
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


@pytest.mark.parametrize(
    ("folder", "never"),
    [
        ("attnlib", {"attnbook", "attncheck", "benchmarks", "tools"}),
        ("oracle/attncheck", {"attnbook", "attnlib", "benchmarks", "tools"}),
        ("attnbook", {"benchmarks", "tools"}),
    ],
)
def test_packages_import_downwards_and_the_oracle_nothing_of_ours(
    folder: str, never: set[str]
) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not never & {name.partition(".")[0] for name in names}, path


def test_no_rung_takes_a_private_name_from_another() -> None:
    for form in attnlib._MODULES:
        folder = ROOT / "attnlib" / form
        for path in folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom):
                    other = (node.module or "").removeprefix("attnlib.").partition(".")[0]
                    names = [alias.name for alias in node.names if alias.name.startswith("_")]
                    assert not names or other == form or other not in attnlib._MODULES, path


def test_the_ladder() -> None:
    forms = attnlib.implementations()
    assert list(forms)[:3] == LADDER
    for name, function in forms.items():
        module = importlib.import_module(f"attnlib.{name}")
        assert function is module.scaled_dot_product_attention
        assert function.__doc__


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


def test_the_extra_triton_is_named_where_torch_is_there() -> None:
    pytest.importorskip("torch")
    errors = errors_without("triton")
    how = 'pip install "attnlib[triton]"'
    message = f"attnlib.triton_fused needs triton, which is not installed: {how}"
    assert errors.pop("attnlib.triton_fused") == ["triton", "ModuleNotFoundError", message]
    assert not any(package for package, _, _ in errors.values())


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


def test_the_extras_are_those_of_the_project() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for package, extra in attnlib._EXTRAS.items():
        assert any(requirement.startswith(package) for requirement in extras[extra])


def test_the_package_is_typed() -> None:
    assert (ROOT / "attnlib" / "py.typed").is_file()
