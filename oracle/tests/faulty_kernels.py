"""Attention kernels with one fault each, of the kinds that kernels in the field have had.

All come from one block-wise loop on tensors, `attend`, which is right where `fault` is "". Around
it stand five kernels with the conventions of real ones: torch's own signature; (B, S, H, D) for two
head dimensions in half precision, with the causal mask at the bottom right, packed texts and pages;
multiples of 16 only; one sequence with sinks; and masks that are combined with is_causal. `FAULTS`
names each fault, and `twin` is the same kernel without it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attncheck import Also, Kernel

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


class WithGradient(torch.autograd.Function):
    """The identity, whose gradient is changed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        return ctx.change(above[0]), None


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
        return WithGradient.apply(heads, lambda gradient: gradient * first)
    return heads


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


def tiles(n: int, size: int = TILE) -> list[slice]:
    """Return tiles of n tokens; one of length 0 where there are none."""
    return [slice(k, min(k + size, n)) for k in range(0, n, size)] or [slice(0, 0)]


def allowed_keys(i: Tensor, j: Tensor, mask: Tensor | None, options: Options, fault: str) -> Tensor:
    """Return which keys j the queries i see: by their positions, and by the mask."""
    left, right = options.window or (None, None)
    if fault == "a window that ends at the query sees the future":
        right = right or None  # 0 is false
    allowed = torch.ones(len(i), len(j), dtype=torch.bool)
    if options.is_causal:
        allowed = allowed & (j <= i[:, None])
    if left is not None:
        allowed = allowed & (j >= i[:, None] - left)
    if right is not None:
        allowed = allowed & (j <= i[:, None] + right)
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else mask != NONE)
    return allowed


def attend(
    query: Tensor, key: Tensor, value: Tensor, options: Options, fault: str = "", *,
    softcap: float | None = None, sinks: Tensor | None = None, first: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp of attention to one tile of keys after the other.

    `first` is the position of the first query among the keys, where the options do not say it.
    """
    if fault == "strides are ignored":
        query, key, value = map(taken_for_contiguous, (query, key, value))
    if fault == "more or fewer values than keys are accepted" and value.ndim > 1:
        value = value[..., torch.arange(key.shape[-2]) % max(1, value.shape[-2]), :]
    batch, group = accepted(query, key, value, options)
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    in_half = query.dtype in HALF
    wide = torch.float32 if in_half else query.dtype
    tile = 1 if fault == "sums are kept in half precision" and in_half else TILE
    inputs = [query, *(repeated(x, group, fault) for x in (key, value))]
    q, k, v = (x.to(wide).expand(*batch, *x.shape[-2:]) for x in inputs)
    if fault in GRADIENTS:
        k, v = (WithGradient.apply(x, GRADIENTS[fault]) for x in (k, v))
        if fault != "the gradient of the last keys is lost":
            q = WithGradient.apply(q, GRADIENTS[fault])
    if fault == "at 64 half of the features are not read" and q.shape[-1] == 64:
        k = torch.cat([k[..., :32], torch.zeros_like(k[..., 32:])], dim=-1)
    if fault == "one query does not see the last keys" and n_queries == 1 and n_keys > TILE:
        n_keys = n_keys // TILE * TILE
    mask = options.attn_mask
    if mask is not None:
        if fault == "a boolean mask is inverted" and mask.dtype == torch.bool:
            mask = ~mask
        if fault == "the gradient of the mask is zeros" and mask.is_floating_point():
            mask = WithGradient.apply(mask, torch.zeros_like)
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

    outputs, lses = [], []
    for rows in tiles(n_queries):
        i = first + torch.arange(rows.start, rows.stop)
        m = torch.full((*batch, len(i), 1), NONE, dtype=wide)
        total, o = torch.zeros_like(m), torch.zeros(*batch, len(i), v.shape[-1], dtype=wide)
        alive = torch.zeros(len(i), 1, dtype=torch.bool)
        for columns in tiles(n_keys, tile):
            j = torch.arange(columns.start, columns.stop)
            here = None if mask is None else mask[..., rows, columns]
            allowed = allowed_keys(i, j, here, options, fault)
            alive = alive | allowed.any(-1, keepdim=True)
            k_tile, v_tile = k[..., columns, :], v[..., columns, :]
            if fault != "NaN comes from outside of a window" or options.window is None:
                seen = allowed.any(-2)[..., None]  # what no query sees may be NaN: 0 · NaN is NaN
                k_tile, v_tile = (torch.where(seen, x, 0) for x in (k_tile, v_tile))
            s = scale * (q[..., rows, :] @ k_tile.mT)
            s = masked(s, here, allowed, softcap, fault)
            if fault == "NaN in a score is taken for 0":
                s = s.nan_to_num(nan=0.0, posinf=math.inf, neginf=NONE)
            m_new = torch.cat([m, s.detach()], dim=-1).amax(-1, keepdim=True)
            if fault == "the largest score is not subtracted":
                m_new = torch.zeros_like(m)
            base = torch.where(m_new == NONE, 0, m_new)
            if fault == "a first tile without a key gives NaN":
                base = m_new  # -∞ - -∞ is NaN
            powers, before = (s - base).exp(), (m - base).exp() * total
            total = before + powers.sum(-1, keepdim=True)
            divisor = torch.where(total == 0, 1, total)
            o = before / divisor * o + powers / divisor @ v_tile  # a mean: it does not overflow
            m = m_new
            if tile == 1:
                total, o = (x.to(query.dtype).to(wide) for x in (total, o))
        lse = torch.where(m == NONE, 0, m) + torch.where(total == 0, 1, total).log()
        if fault == "the log-sum-exp is that of the last tile":
            lse = torch.logsumexp(s, -1, keepdim=True)
        if fault == "the score of a removed key is -1e9":
            alive = torch.ones_like(alive)
        outputs.append(torch.where(alive, o, math.nan if fault == "an empty row is NaN" else 0))
        empty = math.inf if fault == "the log-sum-exp of an empty row is +∞" else NONE
        lses.append(torch.where(alive, lse, empty)[..., 0])
    output, lse = torch.cat(outputs, dim=-2), torch.cat(lses, dim=-1)
    if sinks is not None:
        n = len(tiles(n_keys)) if fault == "a sink counts once in each tile" else 1
        column = (sinks + math.log(n)).to(wide)[:, None]
        whole = torch.logaddexp(lse, column)
        kept = torch.where(lse == NONE, 0, torch.exp(lse - whole))
        output, lse = output * kept[..., None], whole
    if fault == "the query is modified" and not query.requires_grad:
        query.mul_(2)
    if fault == "the log-sum-exp has no gradient":
        lse = WithGradient.apply(lse, torch.zeros_like)
    lse = lse / math.log(2) if fault == "the log-sum-exp is one of base 2" else lse
    return written(output.to(query.dtype), options, fault), lse


def masked(
    s: Tensor, mask: Tensor | None, allowed: Tensor, softcap: float | None, fault: str
) -> Tensor:
    """Return the scores below the soft cap, with the mask added, and -∞ for removed keys."""
    late = fault == "the soft cap comes after the mask"
    if softcap is not None and not late:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None and mask.dtype != torch.bool:
        s = s + mask.to(s.dtype)
    s = torch.where(allowed, s, -1e9 if fault == "the score of a removed key is -1e9" else NONE)
    return softcap * torch.tanh(s / softcap) if softcap is not None and late else s


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
        return WithGradient.apply(output, taken_for_contiguous)
    if fault == "the gradient of the output is modified":
        return WithGradient.apply(output, modified)
    at_128 = fault == "at 128 causal gives zeros" and n_features == 128 and options.is_causal
    if at_128 or fault == "zeros that an absolute tolerance accepts":
        return output * 0
    if fault == "the next call overwrites the result" and not output.requires_grad:
        return BUFFERS.setdefault((output.shape, output.dtype), kept).copy_(output)
    return output


# Texts and pages, one call for each ---------------------------------------------------------------


def over_texts(attend: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, *starts: Tensor) -> Any:
    """Return attention within each text, and its log-sum-exp; axes are (…, H, T, D)."""
    rows, columns = (list(pairwise(own.tolist())) for own in starts)
    found = [
        attend(q[..., i:j, :], k[..., m:n, :], v[..., m:n, :])
        for (i, j), (m, n) in zip(rows, columns, strict=True)
    ]
    outputs, lses = zip(*found, strict=True)
    return torch.cat(outputs, dim=-2), torch.cat(lses, dim=-1)


def over_pages(
    attend: Callable[..., Any], q: Tensor, key_pages: Tensor, value_pages: Tensor, table: Any,
    lengths: Any,
) -> Tensor:
    """Return attention to keys in pages; queries are (B, H, S, D), pages (n_pages, page, H, D)."""
    outputs = []
    for row, pages, length in zip(q, table, lengths, strict=True):
        k, v = (x[pages].flatten(0, 1)[:length].transpose(0, 1) for x in (key_pages, value_pages))
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


def flash_like(fault: str = "") -> Kernel:
    """Return a kernel for (B, S, H, D) in half precision, with texts in a row and with pages."""

    def options(q: Tensor, k: Tensor, causal: bool, scale: Any, window: Any, axis: int) -> Options:
        require(q.shape[-1] % 16 == 0, "head dimensions are multiples of 16", q)
        require(q.dtype in HALF, "dtypes are float16 and bfloat16", q)
        bounds = tuple(None if n < 0 else n for n in window)
        groups = q.shape[axis] != k.shape[axis]
        return Options(None, causal, scale, groups, "bottom-right", bounds)

    def with_lse(
        q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> tuple[Tensor, Tensor]:
        require(q.ndim == k.ndim == v.ndim == 4, "there are 4 axes (B, S, H, D)", q)
        own = options(q, k, causal, softmax_scale, window_size, 2)
        output, lse = attend(*(x.transpose(1, 2) for x in (q, k, v)), own, fault)
        return output.transpose(1, 2), lse

    def of_texts(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
        max_seqlen_q: int, max_seqlen_k: int, causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        own = options(q, k, causal, None, window_size, 1)
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        if fault == "packed texts see each other":
            return attend(q, k, v, own, fault)[0].transpose(0, 1)
        first = None
        if fault == "all texts have one causal frontier":
            first = int(cu_seqlens_k[1] - cu_seqlens_q[1])  # that of the first text

        def one(q: Tensor, k: Tensor, v: Tensor) -> Any:
            return attend(q, k, v, own, fault, first=first)

        return over_texts(one, q, k, v, cu_seqlens_q, cu_seqlens_k)[0].transpose(0, 1)

    def of_pages(
        q: Tensor, key_pages: Tensor, value_pages: Tensor, block_table: Tensor,
        cache_seqlens: Tensor, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        own = options(q, key_pages, causal, None, window_size, 2)
        page, lengths = key_pages.shape[1], cache_seqlens
        if fault == "what stands behind the length is read":
            lengths = -(-lengths // page) * page
        if fault == "a page that is not full is not read":
            lengths = lengths // page * page
        if fault == "pages are read in the order of the pool":
            block_table = block_table.sort(dim=1).values

        def one(q: Tensor, k: Tensor, v: Tensor) -> Any:
            return attend(q, k, v, own, fault)

        q = q.transpose(1, 2)
        return over_pages(one, q, key_pages, value_pages, block_table, lengths).transpose(1, 2)

    return Kernel(
        without_lse(with_lse),
        axes="BSHD",
        head_dims=[64, 128],
        dtypes=["float16", "bfloat16"],
        names={"is_causal": "causal", "scale": "softmax_scale", "window": "window_size"},
        values={"window": lambda window: tuple(-1 if n is None else n for n in window)},
        causal=["bottom-right"],
        mask=None,
        groups="by shape",
        lse=Also(with_lse, axes="BHS"),
        documents=Also(of_texts, axes="THD", longest=("max_seqlen_q", "max_seqlen_k")),
        pages=Also(of_pages, axes="PSHD", page=16),
    )


def sixteens_like(fault: str = "") -> Kernel:
    """Return a kernel for multiples of 16, whose log-sum-exp has base 2 and can be merged."""

    def with_lse(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, causal: bool = False,
        sm_scale: float | None = None, enable_gqa: bool = False,
    ) -> tuple[Tensor, Tensor]:
        require(q.shape[-1] % 16 == 0 == v.shape[-1] % 16, "multiples of 16", q)
        require(q.ndim == 4, "there are 4 axes (B, H, S, D)", q)
        own = Options(bias, causal, sm_scale, enable_gqa)
        output, lse = attend(q, k, v, own, fault)
        return output, lse / math.log(2)

    def merge(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        parts, own = torch.stack(list(outputs)), torch.stack(list(lses)) * math.log(2)
        whole = torch.logsumexp(own, 0)
        weights = (own - torch.where(whole == NONE, 0, whole)).exp()[..., None]
        if fault == "parts are merged by their mean":
            weights = torch.full_like(weights, 1 / len(parts))
        return (weights * parts).sum(0).to(parts.dtype), whole / math.log(2)

    return Kernel(
        without_lse(with_lse),
        axes="BHSD",
        head_dims=[64, 96, 128],
        names={"attn_mask": "bias", "is_causal": "causal", "scale": "sm_scale"},
        lse=Also(with_lse, axes="BHS", base=2),
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
        require(Q.ndim == K.ndim == V.ndim == 4, "there are 4 axes (B, H, S, D)", Q)
        window = (None, 0) if is_causal else None
        groups = Q.shape[1] != K.shape[1]
        own = Options(attn_mask, False, scale, groups, window=window)
        return attend(Q, K, V, own, fault, softcap=softcap)[0]

    return Kernel(
        attention,
        axes="BHSD",
        mask_with_causal="both remove",
        groups="by shape",
        softcap="softcap",
    )


def without_lse(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Return a function with the same signature that returns the output alone."""

    @functools.wraps(function)
    def alone(*inputs: Tensor, **options: Any) -> Tensor:
        return function(*inputs, **options)[0]

    return alone


def require(holds: bool, words: str, q: Tensor) -> None:
    """Refuse what a kernel is not built for."""
    if not holds:
        raise ValueError(f"{words}; got {tuple(q.shape)} {q.dtype}")


class Fault(NamedTuple):
    """A kernel with a fault, the topic that must notice it, and words that lead to it.

    `word` stands in the condition, or the kind, of the group of failures that leads to the fault.
    `needs` are topics whose keywords the fault needs as well.
    """

    build: Callable[[str], Kernel]
    topic: str
    word: str
    needs: tuple[str, ...] = ()


FAULTS = {
    "a boolean mask is inverted": Fault(torch_like, "masks", "a boolean mask"),
    "is_causal stands at the other corner": Fault(torch_like, "causal", "is_causal"),
    "one query stands at the first key": Fault(flash_like, "bottom-right", "one query"),
    "a window that ends at the query sees the future":
        Fault(torch_like, "windows", "a window that ends at the query"),
    "a mask of the batch is read by head": Fault(torch_like, "masks", "a mask (B, 1, L, S)"),
    "at 64 half of the features are not read": Fault(torch_like, "values", "head dimension 64"),
    "at 96 the scale is that of 128": Fault(sixteens_like, "values", "head dimension 96"),
    "at 128 a quarter of the features is not written":
        Fault(flash_like, "values", "head dimension 128"),
    "at 128 causal gives zeros": Fault(flash_like, "causal", "head dimension 128"),
    "strides are ignored": Fault(torch_like, "layouts", "inputs that are not contiguous"),
    "the last rows of a tile are not written":
        Fault(torch_like, "values", "more than 64 queries"),
    "one query does not see the last keys": Fault(sixteens_like, "values", "one query"),
    "a first tile without a key gives NaN":
        Fault(torch_like, "masks", "without any of the first 64 keys"),
    "the log-sum-exp is one of base 2": Fault(flash_like, "lse", "a log-sum-exp"),
    "the log-sum-exp of an empty row is +∞": Fault(sixteens_like, "lse", "rows without keys"),
    "the log-sum-exp has no gradient":
        Fault(flash_like, "lse", "a gradient of the log-sum-exp"),
    "the log-sum-exp is that of the last tile": Fault(sixteens_like, "lse", "more than 64 keys"),
    "parts are merged by their mean": Fault(sixteens_like, "merge", "keys in two halves"),
    "packed texts see each other": Fault(flash_like, "documents", "documents"),
    "all texts have one causal frontier":
        Fault(flash_like, "documents", "other lengths for keys", ("bottom-right",)),
    "what stands behind the length is read": Fault(flash_like, "pages", "a page that is not full"),
    "a page that is not full is not read": Fault(flash_like, "pages", "a page that is not full"),
    "pages are read in the order of the pool": Fault(flash_like, "pages", "pages"),
    "NaN comes from outside of a window": Fault(torch_like, "numbers", "a window", ("windows",)),
    "a sink counts once in each tile": Fault(serving_like, "sinks", "more than 64 keys"),
    "the soft cap comes after the mask":
        Fault(onnx_like, "soft cap", "a soft cap", ("masks", "causal")),
    "groups are tiled": Fault(torch_like, "groups", "fewer key heads than query heads"),
    "gradients of a group are not summed":
        Fault(torch_like, "gradients", "fewer key heads than query heads"),
    "gradients are rounded to float16": Fault(torch_like, "gradients", "gradients"),
    "gradients are zeros": Fault(torch_like, "gradients", "gradients"),
    "the gradient of the last keys is lost":
        Fault(sixteens_like, "gradients", "more than 64 keys"),
    "sequences beyond 65,535 are not written":
        Fault(torch_like, "values", "more than 65,535 sequences"),
    "the next call overwrites the result": Fault(torch_like, "layouts", "the next call"),
    "sums are kept in half precision": Fault(torch_like, "dtypes", "half precision"),
    "the scale is 1/d": Fault(torch_like, "values", "no scale"),
    "zeros that an absolute tolerance accepts": Fault(torch_like, "values", "zeros"),
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
