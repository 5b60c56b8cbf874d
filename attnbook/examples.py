"""The numbers that the course computes with: one running example, and two published ones.

Each call returns new arrays, so that one page cannot change the numbers of another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Running(NamedTuple):
    """Three tokens and three projections, with d_model = 4, d_k = 2, d_v = 3."""

    tokens: tuple[str, str, str]
    X: Array
    W_Q: Array
    W_K: Array
    W_V: Array


class PublishedIdentity(NamedTuple):
    """The example of "Self-Attention Computation Process", as printed, errors included."""

    X: Array
    W_Q: Array
    W_K: Array
    W_V: Array
    raw_scores: Array  # printed as Q Kᵀ
    scores: Array  # printed as Q Kᵀ / √3
    first_row_weights: Array  # the only row of weights that is printed


class PublishedTorchSession(NamedTuple):
    """The torch session of "Self-Attention", as printed; q = k = v = x."""

    x: Array
    inner: Array  # x xᵀ / √3
    sfm: Array  # softmax of inner along its rows
    output: Array  # sfm @ v


def running() -> Running:
    """Return the running example of the course.

    The features of a token are: article, noun, verb, animate. All inputs are integers and
    halves, so that Q = X W_Q, K = X W_K and V = X W_V can be had in the head.

    Shapes:
        X (3, 4), W_Q (4, 2), W_K (4, 2), W_V (4, 3), in float64.

    Source:
        made for this course.

    >>> example = running()
    >>> (example.X @ example.W_Q) @ (example.X @ example.W_K).T
    array([[ 0.  ,  2.  , -2.  ],
           [ 0.  , -1.  ,  1.  ],
           [-1.5 ,  1.5 ,  0.75]])
    """
    return Running(
        tokens=("the", "cat", "sat"),
        X=np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.5]]),
        W_Q=np.array([[2.0, 0.0], [-1.0, 1.0], [0.0, -1.0], [0.0, -1.0]]),
        W_K=np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]),
        W_V=np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]]),
    )


def published_identity() -> PublishedIdentity:
    """Return the worked example with identity projections, as its document prints it.

    Of its 25 raw scores 15 are wrong, and its row of weights is not the softmax of its scores:
    compute with X and the projections alone. Chapter 6 sets both beside each other.

    Shapes:
        X (5, 3), W_Q, W_K and W_V (3, 3), raw_scores and scores (5, 5), first_row_weights (5,), in
        float64.

    Source:
        "Self-Attention Computation Process", steps 1 to 4.

    >>> example = published_identity()
    >>> float((example.X[1] @ example.X[2]).round(2)), float(example.raw_scores[1, 2])
    (1.89, 1.89)
    >>> float((example.X[0] @ example.X[2]).round(2)), float(example.raw_scores[0, 2])
    (1.27, 1.48)
    """
    return PublishedIdentity(
        X=np.array(
            [[1.0, 0.5, 0.2], [0.8, 1.2, 0.3], [0.6, 0.9, 1.1], [1.1, 0.4, 0.7], [0.9, 0.7, 0.8]]
        ),
        W_Q=np.eye(3),
        W_K=np.eye(3),
        W_V=np.eye(3),
        raw_scores=np.array(
            [
                [1.29, 1.46, 1.48, 1.35, 1.41],
                [1.46, 2.17, 1.89, 1.61, 1.69],
                [1.48, 1.89, 2.38, 1.69, 1.91],
                [1.35, 1.61, 1.69, 1.66, 1.63],
                [1.41, 1.69, 1.91, 1.63, 1.94],
            ]
        ),
        scores=np.array(
            [
                [0.74, 0.84, 0.85, 0.78, 0.81],
                [0.84, 1.25, 1.09, 0.93, 0.98],
                [0.85, 1.09, 1.37, 0.98, 1.10],
                [0.78, 0.93, 0.98, 0.96, 0.94],
                [0.81, 0.98, 1.10, 0.94, 1.12],
            ]
        ),
        first_row_weights=np.array([0.182, 0.204, 0.207, 0.192, 0.198]),
    )


def published_torch_session() -> PublishedTorchSession:
    """Return the torch session with q = k = v = x, as its document prints it (four decimals).

    Its numbers are right to one unit of the last decimal printed.

    Shapes:
        x and output (4, 3), inner and sfm (4, 4), in float64.

    Source:
        "Self-Attention", the session at the end.

    >>> example = published_torch_session()
    >>> bool(np.abs(example.x @ example.x.T / np.sqrt(3) - example.inner).max() < 1.5e-4)
    True
    """
    return PublishedTorchSession(
        x=np.array(
            [
                [0.5245, 1.0470, -1.6467],
                [2.1202, 0.7773, -0.7941],
                [0.0405, 1.2870, 1.7759],
                [-0.5583, 1.5262, -1.6624],
            ]
        ),
        inner=np.array(
            [
                [2.3573, 1.8669, -0.8983, 2.3340],
                [1.8669, 3.3082, -0.1871, 0.7637],
                [-0.8983, -0.1871, 2.7782, -0.5836],
                [2.3340, 0.7637, -0.5836, 3.1204],
            ]
        ),
        sfm=np.array(
            [
                [0.3805, 0.2330, 0.0147, 0.3718],
                [0.1759, 0.7432, 0.0226, 0.0584],
                [0.0228, 0.0464, 0.8997, 0.0312],
                [0.2892, 0.0602, 0.0156, 0.6350],
            ]
        ),
        output=np.array(
            [
                [0.4867, 1.1658, -1.4037],
                [1.6363, 0.8799, -0.9368],
                [0.1293, 1.2653, 1.4716],
                [-0.0746, 1.3388, -1.5519],
            ]
        ),
    )
