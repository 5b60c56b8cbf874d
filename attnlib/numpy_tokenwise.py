"""The definition of attention, one query at a time. Every other form is held against this one.

For query i, with the keys j that may take part:

    s_ij = scale · (q_i · k_j) + mask_ij
    a_ij = exp(s_ij) / Σ_j exp(s_ij)
    o_i  = Σ_j a_ij v_j

Explicit loops and Python floats: slow, and right. All sums are in float64, whatever the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnlib._checks import Array
from attnlib._numpy_door import Call, attention


@attention(dtype=np.float64)  # makes the public signature, that of torch
def scaled_dot_product_attention(call: Call) -> tuple[Array, Array]:
    """Return the attention output: for each query a weighted mean of the values.

    softmax(scale · Q Kᵀ + mask) V, with scale = 1/√d_k where it is None.

    A key takes part in a query's row if the mask there is True, or a float other than -∞, and,
    with `is_causal`, if j ≤ i. A key that does not take part is not read: NaN in it changes
    nothing. NaN in what takes part gives NaN. A row in which no key takes part gives zeros.

    Source:
        Vaswani et al. 2017, equation 1; chapter 05.

    Example:
        The query is 0, so both keys get the weight 1/2, and the output is the mean of the values:

        >>> keys, values = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
        >>> scaled_dot_product_attention(np.array([[0.0]]), keys, values)
        array([[15.]])
    """
    output = np.zeros((*call.batch, call.n_queries, call.value.shape[-1]))
    lse = np.zeros(output.shape[:-1])
    for head in np.ndindex(call.batch):
        q, k, v, bias = call.lists(head)
        for i in range(call.n_queries):
            part = [j for j in range(call.n_keys) if bias[i][j] != -math.inf]
            scores = [call.scale * _dot(q[i], k[j]) + bias[i][j] for j in part]
            weights, lse[(*head, i)] = _softmax(scores)
            for c in range(output.shape[-1]):
                output[(*head, i, c)] = _dot(weights, [v[j][c] for j in part])
    return output, lse


scaled_dot_product_attention_with_lse = scaled_dot_product_attention.with_lse


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def _softmax(scores: Sequence[float]) -> tuple[list[float], float]:
    """Return the weights of one row, and the log of the sum of the exponentials."""
    # np.max hands a NaN on, which Python's max does only where it comes first.
    row_max = float(np.max(scores, initial=-math.inf))
    if row_max == -math.inf:  # nothing to attend to
        return [0.0 for _ in scores], -math.inf
    exponentials = [math.exp(score - row_max) for score in scores]
    row_sum = 0.0
    for exponential in exponentials:
        row_sum += exponential
    return [e / row_sum for e in exponentials], row_max + math.log(row_sum)
