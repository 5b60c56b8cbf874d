"""Check a built wheel and sdist, and try the wheel in a clean environment: `make dist`.

    python -m tools.release dist

The wheel has to hold the files of `attnlib` and `attnbook` in this tree and nothing else; the
sdist has to hold these, what builds them, and nothing else. The wheel is installed where there is
nothing but pip, and tried with NumPy alone, then with matplotlib.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

from tools.set_repository import ROOT

PACKAGES = ("attnlib", "attnbook")
SUFFIXES = {".py", ".typed", ".css", ".js"}
# What the sdist has beside the packages: what it is built from, and what setuptools writes into it.
BESIDE = {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}

WITH_NUMPY = """
import importlib.util, sys
import attnbook, attnlib
assert "site-packages" in attnlib.__file__, attnlib.__file__
assert importlib.util.find_spec("torch") is None
assert "numpy" not in sys.modules, "import attnlib, attnbook loads NumPy"
forms = attnlib.implementations()
assert list(forms) == ["numpy_tokenwise", "numpy_dense", "numpy_blockwise"], list(forms)
import numpy as np
query, key = np.zeros((1, 2)), np.array([[1.0, 0.0], [0.0, 1.0]])
for name, form in forms.items():
    assert form(query, key, np.array([[2.0], [4.0]])).tolist() == [[3.0]], name
"""
WITH_MATPLOTLIB = """
from attnbook import figures
alt = "Two bars, of heights 1 and 2."
still = figures.bars(["a", "b"], {"one": [1, 2]}, y_title="y", alt=alt)._repr_html_()
assert "<svg" in still and alt in still
moving = figures.scaling_explorer()._repr_html_()
assert "<svg" in moving and "<script" in moving and "<style" in moving
"""


class ReleaseError(Exception):
    """What was built is not what should be released."""


def package_files(root: Path = ROOT) -> set[str]:
    """Return the files of the packages in this tree, as `attnlib/…` and `attnbook/…`."""
    found = (path for package in PACKAGES for path in (root / package).rglob("*"))
    return {path.relative_to(root).as_posix() for path in found if path.suffix in SUFFIXES}


def check_wheel(wheel: Path, expected: set[str]) -> None:
    """Check that the wheel holds the expected files and metadata that indexes accept.

    Raises:
        ReleaseError: it does not.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(about)
    folder = about.removesuffix("METADATA")
    _same(wheel, expected, {name for name in names if not name.startswith(folder)})
    _accepted(wheel, metadata)
    if f"{folder}licenses/LICENSE" not in names:
        raise ReleaseError(f"{wheel.name}: the licence is not in it")


def check_sdist(sdist: Path, expected: set[str]) -> None:
    """Check that the sdist holds the expected files, what builds them, and nothing else.

    Raises:
        ReleaseError: it does not.
    """
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive if member.isfile()}
        (about,) = (
            name for name in archive.getnames() if name.count("/") == 1 and "PKG-INFO" in name
        )
        held = archive.extractfile(about)
        assert held is not None
        _accepted(sdist, held.read())
    _same(sdist, expected | BESIDE, {name for name in members if ".egg-info/" not in name})


def _same(file: Path, expected: set[str], found: set[str]) -> None:
    if missing := sorted(expected - found):
        raise ReleaseError(f"{file.name}: missing {', '.join(missing)}")
    if others := sorted(found - expected):
        raise ReleaseError(f"{file.name}: does not belong there: {', '.join(others)}")


def _accepted(file: Path, metadata: bytes) -> None:
    """Check the metadata by the rules by which an index would refuse it."""
    try:
        read = Metadata.from_email(metadata, validate=True)
    except ExceptionGroup as error:
        raise ReleaseError(f"{file.name}: {error.exceptions}") from None
    if read.description_content_type != "text/markdown" or not read.description:
        raise ReleaseError(f"{file.name}: the README is not its description")


def try_wheel(wheel: Path) -> None:
    """Install the wheel into an environment of its own and use it.

    Raises:
        ReleaseError: it cannot be installed or used.
    """
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        python = str(folder / "environment" / "bin" / "python")
        said = ["sh", str(ROOT / "tools" / "step.sh"), "installing the wheel"]
        pip = [*said, python, "-m", "pip", "--disable-pip-version-check", "install"]
        pins = ["--constraint", str(ROOT / "constraints.txt")]
        steps = [
            [sys.executable, "-m", "venv", str(folder / "environment")],
            [*pip, *pins, str(wheel.resolve())],
            [python, "-W", "error", "-c", WITH_NUMPY],
            [*pip, *pins, f"{wheel.resolve()}[figures]"],
            [python, "-W", "error", "-c", WITH_MATPLOTLIB],
        ]
        for step in steps:
            done = subprocess.run(step, cwd=folder, env=own, capture_output=True, text=True)
            if done.returncode:
                raise ReleaseError(f"{wheel.name} could not be tried:\n{done.stderr[-2000:]}")


def main(folder: Path) -> int:
    """Check and try what lies in the folder, say so, and return the exit status."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    try:
        check_wheel(wheel, package_files())
        check_sdist(sdist, package_files())
        try_wheel(wheel)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for file in (wheel, sdist):
        print(f"{file} ({file.stat().st_size / 1024:.0f} KiB): complete; ", end="")
        print("installed and tried" if file == wheel else "the wheel was built from it")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
