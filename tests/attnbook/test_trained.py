"""Where chapter 19 finds its model, and that only a lack of the model skips the chapter."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnbook import trained
from tools import ROOT

INSTALLED = importlib.util.find_spec(trained.PACKAGE) is not None
CHAPTER = "chapters/19_real_model.ipynb"


def name() -> str:
    return trained.minilm()["pretrained_model_name_or_path"]


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, trained.PACKAGE, None)


@pytest.mark.skipif(not INSTALLED, reason=f"{trained.PACKAGE} is not installed")
def test_the_package_has_the_weights_that_are_named() -> None:
    weights = Path(name()) / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == trained.WEIGHTS_SHA256
    assert trained.missing() == ""


def test_the_hub_is_asked_where_there_is_no_package(no_package: None) -> None:
    assert trained.minilm() == {
        "pretrained_model_name_or_path": "sentence-transformers/all-MiniLM-L6-v2",
        "revision": trained.REVISION,
    }


def test_a_package_without_weights_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / trained.PACKAGE).mkdir()
    (tmp_path / trained.PACKAGE / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, trained.PACKAGE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert name() == trained.HUB


def test_missing_says_why_or_nothing(no_package: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(*args: object, **kwargs: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    assert re.fullmatch(r"gt_.* is not installed .*fetched: OSError", trained.missing())
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: "config.json")
    assert trained.missing() == ""


def test_partners_share_no_word_that_says_what_they_are_about() -> None:
    small = {"a", "i", "in", "my", "the", "was"}
    for pair in trained.PAIRS:
        one, other = (set(re.findall(r"\w+", sentence.lower())) for sentence in pair)
        assert one & other <= small, pair


def test_each_schema_has_it_and_two_nouns_with_an_ending() -> None:
    for start, *answers in trained.SCHEMAS:
        nouns, endings = zip(*map(str.split, answers), strict=True)
        words = re.findall(r"\w+", start.lower())
        assert words.count("it") == 1 and all(words.count(noun) == 1 for noun in nouns)
        assert len(set(endings)) == 2 and not set(endings) & set(words)


def run_cells(tmp_path: Path, *options: str) -> str:
    """Run the first two cells of the chapter in a pytest of their own, without a hub."""
    cells = [f"{CHAPTER}::Cell {n}" for n in (0, 1)]
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", *cells]
    variables = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    command += ["-n", "0", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_chapter_is_skipped_without_the_model_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "no_model.py").write_text(f"import sys\nsys.modules[{trained.PACKAGE!r}] = None\n")
    said = run_cells(tmp_path, "-p", "no_model")
    assert "2 skipped" in said and "passed" not in said
    assert f"{trained.PACKAGE} is not installed (tools/model.txt)" in said


@pytest.mark.skipif(not INSTALLED, reason=f"{trained.PACKAGE} is not installed")
def test_the_chapter_is_not_skipped_where_the_package_is(tmp_path: Path) -> None:
    said = run_cells(tmp_path)
    assert "2 passed" in said and "skipped" not in said
