"""The words of the first page's line: what is stored is the model's, and what the page is given."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from attnbook import sentence, trained
from attnlib.numpy_dense import attention_weights


def test_every_word_that_the_page_names_is_there() -> None:
    known = sentence.known()
    assert len(known) == len(set(known)) > 10_000
    assert not {*sentence.stored()["others"]} & {*known}
    named = [word for text, _ in sentence.OPENING for word in text.split()]
    named += [word for key, poles in sentence.SENSES.items() for word in (key, *poles.split())]
    assert not {*named} - {*known[:sentence.named()]}
    assert all(len(poles.split()) == 2 for poles in sentence.SENSES.values())


@pytest.mark.skipif(bool(trained.missing()), reason="the model is not installed")
def test_cosines_are_those_of_the_model_about() -> None:
    """Of 64 numbers of 384 less than the whole is left: here .88 in the correlation of cosines."""
    everyday_words = pytest.importorskip("tools.everyday_words")
    words, rows = everyday_words.table()
    places = {word: place for place, word in enumerate(words)}
    kept = rows[[places[word] for word in sentence.known()]]
    kept -= kept.mean(axis=0)
    kept /= np.linalg.norm(kept, axis=1)[:, None]
    short = sentence.vectors(sentence.known())
    some = np.triu_indices(300, 1)
    one, other = ((x[::12][:300] @ x[::12][:300].T)[some] for x in (kept, short))
    assert np.corrcoef(one, other)[0, 1] > 0.85


def test_the_page_opens_with_the_words_that_it_can_show() -> None:
    opening, whole = sentence.opening(), sentence.table(sentence.known())
    places = {word: place for place, word in enumerate(sentence.known())}
    for place, word in enumerate(opening["words"].split()):
        assert (opening["rows"][64 * place : 64 * (place + 1)]
                == whole["rows"][64 * places[word] : 64 * (places[word] + 1)])
    numbers = np.array([*map(ord, whole["rows"])]).reshape(-1, 64) - 80
    np.testing.assert_array_equal(numbers, sentence.stored()["rows"])
    assert whole["rows"].isascii() and whole["rows"].isprintable()


def test_a_word_would_take_nearly_all_from_itself_as_the_first_page_says() -> None:
    x = 8 * sentence.vectors(sentence.OPENING[0][0].split())
    assert 0.985 < attention_weights(x[[3]], x, scale=1 / 8)[0, 3] < 0.9955


def test_a_topic_can_mislead_as_the_first_page_says() -> None:
    ways = sentence.averages(["close", "the", "window", "of", "the", "program"], 2, 8)
    glass, software = sentence.vectors(sentence.SENSES["window"].split())
    leans = {name: float(way @ (software - glass)) for name, way in ways.items()}
    assert leans["plain mean"] > 0.1 and leans["attention"] < -0.1


LITTLE = ("a", "from", "he", "i", "in", "the")


def test_attention_against_equal_weights_without_little_words() -> None:
    """As the first page says: ahead in the sentences that it offers, behind in another one."""
    ahead = []
    for text, asks in (*sentence.OPENING, ("the cat chased the mouse", 4)):
        tokens = text.split()
        to = sentence.vectors(sentence.SENSES[tokens[asks]].split())
        axis = to[1] - to[0]
        rest = [one for one in tokens if one not in (tokens[asks], *LITTLE)]
        ways = sentence.averages(tokens, asks, 8)
        plain, rival = ways["plain mean"] @ axis, sentence.vectors(rest).mean(axis=0) @ axis
        moves = ways["attention"] @ axis - plain
        ahead.append(abs(moves) > abs(rival - plain) + 0.05 and moves * (rival - plain) > -0.01)
    assert ahead == [True, True, True, False]


def test_scripts_hold_all_words_and_where_the_others_are_near() -> None:
    words, others = (
        json.loads(text.removeprefix("window.attnSentence = ").removesuffix(";\n"))
        for text in sentence.scripts().values()
    )
    assert words == sentence.table(sentence.known())
    place = others["words"].split().index("fridays")
    near = [sentence.known()[one] for one in others["nearest"][2 * place : 2 * place + 2]]
    assert near == ["sundays", "friday"]


def test_the_changes_travel_with_the_numbers() -> None:
    notice = (files("attnbook") / "data" / "NOTICE.txt").read_text(encoding="utf-8")
    assert f"{len(sentence.known()):,} of the 30,522 rows" in notice
