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


def test_colab_has_what_colab_publishes_but_for_torch() -> None:
    lines = rehearse.requirements("colab")
    assert {line.partition("==")[0] for line in lines} >= {"numpy", "matplotlib", "ipython"}
    pinned = rehearse.pins(PINNED)
    ours = [line for line in lines if line in (pinned["torch"], pinned["transformers"])]
    assert len(ours) == 2
    assert rehearse.requirements("numpy") == [line for line in lines if line not in ours]


def test_lowest_is_what_the_package_says() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = rehearse.requirements("lowest", torch_varies=True)
    held = {line.partition("==")[0] for line in lines}
    assert held >= {"numpy", "torch", "transformers", "matplotlib"}
    for line in lines:
        if not line.startswith("ipykernel=="):
            assert f'"{line.replace("==", ">=")}' in pyproject, line


def test_latest_is_not_pinned_but_for_torch() -> None:
    assert not any("=" in line for line in rehearse.requirements("latest", torch_varies=True))
    assert [line in PINNED for line in rehearse.requirements("latest")].count(True) == 1


@pytest.mark.parametrize(("name", "has"), [("colab", True), ("numpy", False), ("latest", True)])
def test_the_model_comes_with_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, has: bool
) -> None:
    steps: list[list[str]] = []

    def note(step: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        steps.append(step)
        (tmp_path / name).mkdir(exist_ok=True)
        return subprocess.CompletedProcess(step, 0)

    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setattr(rehearse.subprocess, "run", note)
    wanted = rehearse.requirements(name)
    rehearse.make_environment(name, wanted)
    model = [step for step in steps if str(rehearse.MODEL) in step]
    assert len(model) == has and all({"--no-deps", "--require-hashes"} <= set(m) for m in model)
    assert len(steps) == 2 + has
    rehearse.make_environment(name, wanted)  # a second time nothing is new
    assert len(steps) == (2 + has) + (1 + has if name == "latest" else 0)


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
