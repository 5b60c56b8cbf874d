"""`make lighthouse`: which run counts, what is stored, what is said where something is missing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import page_scores
from tools.page_scores import SCORES, TARGETS

GOOD = dict.fromkeys(SCORES, 100)


def run(performance: int = 100, **values: Any) -> dict[str, Any]:
    """Return what Lighthouse found in one run."""
    found = {"first_paint_ms": 900, "transfer_bytes": 90_000, "lighthouse": "12", "browser": "1"}
    return GOOD | found | {"performance": performance} | values


@pytest.mark.parametrize(
    ("performances", "form", "counted", "n_runs"),
    [
        ([90], "mobile", 90, 1),
        ([89, 95, 70], "mobile", 89, 3),
        ([60, 95, 93], "mobile", 93, 3),
        ([94, 100, 96], "desktop", 96, 3),
        ([95], "desktop", 95, 1),
    ],
)
def test_which_run_counts(performances: list[int], form: str, counted: int, n_runs: int) -> None:
    left: Iterator[int] = iter(performances)
    found = page_scores.measured(lambda: run(next(left)), form)
    assert (found["performance"], found["runs"]) == (counted, n_runs)
    assert next(left, None) is None


def test_every_score_has_a_target() -> None:
    for form in page_scores.FORMS:
        assert set(TARGETS[form]) == set(SCORES)
        for name in SCORES:
            assert page_scores.below(run(**{name: TARGETS[form][name] - 1}), form) == [name]
            assert page_scores.below(run(**{name: TARGETS[form][name]}), form) == []


def test_the_summary_has_the_worst_and_the_median() -> None:
    rows = [
        run(performance, first_paint_ms=paint) | {"form": "mobile"}
        for performance, paint in ((90, 1000), (99, 1900), (95, 1200))
    ]
    found = page_scores.summary(rows)
    assert list(found) == ["mobile"]
    assert found["mobile"]["performance"] == {"worst": 90, "median": 95}
    assert found["mobile"]["first_paint_ms"] == {"worst": 1900, "median": 1200}


def test_pages_are_all_but_that_of_missing_addresses(tmp_path: Path) -> None:
    for name in ("404.html", "index.html", "chapters/01.html", "a.html", "_static/x.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert page_scores.pages(tmp_path) == ["index.html", "a.html", "chapters/01.html"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place in which everything seems to be installed, with a result of its own."""
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").touch()
    (tmp_path / "node_modules" / "lighthouse").mkdir(parents=True)
    monkeypatch.setattr(page_scores, "BOOK", tmp_path / "html")
    monkeypatch.setattr(page_scores, "TOOL", tmp_path)
    monkeypatch.setattr(page_scores, "ROOT", tmp_path)
    monkeypatch.setattr(page_scores, "RESULT", tmp_path / "lighthouse.json")
    monkeypatch.setattr(page_scores.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.delenv("CHROME_PATH", raising=False)
    return tmp_path


@pytest.mark.parametrize("missing", ["the book", "Lighthouse", "Node", "Chromium"])
def test_what_is_missing_is_said_in_one_line(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    assert page_scores.missing() is None
    if missing == "the book":
        (installed / "html" / "index.html").unlink()
    elif missing == "Lighthouse":
        (installed / "node_modules" / "lighthouse").rmdir()
    else:
        kept = "chromium" if missing == "Node" else "node"
        monkeypatch.setattr(page_scores.shutil, "which", lambda program: program == kept or None)
    assert page_scores.main([]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Cannot measure: ") and missing in said and said.count("\n") == 1
    assert not (installed / "lighthouse.json").exists()


@pytest.mark.parametrize(("performance", "status"), [(90, 0), (89, 1)])
def test_all_pages_are_stored_and_a_miss_is_said(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    performance: int,
    status: int,
) -> None:
    rows = [
        {"page": "index.html", "form": form} | run(score) | {"runs": 1}
        for form, score in (("desktop", 100), ("mobile", performance))
    ]
    monkeypatch.setattr(page_scores, "measure_all", lambda names: rows)
    assert page_scores.main(["index.html"]) == status
    assert not page_scores.RESULT.exists()  # a run over some pages is not the result
    assert page_scores.main([]) == status
    stored = json.loads(page_scores.RESULT.read_text())
    assert stored["summary"]["mobile"]["performance"]["worst"] == performance
    assert stored["machine"]["Lighthouse"] == "12" and "lighthouse" not in stored["rows"][0]
    said = capsys.readouterr()
    assert ("Below its target, mobile, index.html: performance" in said.err) == bool(status)


def test_a_page_that_cannot_be_measured_is_an_error() -> None:
    lighthouse = page_scores.Lighthouse.__new__(page_scores.Lighthouse)
    answers = io.StringIO(json.dumps(run(error="no paint")) + "\n")
    process: Any = SimpleNamespace(stdin=io.StringIO(), stdout=answers)
    lighthouse.process = process
    for said in ("could not measure", "ended while"):
        with pytest.raises(RuntimeError, match=said):
            lighthouse("http://127.0.0.1/", "mobile")


# -- what is stored -------------------------------------------------------------------------------
