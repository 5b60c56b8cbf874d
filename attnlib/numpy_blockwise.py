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

from attnlib._arrays import Call, checked_arrays, weighted_sum
from attnlib._checks import Array, Options, Shape, Window, blocks, checked_count, upcast
from attnlib._docstrings import ARRAYS, document


def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size: int = 128,
) -> Array:
    """Return the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, in tiles of `block_size` queries by `block_size` keys (at
    least 1). A tile in which no query may see a key is not read.

    Source:
        Milakov and Gimelshein 2018; Rabe and Staats 2021; chapter 12.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window, block_size=block_size,
    )[0]


def scaled_dot_product_attention_with_lse(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
    block_size: int = 128,
) -> tuple[Array, Array]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    size = checked_count("block_size", block_size, least=1)
    with np.errstate(all="ignore"):
        call = Call((query, key, value), options)
        output, lse = _fold(call, call.value, size)
        if not np.isfinite(output).all():
            # o = Σ_j exp(s_j - m) v_j may be infinite where the mean o / ℓ is not: for values
            # beside the largest number. Divided by a power of 2, they lose no digit. (For NaN that
            # is the caller's own, this second pass changes nothing.)
            exponent = call.n_keys.bit_length()
            again, _ = _fold(call, np.ldexp(call.value, -exponent), size)
            output = np.where(np.isfinite(output), output, np.ldexp(again, exponent))
        return call.finish(output, lse)


document(scaled_dot_product_attention, scaled_dot_product_attention_with_lse, ARRAYS)


def _fold(call: Call, value: Array, size: int) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp of a call, block of keys after block of keys."""
    n_features = value.shape[-1]
    output = np.empty((*call.batch, call.n_queries, n_features), call.dtype)
    lse = np.empty(output.shape[:-1], call.dtype)
    for rows in blocks(0, call.n_queries, size):
        state = SoftmaxState.empty(lse[..., rows].shape, n_features, call.dtype)
        for columns in blocks(*call.band.span(rows, call.n_keys), size):
            k, v = call.key[..., columns, :], value[..., columns, :]
            scores = call.query[..., rows, :] @ k.swapaxes(-1, -2) * call.scale
            state = state.update(call.masked(scores, rows, columns), v)
        output[..., rows, :], lse[..., rows] = state.finish()
    return output, lse


class SoftmaxState(NamedTuple):
    """What is kept of the keys seen so far, for each row.

    Shapes:
        m (…, L), ell (…, L), o (…, L, d_v); o is not yet divided by ell.

    Source:
        Milakov and Gimelshein 2018, algorithm 3; Rabe and Staats 2021; chapter 12.
    """

    m: Array  # the largest score
    ell: Array  # the sum of the weights exp(s - m)
    o: Array  # the sum of the weights times their values

    @classmethod
    def empty(cls, shape: Shape, n_features: int, dtype: Any = np.float64) -> SoftmaxState:
        """Return the state before the first key, (-∞, 0, 0), for `shape` (…, L) and d_v features.

        >>> SoftmaxState.empty((1,), 2)
        SoftmaxState(m=array([-inf]), ell=array([0.]), o=array([[0., 0.]]))
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
        scores = upcast(checked_arrays({"scores": scores})["scores"])
        value = upcast(checked_arrays({"value": value})["value"])
        n_rows, n_features = self.o.shape[-2:]
        block = scores.shape[-1:]
        if scores.shape[-2:] != (n_rows, *block) or value.shape[-2:] != (*block, n_features):
            wanted = f"(…, {n_rows}, B) and value (…, B, {n_features}) for this state"
            came = f"scores {scores.shape}, value {value.shape}"
            raise ValueError(f"scores must be {wanted}; got {came}")
        with np.errstate(all="ignore"):
            m_new = np.maximum(self.m, scores.max(axis=-1, initial=-np.inf))
            shift = _finite(m_new)
            rescale = np.exp(self.m - shift)
            weights = np.exp(scores - shift[..., None])
            ell = rescale * self.ell + weights.sum(axis=-1)
            o = rescale[..., None] * self.o + weighted_sum(weights, value, scores)
        return SoftmaxState(m_new, ell, o)

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """Return the state of the keys of both; no key may be in both.

        (m, ℓ, o) ⊕ (m', ℓ', o') = (M, e ℓ + e' ℓ', e o + e' o'), with M = max(m, m'),
        e = exp(m - M), e' = exp(m' - M). It is associative and commutative, and `empty` is its
        identity: keys may be cut into blocks, dealt out, and put together in any order.

        >>> one, two = (SoftmaxState.empty((1,), 1).update(s, s) for s in np.zeros((2, 1, 1)))
        >>> one.merge(two).ell
        array([2.])
        """
        if self.o.shape[-2:] != other.o.shape[-2:]:
            raise ValueError(f"states must share L and d_v; got {self.o.shape} and {other.o.shape}")
        with np.errstate(all="ignore"):
            m_new = np.maximum(self.m, other.m)
            shift = _finite(m_new)
            ours, theirs = np.exp(self.m - shift), np.exp(other.m - shift)
            ell = ours * self.ell + theirs * other.ell
            o = ours[..., None] * self.o + theirs[..., None] * other.o
        return SoftmaxState(m_new, ell, o)

    def finish(self) -> tuple[Array, Array]:
        """Return the output o / ℓ, (…, L, d_v), and the log-sum-exp m + log ℓ, (…, L).

        For a row that saw nothing they are 0 and -∞.
        """
        with np.errstate(all="ignore"):
            divisor = np.where(self.ell == 0, 1, self.ell)
            return self.o / divisor[..., None], self.m + np.log(self.ell)


def _finite(m: Array) -> Array:
    """Return m, with 0 for a row that saw nothing: its m is -∞, and -∞ - (-∞) is NaN."""
    return np.where(m == -np.inf, 0, m)
