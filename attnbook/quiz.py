"""Questions that are asked again: at the end of a chapter, and in later chapters from memory.

Each chapter has a file of questions in `attnbook/data/questions`. A notebook shows them with
`questions("03_scaling")` and, at its beginning, two of earlier chapters with `again("04_softmax")`.
Every option opens by itself: what is shown needs no script, in the book, in Colab and on paper.

A right answer is computed: a cell of the chapter calls `answers("03_scaling")` and asserts each.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from functools import cache
from html import escape
from importlib import resources
from typing import NamedTuple


class Shown:
    """What a notebook shows as HTML, and where there is no HTML as words.

    >>> Shown("<p>two</p>", "two words")
    two words
    """

    def __init__(self, html: str, words: str) -> None:
        self.html, self.words = html, words

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.words


class Question(NamedTuple):
    """A question with one right answer, and wrong ones with the mistake that leads to each."""

    name: str
    text: str
    answer: str
    why: str
    wrong: dict[str, str]

    def options(self) -> list[str]:
        """Return all answers; the place of the right one hangs on the question's text alone."""
        place = zlib.crc32(self.text.encode()) % (len(self.wrong) + 1)
        others = list(self.wrong)
        return [*others[:place], self.answer, *others[place:]]


@cache
def _file(chapter: str) -> dict[str, object]:
    file = resources.files("attnbook") / "data" / "questions" / f"{chapter}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def chapters() -> list[str]:
    """Return the chapters that have questions, in order.

    >>> chapters()[0]
    '01_lookup'
    """
    folder = resources.files("attnbook") / "data" / "questions"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir())


def of_chapter(chapter: str) -> dict[str, Question]:
    """Return the questions of a chapter by their names."""
    found: dict[str, Question] = {}
    for name, entry in _file(chapter).items():
        if isinstance(entry, dict):
            found[name] = Question(
                name, entry["text"], entry["answer"], entry["why"], dict(entry["wrong"])
            )
    return found


def earlier(chapter: str) -> list[tuple[str, Question]]:
    """Return the questions of earlier chapters that this one asks again, each with its chapter."""
    names = _file(chapter).get("again", [])
    assert isinstance(names, list)
    pairs = [name.split(".") for name in names]
    return [(other, of_chapter(other)[name]) for other, name in pairs]


def answers(chapter: str) -> dict[str, str]:
    """Return the right answer to each question of a chapter, for the cell that computes it."""
    return {name: question.answer for name, question in of_chapter(chapter).items()}


def in_html(text: str) -> str:
    """Return text with `code` and *emphasis* as HTML.

    >>> in_html("*a* < `b`")
    '<em>a</em> &lt; <code>b</code>'
    """
    found = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*([^*\s](?:[^*]*[^*\s])?)\*", r"<em>\1</em>", found)


def _asked(question: Question, group: str) -> str:
    options = []
    for option in question.options():
        is_right = option == question.answer
        said = f"Yes. {question.why}" if is_right else f"No. {question.wrong[option]}"
        options.append(
            f'<details name="{group}"><summary>{in_html(option)}</summary>'
            f"<p>{in_html(said)}</p></details>"
        )
    return f"<li><p>{in_html(question.text)}</p>{''.join(options)}</li>"


def questions(chapter: str) -> Shown:
    """Show the questions of a chapter."""
    all_of_them = of_chapter(chapter)
    items = [_asked(each, f"{chapter}-{name}") for name, each in all_of_them.items()]
    words = f"{len(items)} questions; each option opens, and says why it is right or wrong."
    return Shown(f'<ol class="attn-quiz">{"".join(items)}</ol>', words)


def again(chapter: str) -> Shown:
    """Show the questions of earlier chapters that this one asks again, folded."""
    asked = earlier(chapter)
    items = [_asked(each, f"{chapter}-{other}-{each.name}") for other, each in asked]
    numbers = " and ".join(dict.fromkeys(str(int(other[:2])) for other, _ in asked))
    title = (
        f"Before you begin: {len(items)} questions from chapter{'s' * (' ' in numbers)} {numbers}"
    )
    html = f"<details><summary>{title}</summary><ol>{''.join(items)}</ol></details>"
    return Shown(f'<div class="attn-quiz">{html}</div>', title)


def deck() -> str:
    """Return all questions as a deck that Anki imports, one note a line.

    The first column is Anki's own identifier of a note. So a second import finds the notes of the
    first (tried with Anki 26.9: none is new), and changes those whose text has changed.
    """
    lines = [
        "#separator:tab",
        "#html:true",
        "#notetype:Basic",
        "#deck:Attention, step by step",
        "#guid column:1",
        "#tags column:4",
    ]
    for chapter in chapters():
        for name, question in of_chapter(chapter).items():
            back = f"<b>{in_html(question.answer)}</b><br>{in_html(question.why)}"
            front = in_html(question.text)
            lines.append("\t".join([f"attention-{chapter}-{name}", front, back, chapter]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(deck(), end="")
