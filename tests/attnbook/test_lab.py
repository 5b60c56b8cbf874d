"""The lab: right attentions pass, each wrong one is stopped at its stage, commands say what failed.

The wrong ones are a right one with one change, so that nothing else can stop them.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lab_attentions
import pytest
import torch
from lab_attentions import with_mistake
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attnbook import lab
from attnbook.lab import my_attention
from attnbook.lab.__main__ import main
from attnbook.lab._memory import TORCHS_OWN, Kept
from attnlib import torch_blockwise, torch_dense

DENSE = torch_dense.scaled_dot_product_attention
BLOCKWISE = torch_blockwise.scaled_dot_product_attention

ROOT = "scale = max(1, query.shape[-1]) ** -0.5"
FUTURE = "j <= i[:, None]"
KEPT = "        ctx.options = is_causal, scale\n"
KEPT_TILES = """\
        tiles = Tiles(query, key, mask, is_causal, scale)
        ctx.kept = [tiles.scores(rows, columns)[0] for rows in blocks(query.shape[-2])
                    for columns in tiles.columns(rows)]
"""
OWN = "Blockwise.apply(q, k, v, attn_mask, is_causal, scale)"
LOOP = f"(fold{OWN[15:]}[0] if query.shape[-2] * key.shape[-2] else {OWN})"

# The mistake, its stage, what stands in the right attention, and what stands in the wrong one.
MISTAKES = {
    "no scale": ("values", ROOT, "scale = 1.0"),
    "divided by d_k": ("values", ROOT, "scale = 1 / max(1, query.shape[-1])"),
    "divided by the root of d_v": ("values", ROOT, ROOT.replace("query", "value")),
    "causal, off by one": ("causal", FUTURE, "j < i[:, None]"),
    "causal at the bottom right": (
        "causal", FUTURE, "j + self.query.shape[-2] - self.key.shape[-2] <= i[:, None]",
    ),
    "a boolean mask the other way around": ("masks", "kept = mask if", "kept = ~mask if"),
    "a large negative number for −∞": ("masks", "scores, -torch.inf)", "scores, -1e9)"),
    "NaN in empty rows": ("masks", "total = torch.where(ell == 0, 1, ell)", "total = ell"),
    "a floating mask is scaled": ("masks", "scores + self", "scores + self.scale * self"),
    "half precision is summed as it is": (
        "numbers", "torch.float32 if query", "query.dtype if query",
    ),
    "0 · NaN": (
        "numbers", "@ torch.where(seen, value[..., columns, :], 0)", "@ value[..., columns, :]",
    ),
    "the query is scaled in place": (
        "numbers", "    wide = ", "    query, scale = query.mul_(scale), 1.0\n    wide = ",
    ),
    "one block": ("memory", "size: int = 64", "size: int = 4096"),
    "the term D is missing": ("gradients", "(g @ v.mT - D[..., rows, :])", "(g @ v.mT)"),
    "no scale for the gradient of the key": (
        "gradients", "tiles.scale * d_scores.mT", "d_scores.mT",
    ),
    "autograd goes through the loop": ("recompute", OWN, LOOP),
    "tiles stay in ctx": ("recompute", KEPT, KEPT + KEPT_TILES),
}


def wrong(mistake: str) -> Callable[..., Tensor]:
    return with_mistake(*MISTAKES[mistake][1:])


# On each change the page reference/lab.ipynb grades the skeleton, torch_dense, which stops at the
# stage of memory, torch_blockwise, which passes, and torch's own attention.
@pytest.mark.slow
def test_a_right_attention_passes() -> None:
    assert lab.grade(lab_attentions.attention).passed


# Of some mistakes, words of the hint and the smallest call of those that fail alike.
HINTED = {
    "no scale": ("Where no scale is given", "values: queries: 1, keys: 2, float32"),
    "divided by the root of d_v": ("and not of the value's", "values: query (5, E), key (7, E)"),
    "causal, off by one": ("its own key and those before", "causal: queries: 2, keys: 1"),
    "causal at the bottom right": ("counted from the first key", "causal: queries: 2, keys: 1"),
    "a floating mask is scaled": ("after they were scaled", "masks: a floating mask (3, 5, 7)"),
    "a large negative number for −∞": ("a large negative number does not", "empty: a boolean"),
    "NaN in empty rows": ("A block of keys may hold none", "masks: 131 keys, of which a"),
    "the query is scaled in place": ("nothing is done in place", "layouts: one key, whose"),
}


# On each change one is asked what comes before its stage, too.
EARLY = "a boolean mask the other way around"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_stage_of_a_wrong_attention_notices_it(mistake: str) -> None:
    stage = MISTAKES[mistake][0]
    report = lab.grade(wrong(mistake), () if mistake == EARLY else [stage])
    assert report.stopped_at == stage and not report.passed, report
    said = repr(report)
    assert "expected" in said and f"see chapter {lab.STAGES[stage].chapter}" in said
    assert len(said.splitlines()) <= 15
    hint, case = HINTED.get(mistake, ("", ""))
    assert hint in " ".join(said.split()) and f"\n     {case}" in said


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_stage_before_its_own_stops_a_wrong_attention(mistake: str) -> None:
    assert lab.grade(wrong(mistake)).stopped_at == MISTAKES[mistake][0]


def test_a_hint_for_each_topic_fits_everything() -> None:
    topics = {topic for topic, words, _ in lab.HINTS if not words}
    assert topics == {case.topic for stage in lab.STAGES for case in lab.cases(stage)}


# -- torch's own attention ----------------------------------------------------------------------


class Recomputed(torch.autograd.Function):
    """Right forwards, block by block; its backward asks another form."""

    @staticmethod
    def forward(ctx: Any, form: Callable[..., Tensor], causal: bool, *qkv: Tensor) -> Tensor:
        ctx.form, ctx.causal = form, causal
        ctx.save_for_backward(*qkv)
        return BLOCKWISE(*qkv, is_causal=causal)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> Any:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            output = ctx.form(*leaves, is_causal=ctx.causal)
        return None, None, *torch.autograd.grad(output, leaves, d_output)


def recomputed(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Any:
        return Recomputed.apply(form, is_causal, query, key, value)

    return attention


def hidden(*arguments: Any, **options: Any) -> Tensor:
    try:
        return F.scaled_dot_product_attention(*arguments, **options)
    except RuntimeError:
        return DENSE(*arguments, **options)


@pytest.mark.parametrize(
    ("function", "stage"),
    [
        (F.scaled_dot_product_attention, "memory"),
        (hidden, "values"),
        (recomputed(F.scaled_dot_product_attention), "recompute"),
    ],
)
def test_torch_s_own_attention_is_refused(function: Callable[..., Any], stage: str) -> None:
    report = lab.grade(function, [stage])
    assert report.outcomes[0].verdict == "refused"
    assert "The function calls torch's own attention. Write that yourself." in repr(report)


@pytest.mark.parametrize(
    ("operation", "refused"),
    [
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", True),
        ("aten._native_multi_head_attention.default", True),
        ("flex_attention", True),
        ("aten._softmax.default", False),
        ("mine.attention.default", False),
    ],
)
def test_operations_that_are_refused(operation: str, refused: bool) -> None:
    assert bool(TORCHS_OWN.match(operation)) == refused


# -- what is not written -------------------------------------------------------------------------


def test_the_skeleton_has_the_signature_of_torch() -> None:
    own = inspect.signature(my_attention.attention).parameters
    assert list(own) == list(inspect.signature(DENSE).parameters)[:8]
    assert lab.grade(my_attention.attention).outcomes[0].verdict == "still to write"


def test_what_is_written_decides_where_another_part_is_not() -> None:
    """A stage is still to write only if nothing in it is wrong."""

    def begun(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
        mask = options.get("attn_mask")
        if mask is not None and mask.dtype != torch.bool:
            raise NotImplementedError
        return DENSE(query, key, value, *rest, **options)

    assert lab.grade(begun, ["masks"]).outcomes[0].verdict == "still to write"
    wrong = lab.grade(lambda *a, **o: -begun(*a, **o), ["masks"])
    assert wrong.outcomes[0].verdict == "failed"


def test_an_error_with_words_is_a_failure() -> None:
    """It may come from torch, which does not have every operation for every dtype."""

    def lacking(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        return (query * 1j).floor()

    with pytest.raises(NotImplementedError):
        lacking(*torch.zeros(3, 1, 1))
    assert lab.grade(lacking, ["values"]).outcomes[0].verdict == "failed"


def test_a_program_that_ends_is_a_failure() -> None:
    report = lab.grade(lambda *_, **__: sys.exit(0), ["values"])
    assert "expected a result, but the program was ended" in repr(report)


# -- the memory ----------------------------------------------------------------------------------


def test_what_stays_is_counted_until_it_is_let_go() -> None:
    query, key = (torch.ones(7, requires_grad=True) for _ in range(2))
    with (kept := Kept(lambda query, key: (query * key) * key)):
        output = kept(query=query, key=key)
    assert kept.now == kept.most == 21  # query, key and their product
    del output
    assert (kept.now, kept.most) == (0, 21)


def rows_at_a_time(part: Callable[..., Any]) -> Callable[..., Tensor]:
    """A block of queries against all keys, with a plain softmax."""

    def attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
        rows = lab_attentions.blocks(query.shape[-2])
        return torch.cat([part(query[..., r, :], key, value, r, is_causal) for r in rows], -2)

    return attention


def plain(query: Tensor, key: Tensor, value: Tensor, rows: slice, is_causal: bool) -> Tensor:
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if is_causal:
        later = torch.arange(key.shape[-2]) > torch.arange(rows.start, rows.stop)[:, None]
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ value


def folded(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    """Block after block of keys, with every step in the graph."""
    return lab_attentions.fold(query, key, value, None, is_causal, query.shape[-1] ** -0.5)[0]


AROUND = {
    "a matrix in the backward": (recomputed(DENSE), "got 1,048,576 in shape (1, 1024, 1024)"),
    "checkpoints": (
        rows_at_a_time(partial(checkpoint, plain, use_reentrant=False)), "torch.utils.checkpoint",
    ),
    "reentrant checkpoints": (
        rows_at_a_time(partial(checkpoint, plain, use_reentrant=True)), "torch.utils.checkpoint",
    ),
    "a graph that the backward builds": (recomputed(folded), "numbers kept for the backward"),
}


@pytest.mark.parametrize("way", AROUND)
def test_there_is_no_way_around_the_last_stage(way: str) -> None:
    attention, said = AROUND[way]
    report = lab.grade(attention, ["recompute"])
    assert not report.passed and said in repr(report)


def test_a_row_of_scores_is_too_much_in_the_forward_too() -> None:
    report = lab.grade(rows_at_a_time(plain), ["memory"])
    assert "A whole row of scores" in repr(report) and "got 131,072 in" in repr(report)
    assert lab.grade(recomputed(BLOCKWISE), ["memory", "recompute"]).passed


# -- the commands --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(path: Path, line: str) -> None:
    path.write_text(f"from attnlib.torch_dense import scaled_dot_product_attention\n{line}\n")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command that is invalid says; its exit status is 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.partition("error: ")[2].strip()


def test_a_file_to_begin_with_is_written_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--start", "first_try.py"]) == 0
    written = (folder / "first_try.py").read_text(encoding="utf-8")
    assert "`python -m attnbook.lab first_try` grades it" in written
    assert written.replace("first_try", "my_attention") == lab.skeleton()
    assert "python -m attnbook.lab first_try.py" in capsys.readouterr().out
    assert main(["first_try.py"]) == 1
    assert "still to write; see chapter 5" in capsys.readouterr().out

    (folder / "first_try.py").write_text("mine")
    said = refusal(capsys, "--start", "first_try.py")
    assert said == "the file must be a new one; first_try.py is there already"
    assert (folder / "first_try.py").read_text() == "mine"


def test_the_exit_status_says_whether_all_passed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "graded_here.py", "attention = scaled_dot_product_attention")
    assert main(["graded_here", "--stage", "causal", "values"]) == 0
    assert (
        capsys.readouterr().out == "1 values     passed, 39 cases\n2 causal     passed, 37 cases\n"
    )
    assert main(["graded_here", "--stage", "memory"]) == 1
    (folder / "team 1").mkdir()
    write(folder / "team 1" / "no-module.py", "attend = scaled_dot_product_attention")
    assert main(["team 1/no-module.py:attend", "--stage", "values"]) == 0


def test_an_invalid_command_says_what_it_expects(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "lab_number.py", "attention = 5")
    write(folder / "lab_error.py", "1 / 0")
    write(folder / "lab_end.py", "raise SystemExit(0)")
    imported = "expected what Python can import;"
    for name, said in {
        "lab_nowhere": f"{imported} lab_nowhere gave ModuleNotFoundError: No module named",
        "lab_error": f"{imported} lab_error gave ZeroDivisionError: division by zero",
        "lab_end.py": f"{imported} lab_end.py gave SystemExit: 0",
        "lab_number": "attention must be a function; got int",
        "lab_number:other": "lab_number must have a function other; it has no such name",
    }.items():
        assert refusal(capsys, name).startswith(said), name
    for name in ("try.txt", "1.py"):
        said = refusal(capsys, "--start", name)
        assert said == f"the file must have a name such as my_attention.py; got {name}"
    assert "No such file" in refusal(capsys, "--start", "nowhere/a.py")
    assert refusal(capsys).startswith("expected a module or a file, such as my_attention")
    said = refusal(capsys, "attnlib.torch_dense:softmax", "--stage", "mask")
    assert said == f"stages must be some of {', '.join(lab.STAGES)}; got mask"


def test_grade_names_what_it_cannot_grade() -> None:
    with pytest.raises(TypeError, match="attention must be a function; got NoneType"):
        lab.grade(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"stages must be some of values, causal, .*; got 3, mask"):
        lab.grade(DENSE, ["mask", 3])  # type: ignore[list-item]
    assert [outcome.stage for outcome in lab.grade(DENSE, "values").outcomes] == ["values"]


def test_python_finds_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `python -m attnbook.lab` does; another process would only import torch again."""
    write(folder / "mine.py", "attention = scaled_dot_product_attention")
    monkeypatch.setattr(sys, "argv", ["lab", "mine", "--stage", "values"])
    monkeypatch.delitem(sys.modules, "attnbook.lab.__main__")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("attnbook.lab", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out == "1 values     passed, 39 cases\n"


def test_without_the_oracle_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "attnbook.lab")
    monkeypatch.setitem(sys.modules, "attncheck", None)
    with pytest.raises(ModuleNotFoundError, match=r"attnbook.lab needs attncheck.*subdirectory=or"):
        importlib.import_module("attnbook.lab")
