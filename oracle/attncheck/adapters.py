"""Kernels of other libraries, ready to be checked.

    python -m attncheck attncheck.adapters:flash_attn --device cuda

Each is a `Kernel`, made when its name is asked for; only then is its library imported. An adapter
takes a call to the names and axes of a library, and repairs nothing: what the library gets wrong
comes out wrong, and what it refuses is told in its words.

    name          what is asked besides the plain call     what is not claimed, and why
    flash_attn    lse, documents, pages, windows, softcap  masks, sinks: no argument
    flashinfer    lse, merge, pages, windows, softcap      gradients; documents, masks: own ways
    torch_varlen  lse, documents, pages, windows           masks, sinks, softcap: no argument
    xformers      floating masks, two corners, documents   lse, pages, windows, groups: own ways

The docstring of each says more. Head dimensions are those at which the field's faults live;
`dataclasses.replace(kernel, head_dims=[256])` asks at others. NaN where nobody looks (the topic
numbers) is claimed by none: no documentation speaks of it, and in flash-attn's source a key that is
removed is multiplied with its tile, where 0 · NaN is NaN. On a machine without these libraries the
adapters were held against stand-ins with the same signature only. All four need a GPU: the command
line and the plugin of pytest ask none of them without one (`ready`).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

from attncheck._claims import Also, Kernel
from attncheck._types import HALF

NUMBERS = "nothing is said of NaN in keys that are removed"


def __getattr__(name: str) -> Kernel:
    """Return the kernel of a library, which is imported for it.

    Raises:
        AttributeError: a name that is no kernel here.
        ImportError: a library that is not installed, or that cannot be imported.
    """
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    build, _, needs = KERNELS[name]
    try:
        return build()
    except ImportError as error:
        raise ImportError(f"{name} needs {needs}, but {error}") from error


def ready(path: str, device: str) -> None:
    """Require what the kernel of a path needs, before hundreds of cases fail for one reason.

    It imports no library, so that a judge may ask it. Paths that lead elsewhere need nothing.

    Raises:
        ValueError: a library that is not installed, or a device that is not there.
    """
    module, _, name = path.partition(":")
    if module != __name__ or name not in KERNELS:
        return
    _, library, needs = KERNELS[name]
    if importlib.util.find_spec(library) is None:
        raise ValueError(f"{name} needs {needs}, and there is no module {library!r} here")
    cuda: Any = importlib.import_module("torch.cuda")
    if not cuda.is_available():
        raise ValueError(f"{name} needs a GPU, and torch finds no CUDA device here")
    if device == "cpu":
        raise ValueError(f"{name} needs a GPU: expected --device cuda; got {device}")


def _ends(window: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """Return a window with -1 in place of an end that is open.

    >>> _ends((3, None)), _ends(None)
    ((3, -1), (-1, -1))
    """
    left, right = window or (None, None)
    return -1 if left is None else left, -1 if right is None else right


def of_flash_attn(library: Any) -> Kernel:
    """Return the kernel of a module with flash-attn's functions, for documents and pages too.

    Read in the source of 2.8.4, 15 August 2026 (flash_attn_interface.py, flash_api.cpp). The third
    result beside the log-sum-exp has no meaning without dropout. No gradient passes through the
    log-sum-exp: the backward pass drops it. A row without keys is documented to give zeros; its
    log-sum-exp is +∞ in softmax.h, so that the case that asks for −∞ is expected to fail.

    Others have these functions too, such as flash-attn3 in Hugging Face's hub. There the table of
    pages is `page_table`, and what a module or a function lacks is not claimed.
    """
    one: Any = library.flash_attn_func
    many = getattr(library, "flash_attn_varlen_func", None)
    paged = getattr(library, "flash_attn_with_kvcache", None)
    has, lse = _parameters(one), {"return_attn_probs": True}
    starts, longest = ("cu_seqlens_q", "cu_seqlens_k"), ("max_seqlen_q", "max_seqlen_k")
    table = "page_table" if "page_table" in _parameters(paged) else "block_table"
    return Kernel(
        one,
        axes="BSHD",
        head_dims=[64, 96, 128],
        dtypes=HALF,
        names={"is_causal": "causal", "scale": "softmax_scale", "window": "window_size"},
        values={"window": _ends},
        causal=["bottom-right"],
        mask=None,
        groups="by shape",
        lse=Also(one, axes="BHS", differentiable=False, always=lse) if has & set(lse) else None,
        documents=Also(many, axes="THD", starts=starts, longest=longest) if many else None,
        pages=Also(paged, axes="PSHD", table=table, page=256) if paged else None,
        softcap="softcap" if "softcap" in has else None,
        not_claimed={"numbers": NUMBERS},
    )


def _parameters(function: Any) -> set[str]:
    """Return the names of what a function takes; none for None."""
    return set() if function is None else set(inspect.signature(function).parameters)


def _flashinfer() -> Kernel:
    """Return FlashInfer: one request at a time, and a batch of decoding steps from pages.

    Read in the source of 0.6.18, 22 August 2026 (prefill.py, decode.py, cascade.py, prefill.cuh,
    variants.cuh). Its layout "NHD" has tokens, heads and features, and no batch. A window has a
    left end alone, at the bottom right; one that ends at the query is that beside causal. The base
    of the log-sum-exp is 2: `ptx_log2`, and so FlashInfer's own tests. `custom_mask` is one mask
    for all heads, and is not claimed; nor are documents, which another pair of plan and run takes.
    Causal with more queries than keys is refused.
    """
    library: Any = importlib.import_module("flashinfer")
    torch: Any = importlib.import_module("torch")

    def attention(
        query: Any, key: Any, value: Any, *, is_causal: bool = False, window: Any = None,
        sm_scale: float | None = None, logits_soft_cap: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        left, right = _ends(window)
        return library.single_prefill_with_kv_cache(
            query, key, value, causal=is_causal or right == 0, window_left=left,
            sm_scale=sm_scale, logits_soft_cap=logits_soft_cap, return_lse=return_lse,
        )

    def pages(
        query: Any, key: Any, value: Any, *, block_table: Any, cache_seqlens: Any,
        is_causal: bool = False, window: Any = None, **named: Any,
    ) -> Any:
        (n_queries, n_heads, features), (page, n_key_heads) = query.shape[1:], key.shape[1:3]
        used = (cache_seqlens + page - 1) // page
        ends = torch.nn.functional.pad(used.cumsum(0, dtype=torch.int32), (1, 0))
        slots = torch.arange(block_table.shape[1], device=used.device)
        several: dict[str, Any] = {"q_len_per_req": n_queries} if n_queries > 1 else {}
        space = torch.zeros(128 * 2**20, dtype=torch.uint8, device=query.device)
        # Several queries of a request are always causal, and need tensor cores.
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
            space, "NHD", use_tensor_cores=n_queries > 1
        )
        wrapper.plan(
            ends, block_table[slots < used[:, None]], (cache_seqlens - 1) % page + 1,
            n_heads, n_key_heads, features, page, window_left=_ends(window)[0],
            q_data_type=query.dtype, **several, **named,
        )
        return wrapper.run(query.flatten(0, 1), (key, value)).unflatten(0, (-1, n_queries))

    def merge(outputs: list[Any], lses: list[Any]) -> Any:
        return library.merge_states(torch.stack(outputs, 1), torch.stack(lses, 1))

    return Kernel(
        attention,
        axes="SHD",
        head_dims=[64, 128],
        dtypes=HALF,
        names={"scale": "sm_scale"},
        values={"window": lambda w: w if w[1] in (None, 0) else NotImplemented},
        causal=["bottom-right"],
        mask=None,
        groups="by shape",
        gradients=False,
        lse=Also(attention, axes="SH", base=2, always={"return_lse": True}),
        merge=merge,
        pages=Also(pages, axes="PSHD", page=16),
        softcap="logits_soft_cap",
        not_claimed={"numbers": NUMBERS, "empty": "it refuses causal with more queries than keys"},
    )


def _torch_varlen() -> Kernel:
    """Return torch's `varlen_attn`, for which a batch is as many texts of one length.

    Read in torch 2.13.0 (varlen.py, and flash_api.cpp of its main branch): before 2.12 it has other
    arguments, before 2.10 it is not there. Its documentation says that the log-sum-exp is (T, H);
    what the code makes is (H, T), and that is asked for. No gradient passes through it. A page has
    256 slots, or a multiple of that. A batch of 0 is refused there, as by flash-attn.
    """
    varlen: Any = importlib.import_module("torch.nn.attention.varlen")
    torch: Any = importlib.import_module("torch")

    def starts(x: Any) -> Any:
        return torch.arange(len(x) + 1, dtype=torch.int32, device=x.device) * x.shape[1]

    def texts(
        query: Any, key: Any, value: Any, *, is_causal: bool = False, window: Any = None,
        return_lse: bool = False, **named: Any,
    ) -> Any:
        left, right = _ends(window)
        aux = varlen.AuxRequest(lse=True) if return_lse else None
        size = left, 0 if is_causal else right
        return varlen.varlen_attn(query, key, value, return_aux=aux, window_size=size, **named)

    def attention(
        query: Any, key: Any, value: Any, *, is_causal: bool = False, window: Any = None,
        scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    ) -> Any:
        rows = query.shape[:2]
        places = {"cu_seq_q": starts(query), "cu_seq_k": starts(key)}
        found = texts(
            *(x.flatten(0, 1) for x in (query, key, value)), **places, max_q=query.shape[1],
            max_k=key.shape[1], is_causal=is_causal, window=window, scale=scale,
            enable_gqa=enable_gqa, return_lse=return_lse,
        )
        if return_lse:
            return found[0].unflatten(0, rows), found[1].unflatten(1, rows)
        return found.unflatten(0, rows)

    def pages(
        query: Any, key: Any, value: Any, *, block_table: Any, seqused_k: Any, **named: Any
    ) -> Any:
        ends = torch.nn.functional.pad(seqused_k.cumsum(0, dtype=torch.int32), (1, 0))
        found = texts(
            query.flatten(0, 1), key, value, cu_seq_q=starts(query), cu_seq_k=ends,
            max_q=query.shape[1], max_k=int(seqused_k.max()), seqused_k=seqused_k,
            block_table=block_table, **named,
        )
        return found.unflatten(0, query.shape[:2])

    places, longest = ("cu_seq_q", "cu_seq_k"), ("max_q", "max_k")
    return Kernel(
        attention,
        axes="BSHD",
        head_dims=[64, 96, 128],
        dtypes=HALF,
        causal=["bottom-right"],
        mask=None,
        lse=Also(attention, axes="HBS", differentiable=False, always={"return_lse": True}),
        documents=Also(texts, axes="THD", starts=places, longest=longest),
        pages=Also(pages, axes="PSHD", lengths="seqused_k", page=256),
        not_claimed={"numbers": NUMBERS},
    )


def _xformers() -> Kernel:
    """Return `xformers.ops.memory_efficient_attention`, with axes BMHK.

    Read in xformers 0.0.35, 21 April 2026, and in mslk, 21 August 2026, from which it takes its
    kernels since. A mask is a bias of the query's dtype and full shape, whose rows lie a multiple
    of 8 numbers apart, as its message of an error has it. Of rows without keys it says that they
    are not defined. Groups have five axes and no gradient; windows and pages have biases that stand
    at the bottom right alone; a log-sum-exp comes from another function. Where gradients of
    documents are refused as "non-deterministic", that comes from this check: it fills memory with
    NaN in torch's deterministic mode.
    """
    biases: Any = importlib.import_module("xformers.ops.fmha.attn_bias")
    library: Any = importlib.import_module("xformers.ops")
    torch: Any = importlib.import_module("torch")

    def attention(
        query: Any, key: Any, value: Any, *, attn_mask: Any = None, is_causal: bool = False,
        causal_align: str = "top-left", scale: float | None = None,
    ) -> Any:
        bias, n_keys = None, key.shape[1]
        if attn_mask is not None and is_causal:
            raise TypeError("attn_bias is a tensor or a causal mask; got both")
        if attn_mask is not None:
            wide = attn_mask.expand(query.shape[0], query.shape[2], query.shape[1], n_keys)
            bias = torch.nn.functional.pad(wide, (0, -n_keys % 8))[..., :n_keys]
        if is_causal and causal_align == "top-left":
            bias = biases.LowerTriangularMask()
        elif is_causal:
            bias = biases.LowerTriangularFromBottomRightMask()
        return library.memory_efficient_attention(query, key, value, attn_bias=bias, scale=scale)

    def texts(
        query: Any, key: Any, value: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any,
        is_causal: bool = False, causal_align: str = "top-left", scale: float | None = None,
    ) -> Any:
        lengths = [starts.diff().tolist() for starts in (cu_seqlens_q, cu_seqlens_k)]
        bias = biases.BlockDiagonalMask.from_seqlens(*lengths, device=query.device)
        if is_causal and causal_align == "top-left":
            bias = bias.make_causal()
        elif is_causal:
            bias = bias.make_causal_from_bottomright()
        query, key, value = query[None], key[None], value[None]
        return library.memory_efficient_attention(query, key, value, attn_bias=bias, scale=scale)[0]

    return Kernel(
        attention,
        axes="BSHD",
        head_dims=[64, 128],
        dtypes=(*HALF, "float32"),
        causal=["top-left", "bottom-right"],
        mask="like query",
        groups=None,
        documents=Also(texts, axes="THD"),
        not_claimed={"numbers": NUMBERS, "empty": "rows without keys are not defined"},
    )


# What makes each kernel, the module that it imports, and what brings this module.
KERNELS: dict[str, tuple[Callable[[], Kernel], str, str]] = {
    "flash_attn": (
        lambda: of_flash_attn(importlib.import_module("flash_attn")), "flash_attn",
        "the package flash-attn"),
    "flashinfer": (_flashinfer, "flashinfer", "the package flashinfer-python"),
    "torch_varlen": (_torch_varlen, "torch", "torch 2.12 or newer"),
    "xformers": (_xformers, "xformers", "the packages xformers and mslk"),
}
