"""The first page's line: a sentence of the reader's, and what one word takes from the others.

The vectors are rows of the table of word embeddings of all-MiniLM-L6-v2, made shorter by
`tools/everyday_words.py`; `data/NOTICE.txt` says how. Here query = key = value = a word's row. As
queries and keys the rows have length √d_k = 8, so that their entries are 1 in the mean of their
squares, as the argument for √d_k wants them; as values they have length 1. A word does not ask
itself.

The script of the page, `tools/site/assets/sentence.js`, computes the same from the same rows, and
tests/site/test_sentence.py compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlib.numpy_dense import attention_weights

Array = NDArray[np.float64]

STORED = Path(__file__).parent / "data" / "sentence.npz"
D_K = 64
DIVISORS = (1, 8, 64)  # 1, √d_k and d_k
# What the page opens on, and which of the words asks.
OPENING = (
    ("i wrote a python program", 3), ("the python ate a lizard", 1),
    ("he took money from the bank", 5),
)
# Words with two senses, and a word for each of them.
SENSES = {
    "mouse": "animal computer", "bank": "money water", "bat": "vampire baseball",
    "jam": "bread traffic", "virus": "disease computer", "crane": "bird steel",
    "python": "snake software", "pitcher": "baseball bottle", "bass": "music fish",
    "seal": "ocean letter", "apple": "fruit computer", "cell": "biology prison",
    "ring": "gold fight", "mass": "church weight", "trunk": "elephant car",
    "star": "planet actor", "palm": "hand tree", "spring": "winter water",
    "match": "fire football", "bark": "dog tree", "bow": "arrow ship", "plant": "flower factory",
    "mint": "coin tea", "tank": "army water", "organ": "church body", "chip": "potato computer",
    "cookie": "cake internet", "jaguar": "animal car", "club": "golf dance",
    "court": "tennis judge", "pool": "swimming cards", "fan": "wind football",
    "nail": "finger hammer", "key": "door piano", "date": "fruit calendar", "log": "wood computer",
    "web": "spider internet", "bug": "insect software", "window": "glass software",
    "cloud": "rain software", "port": "ship computer", "table": "kitchen data",
    "letter": "mail alphabet", "model": "fashion algorithm", "field": "grass physics",
}
FIRST = 80  # the character of a stored 0, one character a number


@cache
def stored() -> dict[str, NDArray[Any]]:
    """Return what the file has: words and rows, other words and the two nearest of each."""
    with np.load(STORED) as file:
        return dict(file)


@cache
def _places() -> dict[str, int]:
    return {str(word): place for place, word in enumerate(stored()["words"])}


def known() -> tuple[str, ...]:
    """Return the words that have a row, the common ones first.

    >>> known()[:5]
    ('a', 'i', 'the', 'of', 'and')
    """
    return tuple(_places())


def named() -> int:
    """Return how many of the known words, the first ones, are named as the nearest of a vector."""
    return int(stored()["named"])


@cache
def _rows() -> Array:
    rows = stored()["rows"].astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def vectors(tokens: Sequence[str]) -> Array:
    """Return the row of each word, of length 1.

    >>> vectors("she paid cash at the bank".split()).shape
    (6, 64)
    """
    return np.asarray(_rows()[[_places()[token] for token in tokens]])


def weights(tokens: Sequence[str], asks: int, divisor: float) -> Array:
    """Return what the word at a place takes from each word of a sentence; from its copies, nothing.

    >>> weights("she paid cash at the bank".split(), 5, 8).round(2).tolist()
    [0.02, 0.12, 0.81, 0.04, 0.01, 0.0]
    """
    x = D_K**0.5 * vectors(tokens)
    others = np.array(tokens) != tokens[asks]
    return np.asarray(attention_weights(x[[asks]], x, others[None], scale=1 / divisor)[0])


def nearest(vector: Array, tokens: Sequence[str], count: int = 3) -> list[str]:
    """Return the named words with the largest cosines to a vector, without those of a sentence.

    >>> nearest(vectors(["bank"])[0], ["bank"], count=2)
    ['banks', 'money']
    """
    order = (-_rows()[:named()] @ vector).argsort(kind="stable")
    near = (known()[place] for place in order[: count + len(tokens)])
    return [word for word in near if word not in tokens][:count]


def averages(tokens: Sequence[str], asks: int, divisor: float) -> dict[str, Array]:
    """Return the word's own row, the plain mean of the others, and what attention makes of them."""
    x = vectors(tokens)
    others = np.array(tokens) != tokens[asks]
    return {
        "alone": x[asks],
        "plain mean": x[others].mean(axis=0),
        "attention": weights(tokens, asks, divisor) @ x,
    }


def table(words: Sequence[str]) -> dict[str, str]:
    """Return words and their rows as the page's script reads them."""
    rows = stored()["rows"][[_places()[word] for word in words]]
    return {
        "words": " ".join(words),
        "rows": "".join(chr(FIRST + number) for number in rows.ravel().tolist()),
    }


def opening() -> dict[str, Any]:
    """Return what the page needs to open: the sentences, and every word that they can show."""
    words = {word for poles in SENSES.values() for word in poles.split()}
    for sentence, _ in OPENING:
        tokens = sentence.split()
        words |= {*tokens}
        for asks in range(len(tokens)):
            for divisor in DIVISORS:
                for average in averages(tokens, asks, divisor).values():
                    words |= {*nearest(average, tokens)}
    ordered = [word for word in known() if word in words]
    return {"sentences": OPENING, "senses": SENSES, "named": named(), **table(ordered)}


def scripts() -> dict[str, str]:
    """Return two scripts by the names of their files, which the page loads when it needs them.

    One has all words with their rows; the other names two of these for every word that has none.
    """
    others = {
        "words": " ".join(stored()["others"]),
        "nearest": stored()["nearest"].ravel().tolist(),
    }
    return {
        f"sentence_{name}.js": f"window.attnSentence = {json.dumps(data, separators=(',', ':'))};\n"
        for name, data in (("words", table(known())), ("others", others))
    }
