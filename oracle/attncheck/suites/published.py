"""The published suites: where they stand, what they ask, how they decide, and a mend.

Batches and heads are independent, so one or a few of them stand for all. Gradients are left out.
Numbers are drawn anew from the distribution that a suite states, in one draw with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attncheck._types import Array
from attncheck.suites.attentions import KERNEL, Question, attention, log_sum_exp
from attncheck.suites.rules import Rule, allclose, digits, mean_square, twice_the_peer

# What a call says of an attention: its error in units of what is allowed, None if it does not ask.
Ask = Callable[[str], float | None]
Draw = Callable[..., Array]


@dataclass(frozen=True)
class Suite:
    """One published test.

    Attributes:
        name: The library and the test.
        source: The repository, the file, the commit and its day.
        use: What the suite is for, and what it does well.
        asks: The calls, as published or, where True is given, with the mend.
        mend: What would have it notice all; "" where it does.
    """

    name: str
    source: str
    use: str
    asks: Callable[[bool], Iterator[Ask]]
    mend: str = ""


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def spread(deviation: float) -> Draw:
    """Return what draws normal numbers of this standard deviation."""
    return lambda rng, *shape: normal(rng, *shape) * np.float32(deviation)


def uniform(low: float, high: float) -> Draw:
    """Return what draws numbers between two bounds."""
    return lambda rng, *shape: rng.random(shape, np.float32) * np.float32(high - low) + low


def gated(asked: Question, error: Callable[[str], float]) -> Ask:
    """Return a call that says None of a mistake which it cannot show."""
    return lambda wrong: error(wrong) if asked.asks(wrong) else None


def compared(asked: Question, rule: Rule, result: Callable[..., Array] = attention) -> Ask:
    """Return a call whose result, the output or another, is compared with the right one."""
    right = result(asked)
    return gated(asked, lambda wrong: rule(asked, result(asked, wrong), right))


def call(
    rng: np.random.Generator, draw: Draw, heads: tuple[int, int], lengths: tuple[int, int], d: int,
    dtype: str, rule: Rule, *, causal: str = "", scale: float | None = None,
    value: Draw | None = None,
) -> Ask:
    """Return one call, with numbers drawn alike for query and key, and for the value if it has
    no draw of its own."""
    (n_heads, n_key_heads), (n_queries, n_keys) = heads, lengths
    query, key = draw(rng, n_heads, n_queries, d), draw(rng, n_key_heads, n_keys, d)
    values = (value or draw)(rng, n_key_heads, n_keys, d)
    return compared(Question(query, key, values, dtype, causal, scale), rule)


def flag_gems(quick: bool) -> Callable[[bool], Iterator[Ask]]:
    def asks(mended: bool) -> Iterator[Ask]:
        rng, draw = np.random.default_rng(1), normal if mended else uniform(-0.05, 0.05)
        rule = allclose(1e-3 if mended else 1e-4, 1e-3)
        yield call(rng, draw, (4, 4), (1024, 1024), 64, "float16", rule)
        yield call(rng, draw, (8, 8), (1024, 128), 64, "float16", rule)
        if quick:
            return
        # Of 1,024 causal rows the first 32, which see the fewest keys: they see the first 32.
        yield call(rng, draw, (64, 64), (32, 32), 256, "float16", rule, causal="top-left")
        for lengths in ((17, 1030), (512, 612)):
            for causal in ("", "top-left"):
                yield call(rng, draw, (4, 2), lengths, 128, "float16", rule, causal=causal)

    return asks


def flag_gems_flash(_: bool) -> Iterator[Ask]:
    """The quick mode of the test of the op below, which compares the log-sum-exp as well."""
    rng = np.random.default_rng(17)
    for causal in ("", "top-left"):
        query, key, value = uniform(-0.05, 0.05)(rng, 3, 2, 64, 64)
        asked = Question(query, key, value, "float16", causal)
        yield compared(asked, allclose(1e-4, 1e-3))
        yield compared(asked, allclose(1e-4, 1.3e-6), log_sum_exp)


def kernel_bench(tolerance: float, *dtypes: str) -> Callable[[bool], Iterator[Ask]]:
    def asks(mended: bool) -> Iterator[Ask]:
        rng, draw = np.random.default_rng(2), normal if mended else uniform(0, 1)
        # Rows are independent, and heads differ more than rows: of 32 heads the first 32 rows. With
        # all rows of all 1,024 heads the mean is at 0.87 to 0.92 of the bound in fp16 (3 draws). In
        # bf16 it is at 0.92 to 0.93, and 3 of 15 draws have an entry beyond the bound.
        # With the mend, or in float32, each mistake is far beyond the bound, and 8 heads show it.
        n_heads = 8 if mended or "float32" in dtypes else 32
        query, key, value = (draw(rng, n_heads, n, 1024) for n in (32, 512, 512))
        for dtype in dtypes:
            asked = Question(query, key, value, dtype)
            yield compared(asked, allclose(tolerance, tolerance))

    return asks


def triton_tutorial(fp8: bool) -> Callable[[bool], Iterator[Ask]]:
    def asks(mended: bool) -> Iterator[Ask]:
        rng, rule = np.random.default_rng(3), allclose(1e-2, 0)
        for length in (128, 1024):
            for causal in ("", "top-left"):
                query, key, value = (spread(0.5)(rng, 2, length, 64) for _ in range(3))
                asked = Question(query, key, value, "float16", causal, scale=0.5)
                yield in_fp8(asked, mended) if fp8 else compared(asked, rule)

    return asks


def in_fp8(given: Question, mended: bool) -> Ask:
    """Return a call whose kernel gets inputs in e5m2, and writes its output so too."""
    asked = replace(given, query=e5m2(given.query), key=e5m2(given.key), value=e5m2(given.value))
    right = attention(asked if mended else given)
    rule = allclose(0.1, 0.15) if mended else allclose(3, 0)
    return gated(asked, lambda wrong: rule(asked, e5m2(attention(asked, wrong)), right))


def vllm_paged(with_alibi: bool) -> Callable[[bool], Iterator[Ask]]:
    def asks(mended: bool) -> Iterator[Ask]:
        rng, rule = np.random.default_rng(4), allclose(1e-3, 1e-5)
        # A quarter of its 40 heads, or 64 for 8.
        for n_heads, n_key_heads, d in ((10, 10, 32), (16, 2, 32), (10, 10, 128)):
            draw = normal if mended else uniform(-(d**-0.5), d**-0.5)
            for alibi in (False, True)[: 1 + with_alibi]:
                # The shortest of seven lengths that random.seed(0) draws with 163 or 227 KiB of
                # shared memory. Less memory gives shorter ones: with 99 KiB 1327, with 64 KiB 664.
                n_keys = 2654
                shapes = (n_heads, 1, d), (n_key_heads, n_keys, d), (n_key_heads, n_keys, d)
                query, key, value = (draw(rng, *shape) for shape in shapes)
                slopes = normal(rng, n_heads, 1)
                nearness = np.arange(n_keys, dtype=np.float32) - n_keys + 1
                bias = slopes * nearness if alibi else None
                yield compared(Question(query, key, value, "bfloat16", bias=bias), rule)

    return asks


def gpu_mode_mla(mended: bool) -> Iterator[Ask]:
    """Sequences with one key head of 576 features; the reference rounds query and key to fp8."""
    rng = np.random.default_rng(5)
    for n_sequences, n_keys in ((8, 1024), (1, 8192)):
        asked, right = [], []
        for key in normal(rng, n_sequences, 1, n_keys, 576):
            asked.append(Question(normal(rng, 16, 1, 576), key, key[..., :512], "bfloat16"))
            query, key = e4m3(asked[-1].query), e4m3(asked[-1].key)
            right.append(attention(Question(query, key, key[..., :512], "bfloat16")))

        def error(
            wrong: str, asked: list[Question] = asked, right: list[Array] = right
        ) -> float:
            # A correct kernel may keep the cache in mxfp4.
            ours = [in_mxfp4(one) for one in asked] if wrong == KERNEL else asked
            got = np.stack([attention(one, wrong) for one in ours])
            if mended:
                return float(((got - right) ** 2).sum() / (0.03 * np.square(right).sum()))
            return allclose(0.1, 0.1, share=0.05)(asked[0], got, np.stack(right))

        yield gated(asked[0], error)


def e4m3(x: Array) -> Array:
    """Return numbers with 4 bits of exponent and 3 of mantissa, under one scale for all."""
    scale = np.abs(x).max() / 448
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x / scale), 2.0**-6))) - 3)
    return np.asarray(np.round(x / scale / step) * step * scale, np.float32)


def e5m2(x: Array) -> Array:
    """Return numbers with 5 bits of exponent and 2 of mantissa."""
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x), 2.0**-14))) - 2)
    return np.asarray(np.round(x / step) * step, np.float32)


def in_mxfp4(asked: Question) -> Question:
    """Return the call with keys, and values that are part of them, of 4 bits: blocks of 32 numbers
    share a power of 2, and each has 2 bits of exponent and 1 of mantissa."""
    blocks = asked.key.reshape(-1, 32)
    scale = 2.0 ** (np.floor(np.log2(np.abs(blocks).max(axis=1, keepdims=True))) - 2)
    small = np.clip(blocks / scale, -6, 6)
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(small), 1))) - 1)
    key = (np.round(small / step) * step * scale).reshape(asked.key.shape)
    return replace(asked, key=key, value=key[..., : asked.value.shape[-1]])


def vllm_backends(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(6), allclose(1e-2, 1e-2)
    for lengths in ((8, 40), (5, 56), (1, 1024), (16, 2048)):
        yield call(rng, normal, (8, 2), lengths, 128, "bfloat16", rule, causal="bottom-right")


def sglang_decode(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(7), allclose(3e-2, 1e-5)
    for n_keys in (5, 100, 128, 500):
        yield call(rng, normal, (16, 16), (1, n_keys), 64, "bfloat16", rule)
        yield call(rng, normal, (32, 2), (1, n_keys), 512, "bfloat16", rule)


def flash_attention(_: bool) -> Iterator[Ask]:
    rng = np.random.default_rng(8)
    for dtype in ("float16", "bfloat16"):
        for causal in ("", "bottom-right"):
            for lengths in ((113, 203), (256, 512)):
                yield call(rng, normal, (6, 2), lengths, 64, dtype, twice_the_peer, causal=causal)


def xformers(_: bool) -> Iterator[Ask]:
    rng = np.random.default_rng(9)
    rules = {"float16": (4e-3, 4e-4), "bfloat16": (2e-2, 5e-3), "float32": (3e-4, 2e-5)}
    for dtype, bounds in rules.items():
        for lengths in ((32, 32), (32, 1024), (256, 132)):
            for causal in ("", "top-left"):
                rule = allclose(*bounds)
                yield call(rng, spread(3), (2, 2), lengths, 64, dtype, rule, causal=causal)


def jax_pallas(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(10), allclose(0.05, 1e-7)
    for length in (128, 384):
        for causal in ("", "top-left"):
            both = length, length
            yield call(rng, normal, (2, 2), both, 64, "float16", rule, causal=causal, scale=1.0)


def mlx(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(11), allclose(3e-4, 3e-4)
    cases = ((3, 3), (20, 20), 64), ((8, 2), (64, 127), 64), ((32, 32), (1, 400), 128)
    for heads, lengths, d in cases:
        for causal in ("", "bottom-right"):
            value = uniform(0, d**-0.5)
            yield call(
                rng, uniform(0, 0.5), heads, lengths, d, "float16", rule, causal=causal, value=value
            )


def tinygrad(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(12), allclose(1e-6, 1e-3)
    for heads, lengths, causal in (
        ((8, 8), (16, 16), ""), ((8, 8), (16, 16), "top-left"), ((8, 8), (4, 16), ""),
        ((32, 8), (16, 16), ""),
    ):
        yield call(rng, uniform(-2, 2), heads, lengths, 64, "float32", rule, causal=causal)


def candle(_: bool) -> Iterator[Ask]:
    numbers = np.arange(48, dtype=np.float32).reshape(3, 2, 8)
    asked = Question(numbers / 30, numbers / 40, numbers / 50, "float16", scale=0.5)
    yield compared(asked, digits(4))


def ggml(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(13), mean_square(5e-4)
    for n_keys in (113, 512, 1024):
        yield call(rng, uniform(-1, 1), (4, 4), (32, n_keys), 64, "float16", rule)
    yield call(rng, uniform(-1, 1), (16, 4), (32, 512), 128, "float16", rule)


def aiter(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(14), allclose(1e-2, 1e-2)
    for lengths in ((128, 128), (64, 128), (256, 2048)):
        for causal in ("", "bottom-right"):
            yield call(rng, normal, (6, 2), lengths, 128, "bfloat16", rule, causal=causal)


def flash_infer(_: bool) -> Iterator[Ask]:
    rng, rule = np.random.default_rng(15), allclose(1e-3, 1e-3)
    for lengths in ((37, 501), (127, 2042)):
        for causal in ("", "bottom-right"):
            yield call(rng, normal, (4, 1), lengths, 64, "float16", rule, causal=causal)


def torch_code(mended: bool) -> Iterator[Ask]:
    """Two properties in place of a reference: the future changes nothing, row 0 is its value."""
    rng = np.random.default_rng(16)
    query, key, value = normal(rng, 3, 1, 8, 16)
    later = [np.concatenate([x[:, :4], normal(rng, 1, 4, 16)], axis=1) for x in (key, value)]
    asked = Question(query, key, value, "float32", "top-left")
    other = Question(query, later[0], later[1], "float32", "top-left")

    def error(wrong: str) -> float:
        got = attention(asked, wrong)
        misses = [got[:, :4] - attention(other, wrong)[:, :4], got[:, 0] - value[:, 0]]
        misses += [got - attention(asked)] if mended else []
        return max(float(np.abs(miss).max()) for miss in misses) / 1e-5

    yield gated(asked, error)


SUITES = (
    Suite(
        "KernelBench 1/97, fp16",
        "ScalingIntelligence/KernelBench, KernelBench/level1/97_ScaledDotProductAttention.py at "
        "06e49e8 (2026-01-02) and src/kernelbench/eval.py at 7a0fae9 (2026-02-27)",
        "Compares kernels that language models write. Float32 is its default, and it flags a "
        "kernel that is more than ten times as fast as the reference.",
        kernel_bench(1e-2, "float16"),
        "torch.randn in place of torch.rand",
    ),
    Suite(
        "FlagGems op, quick mode",
        "flagos-ai/FlagGems, tests/test_scaled_dot_product_attention.py at 2023ce1 (2026-08-07)",
        "Holds attention for the chips of many vendors against torch's, by the public function.",
        flag_gems(quick=True),
        "torch.randn in place of uniform_(-0.05, 0.05), and atol 1e-3",
    ),
    Suite(
        "FlagGems op, all cases",
        "the same file",
        "The first rows of a causal case see two or three keys, whose weights differ.",
        flag_gems(quick=False),
        "the same",
    ),
    Suite(
        "FlagGems flash op, quick",
        "the same file",
        "The function below the public one, on 64 keys; the log-sum-exp is compared as well.",
        flag_gems_flash,
    ),
    Suite(
        "vLLM pages, no ALiBi",
        "vllm-project/vllm, tests/kernels/attention/test_attention.py at 53ec16a (2026-03-12)",
        "Holds the kernel of PagedAttention: pages in random order, long contexts. It is about "
        "addresses: which keys, which heads, how many.",
        vllm_paged(with_alibi=False),
        "normal_() in place of uniform_(-scale, scale), for these cases",
    ),
    Suite(
        "vLLM pages, with ALiBi",
        "the same file",
        "With ALiBi the weights are far from equal.",
        vllm_paged(with_alibi=True),
    ),
    Suite(
        "Triton tutorial 06, fp8",
        "triton-lang/triton, python/tutorials/06-fused-attention.py at 5c846f0 (2025-12-02)",
        "The tutorial that many kernels began with; cases in fp8 stand beside those in fp16.",
        triton_tutorial(fp8=True),
        "a reference that reads the rounded inputs, with atol 0.1 and rtol 0.15",
    ),
    Suite(
        "Triton tutorial 06, fp16",
        "the same file",
        "The same shapes with a tolerance of 0.01; the gradients too, which are left out here.",
        triton_tutorial(fp8=False),
    ),
    Suite(
        "TorchCode, causal",
        "duoan/TorchCode, torch_judge/tasks/causal_attention.py at ff246da (2026-03-03)",
        "An exercise with a judge: the future changes nothing, and row 0 is its value.",
        torch_code,
        "one comparison with a reference beside the two properties",
    ),
    Suite(
        "GPU MODE, mixed-mla",
        "gpu-mode/reference-kernels, problems/amd_202602/mixed-mla/reference.py at 1f85fe4 "
        "(2026-03-18)",
        "A contest of speed that has to admit fp8 and mxfp4 caches.",
        gpu_mode_mla,
        "a mean square error of at most 3 % in place of 0.1 with 5 % of the entries free",
    ),
    Suite(
        "KernelBench 1/97, float32",
        "the same files as in fp16",
        "The default precision of the benchmark, with a tolerance of 0.0001.",
        kernel_bench(1e-4, "float32"),
    ),
    Suite(
        "vLLM v1, all backends",
        "vllm-project/vllm, tests/v1/attention/test_attention_backends.py at b1728c1 (2026-05-08)",
        "All backends of the engine against one reference, on batches as they occur.",
        vllm_backends,
    ),
    Suite(
        "SGLang, grouped decode",
        "sgl-project/sglang, test/registered/attention/test_triton_attention_kernels.py at 6ed9843 "
        "(2026-07-10)",
        "Decoding with up to 32 query heads for 2 key heads.",
        sglang_decode,
    ),
    Suite(
        "FlashAttention",
        "Dao-AILab/flash-attention, tests/test_flash_attn.py at 00756db (2026-07-24)",
        "Measures an error by that of plain PyTorch in the same dtype, at odd lengths.",
        flash_attention,
    ),
    Suite(
        "xFormers",
        "facebookresearch/xformers, tests/test_mem_eff_attention.py at ca6d2aa (2026-04-21)",
        "Inputs three times as large as normal ones, NaN behind each tensor, each call twice.",
        xformers,
    ),
    Suite(
        "JAX, Pallas on GPUs",
        "jax-ml/jax, tests/pallas/gpu_ops_test.py at b74c062 (2026-07-24)",
        "The example kernels of Pallas; their scale is 1.",
        jax_pallas,
    ),
    Suite(
        "MLX",
        "ml-explore/mlx, python/tests/test_fast_sdpa.py at 714a7ef (2026-08-20)",
        "Shapes off the tile, four kinds of mask, groups. Its tolerance of 0.0003 makes up for "
        "inputs between 0 and 0.5.",
        mlx,
    ),
    Suite(
        "tinygrad",
        "tinygrad/tinygrad, test/backend/test_ops.py at 0e7ab86 (2026-08-20)",
        "Operators against PyTorch, small and exact.",
        tinygrad,
    ),
    Suite(
        "candle",
        "huggingface/candle, candle-flash-attn/tests/flash_attn_tests.rs at 9bcfd98 (2026-06-25)",
        "One small call with numbers that are written out to four digits.",
        candle,
    ),
    Suite(
        "ggml",
        "ggml-org/ggml, tests/test-backend-ops.cpp at 5a232ab (2026-08-21)",
        "Every backend against the CPU, by the mean square error of the whole output.",
        ggml,
    ),
    Suite(
        "AITER",
        "ROCm/aiter, op_tests/triton_tests/attention/test_mha.py at 044f906 (2026-07-28)",
        "AMD's Triton attention against torch's.",
        aiter,
    ),
    Suite(
        "FlashInfer, one prefill",
        "flashinfer-ai/flashinfer, tests/attention/test_single_prefill.py at d7f2c64 (2026-08-19)",
        "Odd lengths of queries and keys, and a tolerance of 0.001.",
        flash_infer,
    ),
)
