"""Rules on what a chapter's reader meets: equations, figures, exercises, prose, papers.

Links are followed by the tests of the website.
"""

from __future__ import annotations

import re

from honesty.cells import (
    Cell,
    Notebook,
    Rule,
    code_cells,
    count_asserts,
    markdown_cells,
    shown,
    tags,
)
from tools import ROOT
from tools.counts import Counts, counts
from tools.notebooks import FIGURE_TAG

# -- equations ------------------------------------------------------------------------------------

EQUATION = re.compile(r"\$\$(?P<tex>.+?)\$\$(?:[ \t]*\((?P<label>[^()\s]+)\))?", re.DOTALL)


def displayed_equations(notebook: Notebook) -> list[tuple[str, str | None]]:
    """Return each `$$ … $$ (eq-name)` as the name of its cell and its label, in order."""
    return [
        (name, found["label"])
        for name, cell in markdown_cells(notebook)
        for found in EQUATION.finditer(without_code(cell["source"]))
    ]


def equation_labels(notebook: Notebook) -> list[str]:
    """Return the labels of the numbered equations, in order."""
    return [label for _, label in displayed_equations(notebook) if label]


def equations_are_evaluated(notebook: Notebook) -> list[str]:
    """Each displayed equation has a label, and a cell with it as tag and an assert; and back."""
    labels = equation_labels(notebook)
    evaluated: set[str] = set()
    faults = [
        f"{name}: a displayed equation without a label"
        for name, label in displayed_equations(notebook)
        if label is None
    ]
    for name, cell in code_cells(notebook):
        for tag in tags(cell):
            if not tag.startswith("eq-"):
                continue
            if tag not in labels:
                faults.append(f"{name}: tag {tag}, and no equation of that label")
            if count_asserts(cell):
                evaluated.add(tag)
            else:
                faults.append(f"{name}: tag {tag}, and no assert")
    for label in dict.fromkeys(labels):
        if not label.startswith("eq-"):
            faults.append(f"equation {label}: a label begins with eq-")
        elif label not in evaluated:
            faults.append(f"equation {label}: no cell evaluates it")
        if labels.count(label) > 1:
            faults.append(f"equation {label}: the label is used twice")
    return faults


# -- figures --------------------------------------------------------------------------------------

FEWEST_WORDS = 5
ALT = re.compile(r"""!\[(?P<alt>[^\]]*)\]\(|<img\b(?:[^>]*?\balt="(?P<of_img>[^"]*)")?""")
LABEL = re.compile(r'<svg\b[^>]*?\brole="img"[^>]*?\baria-label="([^"]*)"')


def figures_have_words(notebook: Notebook) -> list[str]:
    """Every drawing in an output, and every picture in the text, has a text of five words or more.

    What stands within a drawing needs none. Other pictures in an output have none.
    """
    faults = []
    for name, cell in code_cells(notebook):
        for output in cell["outputs"]:
            drawn = _html(output)
            said = LABEL.findall(drawn) or [""] * ("<svg" in drawn)
            said += [""] * any(kind.startswith("image/") for kind in output.get("data", {}))
            faults += [f"{name}: {words!r} of a drawing" for words in said if too_short(words)]
    for name, cell in markdown_cells(notebook):
        pictures = ALT.finditer(without_code(cell["source"]))
        said = [found["alt"] or found["of_img"] or "" for found in pictures]
        faults += [f"{name}: {words!r} of a picture" for words in said if too_short(words)]
    return faults


def too_short(words: str) -> bool:
    return len(words.split()) < FEWEST_WORDS


CAPTION = re.compile(r"# @title \S.*\.(?:\n|$)")


def figures_have_captions(notebook: Notebook) -> list[str]:
    """A cell that draws has a tag fig-… of its own, and a title of one sentence, its caption."""
    faults, names = [], []
    for name, cell in code_cells(notebook):
        drawn = any("attn-figure" in shown for shown in map(_html, cell["outputs"]))
        own = [tag for tag in tags(cell) if tag.startswith(FIGURE_TAG)]
        names += own
        if (drawn, len(own)) not in ((True, 1), (False, 0)):
            faults.append(f"{name}: {len(own)} tags {FIGURE_TAG}…, and {drawn * 1} drawings")
        if own and not CAPTION.match(cell["source"]):
            faults.append(f"{name}: no first line '# @title' with a sentence")
    return faults + [f"{name}: two cells" for name in set(names) if names.count(name) > 1]


def _html(output: dict[str, dict[str, object]]) -> str:
    return str(output.get("data", {}).get("text/html", ""))


# -- exercises ------------------------------------------------------------------------------------

FEWEST_EXERCISES = 3
EXERCISE = re.compile(r"(?m)^### Exercise (\d+)\b")


def exercises_are_checked(notebook: Notebook) -> list[str]:
    """Exercises 1, 2, 3 …, each with a folded solution, then a check cell of one assert or more."""
    found: list[tuple[str, list[Cell]]] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            found += [(number, []) for number in EXERCISE.findall(cell["source"])]
        elif found and cell["cell_type"] == "code":
            found[-1][1].append(cell)
    faults = []
    for expected, (number, cells) in enumerate(found, start=1):
        if number != str(expected):
            faults.append(f"exercise {number} stands where {expected} should")
        solutions = [cell for cell in cells if "solution" in tags(cell)]
        checks = [cell for cell in cells if "check" in tags(cell)]
        if (len(solutions), len(checks)) != (1, 1) or cells.index(checks[0]) != cells.index(
            solutions[0]
        ) + 1:
            faults.append(f"exercise {number}: not one solution cell and after it one check cell")
            continue
        if not solutions[0]["source"].startswith(f"# @title Solution {number}\n"):
            faults.append(f"exercise {number}: no first line '# @title Solution {number}'")
        if not count_asserts(checks[0]):
            faults.append(f"exercise {number}: its check asserts nothing")
    if len(found) < FEWEST_EXERCISES:
        faults.append(f"{len(found)} exercises, at least {FEWEST_EXERCISES} there are to be")
    return faults


HINT = re.compile(
    r'<details class="more"><summary>Hint (\d)</summary>\n\n(.+?)\n\n</details>', re.DOTALL
)


def exercises_have_hints(notebook: Notebook) -> list[str]:
    """The task of each exercise ends with two hints, folded: a nudge, and nearly the way."""
    faults = []
    for name, cell in markdown_cells(notebook):
        for number in EXERCISE.findall(cell["source"]):
            found = HINT.findall(cell["source"])
            if [n for n, _ in found] != ["1", "2"] or "(Hint" in cell["source"]:
                faults.append(f"{name}: exercise {number} has not just Hint 1 and Hint 2, folded")
    return faults


# -- predictions ----------------------------------------------------------------------------------

PREDICT = "**Predict"
ANSWER_TAG = "hide-output"  # of the cell whose output answers: tools/site/predictions.py folds it
BY_FIGURE_TAG = "predict-figure"  # of a question that a moving figure answers, in the reader's hand
FEWEST_PREDICTIONS, MOST_PREDICTIONS = 2, 4


def predictions_have_a_place(notebook: Notebook) -> list[str]:
    """Each **Predict** is answered by one folded output before the next text, or by a figure."""
    faults, asked, answers, total = [], "", 0, 0
    for number, cell in enumerate([*notebook["cells"], {"cell_type": "markdown"}], start=1):
        if cell["cell_type"] == "code":
            if ANSWER_TAG in tags(cell):
                answers += 1
                if not asked:
                    faults.append(f"cell {number}: folded, and no {PREDICT} stands before it")
                if not cell["outputs"]:
                    faults.append(f"cell {number}: answers, and shows nothing")
            continue
        if asked and answers != 1:
            faults.append(f"{asked}: {answers} folded answers follow the {PREDICT}, not 1")
        asked, answers = "", 0
        questions = cell.get("source", "").count(PREDICT)
        by_figure = questions > 0 and BY_FIGURE_TAG in tags(cell)
        total += questions
        if questions > 1:
            faults.append(f"cell {number}: {questions} times {PREDICT}, and one answer can follow")
        if questions and not by_figure:
            asked = f"cell {number}"
    if total > MOST_PREDICTIONS:
        faults.append(f"{total} predictions, at most {MOST_PREDICTIONS} there may be")
    return faults


def the_reader_is_asked_to_predict(notebook: Notebook) -> list[str]:
    """A chapter has two predictions or more."""
    total = sum(cell["source"].count(PREDICT) for _, cell in markdown_cells(notebook))
    return [] if total >= FEWEST_PREDICTIONS else [f"{total} predictions"]


# -- prose ----------------------------------------------------------------------------------------

FILLER = re.compile(r"\b(simply|obviously|magic\w*)\b", re.IGNORECASE)
LINK = re.compile(r"\]\(<?[^)\s>]+>?(?:\s+\"[^\"]*\")?\)|<https?://[^>]+>")
FENCE = re.compile(r"(?ms)^(`{3,}|~{3,}).*?^\1[^\n]*$")


def without_code(source: str) -> str:
    """Take fenced blocks and code spans out of Markdown text."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", " ", FENCE.sub(" ", source), flags=re.DOTALL)


def prose(source: str) -> str:
    """Return Markdown text without mathematics, code, addresses of links and HTML tags."""
    text = EQUATION.sub(" ", without_code(source))
    text = re.sub(r"(?<!\\)\$[^$\n]+(?:\n[^$\n]+)*\$", " ", text)
    return re.sub(r"<!--.*?-->|</?[A-Za-z][^>]*>", " ", LINK.sub("]", text), flags=re.DOTALL)


def page_has_its_size(notebook: Notebook, limit: Counts) -> list[str]:
    """No count of what a reader meets is above its limit; `make counts` prints all of them."""
    pairs = zip(Counts._fields, counts(notebook), limit, strict=True)
    return [f"{n} {name}, and the limit is {limit}" for name, n, limit in pairs if n > limit]


MINUTES = re.compile(
    r"\A# [^\n]+\n\n\*(\d+) minutes(?:, and (\d+) for the exercises)?\. [^\n]+\*\n"
)


def minutes_are_counted(notebook: Notebook) -> list[str]:
    """Right below the title, in italics: the minutes that are counted, and what the page needs."""
    said = MINUTES.match(notebook["cells"][0]["source"])
    *_, minutes, exercises = counts(notebook)
    if said and [int(n or 0) for n in said.groups()] == [minutes, exercises]:
        return []
    beside = f", and {exercises} for the exercises" * bool(exercises)
    wanted = f"*{minutes} minutes{beside}. …*"
    return [f"cell 1: no {wanted!r} below the title; got {said and said[0]!r}"]


def prose_is_plain(notebook: Notebook) -> list[str]:
    """No exclamation and no filler; a factorial stands in mathematics or in code."""
    faults = []
    for name, cell in markdown_cells(notebook):
        text = prose(cell["source"]).replace("![", "[").replace("!=", "")
        if "!" in text:
            faults.append(f"{name}: an exclamation mark")
        faults += [f"{name}: the word '{word}'" for word in FILLER.findall(text)]
    return faults


# -- papers ---------------------------------------------------------------------------------------

ARXIV = re.compile(r"arxiv\.org/(?:abs|pdf|html)/([a-z-]+/\d{7}|\d{4}\.\d{4,5})")
EPRINT = re.compile(r"(?im)^\s*eprint\s*=\s*[{\"]([^}\"]+)[}\"]")


def papers_are_in_the_bibliography(notebook: Notebook) -> list[str]:
    """A paper that is linked to stands in reference/references.bib, known by its arXiv number."""
    works = (ROOT / "reference" / "references.bib").read_text(encoding="utf-8")
    listed = set(EPRINT.findall(works))
    text = [(name, cell["source"]) for name, cell in markdown_cells(notebook)]
    text += [(name, cell["source"] + shown(cell)) for name, cell in code_cells(notebook)]
    return [
        f"{name}: arXiv {number} is not in references.bib"
        for name, source in text
        for number in ARXIV.findall(source)
        if number not in listed
    ]


RULES: tuple[Rule, ...] = (
    equations_are_evaluated,
    figures_have_words,
    figures_have_captions,
    exercises_have_hints,
    predictions_have_a_place,
    minutes_are_counted,
    prose_is_plain,
    papers_are_in_the_bibliography,
)
# A page below a chapter can do without.
CHAPTER_RULES: tuple[Rule, ...] = (
    exercises_are_checked,
    the_reader_is_asked_to_predict,
)
