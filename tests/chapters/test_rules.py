"""Each rule accepts a notebook that keeps it and refuses one, else the same, that breaks it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from honesty import RULES
from honesty.content import page_has_its_size

from tools.counts import LIMIT, Counts, counts
from tools.notebooks import MODELS_SETUP_CELL, SETUP_CELL, SETUP_TAG, TRITON_SETUP_CELL

Cell = dict[str, Any]
Notebook = dict[str, Any]
Change = Callable[[Notebook], object]

SVG = """<div class="attn-figure">
  <svg role="img" aria-label="A square of five words"><path d="M0 0"/></svg></div>"""
HINTS = "\n\n".join(
    f'<details class="more"><summary>Hint {n}</summary>\n\nAdd.\n\n</details>' for n in (1, 2)
)
CAPTION = "# @title A square has four sides."


def code(source: str, *outputs: Cell, tags: tuple[str, ...] = ()) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {"tags": list(tags)} if tags else {},
        "outputs": list(outputs),
        "source": source,
    }


def text(source: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def result(**data: str) -> Cell:
    kinds = {kind.replace("_", "/"): value for kind, value in data.items()}
    return {"output_type": "execute_result", "execution_count": 1, "data": kinds, "metadata": {}}


def stream(written: str, name: str = "stdout") -> Cell:
    return {"output_type": "stream", "name": name, "text": written}


def error() -> Cell:
    return {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["no"]}


def good() -> Notebook:
    """Return a small chapter that keeps every rule; the tests change its cells by their names."""
    cells = [
        text("# A title\n\n*10 minutes. Needs nothing.*\n\n" + "Some plain words. " * 350),
        code(SETUP_CELL, tags=("hide-cell", SETUP_TAG)),
        text("$$a = b$$ (eq-same)\n\nsee [the next](02_scores.ipynb#part), `!ls` and $5!$"),
        code("assert 1 == 1", tags=("eq-same",)),
        code("x = 2\nx", result(text_plain="2")),
        code("for i in range(2):\n    print(i)", stream("0\n1\n")),
        code(f"{CAPTION}\nfigure", result(text_html=SVG, text_plain="A square"), tags=("fig-a",)),
        code("raise ValueError('no')", error(), tags=("raises-exception",)),
        code("x", result(text_plain="2"), tags=("nbval-ignore-output", "timing")),
        code("np.testing.assert_allclose(x, x)"),
        *(code(f"assert {n} > 0") for n in range(1, 8)),
        text("**Predict**: what is x?"),
        code("x + 0", result(text_plain="2"), tags=("hide-output",)),
        {**text("**Predict**, then move it."), "metadata": {"tags": ["predict-figure"]}},
        text("by [Vaswani et al.](https://arxiv.org/abs/1706.03762)"),
    ]
    for n in (1, 2, 3):
        cells += [
            text(f"### Exercise {n}\n\nCompute it.\n\n{HINTS}"),
            code(f"# @title Solution {n}\ny = {n}", tags=("hide-cell", "solution")),
            code(f"assert y == {n}", tags=("check",)),
        ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def cell_of(notebook: Notebook, start: str) -> Cell:
    (found,) = [cell for cell in notebook["cells"] if cell["source"].startswith(start)]
    return found


def add(*cells: Cell) -> Change:
    return lambda notebook: notebook["cells"].extend(copy.deepcopy(list(cells)))


def put(start: str, **values: Any) -> Change:
    """Change the cell that starts so."""
    return lambda notebook: cell_of(notebook, start).update(values)


def retag(start: str, *tags: str) -> Change:
    return put(start, metadata={"tags": list(tags)})


def drop(start: str) -> Change:
    return lambda notebook: notebook["cells"].remove(cell_of(notebook, start))


def reword(source: str, old: str, new: str) -> Change:
    def change(notebook: Notebook) -> None:
        cell = cell_of(notebook, source)
        cell["source"] = cell["source"].replace(old, new)

    return change


PNG = {"output_type": "display_data", "data": {"image/png": "iVBO"}, "metadata": {}}
unchecked = code("x", result(text_plain="2"), tags=("nbval-skip", "device"))

BAD: dict[str, list[Change]] = {
    "every_cell_ran": [put("x = 2", execution_count=None)],
    "closing_expression_shows": [
        put("x = 2", outputs=[]),
        put(CAPTION, outputs=[]),
        add(code("values.sort()")),
        add(code("%matplotlib inline\nx")),
    ],
    "no_closing_semicolon": [put("x = 2", source="x;")],
    "print_prints": [put("for i", outputs=[]), add(code("if x:\n    print(x)\ny = 1"))],
    "errors_are_announced": [
        put("raise", outputs=[]),
        retag("raise"),
        retag("raise", "nbval-raises-exception"),
    ],
    "few_unchecked_outputs": [
        retag("x = 2", "nbval-ignore-output"),
        retag("x = 2", "nbval-skip"),
        retag("x = 2", "skip-execution"),
        add(unchecked, unchecked),
        put("x = 2", source="# NBVAL_IGNORE_OUTPUT\nx"),
        put("x = 2", source="x = 1\n#NBVAL_SKIP\nx"),
    ],
    "nothing_on_stderr": [add(code("x = 1", stream("RuntimeWarning", name="stderr")))],
    "no_install": [
        add(code("%pip install numpy")),
        add(code("!pip install numpy")),
        put("for i", outputs=[stream("Collecting numpy\n")]),
        put("for i", outputs=[stream("a\nSuccessfully installed numpy\n")]),
        put("# @title Set-up", outputs=[stream("ready")]),
    ],
    "no_place_of_the_machine": [
        put("x = 2", source="open('/home/me/a.txt')"),
        put("for i", outputs=[stream("File /root/a.py")]),
        put("for i", outputs=[stream("/tmp")]),
        put("for i", outputs=[stream("C:\\Users\\me")]),
        put("x = 2", outputs=[result(text_html="<a href='/Users/me'>")]),
        add(text("as in /workspace/main")),
        add(text("from https://" + "pypi" + ".org/simple")),
        put("for i", outputs=[stream("files." + "pythonhosted" + ".org")]),
    ],
    "short_cells": [
        put("x = 2", source="x = 1\n" * 16),
    ],
    "most_cells_are_short": [
        lambda notebook: [
            cell.update(source="x = 1\n\n" * 5)
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ],
    ],
    "one_thought_is_one_cell": [
        add(code("import numpy as np"), code("# @title More\nimport torch")),
        add(code("# @title Check\nassert 1 > 0"), code("# @title Check\nassert 2 > 0")),
    ],
    "set_up_first": [
        drop("# @title Set-up"),
        retag("# @title Set-up"),
        reword("# @title Set-up", "--no-deps ", ""),
        add(code("x = 1", tags=(SETUP_TAG,))),
        put("# @title Set-up", source=TRITON_SETUP_CELL),
        add(code("import triton")),
        put("# @title Set-up", source=MODELS_SETUP_CELL),
        add(code("from transformers import AutoModel")),
    ],
    "equations_are_evaluated": [
        drop("$$a = b$$"),
        put("assert 1 == 1", source="1 == 1"),
        retag("assert 1 == 1"),
        retag("assert 1 == 1", "eq-other"),
        add(text("$$c\n= d$$ (eq-second)")),
        add(text("$$c\n= d$$")),
        add(text("$$a = c$$ (eq-same)")),
        add(text("$$a = c$$ (other)")),
    ],
    "figures_have_words": [
        put(CAPTION, outputs=[result(text_html=SVG.replace(' role="img"', ""))]),
        put(CAPTION, outputs=[result(text_html=SVG.replace("of five words", ""))]),
        put(CAPTION, outputs=[result(text_html=SVG + "<svg></svg>")]),
        put(CAPTION, outputs=[{**result(), "data": {"image/svg+xml": "<svg></svg>"}}]),
        put(CAPTION, outputs=[PNG]),
        add(text("![a square](square.png)")),
        add(text('<img src="square.png">')),
    ],
    "exercises_are_checked": [
        drop("### Exercise 3"),
        drop("# @title Solution 2"),
        drop("assert y == 1"),
        put("assert y == 1", source="y == 1"),
        retag("assert y == 2"),
        reword("# @title Solution 2", "@title", "title"),
        reword("### Exercise 2", "2", "4"),
    ],
    "exercises_have_hints": [
        reword("### Exercise 2", "Hint 2", "Hint 3"),
        reword("### Exercise 2", HINTS, ""),
        reword("### Exercise 2", "Compute it.", "Compute it. (Hint: add.)"),
    ],
    "claims_are_asserted": [
        lambda notebook: [
            cell.update(source="x = 1")
            for cell in notebook["cells"]
            if cell["source"].startswith("assert")
            and "check" not in cell["metadata"].get("tags", [])
        ]
    ],
    "figures_have_captions": [
        put(CAPTION, source="figure"),
        reword(CAPTION, ".", ""),
        add(code(f"{CAPTION}\nfigure", result(text_html=SVG))),
        add(code(f"{CAPTION}\nfigure", result(text_html=SVG), tags=("fig-a",))),
        add(code(CAPTION, tags=("fig-b",))),
    ],
    "predictions_have_a_place": [
        retag("x + 0"),
        drop("x + 0"),
        put("x + 0", outputs=[]),
        reword("**Predict**:", "**Predict**:", "Tell:"),
        reword("**Predict**:", "is x?", "is x? **Predict** y."),
        retag("**Predict**, then"),
        retag("x = 2", "hide-output"),
        add(code("x", result(text_plain="2"), tags=("hide-output",))),
        add(*[{**text("**Predict**"), "metadata": {"tags": ["predict-figure"]}}] * 3),
    ],
    "the_reader_is_asked_to_predict": [reword("**Predict**:", "**Predict**:", "Tell:")],
    "an_equation_is_displayed": [put("$$a = b$$", source="$a = b$")],
    "minutes_are_counted": [
        reword("# A title", "10 minutes", "11 minutes"),
        reword("# A title", "*10", "10"),
        reword("# A title", "minutes. Needs", "minutes, needs"),
        reword("# A title", "\n\n*10 minutes", "\n\nSome.\n\n*10 minutes"),
        add(code("x = 1\n" * 60)),
    ],
    "prose_is_plain": [
        add(text("It works!")),
        add(text("We simply add.")),
        add(text("Obviously so.")),
        add(text("There is no magic.")),
    ],
    "papers_are_in_the_bibliography": [
        add(text("[a paper](https://arxiv.org/abs/0000.00000)")),
        add(text("[a paper](https://arxiv.org/pdf/0000.00000v2)")),
    ],
}
CASES = [
    pytest.param(rule, change, id=f"{rule}-{number}")
    for rule, changes in BAD.items()
    for number, change in enumerate(changes, start=1)
]


def test_every_rule_is_tried() -> None:
    assert set(BAD) == set(RULES)


@pytest.mark.parametrize(
    ("set_up", "line"),
    [
        (SETUP_CELL, ""),
        (TRITON_SETUP_CELL, "import triton.language as tl"),
        (MODELS_SETUP_CELL, "from transformers import AutoModel"),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_rule_accepts(rule: str, set_up: str, line: str) -> None:
    """Chapters that import more have another set-up cell."""
    notebook = good()
    put("# @title Set-up", source=set_up)(notebook)
    reword("x = 2", "x = 2", f"{line}\n\nx = 2")(notebook)
    assert RULES[rule](notebook) == []


@pytest.mark.parametrize(("rule", "change"), CASES)
def test_rule_refuses(rule: str, change: Change) -> None:
    notebook = good()
    change(notebook)
    faults = RULES[rule](notebook)
    assert faults and all(isinstance(fault, str) for fault in faults)


@pytest.mark.parametrize(
    "more",
    [
        [text("one two " * 800)],
        [code("x = 1", tags=("hide-cell",))] * 50,
        [text("$$a = b$$ (eq-more)")] * 9,
        [code("x = 1\n" * 65, tags=("hide-cell",))] * 4,
        [code("x = 1\n" * 55)] * 4,
    ],
)
def test_a_page_may_not_grow_beyond_its_limit(more: list[Cell]) -> None:
    notebook = good()
    assert page_has_its_size(notebook, LIMIT) == []
    add(*more)(notebook)
    assert page_has_its_size(notebook, LIMIT)


def test_counts_are_of_what_a_reader_meets() -> None:
    notebook = {
        "cells": [
            text("# A head\n\none, [two three](a.ipynb#part) $x+y$\n\n$$z\n= 1$$ (eq-z)\n\n* four"),
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
        folded=round(100 * (n_lines + 1) / (n_lines + 4)),
        formulas=1,
        minutes=1,
    )


@pytest.mark.parametrize(
    ("rule", "sources"),
    [
        ("prose_is_plain", ["$n!$", "`a != b`", "where a != b", "![A square of five words](a)"]),
        (
            "no_place_of_the_machine",
            ["1/2", "https://example.org/home/a", "a/tmp", "../work", "/a"],
        ),
    ],
)
def test_rule_accepts_what_only_looks_like_a_fault(rule: str, sources: list[str]) -> None:
    for source in sources:
        assert RULES[rule]({"cells": [text(source)]}) == [], source
