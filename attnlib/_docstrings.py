"""What the docstrings of all implementations say in the same words: arguments, shapes, errors.

Each implementation writes out its signature and says what is its own. `document` adds the rest, so
that `help` and the reference say everything, and a word that changes is changed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

ARGUMENTS = """
Args:
    query, key, value: {Kind} of one floating dtype. The leading dimensions broadcast.
    attn_mask: Boolean, where True takes part; or floating, added to the scaled scores, where -∞
        removes. It broadcasts to (…, H, L, S).
    dropout_p: {dropout}
    is_causal: Whether query i sees the keys j ≤ i alone.
    scale: The factor on the scores, any finite number; 1/√d_k where it is None.
    enable_gqa: Whether key and value have fewer heads: head h uses key head h // (H / H_kv).
    causal_align: Where query 0 stands among the keys: at key 0 ("top-left"), or so that the last
        query stands at the last key ("bottom-right"), as in decoding.
    window: (left, right), how many keys before and after its own position a query sees; None for
        a side without a bound.

Shapes:
    query (…, H, L, d_k), key (…, H_kv, S, d_k), value (…, H_kv, S, d_v) → (…, H, L, d_v)

Raises:
    TypeError: what is no {kind}, a dtype that is not floating, dtypes that differ, a mask
        that is neither boolean nor floating, a flag that is not a bool, a window that is no pair.
    ValueError: ranks, lengths, heads{devices} or masks that do not fit, a mask beside is_causal, a
        scale that is not finite, {dropped}, an alignment that is unknown, a bound below 0.
"""
EXAMPLE = """
Example:
    The query is 0, so both keys get the weight 1/2, and the output is the mean of the values.

    >>> query, keys = {0}([[0.0]]), {0}([[1.0], [2.0]])
    >>> scaled_dot_product_attention(query, keys, {0}([[10.0], [20.0]])).item()
    15.0
"""

WITH_LSE = """
lse_i = log Σ_j exp(s_ij), and -∞ for a row in which no key takes part. Arguments and errors are
those of `scaled_dot_product_attention`.

Shapes:
    lse (…, H, L), in {dtype}
"""
EXAMPLE_OF_LSE = """
Example:
    >>> q, k, v = {0}((1, 1)), {0}((4, 1)), {0}((4, 1))
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> round(lse.item(), 4)  # log 4
    1.3863
"""

ARRAYS = {
    "Kind": "Arrays",
    "kind": "NumPy array",
    "dropout": "0.0, because this form is deterministic.",
    "dropped": "dropout",
    "devices": "",
    "dtype": "float32 for half precision, else in query's dtype",
    "example": EXAMPLE.format("np.array"),
    "example_of_lse": EXAMPLE_OF_LSE.format("np.zeros"),
}
TENSORS = ARRAYS | {
    "Kind": "Tensors",
    "kind": "dense tensor",
    "devices": ", devices",
    "dtype": "float32 for half precision, else in query's dtype; it has gradients too",
    "example": EXAMPLE.format("torch.tensor"),
    "example_of_lse": EXAMPLE_OF_LSE.format("torch.zeros"),
}


def document(
    attention: Callable[..., Any], with_lse: Callable[..., Any], words: Mapping[str, str],
    **other: str,
) -> None:
    """Complete the docstrings of a module's two functions; `other` takes the place of `words`."""
    words = {**words, **other}
    said = inspect.cleandoc(attention.__doc__ or "")
    attention.__doc__ = f"{said}\n{ARGUMENTS.format(**words)}{words['example']}"
    said = inspect.cleandoc(with_lse.__doc__ or "")
    with_lse.__doc__ = f"{said}\n{WITH_LSE.format(**words)}{words['example_of_lse']}"
