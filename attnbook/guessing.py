"""Models that guess the next of a few random words, with a mask and without (chapter 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.nn.functional import cross_entropy

MODELS, KINDS, WIDTH = 10, 8, 16


def random_words(
    allowed: ArrayLike | None = None, n_words: int = 6, steps: int = 100
) -> NDArray[np.float32]:
    """Train ten small models to guess the next word of random texts, and return their losses.

    A word is one of eight, each as likely as the others, so nothing can be guessed from the words
    before it: equal shares have the loss log 8. A model is one attention on the sums of a vector
    for the word and one for its place, and a map from its output to the eight words. Adam trains
    all ten side by side, on the same texts from other beginnings. The losses are means over 500
    texts.

    Shapes:
        allowed (n_words, n_words), True where a word takes part, or None; returns (10,).

    >>> bool((random_words(steps=0) > 2).all())
    True
    """
    rng = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(MODELS, *shape, generator=rng)

    words, places = draw(KINDS, WIDTH), draw(n_words, WIDTH)
    maps: Sequence[torch.Tensor] = [draw(WIDTH, n) / WIDTH**0.5 for n in 3 * [WIDTH] + [KINDS]]
    parameters = [parameter.requires_grad_() for parameter in (words, places, *maps)]
    seen = torch.ones(n_words, n_words) if allowed is None else torch.tensor(np.asarray(allowed))
    adam = torch.optim.Adam(parameters, lr=0.02)

    def losses(n_texts: int) -> torch.Tensor:
        texts = torch.randint(KINDS, (n_texts, n_words), generator=rng)
        x = words[:, texts] + places[:, None]
        query, key, value, out = (M[:, None] for M in maps)
        scores = (x @ query) @ (x @ key).mT / WIDTH**0.5
        weights = scores.masked_fill(~seen.bool(), -torch.inf).softmax(dim=-1)
        guesses = (weights @ (x @ value) @ out)[:, :, :-1].flatten(1, 2).mT
        wanted = texts[:, 1:].flatten().expand(MODELS, -1)
        return cross_entropy(guesses, wanted, reduction="none").mean(dim=1)

    for _ in range(steps):
        adam.zero_grad()
        losses(32).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
    return losses(500).detach().numpy()
