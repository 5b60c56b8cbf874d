"""The right attention, a correct kernel that rounds, and eleven with one mistake each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attncheck._types import Array

TILE = 64  # keys, of which the last tile is dropped
KERNEL = "kernel"  # correct, and not the reference: it rounds its weights to the call's dtype

# What is wrong, and how the page calls it.
WRONG = {
    "mean": "the plain mean of all values: queries and keys are not read",
    "scale 0": "scores times 0: the mean of the values that a query may see",
    "no scale": "scores that are not divided",
    "1/d": "scores divided by d, not by its root",
    "flipped": "scores with the other sign",
    "reversed": "the keys in reverse order beside their values",
    "corner": "causal from the other corner, where queries and keys differ in number",
    "tile": "the last tile of keys is left out",
    "half": "half of the keys are left out",
    "groups": "groups tiled: head h takes key head h mod H_kv",
    "zeros": "nothing is written: zeros",
}


@dataclass(frozen=True, eq=False)
class Question:
    """One call of a suite, for some of its heads.

    Shapes:
        query (H, L, d), key (H_kv, S, d), value (H_kv, S, d_v)

    Attributes:
        dtype: In which the inputs come and the output goes, "float16", "bfloat16" or "float32".
        causal: "", "top-left" or "bottom-right".
        scale: The factor on the scores; None for 1/√d.
        bias: Added to the scores, (H, S).
    """

    query: Array
    key: Array
    value: Array
    dtype: str
    causal: str = ""
    scale: float | None = None
    bias: Array | None = None

    def __post_init__(self) -> None:
        for name in ("query", "key", "value"):
            object.__setattr__(self, name, rounded(getattr(self, name), self.dtype))

    @property
    def factor(self) -> float:
        """Return the factor on the scores."""
        return self.query.shape[-1] ** -0.5 if self.scale is None else self.scale

    @cached_property
    def products(self) -> Array:
        """Return each query times each key, (H, L, S)."""
        return by_key_head(self.query, self.key.swapaxes(1, 2))

    def asks(self, wrong: str) -> bool:
        """Return whether the call differs at all between the right attention and a wrong one."""
        n_heads, n_queries, d = self.query.shape
        n_key_heads, n_keys, _ = self.key.shape
        differs = {
            "no scale": self.factor != 1,
            "1/d": abs(self.factor * d - 1) > 1e-9,
            "corner": bool(self.causal) and n_queries != n_keys,
            "tile": n_keys > TILE,
            "groups": n_heads > n_key_heads > 1,
        }
        return bool(differs.get(wrong, n_keys > 1))


def rounded(x: Array, dtype: str) -> Array:
    """Return the nearest numbers that a dtype has, in float32."""
    if dtype != "bfloat16":
        return np.asarray(x, dtype).astype(np.float32)
    bits = np.array(x, np.float32, order="C").view(np.uint32)
    bits += ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    bits &= np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def attention(asked: Question, wrong: str = "") -> Array:
    """Return the output (H, L, d_v) in the call's dtype: right, of a correct kernel, or wrong."""
    n_heads, n_queries, _ = asked.query.shape
    value = tiled(asked.value, n_heads) if wrong == "groups" else asked.value
    if wrong in ("mean", "zeros"):
        mean = value.mean(axis=1, keepdims=True) * (wrong == "mean")
        each = np.repeat(mean, n_heads // len(mean), axis=0)
        return rounded(np.broadcast_to(each, (n_heads, n_queries, each.shape[-1])), asked.dtype)
    found = scores(asked, wrong)
    weights = np.exp(found - found.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    if wrong == KERNEL:
        return rounded(by_key_head(rounded(weights, asked.dtype), value) / total, asked.dtype)
    weights /= total
    return rounded(by_key_head(weights, value), asked.dtype)


def log_sum_exp(asked: Question, wrong: str = "") -> Array:
    """Return the log-sum-exp of the scores that an attention has, (H, L)."""
    if wrong in ("mean", "zeros"):  # all scores 0; nothing is written
        n_keys = asked.key.shape[1] if wrong == "mean" else 1
        return np.full(asked.query.shape[:2], np.log(n_keys), np.float32)
    found = scores(asked, wrong)
    largest = found.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(found - largest).sum(axis=-1)) + largest[..., 0])


def scores(asked: Question, wrong: str) -> Array:
    """Return the scores (H, L, S), -∞ where a key is not seen: right, or wrong."""
    d = asked.query.shape[-1]
    products = asked.products
    if wrong == "groups":
        key = tiled(asked.key, len(asked.query))
        products = by_key_head(asked.query, key.swapaxes(1, 2))
    factors = {"scale 0": 0.0, "no scale": 1.0, "1/d": 1 / d, "flipped": -asked.factor}
    factor = factors.get(wrong, asked.factor)
    found = products[..., :: -1 if wrong == "reversed" else 1] * np.float32(factor)
    if asked.bias is not None:
        found += asked.bias[:, None]
    found[..., ~seen(asked, wrong)] = -np.inf
    return found


def by_key_head(rows: Array, other: Array) -> Array:
    """Return rows (H, L, n) times the matrix (H_kv, n, m) of the key head that their head reads.

    The query heads of one key head stand side by side, so together they are rows of one product.
    """
    grouped = rows.reshape(len(other), -1, rows.shape[-1])
    return np.asarray(grouped @ other).reshape(*rows.shape[:2], -1)


def tiled(own: Array, n_heads: int) -> Array:
    """Return keys or values for each query head, of key head h mod H_kv."""
    return own[np.arange(n_heads) % len(own)]


def seen(asked: Question, wrong: str = "") -> Array:
    """Return which keys a query may see, (L, S)."""
    n_queries, n_keys = asked.query.shape[1], asked.key.shape[1]
    corner = asked.causal
    if wrong == "corner":
        corner = {"top-left": "bottom-right", "bottom-right": "top-left"}[corner]
    allowed = np.ones((n_queries, n_keys), bool)
    if corner:
        allowed = np.tril(allowed, n_keys - n_queries if corner == "bottom-right" else 0)
    last = {"tile": n_keys - (n_keys % TILE or TILE), "half": (n_keys + 1) // 2}.get(wrong, n_keys)
    allowed[:, last:] = False
    allowed[~allowed.any(axis=1), 0] = True  # a row without a key would be NaN, which anybody sees
    return allowed
