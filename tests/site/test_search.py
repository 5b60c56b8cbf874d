"""The search finds what people type: names, abbreviations and questions, among the first three."""

from __future__ import annotations

import re

from tests.site.conftest import OpenPage

# A page, and what somebody types for whom it must be among the first three: words of a heading, of
# a formula, of the text, of code and of an output; names written in another way; questions.
TYPED = {
    "01_lookup": ("query key value", "embedding", "what is attention", "otherwise", "caffeinated"),
    "02_scores": ("dot product", "logits"),
    "03_scaling": (
        "sqrt", "why sqrt d_k", "variance", "vanishing gradient", "why divide by sqrt(d_k)",
        "Why do we divide by the square root of d_k?",
    ),
    "03_keys_that_match": ("muP",),
    "asked": ("fold the scale",),
    "04_softmax": (
        "temperature", "numerical stability", "why does the softmax saturate",
    ),
    "04_what_learning_sees": ("Jacobian",),
    "05_output": (
        "attention is all you need", "what is self attention", "scaled dot product attention",
        "multihead attention from scratch", "flooded",
    ),
    "07_masks": (
        "causal mask", "padding mask", "left padding", "masked_fill", "-inf",
        "how does a causal mask work", "why is my attention NaN",
    ),
    "10_torch": (
        "attention dropout", "cross-attention", "autograd", "MultiheadAttention", "contiguous",
    ),
    "masks": ("sliding window",),
    "08_heads": (
        "GQA", "grouped query attention", "multi-query attention", "multi-head attention", "c_attn",
        "grouped-query vs multi-query attention",
    ),
    "09_order": (
        "RoPE", "positional encoding", "permutation", "sinusoidal", "relative position bias",
        "rotary vs sinusoidal",
    ),
    "09_rotary_in_practice": ("rotate_half", "YaRN"),
    "10_number_formats": ("bf16", "mixed precision", "NVFP4"),
    "11_quadratic_cost": (
        "complexity", "quadratic memory", "gradient checkpointing", "is attention O(n^2) in memory",
        "quadratic", "tracemalloc",
    ),
    "12_traffic": ("memory-bound", "roofline"),
    "12_online_softmax": ("flash attention", "online softmax", "log-sum-exp"),
    "12_rounding": ("lazy rescaling",),
    "13_blockwise_backward": (
        "recomputation", "backward pass", "custom autograd function",
        "what does FlashAttention recompute",
    ),
    "14_fused_kernel": ("SRAM", "Triton kernel", "FlashAttention-4", "warp specialization"),
    "14_backward_kernel": ("deterministic backward",),
    "15_decoding": ("KV cache", "flash-decoding", "what is a KV-cache"),
    "15_pages": ("speculative decoding", "paged attention"),
    "16_many_devices": ("ring attention", "context parallelism", "NCCL"),
    "18_todays_models": ("attention sink", "QK-norm"),
    "18_recomputed": ("FlexAttention", "MLA"),
    "19_real_model": ("BERT", "sentence embedding", "BertViz"),
    "20_choosing_keys": ("sparse attention", "lightning indexer"),
    "20_recomputed": ("GLM-5", "DeepSeek-V4"),
    "21_a_state": ("delta rule", "feature map"),
    "21_recomputed": ("Qwen3-Next",),
    "conformance": ("test my kernel",),
    "lab": ("homework",),
    "peers": ("JAX attention", "ONNX"),
    "questions": ("FAQ",),
    "one_sheet": ("cheat sheet",),
    "torch_decoding": ("beam search",),
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
    missed = {}
    for page, typed in ((page, typed) for page, all_typed in TYPED.items() for typed in all_typed):
        found = first_pages(visit.page.evaluate(ASK, typed))
        if page not in found:
            missed[typed] = found
    assert missed == {}


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
        assert bool(links) == (typed != "perceptron")
        assert not any(tex in results.inner_text() for tex in ("\\", "^{", "_{"))
    assert visit.problems == [] and visit.foreign == []
