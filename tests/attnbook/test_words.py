"""The word vectors of chapter 5: what is stored, and what is refused."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest

from attnbook import words


def test_forty_words_with_rows_of_length_one() -> None:
    assert len(words.known()) == 40 and list(words.known()) == sorted(words.known())
    rows = words.vectors(words.known())
    assert rows.shape == (40, 384) and rows.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
    cosines = rows @ rows.T - np.eye(40)
    assert cosines.min() > -0.2 and cosines.max() < 0.7  # no word twice under two names


def test_cosines_are_those_of_the_model() -> None:
    """Computed once from the float32 table of the model, before it was rounded to float16."""
    bank = words.vectors("bank")[0]
    cosines = words.vectors("water money shore finance") @ bank
    assert cosines.round(3).tolist() == [0.216, 0.398, 0.163, 0.325]


def test_nobody_can_change_a_vector_for_somebody_else() -> None:
    first = words.vectors("bank")
    first[...] = 0
    assert words.vectors("bank").any()


@pytest.mark.parametrize(
    ("asked", "came"), [("the bonk", "'bonk'"), (["Bank", "?"], "'Bank', '?'"), ("", "none")]
)
def test_a_word_without_a_vector_is_named(asked: str | list[str], came: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"the 40 in words.known(); got {came}")):
        words.vectors(asked)


def test_the_licence_and_the_changes_travel_with_the_numbers() -> None:
    data = files("attnbook") / "data"
    notice = (data / "NOTICE.txt").read_text(encoding="utf-8")
    licence = (data / "LICENSE-Apache-2.0.txt").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "40 of the 30,522 rows" in notice and "Version 2.0, January 2004" in licence
