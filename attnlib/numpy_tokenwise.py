"""The definition of attention, one query at a time. Every other form is held against this one.

For query i, with the keys j that it may see:

    s_ij = scale · (q_i · k_j) + mask_ij
    a_ij = exp(s_ij) / Σ_j exp(s_ij)
    o_i  = Σ_j a_ij v_j

Explicit loops and Python floats: slow, and right. All sums are in float64, whatever the dtype. Who
may see whom is decided here, in `_sees`. What is shared with other forms checks the arguments,
keeps a mean beside the largest number finite, and restores the caller's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnlib._arrays import Call
from attnlib._checks import Array, Options, Window
from attnlib._docstrings import ARRAYS, document


def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> Array:
    """Return the attention output: for each query a weighted mean of the values.

    softmax(scale · Q Kᵀ + mask) V, with scale = 1/√d_k where it is None.

    A key takes part in a query's row if the mask there is True, or a float other than -∞, and if
    `is_causal` (j ≤ i) and `window` let it. A key that does not take part is not read: NaN in it
    changes nothing. NaN in what takes part gives NaN. A row in which no key takes part gives zeros.

    Source:
        Vaswani et al. 2017, equation 1; chapter 05.
    """
    return scaled_dot_product_attention_with_lse(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window,
    )[0]


def scaled_dot_product_attention_with_lse(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
) -> tuple[Array, Array]:
    """Return the attention output, and the natural log of each row's sum of exponentials."""
    options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
    with np.errstate(all="ignore"):
        call = Call((query, key, value), options, dtype=np.float64)  # checks all arguments
    n_queries, n_keys, batch = query.shape[-2], key.shape[-2], call.out_batch
    # Grouped query heads share a key head: head h has the keys of head h // (H / H_kv).
    group = query.shape[-3] // key.shape[-3] if options.enable_gqa else 1
    kv_batch = (*batch[:-1], key.shape[-3]) if options.enable_gqa else batch
    scale = 1 / math.sqrt(query.shape[-1] or 1) if options.scale is None else float(options.scale)
    mask = np.True_ if options.attn_mask is None else options.attn_mask
    bias = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
    queries = np.broadcast_to(query, (*batch, *query.shape[-2:]))
    keys, values = (np.broadcast_to(x, (*kv_batch, *x.shape[-2:])) for x in (key, value))
    biases = np.broadcast_to(bias, (*batch, n_queries, n_keys))
    output = np.zeros((*batch, n_queries, value.shape[-1]))
    lse = np.zeros(output.shape[:-1])
    for head in np.ndindex(batch):
        kv_head = (*head[:-1], head[-1] // group) if head else head
        q, k, v = _numbers(queries[head]), _numbers(keys[kv_head]), _numbers(values[kv_head])
        b = _numbers(biases[head])
        for i in range(n_queries):
            allowed = [j for j in range(n_keys) if _sees(i, j, n_queries, n_keys, options)]
            seen = [j for j in allowed if b[i][j] != -math.inf]
            scores = [scale * _dot(q[i], k[j]) + b[i][j] for j in seen]
            weights, lse[(*head, i)] = _softmax(scores)
            for c in range(output.shape[-1]):
                output[(*head, i, c)] = _dot(weights, [v[j][c] for j in seen])
    with np.errstate(all="ignore"):
        return call.finish(output, lse)


document(
    scaled_dot_product_attention, scaled_dot_product_attention_with_lse, ARRAYS, dtype="float64"
)


def _sees(i: int, j: int, n_queries: int, n_keys: int, options: Options) -> bool:
    """Return whether query i may see key j, as far as their positions decide it."""
    position = i + n_keys - n_queries if options.causal_align == "bottom-right" else i
    left, right = (None if n is None else int(n) for n in options.window or (None, None))
    return (
        not (options.is_causal and j > position)
        and not (left is not None and j < position - left)
        and not (right is not None and j > position + right)
    )


def _numbers(matrix: Array) -> list[list[float]]:
    with np.errstate(all="ignore"):  # some NaN would warn
        numbers: list[list[float]] = matrix.astype(np.float64).tolist()
    return numbers


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def _softmax(scores: Sequence[float]) -> tuple[list[float], float]:
    """Return the weights of one row, and the log of the sum of the exponentials."""
    # np.max hands a NaN on, which Python's max does only where it comes first.
    m = float(np.max(scores, initial=-math.inf))
    if m == -math.inf:  # nothing to attend to
        return [0.0 for _ in scores], -math.inf
    exponentials = [math.exp(score - m) for score in scores]
    row_sum = 0.0
    for exponential in exponentials:
        row_sum += exponential
    return [e / row_sum for e in exponentials], m + math.log(row_sum)
