"""Attention one block of keys at a time: a softmax that never holds a whole row.

However many keys a row has seen, three things are kept of them (online softmax):

    m = max_j s_j        ℓ = Σ_j exp(s_j - m)        o = Σ_j exp(s_j - m) v_j

A block of keys may raise m to m'. Then exp(m - m') rescales what was added up before:

    m' = max(m, max_j s_j)
    ℓ' = exp(m - m') ℓ + Σ_j exp(s_j - m')
    o' = exp(m - m') o + Σ_j exp(s_j - m') v_j

At the end the output is o / ℓ and the log-sum-exp m + log ℓ. So attention is a fold over blocks,
in memory that grows with L + S for L queries and S keys, and not with L · S.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlib._checks import Array, Shape, blocks, check_dtypes, checked_count
from attnlib._numpy_door import Call, attention, check_array, weighted_sum, widened


@attention()  # makes the public signature, that of torch
def scaled_dot_product_attention(call: Call, *, block_size: int = 128) -> tuple[Array, Array]:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, in tiles of `block_size` queries by `block_size` keys (at
    least 1). A tile in which no query may see a key is not read.

    Source:
        Milakov and Gimelshein 2018; Rabe and Staats 2021; chapter 12.

    Example:
        >>> keys, values = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
        >>> scaled_dot_product_attention(np.array([[0.0]]), keys, values, block_size=1)
        array([[15.]])
    """
    size, n_features = checked_count("block_size", block_size, least=1), call.value.shape[-1]
    output = np.empty((*call.batch, call.n_queries, n_features), call.dtype)
    lse = np.empty(output.shape[:-1], call.dtype)
    for rows in blocks(0, call.n_queries, size):
        state = SoftmaxState.empty(lse[..., rows].shape, n_features, call.dtype)
        for columns in blocks(*call.span(rows), size):
            k, v = call.key[..., columns, :], call.value[..., columns, :]
            scores = call.query[..., rows, :] @ k.swapaxes(-1, -2) * call.scale
            state = state.update(call.masked(scores, rows, columns), v)
        output[..., rows, :], lse[..., rows] = state.finish()
    return output, lse


scaled_dot_product_attention_with_lse = scaled_dot_product_attention.with_lse


def _shift(row_max: Array) -> Array:
    # A row that saw nothing has the maximum -∞, and -∞ - (-∞) is NaN: it is shifted by 0.
    return np.where(row_max == -np.inf, 0, row_max)


class SoftmaxState(NamedTuple):
    """What is kept of the keys seen so far, for each row.

    Shapes:
        row_max (…, L), row_sum (…, L), output (…, L, d_v); output is not yet divided.

    Source:
        Milakov and Gimelshein 2018, algorithm 3; Rabe and Staats 2021; chapter 12.
    """

    row_max: Array  # m
    row_sum: Array  # ℓ
    output: Array  # o

    @classmethod
    def empty(cls, shape: Shape, n_features: int, dtype: Any = np.float64) -> SoftmaxState:
        """Return the state before the first key, (-∞, 0, 0), for `shape` (…, L) and d_v features.

        >>> SoftmaxState.empty((1,), 2)
        SoftmaxState(row_max=array([-inf]), row_sum=array([0.]), output=array([[0., 0.]]))
        """
        zeros = np.zeros((*shape, n_features), dtype)
        return cls(np.full(shape, -np.inf, dtype), np.zeros(shape, dtype), zeros)

    def update(self, scores: Array, value: Array) -> SoftmaxState:
        """Return the state after one more block of keys: m', ℓ', o' as above.

        A key with the score -∞ does not take part: its value counts for nothing.

        Shapes:
            scores (…, L, B), value (…, B, d_v).

        Raises:
            TypeError: for what is no floating array.
            ValueError: for shapes that do not fit.

        >>> state = SoftmaxState.empty((1,), 1).update(np.zeros((1, 2)), np.array([[1.0], [3.0]]))
        >>> state.update(np.zeros((1, 1)), np.array([[8.0]])).finish()[0]  # (1 + 3 + 8) / 3
        array([[4.]])
        """
        _check_block(self.output.shape, scores, value)
        scores, value = widened(scores), widened(value)
        with np.errstate(all="ignore"):
            row_max = np.maximum(self.row_max, scores.max(axis=-1, initial=-np.inf))
            shift = _shift(row_max)
            rescale = np.exp(self.row_max - shift)
            weights = np.exp(scores - shift[..., None])
            row_sum = rescale * self.row_sum + weights.sum(axis=-1)
            output = rescale[..., None] * self.output + weighted_sum(weights, value, scores)
        return SoftmaxState(row_max, row_sum, output)

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """Return the state of the keys of both; no key may be in both.

        (m, ℓ, o) ⊕ (m', ℓ', o') = (M, e ℓ + e' ℓ', e o + e' o'), with M = max(m, m'),
        e = exp(m - M), e' = exp(m' - M). It is associative and commutative, and `empty` is its
        identity: keys may be cut into blocks, dealt out, and put together in any order.

        >>> one, two = (SoftmaxState.empty((1,), 1).update(s, s) for s in np.zeros((2, 1, 1)))
        >>> one.merge(two).row_sum
        array([2.])
        """
        if self.output.shape[-2:] != other.output.shape[-2:]:
            raise ValueError(
                f"states must share L and d_v; got {self.output.shape} and {other.output.shape}"
            )
        with np.errstate(all="ignore"):
            row_max = np.maximum(self.row_max, other.row_max)
            shift = _shift(row_max)
            ours, theirs = np.exp(self.row_max - shift), np.exp(other.row_max - shift)
            row_sum = ours * self.row_sum + theirs * other.row_sum
            output = ours[..., None] * self.output + theirs[..., None] * other.output
        return SoftmaxState(row_max, row_sum, output)

    def finish(self) -> tuple[Array, Array]:
        """Return the output o / ℓ, (…, L, d_v), and the log-sum-exp m + log ℓ, (…, L).

        For a row that saw nothing they are 0 and -∞.
        """
        with np.errstate(all="ignore"):
            row_sum = np.where(self.row_sum == 0, 1, self.row_sum)
            return self.output / row_sum[..., None], self.row_max + np.log(self.row_sum)


def _check_block(state: Shape, scores: Array, value: Array) -> None:
    for name, array in (("scores", scores), ("value", value)):
        check_array(name, array)
        check_dtypes({name: array.dtype.name})
    n_rows, n_features = state[-2:]
    block = scores.shape[-1:]
    if scores.shape[-2:] != (n_rows, *block) or value.shape[-2:] != (*block, n_features):
        raise ValueError(
            f"scores must be (…, {n_rows}, B) and value (…, B, {n_features}) for this state; "
            f"got scores {scores.shape}, value {value.shape}"
        )
