"""The rehearsal of the notebooks: what its environments hold, and what git gives them.

That a chapter runs in them is `make colab`'s own verdict.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import ROOT, notebooks, rehearse

PINNED = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()


def test_each_environment_has_the_versions_that_it_is_named_for() -> None:
    pinned = rehearse.pins(PINNED)
    colab, latest = rehearse.requirements("colab"), rehearse.requirements("latest")
    assert {line.partition("==")[0] for line in colab} >= {"numpy", "matplotlib", "ipython"}
    ours = {pinned["torch"], pinned["transformers"]}
    assert [line for line in colab if line not in ours] == rehearse.requirements("numpy")
    assert len(colab) == len(rehearse.requirements("numpy")) + 2
    assert [line for line in latest if "=" in line] == [pinned["torch"]]
    assert not any("=" in line for line in rehearse.requirements("latest", torch_varies=True))
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = rehearse.requirements("lowest", torch_varies=True)
    assert len(lowest) >= 5 and pinned["ipykernel"] in lowest
    lowest.remove(pinned["ipykernel"])
    assert all(f'"{line.replace("==", ">=")}' in pyproject for line in lowest)


def test_chapters_that_need_torch() -> None:
    chapters = {path.name[:2]: path for path in (ROOT / "chapters").glob("*.ipynb")}
    some = ("01", "05", "10", "14", "18", "19")
    needs = [number for number in some if rehearse.needs_torch(notebooks.read(chapters[number]))]
    assert needs == ["10", "14", "18", "19"]


def test_git_takes_our_address_from_this_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    variables = rehearse.surroundings(Path(sys.executable), rehearse.make_repository())
    assert "PYTHONPATH" not in variables
    clone = ["git", "clone", "--quiet", notebooks.REPOSITORY, str(tmp_path / "clone")]
    subprocess.run(clone, env=variables, check=True)
    held = {path.name for path in (tmp_path / "clone").iterdir()}
    assert {"attnlib", "pyproject.toml", "chapters"} <= held
    assert not held & {"_build", ".venv"}


def test_a_failed_chapter_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setattr(rehearse, "make_environment", lambda name, wanted: Path(sys.executable))
    monkeypatch.setattr(rehearse, "make_repository", lambda: tmp_path)
    monkeypatch.setattr(rehearse, "installed", lambda python, variables: {"numpy": "1"})
    monkeypatch.setattr(rehearse, "rehearse", lambda *given: "cell 7: it does not")
    chapter = str(ROOT / "chapters" / "01_lookup.ipynb")
    assert rehearse.main(["--environment", "latest", chapter]) == 1
    said = capsys.readouterr()
    assert "numpy 1, torch none" in said.out and "FAILED\ncell 7: it does not" in said.out
    assert said.err == "Failed: latest, 01_lookup.ipynb\n"
    assert rehearse.main(["--environment", "colab", chapter]) == 1
    failed = "colab, 01_lookup.ipynb; colab, 01_lookup.ipynb, class"
    assert capsys.readouterr().err == f"Failed: {failed}\n"
