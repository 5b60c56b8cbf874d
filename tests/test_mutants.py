"""Every usual mistake of mutants.txt is made, and noticed by the test that is named for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlib import implementations
from tools.mutants import TABLE, TableError, check_unchanged, read_table
from tools.processes import forked

ROOT = Path(__file__).parent.parent
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it forks after importing torch")


def make(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mutants", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.slow
@on_linux
def test_every_mistake_is_noticed() -> None:
    done = make()
    missed = [line for line in done.stdout.splitlines() if "  noticed  " not in line]
    assert done.returncode == 0, "\n".join(missed) + done.stderr
    assert ", 0 missed, " in done.stdout.splitlines()[-1]


TEST = "test_every_key_takes_part_once"
NOT_MISTAKES = f"""\
[numpy_dense: numpy_dense]

the last key is left out
{TEST}
-     weights, lse = _softmax(scores)
+     scores[..., -1] = -np.inf
+     weights, lse = _softmax(scores)

a change that changes nothing
{TEST}
- weights, lse = _softmax(scores)
+ weights, lse = _softmax(scores, -1)

a mistake of another name
{TEST}
- weights, lse = _softmax(scores)
+ weights, lse = _softmax(scores * 2)

what cannot be read
{TEST}
- weights, lse = _softmax(scores)
+ weights, lse = _softmax(scores

what cannot be imported
{TEST}
- import numpy as np
+ import nump as np
"""


@on_linux
def test_only_a_test_that_fails_in_the_right_words_counts(tmp_path: Path) -> None:
    (table := tmp_path / "table.txt").write_text(NOT_MISTAKES)
    done = make("--table", str(table))
    assert done.returncode == 1
    lines = [re.split("  +", line.strip(), maxsplit=2) for line in done.stdout.splitlines()]
    verdicts = {last: verdict for _, verdict, last in (line for line in lines if len(line) == 3)}
    assert verdicts == {
        "numpy_dense: the last key is left out": "noticed",
        "numpy_dense: a change that changes nothing": "not noticed",
        "numpy_dense: a mistake of another name": "not named",
        "numpy_dense: what cannot be read": "broken",
        "numpy_dense: what cannot be imported": "broken",
    }
    assert done.stdout.splitlines()[-1].startswith("5 mistakes, 4 missed, ")


@on_linux
def test_a_test_that_does_not_exist_counts_for_nothing() -> None:
    nothing = f"tests/test_mistakes.py::{TEST}[numpy_rung]"
    ((_, found),) = forked([[nothing]], check_unchanged, jobs=1, limit=60)
    assert found[0] == "broken"
    assert "no such test" in found[1]


MISTAKES = read_table((ROOT / TABLE).read_text(encoding="utf-8"))
FORWARD = {
    "scores are not divided at all",
    "scores are divided by d_k",
    "scores are divided by the root of d_model",
    "scores are divided by d_model",
    "the softmax runs along the queries",
    "exp overflows, the largest score was not subtracted",
    "a query does not see its own key",
    "a query sees the key after its own",
    "the causal mask is aligned at the bottom right",
    "True removes",
    "the mask is added before scaling",
    "the last key is left out",
    "key heads are dealt out by tile: h % H_kv",
    "half precision is rounded on the way, and not once at the end",
}
BLOCKS = {
    "the row sum is not rescaled",
    "the output is not rescaled",
    "the last block, which is shorter, is left out",
    "a block of keys is skipped",
}
BACKWARD = {
    "D = rowsum(dO ∘ O) is left out",
    "the gradient of the key is not summed over the group",
    *(f"the gradient of the {name} misses a block" for name in ("query", "key", "value")),
}


@pytest.mark.parametrize(
    ("rung", "usual"),
    [
        ("numpy_tokenwise", FORWARD - {"the softmax runs along the queries"}),  # row by row
        ("numpy_dense", FORWARD),
        ("numpy_blockwise", FORWARD | BLOCKS),
        ("torch_dense", FORWARD),  # its gradients are torch's own
        ("torch_blockwise", FORWARD | BLOCKS | BACKWARD),
        ("triton_fused", FORWARD | BLOCKS | BACKWARD),
    ],
)
def test_every_rung_is_tried_on_the_usual_mistakes(rung: str, usual: set[str]) -> None:
    made = {mutant.mistake for mutant in MISTAKES if mutant.rung == rung}
    assert usual <= made, usual - made
    assert made & {"an empty row gives NaN", "an empty row gives the mean of all values"}


def test_no_rung_lacks_mistakes() -> None:
    assert set(implementations()) <= {mutant.rung for mutant in MISTAKES}


def test_the_table_fits_the_source() -> None:
    for mutant in MISTAKES:
        mutant.source((ROOT / mutant.path).read_text(encoding="utf-8"))


def test_modules_may_lie_in_folders() -> None:
    table = "[folder/__init__]\n\nwords\ntest\n- a\n+ b\n\n[folder/_inner]\n\nwords\ntest\n- a\n+ b"
    front, inner = read_table(table)
    assert front.path.as_posix() == "attnlib/folder/__init__.py"
    assert inner.path.as_posix() == "attnlib/folder/_inner.py"
    assert (front.imported_as, inner.imported_as) == ("attnlib.folder", "attnlib.folder._inner")


@pytest.mark.parametrize("text", ["axis=-1", "no such text"])
def test_a_text_that_moved_is_an_error(text: str) -> None:
    (mutant,) = read_table(f"[numpy_dense: numpy_dense]\n\nwords\n{TEST}\n- {text}\n+ axis=-2")
    source = (ROOT / "attnlib" / "numpy_dense.py").read_text(encoding="utf-8")
    with pytest.raises(TableError, match="times, not once"):
        mutant.source(source)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("words\ntest\n- a\n+ b", "not a mistake"),
        ("[masks]\n\nwords\ntest\n- a", "not a mistake"),
        ("[masks]\n\nwords\ntest\n- a\n- b", "nothing takes the place"),
        ("[masks]\n\nwords\ntest\n+ a\n- b", "expected '- '"),
        ("[masks]\n\nwords\ntest\na\n+ b", "expected '- '"),
    ],
)
def test_a_table_that_cannot_be_read(table: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_table(table)


def test_a_mistake_may_change_several_places_and_lines() -> None:
    around, rung = read_table(
        "# a comment\n[masks]\n\nwords\ntest\n- a\n-     b\n+ c\n- d\n+ e\n+ \n\n"
        "[numpy_dense: numpy_dense]\n\nothers\ntest[x]\n- a\n+ b"
    )
    assert around.edits == (("a\n    b", "c"), ("d", "e\n"))
    assert around.test == "tests/test_mistakes_around.py::test"
    assert rung.test == "tests/test_mistakes.py::test[x-numpy_dense]"
    assert around.source("x a\n    b y d") == "x c y e\n"
