"""Each rule of `honesty` refuses a few cells that break it; the chapters show what it accepts."""

from __future__ import annotations

from typing import Any

import pytest
from honesty import RULES
from honesty.content import page_has_its_size

from tools.counts import LIMIT, Counts, counts
from tools.notebooks import SETUP_CELL, SETUP_TAG, TRITON_SETUP_CELL

Cell = dict[str, Any]

SVG = '<div class="attn-figure"><svg role="img" aria-label="A square"><path d="M0 0"/></svg></div>'


def code(source: str, *outputs: Cell, tags: tuple[str, ...] = (), ran: int | None = 1) -> Cell:
    cell = {"cell_type": "code", "execution_count": ran, "metadata": {"tags": list(tags)}}
    return cell | {"outputs": list(outputs), "source": source}


def text(source: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def shows(kind: str, data: str) -> Cell:
    return {"output_type": "display_data", "data": {kind: data}, "metadata": {}}


def says(written: str, name: str = "stdout") -> Cell:
    return {"output_type": "stream", "name": name, "text": written}


EQUATION = text("$$a = b$$ (eq-same)")
CHECKED = code("assert 1 == 1", tags=("eq-same",))
TASK = text("### Exercise 1\n\nCompute it.")
SOLUTION = code("# @title Solution 1\ny = 1", tags=("solution",))
CHECK = code("assert y == 1", tags=("check",))
ANSWER = code("x", shows("text/plain", "2"), tags=("hide-output",))
SET_UP = code(SETUP_CELL, tags=(SETUP_TAG,))
UNCHECKED = code("x", shows("text/plain", "2"), tags=("nbval-skip", "device"))

# Below each rule, notebooks of a few cells that it must refuse.
BAD: dict[str, list[list[Cell]]] = {
    "every_cell_ran": [[code("x = 2", ran=None)]],
    "closing_expression_shows": [[code("values.sort()")], [code("%matplotlib inline\nx")]],
    "print_prints": [[code("if x:\n    print(x)\ny = 1")]],
    "errors_are_announced": [[code("raise x", tags=("raises-exception",))],
                             [code("raise x", {"output_type": "error"})]],
    "few_unchecked_outputs": [[code("x", tags=("nbval-ignore-output",))],
                              [UNCHECKED, UNCHECKED, UNCHECKED], [code("# NBVAL_SKIP\nx")]],
    "nothing_on_stderr": [[code("x = 1", says("RuntimeWarning", "stderr"))]],
    "no_install": [[code("!pip install numpy")], [SET_UP | {"outputs": [says("ready")]}]],
    "no_place_of_the_machine": [
        [code("open('/home/me/a.txt')")], [code("x", says("File /root/a.py"))],
        [code("x", says("C:\\Users\\me"))], [text("as in /workspace/main")],
        [text("from https://" + "pypi" + ".org/simple")],
    ],
    "short_cells": [[code("x = 1\n" * 16)]],
    "checks_stand_behind_everything": [
        [code("x = 1", tags=("checks",))], [code("x = 1\n" * 41, tags=("checks", "remove-cell"))],
        [code("x = 1", tags=("checks", "remove-cell")), code("x")],
    ],
    "most_cells_are_short": [[code("x = 1\n\n" * 5)]],
    "set_up_first": [
        [code("x = 1"), SET_UP], [code(SETUP_CELL)], [SET_UP, SET_UP],
        [SET_UP, code("import triton")], [code(TRITON_SETUP_CELL, tags=(SETUP_TAG,))],
    ],
    "equations_are_evaluated": [
        [EQUATION], [CHECKED], [EQUATION, code("1 == 1", tags=("eq-same",))],
        [EQUATION, EQUATION, CHECKED], [text("$$c\n= d$$")],
    ],
    "figures_have_words": [
        [code("figure", shows("text/html", SVG))], [code("x", shows("image/png", "iVBO"))],
        [code("x", shows("text/html", "<svg></svg>"))], [text("![a square](square.png)")],
        [text('<img src="square.png">')],
    ],
    "exercises_are_checked": [
        [TASK, SOLUTION, CHECK],  # there are three and more
        *([*cells] * 3 for cells in ([TASK, SOLUTION], [TASK, CHECK, SOLUTION],
                                     [TASK, SOLUTION, CHECK])),
    ],
    "exercises_have_hints": [[TASK]],
    "figures_have_captions": [
        [code("figure", shows("text/html", SVG), tags=("fig-a",))],
        [code("# @title A square.\nfigure", shows("text/html", SVG))],
        [code("# @title A square.", tags=("fig-a",))],
    ],
    "predictions_have_a_place": [
        [text("**Predict**: what is x?")], [ANSWER],
        [text("**Predict** x. **Predict** y."), ANSWER],
        [text("**Predict**: what is x?"), ANSWER, ANSWER], [text("**Predict** x."), ANSWER] * 5,
    ],
    "the_reader_is_asked_to_predict": [[text("**Predict**: what is x?")]],
    "minutes_are_counted": [[text("# A title\n\n*11 minutes. Needs nothing.*\n\nWords.")]],
    "prose_is_plain": [[text("It works!")], [text("We simply add.")], [text("There is no magic.")]],
    "papers_are_in_the_bibliography": [[text("[it](https://arxiv.org/pdf/0000.00000v2)")]],
}


def test_each_rule_refuses_what_breaks_it() -> None:
    assert set(BAD) == set(RULES)
    for rule, notebooks in BAD.items():
        for cells in notebooks:
            faults = RULES[rule]({"cells": cells})
            assert faults and all(isinstance(fault, str) for fault in faults), (rule, cells)


def test_a_page_may_not_grow_beyond_its_limit() -> None:
    assert page_has_its_size({"cells": [text("one two " * 700)]}, LIMIT) == []
    assert page_has_its_size({"cells": [text("one two " * 800)]}, LIMIT)


def test_counts_are_of_what_a_reader_meets() -> None:
    notebook = {
        "cells": [
            text("# A head\n\n**Predict** [two three](a.md) $x+y$\n\n$$z\n= 1$$ (eq-z)\n\n* four"),
            code(SETUP_CELL, tags=("hide-cell", SETUP_TAG)),
            code("x = 1\n\nx"),
            code("figure", tags=("hide-input",)),
            text("five <details>\nfolded\n</details>\n## Exercises\n\nAll of these."),
            text("### Exercise 1\n\n$$z = 2$$"),
            code("x = 2", tags=("check",)),
            text("## What we know\n\nsix"),
        ]
    }
    n_lines = len([line for line in SETUP_CELL.splitlines() if line])
    assert counts(notebook) == Counts(
        words=2 + 5 + 1 + 4,
        cells=8,
        lines=n_lines + 2 + 1 + 1,
        folded=round(100 / (n_lines + 4)),
        formulas=1,
        minutes=2,
        exercises=5,
    )


@pytest.mark.parametrize(
    ("rule", "sources"),
    [
        ("prose_is_plain", ["$n!$", "`a != b`", "where a != b", "![A square of five words](a)"]),
        ("no_place_of_the_machine",
         ["1/2", "https://example.org/home/a", "a/tmp", "../work", "/a"]),
    ],
)
def test_rule_accepts_what_only_looks_like_a_fault(rule: str, sources: list[str]) -> None:
    for source in sources:
        assert RULES[rule]({"cells": [text(source)]}) == [], source
