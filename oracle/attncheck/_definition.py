"""The truth: the definition in float64, and the equations of its gradients.

Everything that a call says by keywords is turned into plain arrays first: groups into repeated
heads, is_causal, causal_align and window into a mask. So the truth is one formula, `attention`,
which shares nothing with the code that it judges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attncheck._calls import Call, Documents, Pages
from attncheck._tolerance import gathered, masked_scores, with_sinks
from attncheck._types import Array, Problem, Window, scale_of


def allowed_keys(
    n_queries: int, n_keys: int, *, is_causal: bool = False, causal_align: str = "top-left",
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


def of_documents(documents: Documents, options: dict[str, Any]) -> Array:
    """Return the mask of texts in a row, each with its own is_causal and window.

    >>> of_documents(Documents((2, 1), (2, 2)), {"is_causal": True}).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0]])
    """
    allowed: Array = np.zeros((sum(documents.queries), sum(documents.keys)), dtype=bool)
    row, column = 0, 0
    for n_queries, n_keys in zip(*documents, strict=True):
        block = allowed_keys(n_queries, n_keys, **options)
        there = slice(row, row + n_queries), slice(column, column + n_keys)
        allowed[there] = True if block is None else block
        row, column = row + n_queries, column + n_keys
    return allowed


def of_pages(pool: Array, pages: Pages) -> Array:
    """Return the keys of each sequence, (B, H, S, E), from a pool (n_pages, H, page, E)."""
    found = [np.concatenate(list(pool[list(row)]), axis=-2) for row in pages.table]
    return np.stack(found)


def within_pages(n_queries: int, pages: Pages, n_keys: int, options: dict[str, Any]) -> Array:
    """Return the mask of what lies in pages: keys up to a length, the last query at the last."""
    allowed: Array = np.zeros((len(pages.lengths), 1, n_queries, n_keys), dtype=bool)
    for row, length in enumerate(pages.lengths):
        align = {"causal_align": "bottom-right"} | options
        block = allowed_keys(n_queries, length, **align)
        allowed[row, :, :, :length] = True if block is None else block
    return allowed


def problem(call: Call) -> Problem:
    """Return the call without its keywords."""
    numbers = {name: given.numbers for name, given in call.given.items()} | call.meant
    options: dict[str, Any] = dict(call.options)
    scale, softcap = options.pop("scale", None), options.pop("softcap", None)
    query, key, value = numbers["query"], numbers["key"], numbers["value"]
    if call.pages is not None:
        key, value = of_pages(key, call.pages), of_pages(value, call.pages)
    if options.pop("enable_gqa", False):
        group = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, group, axis=-3), np.repeat(value, group, axis=-3)
    allowed: Array | None
    if call.documents is not None:
        allowed = of_documents(call.documents, options)
    elif call.pages is not None:
        allowed = within_pages(query.shape[-2], call.pages, key.shape[-2], options)
    else:
        allowed = allowed_keys(query.shape[-2], key.shape[-2], **options)
    mask = combined_mask(numbers.get("attn_mask"), allowed)
    return Problem(query, key, value, mask, scale, softcap, numbers.get("sinks"))


# The functions of Python itself, whose last bit does not hang on the instructions of the CPU.
_exp = np.vectorize(math.exp, otypes=[np.float64])
_log = np.vectorize(math.log, otypes=[np.float64])


def attention(own: Problem) -> tuple[Array, Array]:
    """Return softmax(scale · Q Kᵀ + mask) V, and the log-sum-exp of each row.

    A soft cap bounds the scores before the mask: cap · tanh(score / cap). A sink is one more key,
    with a score of its own and a value of 0.

    All queries of all heads go together, since a check needs hundreds of truths; of keys, one comes
    after the other, as in a loop over them. So each sum adds its terms in the order of the keys.

    >>> query, key, value = np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
    >>> attention(Problem(query, key, value))[0]
    array([[15.]])
    """
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in own[:3]))
    query, key, value = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in own[:3])
    n_queries, n_features, n_keys = *query.shape[-2:], key.shape[-2]
    bias: Array = np.zeros(()) if own.attn_mask is None else own.attn_mask
    if bias.dtype == np.bool_:
        bias = np.where(bias, 0.0, -np.inf)
    bias = np.broadcast_to(bias, (*batch, n_queries, n_keys))
    seen = bias != -np.inf
    sinks = np.array(-np.inf) if own.sinks is None else own.sinks[:, None, None]
    with np.errstate(all="ignore"):
        scores = np.zeros(bias.shape)
        for c in range(n_features):
            scores += query[..., :, None, c] * key[..., None, :, c]
        scores *= scale_of(own.scale, n_features)
        if own.softcap is not None:
            scores = own.softcap * np.tanh(scores / own.softcap)
        scores = np.where(seen, scores + bias, -np.inf)
        m = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sinks)
        empty = m == -np.inf  # nothing to attend to
        powers = np.where(seen & ~empty, _exp(scores - m), 0.0)
        row_sum = np.zeros(m.shape)
        for j in range(n_keys):
            row_sum += powers[..., j, None]
        row_sum = np.where(empty, 1.0, row_sum + _exp(sinks - m))
        weights = powers / row_sum
        found = np.zeros((*batch, n_queries, value.shape[-1]))
        for j in range(n_keys):
            # A key that is not seen is not read: 0 · NaN is NaN.
            found += np.where(seen[..., j, None], weights[..., j, None] * value[..., j, None, :], 0)
        if np.isinf(found).any():
            # A mean lies among its values. Beside the largest number, rounded weights lift it out.
            sizes = np.where(seen[..., None], np.abs(value)[..., None, :, :], 0.0)
            largest = sizes.max(axis=-2, initial=0.0)
            found = np.clip(found, -largest, largest)
        return found, (m + _log(row_sum))[..., 0]


def output(call: Call) -> Array:
    """Return the output of the call."""
    return call.truth if call.truth is not None else attention(problem(call))[0]


def gradients(call: Call) -> dict[str, Array]:
    """Return the gradients of query, key, value, a floating mask and sinks.

    With dO the gradient of the output O = P V, dL that of the log-sum-exp, and sums along a row
    in D:

        dV = Pᵀ dO    dP = dO Vᵀ    D = rowsum(P ∘ dP)    dS = P ∘ (dP - D + dL)
        dQ = scale · dX K    dK = scale · dXᵀ Q    dM = dS    dX = dS ∘ (1 - tanh²(X / cap))

    X are the scores below a soft cap; without one dX is dS. A sink with the weight p has a value
    of 0, so that its gradient is the sum of p (dL - D) over the rows of its head. A row with
    nothing to attend to has P = 0, and so gradients of 0. What was broadcast, or repeated for its
    group, gathers the sum.

    Source:
        Dao et al. 2022, appendix B.2; chapter 13.
    """
    assert call.upstream is not None
    own, d_output = problem(call), call.upstream.numbers
    query, key, value = own[:3]
    factor = scale_of(own.scale, query.shape[-1])
    scores, allowed = masked_scores(own)
    # A key that no query sees is not read: NaN in it is 0 here, as its weights are.
    seen = np.asarray(allowed.any(axis=-2))[..., None]
    if not seen.all():
        key, value = np.where(seen, key, 0), np.where(seen, value, 0)
    weights, sink_weights = with_sinks(scores, own.sinks)
    d_value = weights.swapaxes(-1, -2) @ d_output
    d_weights = d_output @ value.swapaxes(-1, -2)
    row_sums = (weights * d_weights).sum(axis=-1, keepdims=True)
    d_lse = 0 if call.lse_upstream is None else call.lse_upstream.numbers[..., None]
    d_scores = weights * (d_weights - row_sums + d_lse)
    d_uncapped = d_scores
    if own.softcap is not None:
        uncapped = factor * (query @ key.swapaxes(-1, -2))
        d_uncapped = d_scores * (1 - np.tanh(uncapped / own.softcap) ** 2)
    found = {
        "query": factor * d_uncapped @ key,
        "key": factor * d_uncapped.swapaxes(-1, -2) @ query,
        "value": d_value,
        "attn_mask": d_scores,
        "sinks": (sink_weights * (d_lse - row_sums))[..., 0].sum(axis=-1),
    }
    return argument_gradients(call, found)


def argument_gradients(call: Call, found: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of a call's floating arguments, from those of its `problem`."""
    return {
        name: gathered(found[name], given.numbers.shape, grouped="enable_gqa" in call.options)
        for name, given in call.given.items()
        if given.dtype != "bool"
    }
