"""Keras' attention, which three families ask: one for each backend."""

from __future__ import annotations

import os
from math import isfinite
from typing import Any

from peers.adapter import Adapter, adapters, claim
from peers.shapes import stretched

OPS = "https://keras.io/api/ops/nn/"
LAYER = "https://keras.io/api/layers/attention_layers/attention/"


def of_ops(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """Ask the function, which groups heads wherever their numbers differ."""
    import keras

    arrays, on_torch = (query, key, value), keras.backend.backend() == "torch"
    claim({x.ndim for x in arrays} == {4}, "the query has the shape (B, T, N, H)")
    claim(on_torch or not stretched(*(len(x) for x in arrays)), "one B for query, key and value")
    claim(on_torch or query.shape[-1] > 0, "the scale is 1.0 / sqrt(H)")
    one = query.shape[-1] == value.shape[-1]
    claim(one or keras.backend.backend() != "jax", "the value has the same shape as the key")
    claim(len({x.dtype for x in arrays}) == 1, "Keras promotes dtypes")
    claim(attn_mask is None or not is_causal, "mask and is_causal are two arguments: both apply")
    name = "" if attn_mask is None else keras.backend.standardize_dtype(attn_mask.dtype)
    masked = {"bias" if "float" in name else "mask": attn_mask, "is_causal": is_causal}
    first = [keras.ops.swapaxes(x, 1, 2) for x in arrays]
    return keras.ops.swapaxes(keras.ops.dot_product_attention(*first, **masked, scale=scale), 1, 2)


def of_layer(
    query: Any, key: Any, value: Any, is_causal: bool = False, scale: float | None = None
) -> Any:
    """Ask the layer, whose weight is the scale. Its masks are of tokens and not of scores."""
    import keras

    arrays, n_features = (query, key, value), query.shape[-1]
    claim(min(x.ndim for x in arrays) > 2, "the query has the shape (batch_size, Tq, dim)")
    claim(len({x.dtype for x in arrays}) == 1, "a layer casts its inputs to its own dtype")
    claim(scale is None or isfinite(scale), "the scale is a weight")
    dtype = keras.backend.standardize_dtype(query.dtype)
    claim("float" in dtype, "a layer has a floating dtype")
    layer = keras.layers.Attention(use_scale=True, dtype=dtype)
    layer.build([x.shape for x in (query, value, key)])
    layer.scale.assign(max(n_features, 1) ** -0.5 if scale is None else scale)
    return layer([query, value, key], use_causal_mask=is_causal)


def family(backend: str, package: str, **more: Any) -> list[Adapter]:
    """Return the adapters of a backend, which Keras chooses when it is first imported."""
    os.environ["KERAS_BACKEND"] = backend
    found: list[Adapter] = []
    functions = (
        ("keras.ops.dot_product_attention", OPS, of_ops),
        ("keras.layers.Attention", LAYER, of_layer),
    )
    for name, documentation, attention in functions:
        named = f"{name}, {backend}"
        adapters(found, named, "keras", package, documentation=documentation, **more)(attention)
    return found
