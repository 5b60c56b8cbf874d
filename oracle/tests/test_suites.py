"""The published suites: the right attention passes them, and some wrong ones do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from attncheck import _definition
from attncheck._calls import Call, Given
from attncheck.suites import SUITES, WRONG, asked, correct_kernel
from attncheck.suites.__main__ import main
from attncheck.suites.attentions import KERNEL, Question, attention, log_sum_exp, rounded
from attncheck.suites.published import e5m2, in_mxfp4
from attncheck.suites.rules import allclose, twice_the_peer


def question(dtype: str = "float32", causal: str = "", n_queries: int = 5) -> Question:
    rng = np.random.default_rng(0)
    shapes = (6, n_queries, 8), (2, 131, 8), (2, 131, 3)
    query, key, value = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return Question(query, key, value, dtype, causal)


@pytest.mark.parametrize("causal", ["", "top-left", "bottom-right"])
def test_the_right_attention_is_that_of_the_definition(causal: str) -> None:
    own = question(causal=causal)
    options = {"enable_gqa": True}
    options |= {"is_causal": True, "causal_align": causal} if causal else {}
    given = {n: Given(np.float64(getattr(own, n)), "float32") for n in ("query", "key", "value")}
    truth = _definition.output(Call(given, options))
    np.testing.assert_allclose(attention(own), truth, rtol=2e-5, atol=2e-6)
    lse = _definition.attention(_definition.problem(Call(given, options)))[1]
    np.testing.assert_allclose(log_sum_exp(own), lse, rtol=2e-5)


@pytest.mark.parametrize("wrong", WRONG)
def test_each_mistake_changes_the_numbers(wrong: str) -> None:
    own = question(causal="bottom-right")
    assert own.asks(wrong)
    assert np.abs(attention(own, wrong) - attention(own)).max() > 0.1


def test_the_log_sum_exp_is_that_of_the_scores_of_a_mistake() -> None:
    own = question(causal="top-left")
    assert (log_sum_exp(own, "mean") == np.float32(np.log(131))).all()
    np.testing.assert_allclose(log_sum_exp(own, "scale 0")[0], np.log(np.arange(1, 6)), atol=1e-6)
    assert not log_sum_exp(own, "zeros").any()
    every = question()
    np.testing.assert_allclose(log_sum_exp(every, "reversed"), log_sum_exp(every), rtol=1e-6)


def test_a_mistake_that_no_call_can_show_is_not_asked() -> None:
    own = question()
    assert not own.asks("corner")
    square = Question(own.query[:2], own.key[:, :5], own.value[:, :5], "float32", "top-left", 1.0)
    asks = {wrong for wrong in WRONG if square.asks(wrong)}
    assert asks == {"mean", "scale 0", "1/d", "flipped", "reversed", "half", "zeros"}


def test_numbers_are_rounded_to_the_dtype() -> None:
    x = np.array([1 + 2**-9, 1 + 3 * 2**-8], np.float32)
    assert rounded(x, "bfloat16").tolist() == [1.0, 1.015625]
    assert rounded(x, "float16").tolist() == x.tolist()


def test_rules() -> None:
    own, right = question("float16"), attention(question("float16"))
    assert allclose(0.1, 0)(own, right + 0.05, right) == pytest.approx(0.5, abs=0.01)
    off = right.copy()
    off[0, 0, 0] += 9
    assert allclose(0.1, 0, share=1 / 90)(own, off, right) == pytest.approx(1)
    assert twice_the_peer(own, right, right) < 0.6 < 20 < twice_the_peer(own, right + 0.1, right)


# What a published suite lets pass, where this takes no second; the page has all.
PASSING = {
    "FlagGems op, quick mode": [
        "mean", "scale 0", "no scale", "1/d", "flipped", "reversed",
    ],
    "FlagGems flash op, quick": [],
    "Triton tutorial 06, fp8": [
        "mean", "scale 0", "no scale", "1/d", "flipped", "reversed", "tile", "half", "zeros",
    ],
    "TorchCode, causal": ["scale 0", "no scale", "1/d", "flipped", "half"],
    "FlashAttention": [],
    "MLX": [],
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_a_suite(name: str) -> None:
    [suite] = [suite for suite in SUITES if suite.name == name]
    verdicts = asked(suite)
    assert [wrong for wrong, verdict in verdicts.items() if verdict == "passes"] == PASSING[name]
    assert "passes" not in (asked(suite, mended=True) if suite.mend else {}).values()


# The page asks all mended suites.
QUICK = ("FlagGems op, quick mode", "Triton tutorial 06, fp8", "GPU MODE, mixed-mla")


@pytest.mark.parametrize("name", QUICK)
def test_a_mended_suite_accepts_a_correct_kernel(name: str) -> None:
    [suite] = [suite for suite in SUITES if suite.name == name]
    assert correct_kernel(suite) < 0.8


def test_a_correct_kernel_passes_the_published_suites() -> None:
    """Weights that are rounded cost candle's four digits, and take xFormers to its bound."""
    errors = {s.name: max(call(KERNEL) or 0 for call in s.asks(False)) for s in SUITES}
    assert {name for name, error in errors.items() if error > 1.2} == {"candle"}


def test_few_bits() -> None:
    x = np.array([1.1, 1.13, 300, -7, 2.0**-16, 0], np.float32)
    assert e5m2(x).tolist() == [1.0, 1.25, 320.0, -7.0, 2.0**-16, 0.0]
    key = np.linspace(-6, 6, 32, dtype=np.float32).reshape(1, 1, 32)
    four = in_mxfp4(Question(key, key, key, "float32")).key
    assert set(np.abs(four).ravel().tolist()) == {0, 0.5, 1, 1.5, 2, 3, 4, 6}


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torchcode"]) == 0
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("TorchCode"))
    assert row.split()[2:] == ["·", *4 * ["PASSES"], "·", "PASSES", "·"]
    assert "duoan/TorchCode" in said and "one comparison with a reference" in said
    assert main(["candle"]) == 0 and "with one change" not in capsys.readouterr().out
    command = [sys.executable, "-m", "attncheck.suites", "nothing of that name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "expected a word in the name of a suite" in done.stdout
