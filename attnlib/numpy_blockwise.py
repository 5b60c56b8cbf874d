"""Attention one block of keys at a time: a softmax that never holds a whole row.

However many keys a row has seen, three things are kept of them (online softmax):

    m = max_j s_j        ℓ = Σ_j exp(s_j - m)        o = Σ_j exp(s_j - m) v_j

A block of keys may raise m to m'; one factor puts right what was added up before:

    m' = max(m, max_j s_j)
    ℓ' = exp(m - m') ℓ + Σ_j exp(s_j - m')
    o' = exp(m - m') o + Σ_j exp(s_j - m') v_j

At the end the output is o / ℓ and the log-sum-exp m + log ℓ. So attention is a fold over blocks,
in memory that grows with L + S and not with L · S.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlib._checks import Array, Shape, check_array, check_dtypes, checked_count, numpy_call
from attnlib.numpy_dense import _masked, _scores, _weighted_sum, _widened


def _shift(row_max: Array) -> Array:
    # A row that saw nothing has the maximum -∞, and -∞ - (-∞) is NaN: it is shifted by 0.
    return np.where(row_max == -np.inf, 0, row_max)


class SoftmaxState(NamedTuple):
    """What is kept of the keys seen so far, for each row.

    Shapes: row_max (…, L), row_sum (…, L), output (…, L, E_v); output is not yet divided.
    Source: Milakov and Gimelshein 2018, algorithm 3; Rabe and Staats 2021; chapter 12.
    """

    row_max: Array  # m
    row_sum: Array  # ℓ
    output: Array  # o

    @classmethod
    def empty(cls, shape: Shape, n_features: int, dtype: Any = np.float64) -> SoftmaxState:
        """Give the state before the first key, (-∞, 0, 0), for `shape` (…, L) and E_v features.

        >>> SoftmaxState.empty((1,), 2)
        SoftmaxState(row_max=array([-inf]), row_sum=array([0.]), output=array([[0., 0.]]))
        """
        zeros = np.zeros((*shape, n_features), dtype)
        return cls(np.full(shape, -np.inf, dtype), np.zeros(shape, dtype), zeros)

    def update(self, scores: Array, value: Array, part: Array | None = None) -> SoftmaxState:
        """Give the state after one more block of keys: m', ℓ', o' as above.

        A removed key has the score -∞, and False in `part`: then its value counts for nothing.

        Shapes: scores (…, L, B), value (…, B, E_v), part broadcasts to (…, L, B).
        Raises: TypeError for what is no floating array; ValueError for shapes that do not fit.

        >>> state = SoftmaxState.empty((1,), 1).update(np.zeros((1, 2)), np.array([[1.0], [3.0]]))
        >>> state.update(np.zeros((1, 1)), np.array([[8.0]])).finish()[0]  # (1 + 3 + 8) / 3
        array([[4.]])
        """
        _check_block(self.output.shape, scores, value)
        scores, value = _widened(scores), _widened(value)
        with np.errstate(all="ignore"):
            row_max = np.maximum(self.row_max, scores.max(axis=-1, initial=-np.inf))
            shift = _shift(row_max)
            rescale = np.exp(self.row_max - shift)
            weights = np.exp(scores - shift[..., None])
            row_sum = rescale * self.row_sum + weights.sum(axis=-1)
            output = rescale[..., None] * self.output + _weighted_sum(weights, value, part)
        return SoftmaxState(row_max, row_sum, output)

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """Give the state of the keys of both; no key may be in both.

        (m, ℓ, o) ⊕ (m', ℓ', o') = (M, e ℓ + e' ℓ', e o + e' o'), with M = max(m, m'),
        e = exp(m - M), e' = exp(m' - M). It is associative and commutative, and `empty` is its
        identity: keys may be cut into blocks, dealt out, and put together in any order.

        >>> one, two = (SoftmaxState.empty((1,), 1).update(s, s) for s in np.zeros((2, 1, 1)))
        >>> one.merge(two).row_sum
        array([2.])
        """
        if self.output.shape[-2:] != other.output.shape[-2:]:
            raise ValueError(
                f"states must share L and E_v; got {self.output.shape} and {other.output.shape}"
            )
        with np.errstate(all="ignore"):
            row_max = np.maximum(self.row_max, other.row_max)
            shift = _shift(row_max)
            ours, theirs = np.exp(self.row_max - shift), np.exp(other.row_max - shift)
            row_sum = ours * self.row_sum + theirs * other.row_sum
            output = ours[..., None] * self.output + theirs[..., None] * other.output
        return SoftmaxState(row_max, row_sum, output)

    def finish(self) -> tuple[Array, Array]:
        """Give the output o / ℓ, (…, L, E_v), and the log-sum-exp m + log ℓ, (…, L).

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


def _blocks(stop: int, size: int) -> list[slice]:
    """Cut 0 … stop - 1 into blocks, of which the last may be shorter."""
    return [slice(start, min(start + size, stop)) for start in range(0, stop, size)]


def _headroom(value: Array, dtype: Any) -> int:
    """Return the exponent by which values must be smaller, so that a sum of S is a finite number.

    They are added up before they are divided by ℓ. It is 0, unless a value lies within a factor
    2 S of the largest number. A power of 2 changes no digit.
    """
    n_keys = value.shape[-2]
    largest = max(float(value.max(initial=0)), -float(value.min(initial=0)))
    return (2 * n_keys).bit_length() if largest > np.finfo(dtype).max / (2 * n_keys) else 0


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    block_size: int = 128,
) -> Array:
    """Give the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, in tiles of `block_size` queries by `block_size` keys (at
    least 1). With `is_causal` a tile in which no query may see a key is not read.
    Shapes, masks and errors are those of `numpy_tokenwise.scaled_dot_product_attention`.

    >>> keys, values = np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
    >>> scaled_dot_product_attention(np.array([[0.0]]), keys, values, block_size=1)
    array([[15.]])
    """
    output, _ = scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal,
        scale=scale, enable_gqa=enable_gqa, block_size=block_size,
    )  # fmt: skip
    return output


def scaled_dot_product_attention_with_lse(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    block_size: int = 128,
) -> tuple[Array, Array]:
    """Give the attention output, and the log-sum-exp of each row; see `numpy_dense`.

    >>> zeros = np.zeros((4, 1))
    >>> _, lse = scaled_dot_product_attention_with_lse(zeros, zeros, zeros, block_size=3)
    >>> np.exp(lse).round(12)
    array([4., 4., 4., 4.])
    """
    call = numpy_call(
        {"query": query, "key": key, "value": value},
        attn_mask, dropout_p, is_causal, scale, enable_gqa,
    )  # fmt: skip
    block_size = checked_count("block_size", block_size, least=1)
    output = np.empty((*call.batch, call.n_queries, value.shape[-1]), query.dtype)
    lse = np.empty(output.shape[:-1], _widened(query[..., :0]).dtype)
    if attn_mask is not None:  # a view: no number is copied
        attn_mask = np.broadcast_to(attn_mask, (*attn_mask.shape[:-2], call.n_queries, call.n_keys))
    with np.errstate(all="ignore"):
        # What no query may see is not read here either.
        value = np.asarray(value)[..., : call.n_queries if is_causal else None, :]
        exponent = _headroom(value, lse.dtype)
        if exponent:
            value = np.ldexp(_widened(value), -exponent)
        for rows in _blocks(call.n_queries, block_size):
            state = SoftmaxState.empty(lse[..., rows].shape, value.shape[-1], lse.dtype)
            # Query i sees the keys 0 … i, so that tiles beyond the diagonal are left out.
            n_seen = min(rows.stop, call.n_keys) if is_causal else call.n_keys
            for columns in _blocks(n_seen, block_size):
                k, v = key[..., columns, :], value[..., columns, :]
                if call.group != 1:  # each key head, `group` times in a row
                    k, v = (np.repeat(array, call.group, axis=-3) for array in (k, v))
                scores = _scores(query[..., rows, :], k, call.scale)
                tile = None if attn_mask is None else attn_mask[..., rows, columns]
                scores, part = _masked(scores, tile, is_causal and rows.start == columns.start)
                state = state.update(scores, v, part)
            block, lse[..., rows] = state.finish()
            output[..., rows, :] = np.ldexp(block, exponent) if exponent else block
    return output, lse
