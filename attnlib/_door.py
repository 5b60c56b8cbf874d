"""The door that every call comes in by: one signature, in the same words, for all rungs.

A rung is one implementation of attention: a function that takes a prepared call and returns the
output and the log-sum-exp. `door` makes of it the two public functions of a module. What lies
between depends on what holds the numbers: `_numpy_door` prepares arrays, `_torch_door` tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from attnlib._checks import Options, Window

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
    window: (left, right), how many keys before and after its own place a query sees; None for a
        side without a bound.

Shapes:
    query (…, H, L, d_k), key (…, H_kv, S, d_k), value (…, H_kv, S, d_v) → (…, H, L, d_v)

Raises:
    TypeError: what is no {kind}, a dtype that is not floating, dtypes that differ, a mask
        that is neither boolean nor floating, a flag that is not a bool, a window that is no pair.
    ValueError: ranks, lengths, heads{devices} or masks that do not fit, a mask beside is_causal, a
        scale that is not finite, {dropped}, an alignment that is unknown, a bound below 0.
"""

WITH_LSE = """\
Return the attention output, and the natural log of each row's sum of exponentials.

lse_i = log Σ_j exp(s_ij), and -∞ for a row in which no key takes part. Arguments and errors are
those of `scaled_dot_product_attention`.

Shapes:
    lse (…, H, L), in {dtype}
"""


T = TypeVar("T")


class Attention(Protocol[T]):
    """The signature of `torch.nn.functional.scaled_dot_product_attention`, and two keywords."""

    with_lse: Callable[..., tuple[T, T]]

    def __call__(
        self, query: T, key: T, value: T, attn_mask: T | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
        causal_align: str = "top-left", window: Window | None = None, **own: Any,
    ) -> T: ...  # fmt: skip


def door(
    rung: Callable[..., Any],
    enter: Callable[[bool, Mapping[str, object], Options, Mapping[str, Any]], tuple[Any, Any]],
    around: Callable[[Callable[..., Any]], Callable[..., Any]],
    words: Mapping[str, str],
) -> Attention[Any]:
    """Return the public function of a rung; `.with_lse` is the one that returns two results.

    `enter` takes whether the log-sum-exp is wanted, query, key and value by name, the options of
    all rungs, and those of this rung alone. `around` is put around it.
    """

    def attend(
        wants_lse: bool, query: Any, key: Any, value: Any, attn_mask: Any = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
        enable_gqa: bool = False, causal_align: str = "top-left", window: Window | None = None,
        **own: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        given = {"query": query, "key": key, "value": value}
        options = Options(attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window)
        return enter(wants_lse, given, options, own)

    inside = around(attend)

    def without(*arguments: Any, **options: Any) -> Any:
        return inside(False, *arguments, **options)[0]

    def with_lse(*arguments: Any, **options: Any) -> Any:
        return inside(True, *arguments, **options)

    _, *common, _ = inspect.signature(attend).parameters.values()  # without wants_lse and **own
    own = [p for p in inspect.signature(rung).parameters.values() if p.kind is p.KEYWORD_ONLY]
    said, _, example = inspect.cleandoc(rung.__doc__ or "").partition("\nExample:")
    without.__doc__ = f"{said}{ARGUMENTS.format(**words)}\nExample:{example}\n"
    with_lse.__doc__ = WITH_LSE.format(**words) + words["example"]
    for function, suffix in ((attend, ""), (without, ""), (with_lse, "_with_lse")):
        function.__name__ = function.__qualname__ = f"scaled_dot_product_attention{suffix}"
        function.__module__ = rung.__module__
    one = words["result"]
    for function, result in ((without, one), (with_lse, f"tuple[{one}, {one}]")):
        signature = inspect.Signature([*common, *own], return_annotation=result)
        function.__signature__ = signature  # type: ignore[attr-defined]
    without.with_lse = with_lse  # type: ignore[attr-defined]
    return cast(Attention[Any], without)
