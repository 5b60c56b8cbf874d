"""What `make peers` rests on: isolation, verdicts, tables, and the programs on its page."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlib import numpy_tokenwise
from attnlib.numpy_dense import scaled_dot_product_attention as right
from peers import programs, tables
from peers.__main__ import FAMILIES
from peers.adapter import Adapter, claim
from peers.asking import HOUSE, answers, lines
from peers.verdict import FAILED, NOT_CLAIMED, PASSED, POLICY, Verdict, questions, verdict

ALL = questions()
PROGRAMS = sorted(programs.FOLDER.glob("*/*.py"))
FAMILY = """
import os, time
from attncheck import TOPICS
from attnlib.numpy_dense import scaled_dot_product_attention
from peers.adapter import Adapter

def attention(query, key, value):
    lengths = query.shape[-2], key.shape[-2]
    if lengths == (131, 149): time.sleep(1000)
    if lengths == (17, 7): os.kill(os.getpid(), 9)
    return scaled_dot_product_attention(query, key, value)

without = dict.fromkeys({*TOPICS} - {"values"}, "made up")
ADAPTERS = [Adapter("made up", ("numpy",), "nowhere", attention, "numpy", without)]
"""


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("exit 0", ""),
        ("exit 3", "the process ended with exit status 3"),
        ("kill -9 $$", "the process ended with SIGKILL"),
    ],
)
def test_a_worker_s_end_is_told(code: str, ended: str) -> None:
    found = list(lines(["sh", "-c", f"echo '{{\"asking\": 5}}'; {code}"], limit=100.0))
    assert found == [{"asking": 5}, {"ended": ended}]


def test_a_worker_that_says_nothing_is_ended() -> None:
    assert list(lines(["sleep", "1000"], limit=0.1)) == [{"ended": "no answer within 0.1 seconds"}]


@pytest.mark.slow
def test_a_crash_and_a_hang_cost_one_case_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "up.py").write_text(FAMILY, "utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HOUSE)]))
    about, *found = answers(sys.executable, "made.up", 0, limit=30.0)
    assert (about["name"], about["n_cases"]) == ("made up", len(ALL))
    assert [line["case"] for line in found] == list(range(len(ALL)))
    assert Counter(line["verdict"] for line in found if line["words"] != "made up") == {
        PASSED: 45, FAILED: 2, NOT_CLAIMED: 7,
    }
    failed = {ALL[line["case"]].name: line["words"] for line in found if line["verdict"] == FAILED}
    assert failed == {
        "queries: 17, keys: 7": "the process ended with SIGKILL",
        "queries: 131, keys: 149": "no answer within 30 seconds",
    }


def test_a_worker_that_asks_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="must ask cases; the process ended with exit status 1"):
        list(answers("false", "made.up", 0, limit=100.0))  # the shell's command in Python's place


def judged(attention: Any, topic: str = "empty", **more: Any) -> Verdict:
    """Return what becomes of a topic's first case; in that of empty, rows 1 and 3 are."""
    case = next(case for case in ALL if case.topic == topic)
    return verdict(case, Adapter("made up", ("numpy",), "nowhere", attention, "numpy", **more))


def spoilt(rows: list[int]) -> Any:
    """Return an attention with NaN in some rows."""

    def attention(query: Any, key: Any, value: Any, attn_mask: Any) -> Any:
        result = right(query, key, value, attn_mask)
        result[..., rows, :] = np.nan
        return result

    return attention


def test_a_verdict_says_who_is_right() -> None:
    assert judged(right) == Verdict(PASSED)
    wrong = judged(lambda query, key, value, attn_mask: right(query, key, value, attn_mask) * 1.01)
    assert wrong.kind == FAILED and "is above the bound" in wrong.words
    # NaN is a policy in empty rows, and a failure in others.
    assert judged(spoilt([1, 3])).kind == judged(spoilt([1])).kind == POLICY
    assert judged(spoilt([0, 1, 3])).kind == FAILED


def test_what_is_not_claimed_is_not_asked() -> None:
    def refuses(query: Any, key: Any, value: Any, attn_mask: Any) -> None:
        claim(attn_mask.ndim == 4, "masks have 4 axes")

    assert judged(lambda query, key, value: 1 / 0) == Verdict(NOT_CLAIMED, "no mask")
    assert judged(refuses) == Verdict(NOT_CLAIMED, "masks have 4 axes")
    assert judged(right, without={"masks": "no masks"}) == Verdict(NOT_CLAIMED, "no masks")
    assert judged(right, "gradients", gradients=False) == Verdict(NOT_CLAIMED, "no gradients")
    assert judged(right, "lse") == Verdict(NOT_CLAIMED, "no function with a log-sum-exp")
    assert judged(right, "sinks") == Verdict(NOT_CLAIMED, "no keyword for sinks")


def test_a_keyword_more_claims_more() -> None:
    def attention(
        query: Any, key: Any, value: Any, softcap: Any = None, return_lse: Any = None
    ) -> Any:
        if return_lse:
            return numpy_tokenwise.scaled_dot_product_attention_with_lse(query, key, value)
        return right(query, key, value)

    assert judged(attention, "lse").kind == judged(attention, "merge").kind == PASSED
    assert judged(attention, "soft cap").kind == FAILED  # it does not look at the cap


def test_a_refusal_is_of_any_class_has_words_and_stands_beside_a_call_that_is_accepted() -> None:
    def refusing(words: str, neighbour: bool = True) -> Any:
        def refuses(query: Any, key: Any, value: Any) -> Any:
            if query.shape[-1] != key.shape[-1] or not neighbour:
                raise LookupError(words)
            return right(query, key, value)

        return refuses

    def does_not_claim(query: Any, key: Any, value: Any) -> None:
        claim(query.shape[-1] == key.shape[-1], "one head dimension")
        raise ValueError("no")

    assert judged(refusing("unequal"), "errors").kind == PASSED
    assert judged(refusing(""), "errors").kind == FAILED
    assert judged(refusing("unequal", neighbour=False), "errors").kind == FAILED
    assert judged(does_not_claim, "errors") == Verdict(NOT_CLAIMED, "one head dimension")


def test_the_page_has_the_stored_numbers_and_every_program() -> None:
    page = tables.PAGE.read_text("utf-8")
    assert tables.page() == page, "run python -m peers.tables"
    assert sorted(sum(tables.SECTIONS.values(), ())) == sorted(FAMILIES)
    shown = re.findall(r"peers/reproductions/(\S+\.py)$", page, re.MULTILINE)
    kept = [str(program.relative_to(programs.FOLDER)) for program in PROGRAMS]
    assert sorted(shown) == sorted(kept)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=os.path.basename)
def test_a_reproduction_prints_what_the_page_shows(program: Path) -> None:
    family, folder = program.parent.name, HOUSE.parent / ".venv" / "peers"
    environment = FAMILIES[family]
    if environment and not (folder / environment / ".complete").exists():
        pytest.skip("make peers builds its environment")
    if family == "tiny" and not shutil.which("clang"):
        pytest.skip("tinygrad compiles with clang")
    if program.stem.startswith("flex_compiled") and not shutil.which("g++"):
        pytest.skip("torch.compile compiles with g++")
    python = str(folder / environment / "bin" / "python") if environment else sys.executable
    assert programs.printed(python, program) == program.with_suffix(".txt").read_text("utf-8")
