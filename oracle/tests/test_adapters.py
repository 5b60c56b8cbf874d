"""The adapters for other libraries, held against stand-ins with the same conventions.

None of the libraries is here, and none runs on a CPU: torch's own `varlen_attn` is installed and
raises `NotImplementedError` there (no `aten::_flash_attention_forward`). So each is replaced by
functions of the same conventions, which take those of its arguments that an adapter may pass, and
are computed by the right form of `faulty_kernels`. This shows that an adapter says what it means,
and not that a library is right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from faulty_kernels import (
    adapted,
    at_one,
    by_position,
    dense,
    flash_functions,
    in_half,
    over_pages,
    over_texts,
)
from torch import Tensor

from attncheck import Kernel, backend_for, cases, check
from attncheck.__main__ import found, main
from attncheck.adapters import ready

# -- FlashInfer ------------------------------------------------------------------------------------


def flashinfer(fault: str = "") -> dict[str, Any]:
    """Return the functions of FlashInfer 0.6.18, with one fault on purpose."""

    def one(
        q: Tensor, k: Tensor, v: Tensor, sm_scale: Any, causal: bool, left: int, cap: Any
    ) -> Any:
        in_half(q, k, v)
        if causal and q.shape[-2] > k.shape[-2]:
            raise RuntimeError("kv_len must be greater than or equal to qo_len")
        own = by_position(causal, (left, -1))
        out, lse = dense(q, k, v, fault, cap, scale=sm_scale, **own)
        return out, lse / math.log(2)

    def single_prefill_with_kv_cache(
        q, k, v, causal=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
        return_lse=False,
    ):
        heads = [x.transpose(0, 1) for x in (q, k, v)]
        out, lse = one(*heads, sm_scale, causal, window_left, logits_soft_cap)
        out, lse = (x.transpose(0, 1).contiguous() for x in (out, lse))
        return (out, lse) if return_lse else out

    class BatchDecodeWithPagedKVCacheWrapper:
        def __init__(self, float_workspace_buffer, kv_layout="NHD", use_tensor_cores=False):
            self.use_tensor_cores = use_tensor_cores

        def plan(
            self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
            *, window_left=-1, logits_soft_cap=None, q_data_type="float16", sm_scale=None,
            q_len_per_req=1,
        ):
            assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
            assert 1 <= int(last_page_len.min()) <= int(last_page_len.max()) <= page_size
            assert len(indices) == int(indptr[-1])
            assert q_len_per_req == 1 or self.use_tensor_cores
            self.plan_ = SimpleNamespace(**{k: v for k, v in locals().items() if k != "self"})

        def run(self, q, paged_kv_cache):
            own, (k_cache, v_cache) = self.plan_, paged_kv_cache
            assert q.dtype == own.q_data_type
            assert q.shape[1:] == (own.num_qo_heads, own.head_dim)
            assert k_cache.shape[1:] == (own.page_size, own.num_kv_heads, own.head_dim)
            counts = own.indptr.diff()
            table = [own.indices[i:j].tolist() for i, j in pairwise(own.indptr.tolist())]
            lengths = (counts - 1) * own.page_size + own.last_page_len
            causal = own.q_len_per_req > 1
            rows = q.unflatten(0, (-1, own.q_len_per_req)).transpose(1, 2)
            out = over_pages(
                lambda *a: one(*a, own.sm_scale, causal, own.window_left, own.logits_soft_cap),
                rows, k_cache, v_cache, table, lengths,
            )
            return out.transpose(1, 2).flatten(0, 1)

    def merge_states(v, s):
        whole = torch.logsumexp(s * math.log(2), 1) / math.log(2)
        weights = torch.exp2(s - whole[:, None])
        return (weights[..., None] * v.float()).sum(1).to(v.dtype), whole

    functions = single_prefill_with_kv_cache, BatchDecodeWithPagedKVCacheWrapper, merge_states
    return {"flashinfer": {own.__name__: own for own in functions}}


# -- torch's varlen_attn ---------------------------------------------------------------------------


def torch_varlen(fault: str = "") -> dict[str, Any]:
    """Return `varlen_attn` of torch 2.13, with one fault on purpose."""

    def varlen_attn(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None,
        window_size=(-1, -1), enable_gqa=False, seqused_k=None, block_table=None,
    ):
        in_half(query, key, value)
        if cu_seq_q.shape != cu_seq_k.shape:
            raise RuntimeError("cu_seqlens_k must have shape (batch_size + 1)")
        if not enable_gqa and query.shape[1] != key.shape[-2]:
            raise ValueError("Expect query and key/value to have the same number of heads")
        own = by_position(False, window_size)

        def one(*heads: Tensor) -> Any:
            out, lse = dense(*heads, fault, scale=scale, **own)
            return out, lse.detach()

        if block_table is not None:
            assert key.shape[1] % 256 == 0
            assert seqused_k.dtype == block_table.dtype == torch.int32
            rows = query.unflatten(0, (-1, max_q)).transpose(1, 2)
            out = over_pages(one, rows, key, value, block_table, seqused_k, fault)
            return out.transpose(1, 2).flatten(0, 1)
        if key.shape != value.shape:
            raise RuntimeError("v must have shape (total_k, num_heads_k, head_size)")
        if all(set(x.diff().tolist()) <= {n} for x, n in ((cu_seq_q, max_q), (cu_seq_k, max_k))):
            # Texts of one length are a batch. One by one, 65,537 of them would take a minute.
            batch = len(cu_seq_q) - 1
            pairs = (query, max_q), (key, max_k), (value, max_k)
            out, lse = one(*(x.unflatten(0, (batch, n)).transpose(1, 2) for x, n in pairs))
            out, lse = out.transpose(0, 1).flatten(1, 2), lse.transpose(0, 1).flatten(1, 2)
        else:
            heads = [x.transpose(0, 1) for x in (query, key, value)]
            out, lse = over_texts(one, *heads, cu_seq_q, cu_seq_k, fault=fault)
        out = out.transpose(0, 1).contiguous()
        return (out, lse) if return_aux is not None and return_aux.lse else out

    own = {"varlen_attn": varlen_attn, "AuxRequest": SimpleNamespace}
    return {"torch.nn.attention.varlen": own}


# -- xformers --------------------------------------------------------------------------------------


class LowerTriangularMask:
    align = "top-left"


class LowerTriangularFromBottomRightMask:
    align = "bottom-right"


@dataclass
class BlockDiagonalMask:
    q_seqlen: list[int]
    kv_seqlen: list[int]
    device: Any
    align: str = ""

    @classmethod
    def from_seqlens(cls, q_seqlen, kv_seqlen=None, *, device=None):
        return cls(q_seqlen, kv_seqlen, device)

    def make_causal(self):
        return replace(self, align="top-left")

    def make_causal_from_bottomright(self):
        pairs = zip(self.q_seqlen, self.kv_seqlen, strict=True)
        assert all(n_keys >= n_queries for n_queries, n_keys in pairs)
        return replace(self, align="bottom-right")


def xformers(fault: str = "") -> dict[str, Any]:
    """Return the functions and biases of xformers 0.0.35, with one fault on purpose."""

    def memory_efficient_attention(query, key, value, attn_bias=None, scale=None):
        if not query.dtype == key.dtype == value.dtype or query.dtype == torch.float64:
            raise ValueError("Query/Key/Value should either all have the same dtype")
        if query.shape[2] != key.shape[2] or query.shape[0] != key.shape[0]:
            raise ValueError("Incompatible shapes for attention inputs")
        heads = [x.transpose(1, 2) for x in (query, key, value)]
        own: dict[str, Any] = {"scale": scale}
        align = getattr(attn_bias, "align", "")
        if align:
            own |= {"is_causal": True, "causal_align": align}
        if isinstance(attn_bias, BlockDiagonalMask):
            assert query.shape[0] == 1
            assert attn_bias.device == query.device
            starts = [
                torch.tensor([0, *n]).cumsum(0) for n in (attn_bias.q_seqlen, attn_bias.kv_seqlen)
            ]
            out = over_texts(lambda *a: dense(*a, fault, **own), *heads, *starts)[0]
        else:
            if isinstance(attn_bias, Tensor):
                assert attn_bias.shape == (*heads[0].shape[:3], key.shape[1])
                assert attn_bias.dtype == query.dtype
                assert all(stride % 8 == 0 for stride in attn_bias.stride()[:-1])
                own["attn_mask"] = attn_bias
            out = dense(*heads, fault, **own)[0]
        return out.transpose(1, 2).contiguous()

    masks = LowerTriangularMask, LowerTriangularFromBottomRightMask, BlockDiagonalMask
    return {
        "xformers": {},
        "xformers.ops": {"memory_efficient_attention": memory_efficient_attention},
        "xformers.ops.fmha": {},
        "xformers.ops.fmha.attn_bias": {own.__name__: own for own in masks},
    }


STAND_INS: dict[str, Callable[..., dict[str, Any]]] = {
    "flash_attn": flash_functions, "flashinfer": flashinfer,
    "torch_varlen": torch_varlen, "xformers": xformers,
}


def kernel(name: str, fault: str = "") -> Kernel:
    """Return what the adapter of a library makes of its stand-in."""
    return adapted(name, STAND_INS[name](fault))


# What each is asked, by its topics. A topic that is missing is not claimed.
PLAIN = {"values", "causal", "bottom-right", "layouts", "dtypes", "errors"}
SERVING = PLAIN | {"windows", "groups", "lse", "merge", "pages"}
ASKED = {
    "flash_attn": SERVING | {"gradients", "empty", "documents", "soft cap"},
    "flashinfer": SERVING | {"soft cap"},
    "torch_varlen": SERVING | {"gradients", "empty", "documents"},
    "xformers": PLAIN | {"gradients", "masks", "mask gradients", "documents"},
}


# On each change at one head dimension and in one dtype: an adapter hands these on, and no more.
@pytest.mark.parametrize("part", [at_one, pytest.param(Kernel.of, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ASKED)
def test_a_stand_in_passes_every_topic_that_its_adapter_claims(
    name: str, part: Callable[[Kernel], Kernel]
) -> None:
    report = check(part(kernel(name)))
    assert all(result.passed for result in report.results), str(report)
    assert {result.case.topic for result in report.results} == ASKED[name]


@pytest.mark.parametrize(
    ("name", "fault", "only"),
    [
        ("flash_attn", "is_causal stands at the other corner", ["bottom-right", "documents"]),
        ("flash_attn", "the log-sum-exp of an empty row is +∞", ["lse"]),
        ("flashinfer", "the log-sum-exp is one of base 2", ["lse"]),
        ("flashinfer", "the log-sum-exp is one of base 2", ["merge"]),
        ("torch_varlen", "packed texts see each other", ["documents"]),
        ("torch_varlen", "what stands behind the length is read", ["pages"]),
        ("xformers", "is_causal stands at the other corner", ["bottom-right", "documents"]),
        ("xformers", "the gradient of the mask is zeros", ["mask gradients"]),
    ],
)
def test_a_fault_is_noticed(name: str, fault: str, only: list[str]) -> None:
    report = check(at_one(kernel(name, fault)), only=only)
    assert {result.case.topic for result in report.failed} == set(only), str(report)
    if "+∞" in fault:  # as softmax.h of flash-attn itself has it
        assert [r.case.name for r in report.failed] == ["-∞ for a row before the first key"]


def test_a_window_that_ends_ahead_of_the_query_is_not_asked_of_flashinfer() -> None:
    asked = cases(kernel=kernel("flashinfer"), only=["windows"])
    ends = {case.call.options["window"][1] for case in asked}
    assert ends == {0, None}


def test_xformers_takes_one_bias() -> None:
    own, x = kernel("xformers"), torch.zeros(1, 2, 1, 8)
    with pytest.raises(TypeError, match="a tensor or a causal mask"):
        own.function(x, x, x, attn_mask=torch.zeros(2, 2), is_causal=True)


# -- without the libraries -------------------------------------------------------------------------

MISSING = {
    "flash_attn": "flash_attn",
    "flashinfer": "flashinfer",
    "torch_varlen": "torch.nn.attention.varlen",
    "xformers": "xformers",
}


@pytest.mark.parametrize("name", MISSING)
def test_a_library_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MISSING[name], None)
    with pytest.raises(ValueError, match=f"^{name} needs .+, but .*{MISSING[name]}"):
        found(f"attncheck.adapters:{name}")


@pytest.mark.parametrize("how", [(), ("--device", "cuda"), ("--judge",)])
@pytest.mark.parametrize(
    ("libraries", "gpu", "said"),
    [
        (False, False, "needs the package flash-attn, and there is no module 'flash_attn' here"),
        (True, False, "needs a GPU, and torch finds no CUDA device here"),
        (True, True, "needs a GPU: expected --device cuda; got cpu"),
    ],
)
def test_what_a_machine_lacks_is_one_line(
    libraries: bool, gpu: bool, said: str, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if libraries else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    path = "attncheck.adapters:flash_attn"
    if gpu and "cuda" in how:
        ready(path, "cuda")
        return
    with pytest.raises(SystemExit, match="2"):
        main([path, *how])
    assert capsys.readouterr().err == f"python -m attncheck: error: flash_attn {said}\n"


def test_a_device_that_is_not_there_is_no_fault_of_a_kernel(
    capsys: pytest.CaptureFixture[str]
) -> None:
    for how in ((), ("--judge",)):
        with pytest.raises(SystemExit, match="2"):
            main(["math:sqrt", "--device", "nowhere", *how])
        assert "device must be one that torch has here; got 'nowhere'" in capsys.readouterr().err


def test_another_name_is_no_kernel() -> None:
    with pytest.raises(ValueError, match="it has no 'paper'"):
        found("attncheck.adapters:paper")


def test_without_torch_the_kind_of_arrays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncheck.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs torch, which is not installed.*--kind numpy"):
        backend_for("torch")
