"""What a release holds, and the requirements without pins."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import latest, release
from tools.set_repository import ROOT

EXPECTED = {"attnlib/__init__.py", "attnlib/py.typed", "attnbook/figures/moving.css"}
METADATA = """\
Metadata-Version: 2.4
Name: attnlib
Version: 0.1.0
Description-Content-Type: text/markdown

# Attention
"""


def wheel(folder: Path, files: set[str], metadata: str = METADATA, licence: bool = True) -> Path:
    path = folder / "attnlib-0.1.0-py3-none-any.whl"
    about = "attnlib-0.1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name in files | ({f"{about}/licenses/LICENSE"} if licence else set()):
            archive.writestr(name, "")
        archive.writestr(f"{about}/METADATA", metadata)
    return path


def sdist(folder: Path, files: set[str], metadata: str = METADATA) -> Path:
    path = folder / "attnlib-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in files | {"attnlib.egg-info/PKG-INFO"}:
            held = metadata.encode() if name == "PKG-INFO" else b""
            member = tarfile.TarInfo(f"attnlib-0.1.0/{name}")
            member.size = len(held)
            archive.addfile(member, io.BytesIO(held))
    return path


def test_the_packages_have_more_than_their_modules() -> None:
    files = release.package_files()
    assert {
        "attnlib/py.typed",
        "attnbook/figures/moving.css",
        "attnbook/figures/moving.js",
    } <= files
    found = {
        path.relative_to(ROOT).as_posix()
        for package in release.PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert files == found, "a new kind of file belongs to SUFFIXES and to package-data"


def test_a_whole_release_is_accepted(tmp_path: Path) -> None:
    release.check_wheel(wheel(tmp_path, EXPECTED), EXPECTED)
    release.check_sdist(sdist(tmp_path, EXPECTED | release.BESIDE), EXPECTED)


@pytest.mark.parametrize(
    ("files", "metadata", "licence", "said"),
    [
        (EXPECTED - {"attnlib/py.typed"}, METADATA, True, "missing attnlib/py.typed"),
        (EXPECTED | {"tests/test_a.py"}, METADATA, True, "not belong there: tests/test_a.py"),
        (EXPECTED | {"attnlib/notes.txt"}, METADATA, True, "not belong there: attnlib/notes.txt"),
        (EXPECTED, METADATA, False, "the licence is not in it"),
        (EXPECTED, METADATA.replace("Version: 0.1.0", "Version: one"), True, "version"),
        (EXPECTED, METADATA.replace("markdown", "plain"), True, "the README is not"),
    ],
)
def test_a_wheel_is_refused(
    tmp_path: Path, files: set[str], metadata: str, licence: bool, said: str
) -> None:
    with pytest.raises(release.ReleaseError, match=said):
        release.check_wheel(wheel(tmp_path, files, metadata, licence), EXPECTED)


@pytest.mark.parametrize(
    ("files", "metadata", "said"),
    [
        (EXPECTED | (release.BESIDE - {"README.md"}), METADATA, "missing README.md"),
        (EXPECTED | release.BESIDE | {"tests/a.py"}, METADATA, "not belong there: tests/a.py"),
        (EXPECTED | release.BESIDE, METADATA.replace("# Attention\n", ""), "the README is not"),
    ],
)
def test_an_sdist_is_refused(tmp_path: Path, files: set[str], metadata: str, said: str) -> None:
    with pytest.raises(release.ReleaseError, match=said):
        release.check_sdist(sdist(tmp_path, files, metadata), EXPECTED)


# -- the newest versions --------------------------------------------------------------------------


def test_only_what_the_notebooks_run_on_loses_its_pin() -> None:
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    free = latest.unpinned(pinned)
    assert "constraints.txt" in pinned and "\n-c " not in f"\n{free}"
    names = free.split()
    assert {"numpy", "torch", "matplotlib", "nbval", "pytest"} <= set(names)
    for line in pinned.splitlines():
        if line.startswith(("sphinx", "jupyter-book", "ruff", "mypy", "setuptools")):
            assert line in free.splitlines()
    assert 'triton; sys_platform == "linux"' in free


def test_a_section_that_is_gone_is_noticed() -> None:
    with pytest.raises(ValueError, match="expected pins under"):
        latest.unpinned("# numerics\nnumpy==1.0\n")
