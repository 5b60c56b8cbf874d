"""What servers ask of attention beyond its keywords, from any implementation here.

    over_documents    several texts in one row, of which none sees another
    over_pages        keys and values in pages, found by a table
    with_sinks        a score for each head that takes weight and has no value
    with_soft_cap     scores kept below a cap

The first two call an implementation once for each text or sequence, with slices: nothing of the
size L × S is made for what no query sees. The third needs an output and its log-sum-exp alone. All
of them take arrays and tensors. They are the plain statement of each rule, which a fast kernel can
be held against, and not fast kernels themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from attnlib._checks import (
    as_dtype,
    checked_integers,
    checked_real,
    checked_scale,
    dtype_name,
    library,
    on_device_of,
)

__all__ = ["over_documents", "over_pages", "with_sinks", "with_soft_cap"]

Attention = Callable[..., Any]


def over_documents(
    attention: Attention, query: Any, key: Any, value: Any, starts: Any, key_starts: Any = None,
    **options: Any,
) -> Any:
    """Return attention within each of several texts that stand one after the other.

        output[starts[n] : starts[n + 1]] = attention of text n by itself

    Args:
        attention: an implementation; one that returns a log-sum-exp too gives both.
        query, key, value: the tokens of all texts; axes before (T, E) are heads and batch.
        starts: where each text begins among the queries, and at the end their number: integers
            that begin with 0 and never fall, as flash-attn's `cu_seqlens_q`.
        key_starts: the same for keys and values; `starts` where None.
        options: keywords of the implementation; positions count from the beginning of a text.

    Shapes:
        query (…, H, T, E), key (…, H_kv, T_k, E), value (…, H_kv, T_k, E_v) → (…, H, T, E_v)

    Raises:
        ValueError: for starts that do not fit the tokens, or each other.

    Source:
        Krell et al. 2021 (arXiv 2107.02027).

    Example:
        Two texts of 2 tokens and 1. All values of a text are alike, and so is its output:

        >>> from attnlib.numpy_dense import scaled_dot_product_attention
        >>> x, v = np.ones((3, 4)), np.array([[5.0], [5.0], [7.0]])
        >>> over_documents(scaled_dot_product_attention, x, x, v, [0, 2, 3])[:, 0]
        array([5., 5., 7.])
    """
    rows = _checked_starts("starts", starts, query.shape[-2])
    columns = (
        rows if key_starts is None else _checked_starts("key_starts", key_starts, key.shape[-2])
    )
    if key_starts is None and key.shape[-2] != query.shape[-2]:
        raise ValueError(
            f"key_starts must be given for {key.shape[-2]} keys beside {query.shape[-2]} queries"
        )
    if len(rows) != len(columns):
        came = f"{len(rows) - 1} and {len(columns) - 1}"
        raise ValueError(f"starts and key_starts must be of as many texts; got {came}")
    results = [
        attention(query[..., i:j, :], key[..., k:n, :], value[..., k:n, :], **options)
        for (i, j), (k, n) in zip(pairwise(rows), pairwise(columns), strict=True)
    ]
    if isinstance(results[0], tuple):
        outputs, lses = zip(*results, strict=True)
        return _joined(outputs, -2), _joined(lses, -1)
    return _joined(results, -2)


def over_pages(
    attention: Attention, query: Any, key_pages: Any, value_pages: Any, table: Any, lengths: Any,
    **options: Any,
) -> Any:
    """Return attention to keys that lie in pages.

    Token t of a sequence with pages of p slots stands in slot t mod p of page table[⌊t / p⌋]. What
    lies behind the length of a sequence is not read.

    Args:
        attention: an implementation.
        query: the new tokens of each sequence.
        key_pages, value_pages: the pools that all sequences share.
        table: for each sequence its pages in order; entries behind its length may be anything.
        lengths: how many tokens each sequence has, at least 0.
        options: keywords of the implementation, for each sequence by itself.

    Shapes:
        query (B, H, L, E), key_pages (n_pages, p, H_kv, E), value_pages (n_pages, p, H_kv, E_v),
        table (B, n), lengths (B,) → (B, H, L, E_v)

    Raises:
        ValueError: for lengths that do not fit the table, or a page that is not there.

    Source:
        Kwon et al. 2023 (arXiv 2309.06180); chapter 15, *Pages of a cache*.

    Example:
        The three tokens of a sequence lie in pages 1 and 0, in slots of 2:

        >>> from attnlib.numpy_dense import scaled_dot_product_attention
        >>> values = np.array([[9.0, -1], [3.0, 6.0]]).reshape(2, 2, 1, 1)
        >>> query, keys = np.zeros((1, 1, 1, 1)), np.zeros((2, 2, 1, 1))
        >>> over_pages(scaled_dot_product_attention, query, keys, values, [[1, 0]], [3])
        array([[[[6.]]]])
    """
    counts = checked_integers("lengths", lengths)
    page, n_pages = key_pages.shape[1], key_pages.shape[0]
    rows = [[int(entry) for entry in row] for row in table]
    if not len(rows) == len(counts) == query.shape[0]:
        came = f"{query.shape[0]} sequences, {len(rows)} rows and {len(counts)} lengths"
        raise ValueError(f"query, table and lengths must be of as many sequences; got {came}")
    outputs = []
    for n, (row, length) in enumerate(zip(rows, counts, strict=True)):
        if not 0 <= length <= page * len(row):
            most = page * len(row)
            raise ValueError(f"lengths must lie between 0 and {most}, the slots; got {length}")
        own = row[: -(-length // page)]
        if not all(0 <= entry < n_pages for entry in own):
            raise ValueError(f"table must hold pages from 0 to {n_pages - 1}; got {own}")
        key, value = (  # (1, H, length, E)
            pages[own].reshape(-1, *pages.shape[2:])[:length].swapaxes(0, 1)[None]
            for pages in (key_pages, value_pages)
        )
        outputs.append(attention(query[n : n + 1], key, value, **options))
    return _joined(outputs, 0)


def with_sinks(output: Any, lse: Any, sinks: Any) -> tuple[Any, Any]:
    """Return output and log-sum-exp with a sink for each head: a key with a score and no value.

        lse' = log(exp(lse) + exp(sink))    output' = exp(lse - lse') · output

    The sink takes its part of the weight, so that the weights of a row add up to less than 1.

    Args:
        output, lse: what `scaled_dot_product_attention_with_lse` returns, of all keys: a sink
            counts once, also where keys are split and merged.
        sinks: the score of each head's sink; -∞ for none.

    Shapes:
        output (…, H, L, E_v), lse (…, H, L), sinks (H,) → output and lse of the same shapes

    Raises:
        ValueError: for sinks that are not one for each head.

    Source:
        OpenAI 2025, gpt-oss; Xiao et al. 2023 (arXiv 2309.17453) for the name.

    Example:
        One key with a score of 0 beside a sink of 0: half of the weight is gone.

        >>> output, lse = with_sinks(np.array([[[6.0]]]), np.array([[0.0]]), np.array([0.0]))
        >>> output
        array([[[3.]]])
    """
    if sinks.ndim != 1 or lse.ndim < 2 or sinks.shape[0] != lse.shape[-2]:
        wanted = f"(H,) beside a log-sum-exp {tuple(lse.shape)} of (…, H, L)"
        raise ValueError(f"sinks must have shape {wanted}; got {tuple(sinks.shape)}")
    xp = library(lse)
    with np.errstate(invalid="ignore"):
        whole = xp.logaddexp(lse, as_dtype(sinks, lse.dtype)[:, None])
        kept = xp.where(lse == -math.inf, xp.zeros_like(lse), xp.exp(lse - whole))
    return as_dtype(output * kept[..., None], output.dtype), whole


def with_soft_cap(
    attention: Attention, query: Any, key: Any, value: Any, softcap: float, *,
    scale: float | None = None, **options: Any,
) -> Any:
    """Return attention with scores that stay below a cap.

        S' = softcap · tanh(scale · Q Kᵀ / softcap)

    Masks come after the cap: a floating mask is added to S', and −∞ removes. The scores are made
    as a matrix, L × S, and given to the implementation beside an identity.

    Args:
        attention: an implementation.
        query, key, value: as the implementation takes them; heads that are shared, repeated.
        softcap: the cap, above 0.
        scale: the factor of the scores; None means 1/√E.
        options: further keywords of the implementation.

    Shapes:
        query (…, L, E), key (…, S, E), value (…, S, E_v) → (…, L, E_v)

    Raises:
        TypeError, ValueError: for a cap that is no finite number above 0.

    Source:
        Gemma Team 2024 (arXiv 2408.00118).

    Example:
        The cap of 1 takes scores of 100 and 0 to 1 and 0:

        >>> from attnlib.numpy_dense import scaled_dot_product_attention as attention
        >>> key, value = np.array([[100.0], [0.0]]), np.array([[1.0], [0.0]])
        >>> with_soft_cap(attention, np.ones((1, 1)), key, value, 1.0).round(3)
        array([[0.731]])
    """
    cap = checked_real("softcap", softcap, "a finite number above 0")
    if not 0 < cap < math.inf:
        raise ValueError(f"softcap must be a finite number above 0; got {softcap!r}")
    xp = library(query)
    wide = xp.float64 if dtype_name(query) == "float64" else xp.float32
    q, k, v = (as_dtype(x, wide) for x in (query, key, value))
    scores = checked_scale(scale, query.shape[-1]) * (q @ k.swapaxes(-1, -2))
    capped = cap * xp.tanh(scores / cap)
    mask = options.pop("attn_mask", None)
    if mask is not None:
        options["attn_mask"] = mask if dtype_name(mask) == "bool" else as_dtype(mask, wide)
    identity = xp.eye(key.shape[-2], dtype=wide, **on_device_of(query))
    return as_dtype(attention(capped, identity, v, scale=1.0, **options), query.dtype)


def _checked_starts(name: str, starts: Any, n_tokens: int) -> tuple[int, ...]:
    """Return the places where texts begin and end, as integers."""
    places = checked_integers(name, starts)
    falls = any(j < i for i, j in pairwise(places))
    if len(places) < 2 or places[0] != 0 or places[-1] != n_tokens or falls:
        wanted = f"begin with 0, never fall, and end with {n_tokens}, the number of tokens"
        raise ValueError(f"{name} must {wanted}; got {list(places)}")
    return places


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Return arrays or tensors put together along an axis."""
    return library(parts[0]).concatenate(list(parts), axis)
