"""The search finds what people type: names, abbreviations and questions, among the first three."""

from __future__ import annotations

import re

from tests.site.conftest import OpenPage

# What somebody types, and the page that has to be among the first three.
TYPED = {
    "query key value": "01_lookup",
    "dot product": "02_scores",
    "logits": "02_scores",
    "embedding": "01_lookup",
    "sqrt": "03_scaling",
    "why sqrt d_k": "03_scaling",
    "variance": "03_scaling",
    "vanishing gradient": "03_scaling",
    "muP": "03_keys_that_match",
    "fold the scale": "03_where_the_factor_goes",
    "temperature": "04_softmax",
    "numerical stability": "04_softmax",
    "log-sum-exp": "04_softmax",
    "Jacobian": "04_what_learning_sees",
    "attention is all you need": "05_output",
    "causal mask": "07_masks",
    "padding mask": "07_masks",
    "left padding": "07_masks",
    "attention dropout": "10_torch",
    "masked_fill": "07_masks",
    "-inf": "07_masks",
    "sliding window": "masks",
    "GQA": "08_heads",
    "grouped query attention": "08_heads",
    "multi-query attention": "08_heads",
    "multi-head attention": "08_heads",
    "c_attn": "08_heads",
    "RoPE": "09_order",
    "positional encoding": "09_order",
    "permutation": "09_order",
    "sinusoidal": "09_order",
    "rotate_half": "09_rotary_in_practice",
    "YaRN": "09_rotary_in_practice",
    "relative position bias": "09_order",
    "bf16": "10_number_formats",
    "mixed precision": "10_number_formats",
    "NVFP4": "10_number_formats",
    "cross-attention": "10_torch",
    "autograd": "10_torch",
    "MultiheadAttention": "10_torch",
    "contiguous": "10_torch",
    "complexity": "11_quadratic_cost",
    "quadratic memory": "11_quadratic_cost",
    "gradient checkpointing": "11_quadratic_cost",
    "memory-bound": "12_traffic",
    "flash attention": "12_online_softmax",
    "online softmax": "12_online_softmax",
    "lazy rescaling": "12_rounding",
    "recomputation": "13_blockwise_backward",
    "backward pass": "13_blockwise_backward",
    "custom autograd function": "13_blockwise_backward",
    "SRAM": "14_fused_kernel",
    "Triton kernel": "14_fused_kernel",
    "roofline": "12_traffic",
    "FlashAttention-4": "14_compiled_code",
    "warp specialization": "14_compiled_code",
    "deterministic backward": "14_backward_kernel",
    "KV cache": "15_decoding",
    "speculative decoding": "15_batch",
    "flash-decoding": "15_decoding",
    "paged attention": "15_pages",
    "ring attention": "16_many_devices",
    "context parallelism": "16_many_devices",
    "NCCL": "16_many_devices",
    "attention sink": "18_todays_models",
    "QK-norm": "18_todays_models",
    "MLA": "18_todays_models",
    "FlexAttention": "18_recomputed",
    "BERT": "19_real_model",
    "sentence embedding": "19_real_model",
    "BertViz": "19_real_model",
    "sparse attention": "20_choosing_keys",
    "lightning indexer": "20_choosing_keys",
    "GLM-5": "20_recomputed",
    "DeepSeek-V4": "20_compressed",
    "delta rule": "21_a_state",
    "hybrid model": "21_a_state",
    "Qwen3-Next": "21_recomputed",
    "test my kernel": "conformance",
    "homework": "lab",
    "JAX attention": "peers",
    "ONNX": "peers",
    "FAQ": "questions",
    "cheat sheet": "one_sheet",
    # Questions, and names written in another way.
    "what is attention": "01_lookup",
    "why divide by sqrt(d_k)": "03_scaling",
    "Why do we divide by the square root of d_k?": "03_scaling",
    "why does the softmax saturate": "04_softmax",
    "what is self attention": "05_output",
    "scaled dot product attention": "05_output",
    "how does a causal mask work": "07_masks",
    "why is my attention NaN": "07_masks",
    "multihead attention from scratch": "05_output",
    "what is a KV-cache": "15_decoding",
    "beam search": "torch_decoding",
    "is attention O(n^2) in memory": "11_quadratic_cost",
    "grouped-query vs multi-query attention": "08_heads",
    "what does FlashAttention recompute": "13_blockwise_backward",
    "rotary vs sinusoidal": "09_order",
    # What stands in a heading, a formula, the text, code, and an output.
    "quadratic": "11_quadratic_cost",
    "otherwise": "01_lookup",
    "caffeinated": "01_lookup",
    "tracemalloc": "12_online_softmax",
    "flooded": "05_output",
}


# Asks the search for the names of the pages that it shows, in their order.
ASK = """typed => {
  const [query, ...terms] = Search._parseQuery(typed);
  return Search._performSearch(query, ...terms).reverse().map(([page]) => page);
}"""


def first_pages(paths: list[str]) -> list[str]:
    return list(dict.fromkeys(path.rpartition("/")[2] for path in paths))[:3]


def test_what_people_type_leads_to_where_it_is_explained(open_page: OpenPage) -> None:
    visit = open_page("search?q=softmax")
    visit.page.locator("#search-results ul.search > li").first.wait_for(timeout=10_000)
    found = {typed: first_pages(visit.page.evaluate(ASK, typed)) for typed in TYPED}
    assert {typed: found[typed] for typed, page in TYPED.items() if page not in found[typed]} == {}


def test_the_page_of_results_shows_what_was_found(open_page: OpenPage) -> None:
    said = re.compile("found|did not match")
    visit = open_page("search?q=softmax")
    results = visit.page.locator("#search-results")
    for typed in ("what is self attention", "flooded", "RoPE", "perceptron"):
        visit.page.goto(f"{visit.page.url.partition('?')[0]}?q={typed}")
        results.filter(has_text=said).wait_for(timeout=10_000)
        links = results.locator("ul.search > li > a").evaluate_all(
            "all => all.map(a => a.pathname.replace('.html', ''))"
        )
        assert first_pages(links) == first_pages(visit.page.evaluate(ASK, typed))
        assert bool(links) == (typed in TYPED)
    assert visit.problems == [] and visit.foreign == []
