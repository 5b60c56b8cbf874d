"""What ten models learn of random words: to look at the next one, if no mask forbids it."""

from __future__ import annotations

import numpy as np

from attnbook import guessing
from attnlib import masks


def test_no_model_beats_equal_shares_unless_it_sees_the_next_word() -> None:
    seen, blind, self_alone = (
        guessing.random_words(mask, steps=60) for mask in (None, masks.causal(6), np.eye(6) > 0)
    )
    assert seen.shape == (10,) and seen.max() < 0.2
    for losses in (blind, self_alone):  # a few thousandths below log 8 are luck
        assert (losses > np.log(8) - 0.01).all() and (losses < np.log(8) + 0.1).all()
    following = np.eye(6, k=1) > 0  # the next word, and nothing else; the last has none
    following[-1, -1] = True
    assert guessing.random_words(following, steps=60).max() < 0.2
