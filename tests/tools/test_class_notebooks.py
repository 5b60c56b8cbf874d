"""The notebooks of a class: no solution in them, a place to write, and checks that tell."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools import ROOT, class_notebooks
from tools.class_notebooks import class_notebook, defined, exercises, predicted, stub
from tools.notebooks import Notebook, normalise, read

PAGES = sorted(path.stem for path in (ROOT / "chapters").glob("*.ipynb"))
WITH_EXERCISES = [name for name in PAGES if exercises(read(ROOT / "chapters" / f"{name}.ipynb"))]


def page(name: str) -> Notebook:
    return read(ROOT / "chapters" / f"{name}.ipynb")


def tagged(notebook: Notebook, tag: str) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if tag in cell["metadata"].get("tags", [])]


def code(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "id": "", "metadata": {"tags": list(tags)}, "source": source}


@pytest.mark.parametrize("name", PAGES)
def test_no_line_of_a_solution_and_no_output_is_left(name: str) -> None:
    whole, handed_out = page(name), class_notebook(page(name))
    text = "\n".join(cell["source"] for cell in handed_out["cells"])
    for _, solution, _ in exercises(whole):
        others = [cell["source"] for cell in whole["cells"] if cell is not solution]
        for line in solution["source"].splitlines():
            is_its_own = len(line.strip()) > 12 and not any(line.strip() in one for one in others)
            if is_its_own and not line.startswith("def "):
                assert line.strip() not in text, line
    assert not any(cell.get("outputs") for cell in handed_out["cells"])
    assert not any("quiz.answers" in cell["source"] for cell in handed_out["cells"])


@pytest.mark.parametrize("name", PAGES)
def test_everything_else_is_there_and_each_exercise_has_its_place(name: str) -> None:
    whole, handed_out = page(name), class_notebook(page(name))
    assert len(tagged(handed_out, "exercise")) == len(exercises(whole))
    assert len(tagged(handed_out, "check")) == len(exercises(whole))
    texts = [cell["source"] for cell in whole["cells"] if cell["cell_type"] == "markdown"]
    kept = [cell["source"] for cell in handed_out["cells"] if cell["cell_type"] == "markdown"]
    start, end = class_notebooks.FOLD.split("{}")
    kept_texts = [one for one in kept if not one.startswith(class_notebooks.GUESS)]
    assert [one.replace(start, "", 1).replace(end, "", 1) if one.startswith(start) else one
            for one in kept_texts] == texts
    assert len(kept) - len(texts) == len(tagged(whole, class_notebooks.ANSWER_TAG))
    for cell in tagged(handed_out, "exercise") + tagged(handed_out, "check"):
        ast.parse(cell["source"])


def test_a_place_to_write_has_what_the_check_asks_for() -> None:
    check = code("assert double(2) == 4 and number == helper(3)", "check")
    solution = "def double(x, y=1):  # so\n    return 2 * x\n\n\nstep = 1\nnumber = step + 2"
    wanted, given, source = stub(solution, check, "### Exercise 1\n\nWrite it.")
    assert (wanted, given) == (["double", "number"], {})
    assert source == (
        "# Your code here\ndef double(x, y=1):\n    raise NotImplementedError\n\n\nnumber = ..."
    )


def test_code_with_a_mistake_is_handed_out_as_the_task_shows_it() -> None:
    task = "### Exercise 2\n\n```python\ndef double(x):\n    return x\n```\n\nFind it."
    wanted, given, source = stub("def double(x):\n    return 2 * x", code("double(2)"), task)
    assert source == "# Your code here\ndef double(x):\n    return x"
    assert wanted == list(given) == ["double"]


def test_what_tells_a_prediction_s_answer_comes_after_it() -> None:
    guess, asked, told = predicted(code("x = 2\nassert x == 2\nprint(x)", "hide-output", "eq-a"))
    assert guess["cell_type"] == "markdown"
    assert asked["source"] == "x = 2\nprint(x)" and asked["metadata"]["tags"] == ["eq-a"]
    assert told["source"].splitlines()[1:] == ["assert x == 2"]
    loop = "for x in [1, 2]:\n    print(x)\n    assert (x < 3) == (x is not 3)"
    assert [cell["source"] for cell in predicted(code(loop, "hide-output"))][1:] == [
        "for x in [1, 2]:\n    print(x)"
    ]
    answer = {"cell_type": "markdown", "id": "", "metadata": {}, "source": "It is 2.\n\n## Then"}
    cells = [code("print(2)", "hide-output"), answer]
    [*_, text] = class_notebook({"cells": cells})["cells"]
    assert text["source"] == f"{class_notebooks.FOLD.format('It is 2.')}\n\n## Then"


def test_the_command_writes_every_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert class_notebooks.main([str(tmp_path)]) == 0
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.ipynb")}
    assert {f"chapters/{name}.ipynb" for name in PAGES} < written
    assert capsys.readouterr().out.startswith(f"{len(written)} notebooks")


# -- run ------------------------------------------------------------------------------------------


def verdicts(notebook: Notebook) -> list[str]:
    """Run the notebook, in which nothing may raise, and return what its checks say."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    node = nbformat.from_dict(normalise(notebook))  # type: ignore[no-untyped-call]
    client = NotebookClient(
        node,
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT / "chapters")}},
    )
    client.execute()
    said = []
    for cell in tagged(node, "check"):
        lines = "".join(output.get("text", "") for output in cell["outputs"]).splitlines()
        [verdict] = [line for line in lines if re.match(r"Exercise \d+: ", line)]
        said.append(verdict.split(": ", 1)[1])
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXERCISES)
def test_untouched_every_check_says_still_to_write(name: str) -> None:
    said = verdicts(class_notebook(page(name)))
    assert said and all(verdict.startswith("still to write: ") for verdict in said), said


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXERCISES)
def test_a_wrong_answer_is_not_yet_and_the_solution_is_right(name: str) -> None:
    """Each exercise is answered twice: with 0 for all that is asked, and with our solution."""
    handed_out, solutions = class_notebook(page(name)), exercises(page(name))
    cells: list[dict[str, Any]] = []
    for cell in handed_out["cells"]:
        tags = cell["metadata"].get("tags", [])
        if "check" in tags:
            task, solution, check = solutions.pop(0)
            wanted, _, _ = stub(solution["source"], check, task)
            wrong = [
                f"def {name}(*arguments, **named):\n    return 0"
                if isinstance(defined(solution["source"])[name], ast.FunctionDef)
                else f"{name} = 0"
                for name in wanted
            ]
            cells += [{**cell, "source": "\n".join(wrong), "metadata": {}}, cell]
            cells += [{**cell, "source": solution["source"], "metadata": {}}, {**cell}]
        elif "exercise" not in tags:
            cells.append(cell)
    said = verdicts({**handed_out, "cells": [{**cell, "id": ""} for cell in cells]})
    assert all(verdict.startswith("not yet. ") for verdict in said[::2]), said
    assert all(verdict == "right." for verdict in said[1::2]), said
