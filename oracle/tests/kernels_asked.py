"""Kernels with a fault that one question alone notices, each beside its correct twin.

All are the plain formula, `plain`, in the conventions of the claim that is asked. `ASKED` names
each fault, what builds the kernel, and words of the cases that notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from faulty_kernels import with_gradient
from torch import Tensor

from attncheck import Also, Kernel
from attncheck._torch_backend import plain

ZEROS = "the gradient of sinks is zeros"
ROUNDED = "the gradient of sinks is rounded to bfloat16 first"
UNCAPPED = "the gradient forgets the slope of the soft cap"
UNMERGED = "no gradient passes through the weights of a merge"
UNSUMMED = "in texts the gradient of a group is not summed"
FRONTIER = "many queries of all texts have the frontier of the first"
ALL_FRONTIERS = "the gradient of texts stands at the frontier of the first"
ONE_KEY = "an integer window has another key"
LAST_SLOT = "a page that lacks one key lacks two"
FALLING = "pages that fall are read as if they rose"
FAR = "offsets of a mask are counted in 32 bits"
COMPILED = "is_causal is lost where the function is compiled"
RANK = "a mask of two axes is read from its end"
POLARITY = "True takes part, but the claim says that it removes"

NO_NAN = {"numbers": "plain attention multiplies what it removes by 0"}


def seen(n_queries: int, n_keys: int, first: int, left: int | None = None) -> Tensor:
    """Return which keys causal queries see, the first of which stands at `first`."""
    i, j = first + torch.arange(n_queries)[:, None], torch.arange(n_keys)
    return (j <= i) if left is None else (j <= i) & (j >= i - left)


def repeated(x: Tensor, group: int, fault: str = "") -> Tensor:
    """Return key or value with a head for each query head."""
    heads = x.repeat_interleave(group, -3)
    if fault != UNSUMMED or group == 1:
        return heads
    first = (torch.arange(heads.shape[-3]) % group == 0)[:, None, None]
    return with_gradient(heads, lambda gradient: gradient * first)


def with_sinks(fault: str = "") -> Kernel:
    """Return a kernel whose sinks can be learnt."""
    changes: dict[str, Any] = {
        ZEROS: torch.zeros_like, ROUNDED: lambda gradient: gradient.bfloat16().to(gradient.dtype),
    }

    def attention(q: Tensor, k: Tensor, v: Tensor, s_aux: Tensor | None = None) -> Tensor:
        if s_aux is not None and fault in changes:
            s_aux = with_gradient(s_aux, changes[fault])
        wide = [x.float() if x.itemsize < 4 else x for x in (q, k, v)]
        return plain(*wide, sinks=s_aux)[0].to(q.dtype)

    return Kernel(attention, sinks="s_aux")


def with_soft_cap(fault: str = "") -> Kernel:
    """Return a kernel with a soft cap."""

    def attention(q: Tensor, k: Tensor, v: Tensor, cap: float | None = None) -> Tensor:
        if fault != UNCAPPED or cap is None:
            return plain(q, k, v, softcap=cap)[0]
        scores = q @ k.mT * q.shape[-1] ** -0.5
        capped = scores + (cap * torch.tanh(scores / cap) - scores).detach()
        return torch.softmax(capped, -1) @ v

    return Kernel(attention, softcap="cap")


def merging(fault: str = "") -> Kernel:
    """Return a kernel whose outputs can be merged by their log-sum-exps."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None = None) -> Any:
        return plain(q, k, v, attn_mask)

    def merge(outputs: list[Tensor], lses: list[Tensor]) -> tuple[Tensor, Tensor]:
        parts, own = torch.stack(outputs), torch.stack(lses)
        empty = (own == -torch.inf).all(0)
        shares = torch.softmax(own.masked_fill(empty, 0), 0)
        shares = shares.detach() if fault == UNMERGED else shares
        whole = torch.logsumexp(own.masked_fill(empty, 0), 0).masked_fill(empty, -torch.inf)
        return (shares[..., None] * parts).sum(0), whole

    def alone(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None = None) -> Tensor:
        return attention(q, k, v, attn_mask=attn_mask)[0]

    return Kernel(alone, lse=Also(attention), merge=merge, not_claimed=NO_NAN)


def of_texts(fault: str = "") -> Kernel:
    """Return a kernel for texts in a row, causal at the bottom right, that knows no empty rows."""

    def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
        mask = seen(n_queries, n_keys, n_keys - n_queries) if is_causal else None
        return plain(q, *(repeated(x, group) if group > 1 else x for x in (k, v)), mask)[0]

    def texts(
        q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor,
        is_causal: bool = False,
    ) -> Tensor:
        rows, columns = (list(pairwise(own.tolist())) for own in (starts, key_starts))
        most = max(j - i for i, j in rows)
        one = fault == FRONTIER and most > 1
        one |= fault == ALL_FRONTIERS and q.requires_grad
        outputs, group = [], q.shape[0] // k.shape[0]
        for (i, j), (m, n) in zip(rows, columns, strict=True):
            (a, b), (c, d) = (rows[0], columns[0]) if one else ((i, j), (m, n))
            mask = seen(j - i, n - m, (d - c) - (b - a)) if is_causal else None
            own = (repeated(x[:, m:n], group, fault) for x in (k, v))
            outputs.append(plain(q[:, i:j], *own, mask)[0])
        return torch.cat(outputs, 1)

    return Kernel(
        attention, causal=["bottom-right"], groups="by shape", not_claimed={"empty": "not here"},
        documents=Also(texts, axes="HTD", starts=("starts", "key_starts")),
    )


def of_integers(counts: Any) -> Callable[[str], Kernel]:
    """Return what builds a kernel with an integer window, which counts the own key or does not."""

    def build(fault: str = "") -> Kernel:
        own = counts == "w keys"

        def attention(
            q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, window: int = -1
        ) -> Tensor:
            left = None if window < 0 else window - own + (fault == ONE_KEY)
            mask = seen(q.shape[-2], k.shape[-2], 0, left) if is_causal else None
            return plain(q, k, v, mask)[0]

        return Kernel(attention, window=counts)

    return build


def of_pages(fault: str = "") -> Kernel:
    """Return a kernel for one query beside keys in pages."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k, v)[0]

    def pages(
        q: Tensor, keys: Tensor, values: Tensor, block_table: Tensor, cache_seqlens: Tensor
    ) -> Tensor:
        page, lengths = keys.shape[1], cache_seqlens
        if fault == LAST_SLOT:
            lengths = lengths - (lengths % page == page - 1).to(lengths.dtype)
        if fault == FALLING and block_table.shape[1] > 1 and (block_table.diff(dim=1) < 0).all():
            block_table = block_table.flip(1)
        outputs = []
        for row, own, length in zip(q, block_table, lengths, strict=True):
            k, v = (x[own].flatten(0, 1)[:length].transpose(0, 1) for x in (keys, values))
            outputs.append(attention(row, k, v))
        return torch.stack(outputs)

    return Kernel(attention, pages=Also(pages, axes="PSHD", page=8))


def with_large_masks(fault: str = "") -> Kernel:
    """Return a kernel whose masks may be large."""

    def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        mask = attn_mask
        if fault == FAR and mask is not None and mask.stride()[0] > 2**31:
            mask = mask[:1]
        return plain(q, k, v, mask)[0]

    return Kernel(attention, large_masks=True)


def to_compile(fault: str = "") -> Kernel:
    """Return a kernel that torch.compile takes."""

    def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        if fault == COMPILED and torch.compiler.is_compiling():
            is_causal = False
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril() if is_causal else None
        return plain(q, k, v, mask)[0]

    return Kernel(attention, compiled="eager")


def that_removes(fault: str = "") -> Kernel:
    """Return a kernel for (S, B, H, D) whose masks have 2 or 4 axes, and remove where True."""

    def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        if attn_mask is not None and attn_mask.ndim not in (2, 4):
            raise ValueError(f"masks have 2 or 4 axes; got {attn_mask.ndim}")
        mask = attn_mask
        if mask is not None and mask.dtype == torch.bool and fault != POLARITY:
            mask = ~mask
        if fault == RANK and mask is not None and mask.ndim == 2:
            mask = mask.flip(-1)
        return plain(*(x.permute(1, 2, 0, 3) for x in (q, k, v)), mask)[0].permute(2, 0, 1, 3)

    return Kernel(attention, "SBHD", mask_true="removed", mask_ranks=[2, 4], not_claimed=NO_NAN)


class Question(NamedTuple):
    """What builds a kernel, its topics, and words in the name of each case that notices a fault."""

    build: Callable[[str], Kernel]
    only: tuple[str, ...]
    word: str


TOPICS = ("values", "causal", "bottom-right", "groups", "gradients")
ASKED = {
    ZEROS: Question(with_sinks, (*TOPICS, "sinks"), "gradients"),
    ROUNDED: Question(with_sinks, (*TOPICS, "sinks"), "gradients"),
    UNCAPPED: Question(with_soft_cap, (*TOPICS, "soft cap"), "gradients"),
    UNMERGED: Question(merging, (*TOPICS, "lse", "merge"), "gradients"),
    UNSUMMED: Question(of_texts, (*TOPICS, "documents"), "gradients"),
    FRONTIER: Question(of_texts, (*TOPICS, "documents"), "1, 4 and 7 keys more"),
    ALL_FRONTIERS: Question(of_texts, (*TOPICS, "documents"), "gradients, 1, 4 and 7 keys more"),
    ONE_KEY: Question(of_integers("w keys"), (*TOPICS, "windows"), "window"),
    f"{ONE_KEY} ": Question(of_integers("w + 1 keys"), (*TOPICS, "windows"), "window"),
    LAST_SLOT: Question(of_pages, ("values", "pages"), "less one"),
    FALLING: Question(of_pages, ("values", "pages"), "from the last to the first"),
    FAR: Question(with_large_masks, ("masks", "large masks"), "2³¹"),
    COMPILED: Question(to_compile, (*TOPICS, "compiled"), "causal"),
    # These claims could not be made before, so that every case is a new question.
    RANK: Question(that_removes, ("mask gradients", "masks"), ""),
    POLARITY: Question(that_removes, ("gradients", "masks"), ""),
}
