"""Attention kernels with one fault each, of the kinds that kernels in the field have had.

All come from one function on tensors, `attend`, which is right where `fault` is "". Around it
stand five kernels with the conventions of real ones: torch's own signature; flash-attn's, for
(B, S, H, D) in half precision, with the causal mask at the bottom right, packed texts and pages;
multiples of 16 only; one sequence with sinks; and masks that are combined with is_causal. `FAULTS`
names each fault, and its `build` without a name makes the correct twin.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from attncheck import Also, Kernel, adapters
from attncheck._calls import HEAD_DIMS

TILE = 64
NONE = -math.inf
HALF = (torch.float16, torch.bfloat16)


class Options(NamedTuple):
    """What a caller may ask for beside query, key and value."""

    attn_mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    causal_align: str = "top-left"
    window: tuple[int | None, int | None] | None = None


def with_gradient(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the same numbers, whose gradient is changed."""
    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(lambda gradient: None if gradient is None else change(gradient))
    return x


def without_the_last_tile(gradient: Tensor) -> Tensor:
    """Return a gradient of keys that stops where the last whole tile ends."""
    n_keys = gradient.shape[-2]
    kept = torch.arange(n_keys) < (n_keys // TILE * TILE or n_keys)
    return gradient * kept[:, None]


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "gradients are rounded to float16": lambda gradient: gradient.half().to(gradient.dtype),
    "gradients are zeros": torch.zeros_like,
    "the gradient of the last keys is lost": without_the_last_tile,
}


def modified(gradient: Tensor) -> Tensor:
    """Return a gradient as it came, and add 1 to what came."""
    before = gradient.clone()
    if 0 not in gradient.stride():
        gradient.add_(1)
    return before


def taken_for_contiguous(x: Tensor) -> Tensor:
    """Return what a kernel reads that looks at the shape and not at the strides."""
    if x.is_contiguous() or x.untyped_storage().nbytes() < x.numel() * x.element_size():
        return x
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


def repeated(x: Tensor, group: int, fault: str) -> Tensor:
    """Return key or value with one head for each query head: h uses h // group."""
    if group == 1:
        return x
    if fault == "groups are tiled":
        return x.repeat(*[1] * (x.ndim - 3), group, 1, 1)
    heads = x.repeat_interleave(group, -3)
    if fault == "gradients of a group are not summed":
        first = (torch.arange(heads.shape[-3]) % group == 0)[:, None, None]
        return with_gradient(heads, lambda gradient: gradient * first)
    return heads


def require(holds: bool, words: str, q: Tensor) -> None:
    """Refuse what a kernel is not built for."""
    if not holds:
        raise ValueError(f"{words}; got {tuple(q.shape)} {q.dtype}")


def accepted(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[tuple[int, ...], int]:
    """Refuse what is invalid; return the leading axes of the output, and query heads per key head.

    Shapes that do not broadcast are refused by torch.
    """
    inputs, mask, group = (query, key, value), options.attn_mask, 1
    require(min(x.ndim for x in inputs) > 1, "inputs have two axes and more", query)
    require(query.is_floating_point(), "inputs are floating", query)
    require(len({x.dtype for x in inputs}) == 1, "inputs have one dtype", query)
    require(query.shape[-1] == key.shape[-1], "query and key have the same features", key)
    require(key.shape[-2] == value.shape[-2], "there are as many values as keys", value)
    require(math.isfinite(options.scale or 0), "scales are finite", query)
    if options.enable_gqa:
        n_heads, n_key_heads, n_value_heads = (x.shape[-3] for x in inputs)
        fits = n_key_heads == n_value_heads and n_heads % n_key_heads == 0
        require(fits, "key heads divide query heads", key)
        group = n_heads // n_key_heads
    batch = torch.broadcast_shapes(
        query.shape[:-2], *(repeated(x[..., :0], group, "").shape[:-2] for x in (key, value))
    )
    if mask is not None:
        require(not options.is_causal, "there is a mask or is_causal", mask)
        require(mask.dtype == torch.bool or mask.is_floating_point(), "masks are no numbers", mask)
        mask.expand(*batch, query.shape[-2], key.shape[-2])
    return batch, group


def attend(
    query: Tensor, key: Tensor, value: Tensor, options: Options, fault: str = "", *,
    softcap: float | None = None, sinks: Tensor | None = None, first: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp of attention, with this fault in it.

    `first` is the position of the first query among the keys, where the options do not say it.
    """
    if fault == "strides are ignored":
        query, key, value = map(taken_for_contiguous, (query, key, value))
    if fault == "more or fewer values than keys are accepted" and value.ndim > 1:
        value = value[..., torch.arange(key.shape[-2]) % max(1, value.shape[-2]), :]
    batch, group = accepted(query, key, value, options)
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    wide = torch.float32 if query.dtype in HALF else query.dtype
    inputs = [query, *(repeated(x, group, fault) for x in (key, value))]
    q, k, v = (x.to(wide).expand(*batch, *x.shape[-2:]) for x in inputs)
    if fault in GRADIENTS:
        k, v = (with_gradient(x, GRADIENTS[fault]) for x in (k, v))
        if fault != "the gradient of the last keys is lost":
            q = with_gradient(q, GRADIENTS[fault])
    if fault == "at 64 half of the features are not read" and q.shape[-1] == 64:
        k = torch.cat([k[..., :32], torch.zeros_like(k[..., 32:])], dim=-1)
    mask = options.attn_mask
    if mask is not None:
        if fault == "a boolean mask is inverted" and mask.dtype == torch.bool:
            mask = ~mask
        if fault == "the gradient of the mask is zeros" and mask.is_floating_point():
            mask = with_gradient(mask, torch.zeros_like)
        if fault == "a mask of the batch is read by head" and mask.ndim == 4 and mask.shape[1] == 1:
            mask = mask[torch.arange(batch[-1]) % mask.shape[0], 0]
        mask = mask.expand(*batch, query.shape[-2], key.shape[-2])
    scale = max(1, q.shape[-1]) ** -0.5 if options.scale is None else options.scale
    if options.scale is None and fault == "the scale is 1/d":
        scale = 1 / max(1, q.shape[-1])
    if options.scale is None and fault == "at 96 the scale is that of 128" and q.shape[-1] == 96:
        scale = 128**-0.5
    if first is None:
        first = n_keys - n_queries if options.causal_align == "bottom-right" else 0
    if fault == "is_causal stands at the other corner" and options.is_causal:
        first = n_keys - n_queries - first
    if fault == "one query stands at the first key" and n_queries == 1:
        first = 0

    i, j = first + torch.arange(n_queries)[:, None], torch.arange(n_keys)
    left, right = options.window or (None, None)
    if fault == "a window that ends at the query sees the future":
        right = right or None  # 0 is false
    allowed = torch.ones(n_queries, n_keys, dtype=torch.bool)
    if options.is_causal:
        allowed = allowed & (j <= i)
    if left is not None:
        allowed = allowed & (j >= i - left)
    if right is not None:
        allowed = allowed & (j <= i + right)
    if fault == "one query does not see the last keys" and n_queries == 1 and n_keys > TILE:
        allowed = allowed & (j < n_keys // TILE * TILE)
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else mask != NONE)
    if fault != "NaN comes from outside of a window" or options.window is None:
        seen = allowed.any(-2)[..., None]  # what no query sees may be NaN: 0 · NaN is NaN
        k, v = (torch.where(seen, x, 0) for x in (k, v))

    s = scale * (q @ k.mT)
    late = fault == "the soft cap comes after the mask"
    if softcap is not None and not late:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None and mask.dtype != torch.bool:
        s = s + mask.to(s.dtype)
    low = -1e9 if fault == "the score of a removed key is -1e9" else NONE
    s = torch.where(allowed, s, low)
    if softcap is not None and late:
        s = softcap * torch.tanh(s / softcap)
    if fault == "NaN in a score is taken for 0":
        s = s.nan_to_num(nan=0.0, posinf=math.inf, neginf=NONE)
    m = torch.full((*batch, n_queries, 1), NONE, dtype=wide)
    m = torch.cat([m, s.detach()], dim=-1).amax(-1, keepdim=True)
    base = torch.where(m == NONE, 0, m)
    if fault == "the largest score is not subtracted":
        base = torch.zeros_like(m)
    powers = (s - base).exp()
    total = powers.sum(-1, keepdim=True)
    total = torch.where(total == 0, 1, total)
    o = powers / total @ v
    if fault == "sums are kept in half precision" and query.dtype in HALF:
        o, total = torch.zeros_like(o), torch.zeros_like(total)
        for n in range(n_keys):
            power = powers[..., n, None]
            mean = (total * o + power * v[..., n, None, :]) / (total + power)
            total, o = (x.to(query.dtype).to(wide) for x in (total + power, mean))
    if fault == "a first tile without a key gives NaN":
        o = torch.where(allowed[..., :TILE].any(-1, keepdim=True), o, math.nan)
    lse = base + total.log()
    if fault == "the log-sum-exp is that of the last tile":
        lse = torch.logsumexp(s[..., (n_keys - 1) // TILE * TILE :], -1, keepdim=True)
    alive = (s != NONE).any(-1, keepdim=True)
    output = torch.where(alive, o, math.nan if fault == "an empty row is NaN" else 0)
    empty = math.inf if fault == "the log-sum-exp of an empty row is +∞" else NONE
    lse = torch.where(alive, lse, empty)[..., 0]
    if sinks is not None:
        n = -(-n_keys // TILE) if fault == "a sink counts once in each tile" else 1
        column = (sinks + math.log(n)).to(wide)[:, None]
        whole = torch.logaddexp(lse, column)
        kept = torch.where(lse == NONE, 0, torch.exp(lse - whole))
        output, lse = output * kept[..., None], whole
    if fault == "the query is modified" and not query.requires_grad:
        query.mul_(2)
    if fault == "the log-sum-exp has no gradient":
        lse = with_gradient(lse, torch.zeros_like)
    lse = lse / math.log(2) if fault == "the log-sum-exp is one of base 2" else lse
    return written(output.to(query.dtype), options, fault), lse


BUFFERS: dict[Any, Tensor] = {}


def written(output: Tensor, options: Options, fault: str) -> Tensor:
    """Return what a kernel writes of its output."""
    n_queries, n_features = output.shape[-2:]
    kept = torch.empty_like(output)
    if fault == "the last rows of a tile are not written" and n_queries > TILE:
        whole = n_queries // TILE * TILE
        return torch.cat([output[..., :whole, :], kept[..., whole:, :]], dim=-2)
    if fault == "sequences beyond 65,535 are not written" and output.ndim == 4:
        return torch.cat([output[:65_535], kept[65_535:]])
    if fault == "at 128 a quarter of the features is not written" and n_features == 128:
        return torch.cat([output[..., :96], kept[..., 96:]], dim=-1)
    if fault == "a gradient of the output is taken for contiguous":
        return with_gradient(output, taken_for_contiguous)
    if fault == "the gradient of the output is modified":
        return with_gradient(output, modified)
    at_128 = fault == "at 128 causal gives zeros" and n_features == 128 and options.is_causal
    if at_128 or fault == "zeros that an absolute tolerance accepts":
        return output * 0
    if fault == "the next call overwrites the result" and not output.requires_grad:
        return BUFFERS.setdefault((output.shape, output.dtype), kept).copy_(output)
    return output


# Texts and pages, one call for each ---------------------------------------------------------------


def over_texts(
    attend: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, *starts: Tensor, fault: str = ""
) -> Any:
    """Return attention within each text, and its log-sum-exp; axes are (…, H, T, D)."""
    if fault == "packed texts see each other":
        starts = tuple(own[[0, -1]] for own in starts)
    rows, columns = (list(pairwise(own.tolist())) for own in starts)
    more: dict[str, int] = {}
    if fault == "all texts have one causal frontier":
        more["first"] = columns[0][1] - rows[0][1]  # that of the first text
    found = [
        attend(q[..., i:j, :], k[..., m:n, :], v[..., m:n, :], **more)
        for (i, j), (m, n) in zip(rows, columns, strict=True)
    ]
    outputs, lses = zip(*found, strict=True)
    return torch.cat(outputs, dim=-2), torch.cat(lses, dim=-1)


def over_pages(
    attend: Callable[..., Any], q: Tensor, key_pages: Tensor, value_pages: Tensor, table: Any,
    lengths: Any, fault: str = "",
) -> Tensor:
    """Return attention to keys in pages; queries are (B, H, S, D), pages (n_pages, page, H, D)."""
    page, outputs = key_pages.shape[1], []
    for row, pages, length in zip(q, table, lengths, strict=True):
        n_keys = int(length)
        if fault == "what stands behind the length is read":
            n_keys = -(-n_keys // page) * page
        if fault == "a page that is not full is not read":
            n_keys = n_keys // page * page
        if fault == "pages are read in the order of the pool":
            pages = pages.sort().values
        k, v = (x[pages].flatten(0, 1)[:n_keys].transpose(0, 1) for x in (key_pages, value_pages))
        outputs.append(attend(row[None], k[None], v[None])[0])
    return torch.cat(outputs)


# Kernels ------------------------------------------------------------------------------------------


def torch_like(fault: str = "") -> Kernel:
    """Return a kernel with torch's signature, and causal_align and window beside it."""

    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
        enable_gqa: bool = False, causal_align: str = "top-left", window: Any = None,
    ) -> Tensor:
        options = Options(attn_mask, is_causal, scale, enable_gqa, causal_align, window)
        return attend(query, key, value, options, fault)[0]

    return Kernel(scaled_dot_product_attention)


def by_position(causal: bool, window: tuple[int, int]) -> Any:
    """Return flash-attn's way to say which keys a query sees in our words."""
    bounds = tuple(None if n < 0 else n for n in window)
    return {"is_causal": causal, "window": bounds, "causal_align": "bottom-right"}


def dense(
    q: Tensor, k: Tensor, v: Tensor, fault: str, softcap: float | None = None,
    first: int | None = None, **options: Any,
) -> tuple[Tensor, Tensor]:
    """Return attention and its log-sum-exp, with axes (…, H, S, D) and heads shared by shape."""
    require(k.shape[:-1] == v.shape[:-1] and q.shape[:-3] == k.shape[:-3], "shapes match", q)
    own = Options(enable_gqa=q.shape[-3] != k.shape[-3], **options)
    return attend(q, k, v, own, fault, softcap=softcap, first=first)


def in_half(*tensors: Tensor) -> None:
    """Refuse what a kernel for half precision refuses."""
    require({x.dtype for x in tensors} <= {*HALF}, "fp16 and bf16 are supported", tensors[0])


def flash_functions(fault: str = "", page: int = 256) -> dict[str, Any]:
    """Return functions with the names, axes and limits of flash-attn 2.8.4, and its arguments.

    Of these stand only such as an adapter may pass. A page has a multiple of `page` slots.
    """

    def one(
        q: Tensor, k: Tensor, v: Tensor, scale: Any, softcap: float, own: Any, **more: Any
    ) -> Any:
        in_half(q, k, v)
        require(q.shape[-1] % 16 == 0, "head dimensions are multiples of 16", q)
        output, lse = dense(q, k, v, fault, softcap or None, scale=scale, **own, **more)
        return output, lse.detach()

    def flash_attn_func(
        q: Tensor, k: Tensor, v: Tensor, softmax_scale: Any = None, causal: bool = False,
        window_size: Any = (-1, -1), softcap: float = 0.0, return_attn_probs: bool = False,
    ) -> Any:
        own, heads = by_position(causal, window_size), [x.transpose(1, 2) for x in (q, k, v)]
        output, lse = one(*heads, softmax_scale, softcap, own)
        output = output.transpose(1, 2).contiguous()
        return (output, lse, None) if return_attn_probs else output

    def flash_attn_varlen_func(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
        max_seqlen_q: int, max_seqlen_k: int, softmax_scale: Any = None, causal: bool = False,
        window_size: Any = (-1, -1), softcap: float = 0.0,
    ) -> Any:
        for starts, longest in ((cu_seqlens_q, max_seqlen_q), (cu_seqlens_k, max_seqlen_k)):
            assert starts.dtype == torch.int32
            assert int(starts.diff().max()) == longest
        own, heads = by_position(causal, window_size), [x.transpose(0, 1) for x in (q, k, v)]
        single = functools.partial(one, scale=softmax_scale, softcap=softcap, own=own)
        output, _ = over_texts(single, *heads, cu_seqlens_q, cu_seqlens_k, fault=fault)
        return output.transpose(0, 1).contiguous()

    def flash_attn_with_kvcache(
        q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_seqlens: Tensor, block_table: Tensor,
        softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1),
        softcap: float = 0.0,
    ) -> Any:
        assert cache_seqlens.dtype == block_table.dtype == torch.int32
        assert k_cache.shape[1] % page == 0
        own = by_position(causal, window_size)
        single = functools.partial(one, scale=softmax_scale, softcap=softcap, own=own)
        paged = q.transpose(1, 2), k_cache, v_cache, block_table, cache_seqlens
        return over_pages(single, *paged, fault=fault).transpose(1, 2).contiguous()

    functions = (flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache)
    return {"flash_attn": {own.__name__: own for own in functions}}


def adapted(name: str, modules: dict[str, dict[str, Any]]) -> Kernel:
    """Return what the adapter of a library makes of modules that stand in its place."""
    found = {path: ModuleType(path) for path in modules}
    for path, own in modules.items():
        vars(found[path]).update(own)
    with mock.patch.dict(sys.modules, found):
        kernel: Kernel = getattr(adapters, name)
    return kernel


def flash_like(fault: str = "") -> Kernel:
    """Return a kernel for (B, S, H, D) in half precision, with texts in a row and small pages."""
    kernel = adapted("flash_attn", flash_functions(fault, page=16))
    assert kernel.pages is not None
    return replace(kernel, head_dims=[64, 128], pages=replace(kernel.pages, page=16))


def sixteens_like(fault: str = "") -> Kernel:
    """Return a kernel for multiples of 16, whose log-sum-exp has base 2 and can be merged."""

    def attention(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, causal: bool = False,
        sm_scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    ) -> Any:
        require(q.shape[-1] % 16 == 0 == v.shape[-1] % 16, "multiples of 16", q)
        require(q.ndim == 4, "there are 4 axes (B, H, S, D)", q)
        own = Options(bias, causal, sm_scale, enable_gqa)
        output, lse = attend(q, k, v, own, fault)
        return (output, lse / math.log(2)) if return_lse else output

    def merge(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        parts, own = torch.stack(list(outputs)), torch.stack(list(lses)) * math.log(2)
        whole = torch.logsumexp(own, 0)
        weights = (own - torch.where(whole == NONE, 0, whole)).exp()[..., None]
        if fault == "parts are merged by their mean":
            weights = torch.full_like(weights, 1 / len(parts))
        return (weights * parts).sum(0).to(parts.dtype), whole / math.log(2)

    return Kernel(
        attention,
        axes="BHSD",
        head_dims=[64, 96, 128],
        names={"attn_mask": "bias", "is_causal": "causal", "scale": "sm_scale"},
        lse=Also(attention, axes="BHS", base=2, always={"return_lse": True}),
        merge=merge,
    )


def serving_like(fault: str = "") -> Kernel:
    """Return a kernel for one sequence (S, H, D), with sinks."""

    def one_sequence(
        q: Tensor, k: Tensor, v: Tensor, causal: bool = False, s_aux: Tensor | None = None
    ) -> Tensor:
        groups = q.shape[1] != k.shape[1]
        own = Options(None, causal, None, groups, "bottom-right")
        inputs = (x.transpose(0, 1) for x in (q, k, v))
        return attend(*inputs, own, fault, sinks=s_aux)[0].transpose(0, 1)

    return Kernel(
        one_sequence,
        axes="SHD",
        names={"is_causal": "causal"},
        causal=["bottom-right"],
        groups="by shape",
        sinks="s_aux",
    )


def onnx_like(fault: str = "") -> Kernel:
    """Return a kernel whose mask and is_causal remove both, with a soft cap."""

    def attention(
        Q: Tensor, K: Tensor, V: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
        scale: float | None = None, softcap: float | None = None,
    ) -> Tensor:
        require(Q.ndim == 4, "there are 4 axes (B, H, S, D)", Q)
        own = {"attn_mask": attn_mask, "scale": scale, "window": (None, 0) if is_causal else None}
        return dense(Q, K, V, fault, softcap, **own)[0]

    return Kernel(
        attention,
        axes="BHSD",
        mask_with_causal="both remove",
        groups="by shape",
        softcap="softcap",
    )


def at_one(kernel: Kernel) -> Kernel:
    """Return a kernel that claims no more than its smallest head dimension and its first dtype."""
    smallest, *_ = kernel.dims or [HEAD_DIMS]
    return replace(kernel, head_dims=[smallest], dtypes=(kernel.dtypes or ["float32"])[:1])


class Fault(NamedTuple):
    """A kernel with a fault, the topic that must notice it, and words that lead to it.

    `word` stands in the condition, or the kind, of the group of failures that leads to the fault.
    `needs` are topics whose keywords the fault needs as well.
    """

    build: Callable[[str], Kernel]
    topic: str
    word: str
    needs: tuple[str, ...] = ()


OF_EACH: dict[Callable[[str], Kernel], dict[str, tuple[Any, ...]]] = {
    torch_like: {
        "a boolean mask is inverted": ("masks", "a boolean mask"),
        "is_causal stands at the other corner": ("causal", "is_causal"),
        "a window that ends at the query sees the future":
            ("windows", "a window that ends at the query"),
        "a mask of the batch is read by head": ("masks", "a mask (B, 1, L, S)"),
        "at 64 half of the features are not read": ("values", "head dimension 64"),
        "strides are ignored": ("layouts", "inputs that are not contiguous"),
        "the last rows of a tile are not written": ("values", "more than 64 queries"),
        "a first tile without a key gives NaN": ("masks", "without any of the first 64 keys"),
        "NaN comes from outside of a window": ("numbers", "a window", ("windows",)),
        "groups are tiled": ("groups", "fewer key heads than query heads"),
        "gradients of a group are not summed": ("gradients", "fewer key heads than query heads"),
        "gradients are rounded to float16": ("gradients", "gradients"),
        "gradients are zeros": ("gradients", "gradients"),
        "sequences beyond 65,535 are not written": ("values", "more than 65,535 sequences"),
        "the next call overwrites the result": ("layouts", "the next call"),
        "sums are kept in half precision": ("dtypes", "half precision"),
        "the scale is 1/d": ("values", "no scale"),
        "zeros that an absolute tolerance accepts": ("values", "zeros"),
    },
    flash_like: {
        "one query stands at the first key": ("bottom-right", "one query"),
        "at 128 a quarter of the features is not written": ("values", "head dimension 128"),
        "at 128 causal gives zeros": ("causal", "head dimension 128"),
        "the log-sum-exp is one of base 2": ("lse", "a log-sum-exp"),
        "packed texts see each other": ("documents", "documents"),
        "all texts have one causal frontier":
            ("documents", "other lengths for keys", ("bottom-right",)),
        "what stands behind the length is read": ("pages", "a page that is not full"),
        "a page that is not full is not read": ("pages", "a page that is not full"),
        "pages are read in the order of the pool": ("pages", "pages"),
    },
    sixteens_like: {
        "at 96 the scale is that of 128": ("values", "head dimension 96"),
        "one query does not see the last keys": ("values", "one query"),
        "the log-sum-exp of an empty row is +∞": ("lse", "rows without keys"),
        "the log-sum-exp has no gradient": ("lse", "a gradient of the log-sum-exp"),
        "the log-sum-exp is that of the last tile": ("lse", "more than 64 keys"),
        "parts are merged by their mean": ("merge", "keys in two halves"),
        "the gradient of the last keys is lost": ("gradients", "more than 64 keys"),
    },
    serving_like: {"a sink counts once in each tile": ("sinks", "more than 64 keys")},
    onnx_like: {
        "the soft cap comes after the mask": ("soft cap", "a soft cap", ("masks", "causal")),
    },
}
FAULTS = {
    name: Fault(build, *about)
    for build, faults in OF_EACH.items() for name, about in faults.items()
}

# Plainer mistakes of a kernel like torch's, with the topic that must notice each.
MISTAKES = {
    "the largest score is not subtracted": "values",
    "NaN in a score is taken for 0": "numbers",
    "an empty row is NaN": "empty",
    "the score of a removed key is -1e9": "empty",
    "more or fewer values than keys are accepted": "errors",
    "the gradient of the mask is zeros": "mask gradients",
    "a gradient of the output is taken for contiguous": "gradients",
    "the gradient of the output is modified": "gradients",
    "the query is modified": "layouts",
}
