"""What is stored of the models of a page below chapter 17 and of one below chapter 21.

The pages are "Which program is learned?" and "A state and a softmax", which define the models.
`python -m tools.measure_learning` writes the stored numbers anew.
"""

# mypy: ignore-errors

import json
from importlib.resources import files

import numpy as np
import torch


def stored():
    """Return what was measured once, with the day.

    >>> stored()["measured"]["SiLU"]["day"]
    '2026-11-28'
    """
    return json.loads((files("attnbook") / "data" / "learning.json").read_text(encoding="utf-8"))


def measured(what):
    """Return one of the experiments: the steps, and by model an array of results.

    The axes are seeds, steps, and the three shares: right guesses, and after a skip what followed
    and what is due.

    >>> at, found = measured("kinds")
    >>> at, found["one layer, sum"].shape
    ([200, 300, 500, 1000], (10, 4, 3))
    """
    found = stored()[what]
    return found["at"], {name: np.array(rows) for name, rows in found["found"].items()}


def softmax(S):
    future = torch.ones_like(S).triu(1).bool()
    return S.masked_fill(future, -torch.inf).softmax(-1)
