"""What every call on arrays has in common: a call is checked and prepared here.

A `Call` holds query, key and value in the dtype to compute in, with an axis for grouped heads, and
knows who may attend to whom. An implementation computes output and log-sum-exp from it, and
`Call.finish` restores the caller's shape and dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlib._checks import Array, CheckedCall, Options, check_dtypes, out_of_range, upcast

EVERYTHING = slice(None)


def check_array(name: str, array: object) -> Array:
    """Require a NumPy array, and return it; of a subclass, such as np.matrix, the plain array."""
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    kind = type(array)
    came = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(array, np.ndarray):
        hint = "its mask would be lost; pass attn_mask"
    elif kind.__module__.partition(".")[0] == "torch":
        hint = "use a torch form for tensors"
    else:
        hint = "convert it with np.asarray"
    raise TypeError(f"{name} must be a numpy.ndarray; got {came} ({hint})")


def checked_arrays(arrays: Mapping[str, object]) -> dict[str, Array]:
    """Return the arrays, which must share one floating dtype."""
    plain = {name: check_array(name, array) for name, array in arrays.items()}
    check_dtypes({name: array.dtype.name for name, array in plain.items()})
    return plain


class Call(CheckedCall):
    """A call whose arguments have been checked.

    query (…, L, d_k), key (…, S, d_k) and value (…, S, d_v) have the dtype to compute in. With
    groups they, and `batch`, have one axis more, (…, H_kv, group, L, d_k) and (…, H_kv, 1, S, d_k),
    along which the keys broadcast; `out_batch` does not. NumPy's warnings, of NaN and ∞, are the
    caller's to silence.
    """

    def __init__(self, inputs: Sequence[object], options: Options, dtype: Any = None) -> None:
        """Check query and key, and the value unless scores or weights alone are computed."""
        known = checked_arrays(dict(zip(("query", "key", "value"), inputs, strict=False)))
        mask = options.attn_mask
        mask = None if mask is None else check_array("attn_mask", mask)
        super().__init__(known, mask, options, drops=False)
        self.lse_dtype = self.dtype = np.dtype(dtype or upcast(self.query[..., :0]).dtype)
        if out_of_range(self.scale, np.finfo(self.dtype)):
            self.dtype = np.dtype(np.float64)
        self.scale = self.dtype.type(self.scale)
        self.out_batch = self.batch
        if self.group != 1:
            self.batch = (*self.batch[:-1], self.key.shape[-3], self.group)
            self.key, self.value = self.key[..., None, :, :], self.value[..., None, :, :]
        self.query = self._grouped(self.query).astype(self.dtype, copy=False)
        self.key, self.value = (x.astype(self.dtype, copy=False) for x in (self.key, self.value))
        self.mask: Array | None = None
        if mask is not None:
            mask = self._grouped(np.atleast_2d(mask))
            shape = (*mask.shape[:-2], self.n_queries, self.n_keys)
            self.mask = np.broadcast_to(mask, shape)  # a view: no number is copied

    def _grouped(self, array: Array) -> Array:
        """Return (…, H, L, d_k) as (…, H_kv, group, L, d_k), where there are groups."""
        if self.group == 1 or array.ndim < 3:
            return array
        *batch, n_heads, n_rows, n_columns = array.shape
        pair = (1, 1) if n_heads == 1 else self.batch[-2:]
        return array.reshape(*batch, *pair, n_rows, n_columns)

    def masked(self, scores: Array, rows: slice = EVERYTHING, columns: slice = EVERYTHING) -> Array:
        """Return the scores after the mask, for these queries and keys.

        The score of a key that does not take part is -∞: it is replaced, so that nothing of it is
        left, NaN included.
        """
        removed = scores.dtype.type(-np.inf)
        if self.mask is not None:
            tile = self.mask[..., rows, columns]
            if tile.dtype == np.bool_:
                scores = np.where(tile, scores, removed)
            else:
                scores = np.where(tile != -np.inf, scores + tile.astype(scores.dtype), removed)
        rows, columns = slice(*rows.indices(self.n_queries)), slice(*columns.indices(self.n_keys))
        if not self.band.holds(rows, columns):
            queries, keys = np.ogrid[rows, columns]
            scores = np.where(self.band.sees(queries, keys), scores, removed)
        return scores

    def finish(self, output: Array, lse: Array) -> tuple[Array, Array]:
        """Return output and log-sum-exp in the shape and the dtype that the caller expects."""
        if np.isinf(output).any():
            # A mean lies among the values that its row sees. Beside the largest number there is,
            # the rounding of the weights can lift it beyond.
            infinite = np.isinf(self.value)
            sizes = np.where(np.isfinite(self.value), np.abs(self.value), 0)
            bound = sizes.max(axis=-2, keepdims=True, initial=0)
            for j in np.flatnonzero(infinite.reshape(-1, *infinite.shape[-2:]).any(axis=(0, 2))):
                one = slice(j, j + 1)
                seen = self.masked(np.zeros((self.n_queries, 1)), columns=one) != -np.inf
                bound = np.where(seen & infinite[..., one, :], np.inf, bound)
            output = output.reshape(*self.batch, self.n_queries, output.shape[-1])
            output = np.clip(output, -bound, bound)
        output = output.reshape(*self.out_batch, self.n_queries, output.shape[-1])
        # A value may have batch dimensions that the scores do not have.
        shape = (*self.batch, self.n_queries)
        lse = lse if lse.size == math.prod(shape) else np.broadcast_to(lse, shape).copy()
        lse = lse.reshape(output.shape[:-1]).astype(self.lse_dtype, copy=False)
        return output.astype(self.out_dtype, copy=False), lse


def weighted_sum(weights: Array, value: Array, scores: Array) -> Array:
    """Return A V, in which a value whose score is -∞ counts for nothing, even one that is NaN."""
    if np.isfinite(value).all() or not (scores == -np.inf).any():
        return np.asarray(np.matmul(weights, value))
    # 0 · NaN is NaN: the keys that hold such values are taken out of the product, and added
    # one at a time to the rows in which they take part.
    flat = value.reshape(-1, *value.shape[-2:])
    finite = np.asarray(np.isfinite(flat).all(axis=(0, 2)))
    output: Array = np.matmul(weights, np.where(finite[:, None], value, 0))
    for j in np.flatnonzero(~finite):
        one = slice(j, j + 1)
        added = weights[..., one] * value[..., one, :]
        output = output + np.where(scores[..., one] != -np.inf, added, 0)
    return output
