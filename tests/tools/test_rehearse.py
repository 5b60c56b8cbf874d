"""The rehearsal of the notebooks: what its environments hold, what it compares, what git gives it.

That a chapter runs in them is `make colab`'s own verdict; here stands what that verdict rests on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import notebooks, rehearse
from tools.set_repository import ROOT, repository_address

CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


def names(lines: list[str]) -> set[str]:
    return {line.partition("==")[0] for line in lines}


def test_colab_has_what_colab_publishes_but_for_torch() -> None:
    lines = rehearse.requirements("colab")
    assert {"numpy", "torch", "matplotlib", "ipykernel", "ipython"} <= names(lines)
    assert all("==" in line for line in lines)
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if line.startswith("torch==")) in pinned
    assert sum(line in pinned for line in lines) == 1, "no other pin is both ours and Colab's"


def test_without_torch_it_is_the_same() -> None:
    colab, numpy = (rehearse.requirements(name) for name in ("colab", "numpy"))
    assert [line for line in colab if not line.startswith("torch==")] == numpy


def test_lowest_is_what_the_package_says() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in rehearse.requirements("lowest", torch_varies=True):
        if not line.startswith("ipykernel=="):
            assert f'"{line.replace("==", ">=")}"' in pyproject, line


def test_latest_is_not_pinned() -> None:
    assert not any("=" in line for line in rehearse.requirements("latest", torch_varies=True))
    assert [line for line in rehearse.requirements("latest") if "=" in line] == [
        rehearse.pinned(ROOT / "requirements.txt", "torch")
    ]


@pytest.mark.parametrize("name", rehearse.NAMES)
def test_an_environment_holds_nothing_of_ours(name: str) -> None:
    assert not names(rehearse.requirements(name)) & {"attnlib", "triton", "nbclient", "pytest"}


def test_chapters_that_need_torch() -> None:
    found = [path.name[:2] for path in CHAPTERS if rehearse.needs_torch(notebooks.read(path))]
    assert found == ["09", "10", "11", "13", "14"]


def shown(*outputs: dict[str, Any], tags: tuple[str, ...] = ()) -> notebooks.Notebook:
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "id": "one",
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": list(outputs),
        "source": "x",
    }
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def result(**data: str) -> dict[str, Any]:
    kinds = {kind.replace("_", "/"): value for kind, value in data.items()}
    return {"output_type": "execute_result", "execution_count": 1, "data": kinds, "metadata": {}}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def drawing(label: str, x: float, word: str, style: str = "") -> dict[str, Any]:
    path = f'<path d="M {x} 0"/>'
    svg = f'<svg aria-label="{label}">{style}{path}<text x="{x}">{word}</text></svg>'
    return result(text_html=f"<figure>{svg}</figure>")


def plotted(label: str, x: float, word: str) -> dict[str, Any]:
    style = f'<defs><style type="text/css">{rehearse.MATPLOTLIB}</style></defs><text>{x}</text>'
    return drawing(label, x, word, style)


def test_how_matplotlib_signs() -> None:
    from attnbook import figures

    bars = figures.bars(["a"], {"one": [1]}, y_title="y", alt="One bar, of height one.")
    assert rehearse.MATPLOTLIB in bars.svg
    assert rehearse.MATPLOTLIB not in figures.attention_steps(3, 4, 2, 3).svg


def test_what_is_the_same() -> None:
    same = [
        (shown(result(text_plain="2")), shown(result(text_plain="2"))),
        (shown(printed("a\nb\n")), shown(printed("a\n"), printed("b\n"))),
        (shown(result(image_png="iVBO")), shown(result(image_png="another"))),
        (shown(plotted("two words", 1, "a")), shown(plotted("two words", 1.5, "a"))),
        (
            shown(printed("1.1 s"), tags=("nbval-ignore-output",)),
            shown(printed("2.3 s"), tags=("nbval-ignore-output",)),
        ),
    ]
    assert [rehearse.first_difference(*pair) for pair in same] == [None] * len(same)


@pytest.mark.parametrize(
    ("stored", "came", "said"),
    [
        (shown(result(text_plain="2")), shown(result(text_plain="3")), "+text/plain: 3"),
        (shown(result(text_plain="2")), shown(), "-text/plain: 2"),
        (shown(), shown(printed("warned")), "+name: stdout"),
        (shown(drawing("a", 1, "one")), shown(drawing("a", 1.5, "one")), "M 1.5 0"),
        (shown(plotted("a", 1, "one")), shown(plotted("b", 1, "one")), "<figure>b"),
        (shown(plotted("a", 1, "one")), shown(plotted("a", 1, "two")), "+two</figure>"),
    ],
)
def test_what_differs(stored: notebooks.Notebook, came: notebooks.Notebook, said: str) -> None:
    difference = rehearse.first_difference(stored, came)
    assert difference is not None
    assert difference.startswith("cell 1:") and said in difference


def test_git_takes_our_address_from_this_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    copy = rehearse.make_repository()
    variables = rehearse.surroundings(Path(sys.executable), copy)
    assert "PYTHONPATH" not in variables

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=tmp_path, env=variables, capture_output=True, check=True
        )
        return done.stdout.decode()

    here = git("-C", str(copy), "rev-parse", "HEAD").strip()
    assert here in git("ls-remote", repository_address())
    held = git("-C", str(copy), "ls-files").splitlines()
    assert {"attnlib/__init__.py", "pyproject.toml", "chapters/01_lookup.ipynb"} <= set(held)
    assert not [name for name in held if name.startswith(("_build/", ".venv/", "node_modules/"))]


def test_a_failed_chapter_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(stage: rehearse.Stage, chapter: Path) -> None:
        raise rehearse.RehearsalError("cell 7: it does not")

    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setattr(rehearse, "make_environment", lambda name, wanted: Path(sys.executable))
    monkeypatch.setattr(rehearse.Stage, "leave_out", lambda stage, *packages: None)
    monkeypatch.setattr(rehearse.Stage, "rehearse", fail)
    assert rehearse.main(["--environment", "latest", str(CHAPTERS[0])]) == 1
    said = capsys.readouterr()
    assert "FAILED\ncell 7: it does not" in said.out
    assert said.err == "Failed: latest, 01_lookup.ipynb\n"
    monkeypatch.setattr(rehearse.Stage, "rehearse", lambda stage, chapter: None)
    assert rehearse.main(["--environment", "latest", str(CHAPTERS[0])]) == 0


def test_an_environment_that_cannot_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str, wanted: list[str]) -> Path:
        raise rehearse.RehearsalError("pip could not install them")

    monkeypatch.setattr(rehearse, "CACHE", tmp_path)
    monkeypatch.setattr(rehearse, "make_environment", fail)
    assert rehearse.main(["--environment", "colab"]) == 1
    assert capsys.readouterr().err == "Failed: colab, its environment\n"
