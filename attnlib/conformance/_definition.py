"""The truth: the definition in float64, and the equations of its gradients.

Everything that a call says by keywords is turned into plain arrays first: groups into repeated
heads, is_causal, causal_align and window into a mask. So the truth is one formula, and shares
nothing with the code that it judges but `numpy_tokenwise`, the definition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlib import numpy_tokenwise
from attnlib._checks import Array, Shape, Window, checked_scale
from attnlib.conformance._calls import Call


class Problem(NamedTuple):
    """A call without keywords: float64 arrays, a mask or None, and a scale or None."""

    query: Array
    key: Array
    value: Array
    attn_mask: Array | None
    scale: float | None


def allowed_keys(
    n_queries: int,
    n_keys: int,
    *,
    is_causal: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Array | None:
    """Return the mask that the keywords stand for, (L, S), and None where they remove nothing.

    The position of query i among the keys is i, or i + S - L where the alignment is bottom-right.

    >>> allowed_keys(2, 3, is_causal=True, causal_align="bottom-right").astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    if not is_causal and window is None:
        return None
    first = n_keys - n_queries if causal_align == "bottom-right" else 0
    position = first + np.arange(n_queries)[:, None]
    key = np.arange(n_keys)
    left, right = window or (None, None)
    allowed: Array = np.ones((n_queries, n_keys), dtype=bool)
    if is_causal:
        allowed &= key <= position
    if left is not None:
        allowed &= key >= position - left
    if right is not None:
        allowed &= key <= position + right
    return allowed


def combined_mask(attn_mask: Array | None, allowed: Array | None) -> Array | None:
    """Return one mask for a mask of any kind and a boolean one."""
    if attn_mask is None or allowed is None:
        return allowed if attn_mask is None else attn_mask
    if attn_mask.dtype == np.bool_:
        return attn_mask & allowed
    return np.where(allowed, attn_mask, -np.inf)


def problem(call: Call) -> Problem:
    """Return the call without its keywords."""
    numbers = {name: given.numbers for name, given in call.given.items()} | call.meant
    options: dict[str, Any] = dict(call.options)
    scale = options.pop("scale", None)
    query, key, value = numbers["query"], numbers["key"], numbers["value"]
    if options.pop("enable_gqa", False):
        group = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, group, axis=-3), np.repeat(value, group, axis=-3)
    allowed = allowed_keys(query.shape[-2], key.shape[-2], **options)
    return Problem(query, key, value, combined_mask(numbers.get("attn_mask"), allowed), scale)


def output(call: Call) -> Array:
    """Return the output of the call."""
    if call.truth is not None:
        return call.truth
    query, key, value, attn_mask, scale = problem(call)
    return numpy_tokenwise.scaled_dot_product_attention(query, key, value, attn_mask, scale=scale)


def gradients(call: Call) -> dict[str, Array]:
    """Return the gradients of query, key, value and a floating mask.

    With dO the gradient of the output O = P V, and sums along a row in D:

        dV = Pᵀ dO    dP = dO Vᵀ    D = rowsum(P ∘ dP)    dS = P ∘ (dP - D)
        dQ = scale · dS K    dK = scale · dSᵀ Q    dM = dS

    A row with nothing to attend to has P = 0, and so gradients of 0. What was broadcast, or
    repeated for its group, gathers the sum.

    Source:
        Dao et al. 2022, appendix B.2; chapter 13.
    """
    assert call.upstream is not None
    query, key, value, attn_mask, scale = problem(call)
    d_output = call.upstream.numbers
    factor = checked_scale(scale, query.shape[-1])
    scores = factor * query @ key.swapaxes(-1, -2)
    allowed: Array = np.ones((1, 1), dtype=bool)
    if attn_mask is not None and attn_mask.dtype == np.bool_:
        allowed = attn_mask
    elif attn_mask is not None:
        allowed = attn_mask != -np.inf
        scores = scores + np.where(allowed, attn_mask, 0)
    allowed = np.broadcast_to(allowed, np.broadcast_shapes(allowed.shape, scores.shape))
    # A key that no query sees is not read: NaN in it is 0 here, as its weights are.
    seen = np.asarray(allowed.any(axis=-2))[..., None]
    if not seen.all():
        key, value = np.where(seen, key, 0), np.where(seen, value, 0)
    weights = _softmax(np.where(allowed, scores, -np.inf))
    d_value = weights.swapaxes(-1, -2) @ d_output
    d_weights = d_output @ value.swapaxes(-1, -2)
    row_sums = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - row_sums)
    found = {
        "query": factor * d_scores @ key,
        "key": factor * d_scores.swapaxes(-1, -2) @ query,
        "value": d_value,
        "attn_mask": d_scores,
    }
    return argument_gradients(call, found)


def argument_gradients(call: Call, found: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of a call's floating arguments, from those of its `problem`."""
    return {
        name: gathered(found[name], given.numbers.shape, grouped="enable_gqa" in call.options)
        for name, given in call.given.items()
        if given.dtype != "bool"
    }


def _softmax(scores: Array) -> Array:
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    total = powers.sum(axis=-1, keepdims=True)
    weights: Array = powers / np.where(total == 0, 1, total)
    return weights


def gathered(gradient: Array, shape: Shape, *, grouped: bool = False) -> Array:
    """Return the gradient of an array of this shape that was broadcast, or repeated for groups.

    >>> gathered(np.ones((2, 3, 4)), (3, 1))
    array([[8.],
           [8.],
           [8.]])
    """
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    if grouped and len(shape) > 2 and shape[-3] not in (1, gradient.shape[-3]):
        *leading, n_rows, n_columns = gradient.shape
        gradient = gradient.reshape(*leading[:-1], shape[-3], -1, n_rows, n_columns).sum(axis=-3)
    axes = tuple(n for n, length in enumerate(shape) if length == 1 != gradient.shape[n])
    total: Array = gradient.sum(axis=axes, keepdims=True)
    return total
