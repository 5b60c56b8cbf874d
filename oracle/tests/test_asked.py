"""What is claimed is asked, what is not is no accusation, and a wrong word is an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import kernels_asked
import numpy as np
import pytest
import torch
from faulty_kernels import at_one
from kernels_asked import ASKED

import attncheck
from attncheck import Also, Case, Kernel, Result, backend_for, cases, check, judge
from attncheck._calls import E
from attncheck._claims import takes_integer
from attncheck._classes import CLASSES, class_of
from attncheck._comparison import INVERTED
from attncheck._draws import with_mask
from attncheck._table import tabled
from attncheck._torch_backend import plain


@pytest.mark.parametrize("name", ASKED)
def test_a_fault_is_noticed_by_the_new_question_alone(name: str) -> None:
    question = ASKED[name]
    report = check(at_one(question.build(name.strip())), only=question.only)
    assert report.failed and not report.refused, str(report)
    assert all(question.word in result.case.name for result in report.failed), str(report)
    topics = {result.case.topic for result in report.failed}
    assert question.only[-1] in topics, str(report)


BUILDS = {q.build: q for q in ASKED.values()}


@pytest.mark.parametrize("build", BUILDS)
def test_its_twin_passes(build: Callable[..., Kernel]) -> None:
    report = check(at_one(build()), only=BUILDS[build].only)
    assert report.passed and not report.failed and not report.refused, str(report)


# -- words that nobody knows -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"names": {"is_casual": "causal"}}, "names must hold .*'is_casual'.* is 'is_causal'"),
        ({"values": {"attn_masks": abs}}, "values must hold .*'attn_masks'.* is 'attn_mask'"),
        ({"not_claimed": {"causl": "no"}}, "not_claimed must hold .*'causl'.* is 'causal'"),
        ({"names": {"scale": "scael"}}, "names must lead to .*'scael'; the nearest is 'scale'"),
        ({"mask_true": "hidden"}, "mask_true must be one of 'takes part', 'removed'"),
        ({"mask_ranks": [5]}, "mask_ranks must be one of 1, 2, 3, 4; got 5"),
        ({"window": "keys"}, r"window must be one of 'ends', 'w keys', 'w \+ 1 keys'; got 'keys'"),
    ],
)
def test_a_word_that_is_not_known_is_an_error(claims: Any, message: str) -> None:
    def attention(q: Any, k: Any, v: Any, causal: bool = False, scale: Any = None) -> Any:
        raise NotImplementedError

    with pytest.raises(ValueError, match=message):
        Kernel(attention, **claims)


# -- no false accusation ---------------------------------------------------------------------------


def that_removes(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
    """Remove where True, as `nn.MultiheadAttention` does."""
    return plain(q, k, v, attn_mask if attn_mask is None else ~attn_mask)[0]


def test_values_reach_the_mask_and_its_gradient() -> None:
    kernel = Kernel(that_removes, mask="bool", values={"attn_mask": torch.logical_not})
    assert check(kernel, only=["masks", "gradients", "groups"], without=["numbers"]).passed

    def scaled(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        return plain(q, k, v, None if bias is None else bias / 2)[0]

    names, values = {"attn_mask": "bias"}, {"attn_mask": lambda mask: mask * 2}
    kernel = Kernel(scaled, mask="float", names=names, values=values)
    report = check(kernel, only=["masks", "mask gradients"])
    assert report.passed and report.results[-1].case.topic == "mask gradients", str(report)


def test_a_report_says_that_masks_are_inverted() -> None:
    report = check(Kernel(that_removes, mask="bool"), only=["values", "masks"])
    [group] = report.groups
    assert group.kind == INVERTED and len(group.results) == len(report.failed)
    assert "every one passes with its mask turned round" in str(report)
    assert "right with the mask turned round (mask_true)" in str(report)
    claimed = Kernel(that_removes, mask="bool", mask_true="removed")
    assert check(claimed, only=["values", "masks"]).passed

    def zeros(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        return 0 * plain(q, k, v, attn_mask)[0]

    report = check(Kernel(zeros, mask="bool"), only=["values", "masks"])
    assert INVERTED not in {result.kind for result in report.failed}


@pytest.mark.parametrize("axes", ["SBHD", "HBSD", "BHDS", "DSH"])
def test_any_order_of_axes_can_be_claimed(axes: str) -> None:
    ours = "BHSD"[4 - len(axes):]
    there, back = ([a.index(x) for x in b] for a, b in ((axes, ours), (ours, axes)))

    def attention(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        return plain(*(x.permute(there) for x in (q, k, v)), attn_mask)[0].permute(back)

    report = check(Kernel(attention, axes), only=["values", "gradients"], without=["numbers"])
    assert report.passed and not report.failed, str(report)


def test_masks_of_one_rank_alone_can_be_claimed() -> None:
    def attention(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        assert attn_mask is None or attn_mask.ndim == 4
        return plain(q, k, v, attn_mask)[0]

    kernel = Kernel(attention, "BHSD", mask_ranks=[4])
    report = check(kernel, only=["masks", "mask gradients"])
    assert report.passed and not report.failed, str(report)
    draw = with_mask(np.ones((5, 7), dtype=bool), "", (3, 5, E), (3, 7, E))
    case = Case("masks", "a mask for inputs of three axes", draw)
    said = replace(kernel, axes="").unclaimed(case, case.call)
    assert said == "masks with other numbers of axes"


@pytest.mark.parametrize("annotation", [int, "int", int | None, "Optional[int]", None])
def test_an_integer_window_that_nobody_claims_is_not_asked(annotation: Any) -> None:
    def attention(q: Any, k: Any, v: Any, is_causal: bool = False, window: Any = -1) -> Any:
        raise NotImplementedError

    if annotation is None:
        del attention.__annotations__["window"]
    else:
        attention.__annotations__["window"] = annotation
    asked = cases(kernel=attention)
    assert not any("window" in case.call.options for case in asked if case.topic == "windows")
    names = {case.topic for case in cases(kernel=Kernel(attention, window="w keys"))}
    assert "windows" in names
    assert not takes_integer(min, "window")  # it has no signature
    attention.__annotations__["window"] = "tuple[int, int]"
    assert "windows" in {case.topic for case in cases(kernel=attention)}


def test_gradients_of_sinks_in_half_precision() -> None:
    verdicts = [
        check(kernels_asked.with_sinks(fault), only=["sinks"], dtypes=["bfloat16"]).passed
        for fault in ("", kernels_asked.ZEROS)
    ]
    assert verdicts == [True, False]


def test_gradients_of_a_topic_can_be_left_out() -> None:
    kernel = kernels_asked.with_sinks(kernels_asked.ZEROS)
    said = {"sinks gradients": "sinks are not learnt"}
    report = check(replace(kernel, not_claimed=said), only=["sinks"])
    assert report.passed and "sinks are not learnt" in str(report)
    kernel = kernels_asked.merging(kernels_asked.UNMERGED)
    merge = Also(kernel.merge, differentiable=False)
    assert check(replace(kernel, merge=merge), only=["merge"]).passed


# -- masks that need memory ------------------------------------------------------------------------


def test_a_mask_beyond_the_memory_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, modes = kernels_asked.with_large_masks(), attncheck._table._modes
    monkeypatch.setattr(modes, "free_memory", lambda: 0)
    report = check(kernel, only=["large masks"])
    assert "less memory than 32 GiB" in str(report) and len(report.results) == 1
    monkeypatch.setattr(modes, "MANY_QUERIES", 33)
    monkeypatch.setattr(modes, "free_memory", lambda: 2**40)
    for dtype in ("float32", "float16", "bfloat16"):
        report = check(kernel, only=["large masks"], dtypes=[dtype])
        assert report.passed and len(report.results) == 2, str(report)

    def too_large(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        if attn_mask is not None and attn_mask.shape[-1] > 1000:
            raise RuntimeError("not enough memory: you tried to allocate 8 GiB")
        return plain(q, k, v, attn_mask)[0]

    report = check(Kernel(too_large, large_masks=True), only=["large masks"])
    assert report.passed and len(report.refused) == 1
    monkeypatch.undo()
    assert (modes.free_memory() > 0) == sys.platform.startswith("linux")

    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(modes, "open", missing, raising=False)
    assert modes.free_memory() == 0


# -- the truth of gradients ------------------------------------------------------------------------


def test_the_equations_for_sinks_and_soft_caps_are_those_of_autograd() -> None:
    from attncheck import _definition

    kernel = Kernel(
        lambda q, k, v, **_: q, sinks="sinks", softcap="softcap", documents=Also(plain, "THD")
    )
    every = cases(kernel=kernel, only=["sinks", "soft cap", "documents"], dtypes=["float64"])
    graded = [case for case in every if "gradients" in case.needs]
    assert len({case.topic for case in graded}) == 3
    backend: Any = backend_for("torch")
    for case in graded:
        truth, found = _definition.gradients(case.call), backend.peer_gradients(case.call)
        for name in case.call.wanted:
            np.testing.assert_allclose(found[name], truth[name], rtol=1e-9, atol=1e-11)


# -- classes ---------------------------------------------------------------------------------------


def classed(topic: str, part: str, kind: str = "") -> str:
    every = tabled(Kernel(that_removes), "torch", only=[topic])  # claimed or not
    case = next(case for case in every if part in case.name)
    return class_of(Result(case, not kind, kind=kind))


def test_each_result_has_a_class() -> None:
    assert classed("values", "scale=2") == "wrong numbers"
    assert classed("masks", "a boolean mask") == "wrong masks"
    assert classed("gradients", "scale=2") == "wrong gradients"
    assert classed("gradients", "no keys") == "wrong edges"
    assert classed("empty", "no keys") == "wrong edges"
    assert classed("numbers", "a boolean mask removes") == "unsafe"
    assert classed("errors", "shorter") == "unsafe" and classed("errors", "scale") == "wrong edges"
    assert classed("layouts", "contiguous", "an input is modified") == "unsafe"
    assert classed("pages", "one query") == "wrong numbers"
    assert classed("pages", "one query", "NaN") == "unsafe"
    assert classed("documents", "NaN in one text") == "unsafe"
    report = check(lambda q, k, v: judge and plain(q, k, v)[0], only=["values"])
    assert {class_of(result) for result in report.results} <= set(CLASSES)
